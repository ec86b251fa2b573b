"""Topics and store outside the workers, in memory: produced, stored and published data, and its recount."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import ldp
from tests.support.cells import cells_of
from tests.support.memory.windows import Panes
from worker.counting import layout
from worker.counting.head import Head
from worker.counting.ports import COUNTED, StoredPartition
from worker.counting.rules import RequestedRule


class Crash(BaseException):
    """The process dies here."""


@dataclass
class Record:
    """An entry of a log; a marker is an offset that no consumer sees."""

    value: bytes | None
    timestamp: int
    marker: bool = False
    unreadable: int | None = None  # an unreadable batch's first offset, at its last; the others are markers
    with_key_or_headers: bool = False  # with key or headers


@dataclass
class Counted:
    """Recount of a prefix; the test's own arithmetic from the produced records."""

    state: list[int]
    panes: Panes
    reports: int = 0
    accepted: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    watermark: int | None = None


class World:
    """Everything outside the workers: brokers, store and topics."""

    def __init__(self, stream: ldp.Stream, partitions: int = 1) -> None:
        self.configured = RequestedRule()
        self.used: set[RequestedRule] = set()
        self.stream = stream
        self.fleet: ldp.Fleet | None = None  # configuration of later workers
        self.clock = 0.0
        self.logs: list[list[Record]] = [[] for _ in range(partitions)]
        self.answers: list[list[Any]] = [[] for _ in range(partitions)]
        self.firsts = [0] * partitions
        self.leaderless: set[int] = set()  # partitions whose reads and bounds fail
        self.generation = 0
        self.members: set[int] = set()
        self.assignment: dict[int, set[int]] = {}
        self.offsets: dict[int, tuple[int, str]] = {}
        self.stored: dict[int, StoredPartition] = {}
        self.changed_fields: dict[int, dict[str, str]] = {}  # replaced values of fields
        self.past: dict[int, list[StoredPartition]] = {}
        self.staged: dict[tuple[int, str], dict[str, bytes]] = {}
        self.starts: dict[int, int] = {}
        self.imported: dict[int, int] = {}  # uncounted records, which leave no dead letter
        self.dead_letters: set[tuple[int, int]] = set()
        self.late_dead_letters = False  # whether its workers send late records to the dead letters
        self.late_said: dict[tuple[int, int], set[tuple[int, ...]]] = {}
        self.snapshots: list[tuple[int, dict[int, int]]] = []
        self.heads: list[Head] = []
        self.received: dict[str, Any] = {}  # messages of the newest snapshot of all time
        self.rest_gaps: dict[str, Any] = {}  # gaps that were known when the rest was released
        self.said: Head | None = None
        self.begun_until: float | None = None
        self.open_until = 0.0
        self.publisher_fence = 0
        self.recount_after: int | None = None
        self.late: list[Callable[[], object]] = []  # commits that are on their way to Kafka
        self.told = partitions  # number of partitions that publishers know

    def choose(self, fewest_new: int) -> None:
        """Sets another size of increments for workers that start later."""
        before = self.configured
        limits = replace(before.limits, fewest_new=fewest_new)
        self.configured = RequestedRule(None if before.revision is None else before.revision + 1, limits)

    def grow(self) -> None:
        """Adds a partition to the topic and to the group."""
        self.logs.append([])
        self.answers.append([])
        self.firsts.append(0)
        self.rebalance()

    def rebalance(self) -> None:
        """A new generation: the partitions are dealt out among the members."""
        self.generation += 1
        members = sorted(self.members)
        self.assignment = {number: set() for number in members}
        for partition in range(len(self.logs) if members else 0):
            self.assignment[members[partition % len(members)]].add(partition)

    def uncounted(self, without: Mapping[int, bool]) -> list[int]:
        """Partitions without counts that should have some."""
        words = {p: word for p, (_, word) in self.offsets.items()}
        return [p for p in without if words.get(p) == COUNTED or (self.logs[p] and not without[p])]

    # producing, and the recount

    def produce(self, partition: int, value: bytes | None, answer: Any, *, marker: bool = False) -> None:
        """Appends a record; ``answer`` is what it must count as: a list of indices, or the reason of its rejection."""
        log = self.logs[partition]
        log.append(Record(value, 1000 + 200 * len(log), marker, with_key_or_headers=len(log) % 3 == 0))
        self.answers[partition].append(answer)

    def damage(self, partition: int, records: int) -> None:
        """Appends a record batch of this many unreadable records: it counts as one rejected record."""
        log = self.logs[partition]
        first = len(log)
        log += [Record(None, 0, marker=True) for _ in range(records - 1)] + [
            Record(None, 0, unreadable=first)
        ]
        self.answers[partition] += [[]] * (records - 1) + ["batch"]

    def whole(self, partition: int, end: int) -> int:
        """Returns the end of a range that ends inside no record batch that cannot be read."""
        log = self.logs[partition]
        for last in range(end, len(log)):
            if (first := log[last].unreadable) is not None:
                return last + 1 if first < end else end
        return end

    def answer(self, partition: int, at: int, ruled: Sequence[Mapping[str, Any]]) -> Any:
        """Returns the required verdict of a record under the rule of its offset."""
        answer = self.answers[partition][at]
        most = [rule["most_reports"] for rule in ruled if rule["offset"] <= at][-1]
        return "many" if isinstance(answer, list) and most is not None and len(answer) > most else answer

    def recount(
        self,
        partition: int,
        start: int,
        offset: int,
        gaps: Collection[tuple[int, int]],
        ruled: Sequence[Mapping[str, Any]],
        floor: int | None = None,
    ) -> Counted:
        """Counts [start, offset) without the gaps, from the produced records and the recorded rules."""
        domain = self.stream.oracle.domain_size
        counted = Counted([0] * domain, Panes(floor or 0, domain))
        for at in range(start, offset):
            counted.panes.begin(ruled, at)
            record, answer = self.logs[partition][at], self.answer(partition, at, ruled)
            if record.marker or any(begin <= at < end for begin, end in gaps):
                continue
            if isinstance(answer, str):
                counted.rejected[answer] = counted.rejected.get(answer, 0) + 1
                continue
            for index in answer:
                counted.state[index] += 1
            counted.reports += len(answer)
            counted.accepted += 1
            counted.panes.add(
                at, record.timestamp, answer, [rule for rule in ruled if rule["offset"] <= at][-1]
            )
        counted.panes.begin(ruled, offset)
        counted.watermark = counted.panes.newest
        return counted

    def verify(self, partition: int, before: StoredPartition | None = None) -> None:
        """Compares the stored state of a partition with the recount, and its rules with the earlier ones."""
        stored = self.stored[partition]
        ruled = rules_of(stored)
        if before is not None and before.metadata.commit_id:  # before the first commit no rule applied
            was = rules_of(before)
            assert ruled[: len(was)] == was, "a recorded rule was changed"
        state = layout.load(ldp.Fleet((self.stream,)), stored.metadata, stored.blobs)
        assert len([rule for rule in ruled if rule["revision"]]) <= len(self.used), "a rule was added twice"
        assert self.starts.setdefault(partition, state.start) == state.start
        assert state.offset <= len(self.logs[partition])
        counted = self.recount(
            partition, state.start, state.offset, state.gaps, ruled, state.windows.admitted_from
        )
        assert state.total().state.tolist() == counted.state
        assert (state.reports, state.accepted, state.rejected, state.windows.watermark) == (
            counted.reports,
            counted.accepted,
            counted.rejected,
            counted.watermark,
        )
        panes = counted.panes
        said = (
            sum(state.windows.late.values()),
            state.windows.undated,
            state.windows.closed,
            state.windows.first_start,
        )
        assert said == (len(panes.late), panes.undated, panes.closed, panes.first_start)
        kept = {(p.start, p.end): cells_of(state)[str(p)].state.tolist() for p in state.panes}
        assert kept == {pane: n for pane, n in panes.counts.items() if pane[1] > state.windows.evicted_to}
        assert state.windows.evicted_to <= state.windows.closed
        for at in range(max(state.start, self.imported.get(partition, 0)), state.offset):
            answer = self.answer(partition, at, ruled)
            if isinstance(answer, str) and not any(b <= at < e for b, e in state.gaps):
                assert (partition, at) in self.dead_letters, (
                    "an offset was committed before its dead letter was safe"
                )
        if self.late_dead_letters:
            for at, facts in panes.late.items():
                assert (partition, at) in self.dead_letters, (
                    "an offset was committed before its late dead letter was safe"
                )
                assert self.late_said[partition, at] == {facts}


def rules_of(stored: StoredPartition) -> list[dict[str, Any]]:
    """The rules that a partition is counted by, as they are stored."""
    listed: list[dict[str, Any]] = json.loads(stored.metadata.totals)["rules"]
    return listed
