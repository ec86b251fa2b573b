"""Recount of the released part of the counts.

The head names the decided panes, and the cut at which the rest was released. Both follow from the log: a pane is
released if all partitions together have enough reports of its document. The counts of all time are those at the rest's
cut, without the panes that were open there, plus the panes released since. `late` has the counts at that cut without
the panes that were open or released there.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from worker.audit.errors import Difference
from worker.audit.hashes import State
from worker.audit.heads import Released
from worker.audit.parsing import Key
from worker.audit.recount import Cells, Recount
from worker.audit.windows import ends_of


class Wanted(set[str]):
    """Names of the panes to keep: listed panes, and panes that end later."""

    after: float = float("inf")

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (name != "" and ends_of(str(name))[1] > self.after)


@dataclass
class Sum:
    """Counts of a document."""

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
    """Recount of released panes and of the rest of each document."""

    def __init__(self, released: Released, documents: Sequence[str]) -> None:
        self.released, self._documents = released, documents
        self._rest = [Sums() for _ in released.rest]
        self._lost = [0 for _ in released.rest]
        self._panes: dict[str, Sums] = {}
        self._added = set[tuple[int, str]]()  # partitions and their panes
        self.after = min(closed for closed, _ in released.rest)  # panes that end later are kept

    def rest_at(self, partition: int) -> dict[int, list[int]]:
        """Returns the documents whose rest was released at each offset."""
        found = dict[int, list[int]]()
        for document, (_, offsets) in enumerate(self.released.rest):
            if partition in offsets:
                found.setdefault(offsets[partition], []).append(document)
        return found

    def lost_later(self) -> bool:
        """Returns whether records were lost after the rest was released.

        Raises `Difference` if the head has more lost offsets than the counts.
        """
        pairs = list(zip(self._lost, self.released.lost, strict=True))
        if any(found < published for found, published in pairs):
            raise Difference(f"head: {self.released.lost} offsets lost by document, {self._lost} in Redis")
        return any(found > published for found, published in pairs)

    def add_rest(self, document: int, counted: Recount, lost: int) -> None:
        """Adds a partition's counts and lost offsets at the cut of the rest."""
        self._lost[document] += lost
        closed, rest = self.released.rest[document][0], self._rest[document]
        self._add(rest, counted.total())
        for pane, cells in counted.panes.items():
            if ends_of(pane)[1] > closed:
                self._add(rest, cells, -1)

    def _add(self, sums: Sums, cells: Cells, sign: int = 1) -> None:
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
        inside = ((pane, *ends_of(pane)) for pane in self._panes)
        return self._released(
            Sums(), [pane for pane, first, last in inside if begin <= first and last <= end]
        )

    def all_time(self) -> Sums:
        """Returns the released counts of all time."""
        return self._rest_and(1)

    def late(self) -> Sums:
        """Returns the released counts that are in no window."""
        return self._rest_and(-1)

    def _rest_and(self, sign: int) -> Sums:
        """Adds panes released after the cut of the rest, or subtracts others."""
        total = Sums()
        for name, (closed, _), rest in zip(self._documents, self.released.rest, self._rest, strict=True):
            panes = [pane for pane in self._panes if (ends_of(pane)[1] > closed) == (sign > 0)]
            found = self._released(Sums(rest), panes, sign)
            total.update({key: one for key, one in found.items() if key[0] == name})
        return total

    def _released(self, total: Sums, panes: Collection[str], sign: int = 1) -> Sums:
        for pane in panes:
            for key, own in self._panes[pane].items():
                shown = own.enough(self.released.fewest_of(ends_of(pane)[1]))
                total.add(key, sign * shown.reports, sign * shown.state)
        return total
