"""Queries: single values, sets of values, the most frequent values, and Base's errors.

Every method answers a query. Standard errors and intervals are for Base's answer alone: around post-processed values
there is no such interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ldp.arguments import MAX_DOMAIN, as_indices, as_integer, as_text
from ldp.consistency import EXTRA, METHODS
from ldp.consistency.summation import exact_sum
from ldp.estimate import Estimate, Vector, check_estimate
from ldp.intervals.binomial_tail import top_bounds
from ldp.oracles.oracle import Oracle
from ldp.set_variance import SetVariance

Indices = npt.NDArray[np.intp]
_KEPT = 16
_LONGEST_NAME = 200


@dataclass(frozen=True)
class SetQuery:
    """The query for the frequency of one set of values.

    Attributes:
        name: in snapshots: 1 to 200 characters, no control characters.
        values: indices of the set's values, distinct; at least one.

    Raises:
        TypeError: values that are no list or tuple of integers.
        ValueError: a name that is not allowed; no value, one twice, or one that no domain has.
    """

    name: str
    values: tuple[int, ...]
    _variances: dict[Oracle, SetVariance] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_name(self.name)
        if not isinstance(self.values, list | tuple):
            raise TypeError(
                f"query {self.name!r}: {self.values!r} given; a list or tuple of value indices is needed"
            )
        what = f"query {self.name!r}: a value"
        values = tuple(as_integer(what, value, 0, MAX_DOMAIN - 1) for value in self.values)
        if not values or len(set(values)) != len(values):
            raise ValueError(f"query {self.name!r} must list at least one value, each once")
        object.__setattr__(self, "values", values)

    def variance(self, oracle: Oracle) -> SetVariance:
        """The set's `SetVariance` under a protocol, cached."""
        if oracle not in self._variances:
            if len(self._variances) >= _KEPT:  # estimates of reports at several rates have a channel each
                self._variances.clear()
            self._variances[oracle] = SetVariance(oracle, self.values)
        return self._variances[oracle]


@dataclass(frozen=True)
class TopQuery:
    """The query for the k most frequent values, 1 ≤ k ≤ d.

    Its `name` is as for `SetQuery`. Raises TypeError or ValueError.
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
    """Splits queries into those for sets and those for the most frequent values, in their order.

    Raises:
        TypeError: something that is no query.
        ValueError: two queries of one name, a value outside 0..d-1, or a k beyond d.

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


def answer(estimate: Estimate, subset: npt.ArrayLike, method: str) -> float:
    """The frequency of a set of values under a method: a fraction of the reports. O(d log d).

    Every method answers with the sum of its vector over the set, except Post-Pos, which post-processes the query
    (Section IV.A): the sum of Base over the set, or 0 if that is negative. `subset` are distinct indices, maybe none
    (0); `method` is a key of `ldp.consistency.METHODS` or `ldp.consistency.EXTRA`.

    Raises:
        ValueError: an unknown method; an index outside the domain or repeated; not one vector.
        TypeError: indices that are not integers.

    Example:
        >>> import ldp
        >>> oracle = ldp.oracle("grr", epsilon="1", domain_size=4)
        >>> estimate = ldp.Estimate([0.9, 0.25, -0.25, -0.125], 1000, oracle)
        >>> answer(estimate, [1, 2, 3], "post-pos"), answer(estimate, [1, 2, 3], "base-pos")
        (0.0, 0.25)
    """
    check_estimate(estimate)
    methods = METHODS | EXTRA
    if method not in methods:
        raise ValueError(f"unknown method {method!r}; the methods are {', '.join(methods)}")
    indices = as_indices(subset, estimate.oracle.domain_size)
    return read(estimate, indices, method, methods[method](estimate))


def read(estimate: Estimate, subset: npt.ArrayLike, method: str, frequencies: Vector) -> float:
    """`answer` from what the method has made of the estimate, for many sets. O(m), and nothing is checked."""
    indices = np.asarray(subset, dtype=np.intp)
    return (METHODS | EXTRA)[method].answer(estimate, indices, frequencies)


def std_error(estimate: Estimate, subset: npt.ArrayLike) -> float:
    """The standard error of Base's answer for a set, with the protocol's covariance between values.

    The counts of values in one report depend on each other, so the summed variances neither equal nor bound it: see
    `SetVariance`. The set's frequency in it is Base's answer, clipped to [0, 1]; it is 0 for the whole domain under
    GRR or Subset Selection. `subset` are distinct indices, at least one. Cost: that of a `SetVariance`.

    Raises:
        ValueError: an index outside the domain or repeated, none at all, or not one vector.
        TypeError: indices that are not integers.

    Example:
        >>> import ldp
        >>> estimate = ldp.oracle("grr", "1", domain_size=4).estimate([325, 250, 225, 200], n=1000)
        >>> round(std_error(estimate, [0, 1]), 4), round(float(sum(estimate.std_error()[:2] ** 2)) ** 0.5, 4)
        (0.0502, 0.0638)
    """
    check_estimate(estimate)
    return SetVariance(estimate.oracle, subset).std_error(estimate)


def interval(estimate: Estimate, subset: npt.ArrayLike, level: float = 0.95) -> tuple[float, float]:
    """Pointwise score interval around Base's answer for a set, with the covariance between values.

    For a set of one value it is `Estimate.interval`. It holds its level for the given population unless n·q is small,
    is not clipped to [0, 1], and holds for one set at a time. Exact except for Hadamard and PGR, where the variance
    depends on the users' values and is weighted by Norm-Sub's frequencies (`SetVariance`).

    Returns:
        (low, high), fractions of the reports; (1, 1) for a whole domain whose estimates always sum to 1 (GRR, Subset
        Selection, PGR with K = d). Cost: that of a `SetVariance`.

    Raises:
        ValueError: as for `std_error`; level is not strictly between 0 and 1.
        TypeError: indices that are not integers.

    Example:
        >>> import ldp
        >>> estimate = ldp.oracle("grr", "1", domain_size=4).estimate([325, 250, 225, 200], n=1000)
        >>> [round(end, 3) for end in interval(estimate, [0, 1])], interval(estimate, range(4))
        ([0.651, 0.848], (1.0, 1.0))
    """
    check_estimate(estimate)
    return SetVariance(estimate.oracle, subset).interval(estimate, level)


def anytime_interval(estimate: Estimate, subset: npt.ArrayLike, level: float = 0.95) -> tuple[float, float]:
    """Anytime-valid interval around Base's answer for a set: those of all n together hold the level.

    For a set of one value it is `Estimate.anytime_interval`. It uses the largest variance of a user inside, or
    outside, the set; see `ldp.intervals.confidence_sequence`. Arguments as for `interval`.

    Returns:
        (low, high), fractions of the reports in [0, 1]. Cost: that of a `SetVariance`.

    Raises:
        ValueError: as for `interval`; frequencies that are not from counts.
        TypeError: indices that are not integers.
    """
    check_estimate(estimate)
    return SetVariance(estimate.oracle, subset).anytime_interval(estimate, level)


def top(estimate: Estimate, k: int) -> Indices:
    """The k most frequent values, by Base: (k,) indices, ties in order. All methods keep this order. O(d log d).

    Raises TypeError for a k that is not an integer, ValueError for one outside 1..d.

    Example:
        >>> import ldp
        >>> top(ldp.Estimate([0.25, 0.5, 0.0, 0.25], 1000, ldp.oracle("grr", "1", domain_size=4)), 3)
        array([1, 0, 3])
    """
    check_estimate(estimate)
    k = as_integer("k", k, 1, estimate.oracle.domain_size)
    return estimate.most_frequent(k)


def top_interval(estimate: Estimate, k: int, level: float = 0.95) -> tuple[Vector, Vector]:
    """Simultaneous intervals for the k most frequent values, although the data chose the values.

    Values reach the top because they are frequent or because they are overestimated (the winner's curse). Each side
    has half of the risk 1 − level. Any of the d values may be overestimated: each lower end has a d-th of its half.
    Upper ends need only a k-th. A value v is underestimated if its count is below t(f_v), which grows with f. Let T be
    the k values that are most frequent in truth. If a value v on top is underestimated, so is one of T: v itself, or
    else, since fewer than k others are above v, a u of T that is not above it, and c_u ≤ c_v < t(f_v) ≤ t(f_u).

    At such small risks the score interval fails for small n·q: the ends are those of the tails of the counts' own law
    (`ldp.intervals.binomial_tail`), in [0, 1].

    Returns:
        (low, high), each (k,) float64, in the order of `top`. O(d log d).

    Raises:
        TypeError: k is not an integer.
        ValueError: k outside 1..d; level is not strictly between 0 and 1.

    Example:
        >>> import ldp
        >>> estimate = ldp.OLH("1", 100).estimate([3000, 2700] + [2500] * 98, n=10_000)
        >>> low, high = top_interval(estimate, 2)
        >>> low.round(3), high.round(3)
        (array([0.153, 0.021]), array([0.267, 0.133]))
    """
    check_estimate(estimate)
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must lie strictly between 0 and 1, got {level}")
    oracle = estimate.oracle
    counts = estimate.nearest_counts(top(estimate, k))
    return top_bounds(counts, estimate.n, oracle.p, oracle.q, oracle.domain_size, level)


def sum_deviation(estimate: Estimate) -> float:
    """Distance of Base's sum over the domain from its mean 1, in standard errors.

    Reports that do not follow the protocol, by mistake or by poisoning, show here. If all reports support the same
    number of values, it is 0 (`Oracle.sum_law`).

    With x the distance of the sum of counts from its mean it is x/√(n·V + b|x|/3), by Bernstein's inequality: honest
    reports exceed ±z with a probability below 2·exp(−z²/2), for z = 6 3·10⁻⁸. V is the largest variance of one report's
    share, and b the most that one independent part can add. O(d), and that of `Oracle.sum_law` for a protocol's first
    one.

    Raises:
        TypeError: something that is not an Estimate.

    Example:
        >>> import ldp
        >>> oue = ldp.OUE("1", domain_size=4)
        >>> round(sum_deviation(oue.estimate([600, 370, 370, 368], n=1100)), 2)  # a hundred reports of all ones
        8.49
    """
    check_estimate(estimate)
    variance, step = _sum_law(estimate.oracle)
    if not variance:
        return 0.0
    off = (exact_sum(estimate.frequencies) - 1.0) * float(
        estimate.n * (estimate.oracle.p - estimate.oracle.q)
    )
    return off / math.sqrt(estimate.n * variance + step * abs(off) / 3.0)


@lru_cache(maxsize=64)
def _sum_law(oracle: Oracle) -> tuple[float, float]:
    """Kept for the next estimate of the same protocol."""
    return oracle.sum_law()
