"""Power and PowerNS: posterior means under a power-law prior.

Source: Section IV.E, Equation 11. The paper's prior on [0, 1] is not integrable at 0. Here the prior is on counts: the
probability that k of the n users have a value is proportional to k^−α for k = 1..n. The exponent α in [0, 4] is chosen
such that the mean of k is n/d. Let t = n·f̃ and s = n·σ. The result is f' = E[k | t]/n under the weights
k^−α·e^{−(t−k)²/2s²}.

The sums have n terms. Three approximations shorten these sums, and change f' by less than 1e-7·σ:

- On a block of consecutive integers, Gauss's rule for sums is exact for polynomials up to degree 15 with 8 nodes.
  Blocks grow geometrically away from 1 and from n, up to a length of 2s.
- Far from 1 and n, and with s ≥ 1, the sum over the integers equals the integral to within e^{−2π²s²}, and the integral
  equals its trapezoidal sum with step s/2 to within e^{−8π²}.
- The posterior mean is smooth in t. A polynomial of degree 11 fits it on a window of s/4, and on wider windows far from
  0 and n. The means of many estimates are looked up in a table of these polynomials.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from ldp.consistency.normalization import project_on_simplex
from ldp.estimate import Estimate, Vector, check_estimate

ORDER = 8  # nodes per block
STEEPEST = 4.0  # the largest α
HALVINGS = 46  # bisections of [0, STEEPEST], which give α to 3e-14
BELOW, ABOVE = 20.0, 10.0  # weights farther than this below or above t, in units of s, are negligible
SPAN = 40.0  # length of the node set at an end, in s: more than BELOW + ABOVE
ROWS = 128  # estimates whose terms are computed together, which fit the second-level cache
WINDOW, CELL = 46, 39  # log₂ of the steps in a window and in a cell; an octave has 64 windows of 128 cells
DEGREE = 11
ONE = 1023 << 52  # the bits of 1.0
PIECE = 8192  # estimates looked up together, which fit the second-level cache

Terms = Callable[[Vector], tuple[Vector, Vector]]
Steps = npt.NDArray[np.int64]


def power(estimate: Estimate) -> Vector:
    """Power: the expected frequency given f̃ and a power-law prior on counts.

    Returns (d,) float64 in [1/n, 1]; the sum is usually not 1. O(d) for every n, or O(d log d) if n·σ < 1.

    Example:
        >>> import ldp
        >>> estimate = ldp.Estimate([0.75, 0.5, -0.25, -0.125], 1000, ldp.oracle("olh", epsilon="1", domain_size=4))
        >>> power(estimate).round(4), power_ns(estimate).round(4)
        (array([0.7464, 0.4946, 0.0069, 0.0108]), array([0.6259, 0.3741, 0.    , 0.    ]))
    """
    check_estimate(estimate)
    n = estimate.n
    alpha = prior_exponent(n, estimate.oracle.domain_size)
    means = posterior_means(n * estimate.frequencies, n, n * estimate.sigma, alpha)
    means /= n
    return means


def power_ns(estimate: Estimate) -> Vector:
    """PowerNS: Norm-Sub of Power (Section IV.E).

    Returns (d,) float64, non-negative, with sum 1. O(d log d).
    """
    return project_on_simplex(power(estimate))


def prior_exponent(n: int, d: int) -> float:
    """Returns the α in [0, 4] with prior mean Σ k^{1−α} / Σ k^−α = n/d.

    The sums are over k = 1..n. The mean decreases with α. If no α fits, the nearer end of [0, 4] is returned. O(log n).
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
    low, high = 0.0, STEEPEST
    for _ in range(HALVINGS):
        alpha = (low + high) / 2.0
        low, high = (alpha, high) if excess(alpha) > 0.0 else (low, alpha)
    return (low + high) / 2.0


def posterior_means(t: Vector, n: int, s: float, alpha: float) -> Vector:
    """Returns E[k | t] for estimated counts t with standard error s.

    The weights are k^−α·e^{−(t−k)²/2s²}, k = 1..n.

    Returns:
        (m,) float64 in [1, n], non-decreasing in t. The error is below 1e-7·s, or is the rounding error of t.
    """
    if s >= 1.0:  # for smaller s the mean is a step function
        scale = _Scale(n, s)
        steps = scale.steps(t)
        windows = np.flatnonzero(np.bincount(steps >> WINDOW))
        if len(windows) * (DEGREE + 1) < len(t):
            edges = scale.counts(np.stack([windows, windows + 1]) << WINDOW)
            looked_up = _looked_up(steps, windows, edges, lambda nodes: _means(nodes, n, s, alpha))
            return np.clip(looked_up, 1.0, n, out=looked_up)
    levels, inverse = np.unique(t, return_inverse=True)
    # The posterior mean ascends in t; rounding must not swap two neighbours.
    return np.maximum.accumulate(_means(levels, n, s, alpha))[inverse]


def _looked_up(steps: Steps, windows: Steps, edges: Vector, means_at: Callable[[Vector], Vector]) -> Vector:
    """Looks up the means at `steps` in a table of the occupied windows.

    `windows` contains the m occupied windows, and `edges` the ends of these windows in t, as (2, m). In each cell, the
    mean is a quadratic through the cell's ends and middle: v + z·(b + z·c) with b ≥ 0. If u in [0, 1) is the position
    in the cell, z is u for c ≥ 0, and u − 1 for c < 0. Even with rounding, each operation is non-decreasing in u. The
    means therefore keep the order of t.
    """
    nodes, to_halves = _interpolation()
    t = edges[0, :, None] + (edges[1] - edges[0])[:, None] * nodes
    values = means_at(t.ravel()).reshape(t.shape) @ to_halves
    values = np.maximum.accumulate(values.ravel()).reshape(values.shape)
    left, middle, right = values[:, :-1:2], values[:, 1::2], values[:, 2::2]
    curve = 2.0 * ((right - middle) - (middle - left))
    slope = np.maximum(right - left - np.abs(curve), 0.0)
    concave = curve < 0.0
    start = np.where(concave, right, left)
    table = np.stack([start, slope, curve, concave, left, right], axis=-1).reshape(-1, 6)

    # First row of each window; empty windows have no rows.
    rows = np.zeros(int(windows[-1]) + 1, dtype=np.int64)
    rows[windows] = np.arange(len(windows)) - windows << WINDOW - CELL
    means = np.empty(len(steps))
    for first in range(0, len(steps), PIECE):
        part = steps[first : first + PIECE]
        v, b, c, origin, low, high = table.take((part >> CELL) + rows.take(part >> WINDOW), axis=0).T
        z = (part & (1 << CELL) - 1) * 2.0**-CELL
        z -= origin
        c = z * c
        c += b
        c *= z
        c += v
        np.minimum(np.maximum(c, low, out=c), high, out=means[first : first + PIECE])
    return means


def _interpolation() -> tuple[Vector, Vector]:
    """Returns Chebyshev points and the matrix that interpolates at half-cells."""
    angles = np.arange(DEGREE + 1) * np.pi / DEGREE
    halves = np.linspace(-1.0, 1.0, 2 * (1 << WINDOW - CELL) + 1)
    at_points = np.polynomial.chebyshev.chebvander(-np.cos(angles), DEGREE)
    at_halves = np.polynomial.chebyshev.chebvander(halves, DEGREE)
    to_halves: Vector = np.asarray(np.linalg.solve(at_points.T, at_halves.T), dtype=np.float64)
    return (1.0 - np.cos(angles)) / 2.0, to_halves


class _Scale:
    """Monotone map from t to integer steps, finest near 0 and n.

    Let D be the distance of t from the nearer of 0 and n, plus a unit of at most 16s. Each doubling of D has 2^52
    steps. The map reads the bits of a float as an integer, which is linear within an octave and continuous between
    octaves. The unit is chosen so that 0, n/2 and n are boundaries of windows.
    """

    def __init__(self, n: int, s: float) -> None:
        self.n = n
        octave = math.floor(math.log2(1.0 + n / (32.0 * s)))
        windows = 2.0 ** (octave + WINDOW - 52)
        self.unit = n / 2.0 / (windows * math.ceil((1.0 + n / (32.0 * s)) / windows + 1e-9) - 1.0)
        # Beyond this distance the mean is 1 or n: the weights fall by e^−40 from each integer to the next.
        self.reach = 40.0 * s * (s + 1.0)
        half = round(int(self._bits(np.array(n / 2.0))) / 2**WINDOW)
        furthest = 1 + (int(self._bits(np.array(self.reach))) >> WINDOW)
        self.zero = furthest << WINDOW
        self.middle = furthest + half << WINDOW
        self.end = furthest + 2 * half << WINDOW

    def steps(self, t: Vector) -> Steps:
        """Maps t to steps. Values far outside [0, n] are clipped."""
        steps = np.empty(len(t), dtype=np.int64)
        for start in range(0, len(t), PIECE):
            part = np.clip(t[start : start + PIECE], -self.reach, self.n + self.reach)
            inward = np.minimum(part, self.n - part)  # from the nearer of 0 and n, negative outside
            sign = inward.view(np.int64) >> 63  # 0 or −1
            distance = np.minimum((self._bits(np.abs(inward)) ^ sign) - sign, self.middle - self.zero)
            steps[start : start + PIECE] = np.where(
                part > self.n / 2.0, self.end - distance, self.zero + distance
            )
        return steps

    def counts(self, steps: Steps) -> Vector:
        """Maps steps to t, the inverse of `steps`."""
        upper = steps > self.middle
        distance = steps - np.where(upper, self.end, self.zero)
        z = self.unit * ((np.abs(distance) + ONE).view(np.float64) - 1.0)
        return np.where(upper, float(self.n), 0.0) + np.copysign(z, distance)

    def _bits(self, z: Vector) -> Steps:
        return (z / self.unit + 1.0).view(np.int64) - ONE


def integer_nodes(low: int, high: int, widest: int) -> tuple[Vector, Vector]:
    """Returns nodes and weights of a quadrature over the integers low..high.

    Σ weight·φ(node) ≈ Σ φ(k), k = low..high, for φ that are smooth away from both ends. From both ends towards the
    middle, the integers are split into blocks of 1, 2, 4, …, but at most `widest`. On a block of L > 8 integers, the
    nodes are the roots of Gram's polynomial of degree 8, which is orthogonal over these integers. The roots are
    computed as eigenvalues of the Jacobi matrix with off-diagonals √(j²(L²−j²)/(4(4j²−1))). On a shorter block, the
    nodes are the integers.
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
    # In units of the block's length, because the integers may be large.
    jacobi[:, np.arange(1, ORDER), np.arange(ORDER - 1)] = np.sqrt(
        j**2 * (1.0 - (j / size) ** 2) / (4.0 * (4.0 * j**2 - 1.0))
    )
    roots, vectors = np.linalg.eigh(jacobi)  # reads the lower triangle
    nodes = first + (size - 1.0) / 2.0 + size * roots
    weights = size * vectors[:, 0, :] ** 2
    ones = np.ones(len(integers))
    return np.concatenate([integers, nodes.ravel()]), np.concatenate([ones, weights.ravel()])


def _means(t: Vector, n: int, s: float, alpha: float) -> Vector:
    means = np.empty(len(t))
    for members, terms in _regions(t, n, s, alpha):
        for start in range(0, len(members), ROWS):
            part = members[start : start + ROWS]
            centre = np.clip(t[part, None], 1.0, n)
            offset, log_weights = terms(centre)
            # −(t − k)²/2s² without the part that is equal for all k, which avoids cancellation for distant t.
            exponent = log_weights - offset / s * (0.5 * offset / s - (t[part, None] - centre) / s)
            exponent -= exponent.max(axis=1, keepdims=True)
            posterior = np.exp(exponent, out=exponent)
            mean = np.einsum("ij,ij->i", posterior, np.broadcast_to(offset, posterior.shape))
            means[part] = centre[:, 0] + mean / posterior.sum(axis=1)
    return np.clip(means, 1.0, n)


def _regions(t: Vector, n: int, s: float, alpha: float) -> Iterator[tuple[npt.NDArray[np.intp], Terms]]:
    """Yields the indices of t in each region, and the terms of the sum there.

    The terms are a function of (m, 1) points: for each t, the nearest point in [1, n]. The function returns k minus the
    point, and the logarithm of the prior weight of k. Both results broadcast over the m rows.
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
        order = np.argsort(nodes)
        nodes, log_weights = nodes[order], (np.log(weights) - alpha * np.log(nodes))[order]

        def terms(centre: Vector) -> tuple[Vector, Vector]:
            counts = slice(int(np.searchsorted(nodes, float(centre.max()) + 2.0 * ABOVE * s, side="right")))
            return nodes[counts] - centre, log_weights[counts]

        return terms

    steps = s * np.arange(-ABOVE, ABOVE + 0.5, 0.5)
    lower = t < BELOW * s
    upper = ~lower & (t > n - ABOVE * s)
    if lower.any():
        yield np.flatnonzero(lower), end(1, reach)
    if upper.any():
        yield np.flatnonzero(upper), end(max(1, n - reach), n)
    yield np.flatnonzero(~lower & ~upper), lambda centre: (steps, -alpha * np.log1p(steps / centre))
