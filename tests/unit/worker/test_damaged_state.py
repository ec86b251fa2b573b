"""Redis is not trusted: each changed byte stops the stream, and an unreachable state stops it, too."""

import dataclasses
import json
from dataclasses import replace

import numpy as np
import pytest

import ldp
from ldp import frames
from tests.support.cells import cells_of, key_in, ruled
from worker.counting import layout
from worker.counting.columns import Batch, Columns
from worker.counting.lineage import lineage_of
from worker.counting.partition_state import PartitionState
from worker.counting.ports import StateLost
from worker.counting.rules import RecordLimits, RequestedRule, Rule
from worker.counting.windows import Windowing

STREAM = ldp.Stream("colours", ldp.GRR("1", 3))
KEY = layout.meta_key("colours", 0)
FIRST, SECOND = "ab" * 16, "cd" * 16
HOURLY = RequestedRule(limits=RecordLimits(10, hamming_weight=True, windowing=Windowing(("all", "1h"), 0, 0)))
HOUR = 3_600_000


def batch(state, times, stream=STREAM, values=(2, 0)):
    """Records of two reports each, and one that is malformed."""
    reports = stream.oracle.perturb(np.array(values), rng=np.random.default_rng(1))
    frame = frames.encode(stream, reports)
    offsets = range(state.offset, state.offset + len(times) + 1)
    columns = Columns.of([*offsets], [*times, 0], [frame] * len(times) + [b"noise"])
    return Batch(0, state.offset, offsets[-1] + 1, columns)


def stored(stream=STREAM, configured=HOURLY):
    """A partition of two panes, a gap and late records, after two commits: its fields and blobs."""
    state = PartitionState.fresh(ldp.Fleet((stream,)), 5, configured)
    metadata = layout.initial(lineage_of("group", "topic"), state)
    state.skip(7)
    state.apply(batch(state, [5 * HOUR, 5 * HOUR + 9], stream))
    metadata, blobs = layout.dump(state, metadata, FIRST)
    state.changed.clear()
    state.apply(batch(state, [7 * HOUR, 5 * HOUR, -1], stream))
    metadata, changed = layout.dump(state, metadata, SECOND)
    return layout.fields(metadata, KEY), blobs | changed


def load(fields, blobs, stream=STREAM):
    raw = {
        name if isinstance(name, bytes) else name.encode(): said if isinstance(said, bytes) else said.encode()
        for name, said in fields.items()
    }
    return layout.load(ldp.Fleet((stream,)), layout.parse(layout.decoded(raw), KEY), blobs)


def test_a_stored_state_is_loaded():
    fields, blobs = stored()
    assert blobs.keys() == {
        f"{pane}@8e9f39d0" for pane in (f"{5 * HOUR}+{HOUR}", f"{7 * HOUR}+{HOUR}", "all")
    }
    state = load(fields, blobs)
    assert (state.accepted, state.windows.late, state.windows.undated, state.reports) == (5, {"1h": 1}, 1, 10)


def test_each_changed_byte_of_metadata_is_detected():
    fields, blobs = stored()
    for name, said in fields.items():
        for i in range(len(said)):
            for flip in (1, 2, 32, 0x80, 0xFF):
                value = bytearray(said.encode())
                value[i] ^= flip
                with pytest.raises(StateLost):
                    load(fields | {name: bytes(value)}, blobs)
        for i in range(len(name)):
            other = bytearray(name.encode())
            other[i] ^= 4
            with pytest.raises(StateLost):
                load({k: v for k, v in fields.items() if k != name} | {bytes(other): said}, blobs)


def test_each_changed_byte_of_counts_is_detected():
    fields, blobs = stored()
    for name, blob in blobs.items():
        for i in range(len(blob)):
            for flip in range(1, 256):
                damaged = blob[:i] + bytes([blob[i] ^ flip]) + blob[i + 1 :]
                with pytest.raises(StateLost):
                    load(fields, blobs | {name: damaged})


def test_counts_of_another_cell_of_the_commit_are_detected():
    fields, blobs = stored()
    of_second = [name for name, commit_id in json.loads(fields["blobs"]).items() if commit_id == SECOND]
    one, other = of_second
    with pytest.raises(StateLost, match="damaged: wrong checksum"):
        load(fields, blobs | {one: blobs[other], other: blobs[one]})


@pytest.mark.parametrize("name", ["blobs", "totals", "lineage"])
@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "NaN", "7", "[]", '{"all": [1]}'])
def test_changed_fields_are_lost_state(name, text):
    fields, blobs = stored()
    metadata = layout.parse(fields, KEY)
    with pytest.raises(StateLost):
        load(fields | {name: text}, blobs)
    if name == "totals":  # with their own checksum, too
        with pytest.raises(StateLost):
            load(layout.fields(replace(metadata, **{name: text}), KEY), blobs)


def rewritten(totals=None, offset=None, cells=None):
    """Stored state after a change with valid checksums."""
    fields, blobs = stored()
    metadata = layout.parse(fields, KEY)
    state = layout.load(ldp.Fleet((STREAM,)), metadata, blobs)
    cells = cells or {}
    for name, change in cells.items():
        state.changed.add(key_in(state, name))
        change(cells_of(state)[name])
    after, changed = layout.dump(state, metadata, SECOND)
    said = json.loads(after.totals) | (totals or {})
    after = replace(after, totals=json.dumps(said), offset=state.offset if offset is None else offset)
    return layout.fields(after, KEY), blobs | changed


LATE = f"{7 * HOUR}+{HOUR}"
WITHOUT_WINDOWS = {"offset": 5, "revision": 1, "most_reports": 10, "hamming_weight": True} | {
    "documents": {"8e9f39d0": [0, False]}
}


def counts(*state, reports=None):
    def change(cell):
        cell.state[:] = state
        cell.reports = cell.reports if reports is None else reports

    return change


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"totals": {"accepted": 500}}, "offsets"),
        ({"totals": {"accepted": -1}}, "accepted is -1"),
        ({"totals": {"accepted": 5.0}}, "accepted is 5.0"),
        ({"totals": {"accepted": True}}, "accepted is True"),
        ({"totals": {"accepted": float("nan")}}, "accepted is nan"),
        ({"totals": {"accepted": 2**64 - 1}}, "accepted is 18446744073709551615"),
        ({"totals": {"accepted": 11}}, "offsets"),
        ({"totals": {"rejected": {"version": 90}}}, "offsets"),
        ({"totals": {"rejected": {"version": -2}}}, "rejected has version: -2"),
        ({"totals": {"rejected": None}}, "cannot be read|cannot reach"),
        ({"totals": {"late": {"1h": 5}}}, "late or undated"),
        ({"totals": {"late": {"2y": 1}}}, "ages"),
        ({"totals": {"undated": 9}}, "late or undated"),
        ({"totals": {"start": 8}}, "cannot be read|do not ascend"),
        ({"totals": {"gaps": [[5, 70]]}}, "do not ascend"),
        ({"totals": {"gaps": [[7, 5]]}}, "do not ascend"),
        ({"totals": {"gaps": [[5, 5]]}}, "do not ascend"),
        ({"totals": {"gap_bounds": []}}, "gap_bounds has 0"),
        ({"totals": {"gap_bounds": [[None, 7]]}}, "gap_bounds|cannot be read"),
        ({"totals": {"watermark": None}}, "watermark"),
        ({"totals": {"watermark": 2**62}}, "watermark"),
        ({"totals": {"watermark": 0}}, "after the watermark"),
        ({"totals": {"evicted_to": 2**60}}, "evicted_to"),
        ({"totals": {"admitted_from": 2**60}}, "admitted_from"),
        ({"totals": {"first_start": {"1h": -5}}}, "first_start"),
        ({"totals": {"readmitted": [[0, 0]]}}, "readmitted"),
        ({"totals": {"rules": [{"offset": 5.0, "revision": 1, "most_reports": 10, "hamming_weight": True}]}}, "read"),
        ({"totals": {"rules": [{"offset": 5, "revision": 1, "most_reports": "9", "hamming_weight": True}]}}, "read"),
        ({"totals": {"rules": [WITHOUT_WINDOWS | {"documents": {}}]}}, "documents"),
        ({"totals": {"rules": [WITHOUT_WINDOWS]}}, "a pane"),
        ({"totals": {"rules": [WITHOUT_WINDOWS | {"documents": {"9f86d081": [0, False]}}]}}, "documents"),
        ({"totals": {"rules": [WITHOUT_WINDOWS | {"documents": {"8e9f39d0": [-1, False]}}]}}, "read"),
        ({"totals": {"rules": [WITHOUT_WINDOWS | {"documents": {"8e9f39d0": [0, 0]}}]}}, "read"),
        ({"totals": {"rules": [WITHOUT_WINDOWS | {"documents": {"8e9f39d0": [0]}}]}}, "read"),
        ({"totals": {"documents": {}}}, "of no recorded document"),
        ({"totals": {"documents": {"8e9f39d0": 7}}}, "read"),
        ({"totals": {"documents": {"8e9f39d0": {"protocol": "grr"}}}}, "is recorded as 8e9f39d0"),
        ({"totals": {"documents": ["8e9f39d0"]}}, "read"),
        ({"offset": 0}, "offset"),
        ({"offset": 2**62}, "have offset"),
        ({"cells": {LATE: counts(1, 0, 0)}}, "sum to 1"),
        ({"cells": {LATE: counts(2, 1, 0)}}, "allowed is 0 to n = 2|sum to 3"),
        ({"cells": {LATE: counts(0, 0, 0, reports=-2)}}, "-2 reports|n is -2|allowed is 0 to"),
        ({"cells": {"all": counts(0, 0, 0, reports=0)}}, "in no pane"),
        ({"cells": {"all": counts(99, 0, 0, reports=99)}}, "allowed is 5 to 50"),
    ],
)  # fmt: skip
def test_an_unreachable_state_is_lost_state_despite_a_valid_checksum(change, why):
    fields, blobs = rewritten(**change)
    with pytest.raises(StateLost, match=why):
        load(fields, blobs)


ORACLES = {
    "grr": (ldp.GRR("1", 8), [(1, 1)]),
    "response": (ldp.Response("3/4", 8), [(1, 1)]),
    "hadamard": (ldp.oracle("hadamard", "1", 7), [(1, 1)]),
    "pgr": (ldp.oracle("pgr", "1", 7), [(1, 1)]),
    "subset": (ldp.oracle("subset", "1", 12, k=3), [(1, 3)]),
    "olh": (ldp.OLH("1", 8), []),
    "oue": (ldp.OUE("1", 8), []),
    "sue": (ldp.SUE("1", 8), []),
}


@pytest.mark.parametrize("name", sorted(ORACLES))
def test_sums_of_each_protocol_are_checked(name):
    oracle, sums = ORACLES[name]
    stream = ldp.Stream("one", oracle)
    state = ruled(stream, [Rule(5, 1, RecordLimits(None, hamming_weight=False))], 5)
    values = np.zeros(40, int)
    reports = oracle.perturb(values, rng=np.random.default_rng(2))
    frame = frames.encode(stream, reports)
    state.apply(Batch(0, 5, 6, Columns.of([5], [7], [frame])))
    cell = cells_of(state)["all"]
    assert cell.reports == 40
    metadata, blobs = layout.dump(state, layout.initial(lineage_of("g", "t"), state), FIRST)
    assert (
        cells_of(load(layout.fields(metadata, KEY), blobs, stream))["all"].state.tolist()
        == cell.state.tolist()
    )

    def refused(counters):
        changed = replace(cell, state=np.array(counters))
        damaged = dataclasses.replace(state, cells={key_in(state): {"": changed}}, changed={key_in(state)})
        metadata, blobs = layout.dump(damaged, layout.initial(lineage_of("g", "t"), state), FIRST)
        with pytest.raises(StateLost, match="counting cannot reach"):
            load(layout.fields(metadata, KEY), blobs, stream)

    more = cell.state.copy()
    more[0] = 41
    refused(more)
    for _ in sums:
        one = cell.state.copy()
        one[int(one.argmax())] -= 1
        refused(one)
