"""One wrong answer of a broker, in both directions: nothing final follows from it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import ldp
from tests.support.memory import Process
from tests.unit.worker.counting.still import STREAM, Still, alone, count_all, lie_once, shifted
from worker.counting import layout
from worker.counting.head import Head
from worker.counting.ports import CLAIMED, COUNTED

OLDER = Head(1, {0: 5}, 5)

LIES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "ListOffsets: the log begins too late": ("bounds", shifted(7, 0)),
    "ListOffsets: the log begins beyond its end": ("bounds", shifted(100, 0)),
    "ListOffsets: the log begins too early": ("bounds", shifted(-7, 0)),
    "ListOffsets: the log ends too early": ("bounds", shifted(0, -7)),
    "ListOffsets: the log ends too late": ("bounds", shifted(0, 100)),
    "ListOffsets: no leader": ("bounds", lambda _: {}),
    "Metadata: another topic id": ("topic_id", lambda _: "topic-2"),
    "OffsetFetch: no offset": ("committed", lambda _: {}),
    "OffsetFetch: an offset too high": ("committed", lambda said: dict.fromkeys(said or [0], (100, COUNTED))),
    "OffsetFetch: an offset too low": ("committed", lambda said: dict.fromkeys(said or [0], (0, CLAIMED))),
    "Fetch: offset 0 is in the log": ("firsts", lambda said: dict.fromkeys(said, 0)),
    "snapshot topic: no head": ("head", lambda _: Head()),
    "snapshot topic: an older head": ("head", lambda head: OLDER if head.sequence else head),
    "snapshot topic: another deployment's head": ("head", lambda _: Head(7, lineage={"group": "other"})),
    "Fetch: out of range, by a proof that never ends": ("firsts", lambda _: {}),
}
"""Wrong answer -> the method of the log or the head reader that gives it, and its change of the truth."""


def resuming(world: Still) -> Process:
    """Returns a worker that is about to claim what another one counted in part."""
    world.send()
    worker = world.member(1)
    count_all(world, worker)
    world.deliver()
    worker.publisher.tick()
    world.send()
    count_all(world, worker)
    worker.publisher.tick()
    assert len(world.heads) == 2
    return alone(world, 2)


def beginning(world: Still) -> Process:
    """Returns a worker that is about to claim uncounted partitions."""
    world.send(10)
    return world.member(1)


def beginning_late(world: Still) -> Process:
    """The same, of logs that lost records before that."""
    process = beginning(world)
    world.firsts[0] = 4
    return process


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("at", [resuming, beginning, beginning_late])
def test_one_wrong_answer_at_a_claim_loses_nothing(
    at: Callable[[Still], Process], lie: str, nth: int
) -> None:
    """It is the first or the second answer of its kind. All is counted, without a gap, and nothing stops."""
    world = Still()
    process = at(world)
    name, change = LIES[lie]
    side: Any = process.ownership._head_reader if name == "head" else process.log
    if nth == 2:
        lie_once(side, name, lambda said: (lie_once(side, name, change), said)[1])
    else:
        lie_once(side, name, change)
    count_all(world, process)
    state = layout.load(ldp.Fleet((STREAM,)), world.stored[0].metadata, world.stored[0].blobs)
    assert (state.start, state.offset, state.gaps) == (world.firsts[0], 10, [])
    world.verify(0)


def test_one_wrong_topic_id_while_counting_stops_nothing() -> None:
    world = Still()
    process = beginning(world)
    count_all(world, process)
    world.send()
    lie_once(process.log, "topic_id", lambda _: "topic-2")
    count_all(world, process)
    world.verify(0)


@pytest.mark.parametrize("said", [0, 1, 3])
def test_one_wrong_number_of_partitions_publishes_nothing_permanent(said: int) -> None:
    world = Still(partitions=2)
    process = beginning(world)
    count_all(world, process)
    process.publisher.tick()
    world.send()
    count_all(world, process)
    truth = process.publisher._group
    world.told, process.publisher._group = said, replace(truth, uncounted=list)
    process.publisher.tick()
    world.told, process.publisher._group = 2, truth
    process.publisher.tick()
    head = world.heads[-1]
    assert (head.offsets, head.uncounted, head.gaps) == ({0: 15, 1: 15}, (), {})
