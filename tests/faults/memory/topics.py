"""The topics that a worker writes to, in memory: dead letters and snapshots."""

import json
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ldp.frames import VERDICTS
from ldp.snapshot import Message
from tests.faults.memory.world import World
from worker.counting.columns import Batch
from worker.counting.head import Head
from worker.counting.ports import Unavailable
from worker.counting.rejections import UNREADABLE


class MemoryLetters:
    """The dead letters of one process; what is not flushed dies with it."""

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

    def send(self, partition: int, offset: int, reason: str) -> None:
        answer = self.world.answers[partition][offset]
        assert reason == (answer if isinstance(answer, str) else "many")
        if self.world.rng.random() < self.world.faults.lost_request:
            self.world.note("letter refused")
            raise Unavailable("the letters' buffer is full")
        self.pending.append((partition, offset))

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
            for partition, said in (world.heads[-1].rules if world.heads else {}).items():
                assert head["rules"][str(partition)][: len(said)] == said, (
                    "what was published was judged otherwise"
                )
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
