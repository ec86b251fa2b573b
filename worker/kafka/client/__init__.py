"""Wraps the Kafka client library: workarounds, the raw fetch hook, connections, topics, errors, a reader."""
