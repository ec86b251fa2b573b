"""Reads a stream's topic as a group member; implements `ports.Log`.

A `Prefetch` decodes fetched bytes ahead of counting. A position in this module is the next offset to return. The
client's position is ahead of it.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import Any

from kafka import ConsumerRebalanceListener, TopicPartition
from kafka import errors as kafka_errors
from kafka.structs import MemberState

from worker.counting.columns import Batch, Unreadable
from worker.counting.ports import Displaced, NotOwner, StateLost, Unavailable
from worker.counting.rules import Rule
from worker.kafka.client import quirks, raw_fetch
from worker.kafka.client.errors import unavailable
from worker.kafka.client.firsts import Firsts
from worker.kafka.client.refusals import Answers, Refusals
from worker.kafka.decoding.records import Chunk, Reader
from worker.kafka.reports.offsets import Offsets, ask, join, topic_id
from worker.kafka.reports.prefetch import Prefetch

_FETCHED, _WAITING = 64, 8
"""Shares of a stream's memory: 1/64 for a fetch, 1/8 for the fetches that wait for decoding.

Two decompressed chunks, each up to 1/16, and their columns use the rest.
"""
_FETCH_SECONDS = 0.02  # Pause between two polls of the client while prefetched data waits
_LEAST_FETCH = 64 << 10  # Least bytes charged for a fetch, to bound the number of small fetches

_TIMEOUT_MS = 10_000
_JOIN_MS = 200
_ID_MS = 2_000  # Longest wait of a commit for the topic's id; polling stops during it


class KafkaLog(Offsets, ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python carries no types
    """One stream's log, for the polling thread.

    The rebalance listener runs on the client's I/O thread. It only seeks, pauses and records revocations, because a
    slow listener would stop the heartbeats. `decoding`: executor of one thread, which `close` shuts down.
    """

    def __init__(
        self,
        consumer: Any,
        topic: str,
        memory: int,
        decoding: Executor,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(consumer, topic, Answers(consumer))
        self._clock = clock
        whose = consumer.group_metadata()
        self._group, self._member = whose.group_id, whose.group_instance_id
        self._known: set[int] | None = None
        self._lock = threading.Lock()
        self._revoked: set[int] = set()
        self._positions: dict[int, int] = {}
        self._caps: dict[int, list[tuple[int, int | None]]] = {}
        self._suspects: dict[int, dict[tuple[int, int], Unreadable]] = defaultdict(dict)
        self._firsts = Firsts(consumer, _TIMEOUT_MS, clock)
        self._membership: object = None
        self._prefetch = Prefetch(memory // _WAITING, decoding)
        self._refusals = Refusals(clock)
        self._asked = 0.0
        raw_fetch.install(self._consumer)
        if self._member:
            quirks.leave_on_close(self._consumer)
        self._consumer.subscribe([topic], listener=self)
        self._subscribed_ms = 1000 * clock()

    @classmethod
    def connect(cls, settings: Mapping[str, Any], group: str, topic: str, memory: int) -> "KafkaLog":
        """Connects a member of a group, and subscribes to a topic.

        Raises `Unavailable`: the brokers do not answer.
        """
        fetched = memory // _FETCHED
        consumer = join(settings, group, fetch_max_bytes=fetched, max_partition_fetch_bytes=fetched)
        decoding = ThreadPoolExecutor(1, thread_name_prefix=f"decode-{topic}")
        return cls(consumer, topic, memory, decoding)

    # The rebalance listener, on the I/O thread

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Pauses new partitions until they are claimed."""
        for tp in assigned:
            quirks.hold(self._consumer, tp)

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Records revoked partitions for `take_revoked`."""
        with self._lock:
            self._revoked.update(tp.partition for tp in revoked)

    on_partitions_lost = on_partitions_revoked

    # Reading, on the polling thread

    def poll(self, timeout_ms: int) -> list[Batch]:
        """Returns at most one batch, which is valid until the next call.

        Raises `StateLost`: the log was truncated below the position. Raises `Displaced`: another process joined the
        group under this worker's name. Raises `Unavailable`: the brokers do not answer, or a batch's checksum is
        wrong for the first time.
        """
        if self._prefetch.full:
            self.keep()
        elif self._prefetch.empty or self._clock() - self._asked >= _FETCH_SECONDS:
            self._consumer.resume(*self._to_fetch())
            self._fetch(timeout_ms if self._prefetch.empty else 0)
        if (taken := self._prefetch.next()) is None:
            return []
        partition, chunk = taken
        self._refetch_damaged(partition, chunk)
        start, self._positions[partition] = self._positions[partition], chunk.end
        keys = chunk.with_key_or_headers
        return [Batch(partition, start, chunk.end, chunk.columns, chunk.unreadable, keys)]

    def keep(self) -> None:
        """Stays in the group without fetching, while fetched records are counted.

        Raises `StateLost`, `Displaced` or `Unavailable`; see `poll`.
        """
        joining = self._consumer.group_metadata().state is not MemberState.STABLE
        if not joining and self._clock() - self._asked < _FETCH_SECONDS:
            return
        self._consumer.pause(*self._to_fetch())  # until the next `poll` that fetches
        self._fetch(_JOIN_MS if joining else 0)

    def _fetch(self, timeout_ms: int) -> None:
        try:
            quirks.resume_join(self._consumer)
            if self._member:
                self._check_membership()
            polled = self._consumer.poll(timeout_ms)
            self._asked = self._clock()
            self._delay_refused()
            if not self._moved():
                self._add_fetches(polled)
        except kafka_errors.OffsetOutOfRangeError as error:
            # Retention overtook the position, or the log was truncated: the next claim decides which, after the
            # prefetched records are counted
            (offsets,) = error.args
            lost = {tp.partition for tp in offsets} & self._positions.keys()
            with self._lock:
                self._revoked |= {p for p in lost if not self._prefetch.holds(p)}
        except kafka_errors.LogTruncationError as error:
            raise StateLost(
                f"topic {self._topic!r} was truncated below the read position: {error}"
            ) from error
        except kafka_errors.FencedInstanceIdError as error:
            raise self._displaced() from error
        except kafka_errors.InvalidSessionTimeoutError as error:
            raise unavailable(error, "joining the group of", self._topic) from error
        except kafka_errors.RetriableError as error:
            raise unavailable(error, "reading", self._topic) from error

    def _check_membership(self) -> None:
        """Raises `Displaced` for a lost member name; rejoins for new partitions."""
        if quirks.displaced(self._consumer):
            raise self._displaced()
        known = self.partitions() or self._known
        if self._known is not None and known != self._known:
            quirks.rejoin(self._consumer)
        self._known = known

    def _displaced(self) -> Displaced:
        return Displaced(
            f"another process joined the group {self._group!r} as {self._member!r} and counts its partitions. Give each"
            " worker its own kafka.member, then restart this worker."
        )

    def _moved(self) -> bool:
        """Restores all positions after a rebalance; returns whether one occurred."""
        # if a partition was lost and regained, the client resets its position to the committed offset
        if (membership := self._consumer.group_metadata()[1:3]) == self._membership:
            return False
        self._membership = membership
        assigned = self.assigned()
        with self._lock:
            kept = {p: at for p, at in self._positions.items() if p in assigned and p not in self._revoked}
        self._prefetch.forget()
        for partition, position in kept.items():
            self._consumer.seek(self._tp(partition), position)
        return True

    def _delay_refused(self) -> None:
        for partition, error in self._answers.fetched():
            if partition in self._positions and partition in self.assigned():
                self._refusals.add(partition, error)
                self._consumer.pause(self._tp(partition))

    def _add_fetches(self, polled: Mapping[TopicPartition, Sequence[Any]]) -> None:
        assigned = self.assigned()
        for partition in [p for p in self._positions if p in assigned]:
            tp = self._tp(partition)
            if tp in polled:
                self._refusals.forget([partition])
            for fetched in polled.get(tp, ()):
                reader = Reader(fetched.data, fetched.start, fetched.aborted, self._caps[partition])
                self._prefetch.add(partition, reader, max(fetched.data.size, _LEAST_FETCH))

    def _refetch_damaged(self, partition: int, chunk: Chunk) -> None:
        """Raises `Unavailable` if a batch's checksum is wrong for the first time."""
        suspects = self._suspects[partition]
        failing = {(bad.offset, bad.end): bad for bad in chunk.unreadable if bad.why == "checksum"}
        new = [bad.offset for where, bad in failing.items() if suspects.get(where) != bad]
        suspects |= failing  # keeps the newest bytes of each batch
        if new:
            self._positions[partition] = self._positions.pop(partition)  # moves it after the other partitions
            raise Unavailable(
                f"topic {self._topic!r}, partition {partition}: the checksum of the record batch at offset"
                f" {min(new)} fails; the worker fetches it again",
                "check the disk of the broker that leads the partition. The worker rejects the batch if the same bytes"
                " return",
            )
        self._suspects[partition] = {at: bad for at, bad in suspects.items() if bad.offset >= chunk.end}

    def _to_fetch(self) -> list[TopicPartition]:
        waiting = self._refusals.waiting()
        return [self._tp(p) for p in self._positions.keys() & self.assigned() if p not in waiting]

    def take_refused(self) -> dict[int, tuple[Unavailable, float]]:
        """Returns new refusals: partition -> (error, seconds since the first)."""
        return {
            partition: (unavailable(error, f"reading partition {partition} of", self._topic), seconds)
            for partition, (error, seconds) in self._refusals.take_new().items()
        }

    def reads_all(self) -> bool:
        """Returns whether the brokers accepted every partition's last fetch."""
        return not self._refusals.lasting()

    def take_revoked(self) -> set[int]:
        """Returns the partitions revoked since the last call."""
        with self._lock:
            revoked, self._revoked = self._revoked, set()
        for partition in revoked:
            self._positions.pop(partition, None)
        self._prefetch.forget(revoked)
        self._refusals.forget(revoked)
        return revoked

    def partitions(self) -> set[int] | None:
        """Returns the topic's partitions; None before the first metadata arrives.

        The set is empty if the topic is missing. Raises `Unavailable`: the brokers refuse to describe the topic.
        """
        if (error := self._answers.undescribed(self._topic)) is not None:
            raise unavailable(error, "asking for the partitions of", self._topic)
        try:
            return quirks.known_partitions(self._consumer, self._topic, self._subscribed_ms)
        except kafka_errors.TopicAuthorizationFailedError as error:
            raise Unavailable(
                f"Kafka: topic {self._topic!r} is closed to this client",
                "grant this user READ on the topic in the brokers' ACLs",
            ) from error

    def ends(self, partitions: Collection[int]) -> dict[int, tuple[int, int] | Unavailable]:
        """Returns each log's last stable offset and last fetched high watermark.

        It reads the high watermark first. Otherwise, records written between the two reads would look blocked.
        """
        assigned = self.assigned()
        high = {p: self._consumer.highwater(self._tp(p)) or 0 for p in partitions if p in assigned}
        stable = self._stable_ends(partitions)
        return {
            p: end if isinstance(end, Unavailable) else (end, max(end, high.get(p, 0)))
            for p, end in stable.items()
        }

    def close(self) -> None:
        """Leaves the group."""
        self._prefetch.close()
        self._consumer.close(autocommit=False, timeout_ms=_TIMEOUT_MS)

    # Claims and commits

    def topic_id(self) -> str:
        """Returns the topic's id, which changes if the topic is created again."""
        return topic_id(self._consumer, self._topic, _ID_MS)

    def generation(self) -> object | None:
        """Returns (generation, member id), or None while the group rebalances."""
        member = self._consumer.group_metadata()
        if member.state is not MemberState.STABLE:
            return None
        return member.generation_id, member.member_id

    def assigned(self) -> set[int]:
        """Returns the partitions that the group assigns to this worker."""
        return {tp.partition for tp in self._consumer.assignment()}

    def firsts(self, offsets: Mapping[int, int]) -> dict[int, int]:
        """Returns each log's first available offset at or after a given offset."""
        asked = {self._tp(partition): offset for partition, offset in offsets.items()}
        found = ask("asking for records of", partial(self._firsts.of, asked), self._topic)
        return {tp.partition: first for tp, first in found.items()}

    def confirm(self, offsets: Mapping[int, tuple[int, str]]) -> dict[int, Unavailable | None]:
        """Commits offsets as a current member, else raises `NotOwner`."""
        if self.generation() is None:
            raise NotOwner
        return super().confirm(offsets)

    def start(self, partition: int, offset: int, rules: Sequence[Rule]) -> None:
        """Starts reading a partition at an offset, with the rules' batch caps."""
        self._refusals.forget([partition])
        self._prefetch.forget([partition])
        self._caps[partition] = [(rule.offset, rule.limits.max_batch_bytes) for rule in rules]
        if partition in self.assigned():
            self._consumer.seek(self._tp(partition), offset)
            self._positions[partition] = offset

    def stop(self, partition: int) -> None:
        """Stops reading a partition."""
        self._refusals.forget([partition])
        self._positions.pop(partition, None)
        self._prefetch.forget([partition])
        if partition in self.assigned():
            self._consumer.pause(self._tp(partition))
