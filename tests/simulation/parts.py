"""Invariants of populations, documents and segments on the snapshot topic."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tests.simulation.documents import prefixes
from tests.simulation.recount import Ruling, names_of

if TYPE_CHECKING:
    from tests.simulation.truth import Truth

Json = Mapping[str, Any]
FEWEST = 4
"""Reports from which documents and segments are published, and after as many more."""


class Parts:
    """Parts of one stream that were published so far.

    `said` has the reports of each part's newest messages of all time and of `late`. `live` has the windows on the
    topic, and `finals` all that were published since the head was last deleted. `sent` has the messages of the newest
    snapshot, and `due` its parts: name -> documents and segment.
    """

    def __init__(self, truth: Truth) -> None:
        self.truth, self.counters, self.world = truth, truth.counters, truth.world
        self.said, self.limited = dict[str, int](), False
        self.live = dict[tuple[str, int], set[str]]()
        self.finals = set[tuple[str, str, int]]()
        self.sent = dict[str, SimpleNamespace]()
        self.due = dict[str, tuple[list[str], str | None]]()

    def committed(
        self,
        head: Json,
        sent: Sequence[SimpleNamespace],
        support: Sequence[int],
        ruled: Mapping[int, Sequence[Ruling]],
    ) -> None:
        """Checks the parts of all time, and which reports the head calls hidden."""
        name, order = self.truth.deployment.stream.name, self.truth.order
        if head["sequence"] == 1:
            self.finals.clear()
        self.sent = {record.key.decode(): record for record in sent}
        _, segments = names_of(ruled.values())
        self.due = {f"{name}@{each}": ([each], None) for each in order if len(order) > 1}
        listed = sorted({prefix for declared in segments for prefix in prefixes(declared)})
        self.due |= {f"{name}:{each}": (order, each) for each in listed}
        shown = {each: n for each in listed if (n := self._reports(support, order, each)) >= FEWEST}
        if listed:
            hidden = sum(support) - sum(n for each, n in shown.items() if ":" not in each)
            assert (head["segments"], head["hidden"]) == (shown, hidden), "segments of the head"
            self.world.note("hidden reports" if hidden else "no hidden reports")
        else:
            assert "segments" not in head, "segments of the head"
        self.limited = "released" in head
        if not self.limited:
            self.said = {where: n for where, n in self.said.items() if not where.endswith("/late")}
        parts = {key.split("/")[0] for key in self.sent if "/released" not in key} - {name}
        assert parts <= self.due.keys(), (
            f"parts without a recorded document or segment: {parts - self.due.keys()}"
        )
        self.untimed("all", support)

    def untimed(self, place: str, support: Sequence[int]) -> None:
        """Checks the parts of all time or of `late`."""
        for part, (documents, segment) in self.due.items():
            self._untimed(part, place, documents, segment, support)

    def _untimed(
        self, part: str, place: str, documents: Sequence[str], segment: str | None, support: Sequence[int]
    ) -> None:
        where = f"{part}/{place}"
        n, said = self._reports(support, documents, segment), self.said.get(where, 0)
        if (record := self.sent.get(f"{where}/base")) is None:
            enough = n > said if self.limited else n >= said + FEWEST
            assert n < FEWEST or not enough, f"{where} has {n} reports, and {said} were published"
            return
        assert (record.value is None) == (n < FEWEST), f"{where} has {n} reports"
        assert place != "all" or f"{part}/head" in self.sent, f"{part} without a head"
        if record.value is not None:
            self.demand_estimate(json.loads(record.value), support, documents, segment)
            if place == "all":
                assert json.loads(self.sent[f"{part}/head"].value)["reports"] == n, "a part's head"
            self.world.note("a part" if place == "all" else "a part in no window", part)
        self.said[where] = n if record.value is not None else 0

    def _reports(self, support: Sequence[int], documents: Sequence[str], segment: str | None) -> int:
        return sum(sum(self.counters.of(support, each, segment)) for each in documents)

    def window(self, body: Json, support: Sequence[int]) -> None:
        """Checks the parts of a window: each with enough reports if it is final, and else none."""
        where = f"{body['name']}/{body['start']}/base"
        for part, (documents, segment) in self.due.items():
            record, n = self.sent.get(f"{part}/{where}"), self._reports(support, documents, segment)
            there = record is not None and record.value is not None
            assert there == (body["final"] and n >= FEWEST), f"{part}/{where}, {n} reports"
            if record is not None and there:
                said = json.loads(record.value)
                self.demand_estimate(said, support, documents, segment)
                assert said["window"] == body["window"], "a part of another window"
                assert said["complete"] == body["complete"], "a part is as complete as the whole"
                which = part, body["name"], body["start"]
                assert which not in self.finals, f"{which} was final already"
                self.finals.add(which)
                self.live.setdefault(which[1:], set()).add(part)
                self.world.note("a part of a window", part)

    def demand_live(self, live: Mapping[str, Collection[int]]) -> None:
        """Checks that parts of windows are deleted with their windows."""
        for key, record in self.sent.items():
            part, *where = key.split("/")
            if (
                record.value is None
                and len(where) == 3
                and where[0] != "released"
                and part != self.truth.deployment.stream.name
            ):
                self.live.get((where[0], int(where[1])), set()).discard(part)
        for (window, start), parts in self.live.items():
            assert not parts or start in live.get(window, ()), (
                f"{window} from {start} is gone, {parts} is not"
            )

    def demand_estimate(
        self, body: Json, support: Sequence[int], documents: Sequence[str], segment: str | None = None
    ) -> None:
        """Checks that a message has the estimate of exactly these counts.

        The share of a label is among the reports of the documents that have it. Every report has the same weight.
        """
        counts = {name: self.counters.of(support, name, segment) for name in documents}
        reports = sum(map(sum, counts.values()))
        assert body["reports"] == reports, "the reports of a message"
        labels = dict.fromkeys(label for name in documents for label in self._labels(name))
        known, shares = list[int](), list[float | None]()
        for label in labels:
            n, total = 0, 0.0
            for name, own in counts.items():
                if label in (mine := self._labels(name)):
                    oracle = self.counters.streams[name].oracle
                    p, q = float(oracle.p), float(oracle.q)
                    n += sum(own)
                    total += (own[mine.index(label)] - sum(own) * q) / (p - q)
            known.append(n)
            shares.append(total / n if n else None)
        for said, share in zip(body["frequencies"], shares, strict=True):
            same = said is share if said is None or share is None else abs(said - share) < 1e-11
            assert same, f"frequencies {body['frequencies']}, and {shares} are counted"
        if len(documents) > 1:
            self.world.note("a population")
            assert body["schema"] == 2, "the schema of a population"
            assert body.get("known", [reports] * len(known)) == known, "the reports that know a label"
            assert ("known" in body) == (known != [reports] * len(known)), "known, where all are"
            said_of = {one["fingerprint"]: one["reports"] for one in body["documents"]}
            assert said_of == {name: sum(own) for name, own in counts.items()}, "the documents of a message"

    def _labels(self, document: str) -> Sequence[object]:
        stream = self.counters.streams[document]
        return stream.labels or range(stream.oracle.domain_size)
