"""Power against the direct sum over all counts; published biases."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import brentq

import ldp
from ldp.consistency import METHODS
from ldp.consistency.power import integer_nodes, posterior_means, prior_exponent

pytestmark = pytest.mark.statistical


def direct_mean(t, n, s, alpha, largest=None):
    """E[k | t] term by term in extended precision; `largest` stops where no weight is left."""
    k = np.arange(1, (largest or n) + 1, dtype=np.longdouble)
    log_prior = -np.longdouble(alpha) * np.log(k)
    means = []
    for x in np.asarray(t, dtype=np.longdouble):
        exponent = log_prior - (k - x) ** 2 / (2 * np.longdouble(s) ** 2)
        weights = np.exp(exponent - exponent.max())
        means.append(float((weights * k).sum() / weights.sum()))
    return np.array(means)


def decimal_power(estimate):
    """The definition in 60 digits: α by bisection, then the sums."""
    with localcontext() as context:
        context.prec = 60
        n, d = estimate.n, len(estimate.frequencies)
        p, q = (Decimal(x.numerator) / Decimal(x.denominator) for x in (estimate.oracle.p, estimate.oracle.q))
        s2 = n * q * (1 - q) / (p - q) ** 2
        logs = [Decimal(k).ln() for k in range(1, n + 1)]

        def mean(log_weights):
            weights = [(x - max(log_weights)).exp() for x in log_weights]
            return sum(w * k for k, w in enumerate(weights, start=1)) / sum(weights)

        low, high = Decimal(0), Decimal(4)
        for _ in range(70):
            alpha = (low + high) / 2
            if mean([-alpha * x for x in logs]) > Decimal(n) / d:
                low = alpha
            else:
                high = alpha
        ts = [n * Decimal(float(f)) for f in estimate.frequencies]
        means = [
            mean([-alpha * x - (t - k) ** 2 / (2 * s2) for k, x in enumerate(logs, start=1)]) for t in ts
        ]
        return np.array([float(m / n) for m in means])


@pytest.mark.parametrize(
    "oracle",
    [ldp.OLH("1", 5), ldp.OLH("1/2", 2, g=2), ldp.GRR("6", 7), ldp.OLH("2", 60)],
    ids=repr,
)
@pytest.mark.parametrize("n", [1, 12])
def test_the_definition_at_small_n(oracle, n):
    d = oracle.domain_size
    shapes = [np.linspace(-0.6, 1.4, d), np.full(d, -0.3), 1e-12 * np.arange(d), np.arange(d) % 2 - 0.25]
    for frequencies in shapes:
        estimate = ldp.Estimate(frequencies, n, oracle)
        expected = decimal_power(estimate)
        found = METHODS["power"](estimate)
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=4e-8 * estimate.sigma)
        # PowerNS: the shift that makes the sum 1, found by bisection.
        low, high = -2.0, 2.0
        for _ in range(100):
            delta = (low + high) / 2
            if np.maximum(expected + delta, 0).sum() < 1:
                low = delta
            else:
                high = delta
        nearest = np.maximum(expected + delta, 0)
        np.testing.assert_allclose(METHODS["power-ns"](estimate), nearest, atol=1e-12 + 4e-8 * estimate.sigma)


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 9, 1000])
@pytest.mark.parametrize("alpha", [0.0, 1.0, 4.0])
def test_posterior_means_equal_the_direct_sum(n, alpha):
    rng = np.random.default_rng(n)
    for s in (1e-3, 0.05, 0.4, 0.999, 1.0, 2.5, 20.0, 0.2 * n, 2 * math.sqrt(n), 1.0 * n, 1e6 * n):
        t = np.unique(
            np.concatenate(
                [
                    rng.normal(0, 5 * s, 6),
                    rng.uniform(-0.5 * n, 1.5 * n, 8),
                    rng.normal(n, 6 * s, 4),
                    [-1e3 * n, -20.0 * n, 0.0, 1.0, 5 * s, 9 * s, 20 * s, n - 10 * s, n, 100.0 * n],
                ]
            )
        )
        tolerance = 1e-7 * s + 1e-12 * np.abs(t).max()
        np.testing.assert_allclose(
            posterior_means(t, n, s, alpha), direct_mean(t, n, s, alpha), atol=tolerance
        )


@pytest.mark.slow
@pytest.mark.parametrize(("n", "s"), [(3000, 0.03), (3000, 7.0), (3000, 3e5), (10**5, 600.0)])
@pytest.mark.parametrize("alpha", [0.0, 4.0])
def test_interpolated_means_equal_the_direct_sum(n, s, alpha):
    """So many estimates that almost all are interpolated."""
    rng = np.random.default_rng(3)
    t = np.unique(
        np.concatenate([rng.uniform(-14 * s, 30 * s, 30_000), rng.uniform(-n / 2, 1.5 * n, 20_000)])
    )
    means = posterior_means(t, n, s, alpha)
    assert (np.diff(means) >= 0).all()
    some = rng.choice(len(t), 100 if n < 10**5 else 10, replace=False)
    np.testing.assert_allclose(means[some], direct_mean(t[some], n, s, alpha), atol=1e-7 * s)


@pytest.mark.parametrize(("n", "s"), [(1, 1e6), (3000, 1.0), (10**18, 2e9)])
@pytest.mark.parametrize("alpha", [0.0, 4.0])
def test_neighbouring_floats_keep_their_order(n, s, alpha):
    """Runs of adjacent floats, at every scale and in any order, and across the middle and the boundaries."""
    rng = np.random.default_rng(5)
    places = np.concatenate(
        [
            rng.normal(0, 6 * s, 60),
            n + rng.normal(0, 6 * s, 30),
            [0, n / 2, n, 16 * s, n - 16 * s, -1e300, 1e300],
        ]
    )
    runs = [places]
    for _ in range(100):
        runs.append(np.nextafter(runs[-1], np.inf))
    t = rng.permutation(np.concatenate(runs))
    means = posterior_means(t, n, s, alpha)
    order = np.argsort(t, kind="stable")
    assert (np.diff(means[order]) >= 0).all()
    assert (means >= 1).all()
    assert (means <= n).all()


@pytest.mark.slow
def test_posterior_means_of_a_billion_reports_are_exact():
    """The sum that is short at n = 10⁹ against every integer that has weight."""
    s, n, alpha = 3e4, 10**9, 4.0
    t = s * np.array([-300.0, -8.0, 0.0, 4.0, 7.5, 9.5, 19.9, 20.1, 30.0])
    expected = direct_mean(t, n, s, alpha, largest=int(42 * s))
    np.testing.assert_allclose(posterior_means(t, n, s, alpha), expected, atol=1e-8 * s)
    # Near n the prior is flat to 1e-4 of itself and all is mirrored: E[k | t] of the mirror image with α = 0.
    flat = posterior_means(t, n, s, 0.0)
    np.testing.assert_allclose(
        posterior_means(np.sort(n + 1 - t), n, s, 0.0), np.sort(n + 1 - flat), atol=1e-8 * s
    )


@pytest.mark.slow
@pytest.mark.parametrize("n", [2, 100, 100_000])
@pytest.mark.parametrize("d", [1, 2, 10, 1000, 10**6])
def test_the_prior_has_the_mean_count(n, d):
    alpha = prior_exponent(n, d)
    k = np.arange(1, n + 1, dtype=np.longdouble)

    def mean(exponent):
        return float((k ** (1 - exponent)).sum() / (k**-exponent).sum())

    if mean(np.longdouble(0)) <= n / d:
        assert alpha == 0.0
    elif mean(np.longdouble(4)) >= n / d:
        assert alpha == 4.0
    else:
        assert mean(np.longdouble(alpha)) == pytest.approx(n / d, rel=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("n", [2, 3, 10, 1000, 10**5, 10**9, 10**12])
def test_the_prior_exponent_equals_the_root_of_another_solver(n):
    counts, weights = integer_nodes(1, n, n)

    def excess(alpha, d):
        terms = weights * counts**-alpha
        return math.log(terms @ counts / terms.sum()) - math.log(n / d)

    for d in (2, 3, 5, 17, 100, 1023, 10**5, 2**24):
        if excess(0.0, d) > 0 > excess(4.0, d):
            expected = brentq(excess, 0.0, 4.0, args=(d,), xtol=1e-14, rtol=1e-14)
            assert prior_exponent(n, d) == pytest.approx(expected, abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(("low", "high"), [(1, 1), (1, 8), (1, 20), (5, 1000), (10**9 - 10**3, 10**9)])
@pytest.mark.parametrize("widest", [7, 100, 10**9])
def test_nodes_sum_polynomials_exactly(low, high, widest):
    nodes, weights = integer_nodes(low, high, widest)
    assert nodes.min() >= low
    assert nodes.max() <= high
    count = high - low + 1
    middle = Fraction(low + high, 2)
    for power in (0, 1, 2, 7, 14):  # centred and scaled, as the integers' own powers would overflow
        exact = sum((Fraction(k) - middle) ** power for k in range(low, high + 1)) / Fraction(count) ** (
            power + 1
        )
        found = float(np.sum(weights * ((nodes - float(middle)) / count) ** power) / count)
        assert found == pytest.approx(float(exact), abs=1e-12)


@pytest.mark.slow
def test_biases_of_the_paper():
    """Figure 2's sums (Zipf, OLH, ε = 1); the paper leaves Power's prior at 0 open and prints −96332."""
    n, d, runs, published_runs = 10**6, 1024, 30, 5000
    weights = np.arange(1, d + 1) ** -1.5
    rng = np.random.default_rng(1024)
    oracle = ldp.oracle("olh", epsilon="1", domain_size=d)
    published = {"base": -1405, "base-pos": 711932, "base-cut": -137449, "power": -96953}
    published |= dict.fromkeys(("norm", "norm-mul", "norm-sub", "power-ns"), 0)
    sums = {method: np.empty(runs) for method in published}
    holders = rng.multinomial(n, weights / weights.sum())
    for run in range(runs):
        counts = rng.binomial(holders, float(oracle.p)) + rng.binomial(n - holders, float(oracle.q))
        estimate = oracle.estimate(counts, n)
        for method, values in sums.items():
            values[run] = n * (math.fsum(METHODS[method](estimate)) - 1.0)
    for method, bias in published.items():
        error = np.std(sums[method], ddof=1) * math.sqrt(1 / runs + 1 / published_runs)
        assert np.mean(sums[method]) == pytest.approx(bias, abs=6 * error + 1e-3), method
