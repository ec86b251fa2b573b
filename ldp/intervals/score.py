"""Score intervals: frequencies within z standard errors of an estimate."""

from __future__ import annotations

from fractions import Fraction
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from ldp.arguments import check_level

Vector = npt.NDArray[np.float64]
Of = Literal["reports", "population"]
"""Estimand of an interval: the share among the n reports, or in the population that the users are a sample of."""


def check(level: float, of: Of) -> None:
    """Checks a level and an estimand. Raises TypeError or ValueError."""
    check_level(level)
    if of not in ("reports", "population"):
        raise ValueError(f"`of` is {of!r}; allowed are 'reports' and 'population'")


def interval(
    estimated: Vector,
    n: int,
    difference: Fraction,
    inside: float | Vector,
    outside: float | Vector,
    level: float,
    of: Of,
    per_device: int | Vector = 1,
) -> tuple[Vector, Vector]:
    """Returns score intervals around k estimates f̃.

    An interval is {f : (f̃ − f)² ≤ a·((1−f)·outside + f·inside)} with a = z²/(n(p−q)²). Let X be the number of values
    of the estimated set that a report supports. `inside` is the variance of X if the report's user has a value of the
    set, and `outside` is the variance for other users. `difference` is p − q. With b = a·(inside − outside)/2 and
    w = a·(variance at f = f̃), the ends are f̃ plus the roots of x² − 2bx − w. The root of larger magnitude is computed
    first, and the other root is −w divided by it.

    If the users are an independent sample of a population with the share f, X has the additional variance f(1−f)(p−q)².
    For one value the result is then Wilson's interval of the count. If devices have `per_device` reports, the sample
    has n/per_device users.

    Returns:
        (low, high), each (k,) float64; f̃ lies between them. O(k).

    Raises:
        ValueError: `level`, the coverage, is not strictly between 0 and 1, or `of` is not a value of `Of`.
    """
    check(level, of)
    z = -float(ndtri((1.0 - level) / 2.0))
    a = z * z * float(1 / (n * difference**2))
    b = a * (inside - outside) / 2.0
    # could be negative by rounding, or for estimates outside [0, 1] if the variance nearly vanishes at that end
    w = a * np.maximum((1.0 - estimated) * outside + estimated * inside, 0.0)
    low, high = _roots(np.full_like(w, b), w)
    if of == "population":
        k = z * z * per_device / n
        sampled = _roots(
            (b + k * (0.5 - estimated)) / (1.0 + k),
            np.maximum(w + k * estimated * (1.0 - estimated), 0.0) / (1.0 + k),
        )
        # for f outside [0, 1] nothing is added, and the narrower interval's ends are the right ones
        low, high = np.minimum(low, sampled[0]), np.maximum(high, sampled[1])
    return estimated + low, estimated + high


def _roots(b: Vector, w: Vector) -> tuple[Vector, Vector]:
    """Returns the roots of x² − 2bx − w for w ≥ 0."""
    far = b + np.copysign(np.sqrt(b * b + w), b)
    near = np.divide(-w, far, out=np.zeros_like(w), where=far != 0.0)
    return np.minimum(near, far), np.maximum(near, far)
