"""Kafka: all that speaks to brokers, and the only place that knows the client library."""
