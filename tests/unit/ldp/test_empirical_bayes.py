"""Empirical Bayes against a generic optimiser of its likelihood."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize

import ldp
from ldp.consistency import METHODS
from ldp.consistency.empirical_bayes import empirical_bayes, fit_prior, likelihood, posterior_means

pytestmark = pytest.mark.statistical


def simulated(weights, epsilon, n, seed):
    """The true frequencies of n users and an estimate, each value's support drawn by itself."""
    rng = np.random.default_rng(seed)
    oracle = ldp.oracle("olh", epsilon=epsilon, domain_size=len(weights))
    holders = rng.multinomial(n, weights / weights.sum())
    counts = rng.binomial(holders, float(oracle.p)) + rng.binomial(n - holders, float(oracle.q))
    return holders / n, oracle.estimate(counts, n)


def mean_log(likelihoods, counts, weights):
    return float(counts @ np.log(likelihoods @ weights) / counts.sum())


@pytest.mark.parametrize("seed", range(3))
def test_the_prior_is_as_likely_as_that_of_a_generic_optimiser(seed):
    rng = np.random.default_rng(seed)
    z = np.append(np.abs(rng.normal(0, 2, 40)) * (rng.random(40) < 0.4) + rng.normal(size=40), [9.0, 30.0])
    counts = rng.integers(1, 5, len(z))
    atoms = np.arange(0.0, 31.0, 1.0)
    likelihoods = likelihood(z, atoms)

    def loss(logits):
        """Weights as a softmax: no constraint, and another route to the same maximum."""
        weights = np.exp(logits - logits.max())
        weights /= weights.sum()
        slope = likelihoods.T @ (counts / (likelihoods @ weights)) / counts.sum()
        return -mean_log(likelihoods, counts, weights), -weights * (slope - weights @ slope)

    generic = minimize(
        loss, np.zeros(len(atoms)), jac=True, method="L-BFGS-B", options={"maxiter": 20_000, "gtol": 1e-10}
    )
    weights = fit_prior(likelihoods, counts)
    assert (weights >= 0).all()
    assert weights.sum() == pytest.approx(1.0, abs=1e-12)
    found = mean_log(likelihoods, counts, weights)
    assert found >= -generic.fun - 1e-6
    assert found <= -generic.fun + 1e-3  # L-BFGS gets near, from below


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("largest", [1.0, 200.0])
def test_no_atom_would_make_the_prior_more_likely(seed, largest):
    """The maximum's own condition: no direction ascends. Values far from all others are the hard case."""
    rng = np.random.default_rng(seed)
    z = np.append(rng.normal(size=300), rng.uniform(0, largest, 5))
    atoms = np.arange(0.0, z.max() + 0.25, 0.25)
    likelihoods = likelihood(z, atoms)
    weights = fit_prior(likelihoods, np.ones(len(z), dtype=np.int64))
    gains = likelihoods.T @ (1 / (likelihoods @ weights)) / len(z)
    assert gains.max() <= 1 + 1e-6


def test_the_posterior_mean_matches_the_fitted_prior():
    """Estimates in the middle of bins, so that binning loses nothing; each one's own sum over the grid."""
    _, drawn = simulated(np.arange(1, 301) ** -0.8, "1", 10**5, 3)
    z = (np.floor(8 * drawn.frequencies / drawn.sigma) + 0.5) / 8
    estimate = ldp.Estimate(z * drawn.sigma, drawn.n, drawn.oracle)
    atoms = np.arange(0.0, z.max() + 0.25, 0.25)
    weights = 300 * fit_prior(np.exp(-0.5 * (z[:, None] - atoms) ** 2), np.ones(300, dtype=np.int64))
    # Two values a σ more, above the level that 2 of 300 noise values pass (a table's F⁻¹(1 − 2/300)) and 2σ.
    weights += np.where(atoms > 2.4749 + 2.0, 2.0 / 4, 0.0)
    direct = []
    for x in z:
        posterior = [w * math.exp(-((x - a) ** 2) / 2) for w, a in zip(weights, atoms, strict=True)]
        direct.append(sum(p * a for p, a in zip(posterior, atoms, strict=True)) / sum(posterior))
    expected = METHODS["norm-sub"](
        ldp.Estimate(np.array(direct) * estimate.sigma, estimate.n, estimate.oracle)
    )
    np.testing.assert_allclose(empirical_bayes(estimate), expected, atol=0.005 * estimate.sigma)


@pytest.mark.parametrize(("first", "count"), [(-64, 30), (-64, 865), (790, 11)])
def test_posterior_means_equal_the_direct_sums(first, count):
    """Few atoms with very different weights, so that some means come from an atom far away."""
    rng = np.random.default_rng(count)
    weights = np.where(rng.random(401) < 0.2, 10.0 ** rng.uniform(-3, 6, 401), 0.0)
    weights[[0, 20, 380]] = 1.0
    z = (first + np.arange(count)) / 8
    atoms = np.arange(401) / 4
    direct = []
    for x in z:
        logs = np.log(weights[weights > 0]) - (x - atoms[weights > 0]) ** 2 / 2
        posterior = np.exp(logs - logs.max())
        direct.append(posterior @ atoms[weights > 0] / posterior.sum())
    np.testing.assert_allclose(posterior_means(z, weights), direct, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    "frequencies",
    [
        [-0.3],
        [-0.2] * 6,
        [-0.1, -0.2, -0.1, -0.4],
        [1e-12, -1e-12, 3e-12],
        [30.0, -1000.0, 0.5, 0.5],
        [1e300, 0.5],
    ],
    ids=str,
)
@pytest.mark.parametrize("n", [1, 10**9])
def test_degenerate_cases(frequencies, n):
    d = len(frequencies)
    estimate = ldp.Estimate(frequencies, n, ldp.OLH("1", domain_size=d))
    found = empirical_bayes(estimate)
    assert_consistent(estimate.frequencies, found)
    if len(set(frequencies)) == 1:
        np.testing.assert_allclose(found, 1 / d, rtol=1e-14)


def assert_consistent(frequencies, found):
    assert found.shape == frequencies.shape
    assert np.isfinite(found).all()
    assert (found >= 0).all()
    assert math.fsum(found) == pytest.approx(1.0, abs=4 * len(found) * np.spacing(found.max()))
    order = np.argsort(frequencies, kind="stable")
    assert (np.diff(found[order]) >= 0).all()
    assert (np.diff(found[order])[np.diff(frequencies[order]) == 0] == 0).all()


def test_order_and_sum_of_many_values():
    _, estimate = simulated(np.arange(1, 50_001) ** -1.1, "1", 10**8, 4)
    before = estimate.frequencies.copy()
    found = empirical_bayes(estimate)
    assert_consistent(estimate.frequencies, found)
    np.testing.assert_array_equal(estimate.frequencies, before)
    order = np.random.default_rng(1).permutation(len(before))
    permuted = empirical_bayes(ldp.Estimate(before[order], estimate.n, estimate.oracle))
    np.testing.assert_array_equal(permuted, found[order])
