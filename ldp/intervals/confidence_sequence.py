"""Anytime-valid (time-uniform) intervals: a confidence sequence covers at every n together.

A pointwise 95 % interval holds at one fixed time. A confidence sequence covers the truth at all times at once, so you
may look at every snapshot and stop when you like.

**The martingale.** Given the users' values, in any order, reports are independent, and the contribution of a report to
a count C has one law for a user with the value (or with one of the set's), and another for a user without. Let a(λ) and
b(λ) be the logarithms of E e^(λ·contribution) for the two. With f the frequency among the first n users,

    E_n(λ) = exp(λ·C_n − n·(f·a(λ) + (1 − f)·b(λ)))

is a martingale of mean 1. So is the mean of E_n(λ) over K fixed λ, and by Ville's inequality it ever reaches 1/r with a
probability of at most r. A mean of K non-negative numbers is at least a K-th of the largest. So with probability 1 − r,
at every n and for each of K λ > 0,

    f ≥ (λ·C_n − n·b(λ) − log(K/r)) / (n·(a(λ) − b(λ))),

and the largest of these K numbers is a lower bound. −λ gives the upper one; each has half of the risk.

**The λ.** The best one for n reports is about z/(s√n), s the deviation of a contribution. λ is taken so for n = 100,
400, 1600, ... up to 10¹³: K = 19. The interval is 1.7 to 2 times as wide as the pointwise one.

**The laws.** A value is supported with probability p or q. For a set, the contribution has a known mean and variance
(`Oracle.set_variances`), and lies between 0 and the most of the set's values that a report supports. Bennett (1962)
bounds a(λ) and b(λ) by those of the worst law with that mean, variance and end.

**Several rates.** Reports at several rates (`RatedEstimate`) have a λ for each rate, for which a(λ) − b(λ) is one γ
for all: e^λ − 1 = (e^γ − 1)/(p − q·e^γ). The exponent is then linear in the pooled frequency f again, with slope n·γ. A
rate has no γ of log(p/q) or more; where γ is more than half of that, the rate stays at the half, which only lowers the
bound. The upper bound is 1 minus the lower bound of the other value.

Sources: Ville (1939); Robbins (1970), "Statistical methods related to the law of the iterated logarithm"; Howard,
Ramdas, McAuliffe and Sekhon (2021), "Time-uniform, nonparametric, nonasymptotic confidence sequences".
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Vector = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

Laws = tuple["Callable[[Vector], Vector]", "Callable[[Vector], Vector]"]
"""λ -> a(λ) and λ -> b(λ), for λ of either sign."""

Moments = tuple[float, float]  # The mean and the variance of what a report adds

_FROM, _TIMES, _LINES = 100.0, 4.0, 19
_BLOCK = 16384  # So many counts stay in a processor's cache while all λ are tried
_DEVIATIONS = 3.5
"""How many standard deviations away the interval's ends lie, about; the λ are the best ones for that."""


def of_values(counts: Vector, n: int, p: float, q: float, level: float) -> tuple[Vector, Vector]:
    """Anytime-valid intervals of (k,) support counts among the first n reports, for one value at a time.

    A report supports its user's value with probability p, another one with q < p. `level`, in (0, 1), is the
    probability that f is inside at every n, at least.

    Returns:
        (low, high), each (k,) float64, in [0, 1]. O(k).

    Example:
        >>> import ldp
        >>> olh = ldp.OLH("1", domain_size=100)
        >>> low, high = of_values(np.array([5200.0]), 20_000, float(olh.p), float(olh.q), 0.95)
        >>> low.round(3), high.round(3)
        (array([0.]), array([0.095]))
    """
    deviation = math.sqrt(max(p * (1.0 - p), q * (1.0 - q)))
    if not deviation:  # there is no chance in it
        return counts / n, counts / n
    return _ends(counts, n, value_laws(p, q), math.sqrt(q * (1.0 - q)) or deviation, level)


def of_sets(
    totals: Vector, n: int, inside: Moments, outside: Moments, most: int, level: float
) -> tuple[Vector, Vector]:
    """Anytime-valid intervals of sets of one size, from the (k,) sums of their values' support counts.

    `inside` is the mean, and an upper bound of the variance, of how many of a set's values one report supports, for a
    user with one of them; `outside` the same for another user, with a smaller mean; `most` the most that a report
    supports. Level and result as for `of_values`.
    """
    deviation = math.sqrt(max(inside[1], outside[1]))
    if not deviation:  # there is no chance in it
        share = np.clip((totals / n - outside[0]) / (inside[0] - outside[0]), 0.0, 1.0)
        return share, share
    return _ends(totals, n, set_laws(inside, outside, most), deviation, level)


def of_rates(counts: Counts, channels: Sequence[tuple[float, float]], level: float) -> tuple[Vector, Vector]:
    """Anytime-valid intervals of the pooled frequencies of two values at several rates.

    `counts` are (rates, 2), at least one; `channels` are p and q of each rate, p + q = 1. Level and result as for
    `of_values`.
    """
    _check(level)
    p, q = (np.array([channel[which] for channel in channels])[:, None] for which in (0, 1))
    apart = p[:, 0] - q[:, 0]
    # λ is about γ/(p − q): the deviations are those of a report's share of the pooled estimate
    deviations = np.sqrt(p[:, 0] * q[:, 0]) / apart
    more = math.ceil(math.log2(deviations.max() / deviations.min()))
    gamma = _DEVIATIONS / deviations.min() / np.sqrt(_FROM * _TIMES ** np.arange(_LINES + more))
    steep = np.minimum(gamma, np.log(p / q) / 2.0)
    grown = np.expm1(steep) / (p - q * np.exp(steep))
    lam, base = np.log1p(grown), np.log1p(q * grown)
    n = counts.sum(axis=1)
    fee = math.log(2.0 * gamma.size / (1.0 - level))
    low = np.array([((lam.T @ each - base.T @ n - fee) / (n.sum() * gamma)).max() for each in counts.T])
    low = np.clip(low, 0.0, 1.0)
    return low, 1.0 - low[::-1]


def value_laws(p: float, q: float) -> Laws:
    """Logarithms of the moment generating functions of a value's contribution: 1 with probability p, or q."""

    def law(probability: float) -> Callable[[Vector], Vector]:
        return lambda lam: _log_mean(probability, lam)

    return law(p), law(q)


def _log_mean(p: float, lam: Vector) -> Vector:
    """log(1 − p + p·e^λ), as exact for small λ as for those whose power is no float64."""
    with np.errstate(divide="ignore", over="ignore"):
        small = np.log1p(p * np.expm1(np.clip(lam, -1.0, 1.0)))
        return np.where(np.abs(lam) < 1.0, small, np.logaddexp(np.log1p(-p), np.log(p) + lam))


def set_laws(inside: Moments, outside: Moments, most: int) -> Laws:
    """Bounds of the same for the sum of a set's counts, from its moments; see `of_sets`."""

    def law(mean: float, variance: float) -> Callable[[Vector], Vector]:
        def bound(lam: Vector) -> Vector:
            end = np.where(lam > 0.0, most - mean, mean)
            return lam * mean + _bennett(np.abs(lam), variance, end)

        return bound

    return law(*inside), law(*outside)


def _bennett(lam: Vector, variance: float, end: Vector) -> Vector:
    """The most that log E e^(λX) can be, λ > 0, for X of mean 0, at most a variance, and X ≤ end."""
    if not variance:
        return np.zeros_like(lam)
    share = variance / (variance + end * end)
    return np.logaddexp(np.log(share) + lam * end, np.log1p(-share) - lam * variance / end)


def _check(level: float) -> None:
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must lie strictly between 0 and 1, got {level}")


def _ends(counts: Vector, n: int, laws: Laws, deviation: float, level: float) -> tuple[Vector, Vector]:
    _check(level)
    lam = _DEVIATIONS / deviation / np.sqrt(_FROM * _TIMES ** np.arange(_LINES))
    fee = math.log(2.0 * _LINES / (1.0 - level))
    low, high = np.zeros_like(counts), np.ones_like(counts)
    for side, end, keep in ((lam, low, np.maximum), (-lam, high, np.minimum)):
        a, b = (law(side) for law in laws)
        lines = zip(side.tolist(), (n * b + fee).tolist(), (n * (a - b)).tolist(), strict=True)
        # where the slope has the other sign, λ is too large for what is known of the law, and this is no bound
        bounds = [(at / steep, base / steep) for at, base, steep in lines if steep * at > 0.0]
        for start in range(0, counts.size, _BLOCK):
            block, own = counts[start : start + _BLOCK], end[start : start + _BLOCK]
            for times, less in bounds:
                keep(own, times * block - less, out=own)
    return np.minimum(low, 1.0), np.maximum(high, 0.0)
