"""Anytime-valid (time-uniform) intervals from confidence sequences.

A pointwise 95 % interval covers at one fixed time. A confidence sequence covers simultaneously at all times, so you may
look at every snapshot and stop at any time.

**Martingale.** Given the users' values and their order, reports are independent. Let X be the contribution of a report
to a count C, of a value or of a set. X has one law (distribution) for users with the value, or with a value of the set,
and another law for other users. Let a(λ) and b(λ) be log E e^(λX) under these two laws, and let f be the frequency
among the first n users. Then

    E_n(λ) = exp(λ·C_n − n·(f·a(λ) + (1 − f)·b(λ)))

is a martingale of mean 1. The mean of E_n(λ) over K fixed λ is also a martingale of mean 1. By Ville's inequality, the
probability that this mean reaches 1/r at any n is at most r. A mean of K non-negative numbers is at least 1/K of the
largest. Therefore, with probability 1 − r, at every n and for each of the K values λ > 0,

    f ≥ (λ·C_n − n·b(λ) − log(K/r)) / (n·(a(λ) − b(λ))).

The largest of these K numbers is a lower bound. The values −λ give the upper bound. Each bound gets half of the risk.

**Choice of λ.** The best λ for n reports is about 3.5/(s√n), where s is the standard deviation of a contribution. s
lies between the standard deviations under the two laws, depending on f. Each λ is half of the previous one, from the
best one for n = 100 and the smaller s to the best one for n = 10¹³ and the larger s. If s² ≪ 1, a λ above log(1/s²),
about the largest logarithm of a likelihood ratio, cannot help. This keeps K at 6 to 25. Intervals are 1.6 to 2.1 times
as wide as pointwise ones. If the channel is expected to change fewer than one report, the pointwise interval is about
one user wide or less, and the anytime-valid interval is at most 14 users wide.

**Laws.** A report supports a value with probability p or q. For a set, the contribution has a known mean and variance
(`Oracle.set_variances`), and lies between 0 and the largest number of the set's values that a report supports. Bennett
(1962) bounds a(λ) and b(λ) by those of the worst law with this mean, variance and upper end. Except for Hadamard and
PGR, the law of independent supports gives another bound, and the smaller of the two bounds is used.

**Several documents.** For reports of several documents (`ldp.fleet`), each document has its own λ, such that
a(λ) − b(λ) is the same γ for all documents. The exponent is then linear in the fleet's frequency f, with slope
n·γ. For one value, this gives e^λ − 1 = (e^γ − 1)/(p − q·e^γ) and requires γ < log(p/q). If γ exceeds half of this
limit, the document uses half of the limit, which only lowers the bound: the document's share is at least 0. For a set,
λ solves δλ + (V_inside − V_outside)λ²/2 = γ with δ = p − q, and the largest a(λ) − b(λ) replaces γ. The upper bound is
1 minus the lower bound of the share of the other users, whose reports do not support the value.

Sources: Ville (1939); Robbins (1970), "Statistical methods related to the law of the iterated logarithm"; Howard,
Ramdas, McAuliffe and Sekhon (2021), "Time-uniform, nonparametric, nonasymptotic confidence sequences"; Joag-Dev and
Proschan (1983), "Negative association of random variables", theorem 2.8.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ldp.arguments import check_level

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Vector = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

Laws = tuple["Callable[[Vector], Vector]", "Callable[[Vector], Vector]"]
"""λ -> a(λ) and λ -> b(λ), for λ of either sign."""

Moments = tuple[float, float]  # Mean and variance of a report's contribution

_FROM, _TIMES, _LINES = 100.0, 4.0, 19
_UNTIL = _FROM * _TIMES ** (_LINES - 1)
_BLOCK = 16384  # Number of counts that fit in the processor's cache while all λ are tried
_DEVIATIONS = 3.5
"""Approximate distance of the interval's ends in standard deviations, for which the λ are optimal."""
_STEEPEST = 300.0  # Largest γ, which keeps exponentials finite


def of_values(counts: Vector, n: int, p: float, q: float, level: float) -> tuple[Vector, Vector]:
    """Returns anytime-valid intervals from support counts of n reports.

    A report supports its user's value with probability p, and any other value with probability q < p. For one value,
    the probability that the interval contains f at every n is at least `level`, in (0, 1).

    Returns:
        (low, high), each (k,) float64, in [0, 1]. O(k).

    Example:
        >>> import ldp
        >>> olh = ldp.OLH("1", domain_size=100)
        >>> low, high = of_values(np.array([5200.0]), 20_000, float(olh.p), float(olh.q), 0.95)
        >>> low.round(3), high.round(3)
        (array([0.]), array([0.095]))
    """
    variances = p * (1.0 - p), q * (1.0 - q)
    if not any(variances):  # reports are not random
        return counts / n, counts / n
    return _ends(counts, n, value_laws(p, q), _lambdas(variances), level)


def of_sets(
    totals: Vector, n: int, inside: Moments, outside: Moments, laws: Laws, level: float
) -> tuple[Vector, Vector]:
    """Returns anytime-valid intervals of sets from k sums of supports.

    Let X be the number of the set's values that a report supports. `inside` contains the mean of X and an upper bound
    of the variance of X, for users with a value of the set. `outside` contains the same for other users, with a smaller
    mean. `laws` are those of `SetVariance.laws`. Level and result are as for `of_values`.
    """
    variances = inside[1], outside[1]
    if not any(variances):  # reports are not random
        share = np.clip((totals / n - outside[0]) / (inside[0] - outside[0]), 0.0, 1.0)
        return share, share
    return _ends(totals, n, laws, _lambdas(variances), level)


def of_documents(
    counts: Vector, reports: Vector, channels: Sequence[tuple[float, float]], level: float
) -> tuple[Vector, Vector]:
    """Returns anytime-valid intervals of k values from several documents.

    `counts` and `reports` are (documents, k): the support of each value, and the number of reports of the document.
    Both are 0 if the document does not have the value. `channels` contains p and q of each document. The intervals
    cover the share among all reports of a value's documents. Level and result are as for `of_values`.

    Example:
        >>> counts, reports = np.array([[700.0], [200.0]]), np.array([[1000.0], [500.0]])
        >>> low, high = of_documents(counts, reports, [(0.75, 0.25), (0.5, 0.1)], 0.95)
        >>> low.round(3), high.round(3)
        (array([0.76]), array([0.947]))
    """
    check_level(level)
    p, q = np.array(channels).T[:, :, None]
    gamma = _slopes([np.sqrt(x * (1.0 - x)) / (p - q) for x in (p, q)])

    def lower(counts: Vector, p: Vector, q: Vector) -> Vector:
        with np.errstate(divide="ignore"):  # q = 0 has no limit
            steep = np.minimum(gamma, np.minimum(np.log(p / q) / 2.0, _STEEPEST))
        grown = np.expm1(steep) / (p - q * np.exp(steep))
        return _lower(counts, reports, np.log1p(grown), np.log1p(q * grown), gamma, level)

    return lower(counts, p, q), 1.0 - lower(reports - counts, 1.0 - q, 1.0 - p)


def of_document_sets(
    totals: Vector,
    reports: Vector,
    moments: Sequence[tuple[Moments, Moments]],
    laws: Sequence[Laws],
    level: float,
) -> tuple[float, float]:
    """Returns the anytime-valid interval of a set from several documents.

    `totals` and `reports` are (documents,), for all documents that have the set, with or without reports. `moments` and
    `laws` are from the `SetVariance` of each document. Level and result are as for `of_documents`.
    """
    check_level(level)
    inside, outside = np.array(moments).transpose(1, 2, 0)[..., None]
    apart = inside[0] - outside[0]
    deviations: Vector = np.sqrt([inside[1], outside[1]])
    if not deviations.any():  # reports are not random
        share = float(
            np.clip((totals - reports * outside[0, :, 0]) @ (1.0 / apart) / reports.sum(), 0.0, 1.0)[0]
        )
        return share, share
    gamma, lows = _slopes(deviations / apart), []
    largest = np.log1p(1.0 / np.where(deviations > 0.0, deviations, np.inf).min(axis=0))
    for side in (1.0, -1.0):
        bend = 2.0 * side * (inside[1] - outside[1]) * gamma
        lam = np.minimum(2.0 * gamma / (apart + np.sqrt(np.maximum(apart**2 + bend, 0.0))), largest)
        own, other = (
            np.array([law[which](side * each) for law, each in zip(laws, lam, strict=True)])
            for which in (0, 1)[:: int(side)]
        )
        steep = (own - other)[reports > 0].max(axis=0)
        steep[steep <= 0.0] = np.inf  # λ is too large for the moments
        lows.append(_lower(side * totals[:, None], reports[:, None], lam, other, steep, level)[0])
    return float(lows[0]), 1.0 - float(lows[1])


def _slopes(deviations: npt.ArrayLike) -> Vector:
    """Returns all γ for documents with these standard deviations.

    A standard deviation is that of a report's contribution to the estimate, in users.
    """
    positive = np.extract(np.asarray(deviations) > 0.0, deviations)
    small, large = float(positive.min()), float(positive.max())
    more = math.ceil(math.log2(large / small) - 1e-9)  # equal deviations differ by rounding
    gamma: Vector = _DEVIATIONS / small / np.sqrt(_FROM * _TIMES ** np.arange(_LINES + more))
    return gamma


def _lower(counts: Vector, reports: Vector, lam: Vector, base: Vector, gamma: Vector, level: float) -> Vector:
    """Returns the largest of the bounds (Σ λ·C − Σ n·b(λ) − log(K/r))/(n·γ)."""
    fee = math.log(2.0 * gamma.size / (1.0 - level))
    low = np.zeros(counts.shape[1])
    for start in range(0, low.size, _BLOCK):
        own, n = counts[:, start : start + _BLOCK], reports[:, start : start + _BLOCK]
        with np.errstate(divide="ignore"):  # values without reports
            bounds = (lam.T @ own - base.T @ n - fee) / (gamma[:, None] * n.sum(axis=0))
        low[start : start + _BLOCK] = np.clip(bounds.max(axis=0), 0.0, 1.0)
    return low


def value_laws(p: float, q: float) -> Laws:
    """Returns the functions log E e^(λX) for Bernoulli(p) and Bernoulli(q)."""

    def law(probability: float) -> Callable[[Vector], Vector]:
        return lambda lam: _log_mean(probability, lam)

    return law(p), law(q)


def _log_mean(p: float, lam: Vector) -> Vector:
    """Returns log(1 − p + p·e^λ), accurately for small and large λ."""
    with np.errstate(divide="ignore", over="ignore"):
        small = np.log1p(p * np.expm1(np.clip(lam, -1.0, 1.0)))
        return np.where(np.abs(lam) < 1.0, small, np.logaddexp(np.log1p(-p), np.log(p) + lam))


def set_laws(inside: Moments, outside: Moments, most: int) -> Laws:
    """Bounds log E e^(λX) for X in 0..`most` with the moments of the two laws."""

    def law(mean: float, variance: float) -> Callable[[Vector], Vector]:
        def bound(lam: Vector) -> Vector:
            end = np.where(lam > 0.0, most - mean, mean)
            return lam * mean + _bennett(np.abs(lam), variance, end)

        return bound

    return law(*inside), law(*outside)


def least_laws(bounds: Laws, p: float, q: float, m: int) -> Laws:
    """Returns the smaller of `bounds` and the laws of m independent supports.

    The latter are exact for independent supports (OLH with an ideal hash, unary encoding). They are bounds for reports
    that support a fixed number of values (GRR, Subset Selection), because such supports are negatively associated.
    """

    def inside(lam: Vector) -> Vector:
        return np.minimum(bounds[0](lam), _log_mean(p, lam) + (m - 1) * _log_mean(q, lam))

    def outside(lam: Vector) -> Vector:
        return np.minimum(bounds[1](lam), m * _log_mean(q, lam))

    return inside, outside


def _bennett(lam: Vector, variance: float, end: Vector) -> Vector:
    """Bounds log E e^(λX) for λ > 0 and X ≤ `end` with mean 0."""
    if not variance:
        return np.zeros_like(lam)
    share, rest = (each / (variance + end * end) for each in (variance, end * end))
    with np.errstate(divide="ignore"):  # if the mean is rounded to the upper end
        return np.logaddexp(np.log(share) + lam * end, np.log(rest) - lam * variance / end)


def _lambdas(variances: Sequence[float]) -> Vector:
    """Returns the λ > 0 for all mixtures of laws with these variances."""
    small, large = (math.sqrt(end(v for v in variances if v)) for end in (min, max))
    largest = min(_DEVIATIONS / small / math.sqrt(_FROM), 2.0 * math.log1p(1.0 / small))
    smallest = _DEVIATIONS / large / math.sqrt(_UNTIL)
    halvings = max(round(math.log2(largest / smallest)), 0)
    return largest * np.ldexp(1.0, -np.arange(halvings + 1))


def _ends(counts: Vector, n: int, laws: Laws, lam: Vector, level: float) -> tuple[Vector, Vector]:
    check_level(level)
    fee = math.log(2.0 * lam.size / (1.0 - level))
    low, high = np.zeros_like(counts), np.ones_like(counts)
    for side, end, keep in ((lam, low, np.maximum), (-lam, high, np.minimum)):
        a, b = (law(side) for law in laws)
        lines = zip(side.tolist(), (n * b + fee).tolist(), (n * (a - b)).tolist(), strict=True)
        # a slope of the other sign means that λ is too large for the moments, so that this is not a bound
        bounds = [(at / steep, base / steep) for at, base, steep in lines if steep * at > 0.0]
        for start in range(0, counts.size, _BLOCK):
            block, own = counts[start : start + _BLOCK], end[start : start + _BLOCK]
            for times, less in bounds:
                keep(own, times * block - less, out=own)
    return np.minimum(low, 1.0), np.maximum(high, 0.0)
