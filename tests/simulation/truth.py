"""What must be so: everything stored, held and published is compared with a recount of what was produced.

The arithmetic is the simulation's own. Whatever is known of windows, panes or segments one day joins the recount as one
more part of `Counted`, and its invariants join the checks at the end of a claim, a commit and a snapshot.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.simulation.broker import Partition
from worker.counting import layout
from worker.counting.partition import PartitionState
from worker.counting.ports import COUNTED
from worker.counting.windows import ALL

if TYPE_CHECKING:
    from tests.simulation.deployment import Deployment


@dataclass
class Counted:
    """What a recount says of a prefix."""

    state: list[int]
    reports: int = 0
    accepted: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    watermark: int | None = None


class Truth:
    """The invariants of one deployment."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment, self.world = deployment, deployment.world
        self.starts: dict[int, int] = {}
        self.owners: dict[tuple[bytes, bytes], set[Any]] = {}  # more than one only where the store went back
        self.letters: set[tuple[int, int]] = set()
        self.left_out: set[tuple[int, int]] = set()
        self.unreadable: dict[tuple[int, int], tuple[int, int]] = {}
        self.flushed: set[int] = set()
        self.stored: dict[int, int] = {}
        self.heads: list[Mapping[str, Any]] = []
        self._recounted: dict[Any, tuple[int, Counted]] = {}

    def recount(
        self,
        lineage: Mapping[str, str],
        partition: int,
        start: int,
        offset: int,
        gaps: Collection[Sequence[int]],
        ruled: Sequence[Mapping[str, Any]],
    ) -> Counted:
        """Counts [start, offset) without the gaps, by the recorded rules."""
        log = self.log(lineage, partition)
        assert offset <= log.stable or log.cut_to is not None, "what is not decided was counted"
        ruling = [(rule["offset"], rule["most_reports"]) for rule in ruled]
        key = id(log), start, tuple(map(tuple, gaps)), tuple(ruling)
        at, counted = self._recounted.get(key, (start, None))
        if counted is None or at > offset:
            at, counted = start, Counted([0] * self.deployment.stream.oracle.domain_size)
        for at in range(at, offset):  # noqa: B020
            self._recount(counted, self.answer(log, at, gaps, ruling), log.times[at])
        self._recounted[key] = offset, counted
        return counted

    def _recount(self, counted: Counted, answer: Any, time: int) -> None:
        if answer is None:
            return
        if isinstance(answer, str):
            counted.rejected[answer] = counted.rejected.get(answer, 0) + 1
            return
        for index in answer:
            counted.state[index] += 1
        counted.reports += len(answer)
        counted.accepted += 1
        counted.watermark = max(counted.watermark or 0, time)

    def answer(
        self,
        log: Partition,
        at: int,
        gaps: Collection[Sequence[int]],
        ruling: Sequence[tuple[int, int | None]],
    ) -> Any:
        """Returns what a record must count as: indices, the reason of its rejection, or None if it is not read."""
        answer = log.answers[at]
        if answer is None or any(begin <= at < end for begin, end in gaps) or isinstance(answer, str):
            return None if any(begin <= at < end for begin, end in gaps) else answer
        most = [most for offset, most in ruling if offset <= at][-1]
        return "many" if most is not None and len(answer) > most else answer

    def log(self, lineage: Mapping[str, str], partition: int) -> Partition:
        """Returns the log that counts are of, which may be there no longer."""
        logs = self.deployment.reports.incarnations[lineage["topic_id"]]
        # who has not heard yet that the topic was made anew claims what is new for the old one: nothing is counted so
        return logs[partition] if partition < len(logs) else Partition()

    def compare(self, lineage: Mapping[str, str], partition: int, state: PartitionState) -> None:
        """Compares a state with the recount."""
        ruled = [{"offset": rule.offset, "most_reports": rule.terms.most_reports} for rule in state.rules]
        if self.starts.setdefault(partition, state.start) != state.start:
            assert self.world.lossy or self.deployment.expired, "counting began elsewhere before"
            self.starts[partition] = state.start
        counted = self.recount(lineage, partition, state.start, state.offset, state.gaps, ruled)
        cell = state.cells[ALL]
        assert cell.state.tolist() == counted.state, f"the counts of partition {partition}"
        assert (cell.reports, state.accepted, state.rejected, state.late, state.watermark) == (
            counted.reports,
            counted.accepted,
            counted.rejected,
            {},
            counted.watermark,
        ), f"the totals of partition {partition}"

    # what was stored

    def claims(self, worker: Any, key: bytes) -> None:
        """A worker is about to claim: Kafka has to have confirmed that it is the owner, and have said nothing else."""
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
            assert before is not None
            self.flushed.add(partition)
            assert worker in self.owners[tag, before[b"epoch"]], "a fenced writer has committed"
            self.world.note(
                "commit", f"{partition}: {before[b'offset'].decode()} -> {after[b'offset'].decode()}"
            )
            self._compare_rules(before, after)
        else:
            self.owners.setdefault((tag, after[b"epoch"]), set()).add(worker)
            self.world.note("claim", f"{partition}: epoch {after[b'epoch'].decode()}")
            if before is None:
                self._demand_fresh(partition, after)
        server.past.setdefault(tag, []).append(server.of(tag))
        state = self.load(partition)
        if state is not None:
            lineage = json.loads(after[b"lineage"])
            self.compare(lineage, partition, state)
            self.stored[partition] = max(self.stored.get(partition, 0), state.offset)
            if isinstance(reply, bytes) and before is not None:
                since = int(before[b"offset"])
                self._demand_letters(self.log(lineage, partition), partition, since, state)

    def mirrored(self, offsets: Mapping[int, tuple[int, str]]) -> None:
        """Kafka is told of offsets: of what was counted only those that were stored once."""
        for partition, (offset, word) in offsets.items():
            most = self.stored.get(partition, 0)
            assert word != COUNTED or offset <= most, "Kafka is told of counts that never were stored"

    def epoch(self, partition: int) -> int | None:
        """Returns the stored epoch of a partition."""
        meta = layout.meta_key(self.deployment.stream.name, partition).encode()
        fields = self.deployment.server.live(meta)
        return int(fields[b"epoch"]) if fields else None

    def load(self, partition: int) -> PartitionState | None:
        """Returns what is stored of a partition, unless it was lost."""
        server, stream = self.deployment.server, self.deployment.stream
        fields = server.live(layout.meta_key(stream.name, partition).encode())
        if not fields:
            return None
        metadata = layout.parse({name.decode(): said.decode() for name, said in fields.items()})
        blobs = {
            cell: blob
            for cell in metadata.blobs
            if (blob := server.live(layout.cell_key(stream.name, partition, cell).encode())) is not None
        }
        if len(blobs) < len(metadata.blobs):
            assert "store" in self.world.lossy
            return None
        return layout.load(stream, metadata, blobs)

    def _compare_rules(self, before: Mapping[bytes, bytes], after: Mapping[bytes, bytes]) -> None:
        if not before[b"flush"]:
            return  # before the first commit nothing was judged
        was, now = (json.loads(fields[b"totals"])["rules"] for fields in (before, after))
        assert now[: len(was)] == was, "a recorded rule was changed"
        if len(now) > len(was):
            self.world.note("rule added")

    def _demand_fresh(self, partition: int, after: Mapping[bytes, bytes]) -> None:
        published = self.heads[-1]["offsets"].get(str(partition), 0) if self.heads else 0
        if int(after[b"offset"]) < published:
            assert self.deployment.recount_after, "a fresh start of what was published"
            self.world.note("given up", partition)

    def _demand_lives(self) -> None:
        """No live key goes by itself, and every staged one does; there are no more of these than attempts."""
        server = self.deployment.server
        staged = {key for key in server.keys if b":staged:" in key}
        assert staged == server.expiries.keys() & server.keys.keys(), "what lives and what is staged"
        assert all(server.expiries[key] <= self.world.now + 600 for key in staged)

    def _demand_letters(self, log: Partition, partition: int, since: int, state: PartitionState) -> None:
        ruling = [(rule.offset, rule.terms.most_reports) for rule in state.rules]
        for at in range(max(state.start, since), state.offset):
            if isinstance(self.answer(log, at, state.gaps, ruling), str):
                where = (partition, at)
                assert where in self.letters or where in self.left_out, f"the record at {where} has no letter"

    # what was published

    def committed(self, sent: Sequence[SimpleNamespace], must: Collection[int]) -> None:
        """A snapshot's transaction was committed."""
        name = self.deployment.stream.name
        bodies = {record.key.decode(): record for record in sent}
        head = json.loads(bodies[f"{name}/head"].value)
        assert {int(dict(record.headers)["parts"]) for record in sent} == {len(sent)}, "a part of a snapshot"
        last: Mapping[str, Any] = (
            self.heads[-1]
            if self.heads
            else {"sequence": 0, "offsets": {}, "reports": 0, "gaps": {}, "rules": {}}
        )
        assert head["sequence"] == last["sequence"] + 1, "the sequence has a hole, or goes back"
        offsets = {int(p): offset for p, offset in head["offsets"].items()}
        for partition, offset in last["offsets"].items():
            assert offsets.get(int(partition), -1) >= offset, "a snapshot goes back"
        said = [
            {name: one.get(name, []) for name in ("offsets", "gaps", "uncounted", "rules")}
            for one in (head, last)
        ]
        assert said[0] != said[1], "a snapshot that says nothing new"
        if head["reports"] < last["reports"]:
            assert head["gaps"] != last["gaps"], "reports fell, and no gap says why"
        for partition, said in last["rules"].items():
            assert head["rules"][partition][: len(said)] == said, "what was published was judged otherwise"
        counted = [
            self.recount(
                head["lineage"],
                p,
                self.starts[p],
                offset,
                head["gaps"].get(str(p), []),
                head["rules"][str(p)],
            )
            for p, offset in offsets.items()
        ]
        reports = sum(one.reports for one in counted)
        assert head["reports"] == reports, "the reports of a snapshot"
        oracle = self.deployment.stream.oracle
        p, q = float(oracle.p), float(oracle.q)
        support = np.sum([one.state for one in counted], axis=0)
        base = json.loads(bodies[f"{name}/all/base"].value)["frequencies"]
        np.testing.assert_allclose(base, (support / reports - q) / (p - q), atol=1e-12)
        self._demand_complete(head, offsets, must)
        self.heads.append(head)
        self.world.note("snapshot", f"{head['sequence']} of {offsets}")

    def _demand_complete(
        self, head: Mapping[str, Any], offsets: Mapping[int, int], must: Collection[int]
    ) -> None:
        """`complete` is true exactly when no report that the topic had is missing; what was committed since is late."""
        if "recreated" in self.world.lossy:
            return  # nobody can say any more what the topic of before had
        # what a log lost before anyone could count it, nobody can miss
        missing = {p for p in self.recorded(must) if p not in offsets and p not in self.flushed}
        assert missing <= set(head["uncounted"]), f"partitions {missing} are missing, and it does not say so"
        gaps = any(head["gaps"].values())
        assert head["complete"] == (not head["uncounted"] and not gaps), "complete"

    def recorded(self, known: Collection[int]) -> set[int]:
        """Returns those of some partitions that have records."""
        partitions = self.deployment.reports.partitions
        return {p for p in known if p < len(partitions) and partitions[p].first < partitions[p].end}
