"""Kafka: all that speaks to brokers, and the only place that knows the client library."""

from worker.kafka import quirks

quirks.mend_connections()  # before any client of this room connects
