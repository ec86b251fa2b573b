"""Recount of the snapshots and the newest head at their offsets.

A window's recount is the sum of its panes up to the offsets of the window's snapshot. Windows that the rules no longer
contain are also recounted. A snapshot that counts deleted records cannot be recounted.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise, product
from types import MappingProxyType
from typing import Any

import numpy as np

from worker.audit.decoding import frequencies, support
from worker.audit.errors import Difference
from worker.audit.heads import Head
from worker.audit.history import GapBounds, History
from worker.audit.latest import Latest
from worker.audit.parsing import Documents, Key
from worker.audit.parts import expect_parts, expect_segments
from worker.audit.populations import Joined, Population, expect_population
from worker.audit.records import Range, Records
from worker.audit.recount import Cells, Mark, Recount
from worker.audit.released import ReleasedRecount, Sums, Wanted
from worker.audit.released_cells import ReleasedCell
from worker.audit.snapshots import LATE, UNTIMED, Snapshot
from worker.audit.stored import Stored
from worker.audit.verdict import Compared


@dataclass
class _Count:
    """Recount of one snapshot from the partitions added so far."""

    cells: Cells = field(default_factory=Cells)  # by document; the segments are ""
    heard: Counter[Key] = field(default_factory=Counter)  # reports by document and segment
    partitions: set[int] = field(default_factory=set)
    # (partition, window-close watermark) of partitions that had not reached the window's end
    early: list[tuple[int, int]] = field(default_factory=list)
    gone: dict[int, int] = field(default_factory=dict)  # partition -> end of its deleted records
    wrong: str | None = None
    # whether a gap may have lost reports, by (narrow, wide) bounds on rules and gaps
    tainted: tuple[bool, bool] = (False, False)

    def add(self, snapshot: Snapshot, cells: Cells | Sums) -> None:
        """Adds counts of the snapshot's part of a stream."""
        for (document, segment), cell in cells.items():
            if snapshot.covers(document, segment):
                self.heard[document, segment] += cell.reports
                assert cell.state is not None  # freed only after its last window
                self.cells.add((document, ""), cell.reports, cell.state)

    @property
    def reports(self) -> int:
        """Number of reports of all documents."""
        return self.cells.reports


class Published:
    """Snapshots of a stream, recounted along with its partitions.

    Attributes:
        windows: the snapshots of windows.
        snapshots: the newest snapshot, and as many windows as memory allows. Only these are recounted.
    """

    def __init__(
        self,
        documents: Documents,
        snapshots: Sequence[Snapshot],
        head: Head | None = None,
        unknown: str | None = None,
        cells: Mapping[Key, ReleasedCell] = MappingProxyType({}),
    ) -> None:
        self._documents, self._head, self._unknown = documents, head, unknown
        self.windows = [each for each in snapshots if each.name not in UNTIMED and not each.part]
        self.parts = [each for each in snapshots if each.part]
        self._faults = [f"{each}: {each.fault}" for each in snapshots if each.fault is not None]
        self.snapshots = [each for each in snapshots if each.frequencies is not None]
        self._counts = [_Count() for _ in self.snapshots]
        self.latest = None if head is None else Latest(head, [each for each in snapshots if not each.part])
        self.released: ReleasedRecount | None = None
        if head is not None and head.released is not None:
            self.released = ReleasedRecount(head.released, cells)
            if head.progress:
                self.released.after = 0  # `late` needs every released pane

    @property
    def named(self) -> set[int]:
        """Partitions that occur in the offsets of a snapshot."""
        return {partition for each in self.snapshots for partition in each.offsets}

    def add(
        self, i: int, partition: int, counted: Recount, stored: Stored, bounds: Sequence[GapBounds], gone: int
    ) -> None:
        """Adds a partition, whose deleted records end at `gone`, to snapshot `i`."""
        snapshot, count = self.snapshots[i], self._counts[i]
        offset = snapshot.offsets[partition]
        count.partitions.add(partition)
        lost = [(begin, min(end, offset)) for begin, end in stored.gaps if begin < offset]
        own = snapshot.gaps.get(partition, [])
        if lost != own:
            if any(not any(a <= begin and end <= b for a, b in lost) for begin, end in own):
                held = f"{[list(gap) for gap in lost]} in Redis"
                count.wrong = f"gaps of partition {partition}: {[list(gap) for gap in own]} published, {held}"
            gone = max([gone, *(end for _, end in lost)])
        if gone:
            count.gone[partition] = gone
            return
        # at the offset of a readmission, the watermark may already have been the new start of the windows
        raised = any(at == offset for at, _ in stored.readmitted)
        if snapshot.final and counted.closed < snapshot.end and not (raised or self._is_bounded(snapshot)):
            count.early.append((partition, counted.closed))
        least, most = _taints(snapshot, stored, bounds, offset)
        count.tainted = count.tainted[0] or least, count.tainted[1] or most
        if snapshot.name in UNTIMED:
            count.add(snapshot, counted.total())
            return
        for pane, cells in counted.panes.items():
            if snapshot.has(pane):
                count.add(snapshot, cells)
                if snapshot.withheld is not None and self.released is not None:
                    self.released.add_pane(partition, pane, cells)

    def due(self, partition: int) -> dict[int, list[int]]:
        """Returns the indices of the snapshots at each offset of a partition."""
        due = dict[int, list[int]]()
        for i, each in enumerate(self.snapshots):
            if partition in each.offsets:
                due.setdefault(each.offsets[partition], []).append(i)
        if (offset := self.head_offset(partition)) is not None:
            due.setdefault(offset, [])
        for offset in () if self.released is None else self.released.rest_at(partition):
            due.setdefault(offset, [])
        return due

    def head_offset(self, partition: int) -> int | None:
        """Returns the newest head's offset of a partition."""
        return None if self._head is None else self._head.offsets.get(partition)

    def compare(self, partitions: Collection[int]) -> Compared:
        """Compares the snapshots with the recount and the topic's `partitions`."""
        finals = sum(each.final for each in self.windows)
        found: dict[str, Any] = dict.fromkeys(("recounted", "provisional_recounted", "parts_recounted"), 0)
        totals = Compared(finals=finals, provisional=len(self.windows) - finals, parts=len(self.parts))
        lacking, unknown, gone = dict[int, int](), 0, 0
        try:
            if self._head is not None:
                self._head.expect_increments()
            for each, count in zip(self.snapshots, self._counts, strict=True):
                _expect_possible(each, count, partitions, released=self.released is not None)
                if each.name in UNTIMED and self.released is not None and self.released.lost_later():
                    count.gone |= {p: max(end for _, end in gaps) for p, gaps in each.gaps.items()}
                if count.gone:
                    unknown += each.name not in UNTIMED
                    lacking |= {p: max(offset, lacking.get(p, 0)) for p, offset in count.gone.items()}
                elif count.partitions == each.offsets.keys():
                    self._expect_right(each, count)
                    found["parts_recounted"] += bool(each.part)
                    found["recounted"] += each.final and not each.part
                    found["provisional_recounted"] += not each.final and each.name not in UNTIMED
                    if each.name == "all" and not each.part:
                        self._expect_late(each)
                        if self.released is not None:
                            self.released.expect_cells(self._documents)
                        expect_segments(each, self._head, count.heard, self.parts)
                    elif not each.part and (each.final or each.name == LATE):
                        expect_parts(each, self._head, count.heard, self.parts)
            _expect_consistent_offsets(self.snapshots)
            if self._faults:
                raise Difference(self._faults[0])
            if self.latest is not None:
                gone = self.latest.expect_right()
        except Difference as difference:
            return replace(totals, published=str(difference), **found)
        why = self._unknown
        if lacking:
            where = " and ".join(f"before offset {lacking[p]} of partition {p}" for p in sorted(lacking))
            what = f"{unknown} window{'s' * (unknown != 1)}" if unknown else "the newest snapshot"
            why, gone = f"{what} cannot be recounted: records {where} are deleted", 0
        return replace(totals, unknown=why, gone=gone, **found)

    def _is_bounded(self, snapshot: Snapshot) -> bool:
        line = None if self._head is None else self._head.progress.get(snapshot.name)
        return line is not None and line.is_bounded(snapshot.end)

    def _is_of_former_limit(self, snapshot: Snapshot) -> bool:
        """Returns whether a limit before the present one decided a window."""
        if self._head is None or not any(self._head.fewest_new[0]):
            return False
        return self.released is None or not self.released.decided(snapshot.start, snapshot.end)

    def _expect_late(self, newest: Snapshot) -> None:
        """Compares the presence of `late` with the recount."""
        windows = self._head is not None and self._head.progress
        due = bool(self.released is not None and windows and self.released.late.reports)
        there = [each.sequence for each in self.snapshots if each.name == LATE and not each.part]
        if there != [newest.sequence] * due:
            wanted = f"snapshot {newest.sequence}" if due else "none"
            raise Difference(f"window {LATE}: published in snapshots {there}, expected in {wanted}")

    def _expect_right(self, snapshot: Snapshot, count: _Count) -> None:
        for partition, line in count.early:
            at = f"final at offset {snapshot.offsets[partition]} of partition {partition}"
            raise Difference(f"{snapshot}: {at}, where the window-close watermark is {line}")
        untimed = snapshot.name in UNTIMED
        if snapshot.withheld is not None and self._is_of_former_limit(snapshot):
            if snapshot.reports + snapshot.withheld != count.reports:
                given = f"{snapshot.reports} reports published and {snapshot.withheld} withheld"
                raise Difference(f"{snapshot}: {given}, {count.reports} recounted")
            if snapshot.withheld:
                return
        elif self.released is not None and (untimed or snapshot.withheld is not None):
            if untimed:
                shown = self.released.late if snapshot.name == LATE else self.released.all_time
            else:
                shown = self.released.window(snapshot.start, snapshot.end)
            counted, count.cells, count.heard = count.reports, Cells(), Counter()
            count.add(snapshot, shown)  # adds only the counts of its part
            withheld = None if untimed else counted - count.reports
            if snapshot.withheld != withheld:
                raise Difference(f"{snapshot}: {snapshot.withheld} reports withheld, {withheld} recounted")
        if snapshot.reports != count.reports:
            raise Difference(f"{snapshot}: {snapshot.reports} reports published, {count.reports} recounted")
        bounded = snapshot.final and self._is_bounded(snapshot)
        due = {not (taken or bounded or snapshot.uncounted) for taken in count.tainted}
        if snapshot.complete not in due:
            names = ("complete", "not complete")[:: 1 if snapshot.complete else -1]
            raise Difference("{}: published as {}, but it is {}".format(snapshot, *names))
        counted_documents = {name for (name, _), cell in count.cells.items() if cell.reports}
        if others := sorted(counted_documents - {*snapshot.documents}):
            raise Difference(f"{snapshot}: without document {others[0]}, which has reports")
        if snapshot.bodies is not None:
            self._expect_population(snapshot, count)
            return
        (document,), found = snapshot.documents, snapshot.frequencies
        cell, content = count.cells[document, ""], self._documents[document]
        assert cell.state is not None
        counts = support(content, cell.state)
        if counts is None or found is None:
            return
        expected = frequencies(content, counts, cell.reports)
        if len(expected) != len(found):
            raise Difference(f"{snapshot}: {len(found)} frequencies published, expected {len(expected)}")
        differing = np.flatnonzero(found != expected)
        if len(differing):
            v = int(differing[0])
            raise Difference(
                f"{snapshot}: frequency[{v}] is {float(found[v])} published, {float(expected[v])} recounted;"
                f" {len(differing)} of {len(expected)} differ"
            )

    def _expect_population(self, snapshot: Snapshot, count: _Count) -> None:
        assert snapshot.bodies is not None
        joined = Joined.of(snapshot.documents, self._documents)
        population = Population(
            joined,
            self._documents,
            {
                name: (cell.reports, cell.state)
                for (name, _), cell in count.cells.items()
                if cell.state is not None
            },
        )
        if not population.decoded:
            return
        retired = snapshot.retired
        if retired is None and self._head is not None and not self._head.retired:
            retired = frozenset()
        try:
            expect_population(snapshot.bodies, population, retired)
        except Difference as difference:
            raise Difference(f"{snapshot}: {difference}") from None


def _expect_consistent_offsets(snapshots: Iterable[Snapshot]) -> None:
    for before, each in pairwise(sorted(snapshots, key=lambda each: each.sequence)):
        if lacking := sorted(before.offsets.keys() - each.offsets.keys()):
            raise Difference(f"{each}: partition {lacking[0]} is missing, which {before} has")
        if each.sequence == before.sequence and each.offsets != before.offsets:
            raise Difference(f"{each}: other offsets than {before} of the same snapshot")


def _expect_possible(
    snapshot: Snapshot, count: _Count, partitions: Collection[int], *, released: bool
) -> None:
    if others := sorted(snapshot.offsets.keys() - set(partitions)):
        raise Difference(f"{snapshot}: partition {others[0]} does not exist in the topic")
    if count.wrong is not None:
        raise Difference(f"{snapshot}: {count.wrong}")
    if snapshot.reports + (snapshot.withheld or 0) < count.reports and not released:
        more = "" if not count.gone else " from the remaining records"
        raise Difference(f"{snapshot}: {snapshot.reports} reports published, {count.reports} recounted{more}")


def _taints(
    snapshot: Snapshot, stored: Stored, bounds: Sequence[GapBounds], offset: int
) -> tuple[bool, bool]:
    """Returns whether gaps may have lost reports, by (narrow, wide) bounds."""
    # A report lost to a window was not late: the window-close watermark before the gap was below the window's end. Its
    # time was below the first new highest time plus a rule's delay. A rule may be stored before it applies.
    if snapshot.name in UNTIMED:
        return bool(bounds), bool(bounds)
    holds = [(at, rule.windows.hold) for at, rule in stored.rules if rule.windows is not None]

    def taken(hold: int, of: Callable[[int | None, int | None], int | None]) -> bool:
        beside = zip(stored.gap_bounds, bounds, strict=False)
        following = ((line, of(first, found)) for (line, first), (_, found) in beside)
        return any(
            snapshot.end > line and (first is None or snapshot.start < first + hold)
            for line, first in following
        )

    least = max((hold for at, hold in holds if at < offset), default=0)
    most = max((hold for _, hold in holds), default=0)
    return taken(least, lambda _, found: found), taken(most, _later)


def _later(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else max(one, other)


class Partly:
    """One partition's part in the snapshots; `wanted` lists panes to keep.

    Later changes of `history` and `deleted` apply.
    """

    def __init__(
        self,
        published: Published,
        partition: int,
        stored: Stored,
        history: History,
        deleted: Sequence[Range],
    ) -> None:
        self._published, self._partition, self._stored = published, partition, stored
        self._history, self._deleted = history, deleted
        self._kept: Collection[str] = stored.cells.keys()
        self._due = published.due(partition)
        self._rest: dict[int, list[Key]] = {}  # offset -> segments whose rest was released there
        self._last: dict[str, int] = {}  # pane -> last offset at which it is wanted
        lengths = {limits.windows.pane for _, limits in stored.rules if limits.windows is not None}
        for offset, listed in self._due.items():
            for i, length in product(listed, lengths):
                begin, end = published.snapshots[i].start, published.snapshots[i].end
                for start in range(-(-begin // length) * length, end - length + 1, length):
                    pane = f"{start}+{length}"
                    self._last[pane] = max(offset, self._last.get(pane, 0))
        self.wanted = Wanted({*self._kept, *self._last})
        if published.released is not None:
            self._rest = published.released.rest_at(partition)
            self.wanted.after = published.released.after

    def cut(self, records: Iterable[Records], end: int) -> Iterator[Records | Mark]:
        """Yields the records up to `end`, and a `Mark` at each published offset."""
        marks = sorted(offset for offset in self._due if offset <= end)
        for read in records:
            rest = read
            while marks and len(rest.offsets) and marks[0] <= rest.offsets[-1]:
                first, rest = rest.split(marks[0])
                yield first
                yield partial(self._reach, marks.pop(0))
            yield rest
        for offset in marks:
            yield partial(self._reach, offset)

    def end(self, counted: Recount) -> None:
        """Releases the panes of snapshots beyond the counted offsets."""
        for pane in counted.panes.keys() - self._kept:
            counted.release(pane)

    def _reach(self, offset: int, counted: Recount) -> None:
        first_start, gap_bounds = self._history.at(offset, counted)
        gone = max((end for begin, end in self._deleted if begin < offset), default=0)
        self._release(offset, counted)
        for i in self._due.pop(offset):
            self._published.add(i, self._partition, counted, self._stored, gap_bounds, gone)
        latest = self._published.latest
        if latest is not None and offset == self._published.head_offset(self._partition):
            latest.add(self._partition, counted, self._stored, first_start, gone)
        if not self._due:
            self.wanted.after = math.inf
            for pane in [*counted.panes]:
                if pane not in self.wanted:
                    counted.release(pane)
        for pane in [pane for pane, last in self._last.items() if last <= offset]:
            del self._last[pane]
            if pane not in self._kept:
                self.wanted.discard(pane)
                if pane not in self.wanted:
                    counted.release(pane)

    def _release(self, offset: int, counted: Recount) -> None:
        released = self._published.released
        if released is None:
            return
        if keys := self._rest.pop(offset, ()):
            lost = sum(end - begin for begin, end in self._stored.gaps if begin < offset)
            released.add_rest(keys, counted, lost)
        if offset == self._published.head_offset(self._partition):
            released.add_decided(self._partition, counted)
