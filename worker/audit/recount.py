"""Recount of a partition's records."""

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
_FEW, _LONG = 8, 4096  # Fewer records of a length, and longer records, are decoded one by one


@dataclass
class Cell:
    """Counts of a pane; `state` is None if `Recount.stray` contains them."""

    reports: int
    state: State | None


@dataclass
class Recount:
    """Counts of the records of one partition."""

    accepted: int  # records counted
    rejected: Counter[str]  # malformed records by reason
    watermark: int | None  # the highest accepted timestamp in milliseconds
    reports: int
    state: State  # (K,) counts in no pane
    stray: State  # (K,) counts of panes that have no state
    panes: dict[str, Cell] = field(default_factory=dict)
    in_windows: int = 0  # accepted records while windows were configured
    late: Counter[str] = field(default_factory=Counter)  # by age
    undated: int = 0
    closed: int = 0  # panes that end at or before this time are closed
    evicted_to: int = 0  # panes that end at or before this time and are not kept are counted in `state`
    first: int | None = None  # first new highest timestamp since this was set to None
    heard: Counter[tuple[int, int]] = field(default_factory=Counter)  # reports by (begin, end) of every pane

    @classmethod
    def of_nothing(cls, document: Mapping[str, Any], closed: int = 0, evicted_to: int = 0) -> "Recount":
        """Returns an empty recount."""
        entries = protocol_of(document).entries
        state, stray = np.zeros(entries, np.int64), np.zeros(entries, np.int64)
        return cls(0, Counter(), None, 0, state, stray, closed=closed, evicted_to=evicted_to)

    def total(self) -> State:
        """Returns the all-time counts; O(panes · K)."""
        states = (cell.state for cell in self.panes.values() if cell.state is not None)
        return sum(states, self.state + self.stray)

    def release(self, pane: str) -> None:
        """Frees the state of a pane that is no longer wanted."""
        cell = self.panes.get(pane)
        if cell is None or cell.state is None:
            return
        if ends_of(pane)[1] <= self.evicted_to:
            self.state += cell.state
            del self.panes[pane]
        else:
            self.stray += cell.state
            cell.state = None


Mark = Callable[[Recount], object]  # Called between records with the recount so far


def recount(
    document: Mapping[str, Any],
    records: Iterable[Records | Mark],
    limits: Limits = Limits(),  # noqa: B008  # frozen
    onto: Recount | None = None,
    kept: Collection[str] | None = None,
) -> Recount:
    r"""Counts records, and calls each mark with the counts so far.

    Adds to `onto`, if given. Only panes in `kept` keep their state; None keeps all panes. O(bytes), or O(reports · d)
    for OLH.

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
        if not isinstance(read, Records):
            pending.count()
            read(result)
            continue
        if read.unreadable:
            result.rejected["batch"] += read.unreadable
        good = list[tuple[Ints, bytes]]()
        for which, body, reason in _verdicts(read, own, protocol, limits):
            if reason:
                result.rejected[reason] += len(which)
            else:
                good.append((which, body))
        if good:
            starts = _accept(result, read.timestamps, np.sort(np.concatenate([w for w, _ in good])), limits)
            for which, body in good:
                pending.add(body, None if starts is None else starts[which], limits)
    pending.count()
    return result


def _accept(result: Recount, timestamps: Ints, accepted: Ints, limits: Limits) -> Ints | None:
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
    result.watermark = max(int(times.max()), -1 if result.watermark is None else result.watermark)
    result.accepted += len(times)
    return starts


class _Pending:
    def __init__(self, result: Recount, protocol: Protocol, kept: Collection[str] | None) -> None:
        self._result, self._protocol, self._kept = result, protocol, kept
        self._bodies: dict[str, bytearray] = {"": bytearray()}
        self._size = 0

    def add(self, body: bytes, starts: Ints | None, limits: Limits) -> None:
        if starts is None or limits.windows is None:
            self._bodies[""] += body
        else:
            found, length = np.unique(starts), limits.windows.pane
            rows = np.frombuffer(body, np.uint8).reshape(len(starts), -1)  # all records have one length
            for start in found.tolist():
                name = "" if start == NOWHERE else f"{start}+{length}"
                if start + length <= self._result.evicted_to and name not in (self._kept or ()):
                    name = ""
                own = body if len(found) == 1 else rows[starts == start].tobytes()
                if start != NOWHERE:
                    self._result.heard[start, start + length] += len(own) // self._protocol.columns.itemsize
                self._bodies.setdefault(name, bytearray()).extend(own)
        self._size += len(body)
        if self._size >= _PENDING_BYTES:
            self.count()

    def count(self) -> None:
        protocol = self._protocol
        for name, body in self._bodies.items():
            if body:
                reports = np.frombuffer(bytes(body), protocol.columns)
                state = self._add_to_cell(name, len(reports))
                protocol.count(state, *(reports[column] for column in protocol.columns.names or ()))
                self._result.reports += len(reports)
        self._bodies, self._size = {"": bytearray()}, 0

    def _add_to_cell(self, name: str, reports: int) -> State:
        result = self._result
        if not name:
            return result.state
        if name not in result.panes:
            wanted = self._kept is None or name in self._kept
            result.panes[name] = Cell(0, np.zeros_like(result.state) if wanted else None)
        cell = result.panes[name]
        cell.reports += reports
        return result.stray if cell.state is None else cell.state


def _verdicts(
    read: Records, own: bytes, protocol: Protocol, limits: Limits
) -> Iterator[tuple[Ints, bytes, str]]:
    """Yields (indices of records, their reports, reason for rejection or "")."""
    lengths = read.ends - read.begins
    for length in np.unique(lengths).tolist():
        alike = np.flatnonzero(lengths == length)
        body = _decode_together(read, alike, length, own, protocol, limits)
        if body is not None:
            yield alike, body, ""
            continue
        for i in range(len(alike)):
            try:
                value = read.data[read.begins[alike[i]] : read.ends[alike[i]]].tobytes()
                yield alike[i : i + 1], body_of(value, own, protocol, limits), ""
            except Malformed as fault:
                yield alike[i : i + 1], b"", fault.reason


def _decode_together(
    read: Records, alike: Ints, length: int, own: bytes, protocol: Protocol, limits: Limits
) -> bytes | None:
    head, size = 1 + len(own), protocol.columns.itemsize
    if len(alike) < _FEW or not head < length <= _LONG or (length - head) % size:
        return None
    if limits.most is not None and length - head > limits.most * size:
        return None
    frames = np.lib.stride_tricks.sliding_window_view(read.data, length)[read.begins[alike]]
    if (frames[:, :head] != np.frombuffer(b"\x01" + own, np.uint8)).any():
        return None
    body = frames[:, head:].tobytes()
    # each check covers all reports, so one call checks all records
    good = protocol.allowed(body) and protocol.declared(body)
    return body if good and (not limits.hamming_weight or protocol.likely(body)) else None
