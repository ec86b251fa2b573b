"""The topics that a worker writes to, in memory: dead letters and snapshots."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from ldp.frames import VERDICTS
from ldp.snapshot import ALL_TIME, Message, Received, Row
from tests.support.memory.world import Counted, World
from worker.counting.columns import Batch
from worker.counting.head import Head
from worker.counting.lateness import Late
from worker.counting.ports import Read, Unavailable
from worker.counting.rejections import UNREADABLE


class MemoryDeadLetters:
    """Dead letters of one process; unflushed ones die with it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.pending: list[tuple[int, int]] = []

    def add(self, batch: Batch, verdicts: npt.NDArray[np.uint8]) -> int:
        for index in np.flatnonzero(verdicts).tolist():
            self.send(batch.partition, int(batch.columns.offsets[index]), VERDICTS[verdicts[index]])
        for bad in batch.unreadable:
            assert self.world.logs[batch.partition][bad.end - 1].unreadable == bad.offset
            self.send(batch.partition, bad.end - 1, UNREADABLE)
        return 0

    def add_late(self, batch: Batch, late: Late) -> int:
        facts = (late.times, late.starts, late.starts + late.pane, late.closed)
        for index, *said in zip(late.at.tolist(), *(fact.tolist() for fact in facts), strict=True):
            offset = int(batch.columns.offsets[index])
            self.world.late_said.setdefault((batch.partition, offset), set()).add(tuple(said))
            self.pending.append((batch.partition, offset))
        return 0

    def send(self, partition: int, offset: int, reason: str) -> None:
        answer = self.world.answers[partition][offset]
        assert reason == (answer if isinstance(answer, str) else "many")
        self.pending.append((partition, offset))

    def flush(self) -> None:
        self.world.dead_letters.update(self.pending)
        self.pending.clear()


class MemorySnapshotProducer:
    """The snapshot topic, with one transactional id: the latest producer fences the others off.

    A publisher that dies between its messages and its commit leaves a transaction open, as other streams' do, until the
    next one opens the snapshot producer or its time is up; its head stays there for readers of uncommitted records.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.fence = -1

    def open(self) -> Head:
        self.world.publisher_fence += 1
        self.world.begun_until = None
        self.fence = self.world.publisher_fence
        return self.head(decided=True)

    def head(self, *, decided: bool) -> Head:
        world = self.world
        if not decided:
            return world.said or Head()
        if world.clock < max(world.open_until, world.begun_until or 0.0):
            raise Unavailable("a transaction is open")
        return world.heads[-1] if world.heads else Head()

    def newest(self, begin: str, read: Callable[[Received], Read]) -> Read | None:
        return read(self.world.received)

    def recount(self, head: Any, offsets: Mapping[int, int], gaps: Any) -> list[Counted]:
        """Recounts the logs up to some offsets, by a head's rules."""
        world = self.world
        return [
            world.recount(
                p,
                world.starts.get(p, offset),
                offset,
                gaps.get(str(p), []),
                head["rules"][str(p)],
                head.get("floors", {}).get(str(p)),
            )
            for p, offset in offsets.items()
        ]

    def released(self, head: Any, counted: Sequence[Counted]) -> Callable[..., Any]:
        """Returns the released counts of a window, of all time, or of `late`, from only the log and the head."""
        world, record = self.world, head.get("released")
        rest: Any = {"closed": 0, "offsets": {}, "lost": 0}
        for key, (_, value) in world.received.items():
            if key.endswith("/released") and value:
                rest = json.loads(value)["rest"]

        def summed(parts: Sequence[Counted]) -> dict[tuple[int, int], Any]:
            named = {pane for c in parts for pane in c.panes.counts}
            return {pane: sum(np.array(c.panes.counts.get(pane, zero)) for c in parts) for pane in named}

        def needed(end: int) -> float:
            if end > record["closed"]:
                return math.inf
            steps = [fewest for since, fewest in record["fewest"] if since < end]
            return math.inf if not steps or steps[-1] is None else steps[-1]

        def of(name: str, start: int | None = None, end: int = 0) -> Any:
            if start is not None:
                within = [
                    c
                    for (a, b), c in summed(counted).items()
                    if start <= a and b <= end and c.sum() >= needed(b)
                ]
                return sum(within, np.array(zero))
            gaps = world.rest_gaps.setdefault(json.dumps(rest), head["gaps"])
            then = self.recount(head, {int(p): at for p, at in rest["offsets"].items()}, gaps)
            total = sum((np.array(c.state) for c in then), np.array(zero))
            total = total - sum(
                (c for (_, b), c in summed(then).items() if b > rest["closed"]), np.array(zero)
            )
            if name == "late":
                shown = [
                    c for (_, b), c in summed(then).items() if b <= rest["closed"] and c.sum() >= needed(b)
                ]
                return total - sum(shown, np.array(zero))
            later = [
                c for (_, b), c in summed(counted).items() if b > rest["closed"] and c.sum() >= needed(b)
            ]
            return sum(later, total)

        zero = [0] * world.stream.oracle.domain_size
        return of

    def rows(self) -> list[bytes]:
        raise NotImplementedError("no process of this world writes rows")

    def publish(self, sequence: int, messages: Sequence[Message], rows: Sequence[Row] = ()) -> None:
        assert not rows
        world, head = self.world, json.loads(messages[0].body)
        if self.fence != world.publisher_fence:
            raise Unavailable("fenced")
        world.said = Head.parse(head)
        world.begun_until = world.clock + 4.0
        self.commit(sequence, messages, head)

    def commit(self, sequence: int, messages: Sequence[Message], head: Any) -> None:
        """Commits the transaction; compares the snapshot in it with the recount of the logs."""
        world = self.world
        world.begun_until = None
        offsets = {int(p): offset for p, offset in head["offsets"].items()}
        last, cut = world.snapshots[-1] if world.snapshots else (0, {})
        assert sequence == head["sequence"] == last + 1, "the sequence has a gap"
        assert all(offsets.get(p, -1) >= offset for p, offset in cut.items()), "a snapshot went back"
        marked = [(m.key, (dict(m.headers(sequence)), m.body)) for m in messages if m.window.start is None]
        world.received |= dict(marked)
        counted = self.recount(head, offsets, head["gaps"])
        reports = sum(c.reports for c in counted)
        bodies = [json.loads(m.body) for m in messages if m.key.endswith("/base") and m.body]
        released = self.released(head, counted)
        if "released" in head:
            reports = int(sum(released("all")))
        # a head that only admits partitions has no reports
        assert head["reports"] == (reports if bodies else 0), (head, reports, [c.panes for c in counted])
        if world.heads and reports < world.heads[-1].reports:
            before = {str(p): [list(gap) for gap in gaps] for p, gaps in world.heads[-1].gaps.items()}
            assert head["gaps"] != before, "reports fell and no gap says why"
        for partition, said in (world.heads[-1].rules if world.heads else {}).items():
            assert head["rules"][str(partition)][: len(said)] == said, (
                "what was published was judged otherwise"
            )
        assert head["complete"] == (not head["uncounted"] and not head["gaps"])
        marks = {m.snapshot for m in messages if m.window == ALL_TIME and "/released" not in m.key}
        assert marks == {head["snapshot"]}
        late = "released" in head and bool(head.get("windows")) and bool(sum(released("late")))
        assert [body["window"]["name"] for body in bodies].count("late") == late
        for body in bodies:
            window = body["window"]
            whole = window["start"] is None
            start, end = milli(window["start"]), milli(window["end"])
            parts = [c.state if whole else c.panes.window(start, end) for c in counted]
            support = np.sum(parts, axis=0)
            if "released" in head:
                shown = released(window["name"], None if whole else start, end)
                assert body.get("withheld") == (None if whole else int(np.sum(support - shown)))
                support = shown
            n = int(np.sum(support))
            p, q = float(world.stream.oracle.p), float(world.stream.oracle.q)
            assert body["reports"] == n
            np.testing.assert_allclose(body["frequencies"], (support / n - q) / (p - q), atol=1e-12)
        world.snapshots.append((sequence, offsets))
        world.heads.append(Head.parse(head))

    def close(self) -> None:
        self.fence = -1


def milli(date: str | None) -> int:
    """A time in milliseconds; 0 for none."""
    return 0 if date is None else round(datetime.fromisoformat(date).timestamp() * 1000)
