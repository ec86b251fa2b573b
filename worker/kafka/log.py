"""Kafka in: one stream's topic and consumer group, as `ports.Log` describes them; records as columns."""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from kafka import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka import errors as kafka_errors
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.structs import MemberState

from worker.counting.columns import Batch, Columns
from worker.counting.ports import NotOwner, StateLost, Unavailable
from worker.counting.rules import Rule
from worker.kafka import quirks

MAX_POLL_RECORDS = 20_000
FETCH_BYTES = 8 << 20
"""Fetched of one partition at a time; a record larger than this is still fetched, alone."""

_TIMEOUT_MS = 10_000
_JOIN_MS = 200
_T = TypeVar("_T")


class KafkaLog(ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python carries no types
    """One stream's log. All methods but the listener's run on the polling thread.

    The listener runs on the client's I/O thread and only seeks and pauses: a partition without a position would be
    sought to Kafka's own offset, and a slow listener would stop the heartbeats.

    Args:
        settings: keyword arguments for every Kafka client.
        group: the consumer group.
        topic: the stream's topic.
    """

    def __init__(self, settings: Mapping[str, Any], group: str, topic: str) -> None:
        self._topic = topic
        self._lock = threading.Lock()
        self._revoked: set[int] = set()
        self._positions: dict[int, int] = {}
        self._membership: object = None
        self._consumer = _ask(
            lambda: KafkaConsumer(
                **settings,
                client_id=f"ldp-worker-{group}",
                group_id=group,
                auto_offset_reset="none",
                enable_auto_commit=False,
                isolation_level="read_committed",
                allow_auto_create_topics=False,
                partition_assignment_strategy=[CooperativeStickyAssignor],
                max_poll_records=MAX_POLL_RECORDS,
                max_partition_fetch_bytes=FETCH_BYTES,
                session_timeout_ms=10_000,
                heartbeat_interval_ms=1_000,  # a rebalance is heard of this soon
                metadata_max_age_ms=30_000,
            )
        )
        self._consumer.subscribe([topic], listener=self)
        self._subscribed_ms = 1000 * time.monotonic()

    # the listener, on the I/O thread

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Keeps new partitions still until they are claimed."""
        for tp in assigned:
            quirks.hold(self._consumer, tp)

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Notes what is to be let go of."""
        with self._lock:
            self._revoked.update(tp.partition for tp in revoked)

    on_partitions_lost = on_partitions_revoked

    # reading, on the polling thread

    def poll(self, timeout_ms: int) -> list[Batch]:
        """Returns what is new in the started partitions, one batch each; also of those where only markers passed.

        Raises:
            StateLost: the log was truncated below what was read.
        """
        try:
            return self._poll(timeout_ms)
        except kafka_errors.OffsetOutOfRangeError:
            # retention overtook the position, or the log was truncated: claiming again finds out which
            with self._lock:
                self._revoked.update(self._positions)
            return []
        except kafka_errors.LogTruncationError as error:
            raise StateLost(
                f"topic {self._topic!r} was truncated below what had been read: {error}"
            ) from error
        except kafka_errors.RetriableError as error:
            raise Unavailable(f"Kafka: {error}") from error

    def _poll(self, timeout_ms: int) -> list[Batch]:
        quirks.go_on_joining(self._consumer)
        polled = self._consumer.poll(timeout_ms)
        assigned = self.assigned()
        if (membership := self._consumer.group_metadata()[1:3]) != self._membership:
            # a rebalance: a partition may have been lost and regained without a word, its position then is Kafka's own
            # offset, which may be ahead of or behind what was counted; so every position is put back where it was
            self._membership = membership
            with self._lock:
                kept = {
                    p: at for p, at in self._positions.items() if p in assigned and p not in self._revoked
                }
            for partition, position in kept.items():
                self._consumer.seek(self._tp(partition), position)
                self._consumer.resume(self._tp(partition))
            return []
        records = {tp.partition: batch for tp, batch in polled.items()}
        batches = []
        for partition, start in list(self._positions.items()):
            if partition not in assigned:
                continue
            new = records.get(partition, [])
            end = self._consumer.position(self._tp(partition), timeout_ms=_TIMEOUT_MS)
            if end is None or (not new and end == start):
                continue
            columns = Columns.of(
                [record.offset for record in new],
                [record.timestamp for record in new],
                [record.value for record in new],
            )
            batches.append(Batch(partition, start, end, columns))
            self._positions[partition] = end
        return batches

    def keep(self) -> None:
        """Stays in the group, and hears of rebalances, without reading on: while what was polled is being counted.

        Raises:
            StateLost: as `poll` does.
        """
        # a member that is joining has to be given time for it
        joining = self._consumer.group_metadata().state is not MemberState.STABLE
        reading = self._reading()
        self._consumer.pause(*reading)
        try:
            self.poll(_JOIN_MS if joining else 0)
        finally:
            self._consumer.resume(*self._reading())

    def _reading(self) -> list[TopicPartition]:
        """Returns the started partitions that are still assigned."""
        return [self._tp(partition) for partition in self._positions.keys() & self.assigned()]

    def take_revoked(self) -> set[int]:
        """Returns the partitions taken away since the last call."""
        with self._lock:
            revoked, self._revoked = self._revoked, set()
        for partition in revoked:
            self._positions.pop(partition, None)
        return revoked

    def partitions(self) -> set[int] | None:
        """Returns all partitions of the topic, none if it is missing, or None while the client has not heard of it."""
        return quirks.known_partitions(self._consumer, self._topic, self._subscribed_ms)

    def ends(self, partitions: Collection[int]) -> dict[int, tuple[int, int]]:
        """Returns each log's last stable offset and its high watermark, as the last fetch heard that.

        Between them lies what no transaction has decided yet. The watermark is taken first, so that what was only just
        written does not look undecided.
        """
        assigned = self.assigned()
        high = {p: self._consumer.highwater(self._tp(p)) or 0 for p in partitions if p in assigned}
        stable = self._bound(self._consumer.end_offsets, partitions)
        return {p: (end, max(end, high.get(p, 0))) for p, end in stable.items()}

    def close(self) -> None:
        """Leaves the group."""
        self._consumer.close(autocommit=False, timeout_ms=_TIMEOUT_MS)

    # what claim and commit need: worker.counting.ports.Log

    def topic_id(self) -> str:
        """Returns the id of the topic, another one if it was created again."""
        if (topic_id := quirks.known_topic_id(self._consumer, self._topic)) is None:
            raise Unavailable(f"Kafka: the id of topic {self._topic!r} is not known (yet)")
        return topic_id

    def generation(self) -> object | None:
        """Returns (generation, member) while the membership is stable."""
        member = self._consumer.group_metadata()
        if member.state is not MemberState.STABLE:
            return None
        return member.generation_id, member.member_id

    def assigned(self) -> set[int]:
        """Returns the partitions that the group assigns to this worker."""
        return {tp.partition for tp in self._consumer.assignment()}

    def committed(self, partitions: Collection[int]) -> dict[int, tuple[int, str]]:
        """Returns the group's committed (offset, metadata) of the partitions that have one."""
        found = {}
        for partition in partitions:
            committed = _ask(
                partial(self._consumer.committed, self._tp(partition), metadata=True, timeout_ms=_TIMEOUT_MS)
            )
            if committed is not None and committed.offset >= 0:
                found[partition] = (committed.offset, committed.metadata)
        return found

    def bounds(self, partitions: Collection[int]) -> dict[int, tuple[int, int]]:
        """Returns each log's (first offset, last stable offset)."""
        firsts = self._bound(self._consumer.beginning_offsets, partitions)
        ends = self._bound(self._consumer.end_offsets, partitions)
        return {partition: (firsts[partition], ends[partition]) for partition in partitions}

    def confirm(self, offsets: Mapping[int, tuple[int, str]]) -> None:
        """Commits offsets as a member of the current generation; raises `NotOwner` if that is over."""
        if self.generation() is None:
            raise NotOwner
        _ask(lambda: self._consumer.commit(self._offsets(offsets), timeout_ms=_TIMEOUT_MS))

    def mirror(self, offsets: Mapping[int, tuple[int, str]]) -> None:
        """Commits offsets without waiting."""
        self._consumer.commit_async(self._offsets(offsets))

    def start(self, partition: int, offset: int, rules: Sequence[Rule]) -> None:  # noqa: ARG002  # soon
        """Lets `poll` return the partition's records from an offset on."""
        tp = self._tp(partition)
        if partition in self.assigned():
            self._consumer.seek(tp, offset)
            self._consumer.resume(tp)
            self._positions[partition] = offset

    def stop(self, partition: int) -> None:
        """Lets `poll` return no more of the partition's records."""
        self._positions.pop(partition, None)
        if partition in self.assigned():
            self._consumer.pause(self._tp(partition))

    def _tp(self, partition: int) -> TopicPartition:
        return TopicPartition(self._topic, partition)

    def _offsets(self, offsets: Mapping[int, tuple[int, str]]) -> dict[TopicPartition, OffsetAndMetadata]:
        return {
            self._tp(p): OffsetAndMetadata(offset, metadata, -1) for p, (offset, metadata) in offsets.items()
        }

    def _bound(
        self, ask: Callable[..., Mapping[TopicPartition, int]], partitions: Iterable[int]
    ) -> dict[int, int]:
        tps = [self._tp(partition) for partition in partitions]
        if not tps:
            return {}
        return {
            tp.partition: offset for tp, offset in _ask(partial(ask, tps, timeout_ms=_TIMEOUT_MS)).items()
        }


def _ask(step: Callable[[], _T]) -> _T:
    """Runs a step that talks to Kafka; a lost membership is `NotOwner`, anything that may pass is `Unavailable`."""
    try:
        return step()
    except (
        kafka_errors.CommitFailedError,
        kafka_errors.RebalanceInProgressError,
        kafka_errors.IllegalGenerationError,
        kafka_errors.UnknownMemberIdError,
        kafka_errors.FencedInstanceIdError,
    ) as error:
        raise NotOwner(str(error)) from error
    except kafka_errors.RetriableError as error:
        raise Unavailable(f"Kafka: {type(error).__name__}: {error}") from error
