"""Sends uploads to the intake topics."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kafka import KafkaProducer
from kafka.errors import KafkaError

from worker.kafka.client import quirks
from worker.kafka.client.errors import unavailable

_STUCK_TIMEOUTS = 3  # Time without an acknowledgement after which the producer is replaced, in time-outs


class IntakeSender:
    """Sends uploads with a replaceable producer.

    Without idempotence a producer recovers from any outage; the shuffler removes records that are sent twice.
    """

    def __init__(self, settings: Mapping[str, Any], topics: Sequence[str], timeout_seconds: float) -> None:
        self._settings, self._topics, self._seconds = settings, topics, timeout_seconds
        self._producer: Any = None
        self._tried_at: float | None = None

    @property
    def due(self) -> bool:
        """Whether the producer is missing, or acknowledged nothing for too long."""
        tried = self._tried_at
        stuck = tried is not None and time.monotonic() - tried > _STUCK_TIMEOUTS * self._seconds
        return self._producer is None or stuck

    def replace(self) -> None:
        """Starts a new producer, and waits for the brokers.

        Raises `Unavailable`: the brokers do not answer.
        """
        quirks.mend_connections()
        self.close()
        milliseconds = int(1000 * self._seconds)
        try:
            producer = KafkaProducer(
                **self._settings,
                **quirks.OUTLIVES_REFUSALS,
                client_id="ldp-worker-gateway",
                acks="all",
                linger_ms=5,
                request_timeout_ms=milliseconds // 2,
                delivery_timeout_ms=milliseconds,
                max_block_ms=milliseconds,
                bootstrap_timeout_ms=milliseconds,
                allow_auto_create_topics=False,
            )
            for topic in self._topics:
                producer.partitions_for(topic)
        except KafkaError as error:
            raise unavailable(error, "connecting to", ", ".join(self._topics)) from error
        producer.config["max_block_ms"] = 0  # `send` runs on the event loop
        self._producer = producer

    def send(self, topic: str, key: bytes, value: bytes, done: Callable[[bool], object]) -> None:
        """Sends a record without waiting.

        Calls `done` once, on any thread: whether all in-sync replicas have the record.
        """
        self._tried_at = time.monotonic() if self._tried_at is None else self._tried_at
        if (producer := self._producer) is None:
            done(False)
            return
        try:
            sent = producer.send(topic, value, key)
        except (KafkaError, quirks.TOPIC_MISSING):
            done(False)
            return

        def succeeded(_: Any) -> None:
            self._tried_at = None
            done(True)

        sent.add_callback(succeeded)
        sent.add_errback(lambda _: done(False))

    def close(self) -> None:
        """Drops the producer."""
        producer, self._producer, self._tried_at = self._producer, None, None
        if producer is not None:
            quirks.drop(producer)
