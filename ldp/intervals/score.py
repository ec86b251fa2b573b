"""Score intervals: frequencies within z standard errors of an estimate."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

Vector = npt.NDArray[np.float64]


def interval(
    estimated: Vector, n: int, difference: Fraction, inside: float, outside: float, level: float
) -> tuple[Vector, Vector]:
    """Returns score intervals around k estimates f̃.

    An interval is {f : (f̃ − f)² ≤ a·((1−f)·outside + f·inside)} with a = z²/(n(p−q)²). Let X be the number of values
    of the estimated set that a report supports. `inside` is the variance of X if the report's user has a value of the
    set, and `outside` is the variance for other users. `difference` is p − q. With b = a·(inside − outside)/2 and
    w = a·(variance at f = f̃), the ends are f̃ plus the roots of x² − 2bx − w. The root of larger magnitude is computed
    first, and the other root is −w divided by it.

    Returns:
        (low, high), each (k,) float64; f̃ lies between them. O(k).

    Raises:
        ValueError: `level`, the coverage, is not strictly between 0 and 1.
    """
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must lie strictly between 0 and 1, got {level}")
    z = -float(ndtri((1.0 - level) / 2.0))
    a = z * z * float(1 / (n * difference**2))
    b = a * (inside - outside) / 2.0
    # could be negative by rounding, or for estimates outside [0, 1] if the variance nearly vanishes at that end
    w = a * np.maximum((1.0 - estimated) * outside + estimated * inside, 0.0)
    far = b + math.copysign(1.0, b) * np.sqrt(b * b + w)
    near = np.divide(-w, far, out=np.zeros_like(w), where=far != 0.0)
    return estimated + np.minimum(near, far), estimated + np.maximum(near, far)
