"""Lateness: in which pane each report counts, decided record by record in the log's order.

A pane whose end is at or before the closed line takes no more. The line is the highest timestamp accepted so far, less
what timestamps may be out of order and the grace; it moves with every record, inside a batch, too, and never back. So
where a batch begins or ends changes nothing.
"""

from collections import Counter
from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt

from worker.counting.windows import UNITS

Ints = npt.NDArray[np.int64]

LATE, UNDATED = -1, -2
"""What stands for a pane's start where a record is in none: it came too late, or has no time."""
AGES = ("1m", "10m", "1h", "6h", "1d", "7d")
"""How long before a late report its pane was closed, at most; more is `OLDER`."""
OLDER = "older"
_AGES = np.array([int(age[:-1]) * UNITS[age[-1]] for age in AGES], np.int64)
_FEW = 16


@dataclass(frozen=True)
class Placed:
    """Where the accepted records of a stretch count.

    Attributes:
        starts: (a,) the start of each one's pane, or `LATE` or `UNDATED`; a single entry stands for all of them.
        late: how many are late, by age.
        watermark: the highest timestamp accepted so far.
        closed: the line behind them.
    """

    starts: Ints
    late: Counter[str]
    watermark: int
    closed: int


def place(times: Ints, watermark: int | None, closed: int, hold: int, pane: int) -> Placed:
    """Places records; O(records).

    Args:
        times: (a,) the timestamps of accepted records in the log's order, at least one; a negative one is none.
        watermark: the highest accepted before them, or None.
        closed: the line before them.
        hold: what the line is behind the watermark: out of order and grace.
        pane: how long a pane is; all in milliseconds.

    Example:
        >>> placed = place(np.array([5, 31, 7, -1, 19]), watermark=None, closed=0, hold=20, pane=10)
        >>> placed.starts.tolist(), dict(placed.late), placed.watermark, placed.closed
        ([0, 30, -1, -2, 10], {'1m': 1}, 31, 11)
    """
    low, high = int(times.min()), int(times.max())
    newest = high if watermark is None else max(watermark, high)
    line = max(closed, newest - hold)
    start = low // pane * pane
    if low >= 0 and high < start + pane > line:
        return Placed(np.array([start]), Counter(), newest, line)
    starts, over = np.empty_like(times), np.empty_like(times)
    late = _walk(times, max(0, watermark or 0), closed, hold, pane, starts, over)
    return Placed(starts, _by_age(over[:late]) if late else Counter(), newest, line)


def _by_age(over: Ints) -> Counter[str]:
    ages = np.bincount(np.searchsorted(_AGES, over), minlength=len(AGES) + 1).tolist()
    return +Counter(dict(zip((*AGES, OLDER), ages, strict=True)))


@numba.njit(cache=True, nogil=True)
def _walk(times: Ints, seen: int, line: int, hold: int, pane: int, starts: Ints, over: Ints) -> int:
    """Fills in where each record is, and by how much the late ones are late; returns how many those are."""
    start, late = 0, 0
    for i in range(len(times)):
        time = times[i]
        if time < 0:
            starts[i] = UNDATED
        else:
            if time < start or time - start >= pane:
                start = time - time % pane
            if start <= line - pane:
                starts[i], over[late] = LATE, line - pane - start
                late += 1
            else:
                starts[i] = start
        seen = max(seen, time)
        line = max(line, seen - hold)
    return late


def warm() -> None:
    """Compiles what places records, before work begins."""
    place(np.array([0, 1]), watermark=0, closed=0, hold=0, pane=1)


def firsts(starts: Ints) -> dict[int, int]:
    """Returns each start that there is, and where it is first."""
    if len(starts) == 1:
        return {int(starts[0]): 0}
    last = np.flatnonzero(starts[1:] != starts[:-1])[::-1]  # so that of each start the first one stays
    return dict(zip(starts[last + 1].tolist(), (last + 1).tolist(), strict=True)) | {int(starts[0]): 0}


def together(starts: Ints) -> list[tuple[int, npt.NDArray[np.intp] | slice]]:
    """Returns each start that there is, and where, in order; one that stands for all is everywhere."""
    if len(starts) == 1:
        return [(int(starts[0]), slice(None))]
    found = sorted(firsts(starts))
    if len(found) == 1:
        return [(found[0], slice(None))]
    if len(found) <= _FEW:
        return [(start, np.flatnonzero(starts == start)) for start in found]
    order = np.argsort(starts, kind="stable")
    ends = np.searchsorted(starts[order], found, side="right").tolist()
    return [(start, order[a:b]) for start, a, b in zip(found, [0, *ends], ends, strict=False)]
