"""Pairs of compared windows, and the reported changes."""

import pytest

import ldp
from ldp.privacy.declaration import Declaration
from ldp.query import SetQuery, TopQuery
from ldp.snapshot import Period
from worker.publishing.comparing import Comparer

GRR = ldp.GRR("2", domain_size=4)
ONE, OTHER = GRR.estimate([700, 100, 100, 100], 1000), GRR.estimate([100, 100, 100, 700], 1000)
QUERIES = [SetQuery("ends", (0, 3)), TopQuery("most", 2), SetQuery("last", (3,))]


def told(*finals, level=0.01, at_least=0.0, alone=True):
    """Reported windows: each one, or all at once."""
    comparer, said = Comparer(QUERIES, level, at_least), []
    listed = [
        (Period(name, start, start + length, True), estimate) for name, start, length, estimate in finals
    ]
    for part in [[one] for one in listed] if alone else [listed]:
        comparer.compare(part, lambda window, values, queries: said.append((window.start, values, queries)))
    return said


@pytest.mark.parametrize("alone", [True, False])
def test_a_window_is_compared_with_its_predecessor(alone):
    windows = [("1h", 0, 10, ONE), ("1h", 10, 10, ONE), ("1h", 20, 10, OTHER)]
    assert told(*windows, alone=alone) == [(10, 0, []), (20, 2, ["last"])]


def test_windows_of_different_names_are_compared_separately():
    assert told(("a", 0, 10, ONE), ("b", 10, 10, OTHER), ("a", 10, 10, ONE)) == [(10, 0, [])]


def test_overlapping_windows_are_compared_at_the_distance_of_a_length():
    starts = range(0, 70, 10)
    assert [start for start, _, _ in told(*(("3 every 1", start, 30, ONE) for start in starts))] == [30, 60]


def test_a_window_without_reports_restarts_the_comparison():
    windows = [("1h", 0, 10, ONE), ("1h", 20, 10, OTHER), ("1h", 30, 10, OTHER)]
    assert told(*windows) == [(30, 0, [])]


def test_a_repeated_window_is_skipped():
    windows = [("1h", 0, 10, ONE), ("1h", 10, 10, ONE), ("1h", 0, 10, OTHER), ("1h", 20, 10, ONE)]
    assert told(*windows) == [(10, 0, []), (20, 0, [])]


def test_small_changes_or_all_changes_can_be_suppressed():
    windows = [("1h", 0, 10, ONE), ("1h", 10, 10, OTHER)]
    assert told(*windows, at_least=0.99) == [(10, 0, [])]
    assert told(*windows, level=0.0) == []


def test_windows_whose_reports_share_memoised_noise_are_not_compared():
    declared = Declaration("device", 2, "1s", "memoised", "1h")
    one, other = (each.within(0, 10).declared(declared) for each in (ONE, OTHER))
    assert told(("1h", 0, 10, one), ("1h", 10, 10, other)) == []
