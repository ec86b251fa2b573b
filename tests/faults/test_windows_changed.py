"""Windows that are added, left out, or wait for less: what goes on must go on, and what stands must stay."""

from typing import Any

import numpy as np
import pytest

from ldp.snapshot import Line
from tests.faults.still import STREAM, Still, alone, count_all, turn
from tests.faults.windowed import HOURLY, Windowed, configured, finals, settle, windows
from worker.counting.head import Head
from worker.counting.partition_state import Cell, PartitionState
from worker.counting.rules import RecordLimits, RequestedRule
from worker.counting.windows import MOST_AT_ONCE, Windowing
from worker.publishing import lines

MINUTE_TOO = Windowing(("all", "1s", "60s"), 500, 500)
"""Windows of a second, and then ones of a minute: their line begins in the future."""


def add_a_minute(world: Windowed) -> Any:
    world.configured = configured(MINUTE_TOO, revision=2)
    return alone(world, 2)


def test_rule_8_a_partition_that_is_added_begins_with_what_is_not_final_beside_windows_that_have_not_begun() -> (
    None
):
    world = Windowed()
    world.at(0, 100, 1100, 2100, 5000)
    settle(world, world.member(1))
    process = add_a_minute(world)
    world.at(0, 6100)
    settle(world, process)
    assert world.heads[-1].lines["60s"].closed == 60_000
    world.grow()
    world.told = 2
    world.at(0, 10_100)
    settle(world, process)
    world.at(1, 10_200, 11_200, 12_200, 15_000)
    world.at(0, 11_100, 12_100, 15_000)
    settle(world, process)
    assert (world.heads[-1].floors, world.state(1).windows.late) == ({0: 0, 1: 5000}, {})
    assert finals(world)[-3:] == [(10, True, 2), (11, True, 2), (12, True, 2)]
    world.verify(0)


def test_windows_stay_for_as_long_as_they_are_to_beside_ones_that_have_not_begun() -> None:
    world = Windowed()  # they are to stay for eight seconds
    world.at(0, 100, 1100, 2100, 5000)
    settle(world, world.member(1))
    process = add_a_minute(world)
    world.at(0, 6100, 7100, 8100, 9100)
    settle(world, process)
    assert world.heads[-1].lines["60s"].closed == 60_000
    assert world.heads[-1].lines["1s"].starts == (0, 1000, 2000, 5000, 6000, 7000, 8000, 9000)
    world.at(0, 11_000, 12_000)  # closed up to 11 s
    settle(world, process)
    assert world.heads[-1].lines["1s"].starts == (5000, 6000, 7000, 8000, 9000, 11_000, 12_000)


def test_windows_that_are_published_stay_until_the_next_snapshot_at_least() -> None:
    world = Windowed()
    process = world.member(1)
    process.choose(retain=0)
    world.at(0, 100, 5000)
    settle(world, process)
    assert finals(world) == [(0, True, 1)]
    assert world.heads[-1].lines["1s"].starts == (0, 5000)
    world.at(0, 5001)
    settle(world, process)
    assert world.heads[-1].lines["1s"].starts == (5000,)
    for messages in world.messages:
        said, gone = ({m.key for m in messages if bool(m.body) is there} for there in (True, False))
        assert not said & gone


def test_windows_go_by_the_time_that_passes_where_none_is_counted_in_any_more() -> None:
    world = Windowed()
    world.at(0, 100, 1100, 5000)
    settle(world, world.member(1))
    assert world.heads[-1].lines["1s"].starts == (0, 1000, 5000)
    world.configured = configured(None, revision=2)
    process = alone(world, 2)
    world.at(0, 10_000)
    settle(world, process)
    assert world.heads[-1].lines["1s"].starts == (5000,)
    world.at(0, 100_000)
    settle(world, process)
    assert world.heads[-1].lines["1s"].starts == ()


def test_windows_go_while_who_holds_them_back_is_idle() -> None:
    world = Windowed(partitions=2)
    process = world.member(1)
    process.choose(idle_after=0.0)
    world.at(1, 100)
    world.at(0, *range(100, 60_100, 1000))
    settle(world, process, turns=200)
    assert process.ownership.stored() == {0: 60, 1: 1}
    line = world.heads[-1].lines["1s"]
    assert line.bounded
    assert line.starts[0] + 1000 + 8000 > line.closed, "they stay for ever"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after", "ends"),
    [
        (Windowing(("all", "1s"), 20_000, 0), Windowing(("all", "1s"), 0, 0), (40, 80)),
        (Windowing(("all", "1s"), 0, 20_000), Windowing(("all", "1s"), 0, 0), (40, 80)),
        (Windowing(("all", "1s", "40s every 1s"), 0, 0), Windowing(("all", "1s"), 0, 0), (70, 90)),
        (Windowing(("all", "1s"), 60_000, 0), Windowing(("all", "10s"), 60_000, 0), (80, 200)),
    ],
    ids=["less grace", "less out of order", "shorter", "coarser"],
)
def test_rule_6_there_is_room_for_what_a_rule_of_before_left_open(
    before: Windowing, after: Windowing, ends: tuple[int, int]
) -> None:
    world = Windowed(windowing=before)
    process = world.member(1)
    world.at(0, *range(100, 1000 * ends[0] + 100, 1000))
    settle(world, process, turns=80)
    assert process.ownership.counted() == {0: ends[0]}
    world.configured = configured(after, revision=2)
    process = alone(world, 2)
    world.at(0, *range(1000 * ends[0] + 100, 1000 * ends[1] + 100, 1000))
    settle(world, process, turns=150)
    assert process.ownership.counted() == {0: ends[1]}
    assert not any(line.bounded for line in world.heads[-1].lines.values())
    world.verify(0)


@pytest.mark.parametrize("busy", [0, 40], ids=["nothing was published", "snapshots were published"])
def test_few_new_reports_are_published_where_a_partition_has_no_more_room(busy: int) -> None:
    world = Windowed(windowing=Windowing(("all", "1s"), 0, 0))  # six panes at most
    process = world.member(1)
    process.choose(fewest_new=20)
    world.at(0, *range(100, 100 + 20 * busy, 20))  # in one second
    world.at(0, *range(1100, 61_100, 1000))  # then one a second
    settle(world, process, turns=300)
    assert process.ownership.counted() == {0: busy + 60}
    assert [n for _, _, n in finals(world)][-9:] == [1] * 9
    assert len(world.heads) < 30
    world.verify(0)


def test_a_partition_that_is_added_while_little_is_new_does_not_take_the_snapshot_away() -> None:
    world = Windowed()
    world.at(0, 100, 1100, 5000)
    settle(world, world.member(1))
    assert world.heads[-1].reports == 3
    world.grow()
    world.told = 2
    process = alone(world, 2)
    process.choose(fewest_new=10)
    settle(world, process)
    assert (world.heads[-1].reports, world.heads[-1].floors) == (3, {0: 0, 1: 4000})


def checks(process: Any) -> list[float | None]:
    """Notes when the publisher says that the newest snapshot has all that was counted."""
    told = list[float | None]()
    process.publisher._events.checked = told.append
    return told


def test_what_is_held_back_is_not_said_to_be_covered() -> None:
    world = Windowed(windowing=None)
    process = world.member(1)
    process.choose(fewest_new=10)
    told = checks(process)
    for reports, published, covered in ((12, 12, True), (12, 12, True), (15, 12, False), (22, 22, True)):
        world.at(0, *range(len(world.logs[0]), reports))
        count_all(world, process)
        told.clear()
        process.publisher.tick()
        assert (world.heads[-1].reports, len(told)) == (published, covered)


def test_who_is_the_publisher_no_more_does_not_say_that_all_is_covered() -> None:
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


@pytest.mark.parametrize("behind", [(30_000,), (2000, 30_000), (9500, 30_000), (10_100, 30_000)])
def test_rule_13_a_window_is_not_complete_where_what_came_behind_a_gap_came_late(
    behind: tuple[int, ...],
) -> None:
    world = Windowed(partitions=2)
    process = world.member(1)
    for partition in 0, 1:
        world.at(partition, 10_100)
    settle(world, process)
    world.at(0, 15_100, 15_200)  # nobody has counted them, and they are deleted
    world.firsts[0] = 3
    world.at(1, 15_300, 30_000)
    world.at(0, *behind)
    settle(world, process)
    assert world.state().gaps == [(1, 3)]
    assert (15, True, False, 1) in windows(world)


def test_rule_6_what_is_malformed_or_late_does_not_hold_up_who_has_no_room() -> None:
    world = Windowed(partitions=2)
    process = world.member(1)
    for partition in 0, 1:
        world.at(partition, 3100)
    settle(world, process)
    world.at(0, *range(4100, 1000 * (HOURLY.most_panes + 7), 1000))
    for at in range(60):  # one within each `idle_after`
        if at % 2:
            world.at(1, 100)
        else:
            world.produce(1, b"\x07noise", "version")
        for _ in range(5):
            turn(process)
        process.ownership.compare()
        process.publisher.tick()
    assert process.ownership.counted()[0] == len(world.logs[0])


def of_seconds(closed: int, starts: range) -> PartitionState:
    """A partition that has counted one report in each of some seconds."""
    state = PartitionState.fresh(
        STREAM, 0, RequestedRule(1, RecordLimits(9, True, None, Windowing(("all", "1s"), 60_000)))
    )
    state.windows.admitted_from, state.windows.closed, state.windows.watermark = 0, closed, closed
    state.cells |= {f"{start}+1000": Cell(1, np.array([1, 0, 0], np.int64)) for start in starts}
    return state


def decided(head: Head, *states: PartitionState, still: bool = True) -> lines.Lines:
    found = lines.decide(head, dict(enumerate(states)), range(len(states)), lambda _: still)
    assert found is not None
    return found


def test_many_windows_become_final_in_several_snapshots() -> None:
    state = of_seconds(100_000, range(0, 80_000, 1000))
    head, seen = Head(1, {0: 0}, floors={0: 0}, lines={"1s": Line(0)}), list[int]()
    while found := [due for due in decided(head, state).due if due.period.final]:
        assert len(found) <= MOST_AT_ONCE
        seen += [due.period.start or 0 for due in found]
        head = Head(1, {0: 0}, floors={0: 0}, lines=decided(head, state).lines)
    assert seen == [*range(0, 80_000, 1000)]


def test_what_every_partition_has_closed_is_not_called_bounded_however_much_it_is() -> None:
    full, other = (
        of_seconds(120_000, range(45_000, 171_000, 1000)),
        of_seconds(40_000, range(0, 45_000, 1000)),
    )
    assert full.full
    assert not other.full
    found = decided(Head(1, {0: 0, 1: 0}, floors={0: 0, 1: 0}, lines={"1s": Line(0)}), full, other)
    assert found.lines["1s"] == Line(1000 * MOST_AT_ONCE)
    assert all(due.complete for due in found.due if due.period.final)


def test_stretches_of_bounded_windows_that_touch_are_one() -> None:
    head = Head(1, {0: 0, 1: 0}, floors={0: 0, 1: 0}, lines={"1s": Line(0)})
    for begin in 0, 1000, 2000:
        full = of_seconds(120_000, range(begin, begin + 126_000, 1000))
        found = decided(head, full, of_seconds(0, range(0)))
        head = Head(1, {0: 0, 1: 0}, floors={0: 0, 1: 0}, lines=found.lines)
    assert head.lines["1s"] == Line(3000, ((1000, 4000),))


def test_a_world_of_windows_says_what_is_provisional() -> None:
    """So that what the tests above say of finals is not true of nothing."""
    world: Still = Windowed()
    assert isinstance(world, Windowed)
    world.at(0, 100)
    settle(world, world.member(1))
    assert windows(world) == [(0, False, True, 1)]
