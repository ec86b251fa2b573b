"""Each numbered step of claim and commit, cut short: refused, done but unheard of, or the process dies beside it.

The numbers are those of the docstrings and bodies of `Ownership.claim` and `Ownership.commit`.
"""

import importlib
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.faults.memory import Crash, Process
from tests.faults.still import Still, alone, count_all, turn
from tests.kills.steps import IMPORTING, STEPS
from worker.counting.ownership import Ownership
from worker.counting.ports import CLAIMED, COUNTED, Metadata, Unavailable
from worker.kafka.snapshots.producer import KafkaSnapshotProducer
from worker.publishing.publisher import Publisher


@dataclass(frozen=True)
class Step:
    """A step: its number, and the call, the nth of its name, that it consists of."""

    number: int
    side: str
    call: str
    nth: int = 1
    remote: bool = True

    def __str__(self) -> str:
        return f"step_{self.number}_{self.call}"

    def cut(self, process: Process, fault: str) -> list[str]:
        """Lets the call meet a fault, once; returns a list that then has it."""
        side: Any = getattr(process.ownership, self.side)
        call: Callable[..., Any] = getattr(side, self.call)
        calls, met = [], list[str]()

        def cut(*args: Any, **named: Any) -> Any:
            calls.append(args)
            if len(calls) != self.nth:
                return call(*args, **named)
            met.append(fault)
            if fault in ("unheard", "dies after"):
                call(*args, **named)
            if fault in ("refused", "unheard"):
                raise Unavailable(fault)
            raise Crash

        setattr(side, self.call, cut)
        return met


FAULTS = ("refused", "unheard", "dies before", "dies after")
CLAIM = [
    Step(1, "_log", "generation", remote=False),
    Step(1, "_log", "topic_id"),
    Step(2, "_log", "committed"),
    Step(3, "_store", "peek"),
    Step(4, "_head_reader", "head"),
    Step(5, "_log", "bounds"),
    Step(6, "_log", "confirm"),
    Step(7, "_log", "generation", nth=2, remote=False),
    Step(8, "_store", "claim"),
    Step(9, "_log", "bounds", nth=2),
    Step(10, "_log", "start", remote=False),
]
COMMIT = [
    Step(1, "_log", "topic_id", remote=False),  # what dies before it is asked dies right after the first step
    Step(2, "_log", "topic_id"),
    Step(3, "_dead_letters", "flush"),
    Step(4, "_store", "stage"),
    Step(5, "_store", "promote"),
    Step(6, "_log", "mirror", remote=False),
]


def cases(steps: list[Step]) -> list[Any]:
    """Every step with every fault that it can meet: what asks nobody is not refused."""
    return [
        pytest.param(step, fault, id=f"{step}-{fault.replace(' ', '_')}")
        for step in steps
        for fault in FAULTS
        if step.remote or fault.startswith("dies")
    ]


def done(step: Step, fault: str, number: int) -> bool:
    """Whether the numbered step had its effect, though the given one was cut short."""
    return step.number > number or (step.number == number and fault in ("unheard", "dies after"))


@pytest.mark.parametrize("fresh", [False, True], ids=["resume", "fresh"])
@pytest.mark.parametrize(("step", "fault"), cases(CLAIM))
def test_a_claim_cut_short_leaves_the_store_whole_and_is_made_again(
    step: Step, fault: str, fresh: bool
) -> None:
    world = Still()
    world.send()
    if not fresh:
        count_all(world, world.member(1))
        world.late.clear()  # what it told Kafka of its commit never arrives
    world.send()
    before = world.stored.get(0)
    process = alone(world, 2)
    met = step.cut(process, fault)
    if fault.startswith("dies"):
        with pytest.raises(Crash):
            turn(process, commit=False)
    else:
        turn(process, commit=False)
    assert met == [fault]

    stored, confirmed = world.stored.get(0), world.offsets.get(0)
    dies = fault.startswith("dies")
    if step.number == 4 and not fresh and not dies:
        step, fault = CLAIM[-1], "dies after"  # counts that are not behind go on without the head
    if not done(step, fault, 8):
        assert stored == before
    elif before is None:
        assert stored is not None
        assert (stored.metadata.epoch, stored.metadata.offset, stored.metadata.flush) == (1, 0, "")
    else:
        assert stored is not None
        assert changed(before.metadata, stored.metadata) == {"epoch": 2}
        assert stored.blobs == before.blobs
    if done(step, fault, 6):
        assert confirmed == ((0, CLAIMED) if fresh else (5, COUNTED))
    else:
        assert confirmed == (None if fresh else (0, CLAIMED))
    assert process.ownership.counted() == ({0: 0 if fresh else 5} if step.number == 10 else {})

    count_all(world, alone(world, 9) if dies else process)
    world.verify(0)
    assert world.stored[0].metadata.offset == 10


def changed(before: Metadata, after: Metadata) -> dict[str, Any]:
    """The fields in which metadata differ, with what they became."""
    return {name: said for name, said in vars(after).items() if vars(before)[name] != said}


@pytest.mark.parametrize(("step", "fault"), cases(COMMIT))
def test_a_commit_cut_short_is_all_or_nothing_and_is_made_again(step: Step, fault: str) -> None:
    world = Still()
    process = world.member(1)
    world.send()
    count_all(world, process)
    world.send(2)
    world.produce(0, b"\x07noise", "version")
    for _ in range(100):
        turn(process, commit=False)
    assert process.ownership.counted() == {0: 8}
    world.deliver()
    before = world.stored[0]
    world.staged.clear()
    met = step.cut(process, fault)
    dies = fault.startswith("dies")
    if dies:
        with pytest.raises(Crash):
            process.ownership.commit()
    else:
        process.ownership.commit()
    assert met == [fault]

    after = world.stored[0]
    if done(step, fault, 5):
        assert after.metadata.offset == 8
        assert changed(before.metadata, after.metadata).keys() == {"offset", "flush", "blobs", "totals"}
    else:
        assert after == before
    assert world.letters == ({(0, 7)} if done(step, fault, 3) else set())
    assert any(world.staged.values()) == (done(step, fault, 4) and not done(step, fault, 5))
    assert len(world.late) == done(step, fault, 6)

    count_all(world, alone(world, 9) if dies else process)
    world.verify(0)
    assert world.letters == {(0, 7)}
    assert world.stored[0].metadata.offset == 8
    # a worker that lives tries again: it knows its own commit, and claims nothing
    assert world.stored[0].metadata.epoch == before.metadata.epoch + dies


PUBLISHING = (Publisher.tick, Publisher._publish, KafkaSnapshotProducer.publish)
COMMITTING = (Ownership.commit, Ownership.prepare, Ownership.write, Ownership._promote, Ownership.settle)


@pytest.mark.parametrize(
    ("turn", "body", "first", "title", "steps"),
    [
        (
            "claim",
            (Ownership.claim, Ownership._decide, Ownership._adopt),
            Ownership.claim,
            "The claim",
            CLAIM,
        ),
        ("commit", COMMITTING, Ownership.commit, "The commit", COMMIT),
        ("publish", PUBLISHING, Publisher.tick, "Snapshots and the head", None),
    ],
    ids=["claim", "commit", "publish"],
)
def test_the_steps_have_the_same_numbers_in_docstring_body_readme_and_tests(
    turn: str,
    body: tuple[Callable[..., Any], ...],
    first: Callable[..., Any],
    title: str,
    steps: list[Step] | None,
) -> None:
    said = [int(number) for number in re.findall(r"^ +(\d+)\. ", first.__doc__ or "", re.MULTILINE)]
    assert said == list(range(1, len(said) + 1))
    marks = [
        n for function in body for n in re.findall(r"# Steps? ([\d and]+)\.", inspect.getsource(function))
    ]
    assert sorted(int(number) for mark in marks for number in mark.split(" and ")) == said
    if steps is not None:
        assert sorted({step.number for step in steps}) == said
    assert sorted({step.number for step in STEPS if step.turn == turn}) == said
    readme = (Path(__file__).parents[2] / "worker" / "README.md").read_text(encoding="utf-8")
    section = readme.split(f"## {title}\n")[1].split("\n## ")[0]
    assert [int(number) for number in re.findall(r"^(\d+)\. ", section, re.MULTILINE)] == said


@pytest.mark.parametrize("where", sorted({f"{step.owner}.{step.call}" for step in [*STEPS, *IMPORTING]}))
def test_what_the_kill_points_wrap_is_there(where: str) -> None:
    owner, _, call = where.rpartition(".")
    module, _, name = owner.partition(":")
    found: Any = importlib.import_module(module)
    assert callable(getattr(getattr(found, name) if name else found, call))
