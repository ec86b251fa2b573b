"""Recount of the released part of the counts.

The head names the decided panes, and the cut at which the rest was released. Both follow from the log: a pane is
released at a rate if all partitions together have enough reports of it. The counts of all time are those at the rest's
cut, without the panes that were open there, plus the panes released since. `late` has the counts at that cut without
the panes that were open or released there.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from worker.audit.errors import Difference
from worker.audit.hashes import State
from worker.audit.heads import Released
from worker.audit.recount import Cell, Recount
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


class ReleasedRecount:
    """Recount of released panes and of the rest."""

    def __init__(self, released: Released, entries: int, rates: int) -> None:
        self.released, self._shape = released, (max(1, rates), -1)
        self._rest = [self._sum(0, np.zeros(entries, np.int64)) for _ in released.rest]
        self._lost = [0 for _ in released.rest]
        self._panes: dict[str, Sum] = {}
        self._added = set[tuple[int, str]]()  # partitions and their panes
        self.after = min(closed for closed, _ in released.rest)  # panes that end later are kept

    def _sum(self, reports: int, state: State) -> Sum:
        return Sum(reports, state.reshape(self._shape))

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
        later = [cell for pane, cell in counted.panes.items() if ends_of(pane)[1] > closed]
        rest.reports += counted.reports - sum(cell.reports for cell in later)
        rest.state += counted.total().reshape(self._shape)
        for cell in later:
            assert cell.state is not None  # kept, because it ends after `after`
            rest.state -= cell.state.reshape(self._shape)

    def add_pane(self, partition: int, pane: str, cell: Cell) -> None:
        """Adds a partition's counts of a decided pane, which never change again."""
        if self.released.fewest_of(ends_of(pane)[1]) != float("inf") and (partition, pane) not in self._added:
            assert cell.state is not None
            self._added.add((partition, pane))
            total = self._panes.setdefault(pane, self._sum(0, np.zeros_like(cell.state)))
            total.reports += cell.reports
            total.state += cell.state.reshape(self._shape)

    def add_decided(self, partition: int, counted: Recount) -> None:
        """Adds a partition's panes that were decided after the cut of the rest."""
        for pane, cell in counted.panes.items():
            if ends_of(pane)[1] > self.after:
                self.add_pane(partition, pane, cell)

    def decided(self, begin: int, end: int) -> bool:
        """Returns whether the head's limit can have released a window's pane."""
        steps = [*self.released.steps, (self.released.closed, None)]
        return any(
            m is not None and begin < until and since < end for (since, m), (until, _) in pairwise(steps)
        )

    def window(self, begin: int, end: int) -> Sum:
        """Returns the released counts of a window."""
        total = self._sum(0, np.zeros_like(self._rest[0].state.ravel()))
        for pane in self._panes:
            first, last = ends_of(pane)
            if begin <= first and last <= end:
                shown = self._released(pane)
                total = Sum(total.reports + shown.reports, total.state + shown.state)
        return total

    def all_time(self) -> Sum:
        """Returns the released counts of all time."""
        return self._rest_and(1)

    def late(self) -> Sum:
        """Returns the released counts that are in no window."""
        return self._rest_and(-1)

    def _rest_and(self, sign: int) -> Sum:
        """Adds panes released after the cut of the rest, or subtracts others."""
        state, reports = np.zeros_like(self._rest[0].state), 0
        for rate, ((closed, _), rest) in enumerate(zip(self.released.rest, self._rest, strict=True)):
            panes = (pane for pane in self._panes if (ends_of(pane)[1] > closed) == (sign > 0))
            shown = [self._released(pane) for pane in panes]
            state[rate] = rest.state[rate] + sign * sum(one.state[rate] for one in shown)
            reports += rest.reports + sign * sum(one.reports for one in shown)
        return Sum(reports if len(state) == 1 else int(state.sum()), state)

    def _released(self, pane: str) -> Sum:
        return self._panes[pane].enough(self.released.fewest_of(ends_of(pane)[1]))
