"""Data classes for the content of a snapshot."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from ldp.estimate import Estimate
from ldp.query import SetQuery, TopQuery
from ldp.snapshot.parts import whole_of
from ldp.stream import Stream

Vector = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


class _BitForBit:
    """Base class whose equality compares floats and arrays bit for bit."""

    __hash__ = None  # type: ignore[assignment]  # not hashable, because arrays are not

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(_same(getattr(self, f.name), getattr(other, f.name)) for f in fields(self))  # type: ignore[arg-type]


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return (one.dtype, one.shape) == (other.dtype, other.shape) and one.tobytes() == other.tobytes()
    if isinstance(one, float) and isinstance(other, float):  # 0.0 differs from -0.0
        return one.hex() == other.hex()
    return type(one) is type(other) and bool(one == other)


@dataclass(frozen=True)
class Period:
    """The time window [start, end) of a snapshot, in milliseconds.

    `name` is the configured name of the windows. `start` and `end` are None for `all`, which is all time, and for
    `late`, the released reports that are in no window. `final` is true if the window no longer changes.
    """

    name: str = "all"
    start: int | None = None
    end: int | None = None
    final: bool = False

    @property
    def place(self) -> str:
        """The part of a message's key that identifies the window."""
        return self.name if self.start is None else f"{self.name}/{self.start}"


ALL_TIME = Period()
LATE = Period("late")


@dataclass(frozen=True)
class Closed:
    """The closed windows of one name, with times in milliseconds.

    Every window that ends at or before `closed` is final. A window is bounded if its end is in one of the ranges
    [from, to) of `bounded`. If windows expire, `starts` lists the starts of the windows on the topic.
    """

    closed: int
    bounded: tuple[tuple[int, int], ...] = ()
    starts: tuple[int, ...] = ()

    def is_bounded(self, end: int) -> bool:
        """Returns whether the window that ends at `end` is bounded."""
        return any(begin <= end < to for begin, to in self.bounded)


@dataclass(frozen=True)
class Slots:
    """The rows that a window can have.

    Attributes:
        methods: names of the methods.
        ranks: query -> highest rank; the empty name stands for single values.

    Example:
        >>> Slots(("base",), {"": 100}) | Slots(("base", "norm"), {"": 10, "warm": 1})
        Slots(methods=('base', 'norm'), ranks={'': 100, 'warm': 1})
    """

    methods: tuple[str, ...]
    ranks: Mapping[str, int]

    @property
    def size(self) -> int:
        """Maximum number of rows of a window."""
        return len(self.methods) * sum(self.ranks.values())

    def __or__(self, other: "Slots") -> "Slots":
        """Returns slots that include the rows of the two operands."""
        ranks = dict(self.ranks)
        for query, highest in other.ranks.items():
            ranks[query] = max(highest, ranks.get(query, 0))
        return Slots(tuple(dict.fromkeys(self.methods + other.methods)), ranks)


@dataclass(frozen=True)
class Rows:
    """The slots of a topic's rows.

    Windows that end at or before `until` (ms) can also have rows in `older`, the slots of an earlier configuration.
    """

    topic: str
    slots: Slots
    older: Slots | None = None
    until: int = 0


@dataclass(frozen=True)
class Released:
    """The published part of the counts, if increments have a least size.

    Attributes:
        closed: panes that end at or before this time in ms are decided: each is released, or joined the rest.
        fewest: (time, m), ascending: panes that end after the time needed m reports of a document and segment. None:
            all join the rest.

    Example:
        >>> released = Released(30, ((0, 20), (10, None)))
        >>> released.fewest_of(10), released.fewest_of(11), released.fewest_of(31)
        (20, None, None)
    """

    closed: int
    fewest: tuple[tuple[int, int | None], ...]

    def fewest_of(self, end: int) -> int | None:
        """Returns the reports that a pane needed; None if it is not released."""
        steps = [fewest for since, fewest in self.fewest if since < end <= self.closed]
        return steps[-1] if steps else None


@dataclass(frozen=True)
class PrivacyLoss:
    """Privacy loss of one report, with snapshots.fewest_new of 2 or more.

    Attributes:
        fewest_new: smallest number of new reports by which a published count changes.
        operator: ε against the operator, who sees the report; or "infinite".
        readers: ε for readers of snapshots with `delta` (`ldp.privacy.amplification`); or "infinite"; None with
            memoised noise.
        delta: δ of `readers`.
    """

    fewest_new: int
    operator: float | str
    readers: float | str | None
    delta: float


@dataclass(frozen=True)
class Cut:
    """The counted records of a snapshot, with rules, windows and rows.

    Attributes:
        offsets: partition -> offset up to which all records are counted.
        gaps: partition -> ranges [from, to) of the log that were lost before they were counted; none is empty.
        uncounted: sorted partitions that have or had records, but no counts. They are not in ``offsets``.
        rules: partition -> the partition's rules as JSON objects.
        floors: partition -> time in ms at which the partition's windows begin; only for admitted partitions.
        progress: name of windows -> the closed windows of this name.
        rows: the rows that the stream can have on the topic of rows; None without such a topic.
        methods: methods that can have bodies of all time on the snapshot topic; None for all methods.
        reached: highest time in ms up to which windows were closed; None if unknown. Windows added later begin there.
        released: the published part of the counts; None if all counts are published.
        privacy_loss: privacy loss of a report that is released under the present rules; None as for `released`.
        segments: published segment -> its reports; None for a stream without segments.
        hidden: reports that are in no published segment.
        parts_fewest: smallest number of reports of a part; None for a stream without parts.
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
    released: Released | None = None
    privacy_loss: PrivacyLoss | None = None
    segments: Mapping[str, int] | None = None
    hidden: int = 0
    parts_fewest: int | None = None

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
        """Whether there are no gaps and no uncounted partitions."""
        return not self.gaps and not self.uncounted


@dataclass(frozen=True)
class Recommended:
    """The best method for a query (`ldp.analysis.method_selection`).

    `sequence` is the number of the snapshot that the choice is based on, and the seed of the simulation.
    """

    method: str
    sequence: int


@dataclass(frozen=True, eq=False)
class SetAnswer(_BitForBit):
    """A method's answer for a set; fields as in ``snapshot.schema.json``.

    Only Base has the fields from `std_error` to `poisoning_tolerance`: standard error, score interval, anytime-valid
    interval, and poisoning tolerance (−1 for infinity). For other methods they are None. `known` is the number of
    reports of the documents that have every value of the set; None if these are all reports. If it is 0, the frequency
    is NaN.
    """

    query: SetQuery
    frequency: float
    std_error: float | None = None
    low: float | None = None
    high: float | None = None
    anytime_low: float | None = None
    anytime_high: float | None = None
    poisoning_tolerance: int | None = None
    known: int | None = None


@dataclass(frozen=True, eq=False)
class TopAnswer(_BitForBit):
    """A method's answer for the most frequent values.

    `values` are the indices in the order of Base, for every method. Only Base has the fields after `frequencies`:
    simultaneous intervals, anytime-valid intervals, and poisoning tolerances (−1 for infinity). All vectors are (k,). A
    population can have fewer than k values.
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

    All vectors are (d,). `frequencies` are estimated shares among the n reports, which all intervals cover. `sum` is
    the answer for the whole domain. Only Base has score intervals, anytime-valid intervals, and poisoning tolerances
    (−1 for infinity). Without counts, Base has only the score intervals.
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


@dataclass(frozen=True, eq=False)
class Snapshot(_BitForBit):
    """The snapshot of a stream. Equality compares all fields bit for bit.

    Attributes:
        stream: the name of the stream or part (`ldp.snapshot.part_of`).
        fingerprint: fingerprint of the first public document, 8 hexadecimal digits.
        document: the public document, without labels; empty for a population of several documents.
        labels: the labels of the domain, or None.
        sequence: the snapshot's number.
        identity: 32 hexadecimal digits that no other snapshot has.
        lineage: with the fingerprint, identifies the source of the counts; None if the source is not a topic.
        cut: the counted records.
        complete: whether all records are counted. A newer writer may report False for a reason that `Cut` lacks.
        reports: n, the number of reports (not users).
        std_error: standard error of Base for a value of frequency 0 (Equation 5).
        level: confidence level of Base's intervals.
        recommended: query name -> method, for queries with a recommendation.
        bodies: method -> the method's results; empty for a snapshot with only a head.
        window: the time window of the reports.
        epsilon: ε that one report of an explicit channel spends; None if the document contains ε.
        published: time of publication in ms since the epoch, by the publisher's clock; None for a file.
        withheld: reports of the window's panes that are only for all time and in `late`; None if all are published.
        documents: the documents in the order in which they were added: the entries of the head, or of a body for a
            window. Empty for a window of one document.
        known: (d,) number of reports of the documents that have each label; None if these are all reports. Vectors are
            NaN where it is 0.
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
    published: int | None = None
    withheld: int | None = None
    documents: tuple[Mapping[str, Any], ...] = ()
    known: Indices | None = None

    @property
    def is_population(self) -> bool:
        """Whether the stream has several documents."""
        return len(self.documents) > 1

    @property
    def schema(self) -> int:
        """The schema version of the messages: 2 for a population, else 1."""
        return 2 if self.is_population else 1

    def estimate(self) -> Estimate:
        """Returns Base as an estimate with window and labels.

        Raises:
            ValueError: the snapshot has no reports or no Base, or several documents.
        """
        if self.is_population:
            whole = whole_of(self.stream)
            raise ValueError(
                f"snapshot {self.sequence} of {self.stream!r} has {len(self.documents)} documents; an estimate needs"
                f" one. Read a document, such as {whole}@{self.fingerprint}"
            )
        stream = Stream.from_document(whole_of(self.stream), self.document)
        oracle, base = stream.oracle, self._base()
        estimate = (
            Estimate(base.frequencies, self.reports, oracle).labelled(self.labels).declared(stream.privacy)
        )
        window = self.window
        return (
            estimate
            if window.start is None or window.end is None
            else estimate.within(window.start, window.end)
        )

    def interval(self) -> tuple[Vector, Vector]:
        """Returns Base's (d,) score intervals. Raises ValueError if it has none."""
        base = self._base()
        if base.low is None or base.high is None:
            raise ValueError(f"base has no intervals in snapshot {self.sequence} of {self.stream!r}")
        return base.low, base.high

    def _base(self) -> Body:
        base = self.bodies.get("base")
        if base is None:
            raise ValueError(
                f"the snapshot has the methods {', '.join(self.bodies) or 'none'}; base is required"
            )
        return base
