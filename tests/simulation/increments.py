"""Invariants of published increments: which reports a stream with `fewest_new` may show, by logs, rules and heads.

Each document's segment has its own increments. A report's counter shows its document and segment.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ldp.snapshot import chunks
from tests.simulation.recount import Counted, Pane, Ruling, answer, names_of, of_head

if TYPE_CHECKING:
    from tests.simulation.truth import Truth
    from worker.counting.partition_state import PartitionState

Json = Mapping[str, Any]
Report = tuple[int, int, int]  # partition, offset, and place in the record
Cell = tuple[str, str]  # document and segment
NEVER: Json = {"closed": 0, "offsets": {}, "lost": 0}
"""The release of a rest that was never released."""


class Counts:
    """Counted reports of a head and of each pane."""

    def __init__(
        self, truth: Truth, head: Json, counted: Mapping[int, Counted], ruled: Mapping[int, Sequence[Ruling]]
    ) -> None:
        logs = {p: truth.log(head["lineage"], p) for p in counted}
        gaps, offsets = head["gaps"], head["offsets"]
        self.counted = counted
        places = truth.counters.places.items()
        self._cells = [key for key, (_, n) in sorted(places, key=lambda place: place[1]) for _ in range(n)]
        former = truth.increments.counts if truth.increments else None
        self._answers = dict[tuple[int, int], list[int]]()
        for p, log in logs.items():
            for at in range(truth.starts[p], offsets[str(p)]):
                if isinstance(found := answer(log, at, gaps.get(str(p), []), ruled[p]), list):
                    self._answers[p, at] = found
        self.total = self._of(self._answers)
        if former:  # records may have been lost since
            self._answers = former._answers | self._answers
        self.panes = dict[Pane, set[Report]]()
        for p, one in counted.items():
            for pane, own in one.placed.items():
                self.panes.setdefault(pane, set()).update(self._of((p, at) for at in own))

    def _of(self, records: Iterable[tuple[int, int]]) -> set[Report]:
        return {(p, at, place) for p, at in records for place in range(len(self._answers[p, at]))}

    def settled(self, closed: int) -> set[Report]:
        """Returns the reports that are in no open pane."""
        return self.total.difference(*(shown for (_, end), shown in self.panes.items() if end > closed))

    def released(self, record: Json, panes: Collection[Pane]) -> set[Report]:
        """Returns the released reports of some panes."""
        listed = (
            (own, needed(record, pane[1])) for pane in panes for own in self.apart(self.panes[pane]).values()
        )
        return set[Report]().union(*(own for own, m in listed if len(own) >= m))

    def apart(self, shown: Collection[Report]) -> dict[Cell, set[Report]]:
        """Returns some reports by document and segment."""
        found = dict[Cell, set[Report]]()
        for p, at, place in shown:
            cell = self._cells[self._answers[p, at][place]]
            found.setdefault(cell, set()).add((p, at, place))
        return found

    def support(self, shown: set[Report], size: int) -> list[int]:
        """Returns how many of some reports have each index."""
        found = Counter(self._answers[p, at][place] for p, at, place in shown)
        return [found[index] for index in range(size)]


class Increments:
    """The reports that a stream has shown since its newest head without a limit.

    `shown` has those of all time, `late` those of them that are in no window, `vectors` each published set, and `signs`
    the numbers of the vectors that contain a report, as bits. Reports that were published without a limit (`free`) are
    in no vector. `marks` has the newest published release of each rest.
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
        self.marks = dict[Cell, Json]()
        self.told = dict[Cell, tuple[int, int]]()  # newest published numbers of all time and of `late`

    def committed(
        self,
        head: Json,
        last: Json,
        counts: Counts,
        ruled: Mapping[int, Sequence[Ruling]],
        sent: Mapping[str, SimpleNamespace],
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
        was_marks = self.marks
        self.marks = self.marks | self._marks_of(sent)
        if fewest < 2:
            assert not any(mark != NEVER for mark in self.marks.values()), "released counts without a limit"
            return
        record = head["released"]
        assert head["privacy_loss"]["fewest_new"] == fewest, "the m of the privacy loss"
        if "released" in last:
            was = last["released"]
            self._note_changes(head, last, ruled)
        else:
            was, was_marks = self._begin(head, last, before if last["reports"] else None)
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
        settled = counts.apart(counts.settled(record["closed"]))
        shown, late = counts.apart(self.shown), counts.apart(self.late)
        for cell in {*settled, *shown}:
            mark, of, own = self.marks.get(cell, NEVER), was_marks.get(cell, NEVER), settled.get(cell, set())
            assert mark in (here, of), f"the rest's cut of {cell}"
            if mark == here:
                late[cell] = late.get(cell, set()) - (shown.get(cell, set()) - own) | (
                    own - shown.get(cell, set())
                )
                shown[cell] = own
            if not self.lost:
                assert shown.get(cell, set()) == self._by_head(record, mark, cell), (
                    f"what is released of {cell}"
                )
        self.shown = set[Report]().union(*shown.values())
        self.late = set[Report]().union(*late.values())
        for one in (shown, late) if head.get("windows") else (shown,):
            self.show(set[Report]().union(*one.values()))
            for own in one.values():
                self.show(own)
        self._demand_records(shown, late, sent)

    def _note_changes(self, head: Json, last: Json, ruled: Mapping[int, Sequence[Ruling]]) -> None:
        """Notes the changes of rules under a limit."""
        if head["privacy_loss"]["fewest_new"] != last["privacy_loss"]["fewest_new"]:
            self.world.note("another limit")
        before = names_of(of_head(last, p) for p in last["rules"])
        for kind, old, new in zip(("document", "segment"), before, names_of(ruled.values()), strict=True):
            if new.keys() - old.keys():
                self.world.note(f"a {kind} more under a limit")
            for name in old.keys() & new.keys():
                if old[name][1] != new[name][1]:
                    what = "retired" if new[name][1] else "accepted again"
                    self.world.note(f"a {kind} is {what} under a limit")

    def _marks_of(self, sent: Mapping[str, SimpleNamespace]) -> dict[Cell, Json]:
        """Returns the release of each rest that a transaction has a message of."""
        found = dict[Cell, Json]()
        for key, record in sent.items():
            if key.endswith("/released"):
                document, _, segment = key.split("@")[1].removesuffix("/released").partition(":")
                found[document, segment] = json.loads(record.value)["rest"] if record.value else NEVER
        return found

    def _demand_records(
        self,
        shown: Mapping[Cell, set[Report]],
        late: Mapping[Cell, set[Report]],
        sent: Mapping[str, SimpleNamespace],
    ) -> None:
        """Checks the messages that the next publisher continues from."""
        assert self.counts is not None
        name = self.truth.deployment.stream.name
        for (document, segment), (at, n) in self.truth.counters.places.items():
            key, cell = f"{name}@{document}:{segment}/released", (document, segment)
            now = len(shown.get(cell, ())), len(late.get(cell, ()))
            if (record := sent.get(key)) is not None:
                if record.value:
                    numbers = json.loads(record.value)["reports"]
                    assert (numbers["all"], numbers["late"]) == now, f"the released reports of {cell}"
                    self.told[cell] = now
                    self.world.note("released counts of a segment" if segment else "released counts")
                else:
                    self.told.pop(cell, None)
                for what, own in (("all", shown), ("late", late)) if record.value else ():
                    found = sent[f"{key}/{what}/0"]
                    kind = dict(found.headers)["content-type"].decode()
                    counts = self.counts.support(own.get(cell, set()), self.truth.size)[at : at + n]
                    assert chunks.read(kind, found.value).tolist() == counts, f"the released counts of {cell}"
            assert self.told.get(cell, (0, 0)) == now, (
                f"{cell} has {now}, and {self.told.get(cell)} is on the topic"
            )

    def _begin(self, head: Json, last: Json, before: Counts | None) -> tuple[Json, dict[Cell, Json]]:
        """Begins from the published reports of the last head without a limit; each pane may have been shown in part."""
        self.world.note("increments begin")
        self.vectors.clear()
        self.signs.clear()
        self.told.clear()
        self.least, self.lost = math.inf, False
        self.shown, self.free = {*before.total} if before else set(), {*before.total} if before else set()
        cut = last
        if before and self.counts and self._is_parted(last):
            self.world.note("increments begin with several documents or segments")
            cut, now = head, self.counts.apart(self.counts.total)
            said = {one["fingerprint"]: one["reports"] for one in last["documents"]}
            published = {cell: own for cell, own in now.items() if said.get(cell[0])}
            self.shown = set[Report]().union(*published.values())
        self.late = {*self.shown}
        panes = self.counts.panes if self.shown and self.counts else ()
        closed = max((end for _, end in panes), default=0)
        mark = {"closed": closed, "offsets": cut["offsets"], "lost": _lost(cut)}
        cells = self.counts.apart(self.shown) if self.counts else ()
        return {"closed": closed, "fewest": [[0, None]] * bool(closed)}, dict.fromkeys(cells, mark)

    def _is_parted(self, head: Json) -> bool:
        """Returns whether the messages of a head do not show the counts of each document and segment."""
        streams = self.truth.counters.streams
        names = [one["fingerprint"] for one in head["documents"]]
        return len(names) > 1 or streams[names[0]].segment is not None

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

    def _by_head(self, record: Json, mark: Json, cell: Cell) -> set[Report]:
        """Returns the reports of all time of a segment by only the log, the head and the segment's message."""
        assert self.counts is not None
        then = self._cuts.get(json.dumps({name: mark[name] for name in ("offsets", "lost")}))
        rest = then.apart(then.settled(mark["closed"])).get(cell, set()) if then else set[Report]()
        later = [pane for pane in self.counts.panes if pane[1] > mark["closed"]]
        return rest | self.counts.apart(self.counts.released(record, later)).get(cell, set())

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
        for own in self.counts.apart(shown).values():
            self.show(own)
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
            support = self.counts.support(self.late, self.truth.size)
            self.truth.demand_frequencies(body, support)
            self.truth.parts.untimed("late", support)

    def begins_later(self, head: Json | None, states: Mapping[int, PartitionState]) -> bool:
        """Returns whether a limit waits: a document has a few new reports, or new ones that name segments."""
        if not head or not head["reports"] or "released" in head or not self._is_parted(head):
            return False
        fewest, counted = max(state.fewest_new for state in states.values()), Counter[str]()
        for state in states.values():
            for key, cells in state.cells.items():
                counted[key.fingerprint] += sum(cell.reports for cell in cells.values())
        lost = _lost({"gaps": {str(p): state.gaps for p, state in states.items()}}) - _lost(head)
        for one in head["documents"]:
            new, stream = (
                counted[one["fingerprint"]] - one["reports"],
                self.truth.counters.streams[one["fingerprint"]],
            )
            if one["reports"] and (new or lost) and (new - lost < fewest or stream.segment):
                self.world.note("a limit waits")
                return True
        return False

    def waiting(self, head: Json | None, states: Mapping[int, PartitionState]) -> str:
        """Returns the reason why a quiet stream has more to release, or nothing."""
        fewest = max(state.fewest_new for state in states.values())
        closed: float = head["released"]["closed"] if head and "released" in head else 0
        if not any(state.windowing for state in states.values()):
            closed = math.inf
        counted = Counter[Cell]()
        for state in states.values():
            for key, cells in state.cells.items():
                for segment, held in cells.items():
                    if key.pane is None or key.pane.end <= closed:
                        counted[key.fingerprint, segment] += held.reports
        apart = self.counts.apart(self.shown) if head and self.counts else {}
        shown = {cell: len(own) for cell, own in apart.items()}
        for cell, n in counted.items():
            if n - shown.get(cell, 0) >= fewest:
                return f"{n} are counted of {cell}, {shown.get(cell, 0)} released, by m = {fewest}"
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
