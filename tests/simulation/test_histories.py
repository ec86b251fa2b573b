"""A whole worker in memory: some seeded histories of everything that can go wrong; `make histories` runs more."""

import collections
from collections.abc import Sequence

import pytest

from tests.simulation.directed import SCRIPTS
from tests.simulation.happenings import OFTEN
from tests.simulation.history import history
from tests.simulation.running import run
from tests.simulation.themes import directed

FEW, HISTORIES = 100, 1000
FEW_EACH, EACH = 1, 4
"""Directed ones of each theme."""
FOUND = {
    1_007_403: "a head that was deleted before the owners whom it named had read it was never said again",
    20_011_411: "of a stream whose counts and head were lost, and whose rules now reject all, a snapshot was demanded",
    30_001_473: "a head that compaction took while it was looked for, as a newer one stood behind, was called deleted",
    80_090_153: "a partition that was set back to windows which the rules have no more waited for ever for a head",
}
"""Histories of longer runs that were wrong once, and of what."""


def happened_in(seeds: Sequence[int]) -> collections.Counter[str]:
    """Runs histories, which raises where one is wrong, and returns what happened in them."""
    total: collections.Counter[str] = collections.Counter()
    for _, happened in run(seeds):
        total.update(happened)
    return total


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [range(FEW), pytest.param(range(FEW, HISTORIES), marks=pytest.mark.long)])
def test_every_history_is_as_its_recount_says(seeds: Sequence[int]) -> None:
    total = happened_in(seeds)
    # histories that lack one of these would prove little
    assert [event for event in OFTEN if not total[event]] == []


@pytest.mark.slow
@pytest.mark.parametrize("each", [FEW_EACH, pytest.param(EACH, marks=pytest.mark.long)])
def test_every_directed_history_is_as_its_recount_says(each: int) -> None:
    assert happened_in(directed(each))["as the script says"] > each * len(SCRIPTS) // 2


@pytest.mark.parametrize("seed", FOUND)
def test_what_a_longer_run_found_stays_mended(seed: int) -> None:
    history(seed)


def test_a_seed_is_one_history() -> None:
    assert history(7) == history(7)
