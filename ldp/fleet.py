"""Estimates of one stream from the reports of several documents.

Let document r have n_r reports, and let f̃_rv be its Base estimate of the value with label v. Let n_v be the number of
reports of the documents that have the label, and w_r = n_r/n_v. The fleet's estimate is

    f̃_v = Σ w_r·f̃_rv.

Every report has the same weight, so f̃_v is unbiased for the share among these n_v reports, even if users with different
values hold different documents. Weights by inverse variance lack this property. A label that no document with reports
has is unknown, not 0.

`ldp/intervals/mixture.py` has the intervals. Sets use the same equations with the documents that have every label of
the set (`ldp.query`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from ldp.arguments import as_indices
from ldp.estimate import Estimate, Indices, Vector, check_estimate
from ldp.intervals import confidence_sequence, mixture
from ldp.intervals.score import Of
from ldp.notebook import Displayed
from ldp.stream import Stream, where
from ldp.summation import exact_sum


@dataclass(frozen=True)
class Fleet:
    """The documents of one stream, with their labels joined in order.

    The labels of the first document come first, then those that each next document adds. A document that is appended
    therefore changes no index. Unlabelled documents have their values in common.

    Attributes:
        documents: at least one, in the order in which they were recorded.
        retired: fingerprints of the documents that are no longer accepted.

    Raises:
        ValueError: no document, one document twice, or documents with and without labels.

    Example:
        >>> import ldp
        >>> old = ldp.Stream("old", ldp.GRR("1", 3), labels=["red", "blue", "grey"])
        >>> new = ldp.Stream("new", ldp.OUE("1", 3), labels=["blue", "green", "red"])
        >>> fleet = Fleet((old, new))
        >>> fleet.labels, fleet.places[1]
        (('red', 'blue', 'grey', 'green'), array([1, 3, 0]))
    """

    documents: tuple[Stream, ...]
    retired: frozenset[bytes] = frozenset()

    def __post_init__(self) -> None:
        object.__setattr__(self, "documents", tuple(self.documents))
        if not self.documents:
            raise ValueError("there are 0 documents; at least one is needed")
        if len({document.labels is None for document in self.documents}) > 1:
            raise ValueError(
                "some documents have labels and some have none; give all documents labels, or none"
            )
        fingerprints = [document.fingerprint for document in self.documents]
        if len(set(fingerprints)) < len(fingerprints):
            twice = next(each for each in fingerprints if fingerprints.count(each) > 1)
            raise ValueError(f"document {twice.hex()} is a duplicate; list each document once")

    @cached_property
    def labels(self) -> tuple[str, ...] | None:
        """The joined labels, or None."""
        first, *more = (document.labels for document in self.documents)
        if first is None or not more:
            return first
        return tuple(dict.fromkeys(itertools.chain(first, *(each or () for each in more))))

    @cached_property
    def places(self) -> tuple[Indices, ...]:
        """For each document, the joined index of each of its values."""
        if self.labels is None or len(self.documents) == 1:
            return tuple(np.arange(each.oracle.domain_size) for each in self.documents)
        index = {label: i for i, label in enumerate(self.labels)}
        return tuple(np.array([index[x] for x in each.labels or ()], np.intp) for each in self.documents)

    @property
    def name(self) -> str:
        """The name of the first document."""
        return self.documents[0].name

    @cached_property
    def size(self) -> int:
        """The number of joined values."""
        if self.labels is not None:
            return len(self.labels)
        return max(each.oracle.domain_size for each in self.documents)

    @property
    def live(self) -> list[int]:
        """The numbers of the documents that are not retired."""
        return [i for i, each in enumerate(self.documents) if each.fingerprint not in self.retired]

    @cached_property
    def own(self) -> list[Indices]:
        """For each document, its index of each joined value, or −1 if it has none."""
        own = [np.full(self.size, -1) for _ in self.places]
        for indices, places in zip(own, self.places, strict=True):
            indices[places] = np.arange(places.size)
        return own

    def where(self, *predicates: str | Callable[[str], object]) -> tuple[int, ...]:
        """Returns the joined indices of the labels that satisfy a predicate.

        See `ldp.Stream.where`.
        """
        return where(self.name, self.labels, *predicates)

    def having(self, values: Indices) -> dict[int, Indices]:
        """Returns the documents that have all values, with the indices there.

        The keys are numbers of documents. O(m) per document, and O(d) once.
        """
        own = {number: indices[values] for number, indices in enumerate(self.own)}
        return {number: indices for number, indices in own.items() if (indices >= 0).all()}

    def estimate(self, estimates: Sequence[Estimate | None]) -> FleetEstimate:
        """Returns the fleet's estimate from Base of each document.

        `estimates` are in the order of the documents, with None for a document without reports.

        Raises:
            TypeError: an estimate that is neither an Estimate nor None.
            ValueError: another number of estimates, no reports at all, an estimate of another protocol or with other
                labels, or estimates of different windows.

        Example:
            >>> import ldp
            >>> old = ldp.Stream("old", ldp.GRR("1", 2), labels=["red", "blue"])
            >>> new = ldp.Stream("new", ldp.OUE("1", 3), labels=["red", "blue", "grey"])
            >>> Fleet((old, new)).estimate([old.oracle.estimate([60, 40], n=100), None])
            FleetEstimate(100 reports of 2 documents: red 0.716, blue 0.284)
        """
        return FleetEstimate(self, tuple(estimates))


@dataclass(frozen=True, eq=False, repr=False)
class FleetEstimate(Displayed):
    """Base for a fleet of several documents: f̃_v = Σ w_r·f̃_rv.

    The functions of `ldp.query`, `ldp.poisoning` and `ldp.consistency.METHODS` accept fleet estimates. A method is the
    mixture Σ w_r·m(f̃_r) of its results for each document. A recommendation, a comparison of windows and `merge` need
    the estimate of one document.

    Attributes:
        fleet: the documents.
        estimates: Base of each document; None without reports.
        n: number of reports.
        known: (d,) int64 n_v, the number of reports of the documents that have each label.
        frequencies: (d,) float64; NaN where `known` is 0.
        labels: the joined labels, or None.

    Example:
        >>> import ldp
        >>> old = ldp.Stream("old", ldp.GRR("1", 2), labels=["red", "blue"])
        >>> new = ldp.Stream("new", ldp.GRR("1", 3), labels=["blue", "grey", "red"])
        >>> parts = [old.oracle.estimate([600, 400], n=1000), new.oracle.estimate([800, 1000, 1200], n=3000)]
        >>> found = Fleet((old, new)).estimate(parts)
        >>> found.known, found.frequencies.round(3)
        (array([4000, 4000, 3000]), array([0.566, 0.184, 0.333]))
    """

    fleet: Fleet
    estimates: tuple[Estimate | None, ...]
    n: int = field(init=False)
    known: npt.NDArray[np.int64] = field(init=False)
    frequencies: Vector = field(init=False)
    labels: tuple[str, ...] | None = field(init=False)

    def __post_init__(self) -> None:
        documents = self.fleet.documents
        if len(self.estimates) != len(documents):
            raise ValueError(f"there are {len(self.estimates)} estimates for {len(documents)} documents")
        if all(estimate is None for estimate in self.estimates):
            raise ValueError("no document has reports; at least one needs reports")
        pairs = zip(self.estimates, documents, strict=True)
        estimates = tuple(None if one is None else _described(one, each) for one, each in pairs)
        object.__setattr__(self, "estimates", estimates)
        if len({one.windows for one in self.counted}) > 1:
            raise ValueError("estimates have different windows; all documents need the same window")
        known = np.zeros(self.fleet.size, np.int64)
        for estimate, places in self._counted:
            known[places] += estimate.n
        object.__setattr__(self, "n", sum(one.n for one in self.counted))
        object.__setattr__(self, "known", known)
        object.__setattr__(self, "frequencies", self.mixture(one.frequencies for one in self.counted))
        object.__setattr__(self, "labels", self.fleet.labels)
        self.known.flags.writeable = self.frequencies.flags.writeable = False

    @cached_property
    def _counted(self) -> list[tuple[Estimate, Indices]]:
        """The estimates of documents with reports, and the places of their values."""
        pairs = zip(self.estimates, self.fleet.places, strict=True)
        return [(estimate, places) for estimate, places in pairs if estimate is not None]

    def mixture(self, vectors: Iterable[Vector]) -> Vector:
        """Returns Σ w_r·x_r for each label, and NaN for unknown labels.

        `vectors` has one (d_r,) vector for each document with reports, in order. O(Σ d_r).
        """
        mixed = np.where(self.known > 0, 0.0, np.nan)
        for (estimate, places), vector in zip(self._counted, vectors, strict=True):
            mixed[places] += estimate.n / self.known[places] * vector
        return mixed

    @property
    def counted(self) -> list[Estimate]:
        """The estimates of the documents with reports."""
        return [estimate for estimate in self.estimates if estimate is not None]

    @property
    def sum(self) -> float:
        """The sum of the known labels' frequencies.

        It exceeds 1 on average if a document lacks labels, because their frequencies are shares among fewer reports.
        For one label with the frequency f that documents with m of n reports lack, the mean is 1 + f·m/n.
        """
        return exact_sum(self.frequencies[self.known > 0])

    def indices(self, values: npt.ArrayLike) -> Indices:
        """Returns the joined indices of distinct values; see `Estimate.indices`."""
        return as_indices(values, self.fleet.size, self.labels)

    def parts(self, subset: npt.ArrayLike) -> tuple[int, list[tuple[float, Estimate, Indices]]]:
        """Returns the documents that have reports and every value of a set.

        Returns:
            The number n of their reports, and for each document its share of them, its estimate, and its own indices of
            the set's values.

        Raises:
            ValueError: no such document; also as for `indices`.
            TypeError: as for `indices`.
        """
        having = self.fleet.having(self.indices(subset))
        found = [(one, own) for number, own in having.items() if (one := self.estimates[number])]
        if not found:
            raise ValueError("no document with reports has every value of the set; ask for fewer values")
        n = sum(one.n for one, _ in found)
        return n, [(one.n / n, one, own) for one, own in found]

    def std_error(self) -> Vector:
        """Returns the (d,) standard errors √(Σ w_r²·s_r²), with NaN as unknown.

        s_r are the standard errors of each document (Equation 3). O(Σ d_r).
        """
        squares = (one.n / self.known[places] * one.std_error() ** 2 for one, places in self._counted)
        return np.sqrt(self.mixture(squares))

    def interval(self, level: float = 0.95, of: Of = "reports") -> tuple[Vector, Vector]:
        """Returns pointwise score intervals around Base.

        They cover the share among the n_v reports; `of` is as for `Estimate.interval`. The shares may differ between
        documents.

        Returns:
            Two (d,) vectors, low and high, with NaN as unknown. O(Σ d_r).

        Raises:
            TypeError: a level that is not a number.
            ValueError: a level that is not strictly between 0 and 1, or an unknown `of`.

        Example:
            >>> import ldp
            >>> documents = ldp.Stream("old", ldp.GRR("1", 2)), ldp.Stream("new", ldp.GRR("3", 2))
            >>> old, new = (document.oracle.estimate([600, 400], n=1000) for document in documents)
            >>> low, high = Fleet(documents).estimate([old, new]).interval()
            >>> low.round(3), high.round(3)
            (array([0.633, 0.306]), array([0.694, 0.367]))
        """
        parts = []
        for one in self.counted:
            p, q = one.oracle.p, one.oracle.q
            inside, outside = (one.repeated_variance(float(x * (1 - x)), 1) for x in (p, q))
            parts.append(mixture.Part(one.frequencies, inside, outside, float(p - q), one.per_device))
        return mixture.interval(self.mixture, parts, np.where(self.known, self.known, np.nan), level, of)

    def anytime_interval(
        self, level: float = 0.95, values: npt.ArrayLike | None = None
    ) -> tuple[Vector, Vector]:
        """Returns anytime-valid intervals around Base for `values`, or for all.

        They cover the share among the n_v reports, at all times simultaneously; see `Estimate.anytime_interval`. The
        documents' shares may differ and change. The intervals hold for one fleet, so add a document before its first
        report.

        Returns:
            Two (k,) vectors, low and high, in [0, 1], with NaN as unknown. O(k) per document.

        Raises:
            TypeError: a level that is not a number; as for `indices`.
            ValueError: a level that is not strictly between 0 and 1, frequencies that are not from counts, or several
                reports of a device with memoised noise; as for `indices`.
        """
        places = np.arange(self.fleet.size) if values is None else self.indices(values)
        counts, reports = np.zeros((2, len(self.estimates), places.size))
        for row, (one, own) in enumerate(zip(self.estimates, self.fleet.own, strict=True)):
            if one is not None:
                has = own[places] >= 0
                if has.any():
                    one.refuse_memoised("anytime-valid intervals")
                counts[row, has], reports[row, has] = one.known_counts(own[places][has]), one.n
        channels = [(float(each.oracle.p), float(each.oracle.q)) for each in self.fleet.documents]
        low, high = confidence_sequence.of_documents(counts, reports, channels, level)
        low[self.known[places] == 0] = high[self.known[places] == 0] = np.nan
        return low, high

    def most_frequent(self, k: int, fewest: int = 1) -> Indices:
        """Returns up to k values by descending frequency.

        Only values with at least `fewest` reports (`known`) are considered. O(d log d).
        """
        values = np.flatnonzero(self.known >= max(fewest, 1))
        return values[np.argsort(-self.frequencies[values], kind="stable")[:k]]

    def top_bounds(self, values: Indices, level: float, of: Of = "reports") -> tuple[Vector, Vector]:
        """Returns simultaneous bounds for the most frequent values.

        They are the anytime-valid intervals at 1 − (1 − level)/d, because any value can be among the most frequent.
        They cover shares among the reports: `of` "population" raises ValueError. See `anytime_interval`.
        """
        if of != "reports":
            raise ValueError(f"`of` is {of!r}; allowed is 'reports' for the most frequent values of a fleet")
        return self.anytime_interval(1.0 - (1.0 - level) / self.fleet.size, values)

    def merge(self, *_others: object) -> NoReturn:
        """Raises TypeError, because merging needs estimates of one document."""
        raise TypeError(f"merge needs an Estimate, not FleetEstimate: {self.advice}")

    @property
    def advice(self) -> str:
        """How to proceed where the estimate of one document is needed."""
        reports = [0 if one is None else one.n for one in self.estimates]
        return f"read the estimate of one document, such as {self._part(reports.index(max(reports)))}"

    @property
    def warning(self) -> str | None:
        """Reason why a document's honest reports cannot have these counts.

        None without a reason; see `Estimate.warning`.
        """
        warnings = ((number, one.warning) for number, one in enumerate(self.estimates) if one is not None)
        return next((f"{self._part(number)}: {warning}" for number, warning in warnings if warning), None)

    def _repr_html_(self) -> str | None:
        return None if any(one.memoised for one in self.counted) else super()._repr_html_()

    def _part(self, number: int) -> str:
        document = self.fleet.documents[number]
        return f"{document.name}@{document.fingerprint.hex()}"

    def _columns(self) -> dict[str, Any]:
        columns: dict[str, Any] = {"value": np.arange(self.fleet.size)}
        if self.labels is not None:
            columns["label"] = self.labels
        return columns | {"known": self.known}

    def _caption(self) -> str:
        return f"{self._about()}. Warning: {self.warning}" if self.warning else self._about()

    def _about(self) -> str:
        return f"{self.n:,} reports of {len(self.estimates)} documents"


def _described(estimate: Estimate, document: Stream) -> Estimate:
    """Returns the estimate with its document's labels and declaration."""
    check_estimate(estimate)
    if estimate.oracle != document.oracle:
        raise ValueError(f"an estimate of {estimate.oracle} is given for a document of {document.oracle}")
    if estimate.labels not in (None, document.labels):
        raise ValueError(
            "an estimate has other labels than its document; give estimates in the documents' order"
        )
    return replace(estimate, labels=document.labels, privacy=estimate.privacy or document.privacy)
