"""Unbiased frequency estimates with standard errors and intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ldp import deviation
from ldp.arguments import as_indices, as_labels, joined_windows
from ldp.intervals import confidence_sequence, score
from ldp.intervals.score import Of
from ldp.merging import common
from ldp.notebook import Displayed
from ldp.oracles.oracle import Oracle
from ldp.repeated import Repeated

if TYPE_CHECKING:
    from ldp.privacy.declaration import Declaration

Vector = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]
Window = tuple[int, int]  # Time range [start, end) in milliseconds since the epoch

Counts = npt.NDArray[np.int64]

MOST_MERGED = 1 << 43
"""Largest number of reports for which float64 frequencies determine each count."""

_NOT_LINEAR = "a method's vector is not linear in the counts; merge the estimates, then apply the method"
_CREATE_ONE = (
    "methods depend on n and on the protocol; create one with oracle.estimate(counts, n) or"
    " ldp.Estimate(frequencies, n, oracle)"
)


@dataclass(frozen=True, eq=False, repr=False)
class Estimate(Repeated, Displayed):
    """Base: the unbiased estimate f̃ = (c/n − q)/(p − q) of each frequency.

    Source: Section III of Wang et al. (NDSS 2020), Equations 3 (`std_error`) and 5 (`sigma`). Frequencies are fractions
    of the n reports, not of the users. They may be negative or above 1.

    Attributes:
        frequencies: read-only copy, (d,) float64.
        n: number of reports, at least 1.
        oracle: the protocol with p and q.
        windows: disjoint time windows [start, end) of the reports, ascending, in milliseconds since the epoch; empty
            for the whole stream.
        counts: read-only (d,) int64 support counts; None if only frequencies are known.
        labels: the name of each value, or None.
        privacy: the declaration of how often a device reports, or None for one report of each device. Standard errors
            and intervals use it; see `per_device`.

    Raises:
        ValueError: frequencies that are not d finite numbers, an n below 1, an empty or overlapping window, a number of
            counts or labels other than d, or a repeated label.
        TypeError: an n, a bound of a window or a count that is not an integer, a label that is not a string, or an
            oracle that is not an Oracle.

    Example:
        >>> import ldp
        >>> estimate = Estimate([0.7, 0.3, -0.1, 0.1], 10_000, ldp.oracle("grr", epsilon="1", domain_size=4))
        >>> round(estimate.sigma, 5)
        0.01264
        >>> estimate.labelled(["red", "green", "blue", "grey"])
        Estimate(10,000 reports of grr, ε = 1, d = 4: red 0.7, green 0.3, grey 0.1, …)
    """

    frequencies: Vector
    n: int
    oracle: Oracle
    windows: tuple[Window, ...] = ()
    counts: Counts | None = None
    labels: tuple[str, ...] | None = None
    privacy: Declaration | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.oracle, Oracle):
            raise TypeError(
                f"oracle is {self.oracle!r}; allowed is an Oracle, such as ldp.oracle('grr', '1', 4)"
            )
        frequencies = np.array(self.frequencies, dtype=np.float64)
        d = self.oracle.domain_size
        if frequencies.shape != (d,):
            raise ValueError(f"frequencies have shape {frequencies.shape}; the oracle needs ({d},)")
        if not np.isfinite(frequencies).all():
            worst = int(np.flatnonzero(~np.isfinite(frequencies))[0])
            raise ValueError(f"frequencies must be finite; value {worst} has {frequencies[worst]}")
        if isinstance(self.n, bool) or not isinstance(self.n, (int, np.integer)):
            raise TypeError(f"n must be an integer, got {type(self.n).__name__}")
        if self.n < 1:
            raise ValueError(f"n must be at least 1, got {self.n}")
        if self.counts is not None:
            counts = np.array(self.counts)
            if counts.dtype.kind not in "iu":
                raise TypeError(f"counts must be integers, not {counts.dtype}")
            if counts.shape != (d,):
                raise ValueError(f"counts have shape {counts.shape}; the oracle needs ({d},)")
            counts = counts.astype(np.int64, copy=False)
            counts.flags.writeable = False
            object.__setattr__(self, "counts", counts)
        if self.labels is not None:
            object.__setattr__(self, "labels", as_labels(self.labels, d))
        frequencies.flags.writeable = False
        object.__setattr__(self, "frequencies", frequencies)
        object.__setattr__(self, "n", int(self.n))
        object.__setattr__(self, "windows", joined_windows(self.windows))

    @property
    def sigma(self) -> float:
        """σ = √(q(1−q)/(n(p−q)²)), the standard error at frequency 0 (Equation 5).

        It is valid for one report of each device, or for fresh noise. Methods use it.
        """
        p, q = self.oracle.p, self.oracle.q
        return math.sqrt(q * (1 - q) / (self.n * (p - q) ** 2))

    def std_error(self) -> Vector:
        """Returns the (d,) standard errors of f̃ (Equation 3). O(d).

        It is the error around the share among the n reports, and does not contain the error of a sampled population.
        The unknown f is replaced by f̃, clipped to [0, 1]. The variance q(1−q) + f(p−q)(1−p−q) is computed as
        (1−f)·q(1−q) + f·p(1−p), which avoids cancellation and is never negative.
        """
        p, q = self.oracle.p, self.oracle.q
        scale = float(self.n * (p - q) ** 2)
        absent, present = (self.repeated_variance(float(x * (1 - x)), 1) / scale for x in (q, p))
        f = np.clip(self.frequencies, 0.0, 1.0)
        return np.sqrt((1.0 - f) * absent + f * present)

    def interval(self, level: float = 0.95, of: Of = "reports") -> tuple[Vector, Vector]:
        """Returns pointwise score intervals around Base.

        They cover the share among the n reports. With `of` "population", they cover the share in the population of
        which the users are an independent sample, and are wider; see `ldp.intervals.score`.

        For the reports, each interval is {f : |f̃ − f|·(p−q) ≤ z·√((q(1−q) + f(p−q)(1−p−q))/n)}. The variance under the
        root is exact if f is the share among the n reports. The interval therefore covers f with probability `level`,
        unless n·q is below about 5. It is valid for one value at one fixed time, and is not clipped to [0, 1]. It is
        valid for one report per device, or for the reports that `privacy` declares (`repeated_variance`). No such
        interval exists for post-processed values. `ldp.query` has intervals for sets and for the most frequent values.

        Returns:
            Two (d,) vectors, low and high. O(d).

        Raises:
            TypeError: a level that is not a number.
            ValueError: a level that is not strictly between 0 and 1, or an unknown `of`.

        Example:
            >>> import ldp
            >>> estimate = ldp.GRR("4", domain_size=2).estimate([6000, 4000], n=10_000)
            >>> [float(end[0].round(4)) for of in ("reports", "population") for end in estimate.interval(of=of)]
            [0.601, 0.6064, 0.5937, 0.6136]
        """
        p, q = self.oracle.p, self.oracle.q
        inside, outside = (self.repeated_variance(float(x * (1 - x)), 1) for x in (p, q))
        return score.interval(self.frequencies, self.n, p - q, inside, outside, level, of, self.per_device)

    def anytime_interval(
        self, level: float = 0.95, values: npt.ArrayLike | None = None
    ) -> tuple[Vector, Vector]:
        """Returns anytime-valid intervals around Base for `values`, or for all.

        They cover the share among the n reports. `values` are as for `indices`.
        The intervals of one value hold at all n simultaneously with probability `level`. Use them if you look at each
        new snapshot, or stop when a result appears; see `ldp.intervals.confidence_sequence`. They are within [0, 1],
        and about 1.9 times as wide as pointwise intervals.

        Returns:
            Two (k,) vectors, low and high. O(k).

        Raises:
            TypeError: a level that is not a number; as for `indices`.
            ValueError: a level that is not strictly between 0 and 1, or frequencies that are not from counts; as for
                `indices`.

        Example:
            >>> import ldp
            >>> estimate = ldp.oracle("grr", "1", domain_size=2).estimate([6000, 4000], n=10_000)
            >>> [float(end[0].round(3)) for end in (*estimate.interval(), *estimate.anytime_interval())]
            [0.698, 0.735, 0.681, 0.752]
        """
        self.refuse_memoised("anytime-valid intervals")
        p, q = float(self.oracle.p), float(self.oracle.q)
        counts = self.known_counts(None if values is None else self.indices(values))
        return confidence_sequence.of_values(counts, self.n, p, q, level)

    @property
    def sum_deviation(self) -> float:
        """Distance of Base's sum from its mean 1, in standard errors.

        It is 0 if the sum is constant, and for d = 1. A large distance reveals reports that do not follow the protocol,
        by mistake or by poisoning. If the sum of counts is at distance x from its mean, the result is x/√(n·V +
        b|x|/3). By Bernstein's inequality, honest reports exceed ±z with a probability below 2·exp(−z²/2), which is
        3·10⁻⁸ for z = 6. V is the variance of one report's share, the largest if it depends on the user's value. b is
        the most that one independent part can add (`Oracle.sum_law`). O(d), plus the cost of `Oracle.sum_law` for the
        first estimate of a protocol.

        Example:
            >>> import ldp
            >>> oue = ldp.OUE("1", domain_size=4)
            >>> round(oue.estimate([600, 370, 370, 368], n=1100).sum_deviation, 2)  # a hundred reports of all ones
            8.49
        """
        return deviation.of_sum(self.oracle, self.n, self.frequencies)

    @property
    def warning(self) -> str | None:
        """Reason why honest reports cannot have these counts, or None.

        The frequencies have the wrong sum (`sum_deviation`), or one of them is far outside [0, 1]. Honest reports have
        a warning with a probability below 10⁻⁷. One value always has one, except with unary encoding. O(d).

        Example:
            >>> import ldp
            >>> ldp.OUE("4", domain_size=3).estimate([1000, 10, 1000], n=1000).warning
            'these are not counts of 1,000 honest oue reports: the frequencies sum to 4.06, 53 standard errors from 1'
        """
        return deviation.warning(self.oracle, self.n, self.frequencies, self._name)

    def declared(self, privacy: Declaration | None) -> Estimate:
        """Returns the estimate with a declaration, e.g. `Stream.privacy`."""
        return replace(self, privacy=privacy)

    def within(self, start: int, end: int) -> Estimate:
        """Returns the estimate with the time window [start, end) in milliseconds.

        Raises TypeError for a bound that is not an integer, and ValueError for an empty window.
        """
        return replace(self, windows=((start, end),))

    def labelled(self, labels: Sequence[str] | None) -> Estimate:
        """Returns the estimate with names of its values, e.g. `Stream.labels`.

        Raises TypeError for a label that is not a string, and ValueError unless there are d distinct labels.
        """
        return replace(self, labels=None if labels is None else tuple(labels))

    def indices(self, values: npt.ArrayLike) -> Indices:
        """Returns the indices of distinct values, given as indices or as labels.

        Args:
            values: (k,) indices, 0 ≤ v < d, or labels of the estimate; k may be 0.

        Returns:
            (k,) indices in the same order. O(k) for indices, O(d) for labels.

        Raises:
            TypeError: values that are neither integers nor labels; labels if the estimate has none.
            ValueError: an index outside the domain, an unknown label, a repeated value, or not one vector.

        Example:
            >>> import ldp
            >>> estimate = ldp.GRR("1", domain_size=3).estimate([50, 30, 20], n=100).labelled(["red", "blue", "grey"])
            >>> estimate.indices(["grey", "red"]), estimate.indices([2, 0])
            (array([2, 0]), array([2, 0]))
        """
        return as_indices(values, self.oracle.domain_size, self.labels)

    def _columns(self) -> dict[str, Any]:
        columns: dict[str, Any] = {"value": np.arange(self.oracle.domain_size)}
        if self.labels is not None:
            columns["label"] = self.labels
        if self.counts is not None:
            columns["count"] = self.counts
        return columns

    def _caption(self) -> str:
        caption = f"{self._about()}; standard error {100 * self.sigma:.3g} %"
        return f"{caption}. Warning: {self.warning}" if self.warning else caption

    def _about(self) -> str:
        oracle = self.oracle
        of = f"{self.n:,} reports of {oracle.name}, {oracle.promise}, d = {oracle.domain_size:,}"
        ranges = f"{len(self.windows)} range{'s' * (len(self.windows) > 1)}"
        return f"{of}, in {ranges} of time" if self.windows else of

    def most_frequent(self, k: int) -> Indices:
        """Returns up to k values by descending frequency; see `query.top`."""
        f, k = self.frequencies, min(k, self.oracle.domain_size)
        values = np.flatnonzero(f >= np.partition(f, -k)[-k])
        return values[np.argsort(-f[values], kind="stable")[:k]]

    def known_counts(self, values: Indices | None = None) -> Vector:
        """Returns (k,) support counts, recovered from frequencies if necessary.

        Raises ValueError for frequencies that are not from counts, or more than 2⁴³ reports.
        """
        counts = self._recovered() if self.counts is None else self.counts
        return (counts if values is None else counts[values]).astype(np.float64)

    def merge(self, *others: Estimate) -> Estimate:
        """Returns the estimate of all reports of several windows.

        Counts are linear in the reports, so they are added. The result equals `Oracle.estimate` of the sums to the
        last bit. If an estimate has only frequencies, its counts are recovered exactly. Methods are not linear in the
        counts, so merge first. A user who reported in two windows counts twice in n, and has spent ε twice.

        Args:
            others: estimates whose windows overlap neither each other nor the windows of this estimate. O(d) each.

        Raises:
            TypeError: an argument that is not an Estimate, such as a method's vector.
            ValueError: estimates that differ in protocol, ε, domain, parameters or labels, an estimate of the whole
                stream, overlapping windows, frequencies that are not from counts, or more than 2⁴³ reports.

        Example:
            >>> import ldp
            >>> oracle = ldp.oracle("grr", epsilon="1", domain_size=2)
            >>> first, second = (oracle.estimate([60, 40], 100).within(t, t + 60) for t in (0, 60))
            >>> first.merge(second).n, first.merge(second).windows
            (200, ((0, 120),))
        """
        merged = (self, *others)
        for other in merged:
            if not isinstance(other, Estimate):
                raise TypeError(
                    f"merge needs an Estimate, not {type(other).__name__}: {getattr(other, 'advice', _NOT_LINEAR)}"
                )
            if other.oracle != self.oracle:
                raise ValueError(
                    f"estimates of {self.oracle} and {other.oracle} cannot be merged: their counts are not comparable"
                )
        windows, labels, privacy = common(merged)
        n = sum(estimate.n for estimate in merged)
        counts = np.sum([one._recovered() for one in merged], axis=0)  # noqa: SLF001  # of the same class
        return replace(self.oracle.estimate(counts, n), windows=windows, labels=labels, privacy=privacy)

    def _recovered(self) -> Counts:
        """Returns (d,) support counts that match the frequencies."""
        if self.n > MOST_MERGED:
            raise ValueError(f"the estimate has {self.n} reports; merging allows at most {MOST_MERGED}")
        p, q = self.oracle.p, self.oracle.q
        exact = self.n * (float(q) + float(p - q) * self.frequencies)
        counts = np.rint(exact) if self.counts is None else self.counts
        # f̃ and this calculation round five times, each by at most half an ulp of a number that is at most 1
        off = np.abs(exact - counts) > 3 * np.finfo(np.float64).eps * self.n
        if off.any():
            value = int(off.argmax())
            raise ValueError(
                f"frequency {self.frequencies[value]} of value {value} is not from a count: it would be"
                f" {exact[value]} reports; merge estimates of counts, not the results of methods"
            )
        return counts.astype(np.int64)


def check_estimate(given: object) -> None:
    """Raises TypeError for an object that is not an Estimate."""
    if not isinstance(given, Estimate):
        raise TypeError(
            f"an Estimate is needed, not a {type(given).__name__}: {getattr(given, 'advice', _CREATE_ONE)}"
        )
