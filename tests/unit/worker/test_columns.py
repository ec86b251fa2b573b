"""Slices of a batch: together they are the batch, and none costs more than allowed unless it is one record."""

import numpy as np
import pytest

import ldp
from ldp import frames, wire
from tests.support.cells import cells_of
from worker.counting import partition_state
from worker.counting.columns import Batch, Columns, Unreadable
from worker.counting.partition_state import PartitionState

HEADER, SIZE, WORK = 5, 3, 10


def drawn(rng):
    """A batch of records of many sizes, with gaps between their offsets and around them."""
    count = int(rng.integers(0, 40))
    offsets = np.cumsum(rng.integers(1, 4, count)) + 100
    values = [rng.bytes(int(rng.choice([0, 3, 8, 50, 500]))) for _ in range(count)]
    end = int(offsets[-1] + rng.integers(1, 4)) if count else 107
    return Batch(3, 99, end, Columns.of(offsets.tolist(), (offsets * 7).tolist(), values))


def cost(columns):
    return sum(max(0, len(columns.value(i)) - HEADER) // SIZE * WORK for i in range(len(columns)))


@pytest.mark.parametrize("most", [1, 30, 200, 1000, 10**9])
def test_slices_cover_the_batch_and_are_bounded(most):
    rng = np.random.default_rng(9)
    for _ in range(200):
        batch = drawn(rng)
        slices = batch.slices(HEADER, SIZE, WORK, most)
        assert {one.partition for one in slices} == {batch.partition}
        assert [slices[0].start, *(one.end for one in slices)] == [
            *(one.start for one in slices),
            batch.end,
        ]
        assert slices[0].start == batch.start
        for one in slices:
            assert ((one.start <= one.columns.offsets) & (one.columns.offsets < one.end)).all()
            assert cost(one.columns) <= most or len(one.columns) == 1
        for field in ("offsets", "timestamps", "begins", "ends"):
            joined = np.concatenate([getattr(one.columns, field) for one in slices])
            np.testing.assert_array_equal(joined, getattr(batch.columns, field))
        values = [one.columns.value(i) for one in slices for i in range(len(one.columns))]
        assert values == [batch.columns.value(i) for i in range(len(batch.columns))]


def test_a_batch_cut_at_an_offset_keeps_unreadable_batches_that_end_there():
    bad = [Unreadable(offset, offset + 2, 9, "", "codec") for offset in (2, 6, 8)]
    batch = Batch(0, 0, 12, Columns.of([0, 5], [0, 0], [b"a", b"b"]), tuple(bad))
    for offset, records, found in ((1, 1, 0), (3, 1, 0), (4, 1, 1), (8, 2, 2), (10, 2, 3), (12, 2, 3)):
        part = batch.until(offset)
        assert (part.start, part.end, len(part.columns)) == (0, offset, records)
        assert part.unreadable == tuple(bad[:found])


@pytest.mark.parametrize("protocol", ["grr", "olh", "oue", "subset", "hadamard", "pgr"])
def test_a_state_does_not_depend_on_slices_of_its_batch(protocol, monkeypatch):
    stream = ldp.Stream("s", ldp.oracle(protocol, epsilon="1", domain_size=30))
    rng = np.random.default_rng(5)
    sizes = [1, 7, 40, 1, 3]
    values = [frames.encode(stream, stream.oracle.perturb(rng.integers(0, 30, n), rng=rng)) for n in sizes]
    values.insert(2, b"noise")
    batch = Batch(0, 10, 30, Columns.of([10, 11, 15, 20, 21, 28], range(6), values))
    whole = PartitionState.fresh(ldp.Fleet((stream,)), 10)
    reasons = whole.apply(batch).verdicts

    monkeypatch.setattr(partition_state, "MOST_COST", 4 * stream.oracle.cost)
    cut, beats, said = PartitionState.fresh(ldp.Fleet((stream,)), 10), [], {}
    slices = batch.slices(
        wire.HEADER_BYTES, stream.oracle.report_bytes, stream.oracle.cost, partition_state.MOST_COST
    )
    assert len(slices) > 1
    for one in slices:
        found = cut.apply(one, lambda: beats.append(None)).verdicts
        said |= dict(zip(one.columns.offsets.tolist(), found.tolist(), strict=True))
    assert len(beats) >= sum(sizes) / 4  # also within the record of forty
    assert said == dict(zip(batch.columns.offsets.tolist(), reasons.tolist(), strict=True))
    assert [offset for offset, verdict in said.items() if verdict] == [15]
    np.testing.assert_array_equal(cells_of(cut)["all"].state, cells_of(whole)["all"].state)
    for state in (cut, whole):
        state.cells = {name: cell.reports for name, cell in cells_of(state).items()}
    assert cut == whole
