"""Recount of a log's prefix by the recorded rules, record by record."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.simulation.documents import Sent, Statuses, join, judged

if TYPE_CHECKING:
    from tests.simulation.broker import Partition
    from worker.counting.rules import Rule

SECOND = 1000
TIME_ENDS = 253_370_678_400 * SECOND
"""9998-12-31: from there on a timestamp is none, as a negative one is."""
_AGES = ("1m", 60), ("10m", 600), ("1h", 3600), ("6h", 21_600), ("1d", 86_400), ("7d", 604_800)

Pane = tuple[int, int]
Named = tuple[tuple[str, tuple[int, bool]], ...]
"""Documents or segments with their status."""
Gaps = Sequence[Sequence[int]]


@cache
def shape(name: str) -> tuple[int, int]:
    """Returns a window's length and hop in milliseconds."""
    length, _, every = name.partition(" every ")
    return int(length[:-1]) * SECOND, int((every or length)[:-1]) * SECOND


def last_end(name: str, line: int) -> int:
    """Returns the last end of a window at or before a line."""
    length, every = shape(name)
    return (line - length) // every * every + length


def next_start(name: str, time: int | None) -> int:
    """Returns the first start beyond a time, or the first of all."""
    every = shape(name)[1]
    return 0 if time is None else (time // every + 1) * every


def starts(name: str, pane: Pane) -> range:
    """Returns the starts of the windows that have a pane."""
    length, every = shape(name)
    return range(max(0, -(-(pane[1] - length) // every) * every), pane[0] + 1, every)


@cache
def ends_of(pane: str) -> Pane:
    """Reads a pane's name."""
    start, length = map(int, pane.split("+"))
    return start, start + length


class Ruling(NamedTuple):
    """A recorded rule, as far as it matters here."""

    offset: int  # the first one that it holds for
    most: int | None  # reports that a record may have
    names: tuple[str, ...] = ()  # windows in addition to all time
    hold: int = 0  # grace and out of order, in milliseconds
    pane: int = 0  # length; 0 without windows
    room: int = 0  # maximum number of panes of this length
    fewest: int = 0  # new reports by which published counts change at least
    documents: Named = ()  # this rule and earlier ones name them
    segments: Named = ()


@cache
def _windowed(names: tuple[str, ...], grace: int, disorder: int) -> tuple[Any, ...]:
    names = tuple(name for name in names if name != "all")
    pane = math.gcd(*(shape(name)[1] for name in names))
    reach = max(shape(name)[0] for name in names) + 2 * disorder + grace
    return names, grace + disorder, pane, 2 * (-(-reach // pane) + 2)


@cache
def _ruled(
    listed: tuple[tuple[int, int | None, tuple[str, ...], int, int, int, Named, Named], ...],
) -> tuple[Ruling, ...]:
    """Reads rules; the capacity covers the panes that earlier rules may leave."""
    ruled, most = list[Ruling](), dict[int, int]()
    documents, segments = dict[str, tuple[int, bool]](), dict[str, tuple[int, bool]]()
    for offset, most_reports, named, grace, disorder, fewest, *added in listed:
        for known, own in zip((documents, segments), added, strict=True):
            assert all(pair > known.get(name, (-1, False)) for name, pair in own), "a name that adds nothing"
            known.update(own)
        names = tuple(documents.items()), tuple(segments.items())
        windows, hold, pane, room = _windowed(named, grace, disorder) if named else ((), 0, 0, 0)
        most[pane] = max(most.get(pane, 0), room)
        ruled.append(Ruling(offset, most_reports, windows, hold, pane, most[pane], fewest, *names))
    return tuple(ruled)


def of_state(rules: Sequence[Rule]) -> tuple[Ruling, ...]:
    """Reads a state's rules."""
    windows = [
        (w.windows, w.grace, w.max_out_of_orderness) if (w := r.limits.windowing) else ((), 0, 0)
        for r in rules
    ]
    return _ruled(
        tuple(
            (
                r.offset,
                r.limits.most_reports,
                *w,
                r.limits.fewest_new,
                _named(r.documents),
                _named(r.segments),
            )
            for r, w in zip(rules, windows, strict=True)
        )
    )


def of_head(head: Mapping[str, Any] | None, partition: int | str) -> tuple[Ruling, ...]:
    """Reads the rules of a partition from a head."""
    rules = (head or {"rules": {}})["rules"].get(str(partition), [])
    if head and rules and "documents" not in rules[0]:  # it names the oldest document
        rules = [rules[0] | {"documents": {head["documents"][0]["fingerprint"]: [0, False]}}, *rules[1:]]
    return _ruled(
        tuple(
            (
                r["offset"],
                r["most_reports"],
                tuple(r.get("windows", ())),
                r.get("grace", 0),
                r.get("max_out_of_orderness", 0),
                r.get("fewest_new", 0),
                _named(r.get("documents", {})),
                _named(r.get("segments", {})),
            )
            for r in rules
        )
    )


def _named(names: Mapping[str, Sequence[Any]]) -> Named:
    return tuple((name, (version, retired)) for name, (version, retired) in sorted(names.items()))


@cache
def statuses(named: Named) -> Statuses:
    """Returns the names of a rule."""
    return dict(named)


def names_of(ruled: Iterable[Sequence[Ruling]]) -> tuple[Statuses, Statuses]:
    """Returns the documents and segments that partitions name, with their highest status."""
    newest = [rules[-1] for rules in ruled if rules]
    return join(*(statuses(r.documents) for r in newest)), join(*(statuses(r.segments) for r in newest))


def _verdict(found: Any, rule: Ruling) -> Any:
    """Returns the counters of a record's reports under a rule, the reason of its rejection, or None."""
    if isinstance(found, Sent):
        return judged(found, rule.most, statuses(rule.documents), statuses(rule.segments))
    if isinstance(found, list) and rule.most is not None and len(found) > rule.most:
        return "many"
    return found


def answer(log: Partition, at: int, gaps: Gaps, ruled: Sequence[Ruling]) -> Any:
    """Returns the counters of a record's reports, the reason of its rejection, or None."""
    found = log.answers[at]
    if found is None or any(begin <= at < end for begin, end in gaps):
        return None
    return _verdict(found, [rule for rule in ruled if rule.offset <= at][-1])


@dataclass
class Counted:
    """Recount of a prefix."""

    state: list[int]
    closed: int
    reports: int = 0
    accepted: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    watermark: int | None = None
    late: dict[str, int] = field(default_factory=dict)
    undated: int = 0
    panes: dict[Pane, tuple[int, ...]] = field(
        default_factory=dict
    )  # support of each value; frozen once closed
    placed: dict[Pane, tuple[int, ...]] = field(default_factory=dict)  # offsets of the records in each pane
    first_start: dict[str, int] = field(default_factory=dict)  # window -> its first start to publish
    gap_bounds: list[tuple[int, int | None]] = field(default_factory=list)  # closed before, first time after
    begun: int = 0  # number of rules that have begun

    def copy(self) -> Counted:
        mutable = ("state", "rejected", "late", "panes", "placed", "first_start", "gap_bounds")
        return replace(self, **{name: getattr(self, name).copy() for name in mutable})

    def window(self, start: int, end: int) -> list[int]:
        """Returns the counts of a window."""
        total = [0] * len(self.state)
        for (a, b), counts in self.panes.items():
            if start <= a and b <= end:
                total = [x + y for x, y in zip(total, counts, strict=True)]
        return total

    def begin(self, ruled: Sequence[Ruling], offset: int) -> None:
        """Applies the rules up to an offset."""
        while self.begun < len(ruled) and ruled[self.begun].offset <= offset:
            names = ruled[self.begun].names
            first = {name: next_start(name, self.watermark) for name in names}
            self.first_start = {name: self.first_start.get(name, start) for name, start in first.items()}
            self.begun += 1

    def count(self, at: int, found: Any, time: int, rule: Ruling) -> None:
        """Counts the record at an offset."""
        if (found := _verdict(found, rule)) is None:
            return
        if isinstance(found, str):
            self.rejected[found] = self.rejected.get(found, 0) + 1
            return
        time = time if 0 <= time < TIME_ENDS else -1
        for index in found:
            self.state[index] += 1
        self.reports += len(found)
        self.accepted += 1
        if rule.names:
            self._place(at, found, time, rule.pane)
        if time > (-1 if self.watermark is None else self.watermark):
            self.gap_bounds = [(line, time if first is None else first) for line, first in self.gap_bounds]
        self.watermark = time if self.watermark is None else max(self.watermark, time)
        if rule.names:
            self.closed = max(self.closed, self.watermark - rule.hold)

    def _place(self, at: int, found: Sequence[int], time: int, length: int) -> None:
        end = time // length * length + length
        if time < 0:
            self.undated += 1
        elif end <= self.closed:
            over = self.closed - end
            age = next((age for age, seconds in _AGES if over <= seconds * SECOND), "older")
            self.late[age] = self.late.get(age, 0) + 1
        else:
            counts = list(self.panes.get((end - length, end), [0] * len(self.state)))
            for index in found:
                counts[index] += 1
            pane = end - length, end
            self.panes[pane], self.placed[pane] = tuple(counts), (*self.placed.get(pane, ()), at)


class Recounts:
    """Recounts of a stream's partitions; each continues an earlier one."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._kept: dict[Any, dict[Any, dict[int, Counted]]] = {}

    def at(
        self, log: Partition, start: int, offset: int, gaps: Gaps, ruled: tuple[Ruling, ...], floor: int
    ) -> Counted:
        """Counts [start, offset) of a log without the gaps; not to be changed."""
        said = tuple((begin, end) for begin, end in gaps)
        shared = self._kept.setdefault((log, start, floor), {})
        kept = shared.get((said, ruled))
        if kept is None:
            kept = shared[said, ruled] = self._shared(shared, said, ruled, start, floor)
        if (counted := kept.get(offset)) is not None:
            return counted
        at = max(before for before in kept if before < offset)
        counted = kept[at].copy()
        counted.begin(ruled, at)
        while at < offset:
            gap = next((end for begin, end in said if begin <= at < end), None)
            if gap is None:
                counted.count(at, log.answers[at], log.times[at], ruled[counted.begun - 1])
            else:
                counted.gap_bounds.append((counted.closed, None))
            at = at + 1 if gap is None else gap
            counted.begin(ruled, at)
        kept[offset] = counted
        return counted

    def _shared(
        self, shared: Mapping[Any, dict[int, Counted]], said: Any, ruled: Any, start: int, floor: int
    ) -> dict[int, Counted]:
        """Returns the prefixes that no differing gap or rule concerns."""
        known = {start: Counted([0] * self._size, floor)}
        known[start].begin(ruled, start)
        for (gaps, rules), kept in shared.items():
            limit = min(_parting(gaps, said), _parting(rules, ruled))
            known |= {at: counted for at, counted in kept.items() if start < at < limit}
        return known


def _parting(ours: Sequence[Any], others: Sequence[Any]) -> float:
    """Returns the first offset at which two lists of gaps or rules differ."""
    for one, other in zip(ours, others, strict=False):
        if one != other:
            return float(min(one[0], other[0]))
    rest = [*ours[len(others) :], *others[len(ours) :]]
    return float(rest[0][0]) if rest else math.inf
