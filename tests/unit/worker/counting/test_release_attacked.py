"""Attacks on the release rule: each found a fault."""

import numpy as np

from ldp.snapshot import Released, Rest
from tests.unit.worker.counting.still import alone
from tests.unit.worker.counting.test_release import Marked, times
from tests.unit.worker.counting.windowed import settle
from tests.unit.worker.test_release_rule import smallest_class
from worker.counting.rules import RecordLimits, RequestedRule
from worker.publishing.release import Counts, Cut, release


def test_a_report_that_supports_no_value_waits_too() -> None:
    """A unary report can have no bit: its vector is zero, but the head must not say that it is released."""
    head, published = Released(0, (), (Rest(0, {}),)), Counts.of(0, np.zeros(3, np.int64), 0)
    first = release(head, published, Cut({0: 2}, Counts.of(2, np.array([1, 1, 0]), 0), {}), 2, lambda c: c)
    then = release(
        first.head, first.counts, Cut({0: 3}, Counts.of(3, np.array([1, 1, 0]), 0), {}), 2, lambda c: c
    )
    assert then.counts.n == 2
    assert then.head.rest[0].offsets == {0: 2}


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
    """The operator gave up 2 reports of a pane that the window of 1 s showed; that of 3 s must not show the rest."""
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
    assert smallest_class(world.vectors()) >= 4
