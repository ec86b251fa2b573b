"""Empirical Bayes against a generic optimiser of the same likelihood, and where it wins and loses."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

import ldp
from ldp.consistency import EXTRA, METHODS
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


@pytest.mark.parametrize("seed", range(8))
def test_the_prior_is_as_likely_as_a_generic_optimisers(seed):
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


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("largest", [1.0, 12.0, 200.0])
def test_no_atom_would_make_the_prior_more_likely(seed, largest):
    """The maximum's own condition: no direction ascends. Values far from all others are the hard case."""
    rng = np.random.default_rng(seed)
    z = np.append(rng.normal(size=300), rng.uniform(0, largest, 5))
    atoms = np.arange(0.0, z.max() + 0.25, 0.25)
    likelihoods = likelihood(z, atoms)
    weights = fit_prior(likelihoods, np.ones(len(z), dtype=np.int64))
    gains = likelihoods.T @ (1 / (likelihoods @ weights)) / len(z)
    assert gains.max() <= 1 + 1e-6


def test_the_posterior_mean_is_that_of_the_fitted_prior():
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


@pytest.mark.parametrize(("first", "count"), [(-64, 30), (-64, 865), (-8, 50), (100, 120), (790, 11)])
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


@pytest.mark.parametrize("n", [10**7, 10**14, 10**18])
def test_the_fit_stays_small_whatever_n_is(n, monkeypatch):
    """865 bins and 401 atoms at most; a finer or a longer grid would take seconds."""
    shapes = []

    def spy(likelihoods, counts):
        shapes.append(likelihoods.shape)
        assert counts.sum() == 50_000
        return fit_prior(likelihoods, counts)

    monkeypatch.setitem(empirical_bayes.__globals__, "fit_prior", spy)
    weights = np.random.default_rng(5).random(50_000)
    oracle = ldp.OLH("1", 50_000)
    empirical_bayes(ldp.Estimate(weights / weights.sum() - 1e-9, n, oracle))
    empirical_bayes(ldp.Estimate(np.linspace(-10, 300, 50_000) * oracle_sigma(oracle, n), n, oracle))
    assert shapes[1] == (865, 401)
    assert np.array(shapes)[:, 0].max() <= 865
    assert np.array(shapes)[:, 1].max() <= 401


def oracle_sigma(oracle, n):
    p, q = float(oracle.p), float(oracle.q)
    return math.sqrt(q * (1 - q) / n) / (p - q)


def test_a_value_alone_far_above_the_noise_is_hardly_shrunk():
    """One value of 1,024 at 40σ, the others noise: the fit alone would put an atom on it or on its neighbour."""
    rng = np.random.default_rng(8)
    oracle = ldp.OLH("1", 1024)
    sigma = oracle_sigma(oracle, 10**6)
    shrunk = []
    for z in np.linspace(30, 50, 41):
        f = sigma * np.append(rng.normal(size=1019), [z - 4, z - 2.5, z - 1, z, z + 20])
        found = empirical_bayes(ldp.Estimate(f, 10**6, oracle))
        shrunk.append((found[-5:-1] - f[-5:-1]) / sigma)
    spread = np.array(shrunk) - np.mean(
        shrunk, axis=1, keepdims=True
    )  # what Norm-Sub takes is the same for all
    assert np.abs(spread).max() < 0.75


@pytest.mark.parametrize(
    "frequencies",
    [
        [0.3],
        [-0.3],
        [1.5],
        [0.2] * 6,
        [-0.2] * 6,
        [-0.1, -0.2, -0.1, -0.4, -0.3],
        [0.0, 0.0, 0.0],
        [1e-12, -1e-12, 3e-12],
        [1.2, 1.2, -0.1],
        [30.0, -1000.0, 0.5, 0.5],
        [1e300, -1e300, 0.5],
    ],
    ids=str,
)
@pytest.mark.parametrize("n", [1, 100, 10**9])
@pytest.mark.parametrize("kind", ["grr", "olh"])
def test_degenerate_cases(frequencies, n, kind):
    d = len(frequencies)
    estimate = ldp.Estimate(frequencies, n, ldp.oracle(kind, epsilon="1", domain_size=d))
    found = empirical_bayes(estimate)
    assert_consistent(estimate.frequencies, found)
    if len(set(frequencies)) == 1:
        np.testing.assert_allclose(found, 1 / d, rtol=1e-14)


@settings(derandomize=True, deadline=None, database=None, max_examples=150)
@given(
    frequencies=st.lists(
        st.one_of(st.floats(-1, 2), st.sampled_from([0.0, -0.0, 0.25, 1e-12, 1e-300, 30.0, -1000.0])),
        min_size=1,
        max_size=12,
    ),
    n=st.sampled_from([1, 50, 10**6, 10**12]),
)
def test_small_domains(frequencies, n):
    estimate = ldp.Estimate(frequencies, n, ldp.oracle("olh", epsilon="1", domain_size=len(frequencies)))
    found = empirical_bayes(estimate)
    assert_consistent(estimate.frequencies, found)
    mirrored = ldp.Estimate(frequencies[::-1], n, estimate.oracle)
    np.testing.assert_array_equal(empirical_bayes(mirrored), found[::-1])


def assert_consistent(frequencies, found):
    assert found.shape == frequencies.shape
    assert np.isfinite(found).all()
    assert (found >= 0).all()
    assert math.fsum(found) == pytest.approx(1.0, abs=4 * len(found) * np.spacing(found.max()))
    order = np.argsort(frequencies, kind="stable")
    assert (np.diff(found[order]) >= 0).all()
    assert (np.diff(found[order])[np.diff(frequencies[order]) == 0] == 0).all()


@pytest.mark.parametrize("epsilon", ["1/2", "1", "4"])
def test_order_and_sum_of_many_values(epsilon):
    _, estimate = simulated(np.arange(1, 200_001) ** -1.1, epsilon, 10**8, 4)
    before = estimate.frequencies.copy()
    found = empirical_bayes(estimate)
    assert_consistent(estimate.frequencies, found)
    np.testing.assert_array_equal(estimate.frequencies, before)
    order = np.random.default_rng(1).permutation(len(before))
    permuted = empirical_bayes(ldp.Estimate(before[order], estimate.n, estimate.oracle))
    np.testing.assert_array_equal(permuted, found[order])


@pytest.mark.parametrize("atom", [0.75, 1.0, 1.75])
def test_order_where_all_means_are_one_but_for_rounding(atom):
    """Less scatter than noise has: the fitted prior is a single atom."""
    oracle = ldp.OLH("1", 3000)
    z = atom + 0.2 * np.random.default_rng(6).normal(size=3000)
    estimate = ldp.Estimate(z * oracle_sigma(oracle, 10**6), 10**6, oracle)
    assert_consistent(estimate.frequencies, empirical_bayes(estimate))


def test_values_far_above_the_noise_stay():
    """With a thousand σ between them nothing is known about a prior: all is Norm-Sub."""
    f = np.array([0.5, 0.3, 0.15, 0.05])
    estimate = ldp.Estimate(f, 10**12, ldp.oracle("olh", epsilon="1", domain_size=4))
    np.testing.assert_allclose(empirical_bayes(estimate), f, atol=1e-12)


def errors(weights, epsilon, runs):
    """Mean squared errors of (Norm-Sub, PowerNS, this), run by run on the same counts."""
    squared = np.empty((runs, 3))
    for seed in range(runs):
        truth, estimate = simulated(weights, epsilon, 10**6, seed)
        answers = (METHODS["norm-sub"], METHODS["power-ns"], empirical_bayes)
        squared[seed] = [np.mean((answer(estimate) - truth) ** 2) for answer in answers]
    return squared.mean(axis=0)


@pytest.mark.parametrize("epsilon", ["1/2", "1", "2", "4"])
def test_where_all_values_are_equally_frequent_it_is_far_better(epsilon):
    norm_sub, power_ns, this = errors(np.ones(1024), epsilon, 10)
    assert this < norm_sub / 4
    assert this < power_ns / 2


@pytest.mark.parametrize("epsilon", ["1/2", "4"])
def test_on_zipf_it_beats_norm_sub_and_is_near_power_ns(epsilon):
    norm_sub, power_ns, this = errors(np.arange(1, 1025) ** -1.5, epsilon, 10)
    assert this < norm_sub
    assert this < 1.25 * power_ns


def test_it_is_an_extra():
    assert [(name, method.function) for name, method in EXTRA.items()] == [
        ("empirical-bayes", empirical_bayes)
    ]
    assert not EXTRA.keys() & METHODS.keys()
