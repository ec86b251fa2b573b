"""Counting in windows: the same batches counted in panes of an hour, against counts of all time alone."""

import itertools
from collections.abc import Iterator

import numpy as np

import ldp
from ldp import frames
from tests.bench.measure import Line, compare
from worker.counting.columns import Batch, Columns
from worker.counting.partition_state import PartitionState
from worker.counting.rules import RecordLimits, RequestedRule
from worker.counting.windows import UNITS, Windowing

SIZES = ((7_000, 40), (40_000, 10))
"""Records a batch and batches: small ones, and what half a mebibyte of the log has."""
JITTERS = {"in order": 1, "jittered": 30_000}
"""By how many milliseconds timestamps are out of their order."""
WINDOWED = Windowing(("all", "24h every 1h"), grace=10 * UNITS["m"], out_of_order=UNITS["m"])
PATIENT = Windowing(("all", "24h every 1h"), grace=24 * UNITS["h"], out_of_order=UNITS["m"])
"""Where a record is of any pane of the last 20 hours, and none is late."""


def lines() -> Iterator[Line]:
    """Records a second, where a batch is of some seconds, as in a live stream, of minutes or hours, as where a log is
    counted again, and where each record is of any pane."""
    stream = ldp.Stream("bench", ldp.GRR("1", domain_size=1024))
    for (records, n), span, order in itertools.product(SIZES, ("10s", "10m", "1h", "6h"), JITTERS):
        fewer = min(n, 8) if span == "6h" else n  # no head closes panes here, and there is room for 54
        log = batches(stream, records, fewer, int(span[:-1]) * UNITS[span[-1]], JITTERS[order])
        yield line(stream, log, f"count in windows, {records} in {span} a batch, {order}", WINDOWED)
    for records, n in SIZES:
        log = batches(stream, records, n, UNITS["m"], 20 * UNITS["h"])
        yield line(stream, log, f"count in windows, {records} a batch, each in any pane", PATIENT)


def line(stream: ldp.Stream, log: list[Batch], name: str, windowing: Windowing) -> Line:
    """Counts a log in windows and without them."""
    with_windows, without = count(stream, log, windowing), count(stream, log, None)
    assert len(with_windows.cells) > 1, "nothing counts in a pane"
    assert np.array_equal(with_windows.total().state, without.total().state), "windows count otherwise"
    records = len(log[0].columns)
    return compare(
        name,
        lambda: count(stream, log, windowing),
        lambda: count(stream, log, None),
        peer_name="without windows",
        setup=f"GRR, d=1024, one report a record, {records} records a batch, 24h every 1h",
        rate=(records * len(log), "records"),
    )


def batches(stream: ldp.Stream, records: int, n: int, span: int, jitter: int) -> list[Batch]:
    """Batches of so many records one behind the other, each of so many milliseconds."""
    rng, made = np.random.default_rng(5), []
    for k in range(n):
        indices = rng.integers(stream.oracle.domain_size, size=records)
        reports = stream.oracle.perturb(indices, rng=rng)
        values = [frames.encode(stream, reports[i : i + 1]) for i in range(records)]
        times = 1_700_000_000_000 + k * span + np.sort(rng.integers(span, size=records))
        times -= rng.integers(jitter, size=records)
        start = k * records
        columns = Columns.of(range(start, start + records), times.tolist(), values)
        made.append(Batch(0, start, start + records, columns))
    return made


def count(stream: ldp.Stream, log: list[Batch], windowing: Windowing | None) -> PartitionState:
    """Counts all of them."""
    terms = RecordLimits(10_000, ones=True, windowing=windowing)
    state = PartitionState.fresh(stream, 0, RequestedRule(terms=terms))
    for batch in log:
        state.apply(stream, batch)
    assert state.offset == log[-1].end
    return state
