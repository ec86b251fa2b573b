"""Windows in event time, read a second time: which panes they are made of, and in which one a record counts.

A window is `1h`, or `24h every 1h`; it begins at multiples of its hop since the epoch. Counted are panes, as long as
the greatest common divisor of all hops. A record is in the pane of its timestamp, unless the closed line had reached
the pane's end before it: then it is late, and in none. A record whose timestamp is negative has none, and no pane; so
has one of 9998-12-31 or later: a window of 366 days, the longest, would end beyond the year 9999. Both are read as −1.

The line is the highest timestamp accepted, less grace and what may be out of order; it moves after each accepted record
that is counted in windows, and never back.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache

import numpy as np

from worker.audit.records import Ints

NOWHERE = -1
"""What stands for a pane's start where a record is in none."""
_DATES_END = int(datetime(9998, 12, 31, tzinfo=UTC).timestamp()) * 1000
_MILLISECONDS = {"s": 1000, "m": 60 * 1000, "h": 60 * 60 * 1000, "d": 24 * 60 * 60 * 1000}
AGES = ("1m", "10m", "1h", "6h", "1d", "7d", "older")
"""How long before a late record its pane was closed, at most."""
_ENDS = np.array([60, 600, 3600, 6 * 3600, 24 * 3600, 7 * 24 * 3600], np.int64) * 1000


@dataclass(frozen=True)
class Windows:
    """The windows that a rule names, and how long they wait; lengths are milliseconds.

    Attributes:
        shapes: name -> (length, hop); without that of all time.
        hold: how far the closed line is behind the highest timestamp.

    Example:
        >>> windows = Windows.of(["all", "1h", "90m every 30m"], grace=600_000, out_of_order=60_000)
        >>> windows.shapes, windows.pane, windows.hold
        ({'1h': (3600000, 3600000), '90m every 30m': (5400000, 1800000)}, 1800000, 660000)
    """

    shapes: Mapping[str, tuple[int, int]]
    hold: int

    @classmethod
    def of(cls, names: Sequence[str], grace: int, out_of_order: int) -> "Windows":
        """Reads what a recorded rule says.

        Raises:
            ValueError: a name is no window's, there is none beside all time, or a wait is below 0.
        """
        shapes = {name: shape_of(name) for name in names if name != "all"}
        if not shapes or len({*names}) < len(names) or min(grace, out_of_order) < 0:
            raise ValueError(f"windows {list(names)}, grace {grace}, out of order {out_of_order}")
        return cls(shapes, grace + out_of_order)

    @property
    def pane(self) -> int:
        """How long a pane is."""
        return math.gcd(*(hop for _, hop in self.shapes.values()))

    def begin_beyond(self, time: int | None) -> dict[str, int]:
        """Returns each window's first start beyond a time; 0 where there was none."""
        return {
            name: 0 if time is None else time - time % hop + hop for name, (_, hop) in self.shapes.items()
        }


@cache
def shape_of(name: str) -> tuple[int, int]:
    """Returns a window's length and hop in milliseconds.

    Raises:
        ValueError: it is no window's name.
    """
    found = re.fullmatch(r"([0-9]{1,9})([smhd])(?: every ([0-9]{1,9})([smhd]))?", name, re.ASCII)
    if found is None:
        raise ValueError(f"{name!r} is no window")
    length = int(found[1]) * _MILLISECONDS[found[2]]
    hop = int(found[3]) * _MILLISECONDS[found[4]] if found[3] else length
    if not hop or not length or length % hop:
        raise ValueError(f"{name!r} is no window")
    return length, hop


def ends_of(pane: str) -> tuple[int, int]:
    """Returns a pane's first millisecond and the one behind it, of the name that its counts are stored under.

    Raises:
        ValueError: it is no pane's name.

    Example:
        >>> ends_of("7200000+3600000")
        (7200000, 10800000)
    """
    found = re.fullmatch(r"(0|[1-9][0-9]*)\+([1-9][0-9]*)", pane, re.ASCII)
    if found is None:
        raise ValueError(f"{pane!r} is no pane")
    start = int(found[1])
    return start, start + int(found[2])


@dataclass(frozen=True)
class Placed:
    """Where accepted records count.

    Attributes:
        starts: (a,) of each one's pane, `NOWHERE` where it is in none.
        late: those that came too late, by age.
        undated: how many have no timestamp.
        closed: the line behind them.
    """

    starts: Ints
    late: Counter[str]
    undated: int
    closed: int


def read_times(timestamps: Ints) -> Ints:
    """Returns timestamps as they count: −1 for each that is none, or that no window could be dated of.

    Example:
        >>> read_times(np.array([0, 253_370_678_399_999, 253_370_678_400_000, -7])).tolist()
        [0, 253370678399999, -1, -1]
    """
    return np.where((timestamps >= 0) & (timestamps < _DATES_END), timestamps, -1)


def place(times: Ints, windows: Windows, newest: int | None, closed: int) -> Placed:
    """Places accepted records, which are in the log's order; O(records).

    Args:
        times: (a,) their timestamps, at least one, as `read_times` has them.
        windows: what they are counted in.
        newest: the highest timestamp accepted before them, in windows or not.
        closed: the line before them.

    Example:
        >>> windows = Windows.of(["10s"], grace=20_000, out_of_order=0)
        >>> placed = place(np.array([5_000, 31_000, 7_000, -1, 19_000]), windows, None, 0)
        >>> placed.starts.tolist(), dict(placed.late), placed.undated, placed.closed
        ([0, 30000, -1, -1, 10000], {'1m': 1}, 1, 11000)
    """
    highest = np.maximum.accumulate(times)
    if newest is not None:
        highest = np.maximum(highest, newest)
    after = np.maximum(highest - windows.hold, closed)
    line = np.concatenate([[closed], after[:-1]])
    starts = times - times % windows.pane
    since = line - (starts + windows.pane)  # how long the pane is closed already
    dated = times >= 0
    late = dated & (since >= 0)
    starts[late | ~dated] = NOWHERE
    ages = np.bincount(np.searchsorted(_ENDS, since[late]), minlength=len(AGES))
    found = Counter({age: n for age, n in zip(AGES, ages.tolist(), strict=True) if n})
    return Placed(starts, found, int(np.count_nonzero(~dated)), int(after[-1]))
