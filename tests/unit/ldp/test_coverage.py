"""Coverage of the score interval around Base for every protocol."""

import numpy as np
import pytest

import ldp
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
