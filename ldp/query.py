"""Queries for single values, sets and the most frequent values.

Every method answers a query with an estimate of the share among the n reports. Only Base's answers have standard errors
and intervals: no such interval exists around post-processed values. Intervals cover the share among the n reports, or
with `of` "population" the share in the population that the users are an independent sample of.

A set is a vector of distinct indices, or of labels if the estimate has labels (`Estimate.indices`).

All functions accept the `FleetEstimate` of several documents. Sets are then estimated from the documents that have
reports and every label of the set, as the mixture Σ w_r·F_r. A set that no such document has raises ValueError.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ldp.arguments import MAX_DOMAIN, as_integer, as_text, as_value
from ldp.consistency import EXTRA, METHODS
from ldp.estimate import Estimate, Vector, check_estimate
from ldp.fleet import FleetEstimate
from ldp.intervals import confidence_sequence, mixture
from ldp.intervals.score import Of, check
from ldp.oracles.oracle import Oracle
from ldp.set_variance import SetVariance
from ldp.summation import exact_sum

Indices = npt.NDArray[np.intp]
_LONGEST_NAME = 200


@dataclass(frozen=True)
class SetQuery:
    """The query for the frequency of one set of values.

    Attributes:
        name: the name in snapshots: 1 to 200 characters, no control characters.
        values: distinct indices of the set's values, at least one.

    Raises:
        TypeError: values that are not a list or tuple of integers.
        ValueError: a name that is not allowed, no value, a repeated value, or an index outside 0..2²⁴−1.
    """

    name: str
    values: tuple[int, ...]
    _variances: dict[Oracle, SetVariance] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_name(self.name)
        if not isinstance(self.values, list | tuple):
            raise TypeError(
                f"query {self.name!r}: values are {self.values!r}; they must be a list or tuple of value indices"
            )
        what = f"query {self.name!r}: a value"
        values = tuple(as_value(what, value, MAX_DOMAIN) for value in self.values)
        if not values or len(set(values)) != len(values):
            raise ValueError(f"query {self.name!r} must list at least one value, and no value twice")
        object.__setattr__(self, "values", values)

    def variance(self, oracle: Oracle) -> SetVariance:
        """Returns the cached `SetVariance` of the set under a protocol."""
        if oracle not in self._variances:
            self._variances[oracle] = SetVariance(oracle, self.values)
        return self._variances[oracle]


@dataclass(frozen=True)
class TopQuery:
    """The query for the k most frequent values, 1 ≤ k ≤ d.

    `name` has the limits of `SetQuery.name`. Raises TypeError or ValueError for an invalid argument.
    """

    name: str
    k: int

    def __post_init__(self) -> None:
        _check_name(self.name)
        object.__setattr__(self, "k", as_integer(f"query {self.name!r}: top", self.k, 1, MAX_DOMAIN))


Query = SetQuery | TopQuery


def of_domain(
    queries: Iterable[Query], domain_size: int
) -> tuple[tuple[SetQuery, ...], tuple[TopQuery, ...]]:
    """Splits queries into set queries and top queries, in order.

    Raises:
        TypeError: an object that is not a query.
        ValueError: two queries with the same name, a value outside 0..d−1, or a k above d.

    Example:
        >>> of_domain([TopQuery("most", 3)], 2)
        Traceback (most recent call last):
        ValueError: query 'most': top is 3; allowed is 1 to 2
    """
    sets: list[SetQuery] = []
    tops: list[TopQuery] = []
    for query in queries:
        if isinstance(query, SetQuery):
            as_integer(f"query {query.name!r}: a value", max(query.values), 0, domain_size - 1)
            sets.append(query)
        elif isinstance(query, TopQuery):
            as_integer(f"query {query.name!r}: top", query.k, 1, domain_size)
            tops.append(query)
        else:
            raise TypeError(f"a query must be a SetQuery or a TopQuery, not {type(query).__name__}")
    names = [query.name for query in sets] + [query.name for query in tops]
    if len(set(names)) < len(names):
        double = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"two queries are named {double!r}")
    return tuple(sets), tuple(tops)


def _check_name(name: object) -> None:
    if len(as_text("a query's name", name)) > _LONGEST_NAME:
        raise ValueError(f"a query's name has {len(str(name))} characters; allowed are {_LONGEST_NAME}")


def answer(estimate: Estimate | FleetEstimate, subset: npt.ArrayLike, method: str) -> float:
    """Returns a set's share of the n reports under a method. O(d log d).

    Every method except Post-Pos answers with the sum of its vector over the set. Post-Pos post-processes the query
    (Section IV.A of the paper) and returns the sum of Base over the set, or 0 if the sum is negative. `subset` contains
    distinct indices or labels. An empty set has frequency 0. `method` is a key of `ldp.consistency.METHODS` or `EXTRA`.

    Raises:
        ValueError: an unknown method; also as for `Estimate.indices`.
        TypeError: as for `Estimate.indices`.

    Example:
        >>> import ldp
        >>> oracle = ldp.oracle("grr", epsilon="1", domain_size=4)
        >>> estimate = ldp.Estimate([0.9, 0.25, -0.25, -0.125], 1000, oracle)
        >>> answer(estimate, [1, 2, 3], "post-pos"), answer(estimate, [1, 2, 3], "base-pos")
        (0.0, 0.25)
    """
    if isinstance(estimate, FleetEstimate):
        _, parts = estimate.parts(subset)
        return sum(weight * answer(one, own, method) for weight, one, own in parts)
    check_estimate(estimate)
    methods = METHODS | EXTRA
    if method not in methods:
        raise ValueError(f"unknown method {method!r}; the methods are {', '.join(methods)}")
    indices = estimate.indices(subset)
    return read(estimate, indices, method, methods[method](estimate))


def read(
    estimate: Estimate | FleetEstimate, subset: npt.ArrayLike, method: str, frequencies: Vector
) -> float:
    """Returns `answer` computed from a method's vector, without checks. O(m)."""
    indices = np.asarray(subset, dtype=np.intp)
    return (METHODS | EXTRA)[method].answer(estimate, indices, frequencies)


def std_error(estimate: Estimate | FleetEstimate, subset: npt.ArrayLike) -> float:
    """Returns the standard error of Base's answer for a set of values.

    The error is that around the share among the n reports. It includes the protocol's covariance between values
    (`SetVariance`). The supports in one report are dependent, so the sum of the values' variances is not even a bound.
    The unknown frequency of the set is replaced by Base's answer, clipped to [0, 1]. The result is 0 for the whole
    domain under GRR or Subset Selection. `subset` contains one or more distinct indices or labels. The cost is that of
    a new `SetVariance`.

    Raises:
        ValueError: an empty set; also as for `Estimate.indices`.
        TypeError: as for `Estimate.indices`.

    Example:
        >>> import ldp
        >>> estimate = ldp.oracle("grr", "1", domain_size=4).estimate([325, 250, 225, 200], n=1000)
        >>> round(std_error(estimate, [0, 1]), 4), round(float(sum(estimate.std_error()[:2] ** 2)) ** 0.5, 4)
        (0.0502, 0.0638)
    """
    if isinstance(estimate, FleetEstimate):
        _, parts = estimate.parts(subset)
        return math.sqrt(sum((weight * std_error(one, own)) ** 2 for weight, one, own in parts))
    check_estimate(estimate)
    return SetVariance(estimate.oracle, estimate.indices(subset)).std_error(estimate)


def interval(
    estimate: Estimate | FleetEstimate, subset: npt.ArrayLike, level: float = 0.95, of: Of = "reports"
) -> tuple[float, float]:
    """Returns a pointwise score interval around Base's answer for a set.

    The interval includes the covariance between values. For a set of one value it equals `Estimate.interval`. It covers
    the set's share with probability `level` unless n·q is small, and is not clipped to [0, 1]. This is the share among
    the n reports, or in the population; `of` is as for `Estimate.interval`. The variance is exact except for Hadamard
    and PGR. For these two, it depends on the users' values, which are estimated by Norm-Sub (`SetVariance`).

    Returns:
        low and high. They are (1, 1) for the whole domain if the estimates always sum to 1 (GRR, Subset Selection, PGR
        with K = d). The cost is that of a new `SetVariance`.

    Raises:
        ValueError: as for `std_error`, a level that is not strictly between 0 and 1, or another `of`.
        TypeError: as for `std_error`, or a level that is not a number.

    Example:
        >>> import ldp
        >>> estimate = ldp.oracle("grr", "1", domain_size=4).estimate([325, 250, 225, 200], n=1000)
        >>> [round(end, 3) for end in interval(estimate, [0, 1])], interval(estimate, range(4))
        ([0.651, 0.848], (1.0, 1.0))
    """
    if isinstance(estimate, FleetEstimate):
        n, parts = estimate.parts(subset)
        variances = [SetVariance(one.oracle, own).averages(one) for _, one, own in parts]
        if not np.any(variances):  # the whole domain, where f is 1 except for rounding
            return 1.0, 1.0
        weights = np.array([weight for weight, _, _ in parts])
        terms = [
            mixture.Part(
                np.array([exact_sum(one.frequencies[own])]),
                *pair,
                float(one.oracle.p - one.oracle.q),
                one.per_device,
            )
            for (_, one, own), pair in zip(parts, variances, strict=True)
        ]
        ends = mixture.interval(lambda each: weights @ np.array([*each]), terms, np.array([n]), level, of)
        return float(ends[0][0]), float(ends[1][0])
    check_estimate(estimate)
    return SetVariance(estimate.oracle, estimate.indices(subset)).interval(estimate, level, of)


def anytime_interval(
    estimate: Estimate | FleetEstimate, subset: npt.ArrayLike, level: float = 0.95
) -> tuple[float, float]:
    """Returns an anytime-valid interval around Base's answer for a set.

    The interval covers the share among the n reports, at all n simultaneously with probability `level`. For a set of
    one value it equals `Estimate.anytime_interval`. It uses the largest variance of a report's contribution for users
    inside the set, and for users outside (`ldp.intervals.confidence_sequence`). `subset` and `level` are as for
    `interval`.

    Returns:
        low and high in [0, 1]. The cost is that of a new `SetVariance`.

    Raises:
        ValueError: as for `std_error`, a level that is not strictly between 0 and 1, or frequencies not from counts.
        TypeError: as for `interval`.
    """
    if isinstance(estimate, FleetEstimate):
        return _anytime_of_fleet(estimate, subset, level)
    check_estimate(estimate)
    return SetVariance(estimate.oracle, estimate.indices(subset)).anytime_interval(estimate, level)


def _anytime_of_fleet(estimate: FleetEstimate, subset: npt.ArrayLike, level: float) -> tuple[float, float]:
    _, parts = estimate.parts(subset)
    if parts[0][2].size == 1:
        (low,), (high,) = estimate.anytime_interval(level, subset)
        return float(low), float(high)
    for _, one, _ in parts:
        one.refuse_memoised("anytime-valid intervals")
    # documents without reports, too, so that their first report does not change the bounds that are tried
    having = estimate.fleet.having(estimate.indices(subset))
    sets = [SetVariance(estimate.fleet.documents[number].oracle, own) for number, own in having.items()]
    counted = [(estimate.estimates[number], own) for number, own in having.items()]
    totals = np.array([0.0 if one is None else one.known_counts(own).sum() for one, own in counted])
    reports = np.array([0.0 if one is None else float(one.n) for one, _ in counted])
    moments, laws = [each.moments() for each in sets], [each.laws() for each in sets]
    return confidence_sequence.of_document_sets(totals, reports, moments, laws, level)


def top(estimate: Estimate | FleetEstimate, k: int) -> Indices:
    """Returns the indices of the k most frequent values by Base. O(d log d).

    Ties are in index order. All methods keep the order of Base. Raises TypeError for a k that is not an integer,
    and ValueError for a k outside 1..d. A fleet can have fewer known values (see `FleetEstimate.most_frequent`).

    Example:
        >>> import ldp
        >>> top(ldp.Estimate([0.25, 0.5, 0.0, 0.25], 1000, ldp.oracle("grr", "1", domain_size=4)), 3)
        array([1, 0, 3])
    """
    if isinstance(estimate, FleetEstimate):
        return estimate.most_frequent(as_integer("k", k, 1, estimate.fleet.size))
    check_estimate(estimate)
    k = as_integer("k", k, 1, estimate.oracle.domain_size)
    return estimate.most_frequent(k)


def top_interval(
    estimate: Estimate | FleetEstimate, k: int, level: float = 0.95, of: Of = "reports"
) -> tuple[Vector, Vector]:
    """Returns simultaneous intervals for the k most frequent values.

    The intervals cover the shares among the n reports, or in the population; `of` is as for `Estimate.interval`.

    The data choose these values: they are frequent or overestimated (the winner's curse). The risk 1 − level is divided
    equally between the lower ends and the upper ends. Any of the d values may be overestimated, so each lower end gets
    1/d of the first half. Each upper end gets 1/k of the second half, for the following reason. A value v is
    underestimated if its count c_v is below t(f_v), where t increases with f. Let T be the k values that are truly the
    most frequent. If a value v among the top k is underestimated, a value of T is, too. If v is in T, v is that value.
    Otherwise fewer than k values have a higher count than v, so some u in T has c_u ≤ c_v < t(f_v) ≤ t(f_u).

    At such small risks the score interval fails for small n·q. The ends therefore come from the tails of the exact
    distribution of the counts (`ldp.intervals.binomial_tail`), and lie in [0, 1]. For a fleet, see
    `FleetEstimate.top_bounds`.

    Returns:
        Two (k,) vectors, low and high, in the order of `top`. O(d log d).

    Raises:
        TypeError: a k that is not an integer, or a level that is not a number.
        ValueError: a k outside 1..d, a level that is not strictly between 0 and 1, or another `of`.

    Example:
        >>> import ldp
        >>> estimate = ldp.OLH("1", 100).estimate([3000, 2700] + [2500] * 98, n=10_000)
        >>> low, high = top_interval(estimate, 2)
        >>> low.round(3), high.round(3)
        (array([0.153, 0.021]), array([0.267, 0.133]))
    """
    values = top(estimate, k)
    check(level, of)
    return estimate.top_bounds(values, level, of)
