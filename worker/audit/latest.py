"""Comparison of the newest head with the recounted partitions."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Set
from dataclasses import dataclass
from itertools import pairwise

from worker.audit.errors import Difference
from worker.audit.heads import Closed, Head
from worker.audit.recount import Recount
from worker.audit.snapshots import UNTIMED, Snapshot
from worker.audit.stored import Stored
from worker.audit.windows import shape_of


@dataclass(frozen=True)
class _Reached:
    closed: int
    admitted_from: int  # start of the partition's windows according to the head
    watermark: int | None
    first_start: Mapping[str, int]  # by window
    names: Set[str]  # windows of the partition's rule when the head was published
    evicted_to: int  # windows that begin earlier may no longer be published


class Latest:
    """Comparison of the newest head and its windows with a recount."""

    def __init__(self, head: Head, snapshots: Collection[Snapshot]) -> None:
        self._head = head
        self._there = {(each.name, each.start): each for each in snapshots if each.name not in UNTIMED}
        self._alone = not any(each.name == "all" for each in snapshots)
        self._reached: dict[int, _Reached] = {}
        self._reports = Counter[tuple[int, int]]()
        self._lossy = False
        self._limited = any(head.fewest_new[0])

    def add(
        self, partition: int, counted: Recount, stored: Stored, first_start: Mapping[str, int], gone: int
    ) -> None:
        """Adds a partition that is recounted up to the head's offset."""
        self._lossy |= bool(gone or stored.gaps or stored.readmitted)
        self._reached[partition] = _Reached(
            counted.closed,
            self._head.floors.get(partition, 0),
            counted.watermark,
            first_start,
            self._names(partition, stored),
            stored.evicted_to,
        )
        self._reports += counted.heard

    def _names(self, partition: int, stored: Stored) -> Set[str]:
        offset = self._head.offsets[partition]
        if begun := [names for at, names in self._head.rules.get(partition, ()) if at <= offset]:
            return begun[-1]
        # a rule that begins at the head's offset may be newer than the head
        windows = next((limits.windows for at, limits in reversed(stored.rules) if at < offset), None)
        return set() if windows is None else {*windows.shapes}

    def expect_right(self) -> int:
        """Compares head and topic; returns the number of missing closed windows.

        Skips the check if records are lost, a partition is behind the head, or the head has no snapshot. An open window
        must be on the topic. Windows that are older than every window on the topic may have been deleted.
        """
        number = self._head.sequence
        if self._alone and self._head.reports:
            raise Difference(
                f"head {number}: {self._head.reports} reports, but its snapshot is not on the topic"
            )
        if self._alone or self._lossy or not self._reached:
            return 0
        if self._reached.keys() != self._head.offsets.keys():
            return 0
        come, gone = self._come(), 0
        if (released := self._head.released) is not None:
            # the number of reports of each document and segment of a pane is not known here
            several = len(self._head.documents) > 1 or self._head.declared
            enough = {p: n for p, n in self._reports.items() if not several and n >= released.fewest_of(p[1])}
            self._reports = Counter(enough)
        names = set[str].intersection(*({*each.names} for each in self._reached.values()))
        if lacking := sorted(names - self._head.progress.keys()):
            raise Difference(f"head {number}: lacks windows {lacking[0]!r}, which are counted")
        for name, line in self._head.progress.items():
            self._expect_progress(name, line)
            if name in names and all(name in each.first_start for each in self._reached.values()):
                gone += self._expect_windows(name, line, come)
        return gone

    def _come(self) -> int:
        """Returns the latest time up to which windows may be closed or deleted."""
        # a partition without records has closed no window
        head, closed = self._head, [max(each.closed, each.admitted_from) for each in self._reached.values()]
        bounded = [
            min(last - shape_of(name)[1], line.closed)
            for name, line in head.progress.items()
            for _, last in line.bounded
        ]
        most = max(0, *closed, *bounded)
        if head.reached > most:
            raise Difference(
                f"head {head.sequence}: windows are closed up to {head.reached}, but the partitions only up to"
                f" {most} at its offsets"
            )
        come = max(min(closed), *bounded, head.reached)
        if any(listed and listed[-1][1] for listed in head.rules.values()):
            return come
        # if the newest rules have no windows, timestamps close the old windows
        return max(come, min(each.watermark or 0 for each in self._reached.values()))

    def _expect_windows(self, name: str, line: Closed, come: int) -> int:
        """Compares the windows `name`; returns how many closed ones are missing."""
        length, gone = shape_of(name)[0], 0
        begin = max(each.first_start[name] for each in self._reached.values())
        whole = max(each.evicted_to for each in self._reached.values())
        # the topic has every window that starts at or after the oldest listed one, or the oldest one without `retain`
        oldest = min(line.starts or [start for other, start in self._there if other == name], default=None)
        for start, reports in self._nonempty_windows(name, begin):
            end, is_there = start + length, (name, start) in self._there
            if self._head.released is not None and end > line.closed:
                continue  # only final windows are published
            is_open = end > max(line.closed, come)
            # a closed window that is not yet final may have been deleted
            waits = line.closed < end <= come and not is_there
            # a limit that was in force before can have withheld a final window
            withheld = self._limited and end <= line.closed and not is_there
            listed = oldest is not None and start >= oldest and not line.is_bounded(end) and not waits
            listed &= not withheld or self._head.released is not None
            if listed or (is_open and start >= whole):
                self._expect_there(name, start, reports, line)
            else:
                gone += not is_open and not is_there
        return gone

    def _expect_progress(self, name: str, line: Closed) -> None:
        length, hop = shape_of(name)
        closed = min(each.closed for each in self._reached.values())
        most = [(closed - length) // hop * hop + length, *(last - hop for _, last in line.bounded)]
        begin = 0
        for each in self._reached.values():
            after = 0 if each.watermark is None else each.watermark - each.watermark % hop + hop
            begin = max(begin, each.first_start.get(name, after))
        if line.closed > max(0, *most, begin - hop + length):
            raise Difference(
                f"head {self._head.sequence}: windows {name!r} are closed up to {line.closed}, but the partitions only"
                f" up to {closed} at its offsets"
            )

    def _expect_there(self, name: str, start: int, reports: int, line: Closed) -> None:
        window, number = self._there.get((name, start)), self._head.sequence
        if window is None:
            raise Difference(
                f"window {name}/{start}: not on the topic, but has {reports} reports by snapshot {number}"
            )
        withheld = 0 if self._head.released is not None else window.withheld or 0
        if window.reports + withheld != reports:
            raise Difference(
                f"window {name}/{start}: {window.reports} reports published in snapshot {window.sequence},"
                f" but {reports} by snapshot {number}"
            )
        if not window.final and window.end <= line.closed:
            raise Difference(f"window {name}/{start}: provisional, but head {number} has closed it")

    def _nonempty_windows(self, name: str, oldest: int) -> Iterator[tuple[int, int]]:
        length, hop = shape_of(name)
        changes = Counter[int]()  # start -> reports added from it on; O(panes) for any number of windows
        for (begin, end), reports in self._reports.items():
            if (first := max(-(-(end - length) // hop) * hop, oldest)) <= begin:
                changes[first] += reports
                changes[begin // hop * hop + hop] -= reports
        reports = 0
        for at, until in pairwise(sorted(changes)):
            reports += changes[at]
            for start in range(at, until if reports else at, hop):
                yield start, reports
