"""Counts of several documents and segments against a recount of the same log, record by record."""

import copy
import pickle
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pytest

import ldp
from ldp import frames
from ldp.oracles import ORACLES
from worker.audit.protocols import protocol_of
from worker.counting import layout
from worker.counting.columns import Batch, Columns
from worker.counting.documents import of_fleet
from worker.counting.invariants import impossible
from worker.counting.partition_state import PartitionState
from worker.counting.rules import RecordLimits, Rule, Status
from worker.counting.windows import Windowing

A = ldp.Stream("s", ldp.GRR("1", domain_size=5))
B = ldp.Stream("s", ldp.GRR("2", domain_size=5))
C = ldp.Stream("s", ldp.GRR("1", domain_size=4), segment="country:app")
D = ldp.Stream("s", ldp.GRR("3", domain_size=4))  # never named
NAMES = [each.fingerprint.hex() for each in (A, B, C, D)]
PANE, HOLD = 10_000, 5_000
LIMITS = RecordLimits(4, True, None, Windowing(("all", "10s"), 0, HOLD))
SEGMENTS = ("DE", "US", "US:4.3", "US:4.3:x", "US:9.9", "XX", "FR:1")


@dataclass(frozen=True)
class Sent:
    """A record: the document, the segment, the values, and the timestamp."""

    stream: ldp.Stream
    segment: str | None
    values: tuple[int, ...]
    time: int

    @property
    def value(self) -> bytes:
        reports = np.array([(value,) for value in self.values], self.stream.oracle.report_dtype).tobytes()
        if self.segment is None:
            return b"\x01" + self.stream.fingerprint + reports
        return (
            b"\x02" + self.stream.fingerprint + bytes([len(self.segment)]) + self.segment.encode() + reports
        )


class Recount:
    """The contract in plain Python, one record after the other."""

    def __init__(self, rules: list[Rule]) -> None:
        self.rules, self.seen, self.closed = rules, -1, 0
        self.rejected, self.late = Counter[str](), 0
        self.cells = dict[tuple[int | None, str, str], list[int]]()

    def add(self, offset: int, sent: Sent) -> None:
        documents, segments = dict[str, Status](), dict[str, Status]()
        for rule in self.rules:
            if rule.offset <= offset:
                for mine, theirs in ((documents, rule.documents), (segments, rule.segments)):
                    for name, status in theirs.items():
                        mine[name] = max(mine.get(name, status), status)
        name = sent.stream.fingerprint.hex()
        if name not in documents:
            self.rejected["fingerprint"] += 1
        elif documents[name].retired:
            self.rejected["retired"] += 1
        elif (sent.segment is None) != (sent.stream.segment is None):
            self.rejected["segment"] += 1
        elif len(sent.values) > 4:
            self.rejected["many"] += 1
        else:
            self._count(sent, {text for text, status in segments.items() if not status.retired}, {*segments})

    def _count(self, sent: Sent, live: set[str], declared: set[str]) -> None:
        pane: int | None = sent.time // PANE
        if (sent.time // PANE + 1) * PANE <= self.closed:
            pane, self.late = None, self.late + 1
        self.seen = max(self.seen, sent.time)
        self.closed = max(self.closed, self.seen - HOLD)
        cell = "" if sent.segment is None else self._cell(sent.segment, live, declared)
        counts = self.cells.setdefault((pane, sent.stream.fingerprint.hex(), cell), [0] * 5)
        for value in sent.values:
            counts[value] += 1

    @staticmethod
    def _cell(text: str, live: set[str], declared: set[str]) -> str:
        if text in live:
            return text
        levels = text.split(":")
        for n in range(len(levels), 0, -1):
            prefix = ":".join(levels[:n])
            inner = any(name.startswith(prefix + ":") for name in declared)
            if inner or prefix in live:
                return prefix + ":~"
        return "~"

    def evict(self, end: int) -> None:
        for (pane, name, cell), counts in [*self.cells.items()]:
            if pane is not None and (pane + 1) * PANE <= end:
                del self.cells[pane, name, cell]
                rest = self.cells.setdefault((None, name, cell), [0] * 5)
                rest[:] = [a + b for a, b in zip(rest, counts, strict=True)]


def log_of(rng: random.Random, n: int, lasts: int = 60_000) -> list[Sent]:
    sent = []
    for at in range(n):
        stream = rng.choices((A, B, C, D), (4, 4, 4, 1))[0]
        segment = rng.choice(SEGMENTS) if (stream is C) != (rng.random() < 0.05) else None
        values = tuple(
            rng.randrange(stream.oracle.domain_size) for _ in range(rng.choice((1, 1, 2, 3, 4, 5)))
        )
        # documents differ in their clocks: lateness by document would differ from lateness by log
        lag = {A: 0, B: 4000, C: 9000, D: 0}[stream]
        sent.append(Sent(stream, segment, values, max(0, lasts * at // n - lag + rng.randrange(-9000, 3000))))
    return sent


def rules_of(rng: random.Random, n: int) -> list[Rule]:
    """Names that come, go and come again, at random offsets."""
    a, b, c, _ = NAMES
    first = Rule(0, 1, LIMITS, {a: Status(), b: Status()}, {"DE": Status(), "US:4.3": Status()})
    later: list[tuple[dict[str, Status], dict[str, Status]]] = [
        ({c: Status()}, {}),
        ({}, {"US": Status(), "FR": Status()}),
        ({a: Status(0, True)}, {"DE": Status(0, True)}),
        ({b: Status(0, True)}, {"XX": Status(0, True), "US:4.3": Status(0, True)}),
        ({a: Status(1)}, {"US:4.3": Status(1)}),
    ]
    offsets = sorted(rng.randrange(n) for _ in later)
    return [first, *(Rule(at, 1, LIMITS, *names) for at, names in zip(offsets, later, strict=True))]


def as_cells(state: PartitionState) -> dict[tuple[int | None, str, str], list[int]]:
    return {
        (None if key.pane is None else key.pane.start // PANE, key.fingerprint, segment): [
            *cell.state.tolist(),
            *[0] * (5 - len(cell.state)),
        ]
        for key, cells in state.cells.items()
        for segment, cell in cells.items()
    }


def stored(state: PartitionState, own: ldp.Stream) -> PartitionState:
    """The state after a commit, as a worker that knows one of the documents loads it."""
    before = layout.initial('{"group": "g", "layout": 1, "topic_id": "t"}', state)
    everything = replace(state, changed={*state.cells})
    metadata, blobs = layout.dump(everything, before, "0f" * 16)
    return layout.load(ldp.Fleet((own,)), metadata, blobs)


@pytest.mark.parametrize("seed", range(12))
def test_counts_are_those_of_a_recount(seed: int) -> None:
    rng, n = random.Random(seed), 300
    log, rules = log_of(rng, n, rng.choice((60_000, 400_000))), rules_of(rng, n)
    state = PartitionState.ruled(0, rules, of_fleet(ldp.Fleet((A, B, C))))
    state.windows.admit(0)
    recount, reports = Recount(rules), 0
    while state.offset < n:
        start, end = state.offset, min(n, state.offset + rng.randrange(1, 90))
        columns = Columns.of(
            range(start, end), [s.time for s in log[start:end]], [s.value for s in log[start:end]]
        )
        applied = state.apply(Batch(0, start, end, columns))
        if (stopped := state.offset < end) and state.offset == start:
            assert len(state.panes) == LIMITS.windowing.most_panes
        end = state.offset
        reports += sum(len(some) for _, some in applied.reports)
        for offset in range(start, end):
            recount.add(offset, log[offset])
        if stopped or rng.random() < 0.1:
            bound = recount.closed if stopped else rng.randrange(recount.closed + 1)
            state.evict(bound)
            recount.evict(bound)
        assert as_cells(state) == recount.cells
        assert (state.windows.watermark, state.windows.closed) == (recount.seen, recount.closed)
        assert (state.rejected, sum(state.windows.late.values())) == (recount.rejected, recount.late)
        assert reports == state.reports == sum(map(sum, recount.cells.values()))
        assert next(impossible(state), None) is None
        if rng.random() < 0.3:
            again = stored(state, rng.choice((A, B, C) if NAMES[2] in state.documents else (A, B)))
            assert as_cells(again) == recount.cells
            again.changed = {*again.cells}
            state = again
    for name in state.documents:
        for segment in {cell for _, of, cell in recount.cells if of == name}:
            whole = [
                counts for (_, of, cell), counts in recount.cells.items() if (of, cell) == (name, segment)
            ]
            total = state.total(name, segment)
            assert (
                total.state.tolist() == [sum(each) for each in zip(*whole, strict=True)][: len(total.state)]
            )
            assert total.reports == sum(map(sum, whole))


@pytest.mark.parametrize("name", [*sorted(ORACLES), "xxh32"])
def test_segments_of_each_protocol_count_as_in_the_audit(name: str) -> None:
    """Two documents, three panes: the reports of each cell, gathered record by record and counted by other code."""
    rng, some = np.random.default_rng(5), random.Random(5)
    protocol, options = ("olh", {"hash": "xxh32"}) if name == "xxh32" else (name, {})
    streams = [
        ldp.Stream("s", ldp.oracle(protocol, "1", d, **options), segment=levels)
        for d, levels in ((40, None), (70, "country:app"))
    ]
    gathered, values = dict[tuple[int | None, str, str], list[npt.NDArray[np.void]]](), list[bytes]()
    times = sorted(some.randrange(3 * PANE) for _ in range(1500))
    for time in times:
        stream = some.choices(streams, (1, 3))[0]
        segment = (
            None if stream.segment is None else some.choice(("DE:1", "US:4.3", "US:9.9", "XX:1", "FR:1"))
        )
        reports = stream.oracle.perturb(rng.integers(40, size=some.randrange(1, 4)), rng=rng)
        values.append(frames.encode(stream, reports, segment))
        cell = "" if segment is None else Recount._cell(segment, {"DE", "US:4.3"}, {"DE", "US:4.3"})
        gathered.setdefault((time // PANE, stream.fingerprint.hex(), cell), []).append(reports)
    known = of_fleet(ldp.Fleet(tuple(streams)))
    rule = Rule(0, 1, LIMITS, dict.fromkeys(known, Status()), {"DE": Status(), "US:4.3": Status()})
    state = PartitionState.ruled(0, [rule], known)
    state.windows.admit(0)
    for first in range(0, len(times), 700):
        part = range(first, min(first + 700, len(times)))
        columns = Columns.of(part, times[first : part.stop], values[first : part.stop])
        state.apply(Batch(0, first, part.stop, columns))
    assert state.accepted == len(times)
    assert state.windows.late == {}
    counted = {
        (key.pane and key.pane.start // PANE, key.fingerprint, segment): cell
        for key, cells in state.cells.items()
        for segment, cell in cells.items()
    }
    assert counted.keys() == gathered.keys()
    audited = {stream.fingerprint.hex(): protocol_of(stream.document()) for stream in streams}
    for place, parts in gathered.items():
        reports, expected = np.concatenate(parts), np.zeros(audited[place[1]].entries, np.int64)
        audited[place[1]].count(expected, *(reports[field] for field in reports.dtype.names or ()))
        assert (counted[place].reports, counted[place].state.tolist()) == (reports.size, expected.tolist())


def one_each(state: PartitionState, *times: int) -> None:
    """Counts one report of value 1 in each of two segments at each time."""
    values = [Sent(C, segment, (1,), time).value for time in times for segment in ("DE:1", "FR:1")]
    start, end = state.offset, state.offset + len(values)
    columns = Columns.of(range(start, end), [time for time in times for _ in range(2)], values)
    state.apply(Batch(0, start, end, columns))


@pytest.mark.parametrize(
    "again",
    [
        lambda state: stored(state, C),
        copy.deepcopy,
        lambda state: pickle.loads(pickle.dumps(state)),
        lambda state: replace(
            state,
            cells={
                key: {name: replace(cell, state=cell.state.copy()) for name, cell in cells.items()}
                for key, cells in state.cells.items()
            },
        ),
    ],
    ids=["stored", "deepcopy", "pickle", "replace"],
)
def test_a_copied_state_counts_into_its_own_cells(again: Callable[[PartitionState], PartitionState]) -> None:
    """An address of the first state that a copy kept would change the first state, and not the copy."""
    rule = Rule(0, 1, LIMITS, {C.fingerprint.hex(): Status()}, {"DE": Status()})
    state = PartitionState.ruled(0, [rule], of_fleet(ldp.Fleet((C,))))
    state.windows.admit(0)
    one_each(state, 1_000, 11_000)
    before = as_cells(state)
    other = again(state)
    one_each(other, 1_000, 11_000)
    assert as_cells(state) == before
    assert as_cells(other) == {place: [2 * count for count in counts] for place, counts in before.items()}


def test_late_reports_of_an_evicted_pane_count_in_the_cell_that_has_its_counts() -> None:
    rule = Rule(0, 1, LIMITS, {C.fingerprint.hex(): Status()}, {"DE": Status()})
    state = PartitionState.ruled(0, [rule], of_fleet(ldp.Fleet((C,))))
    state.windows.admit(0)
    one_each(state, 1_000, 31_000, 1_000)  # the last are late
    (evicted,) = [cells for key, cells in state.cells.items() if key.pane and key.pane.start == 0]
    state.evict(10_000)
    one_each(state, 1_000)
    assert [cell.state.tolist() for cell in evicted.values()] == [[0, 1, 0, 0]] * 2
    late = {place: counts for place, counts in as_cells(state).items() if place[0] is None}
    assert [counts for _, counts in sorted(late.items())] == [[0, 3, 0, 0, 0]] * 2


def test_the_log_tests_lateness_over_all_documents() -> None:
    """A recount that runs lateness by document differs, so the comparison above can fail."""
    differs = 0
    for seed in range(10):
        rng, n = random.Random(seed), 300
        log, rules = log_of(rng, n), rules_of(rng, n)
        whole, apart = Recount(rules), [Recount(rules) for _ in range(4)]
        for offset, sent in enumerate(log):
            whole.add(offset, sent)
            apart[(A, B, C, D).index(sent.stream)].add(offset, sent)
        differs += whole.late != sum(each.late for each in apart)
    assert differs == 10
