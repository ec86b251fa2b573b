"""Wraps the Kafka client library: workarounds, fetch hook, topics, reader."""
