"""The clients of the snapshot topic: what `snapshot_producer` speaks to brokers with, and how they are set."""

from collections.abc import Mapping
from typing import Any

from kafka import KafkaProducer

from worker.kafka.client import quirks, reading, topics

PARTITION = 0
"""All of a stream's snapshots go to this partition, so that a `read_committed` reader sees all of one or none."""

TIMEOUT_SECONDS = 30
"""How long an answer is waited for, and a transaction may stay open that has no more than that takes."""

UNREADABLE = ValueError, LookupError, TypeError, AttributeError, OverflowError
"""What reading a message raises that is no snapshot's, or one of a snapshot that cannot be read."""

_BYTES_PER_SECOND = 16 << 20
"""What a publisher sends in a second, at the least: a quarter of what one does on two cores beside its broker."""


def transaction_seconds(most_bytes: int) -> int:
    """Returns how long a transaction of so many bytes may stay open.

    Example:
        >>> transaction_seconds(128_000_000), transaction_seconds(3_584_000_000)
        (30, 214)
    """
    return max(TIMEOUT_SECONDS, -(-most_bytes // _BYTES_PER_SECOND))


class SnapshotTopic:
    """The snapshot topic, as it is written and read for one stream.

    Args:
        settings: keyword arguments for every Kafka client.
        transactional_id: fences publishers of the same stream off each other.
        name: the topic's.
        most_bytes: of the messages of a transaction; the brokers abort one that is open for longer than they may take.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        transactional_id: str,
        name: str,
        most_bytes: int = 0,
    ) -> None:
        self._settings, self._id, self.name = settings, transactional_id, name
        self._most_bytes = most_bytes

    def producer(self) -> Any:
        """Connects a transactional producer; its `init_transactions` fences the one before it off."""
        quirks.mend_connections()
        producer = KafkaProducer(
            **self._settings,
            client_id=f"ldp-worker-{self._id}-snapshots",
            transactional_id=self._id,
            transaction_timeout_ms=transaction_seconds(self._most_bytes) * 1000,
            delivery_timeout_ms=TIMEOUT_SECONDS * 1000,
            request_timeout_ms=TIMEOUT_SECONDS * 1000 // 2,
            max_block_ms=TIMEOUT_SECONDS * 1000,
            compression_type="lz4",
            linger_ms=5,
            max_request_size=reading.LARGEST,
            allow_auto_create_topics=False,
        )
        quirks.ask_again(producer)
        quirks.end_once(producer)
        return producer

    def admin(self) -> Any:
        """Connects a client that can ask where the topic begins and ends."""
        return topics.connect(self._settings)

    def consumer(self, level: str, begins: bytes, on_passed: reading.OnPassed) -> Any:
        """Connects a reader of one isolation level; see `worker.kafka.client.reading.connect`."""
        return reading.connect(
            self._settings, level, begins, on_passed, max_partition_fetch_bytes=reading.LARGEST
        )
