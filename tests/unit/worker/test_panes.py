"""Panes of each report of a windowed partition, compared with a counter of single records."""

import dataclasses
import itertools
import random

import numpy as np
import pytest

import ldp
from ldp import frames
from tests.support.cells import cells_of, key_in, ruled
from worker.config import Served
from worker.counting import lateness, layout
from worker.counting.columns import Batch, Columns, Unreadable
from worker.counting.head import Head
from worker.counting.lineage import lineage_of
from worker.counting.rules import RecordLimits, RequestedRule, Rule
from worker.counting.windows import Windowing
from worker.publishing import window_progress

STREAM = ldp.Stream("panes", ldp.GRR("1", 3))
LINEAGE = lineage_of("group", "topic")
MINUTE = 60_000
FAR = 253_370_678_400_000
"""9998-12-31, in milliseconds: this and later values are invalid times."""
PANES = {
    ("1h",): 60,
    ("all", "1h", "3h every 1h"): 60,
    ("3h every 1h", "90m every 30m"): 30,
    ("90m every 30m", "40m"): 10,
    ("40m", "1h"): 20,
}
"""Sets of windows, and by hand how many minutes their panes have."""
HOPS = {"1h": 60, "3h every 1h": 60, "90m every 30m": 30, "40m": 40}
LENGTHS = {"all": 0, "1h": 60, "3h every 1h": 180, "90m every 30m": 90, "40m": 40}
BAD = {b"": "empty", b"\x07noise": "version", b"{}": "json"}


def frame(indices):
    return frames.encode(STREAM, np.array([(i,) for i in indices], STREAM.oracle.report_dtype))


def make_log(rng, length):
    """Offsets, times and kinds of records: indices, or a bad value. Times advance, repeat, jump and go back."""
    log, offset, now = [], rng.randint(0, 5), 1_700_000_000_000
    for _ in range(length):
        now += rng.choice([0, 1, MINUTE, 7 * MINUTE, rng.randrange(20 * MINUTE)])
        if rng.random() < 0.02:
            now += rng.randint(1, 9) * 60 * MINUTE  # nothing came for hours
        time = now - rng.choice([0, 0, 0, rng.randrange(5 * MINUTE), rng.randrange(600 * MINUTE)])
        time = rng.choice([time, time, time - time % (10 * MINUTE), now // (60 * MINUTE) * 60 * MINUTE - 1])
        if rng.random() < 0.03:
            time = rng.choice([-1, FAR, (1 << 63) - 1, -(1 << 63)])
        what = [rng.randrange(3) for _ in range(rng.choice([1, 1, 1, 2, 5]))]
        if rng.random() < 0.1:
            what = rng.choice(sorted(BAD))
        log.append((offset, time, what))
        offset += rng.choice([1, 1, 1, 3])
    return log


def make_rules(rng, log):
    """One to five rules: windows come, go and come again, panes and grace change, and now and then there are none."""
    offsets = [0, *sorted(rng.sample(range(1, log[-1][0] + 2), rng.randint(0, 4)))]
    if rng.random() < 0.3:
        offsets.append(offsets[-1])  # two at once
    listed = []
    for revision, offset in enumerate(offsets, 1):
        windowing = Windowing(
            rng.choice(list(PANES)),
            grace=rng.choice([0, MINUTE, 90 * MINUTE]),
            max_out_of_orderness=rng.choice([0, MINUTE, 12 * MINUTE]),
        )
        limits = RecordLimits(rng.choice([3, 10]), True, None, rng.choice([windowing] * 5 + [None]))
        listed.append(Rule(offset, revision, limits))
    return listed


class Plain:
    """The counter: numbers and dicts, a record at a time."""

    def __init__(self, listed, start):
        self.rules, self.begun = listed, 0
        self.cells, self.rejected, self.late, self.first_start = {"all": [0, 0, 0]}, {}, {}, {}
        self.accepted = self.undated = self.closed = self.evicted_to = 0
        self.watermark = None
        self.begin(start)

    def begin(self, offset):
        for rule in self.rules[self.begun :]:
            if rule.offset > offset:
                return
            self.begun += 1
            names = [] if rule.limits.windowing is None else rule.limits.windowing.windows
            first_start = {}
            for name in names:
                if name == "all":
                    continue
                hop = HOPS[name] * MINUTE
                first = 0
                while self.watermark is not None and first <= self.watermark:
                    first += hop * max(1, (self.watermark - first) // hop)
                first_start[name] = self.first_start.get(name, first)
            self.first_start = first_start

    def place(self, time):
        """The cell of an accepted record, and by how much it is late."""
        windowing = self.rules[self.begun - 1].limits.windowing
        if windowing is None or not 0 <= time < FAR:
            return "all", None
        pane = PANES[windowing.windows] * MINUTE
        start = time - time % pane
        if start + pane <= self.closed:
            return "all", self.closed - start - pane
        return f"{start}+{pane}", None

    def needs_room(self, time):
        cell = self.place(time)[0]
        if cell in self.cells:
            return False
        begun = [rule.limits.windowing for rule in self.rules[: self.begun]]
        pane = PANES[begun[-1].windows] * MINUTE
        like = [name for name in self.cells if name.endswith(f"+{pane}")]
        # an earlier rule may have left as many as its capacity
        return len(like) >= max(
            4
            - 2
            * (-(max(map(LENGTHS.get, w.windows)) * MINUTE + w.grace + 2 * w.max_out_of_orderness) // pane)
            for w in begun
            if w is not None and PANES[w.windows] * MINUTE == pane
        )

    def count(self, offset, time, what):
        """Counts a record; returns whether there was room."""
        self.begin(offset)
        limits = self.rules[self.begun - 1].limits
        if isinstance(what, bytes) or len(what) > limits.most_reports:
            reason = BAD[what] if isinstance(what, bytes) else "many"
            self.rejected[reason] = self.rejected.get(reason, 0) + 1
            return True
        if self.needs_room(time):
            return False
        cell, behind = self.place(time)
        if behind is not None:
            minutes = {1: "1m", 10: "10m", 60: "1h", 360: "6h", 1440: "1d", 10080: "7d"}
            age = next((age for most, age in minutes.items() if behind <= most * MINUTE), "older")
            self.late[age] = self.late.get(age, 0) + 1
        time = time if 0 <= time < FAR else -1
        if limits.windowing is not None and time < 0:
            self.undated += 1
        for index in what:
            self.cells.setdefault(cell, [0, 0, 0])[index] += 1
        self.accepted += 1
        self.watermark = time if self.watermark is None or time > self.watermark else self.watermark
        if limits.windowing is not None:
            line = self.watermark - limits.windowing.grace - limits.windowing.max_out_of_orderness
            self.closed = max(self.closed, line)
        return True

    def evict(self, line):
        for name in [name for name in self.cells if name != "all" and sum(map(int, name.split("+"))) <= line]:
            self.cells["all"] = [a + b for a, b in zip(self.cells["all"], self.cells.pop(name), strict=True)]
        self.evicted_to = max(self.evicted_to, line)

    def said(self):
        names = (
            "rejected",
            "late",
            "undated",
            "accepted",
            "watermark",
            "closed",
            "first_start",
            "evicted_to",
            "cells",
        )
        return {name: getattr(self, name) for name in names}


def said(state):
    cells = {name: cell.state.tolist() for name, cell in cells_of(state).items()}
    assert {name: cell.reports for name, cell in cells_of(state).items()} == {
        n: sum(c) for n, c in cells.items()
    }
    assert state.total().state.tolist() == [sum(entries) for entries in zip(*cells.values(), strict=True)]
    stored = {"rejected": state.rejected, "accepted": state.accepted, "cells": cells} | state.windows.stored()
    return {name: value for name, value in stored.items() if name not in ("gap_bounds", "admitted_from")}


def batch_of(log, start, end):
    part = [one for one in log if start <= one[0] < end]
    values = [what if isinstance(what, bytes) else frame(what) for _, _, what in part]
    columns = Columns.of([one[0] for one in part], [one[1] for one in part], values)
    return Batch(0, start, end, columns)


def stored_and_loaded(state):
    """The state as the next owner has it."""
    state = dataclasses.replace(state, changed=set(state.cells))
    metadata, blobs = layout.dump(state, layout.initial(LINEAGE, state), "ab" * 16)
    again = layout.load(ldp.Fleet((STREAM,)), layout.parse(layout.fields(metadata, "k"), "k"), blobs)
    assert said(again) == said(state)
    return again


@pytest.mark.parametrize("seed", range(120))
def test_reports_are_placed_in_batches_as_record_by_record(seed):
    rng = random.Random(f"panes {seed}")
    log = make_log(rng, rng.choice([5, 40, 150]))
    listed, start, end = make_rules(rng, log), log[0][0], log[-1][0] + 1
    state, plain = ruled(STREAM, listed, start), Plain(listed, start)
    longest = rng.choice([1, 4, 30, 200])
    while state.offset < end:
        until = min(end, state.offset + rng.randint(1, longest))
        at = state.offset
        verdicts = state.apply(batch_of(log, at, until)).verdicts
        counted = [one for one in log if at <= one[0] < state.offset]
        assert len(verdicts) == len(counted)
        for one in counted:
            assert plain.count(*one), "counted without room"
        plain.begin(state.offset)
        assert said(state) == plain.said()
        if state.offset < until:  # no capacity was left for the next one
            following = next(one for one in log if one[0] == state.offset)
            assert not plain.count(*following)
            assert len(state.apply(batch_of(log, state.offset, until)).verdicts) == 0
            line = sorted(sum(map(int, name.split("+"))) for name in cells_of(state) if name != "all")[
                rng.choice([0, -1])
            ]
            state.evict(line)
            plain.evict(line)
        elif rng.random() < 0.1:
            line = state.windows.closed - rng.choice([0, 120 * MINUTE])
            if line > 0:
                state.evict(line)
                plain.evict(line)
        if rng.random() < 0.2:
            state = stored_and_loaded(state)
    accepted = state.accepted + sum(state.rejected.values())
    assert accepted == len(log)
    assert sum(state.windows.late.values()) + state.windows.undated <= state.accepted


def run(times, windowing, cuts=(), before=None):
    """Counts a report at each of some times; the state."""
    state = ruled(STREAM, before or [Rule(0, 1, RecordLimits(None, True, None, windowing))])
    log = [(offset, time, [offset % 3]) for offset, time in enumerate(times)]
    for a, b in itertools.pairwise([0, *cuts, len(times)]):
        state.apply(batch_of(log, a, b))
    return state


HOURLY = Windowing(("1h",))
HOUR = 60 * MINUTE


def test_a_gap_keeps_its_watermark_and_the_first_later_time():
    state = run([2 * HOUR], HOURLY)
    state.skip(4)
    state.skip(6)
    assert state.windows.gap_bounds == [(2 * HOUR, None)] * 2
    log = [(6, -1, [0]), (7, 3 * HOUR, b""), (8, HOUR, [0]), (9, 2 * HOUR, [0])]
    log += [(10, 2 * HOUR, [0]), (11, 4 * HOUR, [0]), (12, 3 * HOUR, [0])]
    state.apply(batch_of(log, 6, 10))  # a late record, or one that is not newer, moves nothing
    assert state.windows.gap_bounds == [(2 * HOUR, None)] * 2
    state.apply(batch_of(log, 10, 13))
    assert state.windows.gap_bounds == [(2 * HOUR, 4 * HOUR)] * 2
    assert state.gaps == [(1, 4), (4, 6)]


def test_the_watermark_of_an_admitted_partition_has_a_minimum():
    state = ruled(STREAM, [Rule(0, 1, RecordLimits(None, True, None, HOURLY))])
    state.windows.admit(2 * HOUR)
    log = [(0, 2 * HOUR - 1, [0]), (1, 2 * HOUR, [1])]
    state.apply(batch_of(log, 0, 2))
    assert (state.windows.admitted_from, state.windows.closed, state.windows.late) == (
        2 * HOUR,
        2 * HOUR,
        {"1m": 1},
    )
    assert cells_of(state).keys() == {"all", f"{2 * HOUR}+{HOUR}"}
    state.windows.admit(HOUR)
    assert state.windows.closed == 2 * HOUR  # it never falls


def test_a_window_is_the_sum_of_its_panes_at_any_length():
    rules = [
        Rule(0, 1, RecordLimits(None, True, None, Windowing(("1h", "30m"), grace=9 * HOUR))),
        Rule(3, 2, RecordLimits(None, True, None, Windowing(("1h",), grace=9 * HOUR))),
    ]
    times = [HOUR, HOUR + 29 * MINUTE, HOUR + 30 * MINUTE, HOUR + 59 * MINUTE, 2 * HOUR, -1]
    state = run(times, None, before=rules)
    hour = state.total(start=HOUR, end=2 * HOUR)
    assert (hour.reports, hour.state.tolist()) == (4, [2, 1, 1])  # offsets 0 to 3
    assert state.total(start=HOUR, end=HOUR + 30 * MINUTE).reports == 2
    assert state.total().reports == 6
    assert state.windows.first_start == {"1h": 0}


def test_counting_stops_exactly_at_the_record_that_needs_a_pane_too_many():
    windowing = Windowing(("1h",))
    assert windowing.most_panes == 6
    state = ruled(STREAM, [Rule(0, 1, RecordLimits(None, True, None, windowing))])
    log = [(at, at * HOUR, [0]) for at in range(6)]
    log += [(6, 0, b""), (7, 5 * HOUR, [1]), (8, 9 * HOUR, [2]), (9, 0, b"\x07noise")]
    bad = Unreadable(10, 12, 5, "", "codec")
    batch = dataclasses.replace(batch_of(log, 0, 12), unreadable=(bad,))
    assert state.apply(batch).verdicts.tolist()[:6] == [0] * 6
    assert (state.offset, state.accepted, state.rejected) == (8, 7, {"empty": 1})
    assert cells_of(state)[f"{5 * HOUR}+{HOUR}"].state.tolist() == [1, 1, 0]
    state.evict(HOUR)
    rest = dataclasses.replace(batch_of(log, 8, 12), unreadable=(bad,))
    assert len(state.apply(rest).verdicts) == 2
    assert (state.offset, state.accepted) == (12, 8)
    assert state.rejected == {"empty": 1, "version": 1, "batch": 1}
    assert f"{9 * HOUR}+{HOUR}" in cells_of(state)


@pytest.mark.parametrize("windows", [("24h every 1h",), ("1h", "90m every 30m"), ("2h",)])
def test_a_snapshot_has_no_more_windows_than_its_computed_cost(windows):
    windowing = Windowing(("all", *windows))
    state, most = ruled(STREAM, [Rule(0, 1, RecordLimits(None, True, None, windowing))]), windowing.most_panes
    log = [(at, 24 * HOUR + at * windowing.pane, [0]) for at in range(most + 1)]
    state.apply(batch_of(log, 0, most + 1))
    assert len(state.panes) == state.offset == most  # it has no capacity for one more
    due = window_progress.decide(Head(), {0: state}, [0], lambda _: False).due
    served = Served(
        ldp.Fleet((STREAM,)),
        "reports",
        configured=RequestedRule(limits=RecordLimits(None, True, None, windowing)),
    )
    assert served.cost.at_once == len(due)


def test_a_pane_dropped_in_its_commit_is_not_written():
    state = ruled(STREAM, [Rule(0, 1, RecordLimits(None, True, None, Windowing(("1h",))))])
    state.apply(batch_of([(0, 0, [0]), (1, 2 * HOUR, [1])], 0, 2))
    assert {key_in(state, f"0+{HOUR}"), key_in(state, f"{2 * HOUR}+{HOUR}")} < state.changed
    state.evict(HOUR)
    metadata, blobs = layout.dump(state, layout.initial(LINEAGE, state), "ab" * 16)
    assert blobs.keys() == metadata.blobs.keys() == {"all@8e9f39d0", f"{2 * HOUR}+{HOUR}@8e9f39d0"}
    assert cells_of(state)["all"].state.tolist() == [1, 0, 0]


def test_ages_include_their_upper_bound():
    edges = [0, 1, 10, 60, 360, 1440, 10080]
    names = ["1m", "1m", "10m", "1h", "6h", "1d", "7d"]
    for minutes, name in zip(edges, names, strict=True):
        end = 20_000 * MINUTE - minutes * MINUTE
        for more, age in (
            (0, name),
            (1, (*lateness.AGES, "older")[lateness.AGES.index(name) + (minutes > 0)]),
        ):
            line, one = 20_000 * MINUTE + more, np.ones(1, np.int64)
            placed = lateness.place(np.array([end - 1]), one, 1, 0, line, hold=0, pane=MINUTE, most=1)
            assert (placed.starts, placed.late) == ([lateness.LATE], {age: 1}), minutes
