"""The recount: records in, counts out."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from worker.audit.hashes import State
from worker.audit.parsing import Limits, Malformed, body_of, fingerprint_of
from worker.audit.protocols import Protocol, protocol_of
from worker.audit.records import Ints, Records
from worker.audit.windows import NOWHERE, ends_of, place, read_times

_PENDING_BYTES = 1 << 20
_FEW, _LONG = 8, 4096
"""Fewer records of a length, and longer ones, are judged one by one."""


@dataclass
class Cell:
    """The counts of some of the reports.

    Attributes:
        reports: how many they are.
        state: (K,) int64: how many reports support each value, or, where a report is only an index, have each; None
            for those that are with the strays.
    """

    reports: int
    state: State | None


@dataclass
class Recount:
    """What the records of one partition amount to.

    Attributes:
        accepted: records counted.
        rejected: malformed records by reason.
        watermark: the highest accepted timestamp in milliseconds, or None.
        reports: reports counted.
        state: (K,) int64, the counts of those that are in no pane: of all, where there are no windows.
        panes: the counts of the others, by the name of the pane.
        stray: (K,) int64, the counts of the panes that have no state, all together.
        in_windows: accepted records that were counted in windows.
        late: accepted records that came too late for their pane, by age.
        undated: accepted records without a timestamp that were counted in windows.
        closed: a pane that ends at or before this line takes no more.
        dropped: panes that end at or before this line are counted as if they were none, unless they are wanted.
        first: the first timestamp accepted since this was None that is beyond all before.
        heard: (begin, end) -> reports of each pane that there ever was, dropped ones too.
    """

    accepted: int
    rejected: Counter[str]
    watermark: int | None
    reports: int
    state: State
    stray: State
    panes: dict[str, Cell] = field(default_factory=dict)
    in_windows: int = 0
    late: Counter[str] = field(default_factory=Counter)
    undated: int = 0
    closed: int = 0
    dropped: int = 0
    first: int | None = None
    heard: Counter[tuple[int, int]] = field(default_factory=Counter)

    @classmethod
    def of_nothing(cls, document: Mapping[str, Any], closed: int = 0, dropped: int = 0) -> "Recount":
        """Returns that of no records, with the lines that it begins with."""
        entries = protocol_of(document).entries
        state, stray = np.zeros(entries, np.int64), np.zeros(entries, np.int64)
        return cls(0, Counter(), None, 0, state, stray, closed=closed, dropped=dropped)

    def total(self) -> State:
        """Returns the counts of all; O(panes · K)."""
        total = self.state + self.stray
        for cell in self.panes.values():
            if cell.state is not None:
                total += cell.state
        return total

    def release(self, pane: str) -> None:
        """Lets go of a pane's state, which is wanted no more: it goes to those that are in none, or to the strays."""
        cell = self.panes.get(pane)
        if cell is None or cell.state is None:
            return
        if ends_of(pane)[1] <= self.dropped:
            self.state += cell.state
            del self.panes[pane]
        else:
            self.stray += cell.state
            cell.state = None


@dataclass(frozen=True)
class Mark:
    """What comes between records where something is to be done with what they amount to so far."""

    reached: Callable[[Recount], object]


def recount(
    document: Mapping[str, Any],
    records: Iterable[Records | Mark],
    limits: Limits = Limits(),  # noqa: B008  # frozen
    onto: Recount | None = None,
    kept: Collection[str] | None = None,
) -> Recount:
    r"""Counts records; O(bytes) and for OLH O(reports · d) hashes in bounded memory.

    Args:
        document: the stream's public document.
        records: in the log's order, and marks among them.
        limits: by what they are judged.
        onto: an earlier recount, to which they are added; without it counting begins from nothing.
        kept: the names of the panes whose state is wanted; None for all.

    Raises:
        AuditError: a protocol or hash that the audit does not know.

    Example:
        >>> document = {"protocol": "grr", "epsilon": "1/1", "domain_size": 3}
        >>> frame = b"\x01" + fingerprint_of(document) + bytes([2, 0, 2])
        >>> result = recount(document, [Records.of([(1000, frame), (1001, b"noise"), (1002, None)])])
        >>> result.accepted, dict(result.rejected), result.watermark, result.reports, result.state.tolist()
        (1, {'empty': 1, 'version': 1}, 1000, 3, [1, 0, 2])
    """
    protocol = protocol_of(document)
    own = fingerprint_of(document)
    result = onto or Recount.of_nothing(document)
    pending = _Pending(result, protocol, kept)
    for read in records:
        if isinstance(read, Mark):
            pending.count()
            read.reached(result)
            continue
        if read.unreadable:
            result.rejected["batch"] += read.unreadable
        good = list[tuple[Ints, bytes]]()
        for which, body, reason in _judged(read, own, protocol, limits):
            if reason:
                result.rejected[reason] += len(which)
            else:
                good.append((which, body))
        if good:
            starts = _placed(result, read.timestamps, np.sort(np.concatenate([w for w, _ in good])), limits)
            for which, body in good:
                pending.add(body, None if starts is None else starts[which], limits)
    pending.count()
    return result


def _placed(result: Recount, timestamps: Ints, accepted: Ints, limits: Limits) -> Ints | None:
    """Takes up what records say beside their reports; returns where each one counts, or None where all are nowhere.

    Args:
        result: what has been counted before them.
        timestamps: of the records that were read together.
        accepted: which of them are, in the log's order.
        limits: by what they are judged.
    """
    times, starts = read_times(timestamps[accepted]), None
    if limits.windows is not None:
        placed = place(times, limits.windows, result.watermark, result.closed)
        result.closed = placed.closed
        result.late += placed.late
        result.undated += placed.undated
        result.in_windows += len(times)
        starts = np.full(len(timestamps), NOWHERE, np.int64)
        starts[accepted] = placed.starts
    beyond = times > (-1 if result.watermark is None else result.watermark)
    if result.first is None and beyond.any():
        result.first = int(times[beyond][0])
    newest = int(times.max())
    result.watermark = newest if result.watermark is None else max(result.watermark, newest)
    result.accepted += len(times)
    return starts


class _Pending:
    """Reports that wait to be counted together, by where they count.

    Args:
        result: where they are counted.
        protocol: whose reports they are.
        kept: the names of the panes whose state is wanted; None for all.
    """

    def __init__(self, result: Recount, protocol: Protocol, kept: Collection[str] | None) -> None:
        self._result, self._protocol, self._kept = result, protocol, kept
        self._bodies: dict[str, bytearray] = {"": bytearray()}
        self._size = 0

    def add(self, body: bytes, starts: Ints | None, limits: Limits) -> None:
        """Adds the reports of records that have as many each, and counts them if they are enough.

        Args:
            body: the reports, one record's after the other's.
            starts: of the pane that each record is in; None where they are in none.
            limits: by what they were judged.
        """
        if starts is None or limits.windows is None:
            self._bodies[""] += body
        else:
            found, length = np.unique(starts), limits.windows.pane
            rows = np.frombuffer(body, np.uint8).reshape(len(starts), -1)
            for start in found.tolist():
                name = "" if start == NOWHERE else f"{start}+{length}"
                if start + length <= self._result.dropped and name not in (self._kept or ()):
                    name = ""
                own = body if len(found) == 1 else rows[starts == start].tobytes()
                if start != NOWHERE:
                    self._result.heard[start, start + length] += len(own) // self._protocol.columns.itemsize
                self._bodies.setdefault(name, bytearray()).extend(own)
        self._size += len(body)
        if self._size >= _PENDING_BYTES:
            self.count()

    def count(self) -> None:
        """Counts what waits."""
        result, protocol = self._result, self._protocol
        for name, body in self._bodies.items():
            if not body:
                continue
            reports = np.frombuffer(bytes(body), protocol.columns)
            state = self._cell(name, len(reports))
            protocol.count(state, *(reports[column] for column in protocol.columns.names or ()))
            result.reports += len(reports)
        self._bodies, self._size = {"": bytearray()}, 0

    def _cell(self, name: str, reports: int) -> State:
        """Adds so many reports to a pane; returns what they are to be counted in."""
        result = self._result
        if not name:
            return result.state
        if name not in result.panes:
            wanted = self._kept is None or name in self._kept
            result.panes[name] = Cell(0, np.zeros_like(result.state) if wanted else None)
        cell = result.panes[name]
        cell.reports += reports
        return result.stray if cell.state is None else cell.state


def _judged(
    read: Records, own: bytes, protocol: Protocol, limits: Limits
) -> Iterator[tuple[Ints, bytes, str]]:
    """Yields which records, of one or some that are alike, their reports, and why they are rejected."""
    lengths = read.ends - read.begins
    for length in np.unique(lengths).tolist():
        alike = np.flatnonzero(lengths == length)
        body = _together(read, alike, length, own, protocol, limits)
        if body is not None:
            yield alike, body, ""
            continue
        for i in range(len(alike)):
            try:
                value = read.data[read.begins[alike[i]] : read.ends[alike[i]]].tobytes()
                yield alike[i : i + 1], body_of(value, own, protocol, limits), ""
            except Malformed as fault:
                yield alike[i : i + 1], b"", fault.reason


def _together(
    read: Records, alike: Ints, length: int, own: bytes, protocol: Protocol, limits: Limits
) -> bytes | None:
    """Returns the reports of records of one length, if all are good frames; None if each has to be looked at alone."""
    head, size = 1 + len(own), protocol.columns.itemsize
    if len(alike) < _FEW or not head < length <= _LONG or (length - head) % size:
        return None
    if limits.most is not None and length - head > limits.most * size:
        return None
    frames = np.lib.stride_tricks.sliding_window_view(read.data, length)[read.begins[alike]]
    if (frames[:, :head] != np.frombuffer(b"\x01" + own, np.uint8)).any():
        return None
    body = frames[:, head:].tobytes()
    # what is demanded of reports is demanded of each
    return body if protocol.allowed(body) and (not limits.ones or protocol.likely(body)) else None
