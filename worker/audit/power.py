"""Power, read a second time: the expected count of a value whose estimated count is known, under a power-law prior.

The prior: a value is had by k of the n users with a chance in proportion to k^−α, k = 1..n; α in [0, 4] is such that
its mean is n/d. An estimated count t is normal around k with standard deviation s. Short sums are taken term by term.
Of long ones the terms at either end are, and the rest is an integral and the first correction of Euler and Maclaurin:
Σ f(k) = ∫ f + (f'(begin) − f'(end))/24, from half before its first term to half behind its last; f is smooth there.
"""

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]

_SINGLE = 256
"""So many terms at either end are taken one by one: there they may be steep."""
_SMOOTH = 50.0
"""From this deviation on sums over integers are integrals."""
_BEFORE, _BEHIND = 20.0, 10.0
"""No count is likely that is further below an estimate, or above it, in deviations."""
_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_ROWS = 256
"""Estimates that are looked at together."""


def exponent(n: int, d: int) -> float:
    """Returns α, to the last few bits, or the end of [0, 4] beyond which it would be."""
    below, above = 0.0, 4.0
    if _prior_mean(n, below) <= n / d:
        return below
    if _prior_mean(n, above) >= n / d:
        return above
    for _ in range(60):
        middle = (below + above) / 2
        below, above = (middle, above) if _prior_mean(n, middle) > n / d else (below, middle)
    return below


def _prior_mean(n: int, alpha: float) -> float:
    return _sum_of_powers(n, alpha - 1) / _sum_of_powers(n, alpha)


def _sum_of_powers(n: int, beta: float) -> float:
    """Returns Σ k^−β, k = 1..n."""
    first = min(n, 4 * _SINGLE)
    total = float((np.arange(1.0, first + 1) ** -beta).sum())
    if first == n:
        return total
    begin, end = first + 0.5, n + 0.5
    power = 1 - beta
    whole = np.log(end / begin) if abs(power) < 1e-12 else (end**power - begin**power) / power
    slopes = -beta * (begin ** (-beta - 1) - end ** (-beta - 1))
    return total + float(whole + slopes / 24)


def means(t: Vector, n: int, s: float, alpha: float) -> Vector:
    """Returns the expected count, (m,), for each estimated one; O(m), whatever n is.

    Args:
        t: (m,) estimated counts.
        n: reports.
        s: their standard deviation.
        alpha: of the prior.
    """
    result = np.empty(len(t))
    near = np.minimum(t, n) < _BEFORE * s
    for where in (np.flatnonzero(near), np.flatnonzero(~near)):
        for first in range(0, len(where), _ROWS):
            part = where[first : first + _ROWS]
            if s < _SMOOTH:
                result[part] = _by_integers(t[part], n, s, alpha)
            elif near[part[0]]:
                result[part] = _from_one_on(t[part], n, s, alpha)
            else:
                result[part] = _around(t[part], n, s, alpha)
    return np.clip(result, 1.0, n)


def _mean(t: Vector, s: float, alpha: float, k: Vector, weights: Vector) -> Vector:
    """Returns the means of rows of counts, (m, j), each with a weight beside its own of prior and estimate."""
    centre = np.clip(t, k.min(axis=1), k.max(axis=1))[:, None]
    # (t − k)² less (t − centre)², so that of an estimate far outside nothing cancels
    with np.errstate(divide="ignore"):
        logs = np.log(np.abs(weights)) - alpha * np.log(k)
    logs -= (k - centre) / s * ((k + centre - 2 * t[:, None]) / s) / 2
    logs -= logs.max(axis=1, keepdims=True)
    terms = np.sign(weights) * np.exp(logs)
    mean: Vector = centre[:, 0] + (terms * (k - centre)).sum(axis=1) / terms.sum(axis=1)
    return mean


def _by_integers(t: Vector, n: int, s: float, alpha: float) -> Vector:
    """Sums term by term, each row its own stretch of integers."""
    centre = np.clip(np.rint(t), 1, n)
    reach = np.arange(-np.ceil(_BEFORE * s) - 2, np.ceil(_BEHIND * s) + 3)
    k = centre[:, None] + reach
    inside = (k >= 1) & (k <= n)
    return _mean(t, s, alpha, np.clip(k, 1, n), inside.astype(np.float64))


def _from_one_on(t: Vector, n: int, s: float, alpha: float) -> Vector:
    """Sums from 1 to where nothing is likely any more, for estimates that are not far above 0."""
    end = min(n, int(np.ceil((_BEFORE + _BEHIND) * s)))
    first = np.arange(1.0, min(_SINGLE, end) + 1)
    last = np.arange(max(len(first) + 1, n - _SINGLE + 1), n + 1.0) if end == n else np.zeros(0)
    begin, until = len(first) + 0.5, (end - len(last)) + 0.5
    edges = [begin]
    while edges[-1] < until:
        edges.append(min(until, edges[-1] + min(edges[-1], 2 * s)))
    rows = (len(t), 1)
    k, weights = np.tile(first, rows), np.ones((len(t), len(first)))
    if len(edges) > 1:
        points, own = _panels(np.array(edges)[None, :])
        k, weights = np.hstack([k, np.tile(points, rows)]), np.hstack([weights, np.tile(own, rows)])
        for at, sign in ((begin, 1.0), (until, -1.0)):
            k, weights = _corrected(k, weights, np.full(len(t), at), sign)
    k, weights = np.hstack([k, np.tile(last, rows)]), np.hstack([weights, np.ones((len(t), len(last)))])
    return _mean(t, s, alpha, k, weights)


def _around(t: Vector, n: int, s: float, alpha: float) -> Vector:
    """Sums around estimates that are far above 0, up to n."""
    centre = np.minimum(t, n)
    low, high = centre - _BEHIND * s, np.minimum(centre + _BEHIND * s, n - _SINGLE + 0.5)
    k, weights = _panels(low[:, None] + (high - low)[:, None] * np.linspace(0, 1, 11))
    k, weights = _corrected(k, weights, high, -1.0)
    last = np.arange(n - _SINGLE + 1.0, n + 1)
    among = np.broadcast_to((high == n - _SINGLE + 0.5)[:, None], (len(t), len(last)))
    k, weights = np.hstack([k, np.tile(last, (len(t), 1))]), np.hstack([weights, among.astype(np.float64)])
    return _mean(t, s, alpha, k, weights)


def _panels(edges: Vector) -> tuple[Vector, Vector]:
    """Returns Gauss' points and weights between edges, (m, j) each."""
    half = np.diff(edges) / 2
    k = (edges[:, :-1] + half)[:, :, None] + half[:, :, None] * _POINTS
    weights = half[:, :, None] * _WEIGHTS
    return k.reshape(len(edges), -1), weights.reshape(len(edges), -1)


def _corrected(k: Vector, weights: Vector, end: Vector, sign: float) -> tuple[Vector, Vector]:
    """Adds f'/24 at an end of the integral, as a difference of two terms; right for f and for any multiple of it."""
    beside, one = np.column_stack([end + 0.5, end - 0.5]), np.full(len(end), sign / 24)
    return np.hstack([k, beside]), np.column_stack([weights, one, -one])
