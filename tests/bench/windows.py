"""Counting in windows: the same batches counted in panes of an hour, against counts of all time alone."""

from collections.abc import Iterator

import numpy as np

import ldp
from ldp import frames
from tests.bench.measure import Line, compare
from worker.counting.columns import Batch, Columns
from worker.counting.partition import PartitionState
from worker.counting.rules import Configured, Terms
from worker.counting.windows import UNITS, Windowing

RECORDS, BATCHES = 7_000, 40
JITTER = 30_000
"""By how many milliseconds timestamps are out of their order."""
WINDOWED = Windowing(("all", "24h every 1h"), grace=10 * UNITS["m"], out_of_order=UNITS["m"])


def lines() -> Iterator[Line]:
    """Records a second, where a batch is of some minutes and where it is of some hours."""
    stream = ldp.Stream("bench", ldp.GRR("1", domain_size=1024))
    for span in ("10m", "1h"):
        log = batches(stream, int(span[:-1]) * UNITS[span[-1]])
        with_windows, without = (count(stream, log, windowing) for windowing in (WINDOWED, None))
        assert len(with_windows.cells) > 1, "nothing counts in a pane"
        assert np.array_equal(with_windows.total().state, without.total().state), "windows count otherwise"
        yield compare(
            f"count in windows, {span} a batch",
            lambda log=log: count(stream, log, WINDOWED),  # type: ignore[misc]
            lambda log=log: count(stream, log, None),  # type: ignore[misc]
            peer_name="without windows",
            setup=f"GRR, d=1024, one report a record, {RECORDS} records a batch, 24h every 1h",
            rate=(RECORDS * BATCHES, "records"),
        )


def batches(stream: ldp.Stream, span: int) -> list[Batch]:
    """Batches one behind the other, each of so many milliseconds."""
    rng, made = np.random.default_rng(5), []
    for k in range(BATCHES):
        indices = rng.integers(stream.oracle.domain_size, size=RECORDS)
        reports = stream.oracle.perturb(indices, rng=rng)
        values = [frames.encode(stream, reports[i : i + 1]) for i in range(RECORDS)]
        times = 1_700_000_000_000 + k * span + np.sort(rng.integers(span, size=RECORDS))
        times -= rng.integers(JITTER, size=RECORDS)
        start = k * RECORDS
        columns = Columns.of(range(start, start + RECORDS), times.tolist(), values)
        made.append(Batch(0, start, start + RECORDS, columns))
    return made


def count(stream: ldp.Stream, log: list[Batch], windowing: Windowing | None) -> PartitionState:
    """Counts all of them."""
    terms = Terms(10_000, ones=True, windowing=windowing)
    state = PartitionState.fresh(stream, 0, Configured(terms=terms))
    for batch in log:
        state.apply(stream, batch)
    assert state.offset == RECORDS * BATCHES
    return state
