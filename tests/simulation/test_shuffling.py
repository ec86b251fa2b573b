"""Histories of the shuffler's core, and its mutants; ``python -m tests.simulation.shuffling`` runs more of them."""

import pytest

from tests.simulation.shuffling import MUTANTS, Mutant, caught, run

FEW, MANY = 400, 20_000


def test_histories_are_right() -> None:
    worlds = [run(seed) for seed in range(-2, FEW)]
    attempts = [attempt for world in worlds for attempt in world.attempts]
    assert sum(not attempt.committed for attempt in attempts) > FEW / 2  # aborted transactions occur


@pytest.mark.long
def test_many_histories_are_right() -> None:
    for seed in range(FEW, MANY):
        run(seed)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_history_catches_each_mutant(mutant: Mutant) -> None:
    assert caught(mutant, 2_000) is not None
