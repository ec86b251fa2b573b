"""Lateness: in which pane each report counts, decided record by record in the log's order.

A pane whose end is at or before the closed line takes no more. The line is the highest timestamp accepted so far, less
what timestamps may be out of order and the grace; it moves with every record, inside a batch, too, and never back. So
where a batch begins or ends changes nothing.
"""

from collections import Counter
from dataclasses import dataclass, replace

import numba
import numpy as np
import numpy.typing as npt

from worker.counting.windows import TIME_ENDS, UNITS

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Reports = npt.NDArray[np.void]

LATE, UNDATED, NOWHERE = -1, -2, -3
"""What stands for a pane's start where a record is in none: it came too late, or has no time."""
AGES = ("1m", "10m", "1h", "6h", "1d", "7d")
"""How long before a late report its pane was closed, at most; more is `OLDER`."""
OLDER = "older"
_AGES = np.array([int(age[:-1]) * UNITS[age[-1]] for age in AGES], np.int64)
_BLOCK = 128
"""So many records are placed at once where all of them are in one pane."""
_RUNS = 1024
"""Room for the runs of nearly every batch; for a record each it would cost more than the records."""


@dataclass(frozen=True)
class Placed:
    """Where the accepted records of a stretch count, as runs of records that are in one place.

    Attributes:
        starts: (r,) the start of each run's pane, or `LATE` or `UNDATED`.
        ends: (r,) the index behind each run's last record.
        late: how many are late, by age.
        watermark: the highest timestamp accepted so far.
        closed: the line behind them.
        undated: how many have no time.
    """

    starts: Ints
    ends: Ints
    late: Counter[str]
    watermark: int
    closed: int
    undated: int = 0


def dated(times: Ints) -> Ints:
    """Returns timestamps with −1 for each that is negative or not below `TIME_ENDS`; O(records).

    Example:
        >>> dated(np.array([5, (1 << 63) - 1, -7])).tolist()
        [5, -1, -1]
    """
    good = times.view(np.uint64) < TIME_ENDS
    return times if good.all() else np.where(good, times, -1)


@dataclass(frozen=True)
class Late:
    """The late records of a batch, in the log's order, and what each was too late for.

    Attributes:
        at: (n,) which of the records they are.
        times: (n,) their timestamps.
        starts: (n,) the starts of the panes that they were too late for.
        lines: (n,) the closed line when each came; its pane ends at or before it.
        pane: how long a pane is.
    """

    at: Ints
    times: Ints
    starts: Ints
    lines: Ints
    pane: int

    def behind(self, records: int) -> "Late":
        """Returns the same, of a batch that has so many records before these."""
        return replace(self, at=self.at + records)


def place(times: Ints, watermark: int | None, closed: int, hold: int, pane: int) -> Placed:
    """Places records; O(records).

    Args:
        times: (a,) the timestamps of accepted records in the log's order, at least one, `dated`; −1 is none.
        watermark: the highest accepted before them, or None.
        closed: the line before them.
        hold: what the line is behind the watermark: out of order and grace.
        pane: how long a pane is; all in milliseconds.

    Example:
        >>> placed = place(np.array([5, 31, 32, 7, -1, 19]), watermark=None, closed=0, hold=20, pane=10)
        >>> placed.starts.tolist(), placed.ends.tolist(), dict(placed.late), placed.watermark, placed.closed
        ([0, 30, -1, -2, 10], [1, 3, 4, 5, 6], {'1m': 1}, 32, 12)
    """
    seen = int(times[0]) if watermark is None else watermark
    for room in (min(_RUNS, len(times)), len(times)):
        starts, ends = np.empty(room, np.int64), np.empty(room, np.int64)
        ages = np.zeros(len(AGES) + 1, np.int64)
        n, late, undated, newest, line = _walk(times, seen, closed, hold, pane, starts, ends, ages)
        if n <= room:
            break
    by_age = +Counter(dict(zip((*AGES, OLDER), ages.tolist(), strict=True))) if late else Counter()
    return Placed(starts[:n], ends[:n], by_age, newest, line, undated)


@numba.njit(cache=True, nogil=True)
def _walk(
    times: Ints, seen: int, line: int, hold: int, pane: int, starts: Ints, ends: Ints, ages: Ints
) -> tuple[int, int, int, int, int]:
    """Fills in the runs and the ages of the late.

    Returns:
        How many runs there are, or one more than there is room for; how many are late, how many undated; the
        watermark; the line.
    """
    n, late, undated, start, last = 0, 0, 0, 0, NOWHERE
    for first in range(0, len(times), _BLOCK):
        block = times[first : first + _BLOCK]
        low = high = block[0]
        for i in range(len(block)):
            low, high = min(low, block[i]), max(high, block[i])
        own, top = low - low % pane, max(seen, high)
        all_in_one = low >= 0 and high - own < pane and own > max(line, top - hold) - pane
        step = len(block) if all_in_one else 1
        for i in range(0, len(block), step):
            time, where = block[i], own
            if not all_in_one:
                where, top = UNDATED, max(seen, time)
                if time < 0:
                    undated += 1
                else:
                    if time < start or time - start >= pane:
                        start = time - time % pane
                    where = start
                    if start <= line - pane:
                        where = LATE
                        late += 1
                        ages[_age(line - pane - start)] += 1
            if where != last:
                n, last = n + 1, where
                if n > len(starts):
                    return n, late, undated, seen, line
                starts[n - 1] = where
            ends[n - 1] = first + i + step
            seen = top
            line = max(line, max(0, seen) - hold)
    return n, late, undated, seen, line


@numba.njit(cache=True, nogil=True)
def _age(over: int) -> int:
    """Returns which of the ages that many milliseconds are, or the number of ages."""
    age = 0
    while age < len(_AGES) and _AGES[age] < over:
        age += 1
    return age


def late_of(placed: Placed, times: Ints, watermark: int | None, closed: int, hold: int, pane: int) -> Late:
    """Returns the late ones of records that were placed, with the line that each of them met; O(records).

    Args:
        placed: what `place` said of them.
        times: what it was given, as all that follows.
        watermark: see there.
        closed: see there.
        hold: see there.
        pane: see there.

    Example:
        >>> times = np.array([5, 31, 32, 7])
        >>> late = late_of(place(times, None, 0, 20, 10), times, None, 0, 20, 10)
        >>> late.at.tolist(), late.times.tolist(), late.starts.tolist(), late.lines.tolist()
        ([3], [7], [0], [12])
    """
    at = np.flatnonzero(np.repeat(placed.starts == LATE, np.diff(placed.ends, prepend=0)))
    seen = np.maximum.accumulate(np.append(times[0] if watermark is None else watermark, times))
    lines = np.maximum(closed, np.maximum(seen, 0) - hold)
    lines[0] = closed  # a hold that became shorter moves the line with the next record
    found = times[at]
    return Late(at, found, found - found % pane, lines[at], pane)


def together(placed: Placed, reports: Reports, counts: Ints) -> list[tuple[int, Reports]]:
    """Returns each start that there is, in order, and the reports there; O(bytes), and sorts the runs.

    Args:
        placed: where their records are.
        reports: (n,) the reports.
        counts: (a,) how many of them each record has.
    """
    starts, ends = placed.starts, placed.ends
    if len(starts) == 1:
        return [(int(starts[0]), reports)]
    if len(reports) != len(counts):
        ends = np.cumsum(counts)[ends - 1]
    order, out = starts.argsort(kind="stable"), np.empty_like(reports)
    found, edges = np.empty((2, len(starts)), np.int64)
    size = reports.dtype.itemsize
    n = _gather(reports.view(np.uint8), size, starts, ends, order, out.view(np.uint8), found, edges)
    bounds = edges[:n].tolist()
    return [(s, out[a:b]) for s, a, b in zip(found[:n].tolist(), [0, *bounds], bounds, strict=False)]


@numba.njit(cache=True, nogil=True)
def _gather(
    data: Bytes, size: int, starts: Ints, ends: Ints, order: Ints, out: Bytes, found: Ints, edges: Ints
) -> int:
    """Copies runs in an order; fills in the starts found, and the end of each one's reports; returns their number."""
    n = at = 0
    for run in order:
        own = data[(ends[run - 1] if run else 0) * size : ends[run] * size]
        into = out[at : at + len(own)]
        for k in range(len(own)):  # a slice into a slice takes ten times as long
            into[k] = own[k]
        at += len(own)
        if not n or found[n - 1] != starts[run]:
            n += 1
        found[n - 1], edges[n - 1] = starts[run], at // size
    return n


def warm() -> None:
    """Compiles what places records and sorts their reports, before work begins."""
    placed = place(np.array([0, 1]), watermark=0, closed=0, hold=0, pane=1)
    together(placed, np.zeros(2, [("index", "u1")]), np.array([1, 1]))
