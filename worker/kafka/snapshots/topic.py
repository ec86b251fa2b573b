"""Connects the clients of the snapshot topic."""

from collections.abc import Mapping
from typing import Any

from worker.kafka.client import reading, topics, transactions

PARTITION = 0  # One partition, so that a `read_committed` reader sees each snapshot completely or not at all

UNREADABLE = ValueError, LookupError, TypeError, AttributeError, OverflowError
"""Exceptions from reading a message that belongs to no valid snapshot."""


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
        return transactions.connect(
            self._settings, self._id, f"ldp-worker-{self._id}-snapshots", self._most_bytes, self._compression
        )

    def admin(self) -> Any:
        """Connects an admin client."""
        return topics.connect(self._settings)

    def consumer(self, level: str, begins: bytes, on_passed: reading.OnPassed) -> Any:
        """Connects a consumer with an isolation level; see `reading.connect`."""
        return reading.connect(
            self._settings, level, begins, on_passed, max_partition_fetch_bytes=reading.LARGEST
        )
