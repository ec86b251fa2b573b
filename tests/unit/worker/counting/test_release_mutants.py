"""Mutants of the path from the release rule to the snapshot topic: random histories catch each."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.unit.worker.counting.test_release import SEEDS, history
from tests.unit.worker.test_release_rule import smallest_class
from worker.counting.head import Head
from worker.publishing import taking, window_progress
from worker.publishing.planning import Plan
from worker.publishing.publisher import Publisher
from worker.publishing.release import Counts

Patch = pytest.MonkeyPatch
decide, let_go = window_progress.decide, Publisher._let_go


def _forgets_after_take_over(patch: Patch) -> None:
    """A new publisher takes nothing as published."""

    def published(self: Any, head: Head) -> tuple[Counts, Counts]:
        oracle = self._stream.oracle
        nothing = Counts.of(0, oracle.support(oracle.zeros()), 0)
        return (nothing, nothing) if self._counts is None else self._counts

    patch.setattr(Publisher, "_published", published)


def _forgets_late_after_take_over(patch: Patch) -> None:
    """A new publisher takes nothing as published in `late`."""
    published = Publisher._published

    def forgets(self: Any, head: Head) -> tuple[Counts, Counts]:
        known = self._counts
        counts, late = published(self, head)
        return counts, late if known else late - late

    patch.setattr(Publisher, "_published", forgets)


def _keeps_counts_after_a_failure(patch: Patch) -> None:
    """The counts are those before a transaction whose reply was lost."""

    def leave(self: Any) -> None:
        counts = self._counts
        let_go(self)
        self._counts = counts

    patch.setattr(Publisher, "_let_go", leave)


def _decides_open_panes(patch: Patch) -> None:
    """A pane is decided before each partition has closed it."""

    def early(*given: Any) -> Any:
        found = decide(*given)
        return found and replace(found, closed=found.come + 4000)

    patch.setattr(window_progress, "decide", early)


def _publishes_all_counts(patch: Patch) -> None:
    """The counts of all time are the counted ones, not the released ones."""
    whole = taking._all_time
    patch.setattr(taking, "_all_time", lambda stream, plan: whole(stream, replace(plan, release=None)))


def _publishes_whole_windows(patch: Patch) -> None:
    """A window has the counted reports, not the released ones."""
    whole = taking._window
    patch.setattr(taking, "_window", lambda stream, plan, w: whole(stream, replace(plan, release=None), w))


def _publishes_open_windows(patch: Patch) -> None:
    """Open windows are published."""
    patch.setattr(Plan, "due", lambda plan, written: [] if plan.windows is None else plan.windows.due)
    _publishes_whole_windows(patch)


MUTANTS = [
    _forgets_after_take_over,
    _forgets_late_after_take_over,
    _keeps_counts_after_a_failure,
    _decides_open_panes,
    _publishes_all_counts,
    _publishes_whole_windows,
    _publishes_open_windows,
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_mutant_of_the_path_is_caught(mutant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mutant(monkeypatch)
    for seed in SEEDS:
        try:
            world, least, _ = history(seed)
            assert smallest_class(world.vectors() or [np.zeros(1)]) >= least
        except AssertionError:
            return
    pytest.fail("no history catches it")
