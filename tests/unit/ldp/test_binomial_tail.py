"""The tail of a support count against an exact convolution."""

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

import ldp
from ldp.intervals.binomial_tail import lower_bound, tail

pytestmark = pytest.mark.statistical


def exact(holders, n, p, q):
    """Pr[C ≥ c] for c = 0..n."""
    own = stats.binom.pmf(np.arange(holders + 1), holders, p)
    other = stats.binom.pmf(np.arange(n - holders + 1), n - holders, q)
    return np.convolve(own, other)[::-1].cumsum()[::-1]


LAWS = [
    (n, p, q, holders)
    for n in (1, 2, 13, 100, 400)
    for p in (0.01, 0.5, 0.99)
    for q in (0.5, 0.25, 0.05, 1e-3, 1e-4)
    for holders in sorted({0, 1, 3, n // 4, n // 2, n - 1, n})
    if q < p and 0 <= holders <= n
]


def test_the_tail_is_an_upper_bound_and_close():
    """At most 1.25 times the exact one where the count's variance is 20 or more, 1.12 times from 60 on."""
    checked = 0
    for n, p, q, holders in LAWS:
        wanted = exact(holders, n, p, q)
        found = tail(np.arange(n + 1.0), n, Fraction(p), Fraction(q), np.full(n + 1, holders / n))
        assert (found[wanted > 1e-12] >= wanted[wanted > 1e-12] * (1 - 1e-9)).all(), (n, p, q, holders)
        variance = holders * p * (1 - p) + (n - holders) * q * (1 - q)
        far = (wanted > 1e-12) & (wanted < 0.2)
        if variance >= 20:
            most = 1.25 if variance < 60 else 1.12
            assert (found[far] <= most * wanted[far]).all(), (n, p, q, holders)
            checked += far.sum()
    assert checked > 1000


@pytest.mark.parametrize("n", [10**9, 10**12, 10**15])
@pytest.mark.parametrize("f", [0.0, 0.01, 0.5, 1.0])
def test_the_tail_of_many_reports_approaches_the_normal_distribution(n, f):
    p, q = 0.6, 0.25
    z = np.array([0.5, 1, 2, 3, 4, 5])
    spread = np.sqrt(n * (f * p * (1 - p) + (1 - f) * q * (1 - q)))
    counts = np.rint(n * (f * p + (1 - f) * q) + z * spread)
    found = tail(counts, n, Fraction(p), Fraction(q), np.full(6, f))
    assert found == pytest.approx(stats.norm.sf(z), rel=2e-3)


@pytest.mark.parametrize("name", ["grr", "olh", "oue", "subset"])
@pytest.mark.parametrize(("epsilon", "n"), [("1", 200), ("6", 200), ("2", 20)])
@pytest.mark.parametrize("risk", [0.025, 1e-4])
def test_a_bound_fails_with_its_risk_at_most(name, epsilon, n, risk):
    """For every true number of holders, added up over all counts; and not with much less, where that is possible."""
    oracle = ldp.oracle(name, epsilon, 50)
    p, q = oracle.p, oracle.q
    counts = np.arange(n + 1.0)
    low = lower_bound(counts, n, p, q, risk)
    high = 1.0 - lower_bound(n - counts, n, 1 - q, 1 - p, risk)
    assert ((low >= 0) & (low <= high) & (high <= 1)).all()
    assert (np.diff(low) >= 0).all()
    assert (np.diff(high) >= 0).all()
    failures = []
    for holders in range(n + 1):
        above = exact(holders, n, float(p), float(q))
        pmf = above - np.append(above[1:], 0.0)
        failures += [pmf[low > holders / n].sum(), pmf[high < holders / n].sum()]
    assert max(failures) <= risk * (1 + 1e-6)
    assert max(failures) >= 0.5 * risk


def test_a_domain_of_one_value():
    oracle = ldp.GRR("1", 1)
    low, high = ldp.query.top_interval(oracle.estimate([1000], 1000), 1)
    assert low[0] < high[0] == 1.0
    assert low[0] > 0.99
