"""The largest effect of one poisoning report.

LDP protects users from the operator, not the estimate from users. A report counts (1 − q)/(p − q) users for each value
that it supports and −q/(p − q) for each other; an honest one counts 1 for its user's value on average and 0 for others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ldp.arguments import as_indices, as_integer
from ldp.estimate import Estimate, Indices, Vector
from ldp.oracles.oracle import Oracle
from ldp.oracles.rated_estimate import RatedEstimate


@dataclass(frozen=True)
class PoisoningEffect:
    """The largest effect of one poisoning report, in users.

    Attributes:
        up: raises the estimate of one value by this many users, (1 − q)/(p − q).
        down: lowers one by this many users, q/(p − q).
        values: raises this many values at once (`Oracle.most_supported`).
        total: raises the sum over these values by this many users; no set's sum falls by more.
        share: the share of all reports that moves a value by one standard error if poisoned: √(q/(n(1 − q))).
    """

    up: float
    down: float
    values: int
    total: float
    share: float


def effect(oracle: Oracle, reports: int) -> PoisoningEffect:
    """Returns the largest effect of one poisoning report in a snapshot of n ≥ 1 reports.

    Raises TypeError for an n that is not an int, ValueError for one below 1.

    Example:
        >>> import ldp
        >>> one = effect(ldp.OUE("1", domain_size=1024), 1_000_000)
        >>> round(one.up, 2), round(one.down, 2), one.values, round(one.total), f"{one.share:.2%}"
        (3.16, 1.16, 380, 1202, '0.06%')
    """
    n = as_integer("reports", reports, 1, (1 << 63) - 1)
    p, q = oracle.p, oracle.q
    up = float((1 - q) / (p - q))
    values = oracle.most_supported
    return PoisoningEffect(up, float(q / (p - q)), values, values * up, math.sqrt(q / (n * (1 - q))))


def tolerance(estimate: Estimate, low: Vector, high: Vector, values: Indices | None = None) -> Vector:
    """Poisoning tolerance: the fewest additional reports that put an estimate outside its interval.

    With C of n reports that support a value, k more make it (C + k)/(n + k), which is above π when k > (nπ − C)/(1 −
    π); π = q + (p − q)·high is the upper end. Downwards it is below when k > (C − nπ)/π. The result is the fewer of
    both. Of reports at several rates those at the highest count most: each adds (1 − q)/(p − q) to the sum whose mean
    the pooled estimate is, or −q/(p − q).

    Args:
        estimate: Base, of counts.
        low: (k,) lower ends of intervals.
        high: (k,) upper ends.
        values: (k,) indices; None for all.

    Returns:
        (k,) whole numbers; infinity where no number suffices. O(k).

    Raises:
        ValueError: frequencies that are not from counts (`Estimate.support`).

    Example:
        >>> import ldp
        >>> oue = ldp.OUE("1", domain_size=3)
        >>> estimate = oue.estimate([5379, 4000, 3000], n=10_000)
        >>> tolerance(estimate, *estimate.interval())
        array([188., 159., 129.])
    """
    if isinstance(estimate, RatedEstimate):
        one = effect(estimate.rated, estimate.n)
        sums = estimate.n * (estimate.frequencies if values is None else estimate.frequencies[values])
        return _tolerance(sums, estimate.n, low, high, -one.down, one.up)
    p, q = float(estimate.oracle.p), float(estimate.oracle.q)
    counts = estimate.known_counts(values)
    return _tolerance(counts, estimate.n, q + (p - q) * low, q + (p - q) * high, 0, 1)


def set_tolerance(estimate: Estimate, subset: npt.ArrayLike, low: float, high: float) -> float:
    """Poisoning tolerance of Base's answer for a set, between the ends of its interval; see `tolerance`.

    The strongest report supports as many of the set's values as possible, or as few (`Oracle.supported_of`).

    Returns:
        A whole number; infinity if no number suffices. O(m), and that of `Oracle.supported_of`.

    Raises:
        ValueError: an index outside the domain or repeated, none at all; frequencies that are not from counts.
        TypeError: indices that are not integers.
    """
    oracle = estimate.oracle
    indices = as_indices(subset, oracle.domain_size)
    if not indices.size:
        raise ValueError("a set needs at least one value")
    if isinstance(estimate, RatedEstimate):
        numbers = tolerance(estimate, np.full(2, low), np.full(2, high))
        return float(numbers[indices[0]]) if indices.size == 1 else math.inf  # each report has one of both
    p, q, m = float(oracle.p), float(oracle.q), indices.size
    total = estimate.known_counts(indices).sum()
    lower, upper = (np.array([m * q + (p - q) * end]) for end in (low, high))
    (number,) = _tolerance(np.array([total]), estimate.n, lower, upper, *oracle.supported_of(indices))
    return float(number)


def _tolerance(totals: Vector, n: int, low: Vector, high: Vector, least: float, most: float) -> Vector:
    """Of totals of what reports add, each from ``least`` to ``most``, whose means have these bounds."""
    with np.errstate(divide="ignore", invalid="ignore"):
        up = np.where(high < most, np.floor((n * high - totals) / (most - high)) + 1.0, np.inf)
        down = np.where(low > least, np.floor((totals - n * low) / (low - least)) + 1.0, np.inf)
    fewest: Vector = np.maximum(np.minimum(up, down), 0.0)
    return fewest
