"""Simultaneous bounds for devices that send several reports of one value.

A device with k reports has the mean of k supports, and devices are independent. The noise has two stages. The first is
drawn once for a device: its bit is 1 with probability p₁ for the device's value, and q₁ for any other. The second is
drawn for each report: it supports the value with probability p₂ if the bit is 1, and q₂ if not.

Devices with fewer than k reports make the sum of all supports less variable, because log E e^(jλX) is convex in j.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt
from scipy.special import expit, logit, ndtr

from ldp.intervals.score import Of

Vector = npt.NDArray[np.float64]
Stage = tuple[Fraction, Fraction]

_SHORT, _ROUGH, _HALVINGS = 0.2, 30, 80  # as in `binomial_tail`


@dataclass(frozen=True)
class Repeats:
    """Law of the mean support in k reports of a device.

    Attributes:
        k: the most reports of a device, at least 1.
        first: p₁ and q₁, the stage that all reports of a device share.
        second: p₂ and q₂, the stage of each report.
    """

    k: int
    first: Stage
    second: Stage

    def top_bounds(self, shares: Vector, n: int, d: int, level: float, of: Of) -> tuple[Vector, Vector]:
        """Returns simultaneous bounds for the most frequent of d values.

        As `binomial_tail.top_bounds`, for `shares` (the (m,) counts divided by n) of n reports of n/k devices. O(m).
        """
        risk = (1.0 - level) / 2.0
        (p1, q1), (p2, q2) = self.first, self.second
        mirrored = Repeats(self.k, (1 - q1, 1 - p1), (1 - q2, 1 - p2))
        low = self._lower(shares, n, risk / d, of)
        return low, 1.0 - mirrored._lower(1.0 - shares, n, risk / shares.size, of)

    def _lower(self, shares: Vector, n: int, risk: float, of: Of) -> Vector:
        """Returns a lower bound of the frequency for each share, at a risk.

        Each λ is the saddlepoint of one frequency, which falls as λ rises. So λ is found by bisection.
        """
        x = np.minimum(shares, 1.0 - 0.5 / n)
        low, high = np.zeros_like(x), np.full_like(x, 700.0)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2.0
            f, likely = self._at(x, n, middle, of)
            above = (f > 1.0) | ((f > 0.0) & (likely > risk))
            low, high = np.where(above, middle, low), np.where(above, high, middle)
        return np.clip(self._at(x, n, low, of)[0], 0.0, 1.0)

    def _at(self, x: Vector, n: int, lam: Vector, of: Of) -> tuple[Vector, Vector]:
        """Returns the frequency whose saddlepoint is λ, and the tail there.

        The tail is that of Lugannani and Rice (1980) with Daniels's correction for a lattice whose step is one device.
        """
        (p1, q1), k = map(float, self.first), self.k
        one, other = (_supports(float(each), k, lam) for each in self.second)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            if of == "population":
                mixed = logit(np.clip((x - other[1]) / (one[1] - other[1]), 0.0, 1.0))
                f = (expit(mixed - one[0] + other[0]) - q1) / (p1 - q1)
                own = rest = _mixture(q1 + np.clip(f, 0.0, 1.0) * (p1 - q1), one, other)
            else:
                own, rest = _mixture(p1, one, other), _mixture(q1, one, other)
                f = (x - rest[1]) / (own[1] - rest[1])
            share = np.clip(f, 0.0, 1.0)
            log_mean, variance = (share * own[i] + (1.0 - share) * rest[i] for i in (0, 2))
            devices = n / k
            w = np.sqrt(2.0 * devices * np.maximum(lam * x - log_mean, 0.0))
            u = -np.expm1(-lam) * np.sqrt(devices * variance)
            above = ndtr(-w) + np.exp(-w * w / 2.0) / math.sqrt(2.0 * math.pi) * (1.0 / u - 1.0 / w)
            above *= 1.0 + _SHORT * np.minimum(1.0, _ROUGH / (devices * variance))
        return f, np.where(w < 1e-3, 1.0, above)


Law = tuple[Vector, Vector, Vector]  # log E e^(λX), its first and its second derivative


def _supports(p: float, k: int, lam: Vector) -> Law:
    """Returns the law of the mean of k Bernoulli(p)."""
    tilted = expit(lam / k + logit(p))
    log_mean = k * (np.log1p(p * np.expm1(lam / k)) if p < 1.0 else lam / k)
    return log_mean, tilted, tilted * (1.0 - tilted) / k


def _mixture(p: float | Vector, one: Law, other: Law) -> Law:
    """Returns the law of `one` with probability p, and of `other` else."""
    a, b = np.log(p) + one[0], np.log1p(-p) + other[0]
    whole = np.logaddexp(a, b)
    weight = np.exp(a - whole)
    mean = weight * one[1] + (1.0 - weight) * other[1]
    apart = (one[1] - other[1]) ** 2
    return whole, mean, weight * one[2] + (1.0 - weight) * other[2] + weight * (1.0 - weight) * apart
