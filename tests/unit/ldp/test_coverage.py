"""Coverage of the score interval around Base for every protocol."""

from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binomtest

import ldp
from ldp import query
from ldp.intervals.binomial_tail import top_bounds
from ldp.oracles import ORACLES
from tests.support.estimates import estimated

RUNS, USERS, DOMAIN = 20_000, 100_000, 100


@pytest.mark.parametrize("f", [0, 0.01, 0.5])
@pytest.mark.parametrize("epsilon", ["1", "4"])
@pytest.mark.parametrize("name", ORACLES)
def test_95_per_cent_of_the_intervals_cover(name, epsilon, f):
    """95 % ± 1 % of 20,000 counts, which is 6.5 standard deviations; a hundred counts make a domain."""
    oracle = ldp.oracle(name, epsilon, DOMAIN)
    rng = np.random.default_rng(20200223)
    holders = round(f * USERS)
    counts = rng.binomial(holders, float(oracle.p), RUNS) + rng.binomial(
        USERS - holders, float(oracle.q), RUNS
    )
    covered = 0
    for part in counts.reshape(-1, DOMAIN):
        low, high = estimated(oracle, part, USERS).interval(0.95)
        covered += int(((low <= f) & (f <= high)).sum())
    assert 0.94 <= covered / RUNS <= 0.96


@pytest.mark.parametrize("f", [0, 0.01, 0.5])
@pytest.mark.parametrize("epsilon", ["1", "4"])
@pytest.mark.parametrize("name", ORACLES)
def test_95_per_cent_of_the_intervals_cover_the_population_that_was_sampled(name, epsilon, f):
    """As above, with other users of the same population in each of the 20,000 runs."""
    oracle = ldp.oracle(name, epsilon, DOMAIN)
    rng = np.random.default_rng(20261127)
    holders = rng.binomial(USERS, f, RUNS)
    counts = rng.binomial(holders, float(oracle.p)) + rng.binomial(USERS - holders, float(oracle.q))
    covered = 0
    for part in counts.reshape(-1, DOMAIN):
        low, high = estimated(oracle, part, USERS).interval(0.95, of="population")
        covered += int(((low <= f) & (f <= high)).sum())
    assert 0.94 <= covered / RUNS <= 0.96


@pytest.mark.parametrize("oracle", [ldp.GRR("4", 8), ldp.OUE("4", 8)], ids=repr)
def test_a_set_and_the_most_frequent_values_cover_the_sampled_population(oracle):
    """2,000 runs: a set at .95 ± .03 (6 standard deviations), the three most frequent together at least that."""
    shares = np.array([0.3, 0.2, 0.15, 0.1, 0.1, 0.05, 0.05, 0.05])
    rng, chosen, runs = np.random.default_rng(31), [0, 3, 5], 2000
    of_set, of_top, of_reports = 0, 0, 0
    for _ in range(runs):
        users = rng.multinomial(20_000, shares)
        estimate = oracle.estimate(oracle.simulate(users, rng), 20_000)
        low, high = query.interval(estimate, chosen, of="population")
        of_set += low <= shares[chosen].sum() <= high
        low, high = query.interval(estimate, chosen)
        of_reports += low <= shares[chosen].sum() <= high
        lows, highs = query.top_interval(estimate, 3, of="population")
        truth = shares[query.top(estimate, 3)]
        of_top += bool(((lows <= truth) & (truth <= highs)).all())
    assert 0.92 <= of_set / runs <= 0.98
    assert of_top / runs >= 0.92
    assert of_reports / runs < 0.92


def test_upper_bounds_of_a_sampled_population_are_those_of_clopper_and_pearson():
    """With p = 1 and q = 0 nothing is randomized, and scipy has the interval of a binomial proportion."""
    counts, n = np.array([0.0, 3.0, 50.0, 100.0]), 100
    for count in counts:
        (low,), (high,) = top_bounds(np.array([count]), n, Fraction(1), Fraction(0), 1, 0.95, "population")
        exact = binomtest(int(count), n).proportion_ci(0.95, "exact")
        assert (low, high) == pytest.approx((exact.low, exact.high), abs=1e-9)
