"""What an earlier version stored or published is read for ever; what a newer one did is refused, and said to be."""

import dataclasses
import json
import struct
from pathlib import Path

import numpy as np
import pytest

import ldp
from ldp import frames
from worker.audit.comparison import judge
from worker.audit.records import Records
from worker.counting import layout, rules
from worker.counting.columns import Batch, Columns
from worker.counting.head import Head
from worker.counting.lineage import carried_on, differing, lineage_of, newer
from worker.counting.partition import PartitionState
from worker.counting.ports import NewerState, StateLost

VECTORS = Path(__file__).parents[2] / "vectors"
STORED = {
    f"{layout}/{path.stem}": json.loads(path.read_text())
    for layout in (1, 2)
    for path in (VECTORS / f"redis-layout-{layout}").glob("*.json")
}
GROUP, TOPIC_ID = "ldp-worker-colours", "J9XkU2mHRxq0bVtnYd3Qpw"
STREAM = ldp.Stream("colours", ldp.GRR("1", 3))
OURS = lineage_of(GROUP, STREAM, TOPIC_ID)
LAYOUT_1 = json.dumps(json.loads(OURS) | {"layout": 1}, sort_keys=True)


@pytest.fixture(params=sorted(STORED))
def vector(request):
    return STORED[request.param]


def read(vector):
    """What this version makes of a stored partition."""
    metadata = layout.parse(vector["fields"])
    return metadata, layout.load(
        STREAM, metadata, {name: bytes.fromhex(blob) for name, blob in vector["blobs"].items()}
    )


def said(state):
    """A state in JSON's types, as the vectors say it."""
    window = state.cells["all"]
    return {
        "start": state.start,
        "offset": state.offset,
        "reports": window.reports,
        "state": window.state.tolist(),
        "accepted": state.accepted,
        "rejected": dict(state.rejected),
        "late": state.late,
        "watermark": state.watermark,
        "gaps": [list(gap) for gap in state.gaps],
        "rules": [rule.as_json() for rule in state.rules],
    }


def test_there_is_one_of_each_kind():
    assert {name for name in STORED if name[0] == "1"} == {"1/before-rules", "1/counted", "1/claimed"}
    assert {name for name in STORED if name[0] == "2"} == {"2/taken-over", "2/counted", "2/claimed", "2/wide"}
    for name, vector in STORED.items():
        assert vector["fields"]["lineage"] == (LAYOUT_1 if name[0] == "1" else OURS)


def test_what_is_stored_is_read_as_it_was_counted(vector):
    metadata, state = read(vector)
    assert differing(metadata.lineage, OURS) == []
    assert newer(metadata.lineage) is None
    assert said(state) == vector["counted"]


def test_the_vectors_say_what_their_log_says(vector):
    """The stated counts, by a recount of the log that is spelt out beside them."""
    counted = vector["counted"]
    state, rejected, accepted, watermark = [0, 0, 0], {}, 0, None
    for record in vector["log"][counted["start"] : counted["offset"]]:
        offset, value = record["offset"], bytes.fromhex(record["value"])
        if any(begin <= offset < end for begin, end in counted["gaps"]):
            continue
        most = [rule["most_reports"] for rule in counted["rules"] if rule["offset"] <= offset][-1]
        values = value[5:]
        if not value:
            reason = "empty"
        elif value[0] != 1:
            reason = "version"
        elif most is not None and len(values) > most:
            reason = "many"
        else:
            for index in values:
                state[index] += 1
            accepted += 1
            watermark = max(watermark or 0, record["timestamp"])
            continue
        rejected[reason] = rejected.get(reason, 0) + 1
    assert (state, sum(state)) == (counted["state"], counted["reports"])
    assert (rejected, accepted, watermark) == (
        counted["rejected"],
        counted["accepted"],
        counted["watermark"],
    )


def test_the_vectors_blobs_are_the_bytes_that_the_layout_defines(vector):
    flush, offset = vector["fields"]["flush"], int(vector["fields"]["offset"])
    assert vector["blobs"].keys() == ({"all"} if flush else set())
    for blob in vector["blobs"].values():
        magic, entries, at, written, reports, *state = counts_of(bytes.fromhex(blob))
        assert (entries, at, written.hex()) == (3, offset, flush)
        if magic == b"LDP2":
            assert vector["fields"]["lineage"] == OURS
            assert len(blob) // 2 == 48 + 3 * (2 if max(state) > 255 else 1)
        assert (reports, state) == (vector["counted"]["reports"], vector["counted"]["state"])


def counts_of(blob):
    """What a blob of three entries says, by its layout's bytes as they are defined."""
    if blob[:4] == b"LDP1":
        return struct.unpack("<4sIq16sq3q", blob)
    *said, width = struct.unpack_from("<4sIq16sqQ", blob)
    return *said, *struct.unpack_from(f"<3{ {1: 'B', 2: 'H', 4: 'I', 8: 'Q'}[width] }", blob, 48)


def test_what_is_carried_on_is_stored_as_today(vector):
    """Nothing is rewritten that need not be: the fields come out as they went in, the lineage's text above all."""
    metadata, state = read(vector)
    assert layout.fields(metadata) == vector["fields"]
    state.apply(STREAM, Batch(0, state.offset, state.offset + 1, Columns.of([], [], [])))
    after, blobs = layout.dump(state, metadata, "ab" * 16)
    assert (
        after.lineage == vector["fields"]["lineage"]
    )  # that of an older layout is replaced by the claim alone
    assert after.epoch == int(vector["fields"]["epoch"])
    assert after.offset == int(vector["fields"]["offset"]) + 1
    again = json.loads(after.totals)
    assert again.pop("rules") == vector["counted"]["rules"]
    before = json.loads(vector["fields"]["totals"])
    before.pop("rules", None)
    assert again == before
    if vector["fields"]["flush"]:
        assert (after.blobs, blobs) == ({"all": vector["fields"]["flush"]}, {})


def test_a_window_that_changes_is_written_in_the_layout_of_today(vector):
    metadata, state = read(vector)
    frame = frames.encode(STREAM, np.array([(1,)] * 2, STREAM.oracle.report_dtype))
    state.rules = [rules.before(state.start)]
    state.apply(STREAM, Batch(0, state.offset, state.offset + 1, Columns.of([state.offset], [7], [frame])))
    _, blobs = layout.dump(state, dataclasses.replace(metadata, lineage=OURS), "ab" * 16)
    magic, _, _, _, reports, *counted = counts_of(blobs["all"])
    a, b, c = vector["counted"]["state"]
    assert (magic, reports, counted) == (b"LDP2", vector["counted"]["reports"] + 2, [a, b + 2, c])


def test_a_partition_of_an_older_layout_goes_on_under_our_lineage():
    assert carried_on(LAYOUT_1, OURS) == OURS
    for stored in (OURS, json.dumps(json.loads(OURS), indent=1), OURS.replace('"layout": 2', '"layout": 3')):
        assert carried_on(stored, OURS) == stored


def test_a_lineage_is_compared_by_what_it_says_not_by_its_text():
    spaced = json.dumps(dict(reversed(json.loads(OURS).items())), indent=1)
    assert spaced != OURS
    assert differing(spaced, OURS) == []
    vector = STORED["2/counted"]
    metadata = layout.parse(vector["fields"] | {"lineage": spaced})
    state = PartitionState.fresh(STREAM, 0)
    assert layout.dump(state, metadata, "ab" * 16)[0].lineage == spaced  # the store compares texts


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"group": "other"}, ["group is 'other' there, 'ldp-worker-colours' here"]),
        ({"topic_id": "new"}, [f"topic_id is 'new' there, '{TOPIC_ID}' here"]),
        ({"fingerprint": "00c0ffee"}, ["fingerprint is '00c0ffee' there, '8e9f39d0' here"]),
        ({"layout": "1"}, ["layout is '1' there, 2 here"]),
        ({"layout": 0}, ["layout is 0 there, 2 here"]),
        ({"layout": 1}, []),
        ({"layout": 3}, []),
        ({"windows": "hourly"}, []),
    ],
)
def test_only_what_must_never_change_makes_another_history(change, why):
    assert differing(json.dumps(json.loads(OURS) | change), OURS) == why


def test_what_is_no_lineage_differs_in_everything():
    for stored in ("", "nonsense", "[]", "{}"):
        assert [text.split()[0] for text in differing(stored, OURS)] == [
            "fingerprint",
            "group",
            "topic_id",
            "layout",
        ]
        assert newer(stored) is None


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"layout": 3}, "layout 3, where this version reads up to 2"),
        ({"layout": 7, "group": {"of": "another kind"}}, "layout 7, where this version reads up to 2"),
        ({"windows": "hourly"}, "windows 'hourly', where this version knows 'cumulative'"),
        ({"shard": 3}, "a lineage with shard, which this version does not know"),
    ],
)
def test_what_a_newer_version_wrote_is_refused_whatever_its_other_fields_are(change, why):
    stored = json.dumps(json.loads(OURS) | change)
    for fields in ({"lineage": stored}, STORED["2/counted"]["fields"] | {"lineage": stored}):
        with pytest.raises(NewerState) as refused:
            layout.parse(fields)
        assert str(refused.value).startswith(f"the counts in Redis are of {why}: a newer version")
        assert "Run that version" in str(refused.value)
    assert issubclass(NewerState, StateLost)


GAP = (
    "gap: offsets 2 to 3: recorded as lost, deleted before they were counted; not recountable: offsets 0 to 1: counted,"
    " then deleted; nothing differs in what remains: 6 records"
)


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("1/before-rules", None),
        ("1/claimed", None),
        ("1/counted", GAP),
        ("2/taken-over", None),
        ("2/claimed", None),
        ("2/counted", GAP),
        ("2/wide", None),
    ],
)
def test_the_audit_which_shares_no_code_reads_them_too(name, outcome):
    vector = STORED[name]
    log = [(record["timestamp"], bytes.fromhex(record["value"])) for record in vector["log"]]
    blobs = {"all": None} | {window: bytes.fromhex(blob) for window, blob in vector["blobs"].items()}
    row = judge(
        STREAM.document(),
        0,
        group=GROUP,
        cut=(vector["fields"], blobs),
        bounds=(vector["log_begins"], 10),
        read=lambda first, last, caps: [Records.of(log[first:last])],
    )
    assert row.difference == outcome
    newer = json.dumps(json.loads(OURS) | {"layout": 3})
    row = judge(
        STREAM.document(),
        0,
        group=GROUP,
        cut=(vector["fields"] | {"lineage": newer}, blobs),
        bounds=(vector["log_begins"], 10),
        read=lambda first, last, caps: [Records.of(log[first:last])],
    )
    assert (
        row.difference
        == "lineage: layout 3 in Redis, this audit reads up to 2: audit with the version that wrote it"
    )


def test_the_audit_sees_a_blob_of_a_newer_layout_than_the_lineage_says():
    vector = STORED["2/counted"]
    cut = vector["fields"] | {"lineage": LAYOUT_1}, {"all": bytes.fromhex(vector["blobs"]["all"])}
    row = judge(STREAM.document(), 0, group=GROUP, cut=cut, bounds=(4, 10), read=lambda first, last, caps: [])
    assert row.difference == "counts: the blob is of layout 2, the lineage says 1"


# --- the head


def head(name):
    return json.loads((VECTORS / "snapshot-schema-1" / f"{name}.json").read_text())


def test_a_head_of_before_rules_and_lineages_is_read():
    assert Head.parse(head("head-before-rules")) == Head(
        sequence=12,
        offsets={0: 10},
        reports=14,
        lineage={"fingerprint": "8e9f39d0"},
    )
    assert Head.parse(head("head-before-rules")).foreign(OURS) == []


def test_a_head_of_today_is_read():
    rules = STORED["1/counted"]["counted"]["rules"]
    read = Head.parse(head("head"))
    assert read == Head(
        sequence=12,
        offsets={0: 10},
        reports=7,
        gaps={0: [(2, 4)]},
        uncounted=(1,),
        rules={0: rules},
        lineage={"fingerprint": "8e9f39d0", "group": GROUP, "topic_id": TOPIC_ID},
    )
    assert read.foreign(OURS) == []
    assert dataclasses.replace(read, lineage={"group": "x"}).foreign(OURS) == [
        f"group 'x' there, {GROUP!r} here"
    ]


def test_a_head_of_a_newer_version_is_refused():
    with pytest.raises(ValueError, match="schema 2, where this version reads up to 1"):
        Head.parse(head("head") | {"schema": 2})
