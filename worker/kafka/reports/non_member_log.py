"""Reads a topic and its group without joining; implements `NonMemberLog`."""

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

from kafka import OffsetAndMetadata, TopicPartition

from worker.counting.ports import NotOwner
from worker.kafka.client import quirks, reading
from worker.kafka.reports.offsets import ask, topic_id

_TIMEOUT_MS = 10_000
_STALL_SECONDS = 30.0


class KafkaNonMemberLog:
    """Reads and commits as a non-member of the group; for one thread."""

    def __init__(self, consumer: Any, topic: str, passed: list[reading.Passed]) -> None:
        self._consumer, self._topic, self._passed = consumer, topic, passed

    @classmethod
    def connect(cls, settings: Mapping[str, Any], group: str, topic: str) -> "KafkaNonMemberLog":
        """Connects a consumer. Raises `Unavailable`: the brokers do not answer."""
        passed = list[reading.Passed]()
        connect = partial(
            reading.connect,
            settings,
            on_passed=passed.append,
            client_id=f"ldp-worker-{group}-import",
            group_id=group,
            max_poll_records=1,
        )
        return cls(ask("connecting", connect), topic, passed)

    def topic_id(self) -> str:
        """Returns the topic's id, which changes if the topic is created again."""
        return topic_id(self._consumer, self._topic, _TIMEOUT_MS)

    def partitions(self) -> set[int]:
        """Returns all partitions of the topic."""
        return ask(
            "asking for the partitions of",
            lambda: set(self._consumer.partitions_for_topic(self._topic) or ()),
            self._topic,
        )

    def committed(self, partitions: Collection[int]) -> dict[int, tuple[int, str]]:
        """Returns (offset, metadata) of each partition with a committed offset."""
        found = {}
        for partition in partitions:
            step = partial(
                self._consumer.committed, self._tp(partition), metadata=True, timeout_ms=_TIMEOUT_MS
            )
            committed = ask("asking for the group's offsets of", step, self._topic)
            if committed is not None and committed.offset >= 0:
                found[partition] = (committed.offset, committed.metadata)
        return found

    def bounds(self, partitions: Collection[int]) -> dict[int, tuple[int, int]]:
        """Returns each log's (first offset, last stable offset)."""
        tps = [self._tp(partition) for partition in partitions]
        found = ask(
            "asking for the beginning and end of",
            lambda: quirks.whole_bounds(self._consumer, tps, _TIMEOUT_MS),
            self._topic,
        )
        return {tp.partition: bounds for tp, bounds in found.items()}

    def has_records(self, partition: int, begin: int, end: int) -> bool:
        """Returns whether a log has committed records in [begin, end)."""
        self._passed.clear()
        found = reading.records(self._consumer, self._tp(partition), begin, end, stall_seconds=_STALL_SECONDS)
        there = ask("reading", lambda: next(found, None), self._topic) is not None
        return there or any(bad.offset < end for bad in self._passed)

    def mirror(self, offsets: Mapping[int, tuple[int, str]]) -> None:
        """Commits offsets; does nothing while the group has members."""
        commits = {self._tp(p): OffsetAndMetadata(offset, text, -1) for p, (offset, text) in offsets.items()}
        try:
            commit = partial(self._consumer.commit, commits, timeout_ms=_TIMEOUT_MS)
            ask("committing the group's offsets of", commit, self._topic)
        except NotOwner:
            return

    def close(self) -> None:
        """Closes the connection."""
        self._consumer.close(autocommit=False, timeout_ms=_TIMEOUT_MS)

    def _tp(self, partition: int) -> TopicPartition:
        return TopicPartition(self._topic, partition)
