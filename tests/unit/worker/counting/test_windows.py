"""Each rule of windows: its absence costs more than a history would show."""

from typing import Any

import pytest

from tests.unit.worker.counting.still import alone, count_all, look_twice, turn
from tests.unit.worker.counting.windowed import Windowed, settle
from worker.counting.ports import StateLost, Unavailable
from worker.counting.windows import Windowing


def test_rule_8_a_hung_head_read_does_not_prolong_the_wait() -> None:
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


def test_rule_12_a_deleted_head_stops_a_windowed_stream() -> None:
    world = Windowed()
    world.at(0, 100, 5000)
    process = world.member(1)
    settle(world, process)
    world.heads.clear()
    world.said = None
    with pytest.raises(StateLost, match="does not name it, but an earlier one did"):
        look_twice(alone(world, 2))


@pytest.mark.long
def test_the_last_possible_window_has_a_valid_date() -> None:
    world = Windowed(windowing=Windowing(("all", "31622400s every 86400s")))
    world.at(0, 253_370_678_399_999)
    settle(world, world.member(1))
    ends = {said["window"]["end"] for said in world.published if said["window"]["name"] != "all"}
    assert (len(ends), max(ends)) == (366, "9999-12-31T00:00:00.000Z")


def test_a_stream_without_windows_ignores_record_times() -> None:
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
    world.late_dead_letters = True
    world.at(0, 100, 5000, 1200)
    world.produce(0, b"\x07noise", "version")
    world.at(0, 5100, 7000, 4999)
    return world


def test_dead_letters_of_late_records_name_their_window() -> None:
    world = late_ones()
    process = world.member(1)
    settle(world, process)
    assert (world.state().accepted, world.state().rejected, sum(world.state().windows.late.values())) == (
        6,
        {"version": 1},
        2,
    )
    assert world.dead_letters == {(0, 2), (0, 3), (0, 6)}
    # the line is a second behind the newest time
    assert world.late_said == {(0, 2): {(1200, 1000, 2000, 4000)}, (0, 6): {(4999, 4000, 5000, 6000)}}
    world.verify(0)


def test_a_late_record_is_committed_after_its_dead_letter_is_stored() -> None:
    world = late_ones()
    process = world.member(1)
    turn(process)
    process.publisher.tick()
    process.ownership.compare()
    dead_letters: Any = process.ownership._dead_letters
    flush, dead_letters.flush = dead_letters.flush, refuse
    for _ in range(10):
        turn(process)
    assert process.ownership.counted() == {0: 7}
    assert (process.ownership.stored(), world.dead_letters) == ({0: 0}, set())
    dead_letters.flush = flush
    count_all(world, process)
    assert world.dead_letters == {(0, 2), (0, 3), (0, 6)}


def test_an_unsent_late_dead_letter_has_its_record_recounted() -> None:
    world = late_ones()
    process = world.member(1)
    turn(process)
    process.publisher.tick()
    dead_letters: Any = process.ownership._dead_letters
    sent, dead_letters.add_late = dead_letters.add_late, refuse
    settle(world, process)
    assert world.state().offset < 7
    assert (0, 2) not in world.dead_letters
    dead_letters.add_late = sent
    settle(world, process)
    assert process.ownership.stored() == {0: 7}
    world.verify(0)


def test_recounted_late_records_have_the_same_dead_letters() -> None:
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
