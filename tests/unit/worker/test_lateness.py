"""Where records count does not depend on batch ends, and an invalid time moves no watermark."""

import random

import numpy as np
import pytest

import ldp
from ldp import frames
from tests.support.cells import ruled
from worker.counting import lateness
from worker.counting.columns import Batch, Columns
from worker.counting.partition_state import PartitionState
from worker.counting.rules import RecordLimits, Rule
from worker.counting.windows import Windowing


def place(times, watermark, closed, hold, pane, counts=None, most=10_000):
    counts = np.ones(len(times), np.int64) if counts is None else np.array(counts)
    times = np.array(times)
    return lateness.place(
        times, counts, int(counts.sum()), watermark, closed, hold=hold, pane=pane, most=most
    )


def starts_of(placed):
    """The start that each report has."""
    owners, ends = placed.runs
    return np.repeat(np.array(placed.starts)[owners], np.diff(ends, prepend=0)).tolist()


def one_by_one(times, watermark, closed, hold, pane):
    """The same by Python's integers, a record at a time: the starts, how many were late, the watermark and the line."""
    starts, watermark = [], -1 if watermark is None else max(-1, watermark)
    for time in times:
        end = time // pane * pane + pane
        if not 0 <= time < 253_370_678_400_000:
            starts.append(lateness.UNDATED)
        else:
            starts.append(lateness.LATE if end <= closed else end - pane)
            watermark = max(watermark, time)
        closed = max(closed, watermark - hold)
    return starts, starts.count(lateness.LATE), starts.count(lateness.UNDATED), watermark, closed


def expect(times, watermark, closed, hold, pane, **more):
    placed = place(times, watermark, closed, hold, pane, **more)
    starts, *rest = one_by_one(times, watermark, closed, hold, pane)
    assert [sum(placed.late.values()), placed.undated, placed.watermark, placed.closed] == rest
    counts = more.get("counts") or [1] * len(times)
    assert starts_of(placed) == [start for start, n in zip(starts, counts, strict=True) for _ in range(n)]
    assert placed.starts == list(dict.fromkeys(starts))
    assert placed.firsts == [starts.index(start) for start in placed.starts]
    assert placed.sizes == [starts_of(placed).count(start) for start in placed.starts]


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("many", [False, True])
def test_logs_of_every_kind_are_placed_as_record_by_record(seed, many):
    rng = random.Random(f"{seed} {many}")
    minute, hour, now = 60_000, 3_600_000, 1_700_000_000_000
    pane = rng.choice([hour, 10 * minute, 7 * minute + 1, 366 * 24 * hour, 1000])
    hold = rng.choice([0, minute, hour, 24 * hour])
    jitter = rng.choice([1, 30_000, hour, 20 * hour])
    step = rng.choice([0, 2, 400, 20_000])
    times = []
    for _ in range(rng.choice([1, 127, 128, 129, 700, 3_000])):
        now += rng.randrange(step + 1)
        if rng.random() < 0.001:
            now += rng.choice([5 * hour, 400 * 24 * hour])  # nothing came for long
        time = now - rng.randrange(jitter)
        if rng.random() < 0.003:
            time = rng.choice(
                [-1, -(1 << 63), (1 << 63) - 1, 253_370_678_400_000, 253_370_678_399_999, 0, now + hour]
            )
        elif rng.random() < 0.1:
            time = rng.choice([0, -1]) + time - time % pane  # at an edge
        times.append(max(time, -(1 << 63)))
    line = rng.choice([0, now - 10 * hour])
    counts = [rng.randrange(1, 5) for _ in times] if many else None
    expect(times, rng.choice([None, line + hold]), line, hold, pane, counts=counts)


@pytest.mark.parametrize("pane", [1, 999, 1000, 3_600_000, 366 * 24 * 3_600_000])
def test_the_edges_of_panes_are_exact_up_to_the_end_of_time(pane):
    rng = random.Random(pane)
    numbers = [
        0,
        1,
        253_370_678_399_999 // pane,
        *(rng.randrange(253_370_678_399_999 // pane) for _ in range(99)),
    ]
    times = [number * pane + off for number in numbers for off in (-1, 0, 1, pane - 1)]
    times = [time for time in times if time < 253_370_678_400_000]
    expect(times, None, 0, 1 << 50, pane)


@pytest.mark.parametrize("most", [1, 40, 61, 62, 63, 200])
def test_timestamps_within_the_pane_limit_are_placed(most):
    panes = [k * 64 for k in range(most)]  # hardest to distinguish
    expect([10 * pane for pane in panes] * 3, None, 0, 1 << 40, 10, most=most)
    expect([-1, *(10 * pane for pane in panes), -1], None, 0, 0, 10, most=most)
    beyond = place([10 * k * 64 for k in range(3 * most + 9)] * 99, None, 0, 1 << 40, 10, most=most)
    assert len(beyond.starts) > most
    assert beyond.firsts[: most + 1] == [*range(most + 1)]


def test_the_first_time_after_a_gap_is_a_time():
    stream = ldp.Stream("s", ldp.GRR("1", domain_size=3))
    good = frames.encode(stream, np.array([(2,)], stream.oracle.report_dtype))
    state = PartitionState.fresh(ldp.Fleet((stream,)), 0)
    state.skip(5)
    state.apply(Batch(0, 5, 6, Columns.of([5], [-1], [good])))
    assert state.windows.gap_bounds == [(0, None)]
    state.apply(Batch(0, 6, 8, Columns.of([6, 7], [-1, 70], [good, good])))
    assert state.windows.gap_bounds == [(0, 70)]


@pytest.mark.parametrize("seed", range(100))
def test_late_records_are_reported_equally_for_all_batch_boundaries(seed):
    """Record by record, over changes of the rule and malformed ones between them, against the contract's words."""
    rng = random.Random(seed)
    stream = ldp.Stream("s", ldp.GRR("1", domain_size=3))
    good = frames.encode(stream, np.array([(2,)], stream.oracle.report_dtype))
    windowings = [None, Windowing(("all", "5s"), 2_000, 1_000), Windowing(("all", "3s"), 0, 1_000)]
    rules, at = [], 0
    for windowing in rng.sample(windowings, 3):
        rules.append(Rule(at, len(rules) + 1, RecordLimits(1, hamming_weight=True, windowing=windowing)))
        at += rng.randrange(1, 20)
    state = ruled(stream, rules)
    times = [rng.randrange(-1, 12_000) for _ in range(50)]
    values = [good if rng.random() < 0.8 else b"noise" for _ in times]
    expected, newest, closed = {}, None, 0
    for offset, (time, value) in enumerate(zip(times, values, strict=True)):
        windowing = [rule for rule in rules if rule.offset <= offset][-1].limits.windowing
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
        for late in state.apply(batch, name_late=True).late_records:
            rows = zip(late.at, late.times, late.starts, late.closed, strict=True)
            found |= {first + int(i): (*map(int, facts), late.pane) for i, *facts in rows}
        first = end
    assert found == expected
    assert len(found) == sum(state.windows.late.values())


def test_a_late_record_is_reported_only_when_it_is_counted():
    stream = ldp.Stream("s", ldp.GRR("1", domain_size=3))
    good = frames.encode(stream, np.array([(2,)], stream.oracle.report_dtype))
    windowing = Windowing(("all", "1s"), 0, 0)
    rule = Rule(0, 1, RecordLimits(1, hamming_weight=True, windowing=windowing))
    state = ruled(stream, [rule])
    n = windowing.most_panes
    times = [1000 * k for k in range(n + 1)] + [0]
    batch = Batch(0, 0, n + 2, Columns.of(range(n + 2), times, [good] * (n + 2)))
    assert (state.apply(batch, name_late=True).late_records, state.offset) == ([], n)
    state.evict(3000)
    rest = Batch(0, n, n + 2, Columns.of([n, n + 1], times[n:], [good] * 2))
    (late,) = state.apply(rest, name_late=True).late_records
    assert (late.at.tolist(), late.times.tolist(), late.closed.tolist()) == ([1], [0], [1000 * n])
