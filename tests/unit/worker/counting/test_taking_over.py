"""When a publisher ticks that has taken over: by a clock that passes only while it waits."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.memory import Process
from tests.unit.worker.counting.still import Still, alone, count_all
from worker.counting.ports import Unavailable
from worker.publishing import publisher

EVERY = 5.0
SOON = publisher._SOON_SECONDS


class Turns:
    """Wait of a publishing thread: an event occurs at the end of each wait, and then it must tick."""

    def __init__(self) -> None:
        self.waits, self._now = list[float](), 1000.0

    def run(self, process: Process, *happen: Callable[[], object] | None) -> list[float]:
        """Runs events in turn; returns the wait before each of them, and the final one."""
        process.publisher._clock = lambda: self._now
        self.waits.clear()
        left = list(happen)

        def wait(seconds: float) -> bool:
            self.waits.append(seconds)
            self._now += seconds
            if not left:
                return True
            if (next_ := left.pop(0)) is not None:
                next_()
            return False

        process.publisher.run(cast(Any, SimpleNamespace(wait=wait)), EVERY, lambda: None)
        return self.waits


def test_a_long_tick_ends_once_regardless_of_its_heartbeats() -> None:
    """Else what fails in each tick was never seen to fail for long."""
    world, said = Still(), list[str]()
    process = alone(world, 1)
    process.publisher._events = cast(Any, SimpleNamespace(ticked=lambda: said.append("over")))

    def tick() -> None:
        process.publisher._heartbeat()

    process.publisher.tick = tick  # type: ignore[method-assign]
    stopping = SimpleNamespace(wait=lambda _: len(said) > 5)
    process.publisher.run(cast(Any, stopping), EVERY, lambda: said.append("alive"))
    assert said == [*2 * ("alive", "over", "alive"), "alive"]


def sent_and_counted(world: Still, process: Process) -> Callable[[], None]:
    """Events on the arrival of reports."""

    def happen() -> None:
        world.send()
        count_all(world, process)

    return happen


def test_the_first_snapshot_follows_the_claim_at_once() -> None:
    world, turns = Still(), Turns()
    process = alone(world, 1)
    counted = sent_and_counted(world, process)
    assert turns.run(process, None, None, counted, None, counted) == [SOON, SOON, SOON, EVERY, EVERY, EVERY]
    assert [sequence for sequence, _ in world.snapshots] == [1, 2]


def test_a_new_owner_polls_frequently_until_new_reports_are_published() -> None:
    world, turns = Still(), Turns()
    before = alone(world, 1)
    turns.run(before, sent_and_counted(world, before))
    process = alone(world, 2)
    claim = lambda: count_all(world, process)  # noqa: E731
    waits = turns.run(process, claim, None, None, sent_and_counted(world, process), None)
    assert waits == [SOON, SOON, SOON, SOON, EVERY, EVERY]
    assert [sequence for sequence, _ in world.snapshots] == [1, 2]


def test_frequent_polling_ends_without_new_reports() -> None:
    world, turns = Still(), Turns()
    before = alone(world, 1)
    turns.run(before, sent_and_counted(world, before))
    process = alone(world, 2)
    claim = lambda: count_all(world, process)  # noqa: E731
    waits = turns.run(process, claim, *[None] * 40)
    soon = waits.index(EVERY)
    assert sum(waits[1:soon]) == pytest.approx(EVERY)
    assert set(waits[soon:]) == {EVERY}


def test_a_failing_publisher_does_not_retry_more_often(monkeypatch: pytest.MonkeyPatch) -> None:
    world, turns = Still(), Turns()
    process = alone(world, 1)

    def fail() -> None:
        raise Unavailable("no broker")

    monkeypatch.setattr(process.publisher._snapshot_producer, "open", fail)
    assert turns.run(process, sent_and_counted(world, process), None, None) == [SOON, EVERY, EVERY, EVERY]
