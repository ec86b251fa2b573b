"""Attacks on the release rule: each found a fault."""

from typing import cast

import numpy as np

from ldp import snapshot
from ldp.snapshot import Released
from tests.support.memory.process import Silence
from tests.unit.worker.counting.still import alone
from tests.unit.worker.counting.test_release import Marked, lates, times
from tests.unit.worker.counting.windowed import settle
from tests.unit.worker.test_release_rule import smallest_class
from worker.counting.ports import Events
from worker.counting.rules import RecordLimits, RequestedRule
from worker.counting.windows import Windowing
from worker.publishing.release import Counts, Cut, Shown, release


def test_a_report_that_supports_no_value_waits_too() -> None:
    """A unary report can have no bit: its vector is zero, but the head must not count it as released."""
    head, nothing = Released(0, ()), Counts(0, np.zeros(3, np.int64))
    first = release(
        head, Shown(nothing, nothing), Cut({0: 2}, Counts(2, np.array([1, 1, 0])), {}), 2, lambda c: c
    )
    then = release(first.head, first.shown, Cut({0: 3}, Counts(3, np.array([1, 1, 0])), {}), 2, lambda c: c)
    assert then.shown.counts.n == 2
    assert then.shown.rest.offsets == {0: 2}


def test_a_publisher_takes_over_after_a_method_was_removed() -> None:
    world = Marked(4, windowing=None)
    world.at(0, *range(5))
    settle(world, world.member(1))
    process = alone(world, 2)
    process.choose(methods=("base", "norm"))
    settle(world, process)
    assert world.heads[-1].methods == ("base", "norm")
    process = alone(world, 3)
    process.choose(methods=("base", "norm"))
    world.at(0, *range(4))
    settle(world, process)
    assert world.heads[-1].reports == 9


def test_panes_that_are_open_when_windows_are_removed_are_released() -> None:
    world = Marked(4)
    world.at(0, *times(0, 12), *times(3, 12))
    settle(world, world.member(1))
    before = world.configured.limits
    limits = RecordLimits(before.most_reports, True, before.max_batch_bytes, None, 4)
    world.configured = RequestedRule(world.configured.revision + 1, limits)
    process = alone(world, 2)
    world.at(0, *times(9, 5))
    settle(world, process, turns=30)
    assert world.heads[-1].reports > 29 - 4
    assert smallest_class(world.vectors()) >= 4


def test_a_decided_pane_that_lost_reports_is_not_shown_again() -> None:
    """The operator gave up 2 reports of a pane that the window of 1 s showed; the 3 s window must hide the others."""
    world = Marked(4)
    world.at(0, *times(0, 8), *times(1, 8), 2200)
    settle(world, world.member(1))
    world.deliver()
    del world.stored[0]
    world.firsts[0], world.recount_after = 2, world.heads[-1].sequence
    process = alone(world, 2)
    world.at(0, *times(2, 8), *times(6, 1))
    settle(world, process, turns=30)
    assert world.heads[-1].gaps
    assert lates(world) == [8, 8]  # all published counts join `late`: later windows do not show them
    assert smallest_class(world.vectors()) >= 4


def test_a_snapshot_is_not_old_while_a_window_is_open() -> None:
    """Reports of open windows are not published: the alert LdpSnapshotOld must not fire at full traffic."""
    checked = []

    class Noted(Silence):
        def checked(self, seconds: float | None) -> None:
            checked.append(seconds)

    world = Marked(4, windowing=Windowing(("all", "60s"), 500, 500))
    process = world.member(1, cast(Events, Noted()))
    settle(world, process)
    checked.clear()
    for second in range(20):
        world.at(0, *times(second, 4))
        settle(world, process, turns=2)
    assert len(checked) == 40


def test_windows_shown_in_part_do_not_stay_provisional() -> None:
    world = Marked(0)
    world.configured = RequestedRule(1, world.configured.limits)
    world.at(0, *times(0, 12), *times(2, 5))
    settle(world, world.member(1))
    world.choose(10)
    process = alone(world, 2)
    world.at(0, *times(7, 11), *times(12, 1))
    settle(world, process)
    topic = {m.key: (dict(m.headers(1)), m.body) for sent in world.messages for m in sent}
    closed = {name: line.closed for name, line in world.heads[-1].progress.items()}
    there = [one for one in snapshot.windows(world.stream.name, topic) if one.end <= closed[one.name]]
    assert there
    assert all(one.final for one in there)
