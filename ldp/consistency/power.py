"""Power and PowerNS: the posterior mean under a power-law prior (Section IV.E, Equation 11).

The paper's prior on [0, 1] has no integral at 0. Here it lives on counts: a value is held by k of the n users
with probability ∝ k^−α, k = 1..n, and α in [0, 4] is such that the prior's mean is the mean count n/d. With
t = n·f̃ and s = n·σ the answer is f' = E[k | t]/n, the mean under weights k^−α·e^{−(t−k)²/2s²}.

The sums have n terms. Three facts make them short, with errors of f' below 1e-7 of σ:

- On a block of consecutive integers, Gauss's rule for that discrete measure sums polynomials up to degree 15
  with 8 nodes. Blocks grow geometrically away from 1 and from n, where the weights are steep, and stay within
  2s, so that the Gaussian is smooth on each.
- Far from 1 and n, and with s ≥ 1, the sum over the integers equals the integral to within e^{−2π²s²}, and
  the integral equals its trapezoidal sum with step s/2 to within e^{−8π²}.
- The posterior mean is smooth in t and its derivative is the posterior variance / s²: among many estimates
  close together it is interpolated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq

from ldp.consistency.normalization import project_on_simplex
from ldp.estimate import Estimate, Vector

ORDER = 8  # nodes a block
STEEPEST = 4.0  # the largest α
BELOW, ABOVE = 20.0, 10.0  # no weight that counts lies further below or above t than this many s
SPAN = 40.0  # length in s of an end's node set: more than BELOW + ABOVE
ROWS = 4096  # estimates whose terms are held in memory at a time

Terms = Callable[[Vector], tuple[Vector, Vector]]


def power(estimate: Estimate) -> Vector:
    """Power: the expected frequency given f̃ under a power-law prior on the count, fitted from n and d alone.

    Args:
        estimate: f̃ over the domain.

    Returns:
        (d,) float64 in [1/n, 1]; the sum is not 1. O(d log d), whatever n is.

    Example:
        >>> import ldp
        >>> oracle = ldp.oracle("olh", epsilon="1", domain_size=4)
        >>> power(ldp.Estimate([0.75, 0.5, -0.25, -0.125], 1000, oracle)).round(4)
        array([0.7464, 0.4946, 0.0069, 0.0108])
    """
    n = estimate.n
    levels, inverse = np.unique(estimate.frequencies, return_inverse=True)
    alpha = prior_exponent(n, estimate.oracle.domain_size)
    means = posterior_means(n * levels, n, n * estimate.sigma, alpha)
    return means[inverse] / n


def power_ns(estimate: Estimate) -> Vector:
    """PowerNS: Norm-Sub of Power (Section IV.E).

    Args:
        estimate: f̃ over the domain.

    Returns:
        (d,) float64, non-negative, with sum 1. O(d log d).

    Example:
        >>> import ldp
        >>> oracle = ldp.oracle("olh", epsilon="1", domain_size=4)
        >>> power_ns(ldp.Estimate([0.75, 0.5, -0.25, -0.125], 1000, oracle)).round(4)
        array([0.6259, 0.3741, 0.    , 0.    ])
    """
    return project_on_simplex(power(estimate))


def prior_exponent(n: int, d: int) -> float:
    """α in [0, 4] for which Σ k^{1−α} / Σ k^−α (k = 1..n), the prior's mean count, is n/d.

    The mean falls in α; where it is on one side of n/d throughout [0, 4], the nearer end.

    Args:
        n: number of reports.
        d: size of the domain.

    Returns:
        α. O(log n).
    """
    counts, weights = integer_nodes(1, n, n)
    logs = np.log(counts)

    def excess(alpha: float) -> float:
        terms = weights * np.exp(-alpha * logs)
        return math.log(float(terms @ counts) / float(terms.sum())) - math.log(n / d)

    if excess(0.0) <= 0.0:
        return 0.0
    if excess(STEEPEST) >= 0.0:
        return STEEPEST
    return float(brentq(excess, 0.0, STEEPEST, xtol=1e-13, rtol=1e-14))


def posterior_means(t: Vector, n: int, s: float, alpha: float) -> Vector:
    """E[k | t] under weights k^−α·e^{−(t−k)²/2s²}, k = 1..n.

    Args:
        t: (m,) distinct estimated counts in ascending order, as far outside [1, n] as they like.
        n: number of reports.
        s: standard deviation of t.
        alpha: exponent of the prior.

    Returns:
        (m,) float64 in [1, n], non-decreasing. Errors below 1e-7 of s (or the rounding of t).
    """
    # Cells are s/256 wide near 0, at most s/16 near n, and widen with the distance from both. The first and
    # the last of a cell's estimates are computed, those between are interpolated.
    if s < 1.0:  # then the mean goes from integer to integer in steps
        exact = np.ones(len(t), dtype=bool)
    else:
        cells = np.floor(4096.0 * np.arcsinh(t / (16.0 * s)) + 128.0 * np.arcsinh((t - n) / (8.0 * s)))
        starts = np.concatenate([[True], cells[1:] != cells[:-1]])
        exact = starts | np.concatenate([starts[1:], [True]])
    knots = t[exact]
    values, variances = _moments(knots, n, s, alpha)
    slopes = variances / s**2

    means = np.empty(len(t))
    means[exact] = values
    between = ~exact
    left = np.cumsum(exact)[between] - 1
    width = knots[left + 1] - knots[left]
    u = (t[between] - knots[left]) / width
    v = 1.0 - u
    means[between] = (  # cubic Hermite
        v * v * (1.0 + 2.0 * u) * values[left]
        + u * u * (1.0 + 2.0 * v) * values[left + 1]
        + u * v * width * (v * slopes[left] - u * slopes[left + 1])
    )
    # The posterior mean ascends in t; rounding must not turn two neighbours round.
    return np.maximum.accumulate(np.clip(means, 1.0, n))


def integer_nodes(low: int, high: int, widest: int) -> tuple[Vector, Vector]:
    """Nodes and weights with Σ weight·φ(node) = Σ φ(k), k = low..high, for φ smooth away from both ends.

    Blocks of 1, 2, 4, … integers, at most `widest`, from both ends towards the middle. On a block of L > 8
    integers the nodes are the roots of the 8th polynomial orthogonal over these integers (Gram's), by the
    eigenvalues of its Jacobi matrix: off-diagonals √(j²(L²−j²)/(4(4j²−1))); on a shorter one the integers.

    Args:
        low: first integer.
        high: last integer.
        widest: the longest block, at least 1.

    Returns:
        (nodes, weights), in no particular order.
    """
    starts: list[int] = []
    lengths: list[int] = []
    width = 1
    while low <= high:
        length = min(width, high - low + 1)
        starts.append(low)
        lengths.append(length)
        low += length
        length = min(width, high - low + 1)
        if length > 0:
            starts.append(high - length + 1)
            lengths.append(length)
            high -= length
        width = min(2 * width, widest)
    short = [
        np.arange(start, start + length, dtype=np.float64)
        for start, length in zip(starts, lengths, strict=True)
        if length <= ORDER
    ]
    integers = np.concatenate(short)
    long = [(a, length) for a, length in zip(starts, lengths, strict=True) if length > ORDER]
    if not long:
        return integers, np.ones(len(integers))
    first, size = np.array(long, dtype=np.float64).T[:, :, None]
    j = np.arange(1, ORDER, dtype=np.float64)
    jacobi = np.zeros((len(long), ORDER, ORDER))
    # In units of the block's length: the integers themselves may be large.
    jacobi[:, np.arange(1, ORDER), np.arange(ORDER - 1)] = np.sqrt(
        j**2 * (1.0 - (j / size) ** 2) / (4.0 * (4.0 * j**2 - 1.0))
    )
    roots, vectors = np.linalg.eigh(jacobi)  # reads the lower triangle
    nodes = first + (size - 1.0) / 2.0 + size * roots
    weights = size * vectors[:, 0, :] ** 2
    ones = np.ones(len(integers))
    return np.concatenate([integers, nodes.ravel()]), np.concatenate([ones, weights.ravel()])


def _moments(t: Vector, n: int, s: float, alpha: float) -> tuple[Vector, Vector]:
    """Mean and variance of k given each t."""
    means, variances = np.empty(len(t)), np.empty(len(t))
    for members, terms in _regions(t, n, s, alpha):
        for start in range(0, len(members), ROWS):
            part = members[start : start + ROWS]
            centre = np.clip(t[part, None], 1.0, n)
            offset, log_weights = terms(centre)
            # −(t − k)²/2s² without its part that is the same for every k, so that a far t does not cancel.
            exponent = log_weights - offset / s * (0.5 * offset / s - (t[part, None] - centre) / s)
            posterior = np.exp(exponent - exponent.max(axis=1, keepdims=True))
            posterior /= posterior.sum(axis=1, keepdims=True)
            mean = (posterior * offset).sum(axis=1, keepdims=True)
            means[part] = (centre + mean)[:, 0]
            variances[part] = (posterior * (offset - mean) ** 2).sum(axis=1)
    return means, variances


def _regions(t: Vector, n: int, s: float, alpha: float) -> Iterator[tuple[npt.NDArray[np.intp], Terms]]:
    """The indices of t by the sum that is short there, each with that sum's terms.

    Terms take the (m, 1) points of [1, n] nearest to t and give, broadcast over m rows, each term's k minus that
    point and the logarithm of its weight in the prior.
    """
    if s < 1.0:
        near = np.arange(-ABOVE, ABOVE + 1.0)

        def integers(centre: Vector) -> tuple[Vector, Vector]:
            k = np.rint(centre) + near
            inside = (k >= 1.0) & (k <= n)
            return k - centre, np.where(inside, -alpha * np.log(np.where(inside, k, 1.0)), -np.inf)

        yield np.arange(len(t)), integers
        return

    reach = math.ceil(min(SPAN * s, n))
    widest = math.ceil(min(2.0 * s, n))

    def end(low: int, high: int) -> Terms:
        nodes, weights = integer_nodes(low, high, widest)
        log_weights = np.log(weights) - alpha * np.log(nodes)
        return lambda centre: (nodes - centre, log_weights)

    steps = s * np.arange(-ABOVE, ABOVE + 0.5, 0.5)
    lower = t < BELOW * s
    upper = ~lower & (t > n - ABOVE * s)
    if lower.any():
        yield np.flatnonzero(lower), end(1, reach)
    if upper.any():
        yield np.flatnonzero(upper), end(max(1, n - reach), n)
    yield np.flatnonzero(~lower & ~upper), lambda centre: (steps, -alpha * np.log1p(steps / centre))
