"""Estimate: the unbiased frequencies of one stream, with what is known about their error."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

if TYPE_CHECKING:
    from ldp.oracles.oracle import Oracle

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Estimate:
    """Base: f̃ = (c/n − q)/(p − q) for every value of the domain, with n and the oracle it came from.

    Source: Section III, Equations 3 (`std_error`) and 5 (`sigma`). Frequencies are fractions of the
    n reports (reports, not users); they may be negative or above 1.

    Attributes:
        frequencies: (d,) float64, read-only; a copy of what was given.
        n: the number of reports, at least 1.
        oracle: the protocol whose p and q the estimate was made with.

    Raises:
        ValueError: frequencies not one vector of the oracle's d finite numbers, or n below 1.
        TypeError: n is not an integer.

    Example:
        >>> import ldp
        >>> oracle = ldp.oracle("grr", epsilon="1", domain_size=4)
        >>> estimate = Estimate([0.7, 0.3, -0.1, 0.1], 10_000, oracle)
        >>> round(estimate.sigma, 5)
        0.01264
        >>> low, high = estimate.interval(0.95)
        >>> bool(low[0] < 0.7 < high[0])
        True
    """

    frequencies: Vector
    n: int
    oracle: Oracle

    def __post_init__(self) -> None:
        frequencies = np.array(self.frequencies, dtype=np.float64)
        d = self.oracle.domain_size
        if frequencies.shape != (d,):
            raise ValueError(f"frequencies have shape {frequencies.shape}; the oracle's domain needs ({d},)")
        if not np.isfinite(frequencies).all():
            worst = int(np.flatnonzero(~np.isfinite(frequencies))[0])
            raise ValueError(f"frequencies must be finite; value {worst} has {frequencies[worst]}")
        if isinstance(self.n, bool) or not isinstance(self.n, (int, np.integer)):
            raise TypeError(f"n must be an integer, got {type(self.n).__name__}")
        if self.n < 1:
            raise ValueError(f"n must be at least 1 report, got {self.n}")
        frequencies.flags.writeable = False
        object.__setattr__(self, "frequencies", frequencies)
        object.__setattr__(self, "n", int(self.n))

    @property
    def sigma(self) -> float:
        """σ, the standard deviation of f̃ for a value that nobody has: √(q(1−q)/(n(p−q)²)) (Equation 5)."""
        p, q = self.oracle.p, self.oracle.q
        return math.sqrt(q * (1 - q) / (self.n * (p - q) ** 2))

    def std_error(self) -> Vector:
        """Standard deviation of each f̃ (Equation 3) with f̃ itself, clipped to [0, 1], in the place of f.

        The variance q(1−q) + f(p−q)(1−p−q) is computed as (1−f)·q(1−q) + f·p(1−p), which is the same
        and neither cancels nor turns negative.

        Returns:
            (d,) float64. O(d).
        """
        p, q = self.oracle.p, self.oracle.q
        scale = self.n * (p - q) ** 2
        absent, present = float(q * (1 - q) / scale), float(p * (1 - p) / scale)
        f = np.clip(self.frequencies, 0.0, 1.0)
        return np.sqrt((1.0 - f) * absent + f * present)

    def interval(self, level: float = 0.95) -> tuple[Vector, Vector]:
        """Score interval around Base: {f : |f̃ − f|·(p−q) ≤ z·√((q(1−q) + f(p−q)(1−p−q))/n)}.

        The count of a value has exactly this variance when its true frequency in the given population is
        f, so the interval holds its level for this population. It is not clipped to [0, 1], holds for one
        value at a time, and says nothing about post-processed values: there is no such interval for them.

        With a = z²/(n(p−q)²), b = a·(p−q)(1−p−q)/2 and w = a·(variance at f = f̃), the ends are f̃ plus the
        roots of x² − 2bx − w: the larger root in magnitude directly, the other as −w over it.

        Args:
            level: the coverage, strictly between 0 and 1.

        Returns:
            (low, high), each (d,) float64. O(d).

        Raises:
            ValueError: level is not strictly between 0 and 1.
        """
        if not 0.0 < level < 1.0:
            raise ValueError(f"level must lie strictly between 0 and 1, got {level}")
        p, q = self.oracle.p, self.oracle.q
        z = -float(ndtri((1.0 - level) / 2.0))
        a = z * z * float(1 / (self.n * (p - q) ** 2))
        b = a * float((p - q) * (1 - p - q)) / 2.0
        support = float(q) + float(p - q) * self.frequencies  # c/n
        # q(1−q) + f̃(p−q)(1−p−q), linear between its values at c = 0 and c = n; below 0 only by rounding.
        w = a * np.maximum((1.0 - support) * float(p * q) + support * float((1 - p) * (1 - q)), 0.0)
        far = b + math.copysign(1.0, b) * np.sqrt(b * b + w)
        near = np.divide(-w, far, out=np.zeros_like(w), where=far != 0.0)
        return self.frequencies + np.minimum(near, far), self.frequencies + np.maximum(near, far)
