"""Stored blobs are read back, and missing or mismatched ones are noticed."""

import dataclasses

import crc32c
import numpy as np
import pytest

import ldp
from ldp import frames
from tests.support.cells import cells_of, key_in
from worker.counting import layout
from worker.counting.cells import Cell
from worker.counting.columns import Batch, Columns
from worker.counting.lineage import lineage_of
from worker.counting.partition_state import PartitionState
from worker.counting.ports import StateLost

STREAM = ldp.Stream("colours", ldp.GRR(epsilon="1", domain_size=3))
COMMIT, OTHER = "ab" * 16, "cd" * 16
NAME = "all@8e9f39d0"
KEY = layout.meta_key("colours", 0)


def committed():
    state = PartitionState.fresh(ldp.Fleet((STREAM,)), start=5)
    good = frames.encode(STREAM, np.array([(2,), (0,), (2,)], STREAM.oracle.report_dtype))
    state.skip(7)
    state.apply(Batch(0, 7, 12, Columns.of([7, 8, 10], [1005, 1001, 1009], [good, b"\x00", good])))
    before = layout.initial(lineage_of("group", "topic"), PartitionState.fresh(ldp.Fleet((STREAM,)), 5))
    return state, *layout.dump(state, before, COMMIT)


def test_a_state_survives_a_round_trip():
    state, metadata, blobs = committed()
    again = layout.load(ldp.Fleet((STREAM,)), layout.parse(layout.fields(metadata, KEY), KEY), blobs)
    assert dataclasses.replace(again, cells={}) == dataclasses.replace(state, cells={}, changed=set())
    assert cells_of(again)["all"].reports == 6
    assert cells_of(again)["all"].state.tolist() == [2, 0, 4]
    assert (again.accepted, again.rejected, again.windows.watermark, again.gaps) == (
        2,
        {"version": 1},
        1009,
        [(5, 7)],
    )
    cells_of(again)["all"].state[0] = 9  # a loaded state can be counted on


def test_a_blob_has_the_documented_bytes():
    _, metadata, blobs = committed()
    assert list(blobs) == [NAME]
    blob = blobs[NAME]
    assert blob[:4] == b"LDP1"
    assert int.from_bytes(blob[4:8], "little") == 3
    assert int.from_bytes(blob[8:16], "little") == 12
    assert blob[16:32].hex() == COMMIT == metadata.commit_id
    assert int.from_bytes(blob[32:36], "little") == 1  # one segment
    assert int.from_bytes(blob[36:40], "little") == crc32c.crc32c(NAME.encode() + blob[:36] + blob[40:])
    assert blob[40] == 0  # without a name
    assert int.from_bytes(blob[41:49], "little") == 6
    assert blob[49] == 1
    assert list(blob[50:]) == [2, 0, 4]


def test_a_blob_has_its_segments_in_ascending_order():
    state, metadata, _ = committed()
    document, key = state.document, key_in(state)
    cells = {
        "US:4.3": Cell(300, np.array([0, 300, 0])),
        "DE": Cell(2, np.array([1, 0, 1])),
        "~": Cell(0, np.zeros(3, int)),
    }
    state.cells, state.changed = {key: cells}, {key}
    after, blobs = layout.dump(state, metadata, OTHER)
    body = b"".join(
        bytes([len(name)]) + name + reports.to_bytes(8, "little") + bytes([width])
        for name, reports, width in ((b"DE", 2, 1), (b"US:4.3", 300, 2), (b"~", 0, 1))
    )
    body += bytes([1, 0, 1]) + bytes([0, 0, 44, 1, 0, 0]) + bytes(3)
    assert blobs[NAME][40:] == body
    assert int.from_bytes(blobs[NAME][32:36], "little") == 3
    read = layout._cells(document, after, NAME, OTHER, blobs[NAME])
    assert {name: (cell.reports, cell.state.tolist()) for name, cell in read.items()} == {
        name: (cell.reports, cell.state.tolist()) for name, cell in cells.items()
    }
    with pytest.raises(StateLost, match=r"has the segments \['DE', 'US:4.3', '~'\]; its document has none"):
        layout.load(ldp.Fleet((STREAM,)), after, blobs)


@pytest.mark.parametrize(
    ("most", "width"),
    [(0, 1), (255, 1), (256, 2), (65_535, 2), (65_536, 4), (2**32 - 1, 4), (2**32, 8), (2**63 - 1, 8)],
)
def test_entries_are_as_wide_as_the_largest_needs(most, width, monkeypatch):
    state, metadata, _ = committed()
    cells_of(state)["all"].state[:] = [1, most, 0]
    after, blobs = layout.dump(state, metadata, OTHER)
    blob = blobs[NAME]
    assert blob[49] == width
    assert len(blob) == layout.HEADER_BYTES + 3 * width == 50 + 3 * width
    assert [int.from_bytes(blob[50 + width * i :][:width], "little") for i in range(3)] == [1, most, 0]
    monkeypatch.setattr(layout.invariants, "demand_state", lambda *_: None)  # never counted this many
    again = cells_of(layout.load(ldp.Fleet((STREAM,)), after, blobs))["all"].state
    assert (again.tolist(), again.dtype) == ([1, most, 0], np.int64)
    again[0] += 2**40  # counted on in full width


def test_invalid_counts_are_never_stored():
    state, metadata, _ = committed()
    cells_of(state)["all"].state[1] = -1
    with pytest.raises(ValueError, match="a count is -1"):
        layout.dump(state, metadata, OTHER)


def test_an_unchanged_window_keeps_its_blob():
    state, metadata, blobs = committed()
    again = layout.load(ldp.Fleet((STREAM,)), metadata, blobs)
    again.apply(Batch(0, 12, 14, Columns.of([12], [2000], [b""])))
    after, changed = layout.dump(again, metadata, OTHER)
    assert changed == {}
    assert (after.offset, after.commit_id, after.blobs) == (14, OTHER, {NAME: COMMIT})
    assert (
        cells_of(layout.load(ldp.Fleet((STREAM,)), after, blobs))["all"].state.tolist()
        == cells_of(state)["all"].state.tolist()
    )


def sealed(blob):
    checksum = crc32c.crc32c(NAME.encode() + blob[:36] + blob[40:])
    return blob[:36] + checksum.to_bytes(4, "little") + blob[40:]


def twice(blob):
    """A blob with the same segment twice."""
    return sealed(blob[:32] + b"\x02" + blob[33:40] + 2 * blob[40:50] + 2 * blob[50:])


def named_otherwise(metadata):
    return dataclasses.replace(metadata, blobs={"all@00c0ffee": COMMIT})


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda m, b: (m, {}), "are missing"),
        (lambda m, b: (m, {NAME: b[NAME][:-8]}), "bytes"),
        (lambda m, b: (m, {NAME: b[NAME][:-1]}), "damaged"),
        (lambda m, b: (m, {NAME: sealed(b[NAME][:-1])}), "cannot be read"),
        (lambda m, b: (m, {NAME: sealed(b[NAME] + b"0")}), "cannot be read"),
        (
            lambda m, b: (m, {NAME: sealed(b[NAME][:49] + b"\x02" + b[NAME][50:])}),
            r"3 entries of \[2\] bytes",
        ),
        (
            lambda m, b: (m, {NAME: sealed(b[NAME][:49] + b"\x03" + b[NAME][50:] + bytes(6))}),
            r"entries of \[3\]",
        ),
        (lambda m, b: (m, {NAME: sealed(b[NAME][:49] + b"\x00" + b[NAME][50:50])}), r"3 entries of \[0\]"),
        (lambda m, b: (m, {NAME: sealed(b[NAME][:32] + bytes(4) + b[NAME][36:])}), r"segments \[\] of"),
        (lambda m, b: (m, {NAME: sealed(b[NAME][:32] + b"\xff" * 4 + b[NAME][36:])}), "cannot be read"),
        (lambda m, b: (m, {NAME: sealed(b[NAME][:40] + b"\xff" + b[NAME][41:])}), "cannot be read"),
        (lambda m, b: (m, {NAME: twice(b[NAME])}), r"segments \['', ''\] of"),
        (lambda m, b: (m, {NAME: b""}), "bytes"),
        (lambda m, b: (m, {NAME: b[NAME] + bytes(8)}), "damaged"),
        (
            lambda m, b: (dataclasses.replace(m, blobs={"all": COMMIT}), {"all": b[NAME]}),
            "of no recorded document",
        ),
        (lambda m, b: (named_otherwise(m), {"all@00c0ffee": b[NAME]}), "of no recorded document"),
        (lambda m, b: (m, {NAME: b"XXXX" + b[NAME][4:]}), "commit than the metadata"),
        (lambda m, b: (dataclasses.replace(m, blobs={NAME: OTHER}), b), "commit than the metadata"),
        (lambda m, b: (dataclasses.replace(m, totals="{}"), b), "cannot be read"),
        (lambda m, b: (dataclasses.replace(m, totals="nonsense"), b), "cannot be read"),
    ],
)
def test_damage_is_state_loss(damage, why):
    _, metadata, blobs = committed()
    with pytest.raises(StateLost, match=why):
        layout.load(ldp.Fleet((STREAM,)), *damage(metadata, blobs))


@pytest.mark.parametrize("field", ["lineage", "epoch", "offset", "commit_id", "blobs", "totals", "checksum"])
def test_a_missing_field_is_state_loss(field):
    _, metadata, _ = committed()
    fields = layout.fields(metadata, KEY)
    del fields[field]
    with pytest.raises(StateLost, match=r"cannot be read|damaged"):
        layout.parse(fields, KEY)


def test_lineages_distinguish_histories():
    assert len({lineage_of("g", "t"), lineage_of("h", "t"), lineage_of("g", "u")}) == 3


def test_counts_of_documents_that_the_stream_does_not_have_are_refused():
    _, metadata, blobs = committed()
    renamed = ldp.Fleet((ldp.Stream("renamed", STREAM.oracle),))
    assert layout.load(renamed, metadata, blobs).documents.keys() == {"8e9f39d0"}
    other = ldp.Stream("colours", ldp.GRR(epsilon="2", domain_size=3))
    with pytest.raises(
        StateLost, match="the recorded documents are 8e9f39d0; the configuration names none of them"
    ):
        layout.load(ldp.Fleet((other,)), metadata, blobs)


def test_a_document_is_proved_by_its_fingerprint():
    _, metadata, blobs = committed()
    totals = metadata.totals.replace('"epsilon": "1/1"', '"epsilon": "2/1"')
    with pytest.raises(StateLost, match="is recorded as 8e9f39d0"):
        layout.load(ldp.Fleet((STREAM,)), dataclasses.replace(metadata, totals=totals), blobs)


def test_labels_are_sealed_in_stored_documents():
    stream = ldp.Stream("colours", STREAM.oracle, ["red", "green", "blue"])
    state = PartitionState.fresh(ldp.Fleet((stream,)), 5)
    totals = layout.totals(state)
    assert "green" not in totals
    again = layout.load(ldp.Fleet((stream,)), layout.initial(lineage_of("group", "topic"), state), {})
    assert again.documents == state.documents
    assert again.document.fingerprint == stream.fingerprint


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
    state.changed = {key_in(state)}
    _, blobs = layout.dump(state, before, OTHER)  # the same counts of the same offset
    with pytest.raises(StateLost, match="another format, size or commit than the metadata"):
        layout.load(ldp.Fleet((STREAM,)), metadata, blobs)


def test_an_unknown_field_of_metadata_is_lost_state():
    _, metadata, _ = committed()
    with pytest.raises(StateLost, match=r"unknown fields: \['shard'\]"):
        layout.parse(layout.fields(metadata, KEY) | {"shard": "3"}, KEY)
