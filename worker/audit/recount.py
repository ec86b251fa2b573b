"""Recount of a partition's records by pane, document and segment."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from worker.audit.hashes import State
from worker.audit.parsing import Accepting, Documents, Key, Limits, Malformed
from worker.audit.protocols import Protocol
from worker.audit.records import Ints, Records
from worker.audit.windows import NOWHERE, ends_of, place, read_times

_PENDING_BYTES = 1 << 20
_FEW, _LONG = 8, 4096  # Fewer records of a length, and longer records, are decoded one by one


@dataclass
class Cell:
    """Counts of a document and a segment.

    `state` is None for a pane's cell whose state was freed: `Recount.stray` has its counts.
    """

    reports: int
    state: State | None


class Cells(dict[Key, Cell]):
    """Counts by document and segment."""

    @property
    def reports(self) -> int:
        """Number of reports of all documents and segments."""
        return sum(cell.reports for cell in self.values())

    def add(self, key: Key, reports: int, state: State | None) -> None:
        """Adds counts to a cell; copies the state of a new one."""
        cell = self.setdefault(key, Cell(0, None))
        cell.reports += reports
        if state is not None:
            cell.state = state.copy() if cell.state is None else np.add(cell.state, state, out=cell.state)


@dataclass
class Recount:
    """Counts of the records of one partition."""

    accepted: int = 0  # records counted
    rejected: Counter[str] = field(default_factory=Counter)  # malformed records by reason
    watermark: int | None = None  # the highest accepted timestamp in milliseconds
    all: Cells = field(default_factory=Cells)  # counts in no pane
    stray: dict[Key, State] = field(default_factory=dict)  # counts of panes that have no state
    panes: dict[str, Cells] = field(default_factory=dict)
    in_windows: int = 0  # accepted records while windows were configured
    late: Counter[str] = field(default_factory=Counter)  # by age
    undated: int = 0
    closed: int = 0  # panes that end at or before this time are closed
    evicted_to: int = 0  # panes that end at or before this time and are not kept are counted in `all`
    first: int | None = None  # first new highest timestamp since this was set to None
    heard: Counter[tuple[int, int]] = field(default_factory=Counter)  # reports by (begin, end) of every pane

    @property
    def reports(self) -> int:
        """Number of counted reports."""
        return self.all.reports + sum(cells.reports for cells in self.panes.values())

    def total(self) -> Cells:
        """Returns the all-time counts; O(cells · K)."""
        total = Cells()
        for key, state in self.stray.items():
            total.add(key, 0, state)
        for cells in (self.all, *self.panes.values()):
            for key, cell in cells.items():
                total.add(key, cell.reports, cell.state)
        return total

    def release(self, pane: str) -> None:
        """Frees the states of a pane that is no longer wanted."""
        evicted = ends_of(pane)[1] <= self.evicted_to
        for key, cell in self.panes.get(pane, Cells()).items():
            if cell.state is None:
                continue
            if evicted:
                self.all.add(key, cell.reports, cell.state)
            else:
                self.stray[key] = self.stray[key] + cell.state if key in self.stray else cell.state
                cell.state = None
        if evicted:
            self.panes.pop(pane, None)


_Rows = npt.NDArray[np.uint8]
Mark = Callable[[Recount], object]  # Called between records with the recount so far


def recount(
    documents: Documents,
    records: Iterable[Records | Mark],
    limits: Limits = Limits(),  # noqa: B008  # frozen
    onto: Recount | None = None,
    kept: Collection[str] | None = None,
) -> Recount:
    r"""Counts records, and calls each mark with the counts so far.

    `documents` are those that the rules name so far. Adds to `onto`, if given. Only panes in `kept` keep their state;
    None keeps all panes. O(bytes), or O(reports · d) for OLH.

    Example:
        >>> from worker.audit.parsing import by_fingerprint
        >>> documents = by_fingerprint({"protocol": "grr", "epsilon": "1/1", "domain_size": 3})
        >>> frame = b"\x01" + bytes.fromhex("8e9f39d0") + bytes([2, 0, 2])
        >>> result = recount(documents, [Records.of([(1000, frame), (1001, b"noise"), (1002, None)])])
        >>> result.accepted, dict(result.rejected), result.watermark, result.all["8e9f39d0", ""]
        (1, {'empty': 1, 'version': 1}, 1000, Cell(reports=3, state=array([1, 0, 2])))
    """
    accepting, result = Accepting(documents, limits), onto or Recount()
    pending = _Pending(result, accepting, kept)
    for read in records:
        if not isinstance(read, Records):
            pending.count()
            read(result)
            continue
        if read.unreadable:
            result.rejected["batch"] += read.unreadable
        good = list[tuple[Ints, Key, bytes]]()
        for which, found in _verdicts(read, accepting):
            if isinstance(found, str):
                result.rejected[found] += len(which)
            else:
                good.append((which, *found))
        if good:
            starts = _accept(result, read.timestamps, np.sort(np.concatenate([w for w, *_ in good])), limits)
            for which, key, body in good:
                pending.add(key, body, None if starts is None else starts[which])
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
    """Reports that wait to be counted, by pane (or "") and key."""

    def __init__(self, result: Recount, accepting: Accepting, kept: Collection[str] | None) -> None:
        self._result, self._accepting, self._kept = result, accepting, kept
        self._bodies: dict[tuple[str, Key], bytearray] = {}
        self._size = 0

    def add(self, key: Key, body: bytes, starts: Ints | None) -> None:
        windows = self._accepting.limits.windows
        if starts is None or windows is None:
            self._bodies.setdefault(("", key), bytearray()).extend(body)
        else:
            found, length = np.unique(starts), windows.pane
            rows = np.frombuffer(body, np.uint8).reshape(len(starts), -1)  # all records have one length
            for start in found.tolist():
                name = "" if start == NOWHERE else f"{start}+{length}"
                if start + length <= self._result.evicted_to and name not in (self._kept or ()):
                    name = ""
                own = body if len(found) == 1 else rows[starts == start].tobytes()
                if start != NOWHERE:
                    size = self._accepting.protocols[key[0]].columns.itemsize
                    self._result.heard[start, start + length] += len(own) // size
                self._bodies.setdefault((name, key), bytearray()).extend(own)
        self._size += len(body)
        if self._size >= _PENDING_BYTES:
            self.count()

    def count(self) -> None:
        for (name, key), body in self._bodies.items():
            protocol = self._accepting.protocols[key[0]]
            reports = np.frombuffer(bytes(body), protocol.columns)
            state = self._add_to_cell(name, key, len(reports), protocol)
            protocol.count(state, *(reports[column] for column in protocol.columns.names or ()))
        self._bodies, self._size = {}, 0

    def _add_to_cell(self, name: str, key: Key, reports: int, protocol: Protocol) -> State:
        result = self._result
        cells = result.panes.setdefault(name, Cells()) if name else result.all
        if key not in cells:
            wanted = not name or self._kept is None or name in self._kept
            cells[key] = Cell(0, np.zeros(protocol.entries, np.int64) if wanted else None)
        cells[key].reports += reports
        if (state := cells[key].state) is not None:
            return state
        return result.stray.setdefault(key, np.zeros(protocol.entries, np.int64))


def _verdicts(read: Records, accepting: Accepting) -> Iterator[tuple[Ints, tuple[Key, bytes] | str]]:
    """Yields indices of records, with (key, reports) or the reason."""
    lengths = read.ends - read.begins
    for length in np.unique(lengths).tolist():
        alike = np.flatnonzero(lengths == length)
        for which, head, rows in _by_head(read, alike, length):
            if (found := _decode_together(head, rows, accepting)) is not None:
                yield which, found
                continue
            for i in range(len(which)):
                try:
                    value = read.data[read.begins[which[i]] : read.ends[which[i]]].tobytes()
                    yield which[i : i + 1], accepting.parse(value)
                except Malformed as fault:
                    yield which[i : i + 1], fault.reason


def _by_head(read: Records, alike: Ints, length: int) -> Iterator[tuple[Ints, bytes, _Rows]]:
    """Yields records of one length, their first bytes, and their reports.

    The first bytes are the version, the fingerprint and, for version 2, the segment and its length. They are empty if
    the records have no such beginning, or are too few or too long.
    """
    rows = np.empty((0, 0), np.uint8)
    if len(alike) < _FEW or not 5 < length <= _LONG:
        yield alike, b"", rows
        return
    rows = np.lib.stride_tricks.sliding_window_view(read.data, length)[read.begins[alike]]
    for which, head, rest in _grouped(alike, rows, 5):
        if head[0] != 2:
            yield which, head if head[0] == 1 else b"", rest
            continue
        for among, size, texts in _grouped(which, rest, 1):
            if not 0 < size[0] < texts.shape[1]:
                yield among, b"", texts
                continue
            for same, text, reports in _grouped(among, texts, size[0]):
                yield same, head + size + text, reports


def _grouped(which: Ints, rows: _Rows, size: int) -> Iterator[tuple[Ints, bytes, _Rows]]:
    """Yields records with equal first `size` bytes, these, and the others."""
    heads = np.ascontiguousarray(rows[:, :size])
    if (heads == heads[0]).all():
        yield which, heads[0].tobytes(), rows[:, size:]
        return
    _, places = np.unique(heads.view(f"V{size}").ravel(), return_inverse=True)
    order = np.argsort(places, kind="stable")
    for same in np.split(order, np.flatnonzero(np.diff(places[order])) + 1):
        yield which[same], heads[same[0]].tobytes(), rows[same, size:]


def _decode_together(head: bytes, rows: _Rows, accepting: Accepting) -> tuple[Key, bytes] | None:
    if not head or len(rows) < _FEW:
        return None
    try:
        key = accepting.key_of(head[1:5].hex(), head[6:].decode("latin-1") if head[0] == 2 else None)
    except Malformed:
        return None
    protocol, most = accepting.protocols[key[0]], accepting.limits.most
    size, length = protocol.columns.itemsize, rows.shape[1]
    if length % size or (most is not None and length > most * size):
        return None
    body = rows.tobytes()
    # each check covers all reports, so one call checks all records
    return (key, body) if accepting.fault_of(protocol, body) is None else None
