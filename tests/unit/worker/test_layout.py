"""What is written to Redis is read back, and anything missing or mismatched is noticed."""

import dataclasses

import numpy as np
import pytest

import ldp
from ldp import frames
from worker.counting import layout
from worker.counting.columns import Batch, Columns
from worker.counting.lineage import lineage_of
from worker.counting.partition import PartitionState
from worker.counting.ports import StateLost

STREAM = ldp.Stream("colours", ldp.GRR(epsilon="1", domain_size=3))
FLUSH, OTHER = "ab" * 16, "cd" * 16


def committed():
    state = PartitionState.fresh(STREAM, start=5)
    good = frames.encode(STREAM, np.array([(2,), (0,), (2,)], STREAM.oracle.report_dtype))
    state.skip(7)
    state.apply(STREAM, Batch(0, 7, 12, Columns.of([7, 8, 10], [1005, 1001, 1009], [good, b"\x00", good])))
    before = layout.initial(lineage_of("group", STREAM, "topic"), PartitionState.fresh(STREAM, 5))
    return state, *layout.dump(state, before, FLUSH)


def test_round_trip():
    state, metadata, blobs = committed()
    again = layout.load(STREAM, layout.parse(layout.fields(metadata)), blobs)
    assert dataclasses.replace(again, windows={}) == dataclasses.replace(state, windows={}, changed=set())
    assert again.windows["all"].reports == 6
    assert again.windows["all"].state.tolist() == [2, 0, 4]
    assert (again.accepted, again.rejected, again.watermark, again.gaps) == (
        2,
        {"version": 1},
        1009,
        [(5, 7)],
    )
    again.windows["all"].state[0] = 9  # a loaded state can be counted on


def test_the_bytes_of_a_blob():
    _, metadata, blobs = committed()
    assert list(blobs) == ["all"]
    blob = blobs["all"]
    assert blob[:4] == b"LDP1"
    assert int.from_bytes(blob[4:8], "little") == 3
    assert int.from_bytes(blob[8:16], "little") == 12
    assert blob[16:32].hex() == FLUSH == metadata.flush
    assert int.from_bytes(blob[32:40], "little") == 6
    assert [int.from_bytes(blob[40 + 8 * i : 48 + 8 * i], "little") for i in range(3)] == [2, 0, 4]


def test_an_unchanged_window_keeps_its_blob():
    state, metadata, blobs = committed()
    again = layout.load(STREAM, metadata, blobs)
    again.apply(STREAM, Batch(0, 12, 14, Columns.of([12], [2000], [b""])))
    after, changed = layout.dump(again, metadata, OTHER)
    assert changed == {}
    assert (after.offset, after.flush, after.blobs) == (14, OTHER, {"all": FLUSH})
    assert (
        layout.load(STREAM, after, blobs).windows["all"].state.tolist() == state.windows["all"].state.tolist()
    )


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda m, b: (m, {}), "are missing"),
        (lambda m, b: (m, {"all": b["all"][:-8]}), "bytes"),
        (lambda m, b: (m, {"all": b["all"] + bytes(8)}), "bytes"),
        (lambda m, b: (m, {"all": b"XXXX" + b["all"][4:]}), "another commit"),
        (lambda m, b: (dataclasses.replace(m, blobs={"all": OTHER}), b), "another commit"),
        (lambda m, b: (dataclasses.replace(m, totals="{}"), b), "cannot be read"),
        (lambda m, b: (dataclasses.replace(m, totals="nonsense"), b), "cannot be read"),
    ],
)
def test_damage_is_state_loss(damage, why):
    _, metadata, blobs = committed()
    with pytest.raises(StateLost, match=why):
        layout.load(STREAM, *damage(metadata, blobs))


@pytest.mark.parametrize("field", ["lineage", "epoch", "offset", "flush", "blobs", "totals"])
def test_a_missing_field_is_state_loss(field):
    _, metadata, _ = committed()
    fields = layout.fields(metadata)
    del fields[field]
    with pytest.raises(StateLost, match="cannot be read"):
        layout.parse(fields)


def test_lineage_tells_histories_apart():
    other = ldp.Stream("colours", ldp.GRR(epsilon="2", domain_size=3))
    lineages = {
        lineage_of("g", STREAM, "t"),
        lineage_of("h", STREAM, "t"),
        lineage_of("g", STREAM, "u"),
        lineage_of("g", other, "t"),
    }
    assert len(lineages) == 4
    assert lineage_of("g", ldp.Stream("renamed", STREAM.oracle), "t") in lineages


def test_all_keys_of_a_partition_share_a_hash_tag():
    keys = [
        layout.meta_key("s", 3),
        layout.window_key("s", 3, "all"),
        layout.staged_key("s", 3, "attempt", "all"),
    ]
    assert {key[: key.index("}") + 1] for key in keys} == {"{s:3}"}
    assert len(set(keys)) == 3
