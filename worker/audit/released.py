"""Recount of the released part of the counts.

The head names the decided panes, and the cut at which the rest was released. Both follow from the log: a pane is
released at a rate if all partitions together have enough reports of it. The counts of all time are those at the rest's
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
    """Counts by rate."""

    reports: int
    state: State  # (rates, k)

    def enough(self, fewest: float) -> "Sum":
        """Returns the counts of the rates with enough reports."""
        if len(self.state) == 1:
            return self if self.reports >= fewest else Sum(0, np.zeros_like(self.state))
        state = self.state * (self.state.sum(axis=1) >= fewest)[:, None]
        return Sum(int(state.sum()), state)


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
    """Recount of released panes and of the rest.

    The head has the cut of the rest of each document, or of the only document at each rate.
    """

    def __init__(self, released: Released, documents: Sequence[str], rates: int) -> None:
        self.released, self._shape = released, (max(1, rates), -1)
        self._documents = documents if len(documents) > 1 else ()
        self._rest = [Sums() for _ in released.rest]
        self._lost = [0 for _ in released.rest]
        self._panes: dict[str, Sums] = {}
        self._added = set[tuple[int, str]]()  # partitions and their panes
        self.after = min(closed for closed, _ in released.rest)  # panes that end later are kept

    def rest_at(self, partition: int) -> dict[int, list[int]]:
        """Returns the rates whose rest was released at each offset of a partition."""
        found = dict[int, list[int]]()
        for rate, (_, offsets) in enumerate(self.released.rest):
            if partition in offsets:
                found.setdefault(offsets[partition], []).append(rate)
        return found

    def lost_later(self) -> bool:
        """Returns whether records were lost after the rest was released.

        Raises `Difference` if the head has more lost offsets than the counts.
        """
        pairs = list(zip(self._lost, self.released.lost, strict=True))
        if any(found < published for found, published in pairs):
            raise Difference(f"head: {self.released.lost} offsets lost by rate, {self._lost} in Redis")
        return any(found > published for found, published in pairs)

    def add_rest(self, rate: int, counted: Recount, lost: int) -> None:
        """Adds a partition's counts and lost offsets at the cut of the rest."""
        self._lost[rate] += lost
        closed, rest = self.released.rest[rate][0], self._rest[rate]
        self._add(rest, counted.total())
        for pane, cells in counted.panes.items():
            if ends_of(pane)[1] > closed:
                self._add(rest, cells, -1)

    def _add(self, sums: Sums, cells: Cells, sign: int = 1) -> None:
        for key, cell in cells.items():
            assert cell.state is not None  # kept, because its pane ends after `after`
            sums.add(key, sign * cell.reports, sign * cell.state.reshape(self._shape))

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
        by_rate = list[Sums]()
        for (closed, _), rest in zip(self.released.rest, self._rest, strict=True):
            panes = [pane for pane in self._panes if (ends_of(pane)[1] > closed) == (sign > 0)]
            by_rate.append(self._released(Sums(rest), panes, sign))
        if self._documents:
            own = zip(self._documents, by_rate, strict=True)
            return Sums({key: one for name, sums in own for key, one in sums.items() if key[0] == name})
        total = by_rate[0]
        if len(by_rate) > 1:
            for key in [*total]:
                state = np.stack([sums[key].state[rate] for rate, sums in enumerate(by_rate)])
                total[key] = Sum(int(state.sum()), state)
        return total

    def _released(self, total: Sums, panes: Collection[str], sign: int = 1) -> Sums:
        for pane in panes:
            for key, own in self._panes[pane].items():
                shown = own.enough(self.released.fewest_of(ends_of(pane)[1]))
                total.add(key, sign * shown.reports, sign * shown.state)
        return total
