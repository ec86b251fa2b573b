"""Upgrades of a stream in random order, by the view of its operator."""

import pytest

from tests.simulation.upgrades import Upgrades

FEW, MANY = 12, 300


@pytest.mark.slow
def test_upgrades_give_the_counts_that_an_operator_expects() -> None:
    for seed in range(FEW):
        Upgrades(seed).run()


@pytest.mark.long
def test_many_upgrades_give_the_counts_that_an_operator_expects() -> None:
    for seed in range(FEW, MANY):
        Upgrades(seed).run()
