"""Snapshot topic in memory, with transactions and compaction."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType, SimpleNamespace
from typing import Any

from kafka import TopicPartition
from kafka import errors as kafka_errors
from kafka.protocol.consumer.offsets import IsolationLevel

from ldp.snapshot import Slots
from tests.simulation.broker import TIMED_OUT
from tests.simulation.world import World

TRANSACTION_SECONDS = 30.0
LONGEST_CLAIM, LONGEST_OPENING = 5.0, TRANSACTION_SECONDS + 5.0
"""Seconds that a claim or a new publisher may wait for transactions of others."""
LONGEST_READ = 35.0
"""Seconds that a read may wait for its next record."""
ROWS = "rows"
"""The topic of rows, read at once: its readers wait as on the snapshot topic."""
PLACES = Slots(("base",), {"": 2})
"""The rows that every publisher writes."""
OTHERS = "others"
"""The transactional id of streams that no test reads."""


@dataclass(eq=False)
class Transaction:
    """A transaction; its state is open, committed or aborted."""

    identity: str
    first: int
    until: float
    state: str = "open"
    sent: list[SimpleNamespace] = field(default_factory=list)


class Snapshots:
    """The one partition of the snapshot topic."""

    def __init__(self, world: World) -> None:
        self.world = world
        world.snapshots = self
        self.name = "snapshots"
        self.records: list[tuple[SimpleNamespace, Transaction]] = []
        self.rows: list[tuple[SimpleNamespace, Transaction]] = []
        self.end = 0
        self.unreadable_until = 0.0
        self.epochs: dict[str, int] = {}
        self.open: dict[str, Transaction] = {}
        self.on_committed: Callable[..., None] = lambda *_: None

    @property
    def stable(self) -> int:
        return min((one.first for one in self.open.values()), default=self.end)

    def fence(self, identity: str) -> int:
        """Registers a new producer of an id, and aborts the open transaction of the earlier one."""
        self.epochs[identity] = self.epochs.get(identity, 0) + 1
        if identity in self.open:
            self.world.note("a transaction is aborted by the next producer", identity)
            self.decide(identity, "aborted")
        return self.epochs[identity]

    def append(self, identity: str, key: bytes, value: bytes | None, headers: Any = ()) -> None:
        """Appends a record to the open transaction of an id, or begins one."""
        one = self.open.setdefault(
            identity, Transaction(identity, self.end, self.world.now + TRANSACTION_SECONDS)
        )
        record = SimpleNamespace(offset=self.end, key=key, value=value, headers=list(headers))
        self.records.append((record, one))
        one.sent.append(record)
        self.end += 1

    def decide(
        self,
        identity: str,
        state: str,
        must: Collection[int] = (),
        lacking: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        """Ends the open transaction of an id, with a marker."""
        one = self.open.pop(identity)
        one.state = state
        self.end += 1
        if state == "aborted" and any(record.key.endswith(b"/released") for record in one.sent):
            self.world.note("released counts are aborted")
        if state == "committed" and identity != OTHERS:
            self.on_committed(identity, one.sent, must, lacking)
            self.expect_rows(one.sent)

    def expect_rows(self, sent: Sequence[SimpleNamespace]) -> None:
        """Checks that rows match the windows' messages of a transaction."""
        there = dict[tuple[Any, ...], Any]()
        for record, one in self.rows:
            if one.state == "committed":
                there[record.place] = record.value
        bodies = {record.key.decode(): record.value for record in sent}
        for key, value in bodies.items():
            stream, *where, method = key.split("/")
            if not where or method not in PLACES.methods or "@" in stream or ":" in stream:
                continue
            place = stream, where[0], int(where[1]) if len(where) > 1 else 0, method
            said = {at[-1]: json.loads(row) for at, row in there.items() if at[:4] == place and row}
            due = []
            if value:
                base, own = (json.loads(bodies[f"{key.rpartition('/')[0]}/{of}"]) for of in ("base", method))
                known = [v for v, found in enumerate(base["frequencies"]) if found is not None]
                order = sorted(known, key=lambda v: (-base["frequencies"][v], v))
                due = [(own["frequencies"][v], own["sequence"], own["window"]["final"]) for v in order[:2]]
            found = [
                (said[rank]["estimate"], said[rank]["sequence"], said[rank]["final"]) for rank in sorted(said)
            ]
            assert found == due, f"{key} has other rows than its body says"

    def delete_head(self, stream: str) -> None:
        """An operator deletes a stream's head."""
        record = SimpleNamespace(offset=self.end, key=f"{stream}/head".encode(), value=None, headers=[])
        self.records.append((record, Transaction("operator", self.end, self.world.now, "committed")))
        self.end += 1

    def is_deleted(self, identity: str, *more: str) -> bool:
        """Returns whether the newest head in one of some states is a tombstone."""
        key, states = f"{identity.removeprefix('ldp-')}/head".encode(), ("committed", "open", *more)
        newest = [r for r, one in self.records if r.key == key and one.state in states][-1:]
        return bool(newest) and newest[0].value is None

    def tick(self) -> None:
        """Aborts transactions that time out, and fences their producers."""
        for identity in [identity for identity, one in self.open.items() if self.world.now > one.until]:
            self.world.note("a transaction times out", identity)
            self.epochs[identity] = self.epochs.get(identity, 0) + 1
            self.decide(identity, "aborted")

    def open_another(self) -> None:
        """Begins or ends a transaction of another stream's publisher."""
        if OTHERS in self.open:
            self.decide(OTHERS, self.world.rng.choice(["committed", "aborted"]))
        else:
            for _ in range(self.world.rng.choice([1, 1, 40, 70])):  # reading back has to pass them
                self.append(OTHERS, b"others/head", b"{}")
            self.open[OTHERS].until = self.world.now + self.world.rng.choice([0.5, 5.0, TRANSACTION_SECONDS])
            self.world.note("another stream's transaction is open")

    def compact(self) -> None:
        """Keeps the newest committed record of each key."""
        newest = {
            record.key: record.offset
            for record, one in self.records
            if one.state == "committed" and record.offset < self.stable
        }
        self.records = [
            (record, one)
            for record, one in self.records
            if one.state == "open" or record.offset >= self.stable or newest.get(record.key) == record.offset
        ]
        self.world.note("compacted")


class Topic:
    """Twin of `worker.kafka.snapshots.topic.SnapshotTopic` in service."""

    def __init__(self, log: Snapshots, identity: str) -> None:
        self.log, self.identity, self.name = log, identity, log.name
        self.on_uncounted: Callable[[Collection[int]], None] = lambda _partitions: None
        self.on_use: Callable[[str], None] = lambda _what: None
        self.must: set[int] = set()
        """Partitions with records that the publisher knew when it began to read its last snapshot."""
        self.lacking: dict[int, int] = {}
        """Partitions that the store had no counts of then, and the offset up to which the group had counted them."""
        self.published: Sequence[Any] = ()
        self.headless = self.heedless = False
        """Whether no look for a head since a claim began found one; and whether the last one would find it deleted."""
        self.heads = 0
        """Number of the stream's snapshots when its polling thread last looked for one."""

    def producer(self) -> Producer:
        return Producer(self)

    def admin(self) -> Administrator:
        return Administrator(self)

    def consumer(self, level: str, begins: bytes, on_passed: object) -> Consumer:
        return Consumer(self.log, level)


class Future:
    """Outcome of a sent record."""

    def __init__(self) -> None:
        self.error: Exception | None = TIMED_OUT()
        self.is_done = False

    def get(self, _timeout: float) -> None:
        if self.error is not None:
            raise self.error


class Producer:
    """A transactional producer, as kafka-python's `KafkaProducer` is one."""

    def __init__(self, topic: Topic) -> None:
        self.topic, self.log, self.world, self.identity = topic, topic.log, topic.log.world, topic.identity
        self.epoch = -1
        self.unsent: list[tuple[Future, bytes, bytes, Any]] = []
        self.rows: list[tuple[Future, bytes, bytes | None]] = []
        self._sender = SimpleNamespace(force_close=self.unsent.clear)
        self.begun = self.closed = False

    def init_transactions(self) -> None:
        self.topic.on_use("fences others off")

        def effect() -> None:
            self.epoch = self.log.fence(self.identity)

        # coming late it would fence off who opened since: the broker's epochs are those of the requests' order
        self.world.call(f"init transactions {self.identity}", effect, TIMED_OUT, writes=False)

    def begin_transaction(self) -> None:
        assert self.epoch >= 0, "transactions were not initialised"
        assert not self.begun, "a transaction is open already"
        assert not self.closed, "the producer is closed"
        self.topic.on_use("publishes")
        self.begun = True

    def send(self, topic: str, *, value: bytes, key: bytes, partition: int, headers: Any = ()) -> Future:
        assert self.begun
        if topic == ROWS:  # they go with the last of the messages
            self.rows.append((Future(), key, value))
            return self.rows[-1][0]
        assert (topic, partition) == (self.log.name, 0)
        if key.endswith(b"/head") and value:
            self.topic.on_uncounted(json.loads(value)["uncounted"])
        future = Future()
        self.unsent.append((future, key, value, headers))
        return future

    def flush(self, timeout: float) -> None:
        """Sends in two requests, so a transaction may be there in part."""
        while self.unsent:
            some = self.unsent[: max(1, len(self.unsent) // 2)]
            self.world.call(f"produce {len(some)} to snapshots", self._produce(some), TIMED_OUT, writes=False)
            del self.unsent[: len(some)]

    def _produce(self, some: Sequence[tuple[Future, bytes, bytes, Any]]) -> Callable[[], None]:
        last = self.unsent[-1]

        def effect() -> None:
            if self.epoch != self.log.epochs[self.identity]:
                for future, *_ in some:
                    future.error = kafka_errors.ProducerFencedError("in the simulation")
                return
            if self.world.rng.random() < self.world.faults.expired_batch:
                self.world.note("a batch expired")
                return  # only its futures fail; the client gets no other signal
            for future, key, value, headers in some:
                future.error = None
                self.log.append(self.identity, key, value, headers)
            if some[-1] is not last:
                return
            for future, key, row in self.rows:
                future.error = None
                place = tuple(json.loads(key).values())
                record = SimpleNamespace(offset=len(self.log.rows), key=key, value=row, place=place)
                self.log.rows.append((record, self.log.open[self.identity]))

        return effect

    def commit_transaction(self) -> None:
        must, lacking = set(self.topic.must), dict(self.topic.lacking)

        def effect() -> None:
            if self.epoch != self.log.epochs[self.identity]:
                self.world.note("publisher fenced")
                raise kafka_errors.ProducerFencedError("in the simulation")
            if self.identity in self.log.open:
                self.log.decide(self.identity, "committed", must, lacking)

        self.begun = False
        self.world.call(f"commit transaction {self.identity}", effect, TIMED_OUT, told=True)

    def close(self, timeout: float) -> None:
        self.closed = True


class Administrator:
    """An administrator's client."""

    def __init__(self, topic: Topic) -> None:
        self.topic, self.log = topic, topic.log
        self.since = self.log.world.now

    def list_partition_offsets(
        self, asked: Mapping[TopicPartition, Any], isolation_level: Any
    ) -> dict[TopicPartition, Any]:
        ((tp, spec),) = asked.items()
        if tp.topic == ROWS:
            return {tp: SimpleNamespace(offset=0 if spec.name == "EARLIEST" else len(self.log.rows))}
        task = self.log.world.current
        most = LONGEST_CLAIM if task is not None and task.name == "poll" else LONGEST_OPENING
        hung = task is not None and task.member.hangs_until > self.since
        assert hung or self.log.world.now < self.since + most, (
            "it waits without an end for what is not decided"
        )

        def effect() -> int:
            if spec.name == "EARLIEST":
                return 0
            ends = isolation_level is IsolationLevel.READ_UNCOMMITTED  # up to there is read
            if ends and task is not None and task.name == "poll":
                self.topic.heads = len(self.topic.published)
                self.topic.headless &= self.log.is_deleted(self.topic.identity, "aborted")
                self.topic.heedless = self.log.is_deleted(self.topic.identity)
            elif task is not None and task.name == "poll":  # looks again for new records
                self.topic.heedless &= self.log.is_deleted(self.topic.identity)
            return self.log.stable if isolation_level is IsolationLevel.READ_COMMITTED else self.log.end

        what = f"{spec.name.lower()} of snapshots, {isolation_level.name.lower()}"
        return {tp: SimpleNamespace(offset=self.log.world.call(what, effect, TIMED_OUT, writes=False))}

    def close(self) -> None:
        pass


class Consumer:
    """A reader of one isolation level."""

    def __init__(self, log: Snapshots, level: str) -> None:
        self.log, self.committed = log, level == "read_committed"
        self.at, self.moved = -1, log.world.now
        self.bound = -1
        self.of_rows = False

    def assign(self, tps: Sequence[TopicPartition]) -> None:
        assert [tp.partition for tp in tps] == [0]
        self.of_rows = tps[0].topic == ROWS

    def seek(self, _tp: TopicPartition, offset: int) -> None:
        self.at, self.moved = offset, self.log.world.now

    def position(self, _tp: TopicPartition) -> int:
        return self.at

    def poll(self, timeout_ms: float) -> dict[TopicPartition, list[Any]]:
        world = self.log.world
        if self.of_rows:
            self.at = len(self.log.rows)
            found = [record for record, one in self.log.rows if one.state == "committed"]
            return {TopicPartition(ROWS, 0): found}
        open_at = self.log.stable if self.committed else self.log.end
        assert self.at < open_at, "a reader waits for a transaction that is open"
        task = world.current
        hung = task is not None and task.member.hangs_until > self.moved
        assert hung or world.now < self.moved + LONGEST_READ, "it waits without an end for what does not come"
        if world.now < self.log.unreadable_until:
            if world.theme.refuses:
                raise TIMED_OUT()
            world.sleep(timeout_ms / 1000)
            return {}
        found = world.call("read snapshots", self._read, TIMED_OUT, writes=False)
        if not found:
            world.sleep(timeout_ms / 1000)
        return {TopicPartition(self.log.name, 0): found} if found else {}

    def _read(self) -> list[Any]:
        self.bound = self.log.stable if self.committed else self.log.end
        left = self.bound - self.at
        most = 40 if left < 1000 else left // 10  # a long log is not read in hundreds of polls
        to = min(self.bound, self.at + self.log.world.rng.randint(1, most))
        found = [
            record
            for record, one in self.log.records
            if self.at <= record.offset < to and (one.state == "committed" or not self.committed)
        ]
        if to > self.at:
            self.at, self.moved = to, self.log.world.now
        return found

    def close(self, autocommit: bool) -> None:
        pass
