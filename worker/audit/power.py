"""Power: expected count given an estimate, under a power-law prior.

Prior: the number k of users with a value is 1 to n, with probability proportional to k^−α. α in [0, 4] makes the mean
n/d. An estimated count t is normal around k with standard deviation s. A sum adds its first and last terms, which may
be steep, one by one. For the terms in between it uses the Euler–Maclaurin formula
Σ f(k) = ∫ f + (f'(begin) − f'(end))/24, from 1/2 before the first term to 1/2 after the last.
"""

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]

_SINGLE = 256  # Number of terms at each end that are added one by one
_BELOW, _ABOVE = 20.0, 10.0  # Standard deviations around an estimate that the sum covers
_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(16)


def exponent(n: int, d: int) -> float:
    """Returns α by bisection, clipped to [0, 4]."""
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
    """Returns the expected count given each estimate; O(len(t)) for any n."""
    return np.clip([_mean(float(each), n, s, alpha) for each in t], 1.0, n)


def _mean(t: float, n: int, s: float, alpha: float) -> float:
    top = min(t, n)
    low, high = max(1.0, np.floor(top - _BELOW * s)), min(float(n), np.ceil(max(top, 1.0) + _ABOVE * s))
    k, weights = _points_and_weights(low, high, s)
    centre = float(min(max(t, low), high))
    # (t − k)² − (t − centre)², factored: avoids cancellation for a t far outside [1, n]
    logs = np.log(np.abs(weights)) - alpha * np.log(k)
    logs -= (k - centre) / s * ((k + centre - 2 * t) / s) / 2
    terms = np.sign(weights) * np.exp(logs - logs.max())
    return centre + float((terms * (k - centre)).sum() / terms.sum())


def _points_and_weights(low: float, high: float, s: float) -> tuple[Vector, Vector]:
    if high - low < 8 * _SINGLE:
        k = np.arange(low, high + 1)
        return k, np.ones(len(k))
    first, last = np.arange(low, low + _SINGLE), np.arange(high - _SINGLE + 1, high + 1)
    begin, end = first[-1] + 0.5, last[0] - 0.5
    edges = [begin]
    while edges[-1] < end:
        edges.append(min(end, edges[-1] + min(edges[-1], 2 * s)))
    half = np.diff(edges)[:, None] / 2
    middle = (np.array(edges[:-1])[:, None] + half + half * _POINTS).ravel()
    slopes = np.array([begin + 0.5, begin - 0.5, end - 0.5, end + 0.5])
    k = np.concatenate([first, last, middle, slopes])
    ends = np.ones(2 * _SINGLE)
    return k, np.concatenate([ends, (half * _WEIGHTS).ravel(), np.array([1, -1, 1, -1]) / 24])
