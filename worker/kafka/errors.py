"""What the client library raises, for those that do not know the library."""

from kafka.errors import KafkaError

BrokerError = KafkaError
"""The brokers refused, or did not answer, or a record batch cannot be read."""
