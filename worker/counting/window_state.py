"""WindowState: the progress of one partition's windows in event time.

The life cycle of the windows:

1. **announced**: a recorded rule names them. At its offset `begin` sets each name's first start, beyond all reports.
2. **admitted**: a head names the partition, and `admit` takes from it where the windows begin. Until then the partition
   waits (`PartitionState.waits_at`).
3. **open**: a report in time creates a pane or adds to it. A pane is open while its end is beyond `closed`.
4. **closed**: the watermark, less grace and disorder, has reached a pane's end. Its later reports are late: they count
   for all time only.
5. **evicted**: no window in the head needs the pane any more. `PartitionState.evict` adds it to the counts of all time.
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
    """What a partition keeps for its windows, a pure function of its log's prefix, its rules and the heads."""

    watermark: int | None = (
        None  # highest accepted timestamp in ms; -1 while all are undated, None before any
    )
    closed: int = 0  # panes that end at or before this take no more reports; it never falls
    admitted_from: int | None = None  # where the windows begin, by the head that admitted the partition
    evicted_to: int = 0  # panes that end at or before this were added to the counts of all time
    readmitted: list[tuple[int, int]] = field(default_factory=list)  # (offset, admitted_from); head deleted
    first_start: dict[str, int] = field(default_factory=dict)  # window of the newest rule -> first to publish
    # of each gap of the log: `closed` before it, and the first timestamp after it beyond the watermark
    gap_bounds: list[tuple[int, int | None]] = field(default_factory=list)
    late: dict[str, int] = field(default_factory=dict)  # accepted records too late for their pane, by age
    undated: int = 0  # accepted records without a valid timestamp

    def begin(self, windowing: Windowing | None) -> None:
        """Begins the windows of a rule: those that the rule before lacks start beyond the watermark."""
        parsed = () if windowing is None else windowing.parsed
        begin = {w.name: 0 if self.watermark is None else w.next_start(self.watermark) for w in parsed}
        self.first_start = {name: self.first_start.get(name, start) for name, start in begin.items()}

    def admit(self, admitted_from: int) -> None:
        """Begins the windows where the head that names the partition says."""
        self.admitted_from = admitted_from
        self.closed = max(self.closed, admitted_from)

    def withdraw_admission(self, offset: int) -> None:
        """Records that the admitting head was deleted; the next head admits the partition again."""
        if self.admitted_from is not None:
            self.readmitted.append((offset, self.admitted_from))
            self.admitted_from = None

    def place(self, times: Ints, counts: Ints, reports: int, windowing: Windowing, most: int) -> Placed:
        """Returns the panes of accepted records, see `lateness.place`."""
        shape = {"hold": windowing.hold, "pane": windowing.pane}
        return lateness.place(times, counts, reports, self.watermark, self.closed, **shape, most=most)

    def late_of(self, times: Ints, windowing: Windowing) -> Late:
        """Returns the late ones of accepted records, see `lateness.late_of`."""
        shape = {"hold": windowing.hold, "pane": windowing.pane}
        return lateness.late_of(lateness.dated(times), self.watermark, self.closed, **shape)

    def advance(self, accepted: Ints, watermark: int, closed: int) -> None:
        """Takes over both watermarks behind accepted records, and the first timestamp after a gap."""
        if self.gap_bounds and self.gap_bounds[-1][1] is None:
            times = lateness.dated(accepted)
            if len(times := times[times > (-1 if self.watermark is None else self.watermark)]):
                first = int(times[0])
                self.gap_bounds = [(line, first if at is None else at) for line, at in self.gap_bounds]
        self.watermark, self.closed = watermark, closed

    def skip(self) -> None:
        """Records a gap of the log."""
        self.gap_bounds.append((self.closed, None))

    def stored(self) -> dict[str, Any]:
        """Returns the fields as they are stored, in JSON's types."""
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
        """Reads what `stored` returned; raises KeyError, TypeError or ValueError for anything else."""
        return cls(
            watermark=stored["watermark"],
            closed=stored["closed"],
            admitted_from=stored["admitted_from"],
            evicted_to=stored["evicted_to"],
            readmitted=[(at, line) for at, line in stored.get("readmitted", ())],
            first_start=dict(stored["first_start"]),
            gap_bounds=[(line, first) for line, first in stored["gap_bounds"]],
            late=dict(stored["late"]),
            undated=stored["undated"],
        )
