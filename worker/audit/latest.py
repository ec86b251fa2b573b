"""The newest head, recounted: how far windows can be closed at its own offsets, and which of them have to be there."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from worker.audit.errors import Difference
from worker.audit.heads import Head, Line
from worker.audit.recount import Recount
from worker.audit.snapshots import Said
from worker.audit.stored import Stored
from worker.audit.windows import shape_of


@dataclass(frozen=True)
class _Reached:
    """A partition at the head's offset."""

    closed: int
    watermark: int | None
    since: Mapping[str, int]


class Latest:
    """The newest head, held against the partitions at its offsets.

    Args:
        head: the newest one.
        said: what is on the topic.
    """

    def __init__(self, head: Head, said: Collection[Said]) -> None:
        self._head = head
        self._there = {(each.name, each.start): each for each in said if each.name != "all"}
        self._alone = not any(each.name == "all" for each in said)
        self._reached: dict[int, _Reached] = {}
        self._reports = Counter[tuple[int, int]]()
        self._lossy = False

    def add(
        self, partition: int, counted: Recount, stored: Stored, since: Mapping[str, int], gone: int
    ) -> None:
        """Takes up a partition that is counted up to the head's offset."""
        self._lossy |= bool(gone or stored.gaps or stored.readmitted)
        self._reached[partition] = _Reached(counted.closed, counted.watermark, since)
        self._reports += counted.heard

    def expect_right(self) -> None:
        """Sees that no line is further than the partitions, and that just the windows that have reports are there.

        Where something of the log is lost, or not all partitions have come to the head's offsets, nothing is asked; nor
        where the head says nothing of reports. Windows that are older than all that are there may have been deleted.

        Raises:
            Difference: a line is further, or a window is missing, or is of fewer reports by now.
        """
        if self._alone or self._lossy or self._reached.keys() != self._head.offsets.keys():
            return
        for name, line in self._head.lines.items():
            self._expect_line(name, line)
            if not all(name in each.since for each in self._reached.values()):
                continue
            since = max(each.since[name] for each in self._reached.values())
            # what is listed is there from its first one on; of what was never listed nothing is deleted
            starts = line.starts or [start for other, start in self._there if other == name]
            for start, reports in sorted(self._windows(name, min(starts, default=None))):
                if start >= since and not line.is_bounded(start + shape_of(name)[0]):
                    self._expect_there(name, start, reports, line)

    def _expect_line(self, name: str, line: Line) -> None:
        length, hop = shape_of(name)
        closed = min(each.closed for each in self._reached.values())
        most = [(closed - length) // hop * hop + length, *(last - hop for _, last in line.bounded)]
        begin = 0
        for each in self._reached.values():
            after = 0 if each.watermark is None else each.watermark - each.watermark % hop + hop
            begin = max(begin, each.since.get(name, after))
        if line.closed > max(0, *most, begin - hop + length):
            said = f"head {self._head.sequence}: windows {name!r} are closed up to {line.closed}"
            raise Difference(f"{said}, and the partitions only up to {closed} at its offsets")

    def _expect_there(self, name: str, start: int, reports: int, line: Line) -> None:
        said, number = self._there.get((name, start)), self._head.sequence
        if said is None:
            raise Difference(
                f"window {name}/{start}: is not there, and has {reports} reports by snapshot {number}"
            )
        if said.reports != reports:
            raise Difference(
                f"window {name}/{start}: {said.reports} reports published in snapshot {said.sequence}, and it has"
                f" {reports} by snapshot {number}"
            )
        if not said.final and said.end <= line.closed:
            raise Difference(f"window {name}/{start}: provisional, though closed by head {number}")

    def _windows(self, name: str, oldest: int | None) -> Iterator[tuple[int, int]]:
        """Yields the windows that have reports, from the oldest that is there on, and how many."""
        if oldest is None:
            return
        length, hop = shape_of(name)
        sums = Counter[int]()
        for (begin, end), reports in self._reports.items():
            first = -(-(end - length) // hop) * hop
            for start in range(max(first, oldest), begin + 1, hop):
                sums[start] += reports
        yield from sums.items()
