"""A recorded gap that the log can fill is taken back: by the operator's word, and only if that is proven."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import ldp
from tests.support.cells import ruled
from tests.support.memory import Process, World
from tests.unit.worker.counting.still import STREAM, Still, alone, count_all, lie_once, shifted
from worker.counting import layout
from worker.counting.claim import Claim
from worker.counting.head import Head
from worker.counting.partition_state import PartitionState
from worker.counting.rules import RecordLimits, RequestedRule, Rule
from worker.counting.windows import Windowing

GAP = 5, 8
"""Offsets that a worker recorded as lost; five records come before, and seven behind."""


def gapped(world: Still) -> Process:
    """Makes a worker record and publish a gap, then restores all records of the log. Returns that worker."""
    world.send()
    count_all(world, world.member(1))
    world.deliver()
    world.send(10)
    world.firsts[0] = GAP[1]
    worker = alone(world, 2)
    count_all(world, worker)
    world.deliver()
    worker.publisher.tick()
    assert (world.heads[-1].gaps, stored(world).gaps) == ({0: [GAP]}, [GAP])
    world.firsts[0] = 0
    return worker


def stored(world: World) -> PartitionState:
    return layout.load(ldp.Fleet((STREAM,)), world.stored[0].metadata, world.stored[0].blobs)


def told(world: Still) -> None:
    """The operator sets `recount_after` to the newest snapshot's number."""
    world.recount_after = world.heads[-1].sequence


def test_the_operator_can_revoke_a_recorded_gap() -> None:
    world = Still()
    gapped(world)
    told(world)
    worker = alone(world, 3)
    count_all(world, worker)
    assert (stored(world).start, stored(world).gaps, stored(world).accepted) == (0, [], 15)
    world.verify(0)
    worker.publisher.tick()
    assert (world.heads[-1].sequence, world.heads[-1].gaps, world.heads[-1].reports) == (2, {}, 15)
    count_all(world, alone(world, 4))  # nothing is left to take back
    assert stored(world).accepted == 15


def no_word(world: Still) -> None:
    pass


def an_older_word(world: Still) -> None:
    world.recount_after = world.heads[-1].sequence - 1


def no_beginning(world: Still) -> None:
    told(world)
    world.firsts[0] = 1


@pytest.mark.parametrize("why", [no_word, an_older_word, no_beginning])
def test_a_gap_stays_without_consent_or_without_the_whole_log(why: Callable[[Still], None]) -> None:
    world = Still()
    gapped(world)
    why(world)
    count_all(world, alone(world, 3))
    assert stored(world).gaps == [GAP]


@pytest.mark.parametrize(
    ("name", "lie"),
    [("bounds", shifted(-1, 0)), ("firsts", lambda said: dict.fromkeys(said, 0))],
    ids=["ListOffsets", "Fetch"],
)
@pytest.mark.parametrize("nth", [1, 2])
def test_one_wrong_answer_never_replaces_counts_missing_from_the_log(
    name: str, lie: Callable[[Any], Any], nth: int
) -> None:
    world = Still()
    gapped(world)
    no_beginning(world)
    worker = alone(world, 3)
    if nth == 2:
        lie_once(worker.log, name, lambda said: (lie_once(worker.log, name, lie), said)[1])
    else:
        lie_once(worker.log, name, lie)
    count_all(world, worker)
    assert (stored(world).start, stored(world).gaps) == (0, [GAP])


@pytest.mark.parametrize("windows", [None, Windowing(("all", "1h"), grace=0, max_out_of_orderness=0)])
def test_a_gap_of_a_windowed_stream_stays(windows: Windowing | None) -> None:
    """Its final windows would change."""
    without = Rule(0, 1, RecordLimits(None, hamming_weight=True))
    state = ruled(
        STREAM, [without, replace(without, offset=4, limits=RecordLimits(None, True, None, windows))]
    )
    state.skip(8)
    anything: Any = None
    claim = Claim("group", STREAM, RequestedRule(), 9, anything, anything, "")
    assert claim.may_recount(0, state, Head()) == (windows is None)
