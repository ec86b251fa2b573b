"""Each rule of windows alone: where its absence costs more than a history would show."""

import itertools
from dataclasses import replace
from typing import Any

import pytest

from tests.faults.still import alone, count_all, look_twice, turn
from tests.faults.windowed import HOURLY, Windowed, configured, finals, settle, windows
from worker.counting.ports import COUNTED, StateLost, Unavailable
from worker.counting.windows import Windowing


def test_rule_8_a_partition_counts_nothing_until_a_head_names_it() -> None:
    world = Windowed()
    world.at(0, 100, 1100)
    process = world.member(1)
    for _ in range(10):
        turn(process)
    assert (process.ownership.counted(), world.heads) == ({0: 0}, [])
    process.publisher.tick()
    assert (world.heads[-1].floors, world.heads[-1].reports) == ({0: 0}, 0)
    process.ownership.compare()
    count_all(world, process)
    assert world.state().windows.admitted_from == 0


def test_rule_8_one_that_was_claimed_before_there_were_windows_is_named_though_nothing_was_counted() -> None:
    world = Windowed(windowing=None)
    turn(world.member(1))
    assert not world.stored[0].metadata.flush
    world.configured = configured(HOURLY, revision=2)
    world.at(0, 100, 5000)
    process = alone(world, 2)
    settle(world, process)
    assert process.ownership.stored() == {0: 2}
    assert finals(world) == [(0, True, 1)]
    world.verify(0)


def test_rule_8_one_that_was_set_back_counts_up_to_where_windows_begin_before_it_waits() -> None:
    world = Windowed(windowing=None)
    world.at(0, 100, 200)
    process = world.member(1)
    settle(world, process)
    back = world.stored[0]
    world.at(0, 300, 400, 500)
    settle(world, process)
    world.stored[0] = back
    world.configured = configured(HOURLY, revision=2)
    world.at(0, 1100, 5000)
    process = alone(world, 2)
    settle(world, process)
    assert process.ownership.stored() == {0: 7}
    assert world.state().rules[-1].offset == 5, "what was published is judged as it was"
    assert finals(world) == [(1, True, 1)]
    world.verify(0)


def test_rule_8_one_whose_windows_are_over_still_waits_for_its_floor_where_they_begin() -> None:
    world = Windowed(windowing=None)
    world.at(0, 100, 200)
    settle(world, world.member(1))
    back = world.stored[0]
    world.configured = configured(HOURLY, revision=2)
    world.at(0, 1100, 5000)
    settle(world, alone(world, 2))
    world.configured = configured(None, revision=3)
    settle(world, alone(world, 3))
    assert [rule.offset for rule in world.state().rules] == [0, 2, 4]
    world.stored[0] = back
    process = alone(world, 4)
    settle(world, process)
    assert (process.ownership.stored(), world.state().windows.admitted_from) == ({0: 4}, 0)
    assert world.state().panes
    world.verify(0)


def test_rule_8_one_whose_windows_are_over_is_named_anew_though_every_head_was_deleted() -> None:
    world = Windowed()
    process = world.member(1)
    settle(world, process)
    back = world.stored[0]
    assert (back.metadata.offset, process.ownership._held[0].state.windows.admitted_from) == (0, 0)
    world.at(0, 100, 5000)
    settle(world, process)
    world.configured = configured(None, revision=2)
    world.stored[0], world.said, world.recount_after = back, None, 1000
    world.heads.clear()
    world.snapshots.clear()
    world.finals.clear()
    world.offsets[0] = (2, COUNTED)
    process = alone(world, 2)
    settle(world, process)
    assert [rule.offset for rule in world.state().rules] == [0, 2]
    assert (process.ownership.stored(), world.state().windows.admitted_from) == ({0: 2}, 0)
    assert (world.heads[-1].floors, world.heads[-1].reports) == ({0: 0}, 2)
    world.verify(0)


def test_rule_8_one_whose_worker_hung_while_it_read_the_head_does_not_wait_ten_times_as_long() -> None:
    world = Windowed()
    world.at(0, 100)
    process = world.member(1)
    head_reader: Any = process.ownership._head_reader
    head = head_reader.head

    def hung(*, decided: bool) -> Any:
        world.clock += 600
        head_reader.head = head
        return head(decided=decided)

    for _ in range(3):
        turn(process)
    head_reader.head = hung
    world.clock += 100
    process.ownership.compare()
    process.publisher.tick()
    world.clock += 21
    process.ownership.compare()
    count_all(world, process)


def test_rule_8_one_that_joins_begins_at_the_line_and_holds_finals_back_until_it_has_begun() -> None:
    world = Windowed()
    world.at(0, 100, 1100, 2100, 5000)
    process = world.member(1)
    settle(world, process)
    assert finals(world) == [(0, True, 1), (1, True, 1), (2, True, 1)]
    assert world.heads[-1].lines["1s"].closed == 4000
    world.grow()
    world.told = 2
    world.at(0, 7000)
    settle(world, process)
    assert world.heads[-1].floors == {0: 0, 1: 4000}
    assert len(finals(world)) == 3  # it has no counts yet
    world.at(1, 3900, 4100, 9000)  # the first of them is late for what is final
    settle(world, process)
    assert (world.state(1).windows.admitted_from, world.state(1).windows.late) == (4000, {"1m": 1})
    assert finals(world)[3:] == [(4, True, 1), (5, True, 1)]
    world.verify(0)
    world.verify(1)


def test_a_partition_that_comes_while_a_cut_is_read_is_of_the_next_snapshot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = Windowed()
    world.at(0, 100, 1100)
    process = world.member(1)
    settle(world, process)
    world.at(0, 5000)
    turn(process)
    world.grow()
    world.at(1, 3900)
    cuts: Any = process.publisher._cuts
    read = cuts.cut

    def grown(partition: int) -> Any:
        world.told = 2
        return read(partition)

    monkeypatch.setattr(cuts, "cut", grown)
    before = world.heads[-1].sequence
    process.publisher.tick()
    # it does not say that it is complete, and name a partition whose records nobody counted
    head = world.heads[-1]
    assert (head.sequence, {*head.floors}, list(head.uncounted)) == (before + 1, {0}, [])
    process.publisher.tick()
    head = world.heads[-1]
    assert ({*head.floors}, list(head.uncounted)) == ({0, 1}, [1])


def test_rule_4_a_pane_is_dropped_once_it_is_closed_here_and_final_in_a_decided_head() -> None:
    world = Windowed(partitions=2)
    process = world.member(1)
    world.at(0, 100, 1100, 5000)
    world.at(1, 200, 1200)
    settle(world, process)
    assert world.state(0).windows.closed == 4000
    assert [pane.start for pane in world.state(0).panes] == [0, 1000, 5000]  # no head has closed them
    world.at(1, 9000)
    process.publisher._snapshot_producer.close()
    settle(world, process)
    assert [pane.start for pane in world.state(0).panes] == [5000]
    assert [pane.start for pane in world.state(1).panes] == [9000]  # at an unchanged offset, too
    assert (world.state(0).total().reports, world.state(1).total().reports) == (3, 3)
    assert finals(world) == [(0, True, 2), (1, True, 2)]


def test_rule_4_what_is_not_decided_drops_nothing() -> None:
    world = Windowed()
    process = world.member(1)
    world.at(0, 100)
    settle(world, process)
    world.at(0, 5000)
    count_all(world, process)
    asked = []

    def head(*, decided: bool) -> Any:
        asked.append(decided)
        raise Unavailable("a transaction is open")

    process.ownership._head_reader = type("Open", (), {"head": staticmethod(head)})()  # type: ignore[assignment]
    process.ownership.compare()
    assert asked == [True]
    assert [pane.start for pane in process.ownership._held[0].state.panes] == [0, 5000]


def test_rule_6_a_partition_without_room_waits_and_goes_on_once_those_that_stand_still_are_passed() -> None:
    world = Windowed(partitions=2)
    process = world.member(1)
    world.at(0, 100)
    world.at(1, 100)
    settle(world, process)
    most = HOURLY.most_panes
    world.at(0, *range(1100, 1000 * (most + 4), 1000))
    for _ in range(20):
        process.ownership.compare()
        turn(process)
    state = process.ownership._held[0].state
    assert (len(state.panes), state.full, state.offset) == (most, True, most)
    assert finals(world) == []
    settle(world, process, turns=60)
    assert process.ownership.counted() == {0: len(world.logs[0]), 1: 1}
    head = world.heads[-1].lines["1s"]
    assert finals(world)[0] == (0, False, 2)
    assert all(not whole for _, whole, _ in finals(world))
    for start, _, _ in finals(world):
        assert any(a <= 1000 * start + 1000 < b for a, b in head.bounded)
    world.verify(0)
    world.verify(1)


def test_rule_11_an_owner_takes_nothing_from_another_deployments_head() -> None:
    world = Windowed()
    process = world.member(1)
    turn(process)
    process.publisher.tick()
    world.heads[-1] = replace(world.heads[-1], lineage={**world.heads[-1].lineage, "group": "theirs"})
    process.ownership.compare()
    assert process.ownership.counted() == {}
    with pytest.raises(StateLost, match="Two deployments would publish under one name"):
        look_twice(process)


def test_rule_12_a_head_that_was_deleted_stops_a_stream_of_windows() -> None:
    world = Windowed()
    world.at(0, 100, 5000)
    process = world.member(1)
    settle(world, process)
    world.heads.clear()
    world.said = None
    with pytest.raises(StateLost, match="does not name it, though an earlier one did"):
        look_twice(alone(world, 2))


def test_rule_8_a_head_that_was_deleted_before_an_owner_read_it_is_said_again() -> None:
    world = Windowed()
    process = world.member(1)
    began = world.clock
    process.publisher._clock = lambda: world.clock
    turn(process)
    process.publisher.tick()
    admitted, said = world.heads[-1], list[tuple[int, float]]()
    while world.clock < began + 200:
        world.heads.clear()  # as soon as it is there
        process.ownership.compare()
        process.ownership.commit()
        process.publisher.tick()
        said += [(head.sequence, world.clock - began) for head in world.heads]
        world.clock += 1.0
    assert [sequence for sequence, _ in said] == [2, 3, 4, 5]
    waits = [after - before for (_, before), (_, after) in itertools.pairwise(said)]
    assert waits == pytest.approx([20, 40, 80], abs=5)
    assert process.ownership._held[0].state.windows.admitted_from is None
    world.clock += 1000.0
    process.publisher.tick()
    assert (world.heads[-1].sequence, world.heads[-1].floors) == (6, admitted.floors)
    world.clock += 1000.0
    process.publisher.tick()
    assert world.heads[-1].sequence == 6  # it is there: who has not read it is slow
    world.at(0, 100)
    settle(world, process)
    assert world.state(0).total().reports == 1


def test_rule_10_a_final_is_published_once_whoever_publishes() -> None:
    world = Windowed()
    world.at(0, 100, 1100, 5000)
    for number in range(1, 4):
        settle(world, alone(world, number))
    assert finals(world) == [(0, True, 1), (1, True, 1)]
    assert (5, False, True, 1) in windows(world)


def test_rule_5_what_is_published_is_what_every_partition_has() -> None:
    world = Windowed(partitions=2)
    world.at(0, 100, 3500, 6000)
    world.at(1, 100, 4500)
    old = world.member(1)
    settle(world, old)
    world.configured = configured(Windowing(("all", "1s", "2s"), 500, 500), revision=2)
    new = alone(world, 2)
    new.log.poll()
    new.log.mine = {0}
    new.ownership.claim()
    assert new.ownership._held[0].state.windows.first_start == {"1s": 0, "2s": 8000}
    new.ownership.release([0])
    world.published.clear()
    settle(world, old)
    assert windows(world, "2s") == []
    last = alone(world, 3)
    settle(world, last)
    assert world.state(1).windows.first_start == {"1s": 0, "2s": 6000}
    world.at(0, 7000, 8500, 14000)
    world.at(1, 7500, 8600, 14000)
    settle(world, last)
    assert finals(world, "2s") == [(8, True, 2)]  # the latest over all partitions
    world.verify(0)
    world.verify(1)


def test_rule_13_a_gap_taints_the_windows_that_it_can_have_had_reports_of() -> None:
    world = Windowed()
    world.at(0, 100, 1100, 2100)
    process = world.member(1)
    settle(world, process)
    assert world.state().windows.closed == 1100
    world.at(0, 2200, 3300, 3400, 6000, 9000)
    world.firsts[0] = 5
    settle(world, alone(world, 2))
    state = world.state()
    assert (state.gaps, state.windows.gap_bounds) == ([(3, 5)], [(1100, 3400)])
    assert finals(world) == [(0, True, 1), (1, False, 1), (2, False, 1), (3, False, 1), (6, True, 1)]


def test_windows_go_from_the_topic_once_they_are_older_than_is_retained() -> None:
    world = Windowed()
    world.at(0, 100, 1100, 5000)
    process = world.member(1)
    settle(world, process)
    assert world.heads[-1].lines["1s"].starts == (0, 1000, 5000)
    world.at(0, 12_000)
    settle(world, process)
    gone = [m.key for m in world.messages[-1] if not m.body]
    assert {key.rsplit("/", 1)[0] for key in gone} == {"guards/1s/0", "guards/1s/1000"}
    assert len(gone) == 2 * 11
    assert world.heads[-1].lines["1s"].starts == (5000, 12_000)


def test_windows_that_are_configured_no_more_are_published_no_more() -> None:
    world = Windowed()
    world.at(0, 100, 1100, 2900)
    settle(world, world.member(1))
    world.configured = configured(None, revision=2)
    process = alone(world, 2)
    settle(world, process)
    world.published.clear()
    world.at(0, 9000)
    settle(world, process)
    assert windows(world) == []
    assert [said["reports"] for said in world.published] == [4]
    assert replace(world.state(), cells={}).windows.first_start == {}
    world.verify(0)


def test_a_record_that_says_a_time_which_no_date_says_counts_and_moves_nothing() -> None:
    world = Windowed()
    world.at(0, (1 << 63) - 1, 100, 1100, 253_370_678_400_000, 5000)
    settle(world, world.member(1))
    assert (world.state().windows.watermark, world.state().windows.undated, world.state().windows.late) == (
        5000,
        2,
        {},
    )
    assert finals(world) == [(0, True, 1), (1, True, 1)]
    world.verify(0)


@pytest.mark.long
def test_the_longest_window_of_the_last_time_that_there_is_can_be_dated() -> None:
    world = Windowed(windowing=Windowing(("all", "31622400s every 86400s")))
    world.at(0, 253_370_678_399_999)
    settle(world, world.member(1))
    ends = {said["window"]["end"] for said in world.published if said["window"]["name"] != "all"}
    assert (len(ends), max(ends)) == (366, "9999-12-31T00:00:00.000Z")


def test_a_stream_without_windows_publishes_whatever_times_its_records_say() -> None:
    world = Windowed(windowing=None)
    world.at(0, (1 << 63) - 1, -1, -(1 << 63), 253_402_300_800_000)
    settle(world, world.member(1))
    assert (world.state().windows.watermark, world.state().windows.undated) == (-1, 0)
    assert world.published[-1]["reports"] == 4
    world.at(0, 7)
    settle(world, alone(world, 2))
    assert (world.state().windows.watermark, world.state().reports) == (7, 5)
    world.verify(0)


def late_ones() -> Windowed:
    """A world in which the third record and the last are late, between them a malformed one."""
    world = Windowed()
    world.late_letters = True
    world.at(0, 100, 5000, 1200)
    world.produce(0, b"\x07noise", "version")
    world.at(0, 5100, 7000, 4999)
    return world


def test_late_records_leave_letters_that_say_where_they_would_have_been_counted() -> None:
    world = late_ones()
    process = world.member(1)
    settle(world, process)
    assert (world.state().accepted, world.state().rejected, sum(world.state().windows.late.values())) == (
        6,
        {"version": 1},
        2,
    )
    assert world.letters == {(0, 2), (0, 3), (0, 6)}
    # the line is a second behind the newest time
    assert world.late_said == {(0, 2): {(1200, 1000, 2000, 4000)}, (0, 6): {(4999, 4000, 5000, 6000)}}
    world.verify(0)


def test_a_late_record_is_not_committed_before_its_letter_is_safe() -> None:
    world = late_ones()
    process = world.member(1)
    turn(process)
    process.publisher.tick()
    process.ownership.compare()
    letters: Any = process.ownership._dead_letters
    flush, letters.flush = letters.flush, refuse
    for _ in range(10):
        turn(process)
    assert process.ownership.counted() == {0: 7}
    assert (process.ownership.stored(), world.letters) == ({0: 0}, set())
    letters.flush = flush
    count_all(world, process)
    assert world.letters == {(0, 2), (0, 3), (0, 6)}


def test_a_late_letter_that_cannot_be_sent_has_its_record_counted_again() -> None:
    world = late_ones()
    process = world.member(1)
    turn(process)
    process.publisher.tick()
    letters: Any = process.ownership._dead_letters
    sent, letters.add_late = letters.add_late, refuse
    settle(world, process)
    assert world.state().offset < 7
    assert (0, 2) not in world.letters
    letters.add_late = sent
    settle(world, process)
    assert process.ownership.stored() == {0: 7}
    world.verify(0)


def test_who_counts_late_records_again_says_the_same_of_them() -> None:
    world = late_ones()
    first = world.member(1)
    first.ownership._dead_letters.flush = refuse  # type: ignore[method-assign]
    settle(world, first)
    said = {where: set(facts) for where, facts in world.late_said.items()}
    assert (said.keys(), first.ownership.stored()) == ({(0, 2), (0, 6)}, {0: 0})
    second = alone(world, 2)
    settle(world, second)
    assert (world.late_said, second.ownership.stored()) == (said, {0: 7})
    world.verify(0)


def refuse(*_: object) -> None:
    raise Unavailable("no")
