"""Tail bounds of support counts, also for tails that are far from normal.

Reports are independent given the users' values. If n·f users have a value, its support count is the sum of two
binomials, Bin(nf, p) + Bin(n(1−f), q), for every protocol. At n·q = 1 a count of 6 or more is 2,000 times as likely as
under the normal distribution.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv, ndtr

from ldp.intervals.score import Of

Vector = npt.NDArray[np.float64]

_SHORT = 0.2  # allowance for the relative shortfall of the saddlepoint tail; the largest observed is 0.14
_ROUGH = 30  # variance of C above which the allowance decreases
_HALVINGS = 53


def lower_bound(counts: Vector, n: int, p: Fraction, q: Fraction, risk: float) -> Vector:
    """Returns a lower bound of the frequency for each count c.

    The bound is the lowest frequency f at which the count C satisfies Pr[C ≥ c] ≥ risk. It exceeds the true frequency
    with a probability of at most `risk` ≤ ½. `counts` contains k whole numbers in 0..n. A report supports its user's
    value with probability p, and any other value with probability q < p. An upper bound is
    1 − lower_bound(n − counts, n, 1 − q, 1 − p, risk). The result is (k,) float64 in [0, 1], by bisection. O(k).

    Example:
        >>> import ldp
        >>> oracle = ldp.OLH("1", domain_size=100)
        >>> lower_bound(np.array([2600.0, 3000.0]), 10_000, oracle.p, oracle.q, 0.025).round(4)
        array([0.0063, 0.1828])
    """
    low, high = np.zeros_like(counts), np.ones_like(counts)
    law = _floats(p, q)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        likely = _tail(counts / n, n, *law, middle) >= risk
        high = np.where(likely, middle, high)
        low = np.where(likely, low, middle)
    return low


def top_bounds(
    counts: Vector, n: int, p: Fraction, q: Fraction, d: int, level: float, of: Of
) -> tuple[Vector, Vector]:
    """Returns simultaneous bounds for the k most frequent of d values.

    See `query.top_interval`. `counts` is (k,), and p and q are as for `lower_bound`. The probability that all intervals
    contain the frequencies is at least `level`, in (0, 1). For a sampled population, the counts are Bin(n, q + f(p−q)),
    and the bounds are those of Clopper and Pearson (1934). O(k).
    """
    risk = (1.0 - level) / 2.0
    if of == "population":
        low, high = _least(counts, n, risk / d), 1.0 - _least(n - counts, n, risk / counts.size)
        return np.clip((low - float(q)) / float(p - q), 0.0, 1.0), np.clip(
            (high - float(q)) / float(p - q), 0.0, 1.0
        )
    low = lower_bound(counts, n, p, q, risk / d)
    return low, 1.0 - lower_bound(n - counts, n, 1 - q, 1 - p, risk / counts.size)


def _least(counts: Vector, n: int, risk: float) -> Vector:
    """Returns the lowest share x with Pr[Bin(n, x) ≥ c] ≥ risk for each count."""
    found: Vector = betaincinv(np.maximum(counts, 1.0), n - counts + 1.0, risk)
    return np.where(counts > 0.0, found, 0.0)


def tail(counts: Vector, n: int, p: Fraction, q: Fraction, f: Vector) -> Vector:
    """Returns upper bounds of Pr[C ≥ c] for C ~ Bin(nf, p) + Bin(n(1−f), q).

    The bound is the saddlepoint approximation of Lugannani and Rice (1980) with the continuity correction of Daniels
    (1987) for integers, plus an allowance for its error. The allowance is a fifth if C has a small variance, and almost
    0 if the variance is large. The tilted count is also a sum of two binomials, so the saddlepoint is log y for the
    positive root y of a quadratic. The result is 1 for counts up to the mean. n·f need not be an integer. `counts`, `f`
    and the result are (k,). O(k).
    """
    return _tail(counts / n, n, *_floats(p, q), f)


def _floats(p: Fraction, q: Fraction) -> tuple[float, float, float, float]:
    return float(p), float(q), float(1 - p), float(1 - q)  # each rounded once


def _tail(x: Vector, n: int, p: float, q: float, not_p: float, not_q: float, f: Vector) -> Vector:
    """Computes `tail` for counts x·n."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # a·y² + b·y − c = 0: the mean of the tilted count is x
        a = (1.0 - x) * (p * q)
        b = f * (p * not_q) + (1.0 - f) * (q * not_p) - x * (p * not_q + q * not_p)
        c = x * (not_p * not_q)
        root = np.sqrt(b * b + 4.0 * a * c)
        y = np.where(b < 0.0, (root - b) / (2.0 * a), 2.0 * c / (b + root))
        own, other = p * (y - 1.0), q * (y - 1.0)
        exponent = x * np.log(y) - f * np.log1p(own) - (1.0 - f) * np.log1p(other)
        tilted = y * (f * (p * not_p) / (1.0 + own) ** 2 + (1.0 - f) * (q * not_q) / (1.0 + other) ** 2)
        w = np.sqrt(2.0 * n * np.maximum(exponent, 0.0))
        u = (1.0 - 1.0 / y) * np.sqrt(n * tilted)
        above = ndtr(-w) + np.exp(-w * w / 2.0) / math.sqrt(2.0 * math.pi) * (1.0 / u - 1.0 / w)
        variance = n * (f * (p * not_p) + (1.0 - f) * (q * not_q))
        above *= 1.0 + _SHORT * np.minimum(1.0, _ROUGH / variance)
        all_of_them = np.exp(n * (f * np.log(p) + (1.0 - f) * np.log(q)))
    near = (x <= q + (p - q) * f) | (w < 1e-3)  # at most the mean, or close to it
    result: Vector = np.where(near, 1.0, np.where(x >= 1.0, all_of_them, above))
    return result
