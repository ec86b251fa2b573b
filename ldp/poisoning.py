"""Effect of poisoning reports, and the poisoning tolerance of intervals.

LDP protects users from the operator. It does not protect the estimate from users. A report counts as (1 − q)/(p − q)
users for each value that it supports, and as −q/(p − q) users for every other value. On average, an honest report
counts as 1 user for the true value and as 0 users for every other value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ldp.arguments import as_integer
from ldp.estimate import Estimate, Indices, Vector
from ldp.fleet import FleetEstimate
from ldp.oracles.oracle import Oracle
from ldp.summation import exact_sum


@dataclass(frozen=True)
class PoisoningEffect:
    """The largest effect of one poisoning report, in users.

    Attributes:
        up: largest rise of one value, (1 − q)/(p − q).
        down: largest fall of one value, q/(p − q).
        values: number of values that rise at once (`Oracle.most_supported`).
        total: rise of the sum over these values, and an upper bound of the fall of any set's sum.
        share: share of poisoning reports that moves a value by one standard error: √(q/(n(1 − q))).
    """

    up: float
    down: float
    values: int
    total: float
    share: float


def effect(oracle: Oracle, reports: int) -> PoisoningEffect:
    """Returns the largest effect of one poisoning report among n ≥ 1 reports.

    Raises TypeError if `reports` is not an integer, and ValueError if it is below 1.

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


def tolerance(
    estimate: Estimate | FleetEstimate, low: Vector, high: Vector, values: Indices | None = None
) -> Vector:
    """Returns the fewest poisoning reports that move Base out of its interval.

    If C of n reports support a value, k additional reports raise the share to (C + k)/(n + k). The share exceeds the
    upper end π = q + (p − q)·high when k > (nπ − C)/(1 − π). It falls below the lower end π = q + (p − q)·low when
    k > (C − nπ)/π. The result is the smallest such k. For a fleet, the estimate is the mean of the reports'
    contributions. The poisoning reports use the document that has the value, is not retired, and contributes the most:
    (1 − q)/(p − q) or −q/(p − q).

    Args:
        estimate: Base, from counts.
        low: (k,) lower ends of the intervals.
        high: (k,) upper ends of the intervals.
        values: (k,) indices; None for all.

    Returns:
        (k,) whole numbers, or infinity if no number suffices. O(k).

    Raises:
        ValueError: frequencies that are not from counts (`Estimate.support`).

    Example:
        >>> import ldp
        >>> oue = ldp.OUE("1", domain_size=3)
        >>> estimate = oue.estimate([5379, 4000, 3000], n=10_000)
        >>> tolerance(estimate, *estimate.interval())
        array([188., 159., 129.])
    """
    if isinstance(estimate, FleetEstimate):
        least, most = np.full((2, estimate.fleet.size), [[np.inf], [-np.inf]])
        for number in estimate.fleet.live:
            oracle, places = estimate.fleet.documents[number].oracle, estimate.fleet.places[number]
            least[places] = np.minimum(least[places], float(-oracle.q / (oracle.p - oracle.q)))
            most[places] = np.maximum(most[places], float((1 - oracle.q) / (oracle.p - oracle.q)))
        of = slice(None) if values is None else values
        n = estimate.known[of]
        return _tolerance(n * estimate.frequencies[of], n, low, high, least[of], most[of])
    p, q = float(estimate.oracle.p), float(estimate.oracle.q)
    counts = estimate.known_counts(values)
    return _tolerance(counts, estimate.n, q + (p - q) * low, q + (p - q) * high, 0, 1)


def set_tolerance(
    estimate: Estimate | FleetEstimate, subset: npt.ArrayLike, low: float, high: float
) -> float:
    """Returns the poisoning tolerance of Base's answer for a set.

    `low` and `high` are the ends of the answer's interval; see `tolerance`. The strongest report supports as many of
    the set's values as possible, or as few as possible (`Oracle.supported_of`).

    Returns:
        A whole number, or infinity if no number suffices. O(m), plus the cost of `Oracle.supported_of`.

    Raises:
        ValueError: an empty set, or frequencies not from counts; also as for `Estimate.indices`.
        TypeError: as for `Estimate.indices`.
    """
    indices = estimate.indices(subset)
    if not indices.size:
        raise ValueError("a set needs at least one value")
    if isinstance(estimate, FleetEstimate):
        n, parts = estimate.parts(indices)
        total = n * sum(weight * exact_sum(one.frequencies[own]) for weight, one, own in parts)
        effects = [
            (supported - own.size * one.q) / (one.p - one.q)
            for number, own in estimate.fleet.having(indices).items()
            if number in estimate.fleet.live
            for one in [estimate.fleet.documents[number].oracle]
            for supported in one.supported_of(own)
        ]
        least, most = float(min(effects, default=np.inf)), float(max(effects, default=-np.inf))
        (number,) = _tolerance(np.array([total]), n, np.array([low]), np.array([high]), least, most)
        return float(number)
    oracle = estimate.oracle
    p, q, m = float(oracle.p), float(oracle.q), indices.size
    total = estimate.known_counts(indices).sum()
    lower, upper = (np.array([m * q + (p - q) * end]) for end in (low, high))
    (number,) = _tolerance(np.array([total]), estimate.n, lower, upper, *oracle.supported_of(indices))
    return float(number)


def _tolerance(
    totals: Vector, n: int | Indices, low: Vector, high: Vector, least: float | Vector, most: float | Vector
) -> Vector:
    """Returns the tolerances of `totals`; a report adds `least` to `most`."""
    with np.errstate(divide="ignore", invalid="ignore"):
        up = np.where(high < most, np.floor((n * high - totals) / (most - high)) + 1.0, np.inf)
        down = np.where(low > least, np.floor((totals - n * low) / (low - least)) + 1.0, np.inf)
    fewest: Vector = np.maximum(np.minimum(up, down), 0.0)
    return fewest
