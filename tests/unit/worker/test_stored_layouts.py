"""Stored partitions and heads are read as the vectors say; newer versions of them are refused."""

import dataclasses
import json
import struct
from pathlib import Path

import pytest

import ldp
from ldp.consistency import METHODS
from tests.support.cells import cells_of
from worker.audit.comparison import assess
from worker.audit.parsing import by_fingerprint
from worker.audit.records import Records
from worker.counting import layout, rules
from worker.counting.columns import Batch, Columns
from worker.counting.head import Head
from worker.counting.lineage import differing, lineage_of, newer
from worker.counting.partition_state import PartitionState
from worker.counting.ports import NewerState, StateLost

VECTORS = Path(__file__).parents[2] / "vectors"
STORED = {path.stem: json.loads(path.read_text()) for path in (VECTORS / "redis-layout-1").glob("*.json")}
GROUP, TOPIC_ID = "ldp-worker-colours", "J9XkU2mHRxq0bVtnYd3Qpw"
KEY = layout.meta_key("colours", 0)
STREAM = ldp.Stream("colours", ldp.GRR("1", 3))
OURS = lineage_of(GROUP, TOPIC_ID)


@pytest.fixture(params=sorted(STORED))
def vector(request):
    return STORED[request.param]


def read(vector):
    """A stored partition as this version loads it."""
    metadata = layout.parse(vector["fields"], KEY)
    return metadata, layout.load(
        ldp.Fleet((STREAM,)), metadata, {name: bytes.fromhex(blob) for name, blob in vector["blobs"].items()}
    )


def said(state):
    """A state in JSON's types, as the vectors say it."""
    total = state.total()
    return {
        "start": state.start,
        "offset": state.offset,
        "reports": total.reports,
        "state": total.state.tolist(),
        "cells": {
            name: {"reports": cell.reports, "state": cell.state.tolist()}
            for name, cell in cells_of(state).items()
        },
        "accepted": state.accepted,
        "rejected": dict(state.rejected),
        "late": state.windows.late,
        "undated": state.windows.undated,
        "watermark": state.windows.watermark,
        "closed": state.windows.closed,
        "admitted_from": state.windows.admitted_from,
        "evicted_to": state.windows.evicted_to,
        "first_start": state.windows.first_start,
        "gaps": [list(gap) for gap in state.gaps],
        "gap_bounds": [list(times) for times in state.windows.gap_bounds],
        "rules": rules.published(state.rules, "8e9f39d0"),
    }


def test_stored_vectors_are_read_as_they_were_counted(vector):
    metadata, state = read(vector)
    assert differing(metadata.lineage, OURS) == []
    assert newer(metadata.lineage) is None
    assert said(state) == vector["counted"]
    assert [sealed.parsed for sealed in state.documents.values()] == [STREAM.document()]


def test_blobs_of_the_vectors_match_the_layout(vector):
    fields, cells = vector["fields"], vector["counted"]["cells"]
    commits = json.loads(fields["blobs"])
    assert vector["blobs"].keys() == commits.keys()
    assert commits.keys() == ({f"{name}@8e9f39d0" for name in cells} if fields["commit_id"] else set())
    for name, blob in vector["blobs"].items():
        magic, entries, at, written, segments, _, length, reports, *state = counts_of(bytes.fromhex(blob))
        assert (magic, entries, written.hex(), segments, length) == (b"LDP1", 3, commits[name], 1, 0)
        newest, end = commits[name] == fields["commit_id"], int(fields["offset"])
        assert at == end if newest else at < end
        assert len(blob) // 2 == 50 + 3 * (2 if max(state) > 255 else 1)
        assert {"reports": reports, "state": state} == cells[name.removesuffix("@8e9f39d0")]


def counts_of(blob):
    """Content of a blob of three entries, from the bytes that its layout defines."""
    *said, width = struct.unpack_from("<4sIq16sIIBqB", blob)
    return *said, *struct.unpack_from(f"<3{ {1: 'B', 2: 'H', 4: 'I', 8: 'Q'}[width] }", blob, 50)


def test_resumed_vectors_are_stored_in_the_current_layout(vector):
    """Nothing is rewritten that need not be: the fields come out as they went in, the lineage's text above all."""
    metadata, state = read(vector)
    assert layout.fields(metadata, KEY) == vector["fields"]
    state.apply(Batch(0, state.offset, state.offset + 1, Columns.of([], [], [])))
    if vector["fields"]["commit_id"]:
        assert state.changed == set()
    after, blobs = layout.dump(state, metadata, "ab" * 16)
    assert after.lineage == vector["fields"]["lineage"]
    assert after.epoch == int(vector["fields"]["epoch"])
    assert after.offset == int(vector["fields"]["offset"]) + 1
    again, before = json.loads(after.totals), json.loads(vector["fields"]["totals"])
    assert again == before
    if vector["fields"]["commit_id"]:
        assert (after.blobs, blobs) == (json.loads(vector["fields"]["blobs"]), {})


def test_a_lineage_is_compared_by_its_content_and_not_its_text():
    spaced = json.dumps(dict(reversed(json.loads(OURS).items())), indent=1)
    assert spaced != OURS
    assert differing(spaced, OURS) == []
    vector = STORED["counted"]
    metadata = dataclasses.replace(layout.parse(vector["fields"], KEY), lineage=spaced)
    assert layout.parse(layout.fields(metadata, KEY), KEY) == metadata
    state = PartitionState.fresh(ldp.Fleet((STREAM,)), 0)
    assert layout.dump(state, metadata, "ab" * 16)[0].lineage == spaced  # the store compares texts


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"group": "other"}, ["group is 'other' there, 'ldp-worker-colours' here"]),
        ({"topic_id": "new"}, [f"topic_id is 'new' there, '{TOPIC_ID}' here"]),
        ({"layout": "1"}, ["layout is '1' there, 1 here"]),
        ({"layout": 0}, ["layout is 0 there, 1 here"]),
        ({"layout": 2}, []),
        ({"windows": "hourly"}, []),
    ],
)
def test_only_immutable_settings_make_another_history(change, why):
    assert differing(json.dumps(json.loads(OURS) | change), OURS) == why


def test_an_invalid_lineage_differs_in_every_field():
    for stored in ("", "nonsense", "[]", "{}"):
        assert [text.split()[0] for text in differing(stored, OURS)] == [
            "group",
            "topic_id",
            "layout",
        ]
        assert newer(stored) is None


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"layout": 2}, "layout 2, but this version reads up to 1"),
        ({"layout": 7, "group": {"of": "another kind"}}, "layout 7, but this version reads up to 1"),
        ({"shard": 3}, "a lineage with shard, unknown to this version"),
    ],
)
def test_a_state_of_a_newer_version_is_refused_despite_its_other_fields(change, why):
    stored = json.dumps(json.loads(OURS) | change)
    for fields in ({"lineage": stored}, STORED["counted"]["fields"] | {"lineage": stored}):
        with pytest.raises(NewerState) as refused:
            layout.parse(fields, KEY)
        assert str(refused.value).startswith(f"the counts in Redis have {why}: a newer version")
        assert "Run that version" in str(refused.value)
    assert issubclass(NewerState, StateLost)


GAP = (
    "gap: offsets 2 to 3: deleted before they were counted; not recountable: offsets 0 to 1: counted,"
    " then deleted; 6 remaining records match"
)


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("claimed", None),
        ("counted", GAP),
        ("windowed", None),
        ("changed", None),
        ("evicted", GAP.replace("6 remaining", "8 remaining")),
    ],
)
def test_the_audit_recounts_the_vectors_from_their_log(name, outcome):
    vector = STORED[name]
    log = [(record["timestamp"], bytes.fromhex(record["value"])) for record in vector["log"]]
    blobs = {window: bytes.fromhex(blob) for window, blob in vector["blobs"].items()}
    row = assess(
        by_fingerprint(STREAM.document()),
        0,
        stream="colours",
        group=GROUP,
        cut=(vector["fields"], blobs),
        bounds=(vector["log_begins"], len(log)),
        read=lambda first, last, caps: [Records.of(log[first:last])],
    )
    assert row.difference == outcome


# --- the head


def head(name):
    return json.loads((VECTORS / "snapshot-schema-1" / f"{name}.json").read_text())


def test_a_head_of_the_current_version_is_read():
    listed = head("head")["rules"]["0"]
    read = Head.parse(head("head"))
    assert read == Head(
        sequence=12,
        offsets={0: 10},
        reports=7,
        gaps={0: [(2, 4)]},
        uncounted=(1,),
        rules={0: listed},
        lineage={"group": GROUP, "topic_id": TOPIC_ID},
        documents={"8e9f39d0": STREAM.hashed.decode()},
        counted={"8e9f39d0": 7},
        variance_shares={"8e9f39d0": 1.0},
        methods=tuple(METHODS),
    )
    assert read.foreign(ldp.Fleet((STREAM,)), OURS) == []
    assert read.foreign(ldp.Fleet((ldp.Stream("colours", ldp.GRR("2", 3)),)), OURS) == [
        "the recorded documents are 8e9f39d0; the configuration names none of them"
    ]
    assert dataclasses.replace(read, lineage={"group": "x"}).foreign(ldp.Fleet((STREAM,)), OURS) == [
        f"group 'x' there, {GROUP!r} here"
    ]


def test_the_first_rule_of_a_head_accepts_the_first_document():
    first, second = Head.parse(head("head")).rules_of(0)
    assert (first.documents, second.documents) == ({"8e9f39d0": (0, False)}, {})


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"document": {"protocol": "grr", "epsilon": "2/1", "domain_size": 3}}, "is recorded as 8e9f39d0"),
        ({"document": []}, "documents"),
        ({"reports": -1}, "documents.reports"),
        ({"variance_share": None}, "documents.variance_share"),
        ({"retired": 0}, "documents.retired"),
        ({"partitions": "2"}, "documents.partitions"),
        ({"fingerprint": "9f86d081"}, "is recorded as 9f86d081"),
    ],
)
def test_a_head_with_an_invalid_document_is_refused(change, why):
    (entry,) = head("head")["documents"]
    with pytest.raises(ValueError, match=why):
        Head.parse(head("head") | {"documents": [entry | change]})


def test_a_head_without_documents_is_refused():
    for documents in ([], head("head")["documents"] * 17, {}, None):
        with pytest.raises(ValueError, match="documents"):
            Head.parse(head("head") | {"documents": documents})
