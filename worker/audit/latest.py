"""The newest head, recounted: how far windows can be closed at its own offsets, and which of them have to be there."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Set
from dataclasses import dataclass
from itertools import pairwise

from worker.audit.errors import Difference
from worker.audit.heads import Head, Line
from worker.audit.recount import Recount
from worker.audit.snapshots import Said
from worker.audit.stored import Stored
from worker.audit.windows import shape_of


@dataclass(frozen=True)
class _Reached:
    """A partition at the head's offset.

    Attributes:
        closed: its line.
        floor: the line with which the head admits it.
        watermark: its highest timestamp, or None.
        since: each window's first start.
        names: the windows that it had when the head was published; more may have come since, at the same offset.
        dropped: windows that begin below this line may not be published, by now.
    """

    closed: int
    floor: int
    watermark: int | None
    since: Mapping[str, int]
    names: Set[str]
    dropped: int


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
        self._reached[partition] = _Reached(
            counted.closed,
            self._head.floors.get(partition, 0),
            counted.watermark,
            since,
            self._names(partition, stored),
            stored.dropped,
        )
        self._reports += counted.heard

    def _names(self, partition: int, stored: Stored) -> Set[str]:
        """Returns the windows that a partition had when the head was published."""
        offset = self._head.offsets[partition]
        if begun := [names for at, names in self._head.rules.get(partition, ()) if at <= offset]:
            return begun[-1]
        # what a rule says that holds from this very offset may have come after the head
        windows = next((limits.windows for at, limits in reversed(stored.rules) if at < offset), None)
        return set() if windows is None else {*windows.shapes}

    def expect_right(self) -> int:
        """Sees that no line is further than the partitions, and that just the windows that have reports are there.

        Where something of the log is lost, or not all partitions have come to the head's offsets, nothing is asked; nor
        where the head says nothing of reports. A window that is open is there, whatever the head lists: what is deleted
        was over. Those that are older than all that are there may have been deleted.

        Returns:
            How many windows that are over have reports and are not there.

        Raises:
            Difference: a line is further, or a window is missing, or is of fewer reports by now.
        """
        number = self._head.sequence
        if self._alone and self._head.reports:
            raise Difference(
                f"head {number}: {self._head.reports} reports, and nothing of its snapshot is there"
            )
        if self._alone or self._lossy or not self._reached:
            return 0
        if self._reached.keys() != self._head.offsets.keys():
            return 0
        come, gone = self._come(), 0
        names = set[str].intersection(*({*each.names} for each in self._reached.values()))
        if lacking := sorted(names - self._head.lines.keys()):
            raise Difference(f"head {number}: says nothing of windows {lacking[0]!r}, which are counted")
        for name, line in self._head.lines.items():
            self._expect_line(name, line)
            if name in names and all(name in each.since for each in self._reached.values()):
                gone += self._expect_windows(name, line, come)
        return gone

    def _come(self) -> int:
        """Returns how far windows may be over: only those that end by then can have been deleted.

        Raises:
            Difference: the head says that it is further than any partition.
        """
        # one that did not begin with its floor yet has closed nothing, and others have
        head, closed = self._head, [max(each.closed, each.floor) for each in self._reached.values()]
        bounded = [
            min(last - shape_of(name)[1], line.closed)
            for name, line in head.lines.items()
            for _, last in line.bounded
        ]
        most = max(0, *closed, *bounded)
        if head.reached > most:
            said = f"head {head.sequence}: windows are closed up to {head.reached}"
            raise Difference(f"{said}, and no partition is further than {most} at its offsets")
        come = max(min(closed), *bounded, head.reached)
        if any(listed and listed[-1][1] for listed in head.rules.values()):
            return come
        # where the newest rules have no windows any more, what is over goes by the records' time
        return max(come, min(each.watermark or 0 for each in self._reached.values()))

    def _expect_windows(self, name: str, line: Line, come: int) -> int:
        """Sees that one name's windows are there that have to be; returns how many are over and are not there."""
        length, gone = shape_of(name)[0], 0
        since = max(each.since[name] for each in self._reached.values())
        whole = max(each.dropped for each in self._reached.values())
        # what is listed is there from its first one on; of what was never listed nothing is deleted
        oldest = min(line.starts or [start for other, start in self._there if other == name], default=None)
        for start, reports in self._windows(name, since):
            end, is_there = start + length, (name, start) in self._there
            is_open = end > max(line.closed, come)
            # where more windows are over than become final at once, those that wait may have been deleted
            waits = line.closed < end <= come and not is_there
            listed = oldest is not None and start >= oldest and not line.is_bounded(end) and not waits
            if listed or (is_open and start >= whole):
                self._expect_there(name, start, reports, line)
            else:
                gone += not is_open and not is_there
        return gone

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

    def _windows(self, name: str, oldest: int) -> Iterator[tuple[int, int]]:
        """Yields the windows that have reports, from a start on, and how many; O(panes log panes + windows)."""
        length, hop = shape_of(name)
        changes = Counter[int]()  # the starts of the windows that a pane is in follow each other
        for (begin, end), reports in self._reports.items():
            if (first := max(-(-(end - length) // hop) * hop, oldest)) <= begin:
                changes[first] += reports
                changes[begin // hop * hop + hop] -= reports
        reports = 0
        for at, until in pairwise(sorted(changes)):
            reports += changes[at]
            for start in range(at, until if reports else at, hop):
                yield start, reports
