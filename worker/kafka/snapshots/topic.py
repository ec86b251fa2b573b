"""Connects the clients of the snapshot topic."""

from collections.abc import Mapping
from typing import Any

from kafka import KafkaProducer

from worker.kafka.client import quirks, reading, topics

PARTITION = 0  # One partition, so that a `read_committed` reader sees each snapshot completely or not at all

TIMEOUT_SECONDS = 30  # Longest wait for an answer, and shortest transaction time-out

UNREADABLE = ValueError, LookupError, TypeError, AttributeError, OverflowError
"""Exceptions from reading a message that belongs to no valid snapshot."""

_BYTES_PER_SECOND = 16 << 20
"""Lowest expected rate of a publisher: less than half of the rate measured on two cores shared with the broker."""


def transaction_seconds(most_bytes: int) -> int:
    """Returns the time-out of a transaction of `most_bytes`, in seconds.

    Example:
        >>> transaction_seconds(128_000_000), transaction_seconds(3_584_000_000)
        (30, 214)
    """
    return max(TIMEOUT_SECONDS, -(-most_bytes // _BYTES_PER_SECOND))


class SnapshotTopic:
    """The snapshot topic for one stream."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        transactional_id: str,
        name: str,
        most_bytes: int = 0,
        compression: str = "gzip",
    ) -> None:
        self._settings, self._id, self.name = settings, transactional_id, name
        self._most_bytes, self._compression = most_bytes, compression

    def producer(self) -> Any:
        """Connects a producer; `init_transactions` fences off its predecessor."""
        quirks.mend_connections()
        producer = KafkaProducer(
            **self._settings,
            client_id=f"ldp-worker-{self._id}-snapshots",
            transactional_id=self._id,
            transaction_timeout_ms=transaction_seconds(self._most_bytes) * 1000,
            delivery_timeout_ms=TIMEOUT_SECONDS * 1000,
            request_timeout_ms=TIMEOUT_SECONDS * 1000 // 2,
            max_block_ms=TIMEOUT_SECONDS * 1000,
            **quirks.compress(self._compression),
            linger_ms=5,
            max_request_size=reading.LARGEST,
            allow_auto_create_topics=False,
        )
        quirks.retry_lost_requests(producer)
        quirks.refuse_end_retries(producer)
        return producer

    def admin(self) -> Any:
        """Connects an admin client."""
        return topics.connect(self._settings)

    def consumer(self, level: str, begins: bytes, on_passed: reading.OnPassed) -> Any:
        """Connects a consumer with an isolation level; see `reading.connect`."""
        return reading.connect(
            self._settings, level, begins, on_passed, max_partition_fetch_bytes=reading.LARGEST
        )
