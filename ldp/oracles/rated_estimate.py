"""Pooled and inverse-variance estimates from reports at several rates.

Suppose that c_r of n_r reports at rate r have a given value. Then f̃_r = (c_r/n_r − q_r)/(p_r − q_r) estimates the
frequency of the value among the n_r users, with p_r − q_r = 1 − r. The variance of f̃_r is

    σ_r² = p_r·q_r/(n_r(1−r)²) = (1/(1−r)² − 1)/(4n_r).

The pooled estimate is f̃ = Σ (n_r/n)·f̃_r. Every report has the same weight, as in the W3C's debiasing. The estimate is
unbiased for the frequency among all users, even if rates depend on values. Its variance Σ (n_r/n)²·σ_r² equals the
variance at a single rate r' if 1/(1−r')² is the mean of 1/(1−r)² over all reports. A pooled estimate is therefore an
`Estimate` with the channel of this single rate. Snapshots contain pooled estimates.

The inverse-variance estimate (`RatedEstimate.combined`) gives less noisy reports more weight. It is valid only if a
user's rate does not depend on the value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from scipy.special import chdtrc, ndtri

from ldp.arguments import as_counts, as_integer, check_level, exact_total
from ldp.estimate import Counts, Estimate, Indices, Vector
from ldp.fleet import Fleet, FleetEstimate
from ldp.merging import common
from ldp.oracles.response import Response, channel
from ldp.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ldp.oracles.rated import RatedResponse

_BITS = 64
_ROUNDS = 8


@dataclass(frozen=True)
class Combined:
    """The inverse-variance estimate of both values, with intervals.

    Frequencies and intervals are shares among the n reports. `alike` is the p-value of Cochran's χ² test that the
    estimates of all rates agree (1 for a single rate). If the p-value is small, rates appear to depend on values. In
    that case, use the pooled estimate.
    """

    frequencies: Vector
    low: Vector
    high: Vector
    std_error: float
    alike: float


@dataclass(frozen=True, eq=False, repr=False)
class RatedEstimate(Estimate):
    """The pooled estimate from reports at several rates.

    Attributes:
        oracle: a `Response` with the same standard error; 1/(p−q)² is the mean of 1/(1−r)² over the reports.
        rated: the protocol, with all rates.
        state: (rates, 2) int64, the number of reports of each value at each rate; read-only.
    """

    rated: RatedResponse = field(kw_only=True)
    state: Counts = field(kw_only=True, repr=False)

    @cached_property
    def as_fleet(self) -> FleetEstimate:
        """The estimate from one document of `Response` for each rate."""
        fleet = Fleet(tuple(Stream("rate", Response(channel(rate)[0], 2)) for rate in self.rated.rates))
        return fleet.estimate(
            [
                each.oracle.estimate(pair, int(pair.sum())) if pair.any() else None
                for each, pair in zip(fleet.documents, self.state, strict=True)
            ]
        )

    def each(self) -> Iterator[tuple[Fraction, Estimate]]:
        """Yields each rate that has reports, and the estimate from these reports."""
        for rate, estimate in zip(self.rated.rates, self.as_fleet.estimates, strict=True):
            if estimate is not None:
                yield rate, estimate

    def combined(self, level: float = 0.95) -> Combined:
        """Returns the inverse-variance estimate, with intervals at a level.

        The estimate is valid only if rates do not depend on values.

        Let f be the value's frequency, and S² = f(1−f) the variance of the indicator of the value among all users. The
        users of a rate are a sample of all users, so f̃_r has the variance v_r = σ_r² + S²/n_r. The weights 1/v_r,
        scaled to sum to 1, minimize the variance around the frequency among all users. The minimum is
        1/Σ(1/v_r) − S²/n. The weights depend on f, for which the method uses the estimate, clipped to [0, 1]. Estimate
        and weights are therefore computed by iteration.

        Raises:
            ValueError: a level (the coverage) that is not strictly between 0 and 1.

        Example:
            >>> from ldp import RatedResponse
            >>> rated = RatedResponse(["1/10", "9/10"])
            >>> estimate = rated.estimate([3000, 1000, 2050, 1950], n=8000)
            >>> round(estimate.sigma, 3), round(estimate.combined().std_error, 3), round(estimate.combined().alike, 2)
            (0.039, 0.006, 0.05)
        """
        check_level(level)
        parts = [one for _, one in self.each()]
        estimates = np.array([one.frequencies[0] for one in parts])
        noise = np.array([one.sigma**2 for one in parts])
        sizes = np.array([float(one.n) for one in parts])
        found = float(self.frequencies[0])
        for _ in range(_ROUNDS):
            inside = min(max(found, 0.0), 1.0)
            spread = inside * (1.0 - inside)
            weights = 1.0 / (noise + spread / sizes)
            found = float(weights @ estimates / weights.sum())
        error = math.sqrt(max(1.0 / float(weights.sum()) - spread / self.n, 0.0))
        reach = -float(ndtri((1.0 - level) / 2.0)) * error
        differing = float(weights @ (estimates - found) ** 2)
        alike = float(chdtrc(len(parts) - 1, differing)) if len(parts) > 1 else 1.0
        frequencies = np.array([found, 1.0 - found])
        return Combined(frequencies, frequencies - reach, frequencies + reach, error, alike)

    def anytime_interval(
        self, level: float = 0.95, values: npt.ArrayLike | None = None
    ) -> tuple[Vector, Vector]:
        """Returns anytime-valid intervals of the pooled frequencies.

        The intervals are valid even if rates depend on values or change. Raises ValueError for a level that is not
        strictly between 0 and 1.
        """
        self.refuse_memoised("anytime-valid intervals")
        return self.as_fleet.anytime_interval(level, None if values is None else self.indices(values))

    def merge(self, *others: Estimate) -> Estimate:
        """Returns one estimate for several windows; see `Estimate.merge`."""
        merged: list[RatedEstimate] = []
        for other in (self, *others):
            if not isinstance(other, RatedEstimate) or other.rated != self.rated:
                given = other.rated if isinstance(other, RatedEstimate) else other
                raise TypeError(f"an estimate is from {given!r}; merge needs estimates from {self.rated}")
            merged.append(other)
        windows, labels, privacy = common(merged)
        counts = np.sum([one.state for one in merged], axis=0).ravel()
        both = pooled(self.rated, counts, sum(one.n for one in merged))
        return replace(both, windows=windows, labels=labels, privacy=privacy)

    def known_counts(self, values: Indices | None = None) -> Vector:  # noqa: ARG002  # of the contract
        """Raises ValueError, because counts exist only per rate; see `each`."""
        raise ValueError(
            "reports at several rates have no common counts; use the counts of each rate's estimate from each()"
        )

    def _about(self) -> str:
        several = replace(self, oracle=self.rated)
        return super(RatedEstimate, several)._about()


def pooled(rated: RatedResponse, counts: npt.ArrayLike, n: int) -> RatedEstimate:
    """Returns the pooled estimate Σ_r (c_r − q_r·n_r)/(1−r) / n, rounded once.

    Args:
        rated: the protocol.
        counts: (2·rates,) integers: for each rate, the number of reports of each value.
        n: the number of reports, n ≥ 1.

    Raises:
        TypeError: counts or an n that are not integers.
        ValueError: n below 1, or counts that have another shape or do not sum to n.

    Example:
        >>> from ldp import RatedResponse
        >>> estimate = pooled(RatedResponse(["1/2", "3/4"]), [30, 10, 25, 15], n=80)
        >>> estimate.frequencies.tolist(), round(estimate.sigma, 3)
        ([1.0, 0.0], 0.168)
    """
    n = as_integer("n", n, 1, (1 << 63) - 1)
    size = rated.state_size
    if (shape := np.shape(counts)) != (size,):
        raise ValueError(f"counts have the shape {shape}; two for each rate are ({size},)")
    counts = as_counts(counts, n, size)
    if (total := exact_total(counts)) != n:
        raise ValueError(f"counts sum to {total}; each report counts once: the sum must be n = {n}")
    by_rate = counts.reshape(-1, 2).copy()
    by_rate.flags.writeable = False
    sums, mean = [Fraction(0), Fraction(0)], Fraction(0)
    for rate, pair in zip(rated.rates, by_rate.tolist(), strict=True):
        q, reports = channel(rate)[1], sum(pair)
        sums = [before + (count - q * reports) / (1 - rate) for before, count in zip(sums, pair, strict=True)]
        mean += Fraction(reports, n) / (1 - rate) ** 2
    frequencies = np.array([float(each / n) for each in sums])
    # p − q = 1/√mean can be irrational, so it is rounded down to a multiple of 2⁻⁶⁴
    apart = Fraction(math.isqrt((mean.denominator << 2 * _BITS) // mean.numerator), 1 << _BITS)
    return RatedEstimate(frequencies, n, Response((1 + apart) / 2, 2), rated=rated, state=by_rate)
