"""Lateness: in which pane each report counts, decided record by record in the log's order.

A pane whose end is at or before the closed line takes no more. The line is the highest timestamp accepted so far, less
what timestamps may be out of order and the grace; it moves with every record, inside a batch, too, and never back. So
where a batch begins or ends changes nothing.
"""

from collections import Counter
from dataclasses import dataclass

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
    lines = np.maximum.accumulate(np.maximum(times, max(0, watermark or 0))) - hold
    lines = np.maximum(closed, np.concatenate([[closed], lines[:-1]])) - pane
    starts = times // pane * pane
    late = (lines >= starts) & (times >= 0)
    over = (lines - starts)[late]
    starts[late] = LATE
    starts[times < 0] = UNDATED
    ages = np.bincount(np.searchsorted(_AGES, over), minlength=len(AGES) + 1).tolist()
    return Placed(starts, +Counter(dict(zip((*AGES, OLDER), ages, strict=True))), newest, line)


def together(starts: Ints) -> list[tuple[int, npt.NDArray[np.intp] | slice]]:
    """Returns each start that there is, and where, in order; one that stands for all is everywhere."""
    if len(starts) == 1:
        return [(int(starts[0]), slice(None))]
    found = np.unique(starts)
    if len(found) <= _FEW:
        return [(start, np.flatnonzero(starts == start)) for start in found.tolist()]
    order = np.argsort(starts, kind="stable")
    ends = np.searchsorted(starts[order], found, side="right").tolist()
    return [(start, order[a:b]) for start, a, b in zip(found.tolist(), [0, *ends], ends, strict=False)]
