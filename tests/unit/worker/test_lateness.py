"""Where records count does not depend on where a batch ends, and what is no time says nothing of time."""

import random

import numpy as np
import pytest

import ldp
from ldp import frames
from worker.counting import lateness
from worker.counting.columns import Batch, Columns
from worker.counting.partition import PartitionState


@pytest.mark.parametrize("seed", range(200))
def test_placed_together_is_placed_one_by_one(seed):
    rng = random.Random(seed)
    # the highest timestamp may be far beyond the line: windows are new, or wait for less than they did
    watermark, closed = rng.choice([(None, 0), (-1, 0), (-5, 0), (95, 0), (95, 40), (60, 95)])
    hold, pane = rng.randrange(60), rng.choice([1, 10, 25])
    times = [rng.choice([rng.randrange(-2, 120), rng.randrange(80, 90)]) for _ in range(rng.randrange(1, 9))]
    placed = lateness.place(np.array(times), watermark, closed, hold, pane)
    starts = np.broadcast_to(placed.starts, len(times)).tolist()
    late = 0
    for time, found in zip(times, starts, strict=True):
        end = time // pane * pane + pane
        assert found == (lateness.UNDATED if time < 0 else lateness.LATE if end <= closed else end - pane)
        late += found == lateness.LATE
        watermark = time if watermark is None else max(watermark, time)
        closed = max(closed, watermark - hold)
    assert (placed.watermark, placed.closed, placed.late.total()) == (watermark, closed, late)


def test_the_first_time_after_a_gap_is_a_time():
    stream = ldp.Stream("s", ldp.GRR("1", domain_size=3))
    good = frames.encode(stream, np.array([(2,)], stream.oracle.report_dtype))
    state = PartitionState.fresh(stream, 0)
    state.skip(5)
    state.apply(stream, Batch(0, 5, 6, Columns.of([5], [-1], [good])))
    assert state.around == [(0, None)]
    state.apply(stream, Batch(0, 6, 8, Columns.of([6, 7], [-1, 70], [good, good])))
    assert state.around == [(0, 70)]
