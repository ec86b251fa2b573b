"""Empirical Bayes with a nonparametric prior (not in the paper)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ldp.consistency.baseline import threshold
from ldp.consistency.normalization import project_on_simplex
from ldp.estimate import Estimate, Vector, check_estimate

BIN = 1 / 8  # width of a bin of estimates, in σ
ATOM = 1 / 4  # step of the grid of the prior's frequencies, in σ
LOWEST, HIGHEST = -8.0, 100.0  # range of the model in σ; higher estimates are not shrunk
SPREAD = 2.0  # values per σ that the prior has in addition to the fit
CLEAR = 2.0  # distance from Base-Cut's threshold to the first of these values, in σ
REACH = 20.0  # largest distance between an estimate and the frequencies in its posterior mean, in σ
START = 8  # the initial prior has an atom at every 8th grid point
TOLERANCE = 1e-6  # largest gain in the mean log-likelihood that the result may miss
MOST_ROUNDS = 100


def empirical_bayes(estimate: Estimate) -> Vector:
    """Posterior mean under the maximum-likelihood prior, then Norm-Sub.

    The method is not in the paper. The prior may be any distribution of frequencies ≥ 0 on a grid of step σ/4. It is
    the maximum-likelihood mixing distribution of Kiefer and Wolfowitz, given f̃ ~ N(f, σ²) with the σ of Equation 5. To
    avoid overfitting if estimates are sparse, the prior contains two additional values per σ, spread evenly from 2σ
    above Base-Cut's threshold to the largest estimate. docs/guides/choose-a-method.md compares the errors of the
    methods.
    Returns (d,) float64, non-negative, with sum 1. O(d), plus a fit on at most 865 bins.

    Example:
        >>> import ldp
        >>> oracle = ldp.oracle("olh", epsilon="1", domain_size=4)
        >>> empirical_bayes(ldp.Estimate([0.75, 0.5, -0.25, -0.125], 1000, oracle)).round(3)
        array([0.61, 0.39, 0.  , 0.  ])
    """
    check_estimate(estimate)
    return Fit(estimate).means()


class Fit:
    """The maximum-likelihood prior for an estimate, and the posteriors."""

    def __init__(self, estimate: Estimate) -> None:
        self._estimate = estimate
        self._z = estimate.frequencies / estimate.sigma
        read = np.clip(self._z, LOWEST, HIGHEST)
        first = np.floor(float(read.min()) / BIN)
        self._position = read / BIN - first
        self._cell = self._position.astype(np.int64)
        counts = np.bincount(self._cell)
        self._bins = BIN * (first + np.arange(len(counts) + 1))  # ends of all bins

        self._occupied = np.flatnonzero(counts)
        atoms = np.arange(0.0, max(float(read.max()), 0.0) + ATOM, ATOM)
        self._likelihoods = likelihood(self._bins[self._occupied] + BIN / 2, atoms)
        fitted = fit_prior(self._likelihoods, counts[self._occupied])
        spread = np.where(atoms > threshold(len(self._z)) + CLEAR, SPREAD * ATOM, 0.0)
        self._weights = len(self._z) * fitted + spread

    def means(self) -> Vector:
        """Returns the (d,) posterior means, projected onto the simplex."""
        means = posterior_means(self._bins, self._weights)
        means = np.maximum.accumulate(means)  # they ascend, except for rounding
        cell = self._cell
        shrunk = means[cell] + (self._position - cell) * (means[cell + 1] - means[cell])
        shrunk = np.minimum(shrunk, means[cell + 1])  # rounding could exceed it
        shrunk = self._estimate.sigma * np.minimum(shrunk, HIGHEST)
        return project_on_simplex(np.where(self._z > HIGHEST, self._estimate.frequencies, shrunk))

    def draws(self, rng: np.random.Generator) -> Iterator[Vector]:
        """Yields draws from the posteriors, as (d,) weights ≥ 0, not all 0. O(d)."""
        sums = np.cumsum(self._likelihoods * self._weights, axis=1)
        # one ascending list for all bins: the steps of bin i lie between i and i + 1
        steps = (sums / sums[:, -1:] + np.arange(len(sums))[:, None]).ravel()
        row = np.searchsorted(self._occupied, self._cell)
        k = len(self._weights)
        while True:
            place = np.searchsorted(steps, row + rng.random(len(row)), side="right")
            atom = np.minimum(place - row * k, k - 1)
            drawn = ATOM * (atom + (rng.random(len(row)) - 0.5) * (atom > 0))  # uniform in a cell of the grid
            drawn = np.where(self._z > HIGHEST, self._z, drawn)
            yield drawn if drawn.any() else np.ones_like(drawn)


def likelihood(z: Vector, atoms: Vector) -> Vector:
    """Returns N(z; atom, 1) per z (row) and atom, up to a constant factor."""
    densities: Vector = np.exp(-0.5 * (z[:, None] - atoms) ** 2)
    return densities


def posterior_means(z: Vector, weights: Vector) -> Vector:
    """Returns E[atom | z] for weighted atoms at 0, ATOM, 2·ATOM, ….

    The means are computed by two convolutions with the Gaussian.

    Args:
        z: (m,) consecutive multiples of BIN, each well within REACH of an atom with a positive weight.
        weights: (k,) non-negative weights of the atoms, on any scale.

    Returns:
        (m,) float64. O(m·REACH/BIN).
    """
    near = round(REACH / BIN)
    gaussian = np.exp(-0.5 * (BIN * np.arange(-near, near + 1)) ** 2)
    grid = np.zeros(round(ATOM / BIN) * len(weights))
    grid[:: round(ATOM / BIN)] = weights
    first = near + round(float(z[0]) / BIN)
    part = slice(first, first + len(z))
    densities = np.convolve(grid, gaussian)[part]
    means: Vector = np.convolve(grid * BIN * np.arange(len(grid)), gaussian)[part] / densities
    return means


def fit_prior(likelihoods: Vector, counts: npt.NDArray[np.int64]) -> Vector:
    """Returns w ≥ 0 with sum 1 that maximizes Σ counts·log(likelihoods·w).

    Each round adds the atoms where additional weight raises the likelihood most. It optimizes a quadratic approximation
    over all atoms in use (non-negative least squares), and halves the step until the likelihood rises. Rounds end
    when, by concavity, no w has a mean log-likelihood that is higher by more than TOLERANCE. `likelihoods` is (m, k),
    with any scale in each row. `counts` is (m,), and the result is (k,).
    """
    from scipy.optimize import nnls  # takes 0.3 s to import

    shares = counts / counts.sum()
    roots = np.sqrt(shares)
    k = likelihoods.shape[1]
    weights = np.zeros(k)
    weights[::START] = 1.0
    weights[-1] = 1.0
    weights /= weights.sum()
    mixture = likelihoods @ weights
    for _ in range(MOST_ROUNDS):
        gains = likelihoods.T @ (shares / mixture) - 1.0
        if float(gains.max()) <= TOLERANCE:
            break
        padded = np.concatenate([[-np.inf], gains, [-np.inf]])
        peaks = (gains > 0.0) & (gains >= padded[:-2]) & (gains >= padded[2:])
        used = np.flatnonzero((weights > 0.0) | peaks)
        # With Σw = 1 the approximation is Σ shares·(ratios·w − 2)² = ‖rows·w‖². Its minimum is the minimum of
        # ‖rows·w‖² + (Σw − 1)², scaled to Σw = 1.
        rows = roots[:, None] * (likelihoods[:, used] / mixture[:, None] - 2.0)
        rows = np.vstack([rows, np.ones(len(used))])
        scale = np.linalg.norm(rows, axis=0)
        solution = nnls(rows / scale, np.append(np.zeros(len(shares)), 1.0))[0] / scale
        goal = np.zeros(k)
        goal[used] = solution / solution.sum()
        towards = likelihoods @ goal
        promised = float(gains @ (goal - weights))
        part = 1.0
        while part > 1e-12:
            ratios = (1.0 - part) + part * towards / mixture
            # If the mixture nearly vanishes somewhere, quadratic approximations need many rounds to recover.
            if float(ratios.min()) > 0.1 and float(shares @ np.log(ratios)) >= part * promised / 3.0:
                break
            part /= 2.0
        weights, mixture = (1.0 - part) * weights + part * goal, mixture * ratios
    return weights
