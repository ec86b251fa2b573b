"""Confidence sequences: exact error probability, laws, width."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import ndtri

import ldp
import ldp.query
from ldp.intervals import score
from ldp.intervals.confidence_sequence import of_sets, of_values, set_laws
from ldp.set_variance import SetVariance
from tests.unit.ldp.test_laws import reports

pytestmark = pytest.mark.statistical

PROTOCOLS = ("grr", "olh", "oue", "sue", "subset", "hadamard", "pgr")
EPSILONS = ("0.5", "4")
CHANNELS = [
    *((0.5, q) for q in (1e-3, 1e-6, 1e-9, 1e-12)),
    *((1 - q, 0.25) for q in (1e-3, 1e-6, 1e-9, 1e-12)),
    *((1 - q, q) for q in (1e-2, 1e-4, 1e-5, 1e-9, 1e-12)),
    *((3 * q, q) for q in (1e-2, 1e-12)),
]
"""(p, q) of explicit channels: one of the two laws, or both, hardly ever vary."""


def orders(n):
    """Holders of the value in the order of the reports: none, all, alternating, first or last, and random."""
    rng = np.random.default_rng(20)
    return {
        "nobody": np.zeros(n, bool),
        "everybody": np.ones(n, bool),
        "in turns": np.arange(n) % 2 == 0,
        "first": np.arange(n) < n // 4,
        "last": np.arange(n) >= n - n // 4,
        "by chance": rng.random(n) < 0.1,
    }


def ever_wrong(inside, outside, has, ends):
    """The probability that the interval misses at some n: every count at every n is followed by the law of a report."""
    alive, wrong = np.array([1.0]), 0.0
    for n, (own, users) in enumerate(zip(has, np.cumsum(has), strict=True), 1):
        alive = np.convolve(alive, inside if own else outside)
        if n % 7 and n > 20:
            continue  # looking less often makes it smaller only
        low, high = ends(np.arange(alive.size, dtype=float), n)
        missed = (users / n < low) | (users / n > high)
        wrong += alive[missed].sum()
        alive[missed] = 0.0
    return wrong


def of_channel(p, q, level):
    return max(
        ever_wrong([1 - p, p], [1 - q, q], has, lambda counts, n: of_values(counts, n, p, q, level))
        for has in orders(800).values()
    )


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("level", [0.5, 0.95])
def test_the_probability_of_ever_missing_is_at_most_the_risk(epsilon, level):
    oracle = ldp.oracle("olh", epsilon, domain_size=50)
    wrong = of_channel(float(oracle.p), float(oracle.q), level)
    # and the bound is not vacuous: it loses about the cost of the scales
    assert (1 - level) / 20 < wrong <= 1 - level


@pytest.mark.parametrize(("p", "q"), CHANNELS)
def test_the_probability_of_ever_missing_is_at_most_the_risk_of_rare_contributions(p, q):
    assert of_channel(p, q, 0.5) <= 0.5


@pytest.mark.parametrize(("p", "q"), [(0.5, 1e-3), (0.99, 0.01), (0.75, 0.25)])
def test_the_probability_of_ever_missing_a_set_is_at_most_the_risk(p, q):
    """Three of five bits of unary reports."""
    oracle, level = ldp.Unary(str(p), str(q), 5), 0.5
    variance = SetVariance(oracle, [0, 1, 2])
    one, other = np.array([1 - p, p]), np.array([1 - q, q])
    two = np.convolve(other, other)

    def ends(totals, n):
        return of_sets(totals, n, *variance.moments(), variance.laws(), level)

    wrong = [
        ever_wrong(np.convolve(one, two), np.convolve(other, two), has, ends) for has in orders(300).values()
    ]
    assert max(wrong) <= 1 - level


@pytest.mark.parametrize("name", [name for name in PROTOCOLS if name != "olh"])  # its hash is not random
@pytest.mark.parametrize("epsilon", ["0.5", "4", "9"])
@pytest.mark.parametrize("size", [2, 5])
def test_the_law_of_a_set_is_bounded(name, epsilon, size):
    """Against E e^(λY) of every report there is, for users inside and outside; under GRR the bound is the law."""
    oracle = ldp.oracle(name, epsilon, domain_size=7)
    laws = SetVariance(oracle, range(size)).laws()
    supports, probabilities = reports(oracle)
    for at in (-20.0, -2.0, -0.5, -0.01, 0.01, 0.5, 2.0, 20.0):
        mean = probabilities @ np.exp(at * supports[:, :size].sum(axis=1))
        for law, users in zip(laws, (mean[:size], mean[size:]), strict=True):
            (bound,) = law(np.array([at]))
            assert bound >= math.log(users.max()) - 1e-12
            if name in ("grr", "oue", "sue"):
                assert bound == pytest.approx(math.log(users[0]), abs=1e-12)
            elif abs(at) < 0.1:  # for relevant λ hardly any width is lost
                assert bound == pytest.approx(math.log(users.max()), rel=1e-3)


def test_few_lambdas_are_tried(monkeypatch):
    tried = []
    monkeypatch.setattr(
        "ldp.intervals.confidence_sequence._ends",
        lambda *given: tried.append(given[3].size) or ([0.0], [1.0]),
    )
    for p, q in CHANNELS:
        of_values(np.array([3.0]), 10, p, q, 0.95)
    assert max(tried) <= 25


def ends_of(oracle, m, n, f):
    """The anytime-valid and the pointwise interval of the first m values, of a count that has its mean."""
    variance = SetVariance(oracle, range(m))
    inside, outside = variance.moments()
    total = np.array([n * ((1 - f) * outside[0] + f * inside[0])])
    if m == 1:
        anytime = of_values(total, n, float(oracle.p), float(oracle.q), 0.95)
    else:
        anytime = of_sets(total, n, inside, outside, variance.laws(), 0.95)
    apart = oracle.p - oracle.q
    pointwise = score.interval(np.array([f]), n, apart, inside[1], outside[1], 0.95, "reports")
    return [np.clip(np.ravel(ends), 0.0, 1.0) for ends in (anytime, pointwise)]


@pytest.mark.parametrize(
    "oracle",
    [
        *(ldp.oracle(name, epsilon, 60) for name in PROTOCOLS for epsilon in ("0.5", "4", "12")),
        *(ldp.Unary(Fraction(p), Fraction(q), 60) for p, q in CHANNELS),
    ],
    ids=repr,
)
def test_the_sequence_is_at_most_2_3_times_as_wide_as_an_interval(oracle):
    """Except where the pointwise interval has few users: then 14 users are enough."""
    for m in (1, 2, 12):
        for n in (10**4, 10**5, 10**6):
            for f in (0.05, 0.2, 0.5):
                anytime, pointwise = ends_of(oracle, m, n, f)
                assert anytime[0] <= f <= anytime[1]
                width, other = (float(np.diff(ends)[0]) for ends in (anytime, pointwise))
                assert width <= max(2.3 * other, 14.1 / n), (m, n, f, width / other)


@pytest.mark.parametrize("name", PROTOCOLS)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_sequence_is_less_than_twice_as_wide_as_an_interval(name, epsilon):
    oracle = ldp.oracle(name, epsilon, domain_size=1000)
    p, q = float(oracle.p), float(oracle.q)
    f = 0.05
    for n in np.geomspace(1e4, 1e12, 60).astype(int).tolist():
        counts = np.array([n * (q + (p - q) * f)])
        (low,), (high,) = of_values(counts, n, p, q, 0.95)
        pointwise = -ndtri(0.025) * math.sqrt((f * p * (1 - p) + (1 - f) * q * (1 - q)) / n) / (p - q)
        assert low <= f <= high
        if pointwise > 0.01 or n * q < 1000:
            continue  # 0 or 1 is near, or the count is not near to normal
        assert high - f <= 2.0 * pointwise
        assert f - low <= 2.0 * pointwise
        if low > 0:
            assert f - low >= 1.4 * pointwise


def test_the_end_is_where_the_martingale_reaches_its_bound():
    """The lower end, by the definition: the least f at which none of the 19 terms is as large as its share of 1/r."""
    oracle = ldp.oracle("sue", "1", domain_size=20)
    p, q, n, count, level = float(oracle.p), float(oracle.q), 5000, 2300, 0.9
    (low,), (high,) = of_values(np.array([float(count)]), n, p, q, level)
    deviation = math.sqrt(q * (1 - q))

    def largest(f, sign):
        lams = [sign * 3.5 / deviation / math.sqrt(100 * 4**k) for k in range(19)]
        users = [
            f * math.log(1 + p * (math.exp(x) - 1)) + (1 - f) * math.log(1 + q * (math.exp(x) - 1))
            for x in lams
        ]
        return max(math.exp(x * count - n * one) / 19 for x, one in zip(lams, users, strict=True))

    assert largest(low * (1 + 1e-9), 1) < 2 / (1 - level) < largest(low * (1 - 1e-9), 1)
    assert largest(high * (1 - 1e-9), -1) < 2 / (1 - level) < largest(high * (1 + 1e-9), -1)


@pytest.mark.parametrize("level", [0.0, 1.0, 95.0, math.nan])
def test_an_invalid_level_is_refused(level):
    with pytest.raises(ValueError, match="allowed is a number strictly between 0 and 1"):
        of_values(np.array([3.0]), 5, 0.7, 0.1, level)


def test_estimates_and_queries_return_the_interval():
    """Both from the counts; frequencies of an estimate restore the counts, and without counts there is no interval."""
    oracle = ldp.oracle("pgr", "1", domain_size=13)
    state = oracle.zeros()
    oracle.accumulate(state, oracle.perturb([2] * 300 + [5] * 700, rng=np.random.default_rng(21)))
    counts = oracle.support(state)
    estimate = oracle.estimate(counts, n=1000)
    low, high = estimate.anytime_interval(0.9)
    p, q = float(oracle.p), float(oracle.q)
    expected = of_values(counts.astype(float), 1000, p, q, 0.9)
    assert (low.tolist(), high.tolist()) == (expected[0].tolist(), expected[1].tolist())
    again = ldp.Estimate(estimate.frequencies, 1000, oracle).anytime_interval(0.9)
    assert (again[0].tolist(), again[1].tolist()) == (low.tolist(), high.tolist())
    assert ldp.query.anytime_interval(estimate, [1], 0.9) == (low[1], high[1])
    variances = oracle.set_variances([2, 0])
    rest = [v for v in range(13) if v not in (0, 2)]
    inside = p + q, float(max(variances[[0, 2]]))
    outside = 2 * q, float(max(variances[rest]))
    both = np.array([float(counts[0] + counts[2])])
    laws = set_laws(inside, outside, 2)
    assert ldp.query.anytime_interval(estimate, [2, 0], 0.9) == of_sets(
        both, 1000, inside, outside, laws, 0.9
    )
    with pytest.raises(ValueError, match="is not from a count"):
        ldp.Estimate([1 / 13] * 13, 1000, oracle).anytime_interval()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", PROTOCOLS)
@pytest.mark.parametrize("epsilon", ["32", "40", "50", "64"])
def test_probabilities_that_are_rounded_to_0_or_1_have_intervals(name, epsilon):
    oracle = ldp.oracle(name, epsilon, domain_size=3)
    estimate = oracle.estimate(oracle.simulate([1000, 500, 0], np.random.default_rng(1)), 1500)
    for subset, share in (([0], 2 / 3), ([2], 0.0), ([0, 1], 1.0), ([1, 2], 1 / 3)):
        low, high = ldp.query.anytime_interval(estimate, subset)
        assert low - 1e-9 <= share <= high + 1e-9
        assert high - low <= 0.02 + 3 * np.diff(ldp.query.interval(estimate, subset))[0]
