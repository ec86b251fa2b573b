"""Chooses the pane of each record in log order, and detects late records.

A pane that ends at or before the window-close watermark accepts no reports. This watermark is the highest accepted
timestamp minus `max_out_of_orderness` and `grace`. It rises record by record, so the size of batches has no effect.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numba
import numpy as np
import numpy.typing as npt

from worker.counting.windows import TIME_ENDS, UNITS

Ints = npt.NDArray[np.int64]

# _nrt=False omits reference counting: no compiled function allocates an array
_OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "_nrt": False}
_F = TypeVar("_F", bound=Callable[..., Any])
_compiled: Callable[[_F], _F] = numba.njit(**_OPTIONS)
_inlined: Callable[[_F], _F] = numba.njit(forceinline=True, **_OPTIONS)

LATE, UNDATED = -1, -2
"""Values that replace a pane's start for late and undated records."""
AGES = ("1m", "10m", "1h", "6h", "1d", "7d")
"""Upper limits of a late record's age: the time from the end of the record's pane to the window-close watermark. Ages
above the last limit are `OLDER`."""
OLDER = "older"
_AGES = np.array([int(age[:-1]) * UNITS[age[-1]] for age in AGES], np.int64)
_BLOCK = 128
"""Records per block. Usually, all records of a block are in one pane or in panes that stay open."""
_FEW, _RUNS = 64, 1024
"""Initial sizes of the arrays of panes and runs, enough for nearly every batch. Larger arrays take more time."""


class Placed(NamedTuple):
    """The panes of accepted records under one rule.

    Attributes:
        starts: the start of each pane, in order of first records; `LATE` and `UNDATED` count as panes.
        firsts: the index of each pane's first record.
        sizes: each pane's number of reports.
        runs: (2, r), one column per run of reports in one pane: the pane's index, and the index after the last report.
        late: number of late records by age.
        undated: number of records without a valid timestamp.
        watermark: the highest timestamp accepted so far, or −1.
        closed: the window-close watermark after these records.
    """

    starts: list[int]
    firsts: list[int]
    sizes: list[int]
    runs: Ints
    late: dict[str, int]
    undated: int
    watermark: int
    closed: int


def dated(times: Ints) -> Ints:
    """Replaces timestamps outside [0, `TIME_ENDS`) with −1; O(records)."""
    good = times.view(np.uint64) < TIME_ENDS
    return times if good.all() else np.where(good, times, -1)


@dataclass(frozen=True)
class Late:
    """The late records of a batch, in log order.

    Attributes:
        at: (n,) indices of the records.
        times: (n,) timestamps.
        starts: (n,) starts of the records' panes.
        closed: (n,) window-close watermark before each record, at or after the end of the record's pane.
        pane: the length of a pane.
    """

    at: Ints
    times: Ints
    starts: Ints
    closed: Ints
    pane: int


def place(
    times: Ints,
    counts: Ints,
    reports: int,
    watermark: int | None,
    closed: int,
    *,
    hold: int,
    pane: int,
    most: int,
) -> Placed:
    """Returns the panes of records; O(reports).

    Args:
        times: (a,) the timestamps of accepted records in log order, at least one.
        counts: (a,) the number of reports of each record.
        reports: the sum of the counts.
        watermark: the highest timestamp before these records, or None.
        closed: the window-close watermark before these records.
        hold: `max_out_of_orderness` plus `grace`.
        pane: the length of a pane. All times are in milliseconds.
        most: the limit of panes. The result may omit the first record above the limit and all later records.

    Example:
        >>> times = np.array([5, 31, 32, 7, -1, 19])
        >>> placed = place(times, np.ones_like(times), 6, watermark=None, closed=0, hold=20, pane=10, most=9)
        >>> placed.starts, placed.runs.tolist(), placed.late, placed.watermark, placed.closed
        ([0, 30, -1, -2, 10], [[0, 1, 2, 3, 4], [1, 3, 4, 5, 6]], {'1m': 1}, 32, 12)
    """
    before = -1 if watermark is None else max(watermark, -1), closed
    # powers of two, with entries for late records, undated records and one pane above the limit
    for room, length in ((_FEW, _RUNS), (1 << (min(most, len(times)) + 3).bit_length(), reports)):
        space, runs = np.empty(6 * room, np.int64), np.empty((2, length), np.int64)
        n, r, done, undated, newest, line = _walk(times, counts, before, hold, pane, space, runs)
        if done == len(times):
            break
    numbers, firsts, sizes = space[: 3 * room].reshape(3, room)[:, :n].tolist()
    starts = [number * pane if number >= 0 else number for number in numbers]
    late = {}
    if LATE in numbers:
        late = {age: k for age, k in zip((*AGES, OLDER), space[3 * room :].tolist(), strict=False) if k}
    return Placed(starts, firsts, sizes, runs[:, :r], late, undated, newest, line)


@_compiled
def _walk(
    times: Ints,
    counts: Ints,
    before: tuple[int, int],
    hold: int,
    pane: int,
    space: Ints,
    runs: Ints,
) -> tuple[int, int, int, int, int, int]:
    """Assigns records to panes: fills ``space`` and ``runs``.

    ``space`` has six equal parts: pane numbers, firsts, sizes, ages, and two for the hash table of pane numbers.

    Returns:
        The numbers of panes, runs, assigned records and undated records, then the watermark and the window-close
        watermark. If an array is full, fewer records are assigned. `LATE` and `UNDATED` count as panes.
    """
    seen, line = before
    room = len(space) // 6
    numbers, firsts, sizes = space[:room], space[room : 2 * room], space[2 * room : 3 * room]
    ages, table, owners, ends = space[3 * room : 4 * room], space[4 * room :], runs[0], runs[1]
    space[2 * room : 4 * room] = 0
    table[:] = -1
    n, at, undated, inverse, r, owner = 0, 0, 0, 1 / pane, -1, -1
    for first in range(0, len(times), _BLOCK):
        block, many = times[first : first + _BLOCK], counts[first : first + _BLOCK]
        if r + 1 + len(block) > len(ends):
            return n, r + 1, first, undated, seen, line
        low, high, total = _sums(block, many)
        own, top = low // pane, max(seen, high)
        # then no record of the block is late or undated, in any order
        all_open = low >= 0 and high < TIME_ENDS and (own + 1) * pane > max(line, top - hold)
        step = len(block) if all_open and high < (own + 1) * pane else 1
        for i in range(0, len(block), step):
            number, count = own, total
            if step == 1:
                number, count = _number(block[i], pane, inverse), many[i]
            if not all_open:
                number = _classify(number, block[i], pane, line, ages)
                undated += number == UNDATED
                seen = seen if number == UNDATED else max(seen, block[i])
                line = max(line, seen - hold)
            slot = _find(number, table, numbers, n)
            if slot == n:
                if n == len(numbers):
                    return n, r + 1, first + i, undated, seen, line
                firsts[n] = first + i
                n += 1
            sizes[slot] += count
            at += count
            r += slot != owner  # no branch: the CPU would mispredict it for alternating panes
            owner = slot
            owners[r], ends[r] = slot, at
        if all_open:
            seen, line = top, max(line, top - hold)
    return n, r + 1, len(times), undated, seen, line


@_inlined
def _sums(times: Ints, counts: Ints) -> tuple[int, int, int]:
    """Returns the lowest and the highest time, and the sum of the counts."""
    low = high = times[0]
    total = 0
    for i in range(len(times)):
        low, high, total = min(low, times[i]), max(high, times[i]), total + counts[i]
    return low, high, total


@_inlined
def _classify(number: int, time: int, pane: int, line: int, ages: Ints) -> int:
    """Returns a pane number, `LATE` or `UNDATED`; counts late records by age."""
    if time < 0 or time >= TIME_ENDS:
        return UNDATED
    over = line - (number + 1) * pane
    if over < 0:
        return number
    ages[_age(over)] += 1
    return LATE


@_inlined
def _number(time: int, pane: int, inverse: float) -> int:
    """Returns a time's pane number, ten times as fast as integer division."""
    number = int(time * inverse)  # at most one off
    rest = time - number * pane
    return number - (rest < 0) + (rest >= pane)


def spread(
    document: npt.NDArray[np.int16],
    segment: npt.NDArray[np.int32],
    counts: Ints,
    runs: Ints,
    shape: tuple[int, int, int],
) -> list[tuple[list[tuple[int, int]], list[int], Ints]]:
    """Groups the reports of each document by pane and segment; O(records).

    Args:
        document: (a,) the document of each accepted record.
        segment: (a,) the segment of each record.
        counts: (a,) the number of reports of each record, at least 1.
        runs: the panes of the reports of all documents, as in `Placed`.
        shape: the numbers of documents, panes and segments.

    Returns:
        For each document the (pane, segment) of each cell, in order of first records, each cell's number of reports,
        and runs over the document's reports with indices of cells.

    Example:
        >>> document, segment = np.array([0, 1, 0, 0], np.int16), np.array([0, 2, 0, 1], np.int32)
        >>> one, other = spread(document, segment, np.array([1, 2, 3, 4]), np.array([[0, 1], [3, 10]]), (2, 2, 3))
        >>> one[0], one[1], one[2].tolist()
        ([(0, 0), (1, 0), (1, 1)], [1, 3, 4], [[0, 1, 2], [1, 4, 8]])
        >>> other[0], other[1], other[2].tolist()
        ([(0, 2)], [2], [[0], [2]])
    """
    documents, panes, segments = shape
    most = min(len(counts), documents * panes * segments)
    table, cells = np.full(1 << (2 * most).bit_length(), -1), np.empty((6, most), np.int64)
    found, used = np.empty((documents, 2, len(counts)), np.int64), np.zeros((4, documents), np.int64)
    n = _spread(document, segment, counts, (runs[0], runs[1]), (panes, segments), table, cells, found, used)
    owners, split = cells[0, :n], []
    for one, ends in enumerate(used[0].tolist()):
        pane, part, size = cells[1:4, np.flatnonzero(owners == one)].tolist()
        split.append((list(zip(pane, part, strict=True)), size, found[one, :, :ends]))
    return split


@_compiled
def _spread(
    document: npt.NDArray[np.int16],
    segment: npt.NDArray[np.int32],
    counts: Ints,
    runs: tuple[Ints, Ints],
    shape: tuple[int, int],
    table: Ints,
    cells: Ints,
    found: Ints,
    used: Ints,
) -> int:
    """Groups records; see `spread`. Returns the number of cells.

    ``cells`` receives the document, pane and segment of each cell, its number of reports, and its index among the
    document's cells. The last row belongs to the table.
    ``found`` receives the runs of each document, and ``used`` their number. ``table`` is a hash table.
    """
    (panes, segments), (owners, run_ends) = shape, runs
    sizes, places, numbers = cells[3], cells[4], cells[5]
    ends, reports, many, last = used[0], used[1], used[2], used[3]
    last[:] = -1
    n = run = total = 0
    for i in range(len(counts)):
        one, count = document[i], counts[i]
        total += count
        while run_ends[run] < total:
            run += 1
        slot = _find((one * panes + owners[run]) * segments + segment[i], table, numbers, n)
        if slot == n:
            cells[0, n], cells[1, n], cells[2, n] = one, owners[run], segment[i]
            sizes[n], places[n] = 0, many[one]
            many[one] += 1
            n += 1
        sizes[slot] += count
        reports[one] += count
        place = places[slot]
        end = ends[one] + (place != last[one])  # no branch, as in `_walk`
        found[one, 0, end - 1], found[one, 1, end - 1] = place, reports[one]
        ends[one], last[one] = end, place
    return n


@_inlined
def _find(number: int, table: Ints, numbers: Ints, n: int) -> int:
    """Returns a pane number's index; adds a new number at index n if it fits."""
    key = number & (len(table) - 1)
    while table[key] >= 0:
        if numbers[table[key]] == number:
            return int(table[key])
        key = (key + 1) & (len(table) - 1)
    if n < len(numbers):
        table[key], numbers[n] = n, number
    return n


@_inlined
def _age(over: int) -> int:
    """Returns the index of an age class; len(_AGES) for `OLDER`."""
    age = 0
    while age < len(_AGES) and _AGES[age] < over:
        age += 1
    return age


def late_of(times: Ints, watermark: int | None, closed: int, *, hold: int, pane: int) -> Late:
    """Returns the late records and their window-close watermarks; O(records).

    The arguments are those of `place`, but ``times`` comes from `dated`.
    """
    seen = np.maximum.accumulate(np.append(-1 if watermark is None else watermark, times))
    marks = np.maximum(closed, np.maximum(seen, 0) - hold)
    marks[0] = closed  # if the hold became shorter, the watermark moves only with the next record
    starts = times - times % pane
    at = np.flatnonzero((times >= 0) & (starts + pane <= marks[:-1]))
    return Late(at, times[at], starts[at], marks[at], pane)


def warm() -> None:
    """Compiles `place` in advance."""
    ones = np.ones(1, np.int64)
    place(ones, ones, 1, watermark=0, closed=0, hold=0, pane=1, most=1)


def warm_spread() -> None:
    """Compiles `spread` in advance."""
    ones = np.ones(1, np.int64)
    spread(np.zeros(1, np.int16), np.zeros(1, np.int32), ones, np.stack([ones - 1, ones]), (1, 1, 1))
