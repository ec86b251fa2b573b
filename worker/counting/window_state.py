"""The progress of one partition's windows in event time.

The life cycle of windows and panes:

1. **announced**: a recorded rule names the window. At the rule's offset, `begin` sets the first start of a new window,
   after the watermark.
2. **admitted**: a head names the partition and the start of the partition's windows, which `admit` takes over. Until
   then the partition waits (`PartitionState.waits_at`).
3. **open**: reports are added to the pane. A pane is open while its end is after `closed`.
4. **closed**: the watermark minus `grace` and `max_out_of_orderness` has reached the pane's end. Later reports of this
   pane are late: they count for all time only.
5. **evicted**: no open window needs the pane. `PartitionState.evict` merges it into the counts of all time.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from worker.counting import lateness
from worker.counting.lateness import Late, Placed
from worker.counting.windows import Windowing

Ints = npt.NDArray[np.int64]


@dataclass
class WindowState:
    """The progress of windows; depends only on log prefix, rules and heads."""

    watermark: int | None = None  # highest accepted timestamp in ms; -1: all undated, None: no record
    closed: int = 0  # window-close watermark: panes that end at or before it accept no reports; never falls
    admitted_from: int | None = None  # start of the windows, from the head that admitted the partition
    evicted_to: int = 0  # panes that end at or before this were merged into the counts of all time
    readmitted: list[tuple[int, int]] = field(default_factory=list)  # withdrawn (offset, admitted_from)
    first_start: dict[str, int] = field(default_factory=dict)  # window of the newest rule -> first start
    # for each gap of the log: `closed` before it, and the first timestamp after it above the watermark
    gap_bounds: list[tuple[int, int | None]] = field(default_factory=list)
    late: dict[str, int] = field(default_factory=dict)  # late records by age
    undated: int = 0  # accepted records without a valid timestamp

    def begin(self, windowing: Windowing | None) -> None:
        """Begins the windows of a rule; new windows start after the watermark."""
        parsed = () if windowing is None else windowing.parsed
        begin = {w.name: 0 if self.watermark is None else w.next_start(self.watermark) for w in parsed}
        self.first_start = {name: self.first_start.get(name, start) for name, start in begin.items()}

    def admit(self, admitted_from: int) -> None:
        """Begins the windows at the time that the newest head gives."""
        self.admitted_from = admitted_from
        self.closed = max(self.closed, admitted_from)

    def withdraw_admission(self, offset: int) -> None:
        """Withdraws the admission, because the head was deleted."""
        if self.admitted_from is not None:
            self.readmitted.append((offset, self.admitted_from))
            self.admitted_from = None

    def place(self, times: Ints, counts: Ints, reports: int, windowing: Windowing, most: int) -> Placed:
        """Returns the panes of accepted records; see `lateness.place`."""
        shape = {"hold": windowing.hold, "pane": windowing.pane}
        return lateness.place(times, counts, reports, self.watermark, self.closed, **shape, most=most)

    def late_of(self, times: Ints, windowing: Windowing) -> Late:
        """Returns the late records among accepted ones; see `lateness.late_of`."""
        shape = {"hold": windowing.hold, "pane": windowing.pane}
        return lateness.late_of(lateness.dated(times), self.watermark, self.closed, **shape)

    def advance(self, accepted: Ints, watermark: int, closed: int) -> None:
        """Stores the new watermarks, and the first timestamp after a gap."""
        if self.gap_bounds and self.gap_bounds[-1][1] is None:
            times = lateness.dated(accepted)
            if len(times := times[times > (-1 if self.watermark is None else self.watermark)]):
                first = int(times[0])
                self.gap_bounds = [(before, first if at is None else at) for before, at in self.gap_bounds]
        self.watermark, self.closed = watermark, closed

    def skip(self) -> None:
        """Records a gap of the log."""
        self.gap_bounds.append((self.closed, None))

    def stored(self) -> dict[str, Any]:
        """Returns the fields to store, in JSON types."""
        return {
            "late": self.late,
            "undated": self.undated,
            "watermark": self.watermark,
            "closed": self.closed,
            "admitted_from": self.admitted_from,
            "evicted_to": self.evicted_to,
            "first_start": self.first_start,
            "gap_bounds": self.gap_bounds,
        } | ({"readmitted": self.readmitted} if self.readmitted else {})

    @classmethod
    def load(cls, stored: Mapping[str, Any]) -> "WindowState":
        """Parses fields from `stored`; raises KeyError, TypeError or ValueError."""
        return cls(
            watermark=stored["watermark"],
            closed=stored["closed"],
            admitted_from=stored["admitted_from"],
            evicted_to=stored["evicted_to"],
            readmitted=[(at, admitted_from) for at, admitted_from in stored.get("readmitted", ())],
            first_start=dict(stored["first_start"]),
            gap_bounds=[(before, first) for before, first in stored["gap_bounds"]],
            late=dict(stored["late"]),
            undated=stored["undated"],
        )
