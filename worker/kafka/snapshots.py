"""The snapshot topic, read as any consumer would: the latest complete snapshot of a stream."""

import time

from kafka import KafkaConsumer, TopicPartition

from ldp.snapshot import Incomplete, Snapshot, assemble
from worker.config import Config
from worker.kafka.snapshot_topic import PARTITION

_POLL_MS = 200


class SnapshotReader:
    """The snapshots of one stream, from the topic's beginning on; a context manager.

    A snapshot is one transaction in one partition, so a reader of committed records that keeps the newest message of
    each key has all of a snapshot or none of it.

    Args:
        config: where the snapshots are.
        stream: the stream's name.
    """

    def __init__(self, config: Config, stream: str) -> None:
        self._stream = stream
        self._newest: dict[str, tuple[dict[str, bytes], bytes]] = {}
        self._shown = 0
        self.published = 0.0
        """When the latest snapshot was published, by its message's timestamp, in seconds since the epoch."""
        self._partition = TopicPartition(config.snapshots.topic, PARTITION)
        self._consumer = KafkaConsumer(
            **config.kafka.client(),
            group_id=None,
            enable_auto_commit=False,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            allow_auto_create_topics=False,
        )
        self._consumer.assign([self._partition])
        self._consumer.seek_to_beginning(self._partition)

    def __enter__(self) -> "SnapshotReader":
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def latest(self, timeout_seconds: float) -> Snapshot | None:
        """Returns the latest snapshot as soon as there is one not returned before, or None if none comes in time."""
        deadline = time.monotonic() + timeout_seconds
        while True:
            wait = int(max(0, min(_POLL_MS, 1000 * (deadline - time.monotonic()))))
            # older snapshots need not be put together, only what there is when nothing more comes at once
            more = self._read(wait) and not self._caught_up()
            if not more and (snapshot := self._fresh()) is not None:
                return snapshot
            if time.monotonic() >= deadline:
                return None

    def age(self) -> float:
        """Returns the seconds since the latest snapshot was published."""
        return max(0.0, time.time() - self.published)

    def _read(self, wait_ms: int) -> bool:
        """Takes in what has come; returns whether anything has."""
        polled = self._consumer.poll(timeout_ms=wait_ms)
        for records in polled.values():
            for record in records:
                key = (record.key or b"").decode(errors="replace")
                if not key.startswith(f"{self._stream}/"):
                    continue
                if record.value is None:
                    self._newest.pop(key, None)
                    continue
                self._newest[key] = (dict(record.headers), record.value)
                if key == f"{self._stream}/head":
                    self.published = record.timestamp / 1000
        return bool(polled)

    def _caught_up(self) -> bool:
        end = self._consumer.highwater(self._partition)
        return end is not None and self._consumer.position(self._partition) >= end

    def _fresh(self) -> Snapshot | None:
        head = self._newest.get(f"{self._stream}/head")
        if head is None or (sequence := int(head[0]["sequence"])) == self._shown:
            return None
        try:
            snapshot = assemble(self._stream, self._newest)
        except Incomplete:
            return None
        self._shown = sequence
        return snapshot
