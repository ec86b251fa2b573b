"""Joins the group that shares a stream's intake partitions."""

import time
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from kafka import ConsumerRebalanceListener, TopicPartition
from kafka.structs import MemberState

from worker.counting.ports import Displaced
from worker.kafka.client import quirks
from worker.kafka.reports.offsets import ask, join

_TIMEOUT_MS = 10_000
_JOIN_MS = 200


class IntakeGroup(ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python carries no types
    """A member of an intake topic's group. It does not read records.

    Raises `Unavailable`: the brokers do not answer. Raises `Displaced`: another process has this member's name.
    """

    def __init__(self, settings: Mapping[str, Any], group: str, topic: str) -> None:
        self.topic = topic
        self._consumer = join(settings, group)
        self._member = self._consumer.group_metadata().group_instance_id
        if self._member:
            quirks.leave_on_close(self._consumer)
        self._subscribed_ms = 1000 * time.monotonic()
        self._consumer.subscribe([topic], listener=self)

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Pauses new partitions; runs on the client's I/O thread."""
        for tp in assigned:
            quirks.hold(self._consumer, tp)

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Does nothing: a new generation ends all claims."""

    def poll(self, timeout_ms: int) -> Any:
        """Stays in the group; returns the membership, or None during a rebalance."""
        if self._member and quirks.displaced(self._consumer):
            raise Displaced(
                f"another process joined the group of topic {self.topic!r} as {self._member!r}. Give each shuffler its"
                " own kafka.member, then restart this shuffler."
            )
        joining = self._consumer.group_metadata().state is not MemberState.STABLE
        quirks.resume_join(self._consumer)
        poll = partial(self._consumer.poll, _JOIN_MS if joining else timeout_ms)
        ask("joining the group of", poll, self.topic)
        membership = self._consumer.group_metadata()
        return membership if membership.state is MemberState.STABLE else None

    def assigned(self) -> set[int]:
        """Returns the partitions that the group assigns to this process."""
        return {tp.partition for tp in self._consumer.assignment()}

    def missing(self) -> bool:
        """Returns whether the topic does not exist."""
        known = partial(quirks.known_partitions, self._consumer, self.topic, self._subscribed_ms)
        return ask("asking for the partitions of", known, self.topic) == set()

    def committed(self, tp: TopicPartition) -> tuple[int, str] | None:
        """Returns a partition's committed offset and its metadata."""
        found = quirks.committed(self._consumer, [tp], _TIMEOUT_MS).get(tp)
        return None if found is None or found.offset < 0 else (found.offset, found.metadata)

    def close(self) -> None:
        """Leaves the group."""
        self._consumer.close(autocommit=False, timeout_ms=_TIMEOUT_MS)
