"""Invariants of the stored, held and published state, by a recount."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import ldp
from tests.simulation.broker import Partition
from tests.simulation.configurations import Configured
from tests.simulation.documents import Counters
from tests.simulation.increments import Counts, Increments
from tests.simulation.parts import Parts
from tests.simulation.recount import (
    Counted,
    Pane,
    Recounts,
    Ruling,
    answer,
    names_of,
    of_head,
    of_state,
    shape,
    statuses,
)
from tests.simulation.windows import NO_LINE, Json, Windows
from worker.counting import layout
from worker.counting.partition_state import PartitionState
from worker.counting.ports import COUNTED, StateLost

if TYPE_CHECKING:
    from tests.simulation.deployment import Deployment


@lru_cache
def lineage_of(said: str) -> Mapping[str, str]:
    """Reads a lineage."""
    read: Mapping[str, str] = json.loads(said)
    return read


class Truth:
    """The invariants of one deployment."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment, self.world = deployment, deployment.world
        self.counters = Counters(deployment.pool)
        self.parts = Parts(self)
        self.order: list[str] = []
        """The documents of the newest head, in order."""
        self.starts: dict[int, int] = {}
        self.owners: dict[tuple[bytes, bytes], set[Any]] = {}  # more than one only where the store went back
        self.dead_letters: set[tuple[int, int]] = set()
        self.left_out: set[tuple[int, int]] = set()
        self.unreadable: dict[tuple[int, int], tuple[int, int]] = {}
        self.flushed: set[int] = set()
        self.stored: dict[int, int] = {}
        self.imported: dict[int, int] = {}
        self.heads: list[Json] = []
        self.deleted = self.blind = False
        """Whether the head is deleted; and whether a partition was then given up, so that its admission is
        unknown."""
        self.given: set[int] = (
            set()
        )  # their lost counts were given up, and final windows may have had some of them
        self.windows = Windows(self)
        self.full: set[tuple[int, int]] = set()  # (partition, offset) without capacity for another pane
        self.stood: dict[
            tuple[int, int | None], float
        ] = {}  # (partition, watermark) -> when it was stored first
        self.floors: dict[int, int] = {}
        self.size = self.counters.size
        self._recounts = Recounts(self.size)
        limited = any(configured.limits.fewest_new > 1 for configured in deployment.configured)
        self.increments = Increments(self) if limited else None
        self._before: dict[int, PartitionState] = {}
        self._loaded: dict[int, tuple[object, Mapping[bytes, bytes], PartitionState]] = {}

    def recount(
        self,
        lineage: Mapping[str, str],
        partition: int,
        start: int,
        offset: int,
        gaps: Collection[Sequence[int]],
        ruled: tuple[Ruling, ...],
        floor: int | None,
    ) -> Counted:
        """Counts [start, offset) without the gaps, by the recorded rules."""
        log, reports = self.log(lineage, partition), self.deployment.reports
        # after the topic was recreated during a claim, the gap belongs to the new one
        gone = log.cut_to is not None or lineage["topic_id"] != reports.topic_id
        assert gone or offset <= max(start, log.stable), "what is not decided was counted"
        return self._recounts.at(log, start, offset, list(gaps), ruled, floor or 0)

    def log(self, lineage: Mapping[str, str], partition: int) -> Partition:
        """Returns the log that counts are of, which may be there no longer."""
        logs = self.deployment.reports.incarnations[lineage["topic_id"]]
        # a worker that has not noticed the recreated topic claims its records for the old one: they are
        # never counted so
        return logs[partition] if partition < len(logs) else Partition()

    def compare(self, lineage: Mapping[str, str], partition: int, state: PartitionState) -> None:
        """Compares a state with the recount."""
        windows = state.windows
        if self.starts.setdefault(partition, state.start) != state.start:
            assert self.world.lossy or self.deployment.expired, "counting began elsewhere before"
            self.starts[partition] = state.start
        if self.blind:
            return
        self.floors[partition] = max(self.floors.get(partition, 0), windows.admitted_from or 0)
        ruled = of_state(state.rules)
        self._compare_names(state, ruled[-1])
        counted = self.recount(
            lineage, partition, state.start, state.offset, state.gaps, ruled, windows.admitted_from
        )
        panes, rest = dict[Pane, list[int]](), [0] * self.size
        for key, cells in state.cells.items():
            pane = None if key.pane is None else (key.pane.start, key.pane.end)
            for segment, cell in cells.items():
                at, n = self.counters.places[key.fingerprint, segment]
                counts = cell.state.tolist()
                assert cell.reports == sum(counts), "each report is in one cell"
                assert cell.reports or (pane is None and not segment), "a cell without reports"
                (rest if pane is None else panes.setdefault(pane, [0] * self.size))[at : at + n] = counts
        kept = {pane: tuple(counts) for pane, counts in panes.items()}
        due = {pane: counts for pane, counts in counted.panes.items() if pane[1] > windows.evicted_to}
        assert kept == due, f"the panes of partition {partition}"
        admitted = windows.admitted_from is not None or "heads" in self.world.lossy
        assert admitted or not kept, "it counts in windows, and no head names it"
        total = [sum(column) for column in zip(rest, *kept.values(), strict=True)]
        assert total == counted.state, f"the counts of partition {partition}"
        for name in ("accepted", "rejected"):
            assert getattr(state, name) == getattr(counted, name), f"{name} of partition {partition}"
        for name in ("watermark", "late", "undated", "closed", "first_start"):
            assert getattr(windows, name) == getattr(counted, name), f"{name} of partition {partition}"
        self._compare_gap_bounds(state, counted)
        if kept or windows.first_start or windows.evicted_to:
            self._compare_dropped(partition, state, ruled)

    def _compare_names(self, state: PartitionState, last: Ruling) -> None:
        """Checks that documents and segments of rules are configured, and that documents are those of the rules."""
        documents, segments = statuses(last.documents), statuses(last.segments)
        known = {name: self.counters.streams[name].hashed.decode() for name in documents}
        assert {name: each.sealed for name, each in state.documents.items()} == known, (
            "the documents of rules"
        )
        assert {key.fingerprint for key in state.cells} <= {*documents}, "cells of other documents"
        for names, mine in zip((documents, segments), self.deployment.named, strict=True):
            for name, pair in names.items():
                assert pair in mine[name], f"no configuration has {name} with {pair}"
        self._demand_one_stream(documents)
        assert len(documents) <= self.deployment.most_documents, "more documents than are allowed"

    def _compare_gap_bounds(self, state: PartitionState, counted: Counted) -> None:
        """Compares the bounds of gaps; below the floor none matters."""
        windows = state.windows
        floor = windows.admitted_from or 0
        said = [(max(floor, line), first) for line, first in windows.gap_bounds]
        assert said == [(max(floor, line), first) for line, first in counted.gap_bounds], "bounds of gaps"
        assert len(said) == len(state.gaps)

    def _compare_dropped(self, partition: int, state: PartitionState, ruled: Sequence[Ruling]) -> None:
        """Checks that only panes that no window needs are evicted."""
        windows = state.windows
        assert windows.evicted_to <= windows.closed, "an open pane is evicted"
        for length in {pane.length for pane in state.panes}:
            most = max(rule.room for rule in ruled if rule.pane == length)
            assert _panes(state, length) <= most, "more panes than there may be"
        if "heads" in self.world.lossy:
            return
        head = self.heads[-1] if self.heads else {}
        assert windows.admitted_from in (None, head.get("floors", {}).get(str(partition))), (
            "a floor that no head says"
        )
        lines = head.get("windows", {})
        for name, since in windows.first_start.items():
            length, every = shape(name)
            closed = lines.get(name, NO_LINE)["closed"]
            first = max(since, (closed - length) // every * every + every) if name in lines else since
            assert windows.evicted_to <= first, f"panes are evicted that {name} needs from {first} on"

    # stored state

    def claims(self, worker: Any, key: bytes) -> None:
        """Checks that Kafka confirmed the ownership before a claim."""
        partition = int(key[1 : key.index(b"}")].split(b":")[1])
        assert partition in worker.confirmed, "a claim that Kafka did not confirm"
        assert worker.log.generation() is not None, "a claim of who knows that it is no member"
        worker.confirmed.discard(partition)

    def wrote(self, worker: Any, key: bytes, before: Mapping[bytes, bytes] | None, reply: Any) -> None:
        """A script ran that may have written."""
        server = self.deployment.server
        self._demand_lives()
        after = server.keys.get(key)
        if after == before or after is None:
            return
        tag = key[: key.index(b"}") + 1]
        partition = int(tag[1:-1].split(b":")[1])
        if isinstance(reply, bytes):
            assert reply == b"done", "a commit that was refused has written"
            self.flushed.add(partition)
        if isinstance(reply, bytes) and before is None:
            self.imported[partition] = int(after[b"offset"])
            self.world.note("import", partition, after[b"offset"].decode())
        elif isinstance(reply, bytes) and before is not None:
            assert worker in self.owners[tag, before[b"epoch"]], "a fenced writer has committed"
            self.world.note(
                "commit", f"{partition}: {before[b'offset'].decode()} -> {after[b'offset'].decode()}"
            )
            self._compare_rules(before, after)
        else:
            self.owners.setdefault((tag, after[b"epoch"]), set()).add(worker)
            worker.then[partition] = len(self.heads)
            self.world.note("claim", f"{partition}: epoch {after[b'epoch'].decode()}")
            if before is None:
                self.imported.pop(partition, None)
                self._demand_fresh(worker, partition, after)
        server.past.setdefault(tag, []).append(server.of(tag))
        # the offset was stored, even if blobs are lost
        self.stored[partition] = max(self.stored.get(partition, 0), int(after[b"offset"]))
        state = self.load(partition)
        if state is not None:
            lineage = lineage_of(after[b"lineage"].decode())
            self.compare(lineage, partition, state)
            batch = self.imported.get(partition, state.offset)
            assert state.offset <= batch or len(state.rules) > 1, "the batch's rule holds beyond its import"
            self._wrote_windows(lineage, partition, state)
            if isinstance(reply, bytes) and before is not None:
                since = min(int(before[b"offset"]), state.offset)  # less, where it is counted again
                self._demand_dead_letters(self.log(lineage, partition), partition, since, state)

    def _wrote_windows(self, lineage: Mapping[str, str], partition: int, state: PartitionState) -> None:
        """Checks that a write changes no final window; counts its events."""
        windows = state.windows
        ruled = of_state(state.rules)
        self.stood.setdefault((partition, windows.watermark), self.world.now)
        rule = [rule for rule in ruled if rule.offset <= state.offset][-1]
        if rule.room and _panes(state, rule.pane) >= rule.room:
            self.full.add((partition, state.offset))
        before, self._before[partition] = self._before.get(partition), state
        if not self.blind and self.heads and state.offset >= (self.published("offsets", partition) or 0):
            counted = self.recount(
                lineage, partition, state.start, state.offset, state.gaps, ruled, windows.admitted_from
            )
            self.windows.demand_frozen(partition, counted)
        if before is None:
            return
        was = before.windows
        for what, happened in (
            ("late", windows.late != was.late),
            ("undated", windows.undated > was.undated),
            ("admitted", windows.admitted_from is not None and was.admitted_from is None),
            ("admitted_from", bool(windows.admitted_from) and was.admitted_from is None),
            ("panes evicted", windows.evicted_to > was.evicted_to),
            (
                "a window more",
                bool(windows.first_start.keys() - was.first_start.keys()) and bool(was.first_start),
            ),
            ("a window less", bool(was.first_start.keys() - windows.first_start.keys())),
        ):
            if happened:
                self.world.note(what, partition)

    def demand_bound(self, head: Json, counted: Mapping[int, Counted], holding: Collection[int]) -> None:
        """Checks that windows closed as bounded have a reason."""
        offsets = {int(p): offset for p, offset in head["offsets"].items()}
        assert any((p, at) in self.full for p, at in offsets.items()), "bounded, and there is room"
        assert holding, "bounded, and nobody holds it back"
        idle = self.deployment.idle_timeout
        for p in holding:
            stood = self.stood.get((p, counted[p].watermark)) if p in counted else None
            still = stood is None or self.world.now - stood >= idle
            assert still or self.deployment.jumped, f"bounded, though partition {p} moves"

    def has_claimed(self, worker: Any, partition: int, epoch: int) -> bool:
        """Returns whether a worker has raised a partition to an epoch."""
        tag = f"{{{self.deployment.stream.name}:{partition}}}".encode()
        return worker in self.owners.get((tag, str(epoch).encode()), ())

    def is_contradicted(self) -> bool:
        """Returns whether stored counts follow other rules than published ones."""
        for partition in self.heads[-1]["rules"] if self.heads else ():
            published, state = of_head(self.heads[-1], partition), self.load(int(partition))
            if state is not None:
                mine, at = of_state(state.rules), self.heads[-1]["offsets"].get(partition, 0)
                n = min(len(mine), len(published))
                late = [rule for rule in mine[len(published) :] if rule.offset < at]
                lacking = [rule for rule in published[len(mine) :] if rule.offset < state.offset]
                if mine[:n] != published[:n] or late or lacking:
                    return True
        return False

    def newest_rules(self) -> list[Ruling]:
        """Returns the newest stored rule of each partition."""
        states = map(self.load, range(len(self.deployment.reports.partitions)))
        return [of_state(state.rules)[-1] for state in states if state is not None]

    def mirrored(self, offsets: Mapping[int, tuple[int, str]]) -> None:
        """Checks that Kafka gets only offsets of stored counts."""
        for partition, (offset, word) in offsets.items():
            most = self.stored.get(partition, 0)
            assert word != COUNTED or offset <= most, "Kafka is told of counts that never were stored"

    def epoch(self, partition: int) -> int | None:
        """Returns the stored epoch of a partition."""
        fields = self.meta(partition)
        return int(fields[b"epoch"]) if fields else None

    def offset(self, partition: int) -> int | None:
        """Returns the stored offset of a partition."""
        fields = self.meta(partition)
        return int(fields[b"offset"]) if fields else None

    def published(self, what: str, partition: int, known: int | None = None) -> Any:
        """Returns a partition's offsets, gaps or rules in the newest head, or in the newest of the first heads."""
        heads = self.heads[:known]
        return heads[-1][what].get(str(partition)) if heads else None

    def meta(self, partition: int) -> Any:
        """Returns the stored metadata of a partition."""
        key = layout.meta_key(self.deployment.stream.name, partition)
        return self.deployment.server.live(key.encode())

    def load(self, partition: int) -> PartitionState | None:
        """Returns the stored state of a partition, unless it was lost."""
        server, stream = self.deployment.server, self.deployment.stream
        key, fields = layout.meta_key(stream.name, partition), self.meta(partition)
        state: PartitionState | None
        if not fields:
            return None
        if partition in self._loaded:  # as before, if it is the very same
            before, cells, state = self._loaded[partition]
            if fields is before and all(server.live(key) is blob for key, blob in cells.items()):
                return state
        try:
            metadata = layout.parse(layout.decoded(fields), key)
            keys = {cell: layout.cell_key(stream.name, partition, cell).encode() for cell in metadata.blobs}
            blobs = {cell: server.live(key) for cell, key in keys.items()}
            fleet = ldp.Fleet(tuple(self.deployment.pool))
            state = None if None in blobs.values() else layout.load(fleet, metadata, blobs)
        except StateLost:
            state = None
        if state is None:
            assert "store" in self.world.lossy
            return None
        self._loaded[partition] = fields, {keys[cell]: blob for cell, blob in blobs.items()}, state
        return state

    def _compare_rules(self, before: Mapping[bytes, bytes], after: Mapping[bytes, bytes]) -> None:
        if not before[b"commit_id"]:
            return  # before the first commit no rule applied
        was, now = (json.loads(fields[b"totals"])["rules"] for fields in (before, after))
        assert now[: len(was)] == was, "a recorded rule was changed"
        apart = "offset", "revision", "documents", "segments"
        listed = [{name: said for name, said in rule.items() if name not in apart} for rule in now]
        limits = [one for i, one in enumerate(listed) if not i or one != listed[i - 1]]
        returns = any(configured.revision is not None for configured in self.deployment.configured)
        assert returns or all(one not in limits[:i] for i, one in enumerate(limits)), (
            "a rule that was replaced is back"
        )
        if len(now) > len(was):
            self.world.note("rule added")

    def _demand_fresh(self, worker: Any, partition: int, after: Mapping[bytes, bytes]) -> None:
        """Checks that counting a partition from a new start has a reason."""
        (_, word), heard, first = worker.consumer.read[partition]
        named = any(partition in head["uncounted"] for head in self.heads[max(0, heard - 1) :])
        if not word and not named and not self.world.lossy:
            assert int(after[b"offset"]) >= first, "it begins before its log"
        published = self.published("offsets", partition) or 0
        if int(after[b"offset"]) < published and "heads" not in self.world.lossy:
            assert self.deployment.recount_after, "a fresh start of what was published"
            self.world.note("given up", partition)

    def _demand_lives(self) -> None:
        """Checks that staged keys expire, and live ones do not."""
        server = self.deployment.server
        staged = {key for key in server.keys if b":staged:" in key}
        assert staged == server.expiries.keys() & server.keys.keys(), "what lives and what is staged"
        assert all(server.expiries[key] <= self.world.now + 600 for key in staged)

    def _demand_dead_letters(self, log: Partition, partition: int, since: int, state: PartitionState) -> None:
        ruled = of_state(state.rules)
        for at in range(max(state.start, since), state.offset):
            if isinstance(answer(log, at, state.gaps, ruled), str):
                where = (partition, at)
                assert where in self.dead_letters or where in self.left_out, (
                    f"the record at {where} has no dead letter"
                )

    # published snapshots

    def committed(
        self, sent: Sequence[SimpleNamespace], must: Collection[int], lacking: Mapping[int, int]
    ) -> None:
        """A snapshot's transaction was committed."""
        name = self.deployment.stream.name
        bodies = {record.key.decode(): record for record in sent}
        head = json.loads(bodies[f"{name}/head"].value)
        self._demand_parts(sent)
        anew = self.deleted and head["sequence"] == 1
        if anew:
            self.windows.begin_anew()
        none = {"sequence": 0, "offsets": {}, "reports": 0, "gaps": {}, "rules": {}}
        last: Json = self.heads[-1] if self.heads and not anew else none
        assert head["sequence"] == last["sequence"] + 1, "the sequence has a hole, or goes back"
        offsets = {int(p): offset for p, offset in head["offsets"].items()}
        for partition, offset in last["offsets"].items():
            assert offsets.get(int(partition), -1) >= offset, "a snapshot goes back"
        assert _news(head) != _news(last) or self.deleted, "a snapshot that says nothing new"
        if "released" in last:
            assert head["reports"] >= last["reports"] or "released" not in head, "released reports fell"
        elif head["reports"] < last["reports"]:
            assert head["gaps"] != last["gaps"], "reports fell, and no gap says why"
        for partition, said in last["rules"].items():
            assert head["rules"][partition][: len(said)] == said, "what was published was judged otherwise"
        ruled = {p: of_head(head, p) for p in offsets}
        counted = dict[int, Counted]()
        for p, offset in offsets.items():
            floor = max(head.get("floors", {}).get(str(p), 0), self.floors.get(p, 0))
            gaps = head["gaps"].get(str(p), [])
            counted[p] = self.recount(head["lineage"], p, self.starts[p], offset, gaps, ruled[p], floor)
        support = [sum(column) for column in zip(*(one.state for one in counted.values()), strict=True)]
        if self.increments is not None and not self.blind:
            self.increments.committed(head, last, Counts(self, head, counted, ruled), ruled, bodies)
            support = self.increments.support(head, support)
        known, reports = not self.blind or "released" not in head, sum(support)
        assert head["reports"] == reports or not known, "the reports of a snapshot"
        self._demand_documents(head, last, support if known else None, ruled)
        if (base := bodies.get(f"{name}/all/base")) is not None:
            if known:
                self.demand_frequencies(json.loads(base.value), support)
                self.parts.committed(head, sent, support, ruled)
            if known and self.increments is not None:
                late = bodies.get(f"{name}/late/base")
                self.increments.demand_late(head, json.loads(late.value) if late and late.value else None)
        else:
            assert not head["reports"], "a head without frequencies"
            self.world.note("a head alone")
        self._demand_complete(head, offsets, must)
        still = self.lacking(lacking)
        missing = {p for p, counted in lacking.items() if p in still and offsets.get(p, 0) < counted}
        assert missing <= {*head["uncounted"]}, (
            f"the group counted {missing}, and the store has nothing of it"
        )
        if not self.blind:
            self.windows.committed(head, last, sent, counted, ruled)
        self.deleted = self.world.snapshots.is_deleted(f"ldp-{name}")  # it may have been behind this one
        self.heads.append(head)
        self.world.note("snapshot", f"{head['sequence']} of {offsets}, {_lines(head)}")

    def _demand_documents(
        self, head: Json, last: Json, support: Sequence[int] | None, ruled: Mapping[int, Sequence[Ruling]]
    ) -> None:
        """Checks the documents of a head: their order, which never changes, and the fields of each."""
        said, before = head["documents"], [one["fingerprint"] for one in last.get("documents", ())]
        self.order = [one["fingerprint"] for one in said]
        assert self.order[: len(before)] == before, "the documents have another order"
        named, _ = names_of(ruled.values())
        self._demand_one_stream(self.order)
        assert {*self.order} == {*before, *named} or not named, "the documents of a snapshot"
        new = self.order[len(before) :]
        assert new == [name for name in self.counters.streams if name in new], (
            "new documents, the oldest first"
        )
        for one in said:
            name = one["fingerprint"]
            each = [statuses(rules[-1].documents).get(name) for rules in ruled.values()]
            assert one["document"] == json.loads(self.counters.streams[name].hashed), "a document"
            assert one["retired"] == named.get(name, (0, False))[1], f"whether {name} is retired"
            assert one["partitions"] == sum(pair is not None and not pair[1] for pair in each), "in force"
            assert support is None or one["reports"] == sum(self.counters.of(support, name)), "its reports"
        assert abs(sum(one["variance_share"] for one in said) - 1) < 1e-12, "the shares of the variance"

    def _demand_one_stream(self, documents: Collection[str]) -> None:
        """Checks that documents are not counted together that no configuration has together."""
        together, listed = {*list(documents)[:1]}, self.deployment.listed
        for _ in listed:
            for names in listed:
                together |= names if names & together else set()
        assert {*documents} <= together, "documents of two streams"

    def demand_other_stream(self, configured: Configured) -> None:
        """Checks that a configuration names none of the documents of some partition, or of the head."""
        found = [documents.keys() for documents, _ in (*self.recorded_names(), self.in_force()) if documents]
        assert any(not names & configured.named[0].keys() for names in found), "it names a recorded document"

    def in_force(self, known: int | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns the names of all partitions in the newest head, or in the newest of the first heads."""
        head = self.heads[:known][-1] if self.heads[:known] else {"rules": {}}
        documents, segments = names_of(of_head(head, p) for p in head["rules"])
        return {**documents}, {**segments}

    def recorded_names(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Returns the names that each partition has in the store."""
        states = map(self.load, range(len(self.deployment.reports.partitions)))
        newest = [of_state(state.rules)[-1] for state in states if state is not None]
        return [({**statuses(rule.documents)}, {**statuses(rule.segments)}) for rule in newest]

    def _demand_parts(self, sent: Sequence[SimpleNamespace]) -> None:
        """Checks that each message names its snapshot and number of parts."""
        wholes: dict[bytes, list[int]] = {}
        for record in sent:
            if record.value is not None:
                headers = dict(record.headers)
                wholes.setdefault(headers["snapshot"], []).append(int(headers["parts"]))
        assert all({*parts} == {len(parts)} for parts in wholes.values()), "a part of a snapshot"

    def demand_frequencies(self, body: Json, support: Sequence[int]) -> None:
        """Checks that a message has the estimate of exactly these counts."""
        self.parts.demand_estimate(body, support, self.order)

    def _demand_complete(self, head: Json, offsets: Mapping[int, int], must: Collection[int]) -> None:
        """Checks that `complete` and `uncounted` name every missing report."""
        if "recreated" in self.world.lossy:
            return  # counts of the earlier topic are unknown
        # records that a log lost before anyone could count them cannot be missed
        missing = {p for p in self.recorded(must) if p not in offsets and p not in self.flushed}
        assert missing <= set(head["uncounted"]), f"partitions {missing} are missing, and it does not say so"
        gaps = any(head["gaps"].values())
        assert head["complete"] == (not head["uncounted"] and not gaps), "complete"

    def lacking(self, known: Collection[int]) -> dict[int, int]:
        """Returns the offsets that the group counted of partitions without counts."""
        found = {}
        for partition in known:
            offset, word = self.deployment.group.offsets.get(partition, (0, ""))
            fields = self.meta(partition)
            if word == COUNTED and not (fields and fields[b"commit_id"]):
                found[partition] = offset
        return found

    def recorded(self, known: Collection[int]) -> set[int]:
        """Returns those of some partitions that have records."""
        partitions = self.deployment.reports.partitions
        return {p for p in known if p < len(partitions) and partitions[p].first < partitions[p].end}


def _panes(state: PartitionState, length: int) -> int:
    """Returns how many panes of a length there are."""
    return sum(pane.length == length for pane in state.panes)


def _news(head: Json) -> list[Any]:
    """Returns the part of a head that requires a snapshot."""
    # with increments, offsets are new where more is released
    counts = "reports" if "released" in head else "offsets"
    said = [head.get(name) or {} for name in (counts, "gaps", "uncounted", "rules", "floors")]
    return [*said, {name: line["closed"] for name, line in head.get("windows", {}).items()}]


def _lines(head: Json) -> str:
    return " ".join(f"{name} {line['closed']}" for name, line in head.get("windows", {}).items())
