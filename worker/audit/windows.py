"""Windows in event time, their panes, and the pane of a record.

A window, such as `1h` or `24h every 1h`, begins at multiples of its hop since the epoch. The length of a pane is the
greatest common divisor of all hops. A record counts in the pane of its timestamp. If the window-close watermark has
reached the pane's end, the record is late and counts in no pane. A record with a negative timestamp, or with one on or
after 9998-12-31, is undated and counts in no pane.

The window-close watermark is the highest accepted timestamp, minus grace and out-of-orderness. An accepted record can
raise the watermark, but nothing lowers it.
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

NOWHERE = -1  # Start of the pane of a late or undated record
_DATES_END = int(datetime(9998, 12, 31, tzinfo=UTC).timestamp()) * 1000
_MILLISECONDS = {"s": 1000, "m": 60 * 1000, "h": 60 * 60 * 1000, "d": 24 * 60 * 60 * 1000}
AGES = ("1m", "10m", "1h", "6h", "1d", "7d", "older")
"""Upper bounds of the time since a late record's pane was closed."""
_ENDS = np.array([60, 600, 3600, 6 * 3600, 24 * 3600, 7 * 24 * 3600], np.int64) * 1000


@dataclass(frozen=True)
class Windows:
    """Windows of a rule; lengths are in milliseconds.

    Example:
        >>> windows = Windows.of(["all", "1h", "90m every 30m"], grace=600_000, max_out_of_orderness=60_000)
        >>> windows.shapes, windows.pane, windows.hold
        ({'1h': (3600000, 3600000), '90m every 30m': (5400000, 1800000)}, 1800000, 660000)
    """

    shapes: Mapping[str, tuple[int, int]]  # name -> (length, hop), without `all`
    hold: int  # highest timestamp minus window-close watermark

    @classmethod
    def of(cls, names: Sequence[str], grace: int, max_out_of_orderness: int) -> "Windows":
        """Parses the windows of a recorded rule; raises `ValueError`."""
        shapes = {name: shape_of(name) for name in names if name != "all"}
        if not shapes or len({*names}) < len(names) or min(grace, max_out_of_orderness) < 0:
            raise ValueError(
                f"windows {list(names)}, grace {grace}, max_out_of_orderness {max_out_of_orderness}"
            )
        return cls(shapes, grace + max_out_of_orderness)

    @property
    def pane(self) -> int:
        """Length of a pane."""
        return math.gcd(*(hop for _, hop in self.shapes.values()))

    def begin_beyond(self, time: int | None) -> dict[str, int]:
        """Returns each window's first start after `time`; 0 if `time` is None."""
        return {
            name: 0 if time is None else time - time % hop + hop for name, (_, hop) in self.shapes.items()
        }


@cache
def shape_of(name: str) -> tuple[int, int]:
    """Returns a window's length and hop in milliseconds; raises `ValueError`."""
    found = re.fullmatch(r"([0-9]{1,9})([smhd])(?: every ([0-9]{1,9})([smhd]))?", name, re.ASCII)
    length = int(found[1]) * _MILLISECONDS[found[2]] if found else 0
    hop = int(found[3]) * _MILLISECONDS[found[4]] if found and found[3] else length
    if not hop or not length or length % hop:
        raise ValueError(f"{name!r} is not a window")
    return length, hop


def ends_of(pane: str) -> tuple[int, int]:
    """Returns a stored pane's begin and end in ms; raises `ValueError`."""
    found = re.fullmatch(r"(0|[1-9][0-9]*)\+([1-9][0-9]*)", pane, re.ASCII)
    if found is None:
        raise ValueError(f"{pane!r} is not a pane")
    return int(found[1]), int(found[1]) + int(found[2])


@dataclass(frozen=True)
class Placed:
    """Panes of accepted records."""

    starts: Ints  # (a,) start of each record's pane, or `NOWHERE`
    late: Counter[str]  # late records by age
    undated: int
    closed: int  # window-close watermark after the records


def read_times(timestamps: Ints) -> Ints:
    """Replaces timestamps out of range by −1."""
    return np.where((timestamps >= 0) & (timestamps < _DATES_END), timestamps, -1)


def place(times: Ints, windows: Windows, newest: int | None, closed: int) -> Placed:
    """Returns the panes of accepted records.

    `newest` is the highest timestamp so far, and `closed` is the window-close watermark so far.

    Example:
        >>> windows = Windows.of(["10s"], grace=20_000, max_out_of_orderness=0)
        >>> placed = place(np.array([5_000, 31_000, 7_000, -1, 19_000]), windows, None, 0)
        >>> placed.starts.tolist(), dict(placed.late), placed.undated, placed.closed
        ([0, 30000, -1, -1, 10000], {'1m': 1}, 1, 11000)
    """
    highest = np.maximum(np.maximum.accumulate(times), -1 if newest is None else newest)
    after = np.maximum(highest - windows.hold, closed)
    line = np.concatenate([[closed], after[:-1]])
    starts = times - times % windows.pane
    since = line - (starts + windows.pane)  # time since the pane was closed
    dated = times >= 0
    late = dated & (since >= 0)
    starts[late | ~dated] = NOWHERE
    ages = np.bincount(np.searchsorted(_ENDS, since[late]), minlength=len(AGES))
    found = Counter({age: n for age, n in zip(AGES, ages.tolist(), strict=True) if n})
    return Placed(starts, found, int(np.count_nonzero(~dated)), int(after[-1]))
