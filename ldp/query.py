"""Answers to queries: single values, sets of values, the most frequent values; and how far off Base's may be.

Every method answers a query. Standard errors and intervals are for Base's answer alone: around post-processed values
there is no such interval.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ldp.arguments import as_indices, as_integer
from ldp.consistency import EXTRA, METHODS
from ldp.consistency.normalization import norm_sub
from ldp.consistency.summation import exact_sum
from ldp.estimate import Estimate, Vector, check_estimate
from ldp.oracles.oracle import Oracle
from ldp.tail import lower_bound

Indices = npt.NDArray[np.intp]


def answer(estimate: Estimate, subset: npt.ArrayLike, method: str) -> float:
    """The frequency of a set of values under a method.

    Every method answers with the sum of its own vector over the set, but for Post-Pos, which post-processes
    the query and not the vector (Section IV.A): the sum of Base over the set, or 0 if that is negative.

    Args:
        estimate: f̃ over the domain.
        subset: indices of the set's values in 0..d-1, each once, in any order; may be empty (answer 0).
        method: a key of `ldp.consistency.METHODS` or `ldp.consistency.EXTRA`.

    Returns:
        A fraction of the reports. O(d log d): the method runs over the whole domain.

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
    """The standard error of Base's answer for a set, with the protocol's own covariance between its values.

    The counts of values in one report depend on each other, so this is not the root of the values' summed variances,
    nor does the summed variance bound it: see `Spread`. The set's frequency in it is Base's answer, clipped to [0, 1].

    Args:
        estimate: f̃ over the domain.
        subset: indices of the set's values in 0..d-1, each once, in any order; at least one.

    Returns:
        The standard deviation, a fraction of the reports; of one value it is that of `Estimate.std_error`, of the
        whole domain under GRR or Subset Selection 0. Cost: that of a `Spread`.

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
    return Spread(estimate.oracle, subset).std_error(estimate)


def interval(estimate: Estimate, subset: npt.ArrayLike, level: float = 0.95) -> tuple[float, float]:
    """Score interval around Base's answer for a set, with the protocol's own covariance between its values.

    As `Estimate.interval`, of which it is the entry for a set of one value: it holds its level for the given
    population where n·q is not small, is not clipped to [0, 1], and holds for one set at a time. Exact for all
    protocols but Hadamard and PGR, where the variance depends on which values the users have and not only on how many
    are in the set: there it is weighted by Norm-Sub's frequencies (`Spread`).

    Args:
        estimate: f̃ over the domain.
        subset: indices of the set's values in 0..d-1, each once, in any order; at least one.
        level: the coverage, strictly between 0 and 1.

    Returns:
        (low, high), fractions of the reports; (1, 1) for the whole domain of two values or more under GRR, Subset
        Selection, and PGR with as many points as values, whose estimates always sum to 1. Cost: that of a `Spread`.

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
    return Spread(estimate.oracle, subset).interval(estimate, level)


def top(estimate: Estimate, k: int) -> Indices:
    """The k most frequent values, by Base: the same under each method, for all keep the estimates' order.

    Args:
        estimate: f̃ over the domain.
        k: 1 to d.

    Returns:
        (k,) indices, the most frequent first; of values with equal estimates the first. O(d log d).

    Raises:
        TypeError: k is not an integer.
        ValueError: k outside 1..d.

    Example:
        >>> import ldp
        >>> estimate = ldp.Estimate([0.25, 0.5, 0.0, 0.25], 1000, ldp.oracle("grr", "1", domain_size=4))
        >>> top(estimate, 3)
        array([1, 0, 3])
    """
    check_estimate(estimate)
    k = as_integer("k", k, 1, estimate.oracle.domain_size)
    return np.argsort(-estimate.frequencies, kind="stable")[:k]


def top_interval(estimate: Estimate, k: int, level: float = 0.95) -> tuple[Vector, Vector]:
    """Simultaneous intervals for the k most frequent values: all cover together, although the data chose the values.

    Values come out on top because they are frequent or because they are overestimated (the winner's curse). Half of
    the risk 1 − level is for each side.

    Any of the d values may be overestimated and so get to the top: each lower end has a d-th of its half. Upper ends
    need only a k-th. A value v is underestimated if its count is below t(f_v), which grows with f. Let T be the k
    values that are most frequent in truth. If a value v on top is underestimated, so is one of T: v itself, or else,
    since fewer than k others are above v, a u of T that is not above it, and c_u ≤ c_v < t(f_v) ≤ t(f_u).

    A risk this small lies far out, where the score interval would fail for small n·q: the ends are those of the tails
    of the counts' own law (`ldp.tail`), in [0, 1].

    Args:
        estimate: f̃ over the domain.
        k: 1 to d.
        level: the probability with which all k intervals cover, at least; strictly between 0 and 1.

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
    n, p, q = estimate.n, estimate.oracle.p, estimate.oracle.q
    counts = _support(estimate, top(estimate, k))
    risk = (1.0 - level) / 2.0
    low = lower_bound(counts, n, p, q, risk / estimate.oracle.domain_size)
    high = 1.0 - lower_bound(n - counts, n, 1 - q, 1 - p, risk / k)
    return low, high


def _support(estimate: Estimate, values: Indices) -> Vector:
    """The support counts of some values; of an estimate without any, the nearest that its frequencies allow."""
    if estimate.counts is not None:
        return estimate.counts[values].astype(np.float64)
    n, p, q = estimate.n, estimate.oracle.p, estimate.oracle.q
    nearest: Vector = np.rint(n * (float(q) + float(p - q) * estimate.frequencies[values]))
    return np.clip(nearest, 0.0, n)


def sum_deviation(estimate: Estimate) -> float:
    """How far Base's sum over the domain is from 1, its mean, in standard errors.

    Reports that are not made by the protocol show here: clients that are wrong, or that forge. Some protocols' reports
    each support the same number of values, forged ones, too, and say nothing: there it is 0 (`Oracle.sum_law`).

    With x the distance of the sum of counts from its mean it is x/√(n·V + b|x|/3), by Bernstein's inequality: of honest
    reports, whatever the users have, it is beyond ±z with a probability below 2·exp(−z²/2), for z = 6 3·10⁻⁸. V is the
    variance of one report's share, the largest where it depends on the user's value, and b the most that one
    independent part can add. The second term matters only where few reports make large steps.

    Args:
        estimate: f̃ over the domain.

    Returns:
        The deviation; above 0 where the sum is above 1. O(d), and that of `Oracle.sum_law` for a protocol's first one.

    Raises:
        TypeError: something that is not an Estimate.

    Example:
        >>> import ldp
        >>> oue = ldp.OUE("1", domain_size=4)
        >>> round(sum_deviation(oue.estimate([500, 270, 270, 268], n=1000)), 2)
        0.04
        >>> round(sum_deviation(oue.estimate([600, 370, 370, 368], n=1100)), 2)  # a hundred more, all ones
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


class Spread:
    """The variance V_u of how many of a set's values one report supports, for a user with each value u.

    It is the protocol's own, from `Oracle.set_variances`. Averaged over the users with a value in the set and over the
    others it makes the variance of Base's answer linear in the set's frequency F, as it is for a single value:

        n·(p−q)²·variance = F·V_inside + (1−F)·V_outside.

    For all protocols but Hadamard and PGR V_u is the same in each of the two groups, and nothing is approximate. For
    these two the averages are weighted by Norm-Sub's frequencies, which are estimates themselves, or evenly where
    Norm-Sub has nobody in a group.

    It depends on the set and not on the reports, so one Spread serves all estimates of a stream.

    Args:
        oracle: the protocol.
        subset: indices of the set's values in 0..d-1, each once, in any order; at least one.

    Attributes:
        indices: (m,) the set's.

    Raises:
        ValueError: an index outside the domain or repeated, none at all, or not one vector.
        TypeError: indices that are not integers.

    O(d) to make, for Hadamard and PGR O(K log K); for these two it keeps d numbers, else m.

    Example:
        >>> import ldp
        >>> pgr = ldp.PGR("1", domain_size=13)
        >>> round(Spread(pgr, range(9)).std_error(pgr.estimate([400] * 13, n=1300)), 4)
        0.0845
    """

    def __init__(self, oracle: Oracle, subset: npt.ArrayLike) -> None:
        self.indices = as_indices(subset, oracle.domain_size)
        self._oracle = oracle
        self._inside: Vector
        self._outside: Vector
        if self.indices.size == 1:
            p, q = oracle.p, oracle.q
            self._inside, self._outside = np.array([float(p * (1 - p))]), np.array([float(q * (1 - q))])
        else:
            variances = oracle.set_variances(self.indices)
            self._inside = _constant(variances[self.indices])
            self._outside = _constant(np.delete(variances, self.indices))

    def std_error(self, estimate: Estimate) -> float:
        """See `ldp.query.std_error`; the estimate must be of the same protocol."""
        inside, outside = self._averages(estimate)
        f = min(max(exact_sum(estimate.frequencies[self.indices]), 0.0), 1.0)
        scale = float(1 / (estimate.n * (self._oracle.p - self._oracle.q) ** 2))
        return math.sqrt(scale * ((1.0 - f) * outside + f * inside))

    def interval(self, estimate: Estimate, level: float) -> tuple[float, float]:
        """See `ldp.query.interval`; the estimate must be of the same protocol."""
        inside, outside = self._averages(estimate)
        f = np.array([exact_sum(estimate.frequencies[self.indices])])
        (low,), (high,) = estimate.score_interval(f, inside, outside, level)
        if inside == outside == 0.0:  # of the whole domain, where f is 1 but for rounding
            return 1.0, 1.0
        return float(low), float(high)

    def _averages(self, estimate: Estimate) -> tuple[float, float]:
        """V_u over the users inside and outside; where nobody can be outside, that inside twice."""
        if estimate.oracle != self._oracle:
            raise ValueError(f"the estimate is of {estimate.oracle}, the set's variances of {self._oracle}")
        if max(self._inside.size, self._outside.size) == 1:
            inside, outside = self._inside, self._outside
        else:
            users = _users(estimate)
            inside = _mean(self._inside, users[self.indices])
            outside = _mean(self._outside, np.delete(users, self.indices))
        return float(inside[0]), float(outside[0] if outside.size else inside[0])


def _constant(variances: Vector) -> Vector:
    """One number in the place of many that are equal."""
    if variances.size and np.ptp(variances) <= 1e-12 * variances.max():
        return variances[:1].copy()
    return variances


@lru_cache(maxsize=1)
def _users(estimate: Estimate) -> Vector:
    """Norm-Sub's frequencies, kept for the next set of the same estimate."""
    return norm_sub(estimate)


def _mean(variances: Vector, users: Vector) -> Vector:
    """One number in the place of many, as so many users have them."""
    if variances.size < 2:
        return variances
    return np.array([np.average(variances, weights=users if users.any() else None)])
