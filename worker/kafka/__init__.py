"""Kafka: all that speaks to brokers, and the only place that knows the client library."""

from worker.kafka import transport

transport.install()  # before any client of this room connects
