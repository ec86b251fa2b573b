"""Smooth populations: bounds by Parseval's theorem, and known posteriors."""

import math
from itertools import islice

import numpy as np
import pytest
from scipy.stats import gamma, norm

import ldp
from ldp.analysis.smooth_populations import draws, significant

pytestmark = pytest.mark.statistical


def estimate_of(frequencies, n=10**8):
    return ldp.Estimate(frequencies, n, ldp.OLH("1", len(frequencies)))


@pytest.mark.parametrize("make", [draws, significant])
@pytest.mark.parametrize("d", [2, 3, 5, 64, 100])
def test_populations_are_distributions(make, d):
    rng = np.random.default_rng(d)
    estimate = estimate_of(rng.normal(1 / d, 0.3, d), 1000)
    for population in islice(make(estimate, rng), 20):
        assert population.shape == (d,)
        assert population.min() >= 0.0
        assert math.fsum(population) == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("make", [draws, significant])
@pytest.mark.parametrize("d", [16, 100])
def test_equal_estimates_have_no_structure(make, d):
    for population in islice(make(estimate_of(np.full(d, 1 / d), 1000), np.random.default_rng(1)), 10):
        assert population == pytest.approx(np.full(d, 1 / d), rel=1e-12)


@pytest.mark.parametrize("d", [64, 100])
def test_a_step_without_noise_is_kept_at_every_shift(d):
    steps = np.where(np.arange(d) < d // 3, 4.0, 1.0)
    estimate = estimate_of(steps / steps.sum())
    levels = (d - 1).bit_length()
    # A scale has at most two coefficients at each of at most four steps of the padded, periodic domain. Dropped
    # coefficients are below the quantile. A projection onto a convex set that contains the truth reduces the distance.
    most = 8 * levels * norm.isf(0.01 / 2**levels / 2) ** 2
    for population in islice(significant(estimate, np.random.default_rng(2)), 50):
        assert (((population - estimate.frequencies) / estimate.sigma) ** 2).sum() <= most
        assert np.ptp(population) > 0.9 * np.ptp(estimate.frequencies)


def test_noise_has_no_significant_structure():
    rng, flat = np.random.default_rng(3), 0
    for _ in range(400):
        sigma = estimate_of(np.full(64, 1 / 64)).sigma
        estimate = estimate_of(1 / 64 + sigma * rng.standard_normal(64))
        flat += np.ptp(next(significant(estimate, rng))) < 1e-12
    # each transform has a significant coefficient with a probability of at most 1 %
    assert flat >= 400 - 4 - 6 * math.sqrt(4)


def alternating(amplitude):
    """Estimates with finest coefficients of ±√2·amplitude and no others, and the signs of the values."""
    sigma = estimate_of(np.full(64, 1 / 64)).sigma
    signs = (-1.0) ** np.arange(64)
    return estimate_of(1 / 64 + amplitude * sigma * signs), signs


def finest(estimate, signs, repeats):
    """The finest coefficients of draws in σ, positive if they have the sign of the estimate.

    At even shifts these are coefficients of the draw. At odd shifts each is the mean of two, which halves its variance.
    """
    populations = np.array([*islice(draws(estimate, np.random.default_rng(4)), repeats)])
    return (populations * signs).reshape(repeats, 32, 2).sum(axis=2) / math.sqrt(2) / estimate.sigma


def test_a_scale_is_shrunk_by_its_posterior_variance():
    seen, repeats = 2.0, 4000
    drawn = finest(*alternating(seen / math.sqrt(2)), repeats)
    # 32 coefficients of the square 4: v is gamma-distributed with shape 17 and rate 64
    v = gamma(17, scale=1 / 64)
    share = 1 - v.expect(lambda x: np.minimum(x, 1.0))
    variance = v.expect(lambda x: (1 - np.minimum(x, 1.0) - share) ** 2)
    means = drawn.mean(axis=1)
    error = math.sqrt((seen**2 * variance + share / 32) / repeats)
    assert means.mean() == pytest.approx(seen * share, abs=6 * error)
    assert drawn.var(axis=1).mean() == pytest.approx(0.75 * share, rel=0.05)


def test_significant_structure_is_drawn_around_the_estimate():
    seen, repeats = 6.0, 2000
    drawn = finest(*alternating(seen / math.sqrt(2)), repeats)
    assert drawn.mean() == pytest.approx(seen, abs=6 / math.sqrt(32 * repeats))
    assert drawn.var() == pytest.approx(0.75, rel=0.05)
