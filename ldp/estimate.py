"""Unbiased frequency estimates with standard errors and intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from ldp import notebook
from ldp.arguments import as_integer
from ldp.intervals import confidence_sequence, score
from ldp.intervals.binomial_tail import top_bounds

if TYPE_CHECKING:
    from ldp.oracles.oracle import Oracle

Vector = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]
Window = tuple[int, int]  # Time range [start, end) in milliseconds since the epoch

Counts = npt.NDArray[np.int64]

MOST_MERGED = 1 << 43
"""Largest number of reports for which float64 frequencies determine each count."""


_SHOWN = 10  # Values that a notebook shows


@dataclass(frozen=True, eq=False, repr=False)
class Estimate:
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

    Raises:
        ValueError: frequencies that are not d finite numbers, an n below 1, an empty or overlapping window, or a number
            of counts or labels other than d.
        TypeError: an n, a bound of a window or a count that is not an integer, or a label that is not a string.

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

    def __post_init__(self) -> None:
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
            object.__setattr__(self, "labels", _labels(self.labels, d))
        frequencies.flags.writeable = False
        object.__setattr__(self, "frequencies", frequencies)
        object.__setattr__(self, "n", int(self.n))
        object.__setattr__(self, "windows", joined_windows(self.windows))

    @property
    def sigma(self) -> float:
        """σ = √(q(1−q)/(n(p−q)²)), the standard error at frequency 0 (Equation 5)."""
        p, q = self.oracle.p, self.oracle.q
        return math.sqrt(q * (1 - q) / (self.n * (p - q) ** 2))

    def std_error(self) -> Vector:
        """Returns the (d,) standard errors of f̃ (Equation 3). O(d).

        The unknown f is replaced by f̃, clipped to [0, 1]. The variance q(1−q) + f(p−q)(1−p−q) is computed as
        (1−f)·q(1−q) + f·p(1−p), which avoids cancellation and is never negative.
        """
        p, q = self.oracle.p, self.oracle.q
        scale = self.n * (p - q) ** 2
        absent, present = float(q * (1 - q) / scale), float(p * (1 - p) / scale)
        f = np.clip(self.frequencies, 0.0, 1.0)
        return np.sqrt((1.0 - f) * absent + f * present)

    def interval(self, level: float = 0.95) -> tuple[Vector, Vector]:
        """Returns pointwise score intervals around Base.

        Each interval is {f : |f̃ − f|·(p−q) ≤ z·√((q(1−q) + f(p−q)(1−p−q))/n)}. The variance under the root is exact if
        f is the frequency in the population. The interval therefore covers f with probability `level`, unless n·q is
        below about 5. It is valid for one value at one fixed time, and is not clipped to [0, 1]. No such interval
        exists for post-processed values. `ldp.query` has intervals for sets and for the most frequent values.

        Returns:
            Two (d,) vectors, low and high. O(d).

        Raises:
            ValueError: a level that is not strictly between 0 and 1.
        """
        p, q = self.oracle.p, self.oracle.q
        inside, outside = float(p * (1 - p)), float(q * (1 - q))
        return score.interval(self.frequencies, self.n, p - q, inside, outside, level)

    def anytime_interval(self, level: float = 0.95, values: Indices | None = None) -> tuple[Vector, Vector]:
        """Returns anytime-valid intervals around Base for `values`, or for all.

        The intervals of one value hold at all n simultaneously with probability `level`. Use them if you look at each
        new snapshot, or stop when a result appears; see `ldp.intervals.confidence_sequence`. They are within [0, 1],
        and about 1.9 times as wide as pointwise intervals.

        Returns:
            Two (k,) vectors, low and high. O(k).

        Raises:
            ValueError: a level that is not strictly between 0 and 1, or frequencies that are not from counts.

        Example:
            >>> import ldp
            >>> estimate = ldp.oracle("grr", "1", domain_size=2).estimate([6000, 4000], n=10_000)
            >>> [float(end[0].round(3)) for end in (*estimate.interval(), *estimate.anytime_interval())]
            [0.698, 0.735, 0.681, 0.752]
        """
        p, q = float(self.oracle.p), float(self.oracle.q)
        return confidence_sequence.of_values(self.known_counts(values), self.n, p, q, level)

    def within(self, start: int, end: int) -> Estimate:
        """Returns the estimate with the time window [start, end) in milliseconds.

        Raises TypeError for a bound that is not an integer, and ValueError for an empty window.
        """
        return replace(self, windows=((start, end),))

    def labelled(self, labels: Sequence[str] | None) -> Estimate:
        """Returns the estimate with names of its values, e.g. `Stream.labels`.

        Raises TypeError for a label that is not a string, and ValueError unless there are d labels.
        """
        return replace(self, labels=None if labels is None else tuple(labels))

    def to_frame(
        self,
        more: Mapping[str, npt.ArrayLike] | None = None,
        *,
        level: float = 0.95,
        library: Literal["pandas", "polars"] | None = None,
    ) -> Any:
        """Returns a data frame with a row for each value.

        Columns: ``value``; ``label`` and ``count`` if known; Base's ``frequency`` and ``std_error`` (Equation 3);
        ``low`` and ``high``, the ends of Base's pointwise interval; the columns in `more`.

        Args:
            more: further columns of d numbers by name, for example from `ldp.consistency.together.by_method`.
            level: coverage of the intervals.
            library: pandas or polars; None for the first that is installed.

        Raises:
            ValueError: a level that is not strictly between 0 and 1, an unknown library, or a further column that does
                not have d numbers or has one of the names above.
            ImportError: the library is not installed.

        Example:
            >>> import ldp
            >>> estimate = ldp.GRR("1", domain_size=2).estimate([60, 40], n=100).labelled(["red", "blue"])
            >>> estimate.to_frame({"norm-sub": ldp.consistency.METHODS["norm-sub"](estimate)}).round(2)
               value label  count  frequency  std_error   low  high  norm-sub
            0      0   red     60       0.72        0.1  0.53  0.90      0.72
            1      1  blue     40       0.28        0.1  0.10  0.47      0.28
        """
        low, high = self.interval(level)
        columns: dict[str, Any] = {"value": np.arange(self.oracle.domain_size)}
        if self.labels is not None:
            columns["label"] = self.labels
        if self.counts is not None:
            columns["count"] = self.counts
        columns |= {"frequency": self.frequencies, "std_error": self.std_error(), "low": low, "high": high}
        for name, given in (more or {}).items():
            if name in columns:
                raise ValueError(f"column {name!r} is a duplicate; the columns are {', '.join(columns)}")
            if (vector := np.asarray(given)).shape != self.frequencies.shape:
                raise ValueError(f"column {name!r} has shape {vector.shape}, not {self.frequencies.shape}")
            columns[name] = vector
        return notebook.data_frame(columns, library)

    def __repr__(self) -> str:
        shown = [f"{self._name(v)} {self.frequencies[v]:.3g}" for v in self.most_frequent(3)]
        rest = ["…"] if len(shown) < self.oracle.domain_size else []
        return f"Estimate({self._about()}: {', '.join(shown + rest)})"

    def _repr_html_(self) -> str:
        """Renders the most frequent values with simultaneous intervals as HTML."""
        oracle, values = self.oracle, self.most_frequent(_SHOWN)
        low, high = top_bounds(
            self.nearest_counts(values), self.n, oracle.p, oracle.q, oracle.domain_size, level=0.95
        )
        rows = zip(map(self._name, values), self.frequencies[values], low, high, strict=True)
        caption = f"{self._about()}; standard error {100 * self.sigma:.2g} %"
        return notebook.table(caption, rows, 0.95, oracle.domain_size - values.size)

    def _about(self) -> str:
        oracle = self.oracle
        of = f"{self.n:,} reports of {oracle.name}, {oracle.promise}, d = {oracle.domain_size:,}"
        ranges = f"{len(self.windows)} range{'s' * (len(self.windows) > 1)}"
        return f"{of}, in {ranges} of time" if self.windows else of

    def _name(self, value: np.intp) -> str:
        return notebook.name_of(int(value), self.labels)

    def most_frequent(self, k: int) -> Indices:
        """Returns up to k values by descending frequency; see `query.top`."""
        f, k = self.frequencies, min(k, self.oracle.domain_size)
        values = np.flatnonzero(f >= np.partition(f, -k)[-k])
        return values[np.argsort(-f[values], kind="stable")[:k]]

    def nearest_counts(self, values: Indices) -> Vector:
        """Returns (k,) support counts, computed from frequencies if unknown."""
        if self.counts is not None:
            return self.counts[values].astype(np.float64)
        p, q = self.oracle.p, self.oracle.q
        nearest: Vector = np.rint(self.n * (float(q) + float(p - q) * self.frequencies[values]))
        return np.clip(nearest, 0.0, self.n)

    def known_counts(self, values: Indices | None = None) -> Vector:
        """Returns support counts as (k,) float64; see `support`."""
        counts = self.support() if self.counts is None else self.counts
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
                    f"merge needs an Estimate, not {type(other).__name__}: a method's vector is not linear in the"
                    " counts; merge the estimates, then apply the method"
                )
            if other.oracle != self.oracle:
                raise ValueError(
                    f"estimates of {self.oracle} and {other.oracle} cannot be merged: their counts are not comparable"
                )
        windows, labels = windows_and_labels(merged)
        n = sum(estimate.n for estimate in merged)
        counts = np.sum([estimate.support() for estimate in merged], axis=0)
        return replace(self.oracle.estimate(counts, n), windows=windows, labels=labels)

    def support(self) -> Counts:
        """Returns (d,) support counts, recovered from frequencies if necessary.

        Raises ValueError for frequencies that are not from counts, or more than 2⁴³ reports.
        """
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
            f"an Estimate is needed, not a {type(given).__name__}, because methods depend on n and on the protocol."
            " Create one with oracle.estimate(counts, n) or ldp.Estimate(frequencies, n, oracle)"
        )


def _labels(given: Sequence[str], d: int) -> tuple[str, ...]:
    labels = tuple(given)
    if len(labels) != d:
        raise ValueError(f"there are {len(labels)} labels for {d} values")
    for index, label in enumerate(labels):
        if not isinstance(label, str):
            raise TypeError(f"label {index} is {label!r}; it must be a string")
    return labels


def windows_and_labels(merged: Sequence[Estimate]) -> tuple[tuple[Window, ...], tuple[str, ...] | None]:
    """Returns the windows and labels of merged estimates."""
    if not all(one.windows for one in merged):
        raise ValueError(
            "an estimate of the whole stream cannot be merged: it contains the reports of every window;"
            " set the window of each estimate with within(start, end)"
        )
    labels = {one.labels for one in merged} - {None}
    if len(labels) > 1:
        raise ValueError("estimates with different labels cannot be merged: their values differ")
    return tuple(window for one in merged for window in one.windows), next(iter(labels), None)


def joined_windows(windows: Iterable[Window]) -> tuple[Window, ...]:
    """Sorts windows and joins adjacent ones. Raises ValueError for an overlap."""
    joined: list[Window] = []
    for start, end in sorted(_checked(window) for window in windows):
        first, last = joined[-1] if joined else (start, None)
        if last is not None and start < last:
            raise ValueError(
                f"the windows {(first, last)} and {(start, end)} overlap: reports in both would be counted twice"
            )
        if last == start:
            joined[-1] = (first, end)
        else:
            joined.append((start, end))
    return tuple(joined)


def _checked(window: Window) -> Window:
    if not isinstance(window, tuple) or len(window) != 2:
        raise TypeError(f"a window is (start, end), got {window!r}")
    start = as_integer("a window's start", window[0], -(1 << 63), (1 << 63) - 2)
    return start, as_integer("a window's end", window[1], start + 1, (1 << 63) - 1)
