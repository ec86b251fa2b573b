"""Invariants of published increments: which reports a stream with `fewest_new` may show, by logs, rules and heads."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tests.simulation.recount import Counted, Pane, Ruling, answer
from tests.support.cells import cells_of

if TYPE_CHECKING:
    from tests.simulation.truth import Truth
    from worker.counting.partition_state import PartitionState

Json = Mapping[str, Any]
Report = tuple[int, int, int]  # partition, offset, and place in the record


class Counts:
    """Counted reports of a head and of each pane."""

    def __init__(
        self, truth: Truth, head: Json, counted: Mapping[int, Counted], ruled: Mapping[int, Sequence[Ruling]]
    ) -> None:
        self._logs = {p: truth.log(head["lineage"], p) for p in counted}
        gaps, offsets = head["gaps"], head["offsets"]
        self.counted = counted
        taken = {
            p: [
                at
                for at in range(truth.starts[p], offsets[str(p)])
                if isinstance(answer(log, at, gaps.get(str(p), []), ruled[p]), list)
            ]
            for p, log in self._logs.items()
        }
        self.total = self._of(taken)
        placed = dict[Pane, dict[int, Sequence[int]]]()
        for p, one in counted.items():
            for pane, own in one.placed.items():
                placed.setdefault(pane, {})[p] = own
        self.panes = {pane: self._of(own) for pane, own in placed.items()}

    def _of(self, offsets: Mapping[int, Sequence[int]]) -> set[Report]:
        return {
            (p, at, place)
            for p, own in offsets.items()
            for at in own
            for place in range(len(self._logs[p].answers[at]))
        }

    def settled(self, closed: int) -> set[Report]:
        """Returns the reports that are in no open pane."""
        return self.total.difference(*(shown for (_, end), shown in self.panes.items() if end > closed))

    def released(self, record: Json, panes: Collection[Pane]) -> set[Report]:
        """Returns the released reports of some panes."""
        listed = ((self.panes[pane], needed(record, pane[1])) for pane in panes)
        return set[Report]().union(*(own for own, m in listed if len(own) >= m))

    def support(self, shown: set[Report], size: int) -> list[int]:
        """Returns how many of some reports have each index."""
        found = Counter(self._logs[p].answers[at][place] for p, at, place in shown)
        return [found[index] for index in range(size)]


class Increments:
    """The reports that a stream has shown since its newest head without a limit.

    `shown` has those of all time, `late` those of them that are in no window, `vectors` each published set, and `signs`
    the numbers of the vectors that contain a report, as bits. Reports that were published without a limit (`free`) are
    in no vector.
    """

    def __init__(self, truth: Truth) -> None:
        self.truth, self.world = truth, truth.world
        self.shown, self.late = set[Report](), set[Report]()
        self.free = set[Report]()
        self.counts: Counts | None = None
        self.vectors = dict[frozenset[Report], None]()
        self.signs = dict[Report, int]()
        self.least, self.lost = math.inf, False
        self._cuts = dict[str, Counts]()

    def committed(
        self, head: Json, last: Json, counts: Counts, ruled: Mapping[int, Sequence[Ruling]]
    ) -> None:
        """Takes a head; checks its record of released counts."""
        fewest = max(
            ([r.fewest for r in ruled[int(p)] if r.offset <= at][-1] for p, at in head["offsets"].items()),
            default=0,
        )
        before, self.counts = self.counts, counts
        here = {"offsets": head["offsets"], "lost": _lost(head)}
        self._cuts[json.dumps(here)] = counts
        assert ("released" in head) == (fewest > 1), f"a head with m = {fewest}"
        if fewest < 2:
            return
        record = head["released"]
        assert head["privacy_loss"]["fewest_new"] == fewest, "the m of the privacy loss"
        was = last.get("released") or self._begin(last, before if last["reports"] else None)
        self.least = min(self.least, fewest)
        gone = _is_gone(head, last)
        self.lost |= gone
        if gone:
            self.world.note("published reports were lost")
            self.late = {*self.shown}
        self._demand_decided(head, last, was, fewest, gone=gone)
        newly = [pane for pane in counts.panes if was["closed"] < pane[1] <= record["closed"]]
        self.shown |= counts.released(record, newly)
        here["closed"] = record["closed"]
        (mark,), (of,) = record["rest"], was["rest"]
        if mark == here:
            settled = counts.settled(record["closed"])
            self.late = self.late - (self.shown - settled) | (settled - self.shown)
            self.shown = settled
        assert mark == here or (mark["offsets"], mark["lost"]) == (of["offsets"], of["lost"]), (
            "the rest's cut"
        )
        if not self.lost:
            assert self.shown == self._by_head(record, mark), "what the head says is released"
        self.show(self.shown)
        if head.get("windows"):
            self.show(self.late)

    def _begin(self, last: Json, before: Counts | None) -> Json:
        """Begins from the published reports of the last head without a limit; each pane may have been shown in part."""
        self.world.note("increments begin")
        self.vectors.clear()
        self.signs.clear()
        self.least, self.lost = math.inf, False
        self.shown = {*before.total} if before else set()
        self.late, self.free = {*self.shown}, {*self.shown}
        mark = {
            "closed": 0,
            "offsets": last["offsets"] if before else {},
            "lost": _lost(last) if before else 0,
        }
        panes = self.counts.panes if before and self.counts else ()
        closed = max((end for _, end in panes), default=0)
        return {"closed": closed, "fewest": [[0, None]] * bool(closed), "rest": [mark]}

    def _demand_decided(self, head: Json, last: Json, was: Json, fewest: int, *, gone: bool) -> None:
        """Checks that panes are decided once, by the m of their head, and not before every partition closed them."""
        assert self.counts is not None
        record, done = head["released"], was["closed"]
        counted, named = self.counts.counted, last.get("floors", {})
        owns = [
            counted[int(p)].closed if p in named and int(p) in counted else 0 for p in head.get("floors", {})
        ]
        closed = min(*owns, head.get("reached", 0)) if owns else 0
        assert record["closed"] >= max(done, closed), "panes that are closed wait"
        for end in {end for _, end in self.counts.panes}:
            m = needed(record, end)
            if end <= done:
                assert m == (math.inf if gone else needed(was, end)), f"the panes to {end} are decided again"
            elif end <= closed:
                assert m in (fewest, math.inf), f"the panes to {end} are decided by another m"
            else:
                assert m == math.inf, (
                    f"the panes to {end} are decided, and some partition has not closed them"
                )

    def _by_head(self, record: Json, mark: Json) -> set[Report]:
        """Returns the reports of all time by only the log and the head."""
        assert self.counts is not None
        then = self._cuts.get(json.dumps({name: mark[name] for name in ("offsets", "lost")}))
        rest = then.settled(mark["closed"]) if then else set[Report]()
        later = [pane for pane in self.counts.panes if pane[1] > mark["closed"]]
        return rest | self.counts.released(record, later)

    def show(self, shown: set[Report]) -> None:
        """Checks that the vectors of all time and of windows tell no fewer than m reports apart."""
        vector = frozenset(shown - self.free)
        if vector and vector not in self.vectors:
            for other in (frozenset[Report](), *self.vectors):
                assert len(vector ^ other) >= self.least, f"{len(vector ^ other)} reports in a difference"
            for report in vector:
                self.signs[report] = self.signs.get(report, 0) | 1 << len(self.vectors)
            self.vectors[vector] = None
        # reports that were lost are in no new vector, as others are that were published with them
        if self.signs and not self.lost:
            least = min(Counter(self.signs.values()).values())
            assert least >= self.least, f"combinations of snapshots tell {least} reports apart"

    def window(self, head: Json, start: int, end: int) -> tuple[list[int], int]:
        """Returns the released reports of a window by index, and the number of its other reports."""
        assert self.counts is not None
        panes = [(a, b) for a, b in self.counts.panes if start <= a and b <= end]
        self.show(shown := self.counts.released(head["released"], panes))
        every = sum(len(self.counts.panes[pane]) for pane in panes)
        self.world.note("a window of released reports" if shown else "a window is withheld")
        return self.counts.support(shown, self.truth.size), every - len(shown)

    def support(self, head: Json, counted: list[int]) -> list[int]:
        """Returns how many published reports of all time have each index."""
        return (
            self.counts.support(self.shown, len(counted)) if self.counts and "released" in head else counted
        )

    def demand_late(self, head: Json, body: Json | None) -> None:
        """Checks the window of the released reports that are in no window."""
        due = "released" in head and head.get("windows") and self.late
        assert bool(due) == (body is not None), "the window of reports that are in no window"
        if body is not None and self.counts is not None:
            self.world.note("released in no window")
            self.truth.demand_frequencies(body, self.counts.support(self.late, self.truth.size))

    def waiting(self, head: Json | None, states: Mapping[int, PartitionState]) -> str:
        """Returns the reason why a quiet stream has more to release, or nothing."""
        fewest = max(state.fewest_new for state in states.values())
        closed: float = head["released"]["closed"] if head and "released" in head else 0
        if not any(state.windowing for state in states.values()):
            closed = math.inf
        counted, shown = 0, len(self.shown) if head else 0
        for state in states.values():
            for name, cell in cells_of(state).items():
                if name == "all" or int(name.split("+")[0]) + int(name.split("+")[1]) <= closed:
                    counted += cell.reports
        if counted - shown >= fewest:
            return f"{counted} are counted, {shown} released, by m = {fewest}"
        return ""


def needed(record: Json, end: int) -> float:
    """Returns the number of reports that a pane needs; infinite if it is not released."""
    steps = [m for since, m in record["fewest"] if since < end <= record["closed"]]
    return math.inf if not steps or steps[-1] is None else float(steps[-1])


def _lost(head: Json) -> int:
    return sum(end - begin for gaps in head["gaps"].values() for begin, end in gaps)


def _is_gone(head: Json, last: Json) -> bool:
    """Returns whether records that the last head counted are in a new gap."""
    return any(
        begin < last["offsets"].get(p, 0) and [begin, end] not in last["gaps"].get(p, [])
        for p, gaps in head["gaps"].items()
        for begin, end in gaps
    )
