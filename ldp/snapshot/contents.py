"""What a snapshot says: arrays and plain values, nothing of how they are written down."""

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
    """What time a snapshot's reports are of.

    Attributes:
        name: of the windows, as they are configured; `all` for all time.
        start: the window's first millisecond; None for all time.
        end: the first millisecond behind it, or None.
        final: whether it never changes any more.
    """

    name: str = "all"
    start: int | None = None
    end: int | None = None
    final: bool = False


ALL_TIME = Period()


@dataclass(frozen=True)
class Line:
    """How far the windows of one name are closed.

    Attributes:
        closed: every window that ends at or before it is final, or bounded, and changes no more.
        bounded: stretches [from, to) of ends that were closed before every partition had passed them.
        starts: of the windows whose messages are on the topic, if they are to be deleted some day.

    Example:
        >>> line = Line(3000, bounded=((2000, 3000),))
        >>> line.is_bounded(2000), line.is_bounded(3000)
        (True, False)
    """

    closed: int
    bounded: tuple[tuple[int, int], ...] = ()
    starts: tuple[int, ...] = ()

    def is_bounded(self, end: int) -> bool:
        """Returns whether the window with that end was closed before every partition had passed it."""
        return any(begin <= end < to for begin, to in self.bounded)


@dataclass(frozen=True)
class Slots:
    """Which rows a window can have: of each method, and of each query the ranks from 1 to a highest one.

    Attributes:
        methods: whose.
        ranks: query -> its highest rank; that of the values themselves is under the empty name.

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
    """What a stream can have on the topic of rows.

    Attributes:
        topic: which.
        slots: the rows of all time, and of each window.
        older: those that windows which end by `until` can have beside them, or None.
        until: in milliseconds.
    """

    topic: str
    slots: Slots
    older: Slots | None = None
    until: int = 0


@dataclass(frozen=True)
class Cut:
    """Where a snapshot cuts the stream.

    Attributes:
        offsets: partition -> the counts are those of all records before this offset.
        gaps: partition -> stretches [from, to) of the log that were lost, so that they are not in the counts; only
            partitions that have any are kept.
        uncounted: partitions that have records, or had, and no counts, in order; they are not in ``offsets``.
        rules: partition -> what decided which of its records count, in JSON's types; said in the head.
        floors: partition -> the line at which its windows begin, for those that were admitted to a stream of windows.
        lines: name of windows -> how far they are closed.
        rows: what the stream can have on a topic of rows; None where it has none.
        methods: those that can have bodies on the topic of snapshots, of all time; None for all.
        reached: how far some windows were closed by all partitions, or as bounded, in milliseconds: the line of windows
            that were added begins beyond all reports. None where nothing is said of it.

    Example:
        >>> Cut({1: 7, 0: 12}, {1: [(2, 5)], 0: []}).gaps
        {1: [(2, 5)]}
    """

    offsets: Mapping[int, int]
    gaps: Mapping[int, Sequence[tuple[int, int]]]
    uncounted: Sequence[int] = ()
    rules: Mapping[int, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    floors: Mapping[int, int] = field(default_factory=dict)
    lines: Mapping[str, Line] = field(default_factory=dict)
    rows: Rows | None = None
    methods: tuple[str, ...] | None = None
    reached: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "offsets", dict(sorted(self.offsets.items())))
        gaps = {p: [(begin, end) for begin, end in lost] for p, lost in sorted(self.gaps.items()) if lost}
        object.__setattr__(self, "gaps", gaps)
        object.__setattr__(self, "uncounted", tuple(sorted(self.uncounted)))
        rules = {p: [dict(rule) for rule in said] for p, said in sorted(self.rules.items())}
        object.__setattr__(self, "rules", rules)
        object.__setattr__(self, "floors", dict(sorted(self.floors.items())))
        object.__setattr__(self, "lines", dict(sorted(self.lines.items())))

    @property
    def complete(self) -> bool:
        """Whether every record before the offsets was read, and no partition is left out."""
        return not self.gaps and not self.uncounted


@dataclass(frozen=True)
class Recommended:
    """The method that clearly suits a query best, chosen from the reports themselves (`ldp.analysis.method_selection`).

    Attributes:
        method: its name.
        sequence: the number of the snapshot that it was chosen from; also the seed of the simulation.
    """

    method: str
    sequence: int


@dataclass(frozen=True, eq=False)
class SetAnswer(_BitForBit):
    """A method's answer for a set of values.

    Attributes:
        query: the set.
        frequency: of the set, a fraction of the reports.
        std_error: Base's standard error of it; None for other methods.
        low: the lower end of Base's score interval, or None.
        high: its upper end, or None.
        anytime_low: the lower end of Base's interval that may be watched, or None.
        anytime_high: its upper end, or None.
        fakes: how few forged reports put Base's answer outside of its score interval, −1 where no number does; or None.
    """

    query: SetQuery
    frequency: float
    std_error: float | None = None
    low: float | None = None
    high: float | None = None
    anytime_low: float | None = None
    anytime_high: float | None = None
    fakes: int | None = None


@dataclass(frozen=True, eq=False)
class TopAnswer(_BitForBit):
    """A method's answer for the most frequent values.

    Attributes:
        query: how many.
        values: (k,) the most frequent by Base, the first most; the same for every method.
        frequencies: (k,) of these.
        low: (k,) lower ends of intervals around Base that all cover together with the level; None for other methods.
        high: (k,) their upper ends, or None.
        anytime_low: (k,) lower ends of those that all cover together at every n, or None.
        anytime_high: (k,) their upper ends, or None.
        fakes: (k,) how few forged reports put each out of its interval, −1 where no number does; or None.
    """

    query: TopQuery
    values: Indices
    frequencies: Vector
    low: Vector | None = None
    high: Vector | None = None
    anytime_low: Vector | None = None
    anytime_high: Vector | None = None
    fakes: Vector | None = None


@dataclass(frozen=True, eq=False)
class Body(_BitForBit):
    """What one method says.

    Attributes:
        frequencies: (d,) the method's answer for each value alone.
        sum: its answer for the whole domain: that of the frequencies, but for post-pos the sum of Base's, or 0.
        sets: its answers for sets of values.
        tops: its answers for the most frequent values.
        low: (d,) lower ends of Base's score intervals; None for other methods.
        high: (d,) their upper ends, or None.
        anytime_low: (d,) lower ends of Base's intervals that may be watched; None for other methods, and where
            the counts are not known.
        anytime_high: (d,) their upper ends, or None.
        fakes: (d,) how few forged reports put each value out of its score interval, −1 where no number does; or None.
        by_rate: (rates, 2) of Base, where reports are at several rates: how many are of each value at each; else None.
    """

    frequencies: Vector
    sum: float
    sets: tuple[SetAnswer, ...] = ()
    tops: tuple[TopAnswer, ...] = ()
    low: Vector | None = None
    high: Vector | None = None
    anytime_low: Vector | None = None
    anytime_high: Vector | None = None
    fakes: Vector | None = None
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
        lineage: what the counts are of beside the fingerprint; None where they do not come from a topic.
        cut: what was counted.
        complete: whether that is all, as the snapshot itself says: a newer writer may know reasons that `Cut` does not.
        reports: how many were counted: n, reports and not users.
        std_error: of Base, for a value of frequency 0 (Equation 5).
        level: the confidence level of Base's intervals.
        recommended: the method for a query, by its name; a query that is not in it has none.
        bodies: method -> what it says; nothing where the head alone is published.
        window: the time that the reports are of.
        epsilon: of a given channel what one report spends, as `Given.spent`; None where the document says ε.
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
        """Returns Base as an estimate again, of its window and with its labels: those of windows that are apart merge.

        Raises:
            ValueError: Base is not among the methods, or there are no reports.

        Example:
            >>> import ldp
            >>> stream = ldp.Stream("s", ldp.GRR(epsilon="1", domain_size=2))
            >>> def taken(start, counts):
            ...     second = Period("1s", start, start + 1000)
            ...     return ldp.snapshot.take(stream, stream.oracle.estimate(counts, 10), Cut({}, {}), 1, window=second)
            >>> first, second = taken(1000, [6, 4]), taken(2000, [3, 7])
            >>> both = first.estimate().merge(second.estimate())
            >>> both.n, both.windows, (both.frequencies == stream.oracle.estimate([9, 11], 20).frequencies).all()
            (20, ((1000, 3000),), np.True_)
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
        """Returns the ends of Base's score intervals, (d,) each.

        Raises:
            ValueError: Base is not among the methods.
        """
        base = self._base()
        if base.low is None or base.high is None:
            raise ValueError(f"base has no intervals in snapshot {self.sequence} of {self.stream!r}")
        return base.low, base.high

    def _base(self) -> Body:
        base = self.bodies.get("base")
        if base is None:
            raise ValueError(f"base is needed, which is not among {', '.join(self.bodies) or 'none'}")
        return base
