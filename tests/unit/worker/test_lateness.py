"""Where records count does not depend on where a batch ends, and what is no time says nothing of time."""

import random

import numpy as np
import pytest

import ldp
from ldp import frames
from worker.counting import lateness
from worker.counting.columns import Batch, Columns
from worker.counting.partition import Cell, PartitionState
from worker.counting.rules import Rule, Terms
from worker.counting.windows import Windowing


@pytest.mark.parametrize("seed", range(200))
def test_placed_together_is_placed_one_by_one(seed):
    rng = random.Random(seed)
    # the highest timestamp may be far beyond the line: windows are new, or wait for less than they did
    watermark, closed = rng.choice([(None, 0), (-1, 0), (-5, 0), (95, 0), (95, 40), (60, 95)])
    hold, pane = rng.randrange(60), rng.choice([1, 10, 25])
    times = [rng.choice([rng.randrange(-2, 120), rng.randrange(80, 90)]) for _ in range(rng.randrange(1, 9))]
    placed = lateness.place(np.array(times), watermark, closed, hold, pane)
    starts = np.repeat(placed.starts, np.diff(placed.ends, prepend=0)).tolist()
    late = 0
    for time, found in zip(times, starts, strict=True):
        end = time // pane * pane + pane
        assert found == (lateness.UNDATED if time < 0 else lateness.LATE if end <= closed else end - pane)
        late += found == lateness.LATE
        watermark = time if watermark is None else max(watermark, time)
        closed = max(closed, watermark - hold)
    assert (placed.watermark, placed.closed, placed.late.total()) == (watermark, closed, late)


@pytest.mark.parametrize("records", [2, 127, 128, 129, 1_500])
@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("panes", [1, 2, 40])
def test_reports_are_together_with_those_of_their_pane_in_the_logs_order(records, many, panes):
    rng = random.Random(f"{records} {many} {panes}")
    times = [
        rng.randrange(7 * panes) for _ in range(records)
    ]  # a run each, and more of them than room is made for
    counts = [rng.randrange(1, 4) if many else 1 for _ in times]
    reports = np.array([(k, k % 5) for k in range(sum(counts))], [("seed", "<u4"), ("bucket", "u1")])
    expected, at = {}, 0
    for time, count in zip(times, counts, strict=True):
        expected.setdefault(time // 7 * 7, []).extend(range(at, at + count))
        at += count
    placed = lateness.place(np.array(times), None, 0, 1_000, 7)
    found = lateness.together(placed, reports, np.array(counts))
    assert [(start, own.tolist()) for start, own in found] == [
        (start, [(k, k % 5) for k in expected[start]]) for start in sorted(expected)
    ]


@pytest.mark.parametrize("seed", range(20))
def test_many_are_placed_as_one_by_one(seed):
    rng = random.Random(seed)
    hold, pane = rng.choice([3, 40, 400]), rng.choice([5, 300])
    times = [k // 4 + rng.randrange(-8, 60) for k in range(4_000)]
    placed = lateness.place(np.array(times), 0, 0, hold, pane)
    closed, expected = 0, []
    for time in times:
        end = time // pane * pane + pane
        expected.append(lateness.UNDATED if time < 0 else lateness.LATE if end <= closed else end - pane)
        closed = max(closed, time - hold)
    assert np.repeat(placed.starts, np.diff(placed.ends, prepend=0)).tolist() == expected
    assert (placed.watermark, placed.closed) == (max(times), closed)
    assert placed.late.total() == expected.count(lateness.LATE)
    assert placed.undated == expected.count(lateness.UNDATED)


def test_the_first_time_after_a_gap_is_a_time():
    stream = ldp.Stream("s", ldp.GRR("1", domain_size=3))
    good = frames.encode(stream, np.array([(2,)], stream.oracle.report_dtype))
    state = PartitionState.fresh(stream, 0)
    state.skip(5)
    state.apply(stream, Batch(0, 5, 6, Columns.of([5], [-1], [good])))
    assert state.around == [(0, None)]
    state.apply(stream, Batch(0, 6, 8, Columns.of([6, 7], [-1, 70], [good, good])))
    assert state.around == [(0, 70)]


@pytest.mark.parametrize("seed", range(100))
def test_late_records_are_told_with_what_they_met_wherever_batches_end(seed):
    """Record by record, over changes of the rule and malformed ones between them, against the contract's words."""
    rng = random.Random(seed)
    stream = ldp.Stream("s", ldp.GRR("1", domain_size=3))
    good = frames.encode(stream, np.array([(2,)], stream.oracle.report_dtype))
    windowings = [None, Windowing(("all", "5s"), 2_000, 1_000), Windowing(("all", "3s"), 0, 1_000)]
    rules, at = [], 0
    for windowing in rng.sample(windowings, 3):
        rules.append(Rule(at, len(rules) + 1, Terms(1, ones=True, windowing=windowing)))
        at += rng.randrange(1, 20)
    state = PartitionState(0, 0, rules=rules, cells={"all": Cell(0, stream.oracle.zeros())})
    times = [rng.randrange(-1, 12_000) for _ in range(50)]
    values = [good if rng.random() < 0.8 else b"noise" for _ in times]
    expected, newest, closed = {}, None, 0
    for offset, (time, value) in enumerate(zip(times, values, strict=True)):
        windowing = [rule for rule in rules if rule.offset <= offset][-1].terms.windowing
        if value != good:
            continue
        newest = time if newest is None else max(newest, time)
        if windowing is not None:
            start = time // windowing.pane * windowing.pane
            if time >= 0 and start + windowing.pane <= closed:
                expected[offset] = (time, start, closed, windowing.pane)
            closed = max(closed, newest - windowing.hold)
    found, first = {}, 0
    while first < len(times):
        end = min(len(times), first + rng.randrange(1, 30))
        offsets = range(first, end)
        batch = Batch(0, first, end, Columns.of(offsets, times[first:end], values[first:end]))
        told = []
        state.apply(stream, batch, on_late=told.append)
        for late in told:
            rows = zip(late.at, late.times, late.starts, late.lines, strict=True)
            found |= {first + int(i): (*map(int, facts), late.pane) for i, *facts in rows}
        first = end
    assert found == expected
    assert len(found) == sum(state.late.values())


def test_a_late_record_that_has_no_room_is_not_told_before_it_is_counted():
    stream = ldp.Stream("s", ldp.GRR("1", domain_size=3))
    good = frames.encode(stream, np.array([(2,)], stream.oracle.report_dtype))
    windowing = Windowing(("all", "1s"), 0, 0)
    rule = Rule(0, 1, Terms(1, ones=True, windowing=windowing))
    state = PartitionState(0, 0, rules=[rule], cells={"all": Cell(0, stream.oracle.zeros())})
    n = windowing.most_panes
    times = [1000 * k for k in range(n + 1)] + [0]
    told = []
    state.apply(
        stream, Batch(0, 0, n + 2, Columns.of(range(n + 2), times, [good] * (n + 2))), on_late=told.append
    )
    assert (state.offset, told) == (n, [])
    state.drop(3000)
    rest = Batch(0, n, n + 2, Columns.of([n, n + 1], times[n:], [good] * 2))
    state.apply(stream, rest, on_late=told.append)
    (late,) = told
    assert (late.at.tolist(), late.times.tolist(), late.lines.tolist()) == ([1], [0], [1000 * n])
