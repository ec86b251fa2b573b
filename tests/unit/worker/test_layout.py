"""Stored blobs are read back, and missing or mismatched ones are noticed."""

import dataclasses

import crc32c
import numpy as np
import pytest

import ldp
from ldp import frames
from worker.counting import layout
from worker.counting.columns import Batch, Columns
from worker.counting.lineage import lineage_of
from worker.counting.partition_state import PartitionState
from worker.counting.ports import StateLost

STREAM = ldp.Stream("colours", ldp.GRR(epsilon="1", domain_size=3))
COMMIT, OTHER = "ab" * 16, "cd" * 16
KEY = layout.meta_key("colours", 0)


def committed():
    state = PartitionState.fresh(STREAM, start=5)
    good = frames.encode(STREAM, np.array([(2,), (0,), (2,)], STREAM.oracle.report_dtype))
    state.skip(7)
    state.apply(STREAM, Batch(0, 7, 12, Columns.of([7, 8, 10], [1005, 1001, 1009], [good, b"\x00", good])))
    before = layout.initial(lineage_of("group", STREAM, "topic"), PartitionState.fresh(STREAM, 5))
    return state, *layout.dump(state, before, COMMIT)


def test_a_state_survives_a_round_trip():
    state, metadata, blobs = committed()
    again = layout.load(STREAM, layout.parse(layout.fields(metadata, KEY), KEY), blobs)
    assert dataclasses.replace(again, cells={}) == dataclasses.replace(state, cells={}, changed=set())
    assert again.cells["all"].reports == 6
    assert again.cells["all"].state.tolist() == [2, 0, 4]
    assert (again.accepted, again.rejected, again.windows.watermark, again.gaps) == (
        2,
        {"version": 1},
        1009,
        [(5, 7)],
    )
    again.cells["all"].state[0] = 9  # a loaded state can be counted on


def test_a_blob_has_the_documented_bytes():
    _, metadata, blobs = committed()
    assert list(blobs) == ["all"]
    blob = blobs["all"]
    assert blob[:4] == b"LDP1"
    assert int.from_bytes(blob[4:8], "little") == 3
    assert int.from_bytes(blob[8:16], "little") == 12
    assert blob[16:32].hex() == COMMIT == metadata.commit_id
    assert int.from_bytes(blob[32:40], "little") == 6
    assert int.from_bytes(blob[40:44], "little") == 1
    assert int.from_bytes(blob[44:48], "little") == crc32c.crc32c(b"all" + blob[:44] + blob[48:])
    assert list(blob[48:]) == [2, 0, 4]


@pytest.mark.parametrize(
    ("most", "width"),
    [(0, 1), (255, 1), (256, 2), (65_535, 2), (65_536, 4), (2**32 - 1, 4), (2**32, 8), (2**63 - 1, 8)],
)
def test_entries_are_as_wide_as_the_largest_needs(most, width, monkeypatch):
    state, metadata, _ = committed()
    state.cells["all"].state[:] = [1, most, 0]
    after, blobs = layout.dump(state, metadata, OTHER)
    blob = blobs["all"]
    assert int.from_bytes(blob[40:44], "little") == width
    assert len(blob) == 48 + 3 * width
    assert [int.from_bytes(blob[48 + width * i :][:width], "little") for i in range(3)] == [1, most, 0]
    monkeypatch.setattr(layout.invariants, "demand_state", lambda *_: None)  # never counted this many
    again = layout.load(STREAM, after, blobs).cells["all"].state
    assert (again.tolist(), again.dtype) == ([1, most, 0], np.int64)
    again[0] += 2**40  # counted on in full width


def test_invalid_counts_are_never_stored():
    state, metadata, _ = committed()
    state.cells["all"].state[1] = -1
    with pytest.raises(ValueError, match="a count is -1"):
        layout.dump(state, metadata, OTHER)


def test_an_unchanged_window_keeps_its_blob():
    state, metadata, blobs = committed()
    again = layout.load(STREAM, metadata, blobs)
    again.apply(STREAM, Batch(0, 12, 14, Columns.of([12], [2000], [b""])))
    after, changed = layout.dump(again, metadata, OTHER)
    assert changed == {}
    assert (after.offset, after.commit_id, after.blobs) == (14, OTHER, {"all": COMMIT})
    assert layout.load(STREAM, after, blobs).cells["all"].state.tolist() == state.cells["all"].state.tolist()


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda m, b: (m, {}), "are missing"),
        (lambda m, b: (m, {"all": b["all"][:-8]}), "bytes"),
        (lambda m, b: (m, {"all": b["all"][:-1]}), "bytes"),
        (lambda m, b: (m, {"all": b["all"][:40] + b"\x02" + b["all"][41:]}), "bytes for 3 entries of 2"),
        (
            lambda m, b: (m, {"all": b["all"][:40] + b"\x03" + b["all"][41:] + bytes(6)}),
            "bytes for 3 entries of 3",
        ),
        (lambda m, b: (m, {"all": b["all"][:40] + b"\x00" + b["all"][41:48]}), "bytes for 3 entries of 0"),
        (lambda m, b: (m, {"all": b""}), "bytes"),
        (lambda m, b: (m, {"all": b["all"] + bytes(8)}), "bytes"),
        (lambda m, b: (m, {"all": b"XXXX" + b["all"][4:]}), "commit than the metadata"),
        (lambda m, b: (dataclasses.replace(m, blobs={"all": OTHER}), b), "commit than the metadata"),
        (lambda m, b: (dataclasses.replace(m, totals="{}"), b), "cannot be read"),
        (lambda m, b: (dataclasses.replace(m, totals="nonsense"), b), "cannot be read"),
    ],
)
def test_damage_is_state_loss(damage, why):
    _, metadata, blobs = committed()
    with pytest.raises(StateLost, match=why):
        layout.load(STREAM, *damage(metadata, blobs))


@pytest.mark.parametrize("field", ["lineage", "epoch", "offset", "commit_id", "blobs", "totals", "checksum"])
def test_a_missing_field_is_state_loss(field):
    _, metadata, _ = committed()
    fields = layout.fields(metadata, KEY)
    del fields[field]
    with pytest.raises(StateLost, match=r"cannot be read|damaged"):
        layout.parse(fields, KEY)


def test_lineages_distinguish_histories():
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
        layout.cell_key("s", 3, "all"),
        layout.staged_key("s", 3, "attempt", "all"),
    ]
    assert {key[: key.index("}") + 1] for key in keys} == {"{s:3}"}
    assert len(set(keys)) == 3


@pytest.mark.parametrize("place", [("colours", 1), ("colours", 10), ("colour", 0), ("shapes", 0)])
def test_metadata_of_another_partition_or_stream_is_lost_state(place):
    _, metadata, _ = committed()
    fields = layout.fields(metadata, layout.meta_key(*place))
    with pytest.raises(StateLost, match="damaged, or of another partition"):
        layout.parse(fields, KEY)


def test_a_blob_of_another_partition_is_refused():
    _, metadata, _ = committed()
    state, before, _ = committed()
    state.changed = {"all"}
    _, blobs = layout.dump(state, before, OTHER)  # the same counts of the same offset
    with pytest.raises(StateLost, match="another format, size or commit than the metadata"):
        layout.load(STREAM, metadata, blobs)


def test_an_unknown_field_of_metadata_is_lost_state():
    _, metadata, _ = committed()
    with pytest.raises(StateLost, match=r"unknown fields: \['shard'\]"):
        layout.parse(layout.fields(metadata, KEY) | {"shard": "3"}, KEY)
