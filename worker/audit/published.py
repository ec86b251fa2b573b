"""What is published, recounted: each snapshot up to the offsets that it names, and the newest head by its own.

A window is the sum of the panes within it, over the offsets of its own snapshot. When it was final, no partition had to
count anything in it any more; so those that the rules no longer have are recounted, too. Where some of the records are
gone, because retention deleted them or counting began anew behind them, what is said is what cannot be recounted.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from worker.audit.decoding import frequencies, support
from worker.audit.errors import Difference
from worker.audit.hashes import State
from worker.audit.heads import Head
from worker.audit.history import Around, History
from worker.audit.latest import Latest
from worker.audit.records import Records, Stretch
from worker.audit.recount import Mark, Recount
from worker.audit.snapshots import Said
from worker.audit.stored import Stored


@dataclass
class _Count:
    """What the panes of a snapshot amount to, in the partitions that are counted so far."""

    reports: int
    state: State
    partitions: set[int] = field(default_factory=set)
    early: list[tuple[int, int]] = field(default_factory=list)
    """The partitions whose closed line had not reached its end, each with the line."""
    gone: dict[int, int] = field(default_factory=dict)
    """The partitions that lack records of it, each with the offset before which."""
    wrong: str | None = None
    tainted: tuple[bool, bool] = (False, False)
    """Whether a gap can have taken reports from it, by the least that is known of the rules, and by the most."""


@dataclass(frozen=True)
class Compared:
    """What the comparison of everything that is published came to.

    Attributes:
        finals: how many final windows were compared.
        provisional: how many that are not.
        difference: the first one, or None.
        unknown: what cannot be recounted, or None.
        gone: how many windows that are over, with reports, are not there, as far as that is known.
    """

    finals: int = 0
    provisional: int = 0
    difference: str | None = None
    unknown: str | None = None
    gone: int = 0


class Published:
    """What is published of a stream, which is counted while its partitions are.

    Args:
        document: the stream's public document.
        said: what is published.
        entries: of a state.
        head: the newest one, if there is any.
        unknown: what of it cannot be looked at, or None.

    Attributes:
        windows: those that are there.
        said: what is recounted: the newest snapshot, and of the windows as many as there is room for.
    """

    def __init__(
        self,
        document: Mapping[str, Any],
        said: Sequence[Said],
        entries: int,
        head: Head | None = None,
        unknown: str | None = None,
    ) -> None:
        self._document, self._head, self._unknown = document, head, unknown
        self.windows = [each for each in said if each.name != "all"]
        self._faults = [f"{each}: {each.fault}" for each in said if each.fault is not None]
        self.said = [each for each in said if each.frequencies is not None]
        self._counts = [_Count(0, np.zeros(entries, np.int64)) for _ in self.said]
        self._latest = None if head is None else Latest(head, said)

    def of(self, partition: int, stored: Stored, history: History, deleted: Sequence[Stretch]) -> "Partly":
        """Returns what counts it in one partition.

        Args:
            partition: its number.
            stored: what is kept of it.
            history: of its rules and gaps, as far as it is counted.
            deleted: the stretches whose records are gone, as far as it is counted.
        """
        return Partly(self, partition, stored, history, deleted)

    @property
    def named(self) -> set[int]:
        """The partitions that are named."""
        return {partition for said in self.said for partition in said.offsets}

    def add(
        self, i: int, partition: int, counted: Recount, stored: Stored, around: Sequence[Around], gone: int
    ) -> None:
        """Adds what a partition has of a snapshot, where it is counted up to the snapshot's offset.

        Args:
            i: of the snapshot.
            partition: which.
            counted: what is counted of it.
            stored: what is kept of it.
            around: of each gap so far, see `History`.
            gone: the offset before which records of it are gone; 0 where all are there.
        """
        said, count, offset = self.said[i], self._counts[i], self.said[i].offsets[partition]
        count.partitions.add(partition)
        lost = [(begin, min(end, offset)) for begin, end in stored.gaps if begin < offset]
        own = said.gaps.get(partition, [])
        if lost != own:
            if any(not any(a <= begin and end <= b for a, b in lost) for begin, end in own):
                held = f"{[list(gap) for gap in lost]} in Redis"
                count.wrong = f"gaps of partition {partition}: {[list(gap) for gap in own]} published, {held}"
            gone = max(gone, *(end for _, end in lost)) if lost else gone
        if gone:
            count.gone[partition] = gone
            return
        raised = any(
            at == offset for at, _ in stored.readmitted
        )  # the line may have been the next floor already
        if said.final and counted.closed < said.end and not (raised or self._is_bounded(said)):
            count.early.append((partition, counted.closed))
        least, most = _taints(said, stored, around, offset)
        count.tainted = count.tainted[0] or least, count.tainted[1] or most
        if said.name == "all":
            count.reports += counted.reports
            count.state += counted.total()
            return
        for pane, cell in counted.panes.items():
            if said.has(pane):
                assert cell.state is not None  # not released before its last window is counted
                count.reports += cell.reports
                count.state += cell.state

    def cut(
        self, partition: int, counted: Recount, stored: Stored, since: Mapping[str, int], gone: int
    ) -> None:
        """Takes note of a partition at the newest head's offset."""
        assert self._latest is not None
        self._latest.add(partition, counted, stored, since, gone)

    def due(self, partition: int) -> dict[int, list[int]]:
        """Returns which snapshots name which offset of a partition."""
        due = dict[int, list[int]]()
        for i, said in enumerate(self.said):
            if partition in said.offsets:
                due.setdefault(said.offsets[partition], []).append(i)
        if self._head is not None and partition in self._head.offsets:
            due.setdefault(self._head.offsets[partition], [])
        return due

    def cut_at(self, partition: int) -> int | None:
        """Returns the newest head's offset of a partition."""
        return None if self._head is None else self._head.offsets.get(partition)

    def compare(self, partitions: Collection[int]) -> Compared:
        """Compares what was published with what was counted.

        Args:
            partitions: that the topic has.
        """
        finals = provisional = gone = 0
        lacking, unknown = dict[int, int](), 0
        try:
            for said, count in zip(self.said, self._counts, strict=True):
                _expect_possible(said, count, partitions)
                if count.gone:
                    unknown += said.name != "all"
                    lacking |= {p: max(offset, lacking.get(p, 0)) for p, offset in count.gone.items()}
                elif count.partitions == said.offsets.keys():
                    self._expect_right(said, count)
                    finals += said.final
                    provisional += not said.final and said.name != "all"
            _expect_named(self.said)
            if self._faults:
                raise Difference(self._faults[0])
            if self._latest is not None:
                gone = self._latest.expect_right()
        except Difference as difference:
            return Compared(finals, provisional, str(difference))
        if not lacking:
            return Compared(finals, provisional, None, self._unknown, gone)
        where = " and ".join(f"before offset {lacking[p]} of partition {p}" for p in sorted(lacking))
        what = f"{unknown} window{'s' * (unknown != 1)}" if unknown else "the newest snapshot"
        return Compared(finals, provisional, None, f"{what} cannot be recounted: records {where} are gone")

    def _is_bounded(self, said: Said) -> bool:
        line = None if self._head is None else self._head.lines.get(said.name)
        return line is not None and line.is_bounded(said.end)

    def _expect_right(self, said: Said, count: _Count) -> None:
        """Compares a snapshot to the last bit.

        Raises:
            Difference: it is another, or it was not final yet.
        """
        for partition, line in count.early:
            at = f"final at offset {said.offsets[partition]} of partition {partition}"
            raise Difference(f"{said}: {at}, where the closed line is {line}")
        if said.reports != count.reports:
            raise Difference(f"{said}: {said.reports} reports published, {count.reports} recounted")
        bounded = said.final and self._is_bounded(said)
        due = {not (taken or bounded or said.uncounted) for taken in count.tainted}
        if said.complete not in due:
            raise Difference(
                f"{said}: published as {_whole(said.complete)}, and it is {_whole(not said.complete)}"
            )
        counts, found = support(self._document, count.state), said.frequencies
        if counts is None or found is None:
            return
        expected = frequencies(self._document, counts, count.reports)
        if len(expected) != len(found):
            raise Difference(f"{said}: {len(found)} frequencies published, {len(expected)} are due")
        if said.by_rate is not None and (said.by_rate != counts).any():
            raise Difference(
                f"{said}: {said.by_rate.tolist()} by rate as published, {counts.tolist()} recounted"
            )
        differing = np.flatnonzero(found != expected)
        if len(differing):
            v = int(differing[0])
            raise Difference(
                f"{said}: frequency[{v}] is {float(found[v])} as published, {float(expected[v])} recounted;"
                f" {len(differing)} of {len(expected)} differ"
            )


def _expect_named(said: Iterable[Said]) -> None:
    """Sees that what is of one snapshot is of the same offsets, and that each names the partitions of those before.

    Raises:
        Difference: it is not so.
    """
    for before, each in pairwise(sorted(said, key=lambda each: each.sequence)):
        if lacking := sorted(before.offsets.keys() - each.offsets.keys()):
            raise Difference(f"{each}: partition {lacking[0]} is not named, as in {before}")
        if each.sequence == before.sequence and each.offsets != before.offsets:
            raise Difference(f"{each}: other offsets than in {before}, of the same snapshot")


def _expect_possible(said: Said, count: _Count, partitions: Collection[int]) -> None:
    """Sees that a snapshot can be of this topic, even where not all of its records are there.

    Raises:
        Difference: it cannot.
    """
    if others := sorted(said.offsets.keys() - set(partitions)):
        raise Difference(f"{said}: partition {others[0]} is named, which the topic does not have")
    if count.wrong is not None:
        raise Difference(f"{said}: {count.wrong}")
    if said.reports < count.reports:
        more = "" if not count.gone else " of what remains"
        raise Difference(f"{said}: {said.reports} reports published, {count.reports} recounted{more}")


def _whole(complete: bool) -> str:
    return "complete" if complete else "not complete"


def _taints(said: Said, stored: Stored, around: Sequence[Around], offset: int) -> tuple[bool, bool]:
    """Returns whether gaps can have taken reports from a snapshot: by the least that is known of them, and the most.

    A lost report was not late, so the line before the gap had not passed the window's end; and its time was not later
    than that of what came after the gap, but for what may be delayed and out of order by one of the rules, which may
    have been recorded ahead. What came after it has to be beyond all before.
    """
    if said.name == "all":
        return bool(around), bool(around)
    holds = [(at, rule.windows.hold) for at, rule in stored.rules if rule.windows is not None]

    def taken(hold: int, of: Callable[[int | None, int | None], int | None]) -> bool:
        beside = zip(stored.around, around, strict=False)
        following = ((line, of(first, found)) for (line, first), (_, found) in beside)
        return any(
            said.end > line and (first is None or said.start < first + hold) for line, first in following
        )

    least = max((hold for at, hold in holds if at < offset), default=0)
    most = max((hold for _, hold in holds), default=0)
    return taken(least, lambda _, found: found), taken(most, _later)


def _later(one: int | None, other: int | None) -> int | None:
    """Returns the later of two times, of which none at all is later than any."""
    return None if one is None or other is None else max(one, other)


class Partly:
    """What is published of a stream in one partition: what is wanted of its recount, and until when.

    Args:
        published: of the stream.
        partition: its number.
        stored: what is kept of it.
        history: see `Published.of`.
        deleted: see `Published.of`.

    Attributes:
        wanted: the panes whose states are wanted still.
    """

    def __init__(
        self,
        published: Published,
        partition: int,
        stored: Stored,
        history: History,
        deleted: Sequence[Stretch],
    ) -> None:
        self._published, self._partition, self._stored = published, partition, stored
        self._history, self._deleted = history, deleted
        self._kept: Collection[str] = stored.cells.keys()
        self._due = published.due(partition)
        self._last: dict[str, int] = {}
        lengths = {limits.windows.pane for _, limits in stored.rules if limits.windows is not None}
        for offset, listed in self._due.items():
            for said in (published.said[i] for i in listed):
                for length in lengths:
                    for start in range(-(-said.start // length) * length, said.end - length + 1, length):
                        pane = f"{start}+{length}"
                        self._last[pane] = max(offset, self._last.get(pane, 0))
        self.wanted = {*self._kept, *self._last}

    def cut(self, records: Iterable[Records], end: int) -> Iterator[Records | Mark]:
        """Yields records up to an offset, with a mark at each one that snapshots name."""
        marks = sorted(offset for offset in self._due if offset <= end)
        for read in records:
            rest = read
            while marks and len(rest.offsets) and marks[0] <= rest.offsets[-1]:
                first, rest = rest.split(marks[0])
                yield first
                yield self._mark(marks.pop(0))
            yield rest
        for offset in marks:
            yield self._mark(offset)

    def end(self, counted: Recount) -> None:
        """Lets go of what is wanted for snapshots whose offsets are not counted yet."""
        for pane in self.wanted.difference(self._kept):
            counted.release(pane)

    def _mark(self, offset: int) -> Mark:
        def reached(counted: Recount) -> None:
            since, around = self._history.at(offset, counted)
            gone = max((end for begin, end in self._deleted if begin < offset), default=0)
            for i in self._due.pop(offset):
                self._published.add(i, self._partition, counted, self._stored, around, gone)
            if offset == self._published.cut_at(self._partition):
                self._published.cut(self._partition, counted, self._stored, since, gone)
            for pane in [pane for pane, last in self._last.items() if last <= offset]:
                del self._last[pane]
                if pane not in self._kept:
                    self.wanted.discard(pane)
                    counted.release(pane)

        return Mark(reached)
