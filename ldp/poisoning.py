"""What one forged report moves: clients are trusted, and this says how much.

LDP protects users from the operator, not the estimate from users. A report counts (1 − q)/(p − q) users for each value
that it supports and −q/(p − q) for each other; an honest one, whose coins decide, counts 1 for its user's value on
average and 0 for any other. Whoever makes reports up need not toss coins.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ldp.arguments import as_indices, as_integer
from ldp.estimate import Estimate, Indices, Vector
from ldp.oracles.oracle import Oracle
from ldp.rates import RatedEstimate


@dataclass(frozen=True)
class Fake:
    """What one forged report moves at most, in users: what that many more who have a value would, on average.

    Attributes:
        up: it raises the estimate of a value of its choice by so many users, (1 − q)/(p − q).
        down: it lowers one by so many, q/(p − q).
        values: so many values it raises at once (`Oracle.most_supported`).
        total: it raises the sum over these values by so many users; no set's sum falls by more.
        share: this part of all reports, forged, moves a value by one standard error: √(q/(n(1 − q))). More is a larger
            error than the coins make.
    """

    up: float
    down: float
    values: int
    total: float
    share: float


def fake(oracle: Oracle, reports: int) -> Fake:
    """What one forged report moves at most.

    Args:
        oracle: the protocol.
        reports: n, the number of reports in a snapshot, n ≥ 1.

    Raises:
        TypeError: a number of reports that is not an int.
        ValueError: a number of reports below 1.

    Example:
        >>> import ldp
        >>> one = fake(ldp.OUE("1", domain_size=1024), 1_000_000)
        >>> round(one.up, 2), round(one.down, 2), one.values, round(one.total), f"{one.share:.2%}"
        (3.16, 1.16, 380, 1202, '0.06%')
    """
    n = as_integer("reports", reports, 1, (1 << 63) - 1)
    p, q = oracle.p, oracle.q
    up = float((1 - q) / (p - q))
    values = oracle.most_supported
    return Fake(up, float(q / (p - q)), values, values * up, math.sqrt(q / (n * (1 - q))))


def needed(estimate: Estimate, low: Vector, high: Vector, values: Indices | None = None) -> Vector:
    """How few forged reports, beside the honest ones, put each value's estimate outside of its interval.

    Each that supports the value raises it, each that does not lowers it: the fewer of both ways. With C of n reports
    that support it, k more make it (C + k)/(n + k), which is above π when k > (nπ − C)/(1 − π); π = q + (p − q)·high is
    what stands for the upper end. The other way it is below when k > (C − nπ)/π.

    Of reports at several rates those at the highest are the strongest, as they count most: each adds (1 − q)/(p − q)
    to the sum that the pooled estimate is the mean of, or −q/(p − q).

    Args:
        estimate: Base, of counts.
        low: (k,) lower ends of intervals, as of `Estimate.interval` or `Estimate.anytime_interval`.
        high: (k,) upper ends.
        values: (k,) whose; None for all.

    Returns:
        (k,) whole numbers; infinity where no number does it. O(k).

    Raises:
        ValueError: frequencies that are no counts' (`Estimate.support`).

    Example:
        >>> import ldp
        >>> oue = ldp.OUE("1", domain_size=3)
        >>> estimate = oue.estimate([5379, 4000, 3000], n=10_000)
        >>> needed(estimate, *estimate.interval())
        array([188., 159., 129.])
    """
    if isinstance(estimate, RatedEstimate):
        one = fake(estimate.rated, estimate.n)
        sums = estimate.n * (estimate.frequencies if values is None else estimate.frequencies[values])
        return _needed(sums, estimate.n, low, high, -one.down, one.up)
    p, q = float(estimate.oracle.p), float(estimate.oracle.q)
    counts = estimate.known_counts(values)
    return _needed(counts, estimate.n, q + (p - q) * low, q + (p - q) * high, 0, 1)


def needed_for_set(estimate: Estimate, subset: npt.ArrayLike, low: float, high: float) -> float:
    """How few forged reports put Base's answer for a set outside of its interval; see `needed`.

    The strongest one supports as many of the set's values as there can be, or as few (`Oracle.supported_of`).

    Args:
        estimate: Base, of counts.
        subset: indices of the set's values, each once; at least one.
        low: the interval's lower end, as of `ldp.query.interval` or `anytime_interval`.
        high: its upper end.

    Returns:
        A whole number; infinity where no number does it. O(m), and that of `Oracle.supported_of`.

    Raises:
        ValueError: an index outside the domain or repeated, none at all; frequencies that are no counts'.
        TypeError: indices that are not integers.

    Example:
        >>> import ldp, ldp.query
        >>> oue = ldp.OUE("1", domain_size=3)
        >>> estimate = oue.estimate([5379, 4000, 3000], n=10_000)
        >>> needed_for_set(estimate, [0, 1], *ldp.query.interval(estimate, [0, 1]))
        131.0
    """
    oracle = estimate.oracle
    indices = as_indices(subset, oracle.domain_size)
    if not indices.size:
        raise ValueError("a set needs at least one value")
    if isinstance(estimate, RatedEstimate):
        numbers = needed(estimate, np.full(2, low), np.full(2, high))
        return float(numbers[indices[0]]) if indices.size == 1 else math.inf  # each report has one of both
    p, q, m = float(oracle.p), float(oracle.q), indices.size
    total = estimate.known_counts(indices).sum()
    lower, upper = (np.array([m * q + (p - q) * end]) for end in (low, high))
    (number,) = _needed(np.array([total]), estimate.n, lower, upper, *oracle.supported_of(indices))
    return float(number)


def _needed(totals: Vector, n: int, low: Vector, high: Vector, least: float, most: float) -> Vector:
    """Of totals of what reports add, each from ``least`` to ``most``, whose means have these bounds."""
    with np.errstate(divide="ignore", invalid="ignore"):
        up = np.where(high < most, np.floor((n * high - totals) / (most - high)) + 1.0, np.inf)
        down = np.where(low > least, np.floor((totals - n * low) / (low - least)) + 1.0, np.inf)
    fewest: Vector = np.maximum(np.minimum(up, down), 0.0)
    return fewest
