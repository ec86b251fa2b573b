"""Invariants of windows on the snapshot topic."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tests.simulation.recount import SECOND, Counted, Pane, Ruling, last_end, next_start, shape, starts

if TYPE_CHECKING:
    from tests.simulation.truth import Truth

_EPOCH = datetime.fromtimestamp(0, UTC)
Json = Mapping[str, Any]
Counts = Mapping[int, Counted]
NO_LINE: Json = {"closed": 0, "bounded": [], "starts": []}


class Windows:
    """Windows of one stream that were published so far.

    `finals` has all final windows, `again` those before the head was deleted, `latest` each window's newest message,
    and `live` the starts on the topic. `frozen` maps final windows to their head's offsets, `counted` partitions to the
    recount at the newest head, and `come` is the time from which windows that are over are counted.
    """

    def __init__(self, truth: Truth) -> None:
        self.truth, self.world = truth, truth.world
        self.finals: dict[tuple[str, int], Json] = {}
        self.latest: dict[tuple[str, int], Json] = {}
        self.live: dict[str, set[int]] = {}
        self.again: dict[tuple[str, int], Json] = {}
        self.frozen: dict[Pane, Mapping[str, int]] = {}
        self.counted: Counts = {}
        self.come = 0

    def begin_anew(self) -> None:
        """Starts again after the head was deleted; earlier windows stay known."""
        self.again, self.finals = self.finals | self.again, {}
        self.live, self.latest = {}, {}

    def demand_frozen(self, partition: int, counted: Counted) -> None:
        """Checks that no pane of a final window changes."""
        before = self.counted.get(partition)
        if before is None or partition in self.truth.given:
            return
        for pane, counts in counted.panes.items():
            if before.panes.get(pane) != counts:
                assert not self.is_frozen(pane, partition), (
                    f"partition {partition} counts for {pane}, which is final"
                )

    def is_frozen(self, pane: Pane, partition: int = -1) -> bool:
        """Returns whether a window with the pane is final, and the newest head has all that a partition has of it.

        A longer pane belongs to other windows. A head that follows a deleted one may be behind it.
        """
        head = self.truth.heads[-1]["offsets"] if self.truth.heads else {}
        which = str(partition)
        return any(
            start <= pane[0] and pane[1] <= end and head.get(which, 0) >= offsets.get(which, 0)
            for (start, end), offsets in self.frozen.items()
        )

    def committed(
        self,
        head: Json,
        last: Json,
        sent: Sequence[SimpleNamespace],
        counted: Counts,
        ruled: Mapping[int, Sequence[Ruling]],
    ) -> None:
        """Checks the windows of a committed snapshot, in addition to all time."""
        lines, name = head.get("windows", {}), self.truth.deployment.stream.name
        self._demand_floors(head, last)
        for partition, one in counted.items():
            self.demand_frozen(partition, one)
        self._demand_reached(head, last, counted, ruled)
        begins = "released" in head and "released" not in last
        published = list(self._take(head["snapshot"], sent, name, begins=begins))
        if not lines:
            assert not published, "windows, and the head says nothing of them"
            return
        assert lines.keys() >= last.get("windows", {}).keys(), "a line is gone"
        for window in sorted(lines):
            starts_now = {body["start"]: body for body in published if body["name"] == window}
            self._demand_line(window, head, last, counted, starts_now)
        for body in published:
            self._demand_body(body, head, counted, ruled)
        self._demand_live(head, {(body["name"], body["start"]) for body in published}, counted)
        self.truth.parts.demand_live(self.live)
        self.counted = counted
        for body in published:
            if body["final"] and not self._is_bounded(lines[body["name"]], body["end"]):
                self.frozen[body["start"], body["end"]] = head["offsets"]

    def _demand_floors(self, head: Json, last: Json) -> None:
        """Checks that admissions stay, and begin where windows were closed."""
        before, now = last.get("floors", {}), head.get("floors", {})
        highest = last.get("reached", 0)
        assert now.keys() >= before.keys(), "a partition is named no more"
        for partition, floor in now.items():
            assert floor == before.get(partition, highest), f"the floor of partition {partition}"
        if now.keys() - before.keys() and not self.truth.given and "heads" not in self.world.lossy:
            assert all(end <= highest for _, end in self.frozen), "what is admitted counts for what is final"
        for partition in sorted(now.keys() - before.keys()):
            self.world.note("named, with a floor" if now[partition] else "named", partition)

    def _demand_reached(
        self, head: Json, last: Json, counted: Counts, ruled: Mapping[int, Sequence[Ruling]]
    ) -> None:
        """Checks that the head reports how far windows are closed."""
        reached = last.get("reached", 0)
        for name, line in head.get("windows", {}).items():
            length, every = shape(name)
            since = max(c.first_start.get(name, next_start(name, c.watermark)) for c in counted.values())
            old = last.get("windows", {}).get(name, NO_LINE)["closed"]
            if line["closed"] > max(old, since - every + length):
                reached = max(reached, line["closed"])
        assert head.get("reached", 0) == reached, "how far windows are closed"
        self.come = reached
        if not any(rules[-1].names for rules in ruled.values()):
            self.come = max(reached, min((one.watermark or 0 for one in counted.values()), default=0))

    def _take(
        self, whole: str, sent: Sequence[SimpleNamespace], name: str, *, begins: bool
    ) -> Iterator[dict[str, Any]]:
        """Yields the published windows; handles tombstones as deletions."""
        retain, fresh = self.truth.deployment.retain, set[tuple[str, int]]()
        for record in sent:
            stream, *said = record.key.decode().split("/")
            if len(said) != 3 or stream != name:
                continue
            if said[2] != "base":
                assert record.value is None, "base alone is tried here"
                continue
            window, start, _ = said[0], int(said[1]), said[2]
            live = self.live.setdefault(window, set())
            if record.value is None:
                self.world.note("tombstone", window, start)
                if (
                    begins and (window, start) not in self.finals
                ):  # a part of it was published without a limit
                    self.world.note("an open window is withdrawn", window, start)
                    live.discard(start)
                    continue
                assert start in live, "what is not there is deleted"
                assert retain is not None, "what is to stay is deleted"
                assert start + shape(window)[0] + retain <= self.come, "it is deleted too early"
                assert (window, start) not in fresh, "it is deleted as it is published"
                live.discard(start)
                continue
            live.add(start)
            fresh.add((window, start))
            body = json.loads(record.value)
            headers = {key: value.decode() for key, value in record.headers}
            assert headers["parts"] == "1", "base alone is tried here"
            assert headers["snapshot"] == body["snapshot"] != whole, "which whole it is of"
            period = body["window"]
            end, final = start + shape(window)[0], bool(period["final"])
            assert (period["name"], _milli(period["start"]), _milli(period["end"])) == (window, start, end)
            assert (headers["end"], headers["final"]) == (str(end), "true" if final else "false")
            self.world.note("final" if final else "provisional", window, start)
            yield body | {"name": window, "start": start, "end": end, "final": final}

    def _demand_line(
        self, window: str, head: Json, last: Json, counted: Counts, published: Mapping[int, Json]
    ) -> None:
        """Checks that window progress passes only windows that every partition closed."""
        line, old = head["windows"][window], last.get("windows", {}).get(window, NO_LINE)
        length, every = shape(window)
        assert line["closed"] >= old["closed"], f"the line of {window} goes back"
        assert line["bounded"][: len(old["bounded"])] == old["bounded"] or self._goes_on(line, old)
        if not any(window in one.first_start for one in counted.values()):
            assert not published, f"{window} is published, and nobody counts it"
            assert (line["closed"], line["bounded"]) == (old["closed"], old["bounded"])
            return
        since = max(c.first_start.get(window, next_start(window, c.watermark)) for c in counted.values())
        begin = max(old["closed"], since - every + length)
        named = last.get("floors", {})
        own = {p: self._own(window, counted.get(p), str(p) in named) for p in map(int, head["floors"])}
        passed = max(begin, last_end(window, min(own.values())))
        if line["closed"] > passed:
            self.world.note("bounded", window, line)
            assert self._is_bounded(line, passed + every), "it passes what some partition has not closed"
            assert line["bounded"][-1][1] == line["closed"] + every
            holding = [p for p, closed in own.items() if closed < line["closed"]]
            self.truth.demand_bound(head, counted, holding)
        else:
            assert line["bounded"] == old["bounded"] or line["closed"] > begin, (
                "bounded, and nothing is passed"
            )
        if not all(window in one.first_start for one in counted.values()):
            assert not published, f"{window} is published, and some partition does not count it"
            return
        found = {s for one in counted.values() for pane in one.panes for s in starts(window, pane)}
        due = {s for s in found if s >= since and begin < s + length <= line["closed"]}
        if "released" in head:
            assert all(start + length <= head["released"]["closed"] for start in due), (
                "a pane of it is not decided"
            )
            due = {start for start in due if any(self._released(head, start, start + length)[0])}
            assert all(body["final"] for body in published.values()), (
                "an open window, though increments are limited"
            )
        finals = {start for start, body in published.items() if body["final"]}
        if "heads" in self.world.lossy:  # some panes are evicted already
            assert finals <= due, f"{window}: what is final at {line['closed']}, after {begin}"
            due = finals
        assert due == finals, f"{window}: what is final at {line['closed']}, after {begin}"
        assert all(since <= start and start + length > begin for start in published), "a window of before"
        for start, body in published.items():
            assert body["final"] == (start + length <= line["closed"])

    @staticmethod
    def _own(window: str, counted: Counted | None, named: bool) -> int:
        """Returns how far one partition has closed such windows."""
        return counted.closed if counted is not None and named and window in counted.first_start else 0

    def _goes_on(self, line: Json, old: Json) -> bool:
        """Returns whether the last bounded range was extended."""
        n = len(old["bounded"])
        *same, (begin, _) = old["bounded"]
        return bool(
            line["bounded"][: n - 1] == same
            and line["bounded"][n - 1][0] == begin
            and line["bounded"][n - 1][1] > old["bounded"][-1][1]
        )

    @staticmethod
    def _is_bounded(line: Json, end: int) -> bool:
        return any(a <= end < b for a, b in line["bounded"])

    def _demand_body(
        self, body: Json, head: Json, counted: Counts, ruled: Mapping[int, Sequence[Ruling]]
    ) -> None:
        """Checks that a published window equals its panes; it is final once."""
        which, start, end = (body["name"], body["start"]), body["start"], body["end"]
        assert which not in self.finals, f"{which} was final already"
        assert (body["sequence"], body["offsets"]) == (head["sequence"], head["offsets"])
        if "released" in head:
            support, withheld = self._released(head, start, end)
        else:
            parts = [one.window(start, end) for one in counted.values()]
            support, withheld = [sum(column) for column in zip(*parts, strict=True)], None
        self.truth.demand_frequencies(body, support)
        self.truth.parts.window(body, support)
        assert body.get("withheld") == withheld, f"the reports that are withheld from {which}"
        line = head["windows"][body["name"]]
        whole = not head["uncounted"] and not self._is_bounded(line, end)
        whole = whole and not any(tainted(counted[p], ruled[p], start, end) for p in counted)
        assert body["complete"] == whole, f"whether {which} is complete: {whole}"
        if not whole:
            self.world.note("a window is not complete", *which)
        self.latest[which] = body
        if body["final"]:
            self.finals[which] = body
            if which in self.again and self.is_frozen((start, end)) and not self.truth.given:
                assert body["frequencies"] == self.again[which]["frequencies"], f"{which} was final otherwise"

    def _released(self, head: Json, start: int, end: int) -> tuple[list[int], int]:
        """Returns the released reports of a window by index, and the number of its other reports."""
        assert self.truth.increments is not None
        return self.truth.increments.window(head, start, end)

    def _demand_live(self, head: Json, fresh: Collection[tuple[str, int]], counted: Counts) -> None:
        """Checks that the head lists the live windows, and no expired ones."""
        retain = self.truth.deployment.retain
        for window, line in head["windows"].items():
            live = self.live.get(window, set())
            if "released" in head and all(window in one.first_start for one in counted.values()):
                since = max(one.first_start[window] for one in counted.values())
                stale = {(window, start) for start in live if start >= since} - (
                    self.finals | self.again
                ).keys()
                assert not stale, f"{stale} were published in part"
            assert line["starts"] == ([] if retain is None else sorted(live)), f"what is live of {window}"
            if retain is not None and head["reports"]:
                length = shape(window)[0]
                over = [s for s in live if s + length + retain <= self.come and (window, s) not in fresh]
                assert not over, "what is too old is there"

    def unsaid(self, head: Json, states: Mapping[int, Any]) -> str:
        """Returns the windows missing on the topic in a quiet stream.

        Args:
            head: the newest one.
            states: stored state of each partition.
        """
        names = [{*state.windows.first_start} for state in states.values()]
        lines, floors = head.get("windows", {}), head.get("floors", {})
        if not any(state.windowing for state in states.values()):
            return ""
        if missing := {str(p) for p in states} - floors.keys():
            return f"partitions {missing} are not named"
        for p, state in states.items():
            open_from = [
                max(since, last_end(name, lines[name]["closed"]) + shape(name)[1] - shape(name)[0])
                if name in lines
                else since
                for name, since in state.windows.first_start.items()
            ]
            line = min(state.windows.closed, min(open_from, default=0))
            if any(pane.end <= line for pane in state.panes):
                return f"partition {p} keeps panes that no window needs"
        for window in sorted(set.intersection(*names)):
            length, line = shape(window)[0], lines.get(window, NO_LINE)["closed"]
            if line < (due := last_end(window, min(state.windows.closed for state in states.values()))):
                return f"the line of {window} is {line}, and could be {due}"
            since = max(state.windows.first_start[window] for state in states.values())
            found = {s for one in self.counted.values() for pane in one.panes for s in starts(window, pane)}
            for start in sorted(
                s for s in found if s >= since and s + length > line and "released" not in head
            ):
                parts = [one.window(start, start + length) for one in self.counted.values()]
                said = self.latest.get((window, start), {}).get("reports")
                if said != sum(map(sum, parts)):
                    return f"of {window} from {start} it says {said}, and there are {parts}"
        return ""


def tainted(counted: Counted, ruled: Sequence[Ruling], start: int, end: int) -> bool:
    """Returns whether a gap can have had reports of a window."""
    hold = max((rule.hold for rule in ruled if rule.names), default=0)
    return any(line < end and (first is None or start < first + hold) for line, first in counted.gap_bounds)


def _milli(date: str) -> int:
    return round((datetime.fromisoformat(date) - _EPOCH).total_seconds() * SECOND)
