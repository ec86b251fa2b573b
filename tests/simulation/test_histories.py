"""The whole of a worker in memory: seeded histories of everything that can go wrong, `make histories` runs more."""

import collections

import pytest

from tests.simulation.directed import SCRIPTS
from tests.simulation.happenings import OFTEN
from tests.simulation.history import history
from tests.simulation.mutants import MUTANTS
from tests.simulation.running import run
from tests.simulation.themes import AFTER, DIRECTED, EACH, RUN

BLOCK, BLOCKS = 1000, 4
FOUND = {
    1_007_403: "a head that was deleted before the owners whom it named had read it was never said again",
}
"""Histories of longer runs that were wrong once, and of what."""


@pytest.mark.slow
@pytest.mark.parametrize("block", range(BLOCKS))
def test_every_history_is_as_its_recount_says(block: int) -> None:
    total: collections.Counter[str] = collections.Counter()
    for _, happened in run(range(block * BLOCK, (block + 1) * BLOCK)):
        total.update(happened)
    # a block that lacks one of these would prove little
    assert [event for event in OFTEN if not total[event]] == []


@pytest.mark.slow
def test_every_directed_history_is_as_its_recount_says() -> None:
    total: collections.Counter[str] = collections.Counter()
    for number in range(len(DIRECTED)):
        for _, happened in run(range(AFTER + EACH * number, AFTER + EACH * number + RUN)):
            total.update(happened)
    assert total["as the script says"] > RUN * len(SCRIPTS) // 2


@pytest.mark.slow
def test_histories_that_catch_a_mutant_are_right_without_it() -> None:
    seeds = sorted({mutant.seed for mutant in MUTANTS if mutant.seed is not None})
    assert sum(done for done, _ in run(seeds)) == len(seeds)


@pytest.mark.parametrize("seed", FOUND)
def test_what_a_longer_run_found_stays_mended(seed: int) -> None:
    history(seed)


def test_a_seed_is_one_history() -> None:
    assert history(7) == history(7)
