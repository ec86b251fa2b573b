"""Recount of the released part of the counts.

The head names the decided panes, and messages the cut at which the rest of each document's segment was released. Both
follow from the log: a pane is released if all partitions together have enough reports of the document's segment. The
counts of all time are those at the rest's cut, without the panes that were open there, plus the panes released since.
`late` has the counts at that cut without the panes that were open or released there.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from worker.audit.decoding import support
from worker.audit.errors import Difference
from worker.audit.hashes import State
from worker.audit.heads import Released
from worker.audit.parsing import Documents, Key
from worker.audit.recount import Cell, Cells, Recount
from worker.audit.released_cells import ReleasedCell
from worker.audit.windows import ends_of


class Wanted(set[str]):
    """Names of the panes to keep: listed panes, and panes that end later."""

    after: float = float("inf")

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (name != "" and ends_of(str(name))[1] > self.after)


@dataclass
class Sum:
    """Counts of a document's segment."""

    reports: int
    state: State

    def enough(self, fewest: float) -> "Sum":
        """Returns the counts if they have enough reports, else zeros."""
        return self if self.reports >= fewest else Sum(0, np.zeros_like(self.state))


class Sums(dict[Key, Sum]):
    """Counts by document and segment."""

    @property
    def reports(self) -> int:
        """Number of reports."""
        return sum(one.reports for one in self.values())

    def add(self, key: Key, reports: int, state: State) -> None:
        """Adds counts, which may be negative."""
        own = self.get(key, Sum(0, np.zeros_like(state)))
        self[key] = Sum(own.reports + reports, own.state + state)


class ReleasedRecount:
    """Recount of released panes and of the rest of each document's segment."""

    def __init__(self, released: Released, cells: Mapping[Key, ReleasedCell]) -> None:
        self.released, self._cells = released, cells
        self._rest, self._lost = Sums(), dict.fromkeys(cells, 0)
        self._panes: dict[str, Sums] = {}
        self._added = set[tuple[int, str]]()  # partitions and their panes
        self.after = min((cell.closed for cell in cells.values()), default=0)  # panes that end later are kept

    def rest_at(self, partition: int) -> dict[int, list[Key]]:
        """Returns the segments whose rest was released at each offset."""
        found = dict[int, list[Key]]()
        for key, cell in self._cells.items():
            if partition in cell.offsets:
                found.setdefault(cell.offsets[partition], []).append(key)
        return found

    def lost_later(self) -> bool:
        """Returns whether records were lost after the rest was released.

        Raises `Difference` if a message has more lost offsets than the counts.
        """
        for key, cell in self._cells.items():
            if self._lost[key] < cell.lost:
                raise Difference(
                    f"released counts of {_named(key)}: {cell.lost} offsets lost, {self._lost[key]} in Redis"
                )
        return any(self._lost[key] > cell.lost for key, cell in self._cells.items())

    def add_rest(self, keys: Collection[Key], counted: Recount, lost: int) -> None:
        """Adds a partition's counts and lost offsets at the cut of some rests."""
        total = counted.total()
        for key in keys:
            self._lost[key] += lost
            if key in total:
                self._add(self._rest, {key: total[key]})
        for pane, cells in counted.panes.items():
            end = ends_of(pane)[1]
            later = {key: cells[key] for key in keys if key in cells and end > self._cells[key].closed}
            self._add(self._rest, later, -1)

    def _add(self, sums: Sums, cells: Mapping[Key, Cell], sign: int = 1) -> None:
        for key, cell in cells.items():
            assert cell.state is not None  # kept, because its pane ends after `after`
            sums.add(key, sign * cell.reports, sign * cell.state)

    def add_pane(self, partition: int, pane: str, cells: Cells) -> None:
        """Adds a partition's counts of a decided pane, which never change again."""
        if self.released.fewest_of(ends_of(pane)[1]) != float("inf") and (partition, pane) not in self._added:
            self._added.add((partition, pane))
            self._add(self._panes.setdefault(pane, Sums()), cells)

    def add_decided(self, partition: int, counted: Recount) -> None:
        """Adds a partition's panes that were decided after the cut of the rest."""
        for pane, cells in counted.panes.items():
            if ends_of(pane)[1] > self.after:
                self.add_pane(partition, pane, cells)

    def decided(self, begin: int, end: int) -> bool:
        """Returns whether the head's limit can have released a window's pane."""
        steps = [*self.released.steps, (self.released.closed, None)]
        return any(
            m is not None and begin < until and since < end for (since, m), (until, _) in pairwise(steps)
        )

    def window(self, begin: int, end: int) -> Sums:
        """Returns the released counts of a window."""
        total = Sums()
        for pane, cells in self._panes.items():
            first, last = ends_of(pane)
            if begin <= first and last <= end:
                for key, own in cells.items():
                    self._release(total, pane, key, own)
        return total

    @cached_property
    def all_time(self) -> Sums:
        """The released counts of all time; read after all partitions are added."""
        return self._rest_and(1)

    @cached_property
    def late(self) -> Sums:
        """The released counts that are in no window; likewise."""
        return self._rest_and(-1)

    def expect_cells(self, documents: Documents) -> None:
        """Raises `Difference` unless the messages have the released counts."""
        for key in sorted({*self.all_time, *self._cells}):
            found, cell = [sums.get(key) for sums in (self.all_time, self.late)], self._cells.get(key)
            held = (0, 0) if cell is None else (cell.reports, cell.late)
            due = tuple(0 if each is None else each.reports for each in found)
            if held != due:
                raise Difference(
                    f"released counts of {_named(key)}: {held} reports of all time and of late, {due} recounted"
                )
            for own, each in zip(
                () if cell is None else (cell.counts, cell.counts_late), found, strict=False
            ):
                counts = None if each is None else support(documents[key[0]], each.state)
                if counts is not None and not np.array_equal(counts, own):
                    raise Difference(f"released counts of {_named(key)}: other counts recounted")

    def _rest_and(self, sign: int) -> Sums:
        """Adds panes released after the cut of the rest, or subtracts others."""
        total = Sums(self._rest)
        closed = {key: cell.closed for key, cell in self._cells.items()}
        for pane in self._panes:
            for key, own in self._panes[pane].items():
                if (ends_of(pane)[1] > closed.get(key, 0)) == (sign > 0):
                    self._release(total, pane, key, own, sign)
        return total

    def _release(self, total: Sums, pane: str, key: Key, own: Sum, sign: int = 1) -> None:
        shown = own.enough(self.released.fewest_of(ends_of(pane)[1]))
        total.add(key, sign * shown.reports, sign * shown.state)


def _named(key: Key) -> str:
    return ":".join(key)
