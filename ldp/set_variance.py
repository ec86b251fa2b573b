"""The variance of Base's answer for a set under a protocol."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ldp.arguments import as_indices
from ldp.consistency.normalization import norm_sub
from ldp.estimate import Estimate, Vector
from ldp.intervals import confidence_sequence, score
from ldp.intervals.confidence_sequence import Laws, Moments
from ldp.intervals.score import Of
from ldp.oracles.oracle import Oracle
from ldp.oracles.preferred import PreferredMessages
from ldp.summation import exact_sum


class SetVariance:
    """Variance of Base's answer for a set, for all estimates of a protocol.

    A report supports some number of the set's values. Let V_u be the variance of this number if the report's user has
    the value u (`Oracle.set_variances`). Let V_inside and V_outside be the averages of V_u over the users inside and
    outside the set. The variance of Base's answer is linear in the set's frequency F:

        n·(p−q)²·variance = F·V_inside + (1−F)·V_outside.

    This is exact except for Hadamard and PGR. For these two protocols, V_u also differs within each group of users.
    The averages are then weighted by Norm-Sub's frequencies, or evenly if all frequencies are 0. `subset` and the
    attribute `indices` are m ≥ 1 distinct indices. Creation takes O(d), or O(K log K) for Hadamard and PGR.

    Raises:
        ValueError: an index outside the domain, a repeated index, an empty set, or a subset that is not a vector.
        TypeError: indices that are not integers.
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
        """Returns `ldp.query.std_error` for an estimate of the same protocol."""
        inside, outside = self.averages(estimate)
        f = min(max(exact_sum(estimate.frequencies[self.indices]), 0.0), 1.0)
        scale = float(1 / (estimate.n * (self._oracle.p - self._oracle.q) ** 2))
        return math.sqrt(scale * ((1.0 - f) * outside + f * inside))

    def interval(self, estimate: Estimate, level: float, of: Of = "reports") -> tuple[float, float]:
        """Returns `ldp.query.interval` for an estimate of the same protocol."""
        inside, outside = self.averages(estimate)
        f = np.array([exact_sum(estimate.frequencies[self.indices])])
        difference = self._oracle.p - self._oracle.q
        (low,), (high,) = score.interval(
            f, estimate.n, difference, inside, outside, level, of, estimate.per_device
        )
        if inside == outside == 0.0:  # the whole domain, where f is 1 except for rounding
            return 1.0, 1.0
        return float(low), float(high)

    def anytime_interval(self, estimate: Estimate, level: float) -> tuple[float, float]:
        """Returns `ldp.query.anytime_interval` for an estimate of the protocol."""
        self._check(estimate)
        estimate.refuse_memoised("anytime-valid intervals")
        total = np.array([estimate.known_counts(self.indices).sum()])
        p, q, m = float(self._oracle.p), float(self._oracle.q), self.indices.size
        if m == 1:
            (low,), (high,) = confidence_sequence.of_values(total, estimate.n, p, q, level)
        else:
            inside, outside = self.moments()
            (low,), (high,) = confidence_sequence.of_sets(
                total, estimate.n, inside, outside, self.laws(), level
            )
        return float(low), float(high)

    def moments(self) -> tuple[Moments, Moments]:
        """Returns the moments of a report's contribution to the set's counts.

        Returns:
            Two results. The first is the mean and the largest variance if the user's value is in the set. The second is
            the same if the value is not in the set, with variance 0 for the whole domain.
        """
        p, q, m = float(self._oracle.p), float(self._oracle.q), self.indices.size
        inside = p + (m - 1) * q, float(self._inside.max())
        return inside, (m * q, float(self._outside.max(initial=0.0)))  # empty for the whole domain

    def laws(self) -> Laws:
        """Returns bounds of log E e^(λ·contribution) for users inside and outside."""
        m = self.indices.size
        laws = confidence_sequence.set_laws(*self.moments(), min(m, self._oracle.most_supported))
        if isinstance(self._oracle, PreferredMessages):  # the message decides all supports together
            return laws
        return confidence_sequence.least_laws(laws, float(self._oracle.p), float(self._oracle.q), m)

    def averages(self, estimate: Estimate) -> tuple[float, float]:
        """Returns V_inside and V_outside, or V_inside twice for the whole domain.

        They include repeated reports (`Estimate.repeated_variance`).
        """
        self._check(estimate)
        if max(self._inside.size, self._outside.size) == 1:
            inside, outside = self._inside, self._outside
        else:
            users = _users(estimate)
            inside = _mean(self._inside, users[self.indices])
            outside = _mean(self._outside, np.delete(users, self.indices))
        return (
            estimate.repeated_variance(float(inside[0]), self.indices.size),
            estimate.repeated_variance(float(outside[0] if outside.size else inside[0]), self.indices.size),
        )

    def _check(self, estimate: Estimate) -> None:
        if estimate.oracle != self._oracle:
            raise ValueError(f"the estimate is from {estimate.oracle}; it must be from {self._oracle}")


def _constant(variances: Vector) -> Vector:
    """Reduces equal variances to one number."""
    if variances.size and np.ptp(variances) <= 1e-12 * variances.max():
        return variances[:1].copy()
    return variances


@lru_cache(maxsize=1)
def _users(estimate: Estimate) -> Vector:
    return norm_sub(estimate)


def _mean(variances: Vector, users: Vector) -> Vector:
    if variances.size < 2:
        return variances
    return np.array([np.average(variances, weights=users if users.any() else None)])
