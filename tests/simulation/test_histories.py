"""A whole worker in memory: some seeded histories of everything that can go wrong; `make histories` runs more."""

import collections
from collections.abc import Iterable

import pytest

from tests.simulation.directed import SCRIPTS
from tests.simulation.happenings import OFTEN
from tests.simulation.history import history
from tests.simulation.running import run
from tests.simulation.themes import directed

FEW, HISTORIES, EACH = 60, 1000, 4
FOUND = {
    1_007_403: "a head that was deleted before the owners whom it named had read it was never said again",
    20_011_411: "of a stream whose counts and head were lost, and whose rules now reject all, a snapshot was demanded",
    22_795: "a publisher that another one had replaced called the messages of its last snapshot missing",
    30_001_473: "a head that compaction took while it was looked for, as a newer one stood behind, was called deleted",
    80_090_153: "a partition that was set back to windows which the rules have no more waited for ever for a head",
}
"""Longer histories that once failed, with the reason."""


def demand_events(happened: Iterable[collections.Counter[str]], each: int) -> None:
    """Fails where histories lack events without which they would prove little."""
    total = sum(happened, collections.Counter[str]())
    assert [event for event in OFTEN if not total[event]] == []
    assert total["as the script says"] > each * len(SCRIPTS) // 2


@pytest.mark.slow
def test_every_history_matches_its_recount() -> None:
    seeds = [*range(FEW), *directed(1), *FOUND]
    demand_events((collections.Counter(history(seed)) for seed in seeds), 1)


@pytest.mark.long
def test_many_histories_match_their_recounts() -> None:
    seeds = [*range(FEW, HISTORIES), *directed(EACH)]
    demand_events((happened for _, happened in run(seeds)), EACH)


def test_a_seed_always_yields_the_same_history() -> None:
    assert history(7) == history(7)
