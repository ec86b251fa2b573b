"""Events of claim, commit and publish: each one occurs once, at its time, with its facts.

Their effect on log, metrics and readiness is tested in `tests/unit/worker/test_events.py`.
"""

import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
import pytest

import ldp
from ldp import frames
from ldp.alarms import Watch
from ldp.snapshot import Period, Snapshot
from tests.support.memory import Process
from tests.unit.worker.counting.still import STREAM, Still, alone, count_all, during, turn
from worker.counting.columns import Batch, Columns
from worker.counting.ports import Answer, Events, Unavailable
from worker.counting.rejections import GATHER_SECONDS
from worker.counting.rules import RecordLimits, RequestedRule
from worker.counting.windows import Windowing

Said = tuple[Any, ...]
DOCUMENT = STREAM.fingerprint.hex()


class Told:
    """Keeps the events as (verb, facts ...)."""

    def __init__(self) -> None:
        self.said: list[Said] = []

    def info(self, event: str, **facts: Any) -> None:
        self.said.append((event, facts))

    warning = info

    def __getattr__(self, verb: str) -> Callable[..., None]:
        names = [*inspect.signature(getattr(Events, verb)).parameters][1:]

        def tell(*facts: Any) -> None:
            assert len(facts) == len(names)
            self.said.append((verb, *map(plain, facts)))

        return tell

    def new(self) -> list[Said]:
        """Events since the last call."""
        said, self.said = self.said, []
        return said


def plain(fact: Any) -> Any:
    """A fact as something that is easily written down."""
    match fact:
        case float():
            return "a number"
        case Snapshot():
            return fact.sequence
        case Unavailable():
            return str(fact)
        case Period():
            return fact.name
    return fact


def worker(world: Still, number: int = 1) -> tuple[Process, Told]:
    told = Told()
    return alone(world, number, cast(Events, told)), told


def refuse() -> None:
    raise Unavailable("no")


def usual() -> Iterator[list[Said]]:
    world = Still()
    world.send(2)
    world.produce(0, b"\x07noise", "version")
    world.damage(0, 2)
    process, told = worker(world)
    turn(process)
    yield told.new()
    assert told.said == []
    while process.ownership.counted() != {0: 5}:
        turn(process, commit=False)
    counted = told.new()
    assert sum(said[1] for said in counted if said[0] == "counted") == 2
    assert sum(sum(said[3].values()) for said in counted if said[0] == "counted") == 2
    yield [said for said in counted if said[0] != "counted"] + counted[-1:]
    process.ownership.commit()
    world.clock += GATHER_SECONDS
    process.ownership.compare()
    yield told.new()
    for _ in range(2):
        process.publisher.tick()
    yield told.new()
    process.ownership.release([0])
    process.publisher.tick()
    yield told.new()


def taken_over() -> Iterator[list[Said]]:
    world = Still()
    world.send()
    old, told = worker(world)
    count_all(world, old)
    told.new()
    world.send()
    while old.ownership.counted() != {0: 10}:
        turn(old, commit=False)
    told.new()
    new, heard = worker(world, 2)
    turn(new, commit=False)
    yield heard.new()[:1]
    old.ownership.commit()
    yield told.new()


def failing() -> Iterator[list[Said]]:
    world = Still()
    world.send()
    process, told = worker(world)
    during(process.log, "committed", refuse)
    process.log.poll()
    process.ownership.claim()
    yield told.new()
    while process.ownership.counted() != {0: 5}:
        turn(process, commit=False)
    told.new()
    during(process.ownership._store, "promote", refuse)
    process.ownership.commit()
    yield told.new()
    process.ownership.commit()
    during(process.ownership._store, "compare", refuse)
    process.ownership.compare()
    yield told.new()
    during(process.publisher._snapshot_producer, "publish", refuse)
    process.publisher.tick()
    yield told.new()


def late_or_undated() -> Iterator[list[Said]]:
    """A pane is closed as soon as one of its successors begins: two records are late by seconds, one by an hour."""
    world = Still()
    world.configured = RequestedRule(1, RecordLimits(1, True, windowing=Windowing(("all", "1s"), 0, 0)))
    world.send(6)
    for record, timestamp in zip(world.logs[0], [5000, 4000, 100, -1, 3_605_000, 200], strict=True):
        record.timestamp = timestamp
    process, told = worker(world)
    turn(process)
    process.publisher.tick()
    process.ownership.compare()
    assert "windows_closed" not in [said[0] for said in told.new()]
    while process.ownership.stored() != {0: 6}:
        turn(process)
    found = [said for said in told.new() if said[0] == "late_or_undated"]
    late = sum((Counter(said[1]) for said in found), Counter())
    yield [("late_or_undated", dict(late), sum(said[2] for said in found), sum(said[3] for said in found))]
    for _ in range(2):
        process.publisher.tick()
        yield [said for said in told.new() if said[0] == "windows_closed"]


def changed() -> Iterator[list[Said]]:
    """In the first and second seconds all have value 1; in the third all have value 0."""
    world = Still()
    world.configured = RequestedRule(
        1, RecordLimits(400, hamming_weight=True, windowing=Windowing(("all", "1s"), 0, 0))
    )
    process, told = worker(world)
    turn(process)
    process.publisher.tick()
    process.ownership.compare()
    for second, value in enumerate((1, 1, 0, 0)):
        report = np.full(400, value, world.stream.oracle.report_dtype)
        world.produce(0, frames.encode(world.stream, report), [value] * 400)
        world.logs[0][-1].timestamp = 1000 * second
        while process.ownership.stored() != {0: second + 1}:
            turn(process)
        process.publisher.tick()
        yield [said for said in told.new() if said[0] == "compared"]


def poisoned() -> Iterator[list[Said]]:
    """The block is made as small as a batch. The world recounts no such reports, so that nothing is stored."""
    world = Still()
    world.stream = ldp.Stream("poisoned", ldp.OLH("1", domain_size=3))
    process, told = worker(world)
    watch = Watch(world.stream.oracle, lambda: world.clock)
    watch._block = watch._block[:16]
    process.ownership._watching._watches[world.stream.fingerprint.hex()] = watch
    turn(process)
    world.produce(0, frames.encode(world.stream, np.repeat(world.stream.oracle.perturb([1]), 16)), [1] * 16)
    while process.ownership.counted() != {0: 1}:
        turn(process, commit=False)
    yield [said for said in told.new() if said[0] == "poisoned"]


def behind() -> Iterator[list[Said]]:
    world = Still()
    world.send()
    process, told = worker(world)
    count_all(world, process)
    before = world.stored[0]
    world.send()
    count_all(world, process)
    process.publisher.tick()
    told.new()
    world.stored[0] = before
    process.publisher.tick()
    yield told.new()
    process.ownership.compare()
    yield told.new()


def rejected(reasons: dict[str, int], left_out: int, accepted: int, offset: int) -> dict[str, Any]:
    facts = {"dead_letters_left_out": left_out, "accepted": accepted, "partition": 0, "offset": offset}
    return {"reasons": reasons} | facts


def refused(verdict: str) -> Said:
    return "commit.refused", {"partition": 0, "verdict": verdict}


SCENES: dict[Callable[[], Iterator[list[Said]]], list[list[Said]]] = {
    usual: [
        [("claimed", 0, "fresh", 0, 1)],
        [
            ("malformed", {"version": 1, "batch": 1}, 0),
            ("with_key_or_headers", 1),
            ("counted", 2, 2, {DOCUMENT: 2}),
        ],
        [
            ("commit_ended", Answer.DONE, "a number"),
            ("records.rejected", rejected({"version": 1, "batch": 1}, 0, 2, 2)),
        ],
        [
            ("publishing", True),
            ("publisher.opened", {"sequence": 0}),
            ("documents_unnamed", [], "list it in documents or retired"),
            ("published", 1, "a number", None),
            ("checked", "a number"),
            ("publishing", True),
            ("checked", None),
        ],
        [("released", 0), ("publishing", False)],
    ],
    taken_over: [
        [("claimed", 0, "resume", 5, 2)],
        [("commit_ended", Answer.FENCED, "a number"), refused("fenced"), ("dropped", 0)],
    ],
    failing: [
        [("claim_failed", [0], "no")],
        [("commit_ended", None, "a number"), ("commit_failed", "no")],
        [("commit_ended", Answer.DONE, "a number"), ("compare_failed", "no")],
        [
            ("publishing", True),
            ("publisher.opened", {"sequence": 0}),
            ("documents_unnamed", [], "list it in documents or retired"),
            ("publish_failed", "no"),
        ],
    ],
    late_or_undated: [
        [("late_or_undated", {"1m": 2, "6h": 1}, 1, 0)],
        [("windows_closed", {"1s": 3_605_000}, 3_605_000)],
        [("windows_closed", {"1s": 3_605_000}, 3_605_000)],
    ],
    changed: [
        [],
        [],
        [("compared", "1s", 0, [])],
        [("compared", "1s", 2, [])],
    ],
    poisoned: [
        [
            ("poisoned", "uniform", 16, "100.00% of reports are in one of 64 equally likely bins"),
            (
                "poisoned",
                "repeats",
                16,
                "pairs of equal reports in a block: 120; at most 1.3e-08 expected",
            ),
        ]
    ],
    behind: [
        [("publishing", True), ("snapshot.behind", {"head": {0: 10}, "cut": {0: 5}})],
        [refused("conflict"), ("dropped", 0)],
    ],
}


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_every_event_is_emitted_exactly_once(scene: Callable[[], Iterator[list[Said]]]) -> None:
    assert list(scene()) == SCENES[scene]


def test_a_dropped_claim_resets_the_backoff() -> None:
    world = Still()
    world.send()
    process, told = worker(world)
    process.log.poll()
    for _ in range(8):
        during(process.log, "committed", refuse)
        process.ownership.claim()
        world.clock += 10
    process.ownership.claim()
    assert told.new()[-1] == ("claimed", 0, "fresh", 0, 1)
    process.ownership.drop([0])
    world.clock += 0.1
    process.ownership.claim()
    assert told.new()[-1] == ("claimed", 0, "resume", 0, 2)


def test_omitted_dead_letters_are_reported() -> None:
    world = Still()
    process, told = worker(world)
    turn(process)
    told.new()
    process.ownership._dead_letters.add = lambda *_: 2
    process.ownership.apply(Batch(0, 0, 4, Columns.of(range(4), [0] * 4, [b"\x07noise"] * 4)))
    assert told.new() == [("malformed", {"version": 4}, 2), ("counted", 0, 4, {})]
    world.clock += GATHER_SECONDS
    process.ownership.compare()
    assert told.new() == [("records.rejected", rejected({"version": 4}, 2, 0, 0))]


def test_lagging_counts_are_reported_once_and_then_once_a_minute() -> None:
    world = Still()
    world.send()
    process, told = worker(world)
    count_all(world, process)
    before = world.stored[0]
    world.send()
    count_all(world, process)
    process.publisher.tick()
    world.stored[0] = before

    def ticks(seconds: float) -> list[str]:
        told.new()
        for _ in range(5):  # as often as a publisher ticks that has just taken over
            process.publisher.tick()
            world.clock += seconds / 5
        return [said[0] for said in told.new() if said[0] == "snapshot.behind"]

    assert ticks(1.0) == ["snapshot.behind"]
    assert ticks(58.0) == []
    assert ticks(2.0) == ["snapshot.behind"]


@pytest.mark.parametrize("chosen", [True, False])
def test_omitted_late_dead_letters_are_reported(chosen: bool) -> None:
    world = Still()
    world.configured = RequestedRule(1, RecordLimits(1, True, windowing=Windowing(("all", "1s"), 0, 0)))
    world.late_dead_letters = chosen
    world.send(4)
    for record, timestamp in zip(world.logs[0], [5000, 100, 200, 300], strict=True):
        record.timestamp = timestamp
    process, told = worker(world)
    process.ownership._dead_letters.add_late = lambda *_: 2
    turn(process)
    process.publisher.tick()
    process.ownership.compare()
    batch = Batch(0, 0, 4, process.log.batch(0, 0, 4).columns)
    told.new()
    process.ownership.apply(batch)
    assert told.new() == [
        ("late_or_undated", {"1m": 3}, 0, 2 if chosen else 0),
        ("counted", 4, 0, {DOCUMENT: 4}),
    ]
