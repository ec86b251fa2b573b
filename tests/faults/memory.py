"""A log, a store, a dead-letter topic and a snapshot topic in memory, under a seeded scheduler.

The worker's own code runs on threads that hand one baton around: each call of an interface is a step, and between any
two steps any other worker may run, a rebalance may come, a process may die, or a reply may be lost. One seed is one
history.
"""

import contextlib
import json
import random
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

import ldp
from ldp.snapshot import Message
from worker.counting import layout
from worker.counting.columns import Batch, Columns
from worker.counting.head import Head
from worker.counting.layout import Metadata
from worker.counting.ownership import COUNTED, Loaded, NotOwner, Ownership, Unavailable, Verdict
from worker.counting.partition import ALL
from worker.counting.rules import Configured
from worker.observe.metrics import Metrics
from worker.publishing.publisher import Publisher
from worker.publishing.recommender import Recommender

T = TypeVar("T")


class Crash(BaseException):
    """The process dies here."""


@dataclass
class Faults:
    """How likely each fault is at a step."""

    crash: float = 0.0
    lost_request: float = 0.0
    late_request: float = 0.0
    lost_reply: float = 0.0
    rebalance: float = 0.0
    went_back: float = 0.0
    retention: float = 0.0
    lost_mirror: float = 0.0
    unstaged: float = 0.0
    lost_state: float = 0.0
    expired: float = 0.0
    hidden: float = 0.0


@dataclass
class Record:
    """An entry of a log; a marker is an offset that no consumer sees."""

    value: bytes | None
    timestamp: int
    marker: bool = False


@dataclass
class Counted:
    """What a recount says of a prefix; the test's own arithmetic, from what was produced."""

    state: list[int]
    reports: int = 0
    accepted: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    watermark: int | None = None


class Task:
    """A thread that runs only while it holds the baton."""

    def __init__(self, process: "Process", body: Callable[[], None]) -> None:
        self.process, self.body = process, body
        self.go = threading.Semaphore(0)
        self.done = False
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        self.go.acquire()
        try:
            if not self.process.dead:
                self.body()
        except Crash:
            self.process.dead = True
        except BaseException as error:
            self.process.dead = True
            self.process.world.errors.append(error)
        finally:
            self.done = True
            self.process.world.back.release()


class World:
    """Everything outside the workers: brokers, store, topics, and the scheduler."""

    def __init__(
        self,
        seed: int,
        stream: ldp.Stream,
        partitions: int,
        faults: Faults,
        configured: Sequence[Configured] = (Configured(),),
    ) -> None:
        self.rng = random.Random(seed)
        self.configured = configured
        self.used: set[Configured] = set()
        self.stream, self.faults = stream, faults
        self.logs: list[list[Record]] = [[] for _ in range(partitions)]
        self.answers: list[list[Any]] = [[] for _ in range(partitions)]
        self.firsts = [0] * partitions
        self.generation = 0
        self.members: dict[int, Process] = {}
        self.assignment: dict[int, set[int]] = {}
        self.offsets: dict[int, tuple[int, str]] = {}
        self.stored: dict[int, Loaded] = {}
        self.past: dict[int, list[Loaded]] = {}
        self.staged: dict[tuple[int, str], dict[str, bytes]] = {}
        self.starts: dict[int, int] = {}
        self.letters: set[tuple[int, int]] = set()
        self.snapshots: list[tuple[int, dict[int, int]]] = []
        self.heads: list[Head] = []
        self.said: Head | None = None
        self.begun_until: float | None = None
        self.open_until = 0.0
        self.publisher_fence = 0
        self.back = threading.Semaphore(0)
        self.tasks: list[Task] = []
        self.current: Task | None = None
        self.errors: list[BaseException] = []
        self.clock = 0.0
        self.recount_after: int | None = None
        self.late: list[Callable[[], object]] = []
        self.happened: dict[str, int] = {}

    # the scheduler

    def note(self, what: str) -> None:
        self.happened[what] = self.happened.get(what, 0) + 1

    def pause(self) -> None:
        """Called by a worker between two steps: someone else runs."""
        task = self.current
        assert task is not None
        self.back.release()
        task.go.acquire()
        if task.process.dead:
            raise Crash

    def step(self) -> bool:
        """Lets one task run to its next step; returns whether there was one."""
        self.tasks = [task for task in self.tasks if not task.done]
        if not self.tasks:
            return False
        self.clock += 0.02
        self._happen()
        self.current = self.rng.choice(self.tasks)
        self.current.go.release()
        self.back.acquire()
        return True

    def end(self) -> None:
        """Kills what is left."""
        for task in self.tasks:
            task.process.dead = True
        while self.step():
            pass

    def _happen(self) -> None:
        rng, faults = self.rng, self.faults
        if rng.random() < faults.rebalance:
            self.rebalance()
        if rng.random() < faults.went_back:
            partition = rng.choice(sorted(self.past) or [0])
            if self.past.get(partition):
                self.stored[partition] = rng.choice(self.past[partition])
                self.note("store went back")
        if self.late and rng.random() < 0.1:
            self.note("a request arrived late")
            with contextlib.suppress(Unavailable, NotOwner):
                self.late.pop(rng.randrange(len(self.late)))()
        if self.stored and rng.random() < faults.lost_state:
            self.lose(rng.choice(sorted(self.stored)))
        if self.offsets and rng.random() < faults.expired:
            self.note("offsets expired")
            self.offsets.clear()
        if rng.random() < faults.hidden:
            self.note("another stream's transaction is open")
            self.open_until = self.clock + 0.02 * rng.randint(1, 200)
        if rng.random() < faults.retention:
            partition = rng.randrange(len(self.logs))
            length = len(self.logs[partition])
            self.firsts[partition] = rng.randint(
                self.firsts[partition], max(self.firsts[partition], length // 2)
            )

    def lose(self, partition: int) -> None:
        """The store loses a partition, or only its blobs; often in a power cut that takes the workers along."""
        self.note("state lost")
        if self.rng.random() < 0.7:
            for process in self.members.values():
                process.dead = True
        stored = self.stored.pop(partition)
        self.past.pop(partition, None)
        if stored.blobs and self.rng.random() < 0.3:
            self.stored[partition] = replace(stored, blobs={})

    def rebalance(self) -> None:
        """A new generation: partitions are dealt out anew among the living members."""
        self.generation += 1
        self.members = {i: process for i, process in self.members.items() if not process.dead}
        self.assignment = {i: set() for i in self.members}
        for partition in range(len(self.logs)):
            if self.assignment:
                self.assignment[self.rng.choice(sorted(self.assignment))].add(partition)
        self.note("rebalance")

    def call(self, effect: Callable[[], T], *, remote: bool = False) -> T:
        """Runs one step of a worker against the outside, with the fate that the history has for it.

        The effect of a ``remote`` step may also come after its caller has given it up, whatever became of the caller.
        """
        self.pause()
        rng, faults = self.rng, self.faults
        if rng.random() < faults.crash:
            self.note("crash before a step")
            raise Crash
        if rng.random() < faults.lost_request:
            self.note("lost request")
            raise Unavailable("the request was lost")
        if remote and rng.random() < faults.late_request:
            self.note("late request")
            self.late.append(effect)
            raise Unavailable("the request is on its way")
        result = effect()
        if rng.random() < faults.crash:
            self.note("crash after a step")
            raise Crash
        if rng.random() < faults.lost_reply:
            self.note("lost reply")
            raise Unavailable("the reply was lost")
        return result

    def uncounted(self, without: Mapping[int, bool]) -> list[int]:
        """Which of the partitions without counts ought to have some."""

        def effect() -> list[int]:
            words = {p: word for p, (_, word) in self.offsets.items()}
            return [p for p in without if words.get(p) == COUNTED or (self.logs[p] and not without[p])]

        return self.call(effect)

    # producing, and the recount

    def produce(self, partition: int, value: bytes | None, answer: Any, *, marker: bool = False) -> None:
        """Appends a record; ``answer`` is what it must count as: a list of indices, or the reason of its rejection."""
        log = self.logs[partition]
        log.append(Record(value, 1000 + self.rng.randrange(1000), marker))
        self.answers[partition].append(answer)

    def answer(self, partition: int, at: int, ruled: Sequence[Mapping[str, Any]]) -> Any:
        """Returns what a record must count as under the rule that is recorded for its offset."""
        answer = self.answers[partition][at]
        most = [rule["most_reports"] for rule in ruled if rule["offset"] <= at][-1]
        return "many" if isinstance(answer, list) and most is not None and len(answer) > most else answer

    def recount(
        self,
        partition: int,
        start: int,
        offset: int,
        gaps: Collection[tuple[int, int]],
        ruled: Sequence[Mapping[str, Any]],
    ) -> Counted:
        """Counts [start, offset) without the gaps, from what was produced and by the recorded rules."""
        counted = Counted([0] * self.stream.oracle.domain_size)
        for at in range(start, offset):
            record, answer = self.logs[partition][at], self.answer(partition, at, ruled)
            if record.marker or any(begin <= at < end for begin, end in gaps):
                continue
            if isinstance(answer, str):
                counted.rejected[answer] = counted.rejected.get(answer, 0) + 1
                continue
            for index in answer:
                counted.state[index] += 1
            counted.reports += len(answer)
            counted.accepted += 1
            counted.watermark = max(counted.watermark or 0, record.timestamp)
        return counted

    def compare_rules(self, before: Loaded, after: Loaded) -> None:
        """Asserts that rules are only added, and at the end."""
        was, now = rules_of(before), rules_of(after)
        assert now[: len(was)] == was, "a recorded rule was changed"
        if len(now) > len(was):
            self.note("rule added")
            if after.metadata.offset == before.metadata.offset:
                self.note("rule added without records")

    def verify(self, partition: int, before: Loaded | None = None) -> None:
        """Compares what is stored of a partition with the recount, and its rules with those of before a commit."""
        stored = self.stored[partition]
        if before is not None and before.metadata.flush:  # before the first commit nothing was judged
            self.compare_rules(before, stored)
        state = layout.load(self.stream, stored.metadata, stored.blobs)
        ruled = rules_of(stored)
        assert len([rule for rule in ruled if rule["revision"]]) <= len(self.used), "a rule was added twice"
        assert self.starts.setdefault(partition, state.start) == state.start
        assert state.offset <= len(self.logs[partition])
        counted = self.recount(partition, state.start, state.offset, state.gaps, ruled)
        window = state.windows[ALL]
        assert window.state.tolist() == counted.state
        assert (window.reports, state.accepted, state.rejected, state.late, state.watermark) == (
            counted.reports,
            counted.accepted,
            counted.rejected,
            0,
            counted.watermark,
        )
        for at in range(state.start, state.offset):
            answer = self.answer(partition, at, ruled)
            if isinstance(answer, str) and not any(b <= at < e for b, e in state.gaps):
                assert (partition, at) in self.letters, (
                    "an offset was committed before its dead letter was safe"
                )


def rules_of(stored: Loaded) -> list[dict[str, Any]]:
    """The rules that a partition is counted by, as they are stored."""
    totals = json.loads(stored.metadata.totals)
    before = {"offset": totals["start"], "revision": 0, "most_reports": None, "ones": False}
    listed: list[dict[str, Any]] = totals.get("rules", [before])
    return listed


class Process:
    """One worker process: a polling and a publishing task around the worker's own code."""

    def __init__(self, world: World, number: int) -> None:
        self.world, self.number, self.dead = world, number, False
        metrics = Metrics()
        configured = world.rng.choice(world.configured)
        world.used.add(configured)
        self.log = MemoryLog(self)
        store, outbox = MemoryStore(world), MemoryOutbox(world)
        self.ownership = Ownership(
            "group",
            world.stream,
            configured,
            self.log,
            store,
            MemoryLetters(world),
            outbox,
            world.recount_after,
            metrics,
            lambda: world.clock,
            _silent,
        )
        self.publisher = Publisher(
            world.stream,
            store,
            outbox,
            lambda: range(len(world.logs)),
            world.uncounted,
            lambda: self.ownership.epoch(0),
            0.95,
            0,
            Recommender(world.stream, 0.0, metrics, _silent),
            metrics,
            _silent,
        )
        world.members[number] = self
        world.tasks += [Task(self, self._poll), Task(self, self._publish)]

    def _poll(self) -> None:
        rng, ownership = self.world.rng, self.ownership
        while True:
            try:
                batches = self.log.poll()
                ownership.release(self.log.take_revoked())
                for batch in batches:
                    ownership.apply(batch)
                ownership.claim()
                if rng.random() < 0.6:
                    ownership.commit()
                if rng.random() < 0.2:
                    ownership.compare()
            except Unavailable:
                ownership.rewind()

    def _publish(self) -> None:
        while True:
            self.world.pause()
            if self.world.rng.random() < 0.1:
                self.publisher.tick()


def _silent(*_: object, **__: object) -> None:
    """Says nothing."""


class MemoryLog:
    """The topic and the group as one client sees them: its generation and assignment change in `poll` only."""

    def __init__(self, process: Process) -> None:
        self.process, self.world = process, process.world
        self.seen, self.mine = -1, set[int]()
        self.positions: dict[int, int] = {}
        self.revoked: set[int] = set()

    def poll(self) -> list[Batch]:
        return self.world.call(self._poll)

    def _poll(self) -> list[Batch]:
        world, number = self.world, self.process.number
        if self.seen != world.generation or number not in world.assignment:
            if number not in world.assignment:
                world.members[number] = self.process
                world.rebalance()
            self._join(world.assignment[number])
        batches = []
        for partition, at in sorted(self.positions.items()):
            if partition not in self.mine:
                continue
            log = world.logs[partition]
            if at < world.firsts[partition]:
                self.revoked.add(partition)  # out of range: let go of, and claimed again
                continue
            end = min(len(log), at + world.rng.randint(0, 6))
            if end > at:
                seen = [i for i in range(at, end) if not log[i].marker]
                columns = Columns.of(seen, [log[i].timestamp for i in seen], [log[i].value for i in seen])
                batches.append(Batch(partition, at, end, columns))
                self.positions[partition] = end
        return batches

    def _join(self, assignment: Collection[int]) -> None:
        world, new = self.world, set(assignment)
        self.seen = world.generation
        if world.rng.random() < 0.7:
            self.revoked |= self.mine - new
        else:
            world.note("lost without a word")
        self.mine = new

    def take_revoked(self) -> set[int]:
        revoked, self.revoked = self.revoked, set()
        for partition in revoked:
            self.positions.pop(partition, None)
        return revoked

    def topic_id(self) -> str:
        if self.world.rng.random() < self.world.faults.lost_request:
            raise Unavailable("the topic is not in the metadata (yet)")
        return "topic-1"

    def generation(self) -> object | None:
        return None if self.seen < 0 else (self.seen, self.process.number)

    def assigned(self) -> set[int]:
        return set(self.mine)

    def committed(self, partitions: Collection[int]) -> Mapping[int, tuple[int, str]]:
        offsets = self.world.offsets
        return self.world.call(lambda: {p: offsets[p] for p in partitions if p in offsets})

    def bounds(self, partitions: Collection[int]) -> Mapping[int, tuple[int, int]]:
        world = self.world
        return world.call(lambda: {p: (world.firsts[p], len(world.logs[p])) for p in partitions})

    def confirm(self, offsets: Mapping[int, tuple[int, str]]) -> None:
        self.world.call(self._commit(offsets), remote=True)

    def mirror(self, offsets: Mapping[int, tuple[int, str]]) -> None:
        if self.world.rng.random() >= self.world.faults.lost_mirror:
            self.world.late.append(self._commit(offsets))

    def _commit(self, offsets: Mapping[int, tuple[int, str]]) -> Callable[[], None]:
        """A commit as the broker takes it: of the generation it was sent in, which must be the one that is."""
        seen, world = self.seen, self.world

        def effect() -> None:
            if seen != world.generation:
                raise NotOwner
            world.offsets.update(offsets)

        return effect

    def start(self, partition: int, offset: int) -> None:
        if partition in self.mine:
            self.positions[partition] = offset

    def stop(self, partition: int) -> None:
        self.positions.pop(partition, None)


class MemoryStore:
    """The store: what the scripts beside `worker.store.redis` do, in Python."""

    def __init__(self, world: World) -> None:
        self.world = world

    def peek(self, partition: int) -> Metadata | None:
        def effect() -> Metadata | None:
            stored = self.world.stored.get(partition)
            return None if stored is None else stored.metadata

        return self.world.call(effect)

    def claim(self, partition: int, epoch: int | None, initial: Metadata) -> Loaded | None:
        def effect() -> Loaded | None:
            stored = self.world.stored.get(partition)
            if (None if stored is None else stored.metadata.epoch) != epoch:
                return None
            if stored is None:
                head = self.world.heads[-1] if self.world.heads else Head()
                fresh = head.offsets.get(partition, 0) <= initial.offset
                assert fresh or self.world.recount_after, "a fresh start of what was published"
                if not fresh:
                    self.world.note("given up")
                if (
                    self.world.recount_after or "offsets expired" in self.world.happened
                ):  # it may begin elsewhere
                    self.world.starts.pop(partition, None)
                stored = Loaded(initial, {})
            else:
                stored = replace(stored, metadata=replace(stored.metadata, epoch=stored.metadata.epoch + 1))
            self.world.stored[partition] = stored
            return stored

        return self.world.call(effect, remote=True)

    def stage(self, partition: int, attempt: str, blobs: Mapping[str, bytes]) -> None:
        def effect() -> None:
            if self.world.rng.random() >= self.world.faults.unstaged:  # else its time runs out first
                self.world.staged[partition, attempt] = dict(blobs)

        self.world.call(effect, remote=True)

    def promote(self, partition: int, attempt: str, before: Metadata, after: Metadata) -> Verdict:
        def effect() -> Verdict:
            world = self.world
            stored = world.stored.get(partition)
            if stored is None or stored.metadata.lineage != before.lineage:
                return Verdict.LINEAGE
            now = stored.metadata
            if now.epoch != before.epoch:
                world.note("fenced")
                return Verdict.FENCED
            if (now.offset, now.flush) == (after.offset, after.flush):
                world.note("own retry recognised")
                return Verdict.DONE
            if (now.offset, now.flush) != (before.offset, before.flush):
                world.note("forked")
                return Verdict.FORKED
            staged = world.staged.get((partition, attempt), {})
            changed = {window for window, flush in after.blobs.items() if flush == after.flush}
            if not changed <= staged.keys():
                world.note("unstaged")
                return Verdict.UNSTAGED
            world.past.setdefault(partition, []).append(stored)
            metadata = replace(
                now, offset=after.offset, flush=after.flush, blobs=after.blobs, totals=after.totals
            )
            promoted = {window: staged.pop(window) for window in changed}
            blobs = {**stored.blobs, **promoted}
            world.stored[partition] = Loaded(metadata, {n: blobs[n] for n in after.blobs if n in blobs})
            world.note("commit")
            world.verify(partition, stored)
            return Verdict.DONE

        return self.world.call(effect, remote=True)

    def compare(self, partition: int, held: Metadata) -> Verdict:
        def effect() -> Verdict:
            stored = self.world.stored.get(partition)
            if stored is None or stored.metadata.lineage != held.lineage:
                return Verdict.LINEAGE
            now = stored.metadata
            if now.epoch != held.epoch:
                return Verdict.FENCED
            if (now.offset, now.flush) != (held.offset, held.flush):
                return Verdict.FORKED
            return Verdict.DONE if held.blobs.keys() <= stored.blobs.keys() else Verdict.LINEAGE

        return self.world.call(effect)

    def cut(self, partition: int) -> Loaded | None:
        return self.world.call(lambda: self.world.stored.get(partition))


class MemoryLetters:
    """The dead letters of one process; what is not flushed dies with it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.pending: list[tuple[int, int]] = []

    def add(self, batch: Batch, index: int, reason: str) -> None:
        offset = int(batch.columns.offsets[index])
        answer = self.world.answers[batch.partition][offset]
        assert reason == (answer if isinstance(answer, str) else "many")
        if self.world.rng.random() < self.world.faults.lost_request:
            self.world.note("letter refused")
            raise Unavailable("the letters' buffer is full")
        self.pending.append((batch.partition, offset))

    def flush(self) -> None:
        def effect() -> None:
            self.world.letters.update(self.pending)
            self.pending.clear()

        if self.pending:
            self.world.call(effect)


class MemoryOutbox:
    """The snapshot topic, with one transactional id: whoever opens it last fences the others off.

    A publisher that dies between its messages and its commit leaves a transaction open, as other streams' do, until the
    next one opens the outbox or its time is up; and its head stays there for readers who do not ask what is committed.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.fence = -1

    def open(self) -> Head:
        def effect() -> Head:
            world = self.world
            world.publisher_fence += 1
            world.begun_until = None
            self.fence = world.publisher_fence
            return self._head(decided=True)

        return self.world.call(effect)

    def head(self, *, decided: bool) -> Head:
        return self.world.call(lambda: self._head(decided=decided))

    def _head(self, *, decided: bool) -> Head:
        world = self.world
        if not decided:
            return world.said or Head()
        if world.clock < max(world.open_until, world.begun_until or 0.0):
            world.note("not decided yet")
            raise Unavailable("a transaction is open")
        return world.heads[-1] if world.heads else Head()

    def publish(self, sequence: int, messages: Sequence[Message]) -> None:
        fence, head = self.fence, json.loads(messages[0].body)

        def send() -> None:
            if fence == self.world.publisher_fence:
                self.world.said = Head.parse(head)
                self.world.begun_until = self.world.clock + 4.0

        self.world.call(send)

        def effect() -> None:
            world = self.world
            if fence != world.publisher_fence or world.clock >= (world.begun_until or 0.0):
                world.note("publisher fenced")
                raise Unavailable("fenced")
            world.begun_until = None
            offsets = {int(p): offset for p, offset in head["offsets"].items()}
            last, cut = world.snapshots[-1] if world.snapshots else (0, {})
            assert sequence == head["sequence"] == last + 1, "the sequence has a gap"
            assert all(offsets.get(p, -1) >= offset for p, offset in cut.items()), "a snapshot went back"
            counted = [
                world.recount(
                    p,
                    world.starts.get(p, offset),
                    offset,
                    head["gaps"].get(str(p), []),
                    head["rules"][str(p)],
                )
                for p, offset in offsets.items()
            ]
            reports = sum(c.reports for c in counted)
            assert head["reports"] == reports
            if world.heads and reports < world.heads[-1].reports:
                before = {str(p): [list(gap) for gap in gaps] for p, gaps in world.heads[-1].gaps.items()}
                assert head["gaps"] != before, "reports fell and no gap says why"
            for p, said in (world.heads[-1].rules if world.heads else {}).items():
                assert head["rules"][str(p)][: len(said)] == said, "what was published was judged otherwise"
            assert head["complete"] == (not head["uncounted"] and not head["gaps"])
            assert {m.snapshot for m in messages} == {head["snapshot"]}
            base = next(json.loads(m.body) for m in messages if m.key.endswith("/base"))["frequencies"]
            p, q = float(world.stream.oracle.p), float(world.stream.oracle.q)
            support = np.sum([c.state for c in counted], axis=0)
            np.testing.assert_allclose(base, (support / reports - q) / (p - q), atol=1e-12)
            world.snapshots.append((sequence, offsets))
            world.heads.append(Head.parse(head))
            world.note("snapshot")

        self.world.call(effect, remote=True)

    def close(self) -> None:
        self.fence = -1
