"""The content of a snapshot: arrays and plain values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from ldp.estimate import Estimate
from ldp.query import SetQuery, TopQuery
from ldp.stream import Stream

Vector = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


class _BitForBit:
    """Objects are equal if they are of one class and all their fields are equal, arrays bit for bit."""

    __hash__ = None  # type: ignore[assignment]  # as of everything that has arrays

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(_same(getattr(self, f.name), getattr(other, f.name)) for f in fields(self))  # type: ignore[arg-type]


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return (one.dtype, one.shape) == (other.dtype, other.shape) and one.tobytes() == other.tobytes()
    if isinstance(one, float) and isinstance(other, float):  # 0.0 and -0.0 are two
        return one.hex() == other.hex()
    return type(one) is type(other) and bool(one == other)


@dataclass(frozen=True)
class Period:
    """The time window of a snapshot's reports: [start, end) in milliseconds; None for all time.

    `name` is that of the windows as configured, or `all`; `final` is whether it changes no more.
    """

    name: str = "all"
    start: int | None = None
    end: int | None = None
    final: bool = False


ALL_TIME = Period()


@dataclass(frozen=True)
class Closed:
    """How far the windows of one name are closed.

    Every window that ends at or before `closed` changes no more. `bounded` are ranges [from, to) of ends that were
    closed before every partition had passed them. `starts` are those of windows on the topic, if they are to be
    deleted.
    """

    closed: int
    bounded: tuple[tuple[int, int], ...] = ()
    starts: tuple[int, ...] = ()

    def is_bounded(self, end: int) -> bool:
        """Returns whether the window with that end was closed before every partition had passed it."""
        return any(begin <= end < to for begin, to in self.bounded)


@dataclass(frozen=True)
class Slots:
    """The rows that a window can have.

    Attributes:
        methods: their names.
        ranks: query -> its highest rank; the values themselves have the empty name.

    Example:
        >>> Slots(("base",), {"": 100}) | Slots(("base", "norm"), {"": 10, "warm": 1})
        Slots(methods=('base', 'norm'), ranks={'': 100, 'warm': 1})
    """

    methods: tuple[str, ...]
    ranks: Mapping[str, int]

    def __or__(self, other: "Slots") -> "Slots":
        """Returns what has all rows of both, and perhaps more."""
        ranks = dict(self.ranks)
        for query, highest in other.ranks.items():
            ranks[query] = max(highest, ranks.get(query, 0))
        return Slots(tuple(dict.fromkeys(self.methods + other.methods)), ranks)


@dataclass(frozen=True)
class Rows:
    """The rows of a stream on a topic; windows that end by `until` (ms) may have `older` rows in addition."""

    topic: str
    slots: Slots
    older: Slots | None = None
    until: int = 0


@dataclass(frozen=True)
class Cut:
    """The point at which a snapshot cuts the stream.

    Attributes:
        offsets: partition -> the counts are those of all records before this offset.
        gaps: partition -> ranges [from, to) of the log that were lost before they were counted; without empty ones.
        uncounted: partitions that have, or had, records and no counts, in order; not in ``offsets``.
        rules: partition -> the rules that decide which of its records count, in JSON's types.
        floors: partition -> the watermark at which its windows begin, if it was admitted to a stream of windows.
        progress: name of windows -> how far they are closed.
        rows: the rows that the stream can have on a topic of rows, or None.
        methods: those that can have bodies of all time on the topic of snapshots; None for all.
        reached: the highest window-close watermark so far, in milliseconds: added windows begin beyond it. None if
            unknown.
    """

    offsets: Mapping[int, int]
    gaps: Mapping[int, Sequence[tuple[int, int]]]
    uncounted: Sequence[int] = ()
    rules: Mapping[int, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    floors: Mapping[int, int] = field(default_factory=dict)
    progress: Mapping[str, Closed] = field(default_factory=dict)
    rows: Rows | None = None
    methods: tuple[str, ...] | None = None
    reached: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "offsets", dict(sorted(self.offsets.items())))
        gaps = {p: [(begin, end) for begin, end in lost] for p, lost in sorted(self.gaps.items()) if lost}
        object.__setattr__(self, "gaps", gaps)
        object.__setattr__(self, "uncounted", tuple(sorted(self.uncounted)))
        rules = {p: [dict(rule) for rule in own] for p, own in sorted(self.rules.items())}
        object.__setattr__(self, "rules", rules)
        object.__setattr__(self, "floors", dict(sorted(self.floors.items())))
        object.__setattr__(self, "progress", dict(sorted(self.progress.items())))

    @property
    def complete(self) -> bool:
        """Whether every record before the offsets was read, and no partition is left out."""
        return not self.gaps and not self.uncounted


@dataclass(frozen=True)
class Recommended:
    """The method that suits a query best (`ldp.analysis.method_selection`).

    `sequence` is the number of the snapshot that it was chosen from, and the seed of the simulation.
    """

    method: str
    sequence: int


@dataclass(frozen=True, eq=False)
class SetAnswer(_BitForBit):
    """A method's answer for a set of values; fields as in ``snapshot.schema.json``.

    All after `frequency` belong to Base: standard error, score interval, anytime-valid interval, and poisoning
    tolerance (−1 for infinity). None for other methods.
    """

    query: SetQuery
    frequency: float
    std_error: float | None = None
    low: float | None = None
    high: float | None = None
    anytime_low: float | None = None
    anytime_high: float | None = None
    poisoning_tolerance: int | None = None


@dataclass(frozen=True, eq=False)
class TopAnswer(_BitForBit):
    """A method's answer for the most frequent values: (k,) indices in order, the same for every method.

    The rest are (k,) each and belong to Base: simultaneous intervals, anytime-valid ones, and poisoning tolerance (−1
    for infinity). None for other methods.
    """

    query: TopQuery
    values: Indices
    frequencies: Vector
    low: Vector | None = None
    high: Vector | None = None
    anytime_low: Vector | None = None
    anytime_high: Vector | None = None
    poisoning_tolerance: Vector | None = None


@dataclass(frozen=True, eq=False)
class Body(_BitForBit):
    """The results of one method; fields as in ``snapshot.schema.json``.

    `frequencies` are (d,), `sum` is the answer for the whole domain. (d,) each and only for Base: score intervals,
    anytime-valid ones (None without counts), and poisoning tolerance (−1 for infinity). `by_rate` is (rates, 2),
    reports of each value at each rate, or None.
    """

    frequencies: Vector
    sum: float
    sets: tuple[SetAnswer, ...] = ()
    tops: tuple[TopAnswer, ...] = ()
    low: Vector | None = None
    high: Vector | None = None
    anytime_low: Vector | None = None
    anytime_high: Vector | None = None
    poisoning_tolerance: Vector | None = None
    by_rate: Indices | None = None


@dataclass(frozen=True, eq=False)
class Snapshot(_BitForBit):
    """A whole snapshot. Two are equal if all in them is, floats and arrays bit for bit.

    Attributes:
        stream: the stream's name.
        fingerprint: of its public document, eight hexadecimal digits.
        document: the public document, without labels.
        labels: the domain's, or None.
        sequence: the snapshot's number.
        identity: 32 hexadecimal digits that no other snapshot has.
        lineage: identifies the source of the counts, with the fingerprint; None if they do not come from a topic.
        cut: the counted records.
        complete: whether nothing is missing: a newer writer may know reasons that `Cut` does not.
        reports: n, reports and not users.
        std_error: of Base, for a value of frequency 0 (Equation 5).
        level: confidence level of Base's intervals.
        recommended: query name -> method; queries without a recommendation are missing.
        bodies: method -> its results; empty if only the head is published.
        window: the time window of the reports.
        epsilon: of an explicit channel the ε that one report spends; None if the document has ε.
    """

    stream: str
    fingerprint: str
    document: Mapping[str, Any]
    labels: tuple[str, ...] | None
    sequence: int
    identity: str
    lineage: Mapping[str, str] | None
    cut: Cut
    complete: bool
    reports: int
    std_error: float
    level: float
    recommended: Mapping[str, Recommended]
    bodies: Mapping[str, Body]
    window: Period = ALL_TIME
    epsilon: str | None = None

    def estimate(self) -> Estimate:
        """Returns Base as an estimate again, with its window and labels; disjoint windows merge.

        Raises:
            ValueError: Base is not among the methods, or there are no reports.
        """
        oracle = Stream.from_document(self.stream, self.document).oracle
        base = self._base()
        estimate = (
            Estimate(base.frequencies, self.reports, oracle)
            if base.by_rate is None
            else oracle.estimate_state(base.by_rate.ravel(), self.reports)
        ).labelled(self.labels)
        window = self.window
        return (
            estimate
            if window.start is None or window.end is None
            else estimate.within(window.start, window.end)
        )

    def interval(self) -> tuple[Vector, Vector]:
        """Returns the ends of Base's score intervals, (d,) each. Raises ValueError without Base."""
        base = self._base()
        if base.low is None or base.high is None:
            raise ValueError(f"base has no intervals in snapshot {self.sequence} of {self.stream!r}")
        return base.low, base.high

    def _base(self) -> Body:
        base = self.bodies.get("base")
        if base is None:
            raise ValueError(f"base is needed, which is not among {', '.join(self.bodies) or 'none'}")
        return base
