"""Windows that are added, removed, or wait for less: open windows continue, and final windows stay."""

from typing import Any

import numpy as np
import pytest

import ldp
from ldp.snapshot import Closed
from tests.support.cells import key_in
from tests.unit.worker.counting.still import STREAM, alone, count_all, turn
from tests.unit.worker.counting.windowed import HOURLY, Windowed, configured, finals, settle
from worker.counting.cells import Cell
from worker.counting.head import Head
from worker.counting.partition_state import PartitionState
from worker.counting.rules import RecordLimits, RequestedRule
from worker.counting.windows import MOST_AT_ONCE, Windowing
from worker.publishing import window_progress


@pytest.mark.parametrize("busy", [0, 40], ids=["nothing was published", "snapshots were published"])
def test_few_new_reports_are_published_if_a_partition_is_full(busy: int) -> None:
    world = Windowed(windowing=Windowing(("all", "1s"), 0, 0))  # six panes at most
    world.choose(fewest_new=20)
    process = world.member(1)
    world.at(0, *range(100, 100 + 20 * busy, 20))  # in one second
    world.at(0, *range(1100, 61_100, 1000))  # then one a second
    settle(world, process, turns=300)
    assert process.ownership.counted() == {0: busy + 60}
    assert finals(world) == ([(0, True, busy)] if busy else [])
    assert world.heads[-1].progress["1s"].closed == 60_000
    assert 60 - (world.heads[-1].reports - busy) < 20 + 6
    world.verify(0)


def test_an_added_partition_does_not_remove_the_snapshot() -> None:
    world = Windowed()
    world.at(0, 100, 1100, 5000)
    settle(world, world.member(1))
    assert world.heads[-1].reports == 3
    world.grow()
    world.told = 2
    world.choose(fewest_new=10)
    process = alone(world, 2)
    settle(world, process)
    assert (world.heads[-1].reports, world.heads[-1].floors) == (3, {0: 0, 1: 4000})


def checks(process: Any) -> list[float | None]:
    """Notes when the publisher finds that the newest snapshot has all counted records."""
    told = list[float | None]()
    process.publisher._events.checked = told.append
    return told


def test_reports_held_back_are_not_marked_as_covered() -> None:
    world = Windowed(windowing=None)
    world.choose(fewest_new=10)
    process = world.member(1)
    told = checks(process)
    for reports, published, covered in ((12, 12, True), (12, 12, True), (15, 12, False), (22, 22, True)):
        world.at(0, *range(len(world.logs[0]), reports))
        count_all(world, process)
        told.clear()
        process.publisher.tick()
        assert (world.heads[-1].reports, len(told)) == (published, covered)


def test_a_former_publisher_does_not_report_full_coverage() -> None:
    world = Windowed(windowing=None)
    world.at(0, 100)
    process = world.member(1)
    settle(world, process)
    world.at(0, 200)
    for _ in range(5):
        turn(process)
    told, owns = checks(process), process.publisher._owns
    lineages = [owns(), None]
    process.publisher._owns = lambda: lineages.pop(0)  # type: ignore[method-assign]
    process.publisher.tick()
    assert (told, world.heads[-1].reports) == ([], 1)


def of_seconds(closed: int, starts: range) -> PartitionState:
    """A partition that has counted one report in each of some seconds."""
    state = PartitionState.fresh(
        ldp.Fleet((STREAM,)),
        0,
        RequestedRule(1, RecordLimits(9, True, None, Windowing(("all", "1s"), 60_000))),
    )
    state.windows.admitted_from, state.windows.closed, state.windows.watermark = 0, closed, closed
    for start in starts:
        state.cells[key_in(state, f"{start}+1000")] = {"": Cell(1, np.array([1, 0, 0], np.int64))}
    return state


def decided(head: Head, *states: PartitionState, still: bool = True) -> window_progress.WindowProgress:
    found = window_progress.decide(head, dict(enumerate(states)), range(len(states)), lambda _: still)
    assert found is not None
    return found


def test_many_windows_become_final_in_several_snapshots() -> None:
    state = of_seconds(100_000, range(0, 80_000, 1000))
    head, seen = Head(1, {0: 0}, floors={0: 0}, progress={"1s": Closed(0)}), list[int]()
    while found := [due for due in decided(head, state).due if due.period.final]:
        assert len(found) <= MOST_AT_ONCE
        seen += [due.period.start or 0 for due in found]
        head = Head(1, {0: 0}, floors={0: 0}, progress=decided(head, state).progress)
    assert seen == [*range(0, 80_000, 1000)]


def test_windows_closed_in_every_partition_are_not_marked_as_bounded() -> None:
    full, other = (
        of_seconds(120_000, range(45_000, 171_000, 1000)),
        of_seconds(40_000, range(0, 45_000, 1000)),
    )
    assert full.full
    assert not other.full
    found = decided(Head(1, {0: 0, 1: 0}, floors={0: 0, 1: 0}, progress={"1s": Closed(0)}), full, other)
    assert found.progress["1s"] == Closed(1000 * MOST_AT_ONCE)
    assert all(due.complete for due in found.due if due.period.final)


def test_adjacent_ranges_of_bounded_windows_are_merged() -> None:
    head = Head(1, {0: 0, 1: 0}, floors={0: 0, 1: 0}, progress={"1s": Closed(0)})
    for begin in 0, 1000, 2000:
        full = of_seconds(120_000, range(begin, begin + 126_000, 1000))
        found = decided(head, full, of_seconds(0, range(0)))
        head = Head(1, {0: 0, 1: 0}, floors={0: 0, 1: 0}, progress=found.progress)
    assert head.progress["1s"] == Closed(3000, ((1000, 4000),))


def test_windows_pass_a_longer_pane_of_former_windows() -> None:
    """No window of 1 s contains the oldest pane of the full partition, so closing its windows merges no pane."""
    full, idle = of_seconds(126_000, range(1000, 127_000, 1000)), of_seconds(0, range(0))
    full.cells[key_in(full, "0+2000")] = {"": Cell(1, np.array([1, 0, 0], np.int64))}
    head = Head(1, {0: 0, 1: 0}, floors={0: 0, 1: 0}, progress={"1s": Closed(1000)})
    assert decided(head, full, idle).progress["1s"] == Closed(2000, ((2000, 3000),))


def test_windows_that_are_open_at_an_admission_become_final_if_the_partition_counts_them_later() -> None:
    """An older worker admits the partition to windows of 1 s only: its start must not close the others."""
    world = Windowed()
    world.configured = hopping = configured(Windowing(("all", "1s", "4s every 1s"), 500, 500), revision=2)
    world.at(0, *range(0, 10_000, 1000))
    settle(world, world.member(1))
    world.grow()
    world.told, world.configured = 2, configured(HOURLY)
    settle(world, alone(world, 2))
    assert (world.heads[-1].floors, world.state(1).windows.first_start) == ({0: 0, 1: 8000}, {"1s": 0})
    world.configured = hopping
    world.at(0, 20_000)
    world.at(1, 20_000)
    settle(world, alone(world, 3))
    assert finals(world, "4s every 1s") == [(start, True, min(4, 10 - start)) for start in range(10)]
    world.verify(1)
