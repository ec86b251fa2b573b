"""What an earlier version stored or published is read for ever; what a newer one did is refused, and said to be."""

import dataclasses
import json
import math
import struct
from pathlib import Path

import numpy as np
import pytest

import ldp
from ldp import frames
from ldp.consistency import METHODS
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
    for layout in (1, 2, 3)
    for path in (VECTORS / f"redis-layout-{layout}").glob("*.json")
}
GROUP, TOPIC_ID = "ldp-worker-colours", "J9XkU2mHRxq0bVtnYd3Qpw"
KEY = layout.meta_key("colours", 0)
STREAM = ldp.Stream("colours", ldp.GRR("1", 3))
OURS = lineage_of(GROUP, STREAM, TOPIC_ID)
LAYOUT_1, LAYOUT_2 = (
    json.dumps(json.loads(OURS) | {"layout": layout, "windows": "cumulative"}, sort_keys=True)
    for layout in (1, 2)
)
NO_WINDOWS = {"late": {}, "undated": 0, "closed": 0, "floor": None, "dropped": 0, "since": {}}
"""What layouts 1 and 2 could not say."""
EVER = [0, 2**63 - 1]
"""The times around a gap that a layout of before windows says nothing of."""


@pytest.fixture(params=sorted(STORED))
def vector(request):
    return STORED[request.param]


def read(vector):
    """What this version makes of a stored partition."""
    metadata = layout.parse(vector["fields"], KEY)
    return metadata, layout.load(
        STREAM, metadata, {name: bytes.fromhex(blob) for name, blob in vector["blobs"].items()}
    )


def counted(vector):
    """What a vector says of its counts; where its layout has no windows, what that means today."""
    said = vector["counted"]
    if "cells" in said:
        return said
    assert said["late"] == 0
    cells = {"all": {"reports": said["reports"], "state": said["state"]}}
    return said | NO_WINDOWS | {"cells": cells, "around": [EVER] * len(said["gaps"])}


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
            for name, cell in state.cells.items()
        },
        "accepted": state.accepted,
        "rejected": dict(state.rejected),
        "late": state.late,
        "undated": state.undated,
        "watermark": state.watermark,
        "closed": state.closed,
        "floor": state.floor,
        "dropped": state.dropped,
        "since": state.since,
        "gaps": [list(gap) for gap in state.gaps],
        "around": [list(times) for times in state.around],
        "rules": [rule.as_json() for rule in state.rules],
    }


def test_there_is_one_of_each_kind():
    assert {name for name in STORED if name[0] == "1"} == {"1/before-rules", "1/counted", "1/claimed"}
    assert {name for name in STORED if name[0] == "2"} == {"2/taken-over", "2/counted", "2/claimed", "2/wide"}
    assert {name for name in STORED if name[0] == "3"} == {
        "3/claimed",
        "3/counted",
        "3/taken-over",
        "3/taken-over-twice",
        "3/windowed",
        "3/dropped",
        "3/changed",
    }
    for name, vector in STORED.items():
        assert vector["fields"]["lineage"] == {"1": LAYOUT_1, "2": LAYOUT_2, "3": OURS}[name[0]]


def test_what_is_stored_is_read_as_it_was_counted(vector):
    metadata, state = read(vector)
    assert differing(metadata.lineage, OURS) == []
    assert newer(metadata.lineage) is None
    assert said(state) == counted(vector)


HOUR, MINUTE = 3_600_000, 60_000
SPANS = {
    "1h": (HOUR, HOUR),
    "24h every 1h": (24 * HOUR, HOUR),
    "90m every 30m": (90 * MINUTE, 30 * MINUTE),
    "20m": (20 * MINUTE, 20 * MINUTE),
}
"""The length and the hop of the windows in the vectors."""
AGES = {"1m": MINUTE, "10m": 10 * MINUTE, "1h": HOUR, "6h": 6 * HOUR, "1d": 24 * HOUR, "7d": 7 * 24 * HOUR}


def verdict(value, rule):
    """Why a record is rejected, or None: the vectors' own kinds of values."""
    if not value:
        return "empty"
    if value[0] != 1:
        return "version"
    return "many" if rule["most_reports"] is not None and len(value) - 5 > rule["most_reports"] else None


def recount(vector):
    """What the log of a vector amounts to, record by record, by its rules, its gaps, its floor and its drops."""
    given = counted(vector)
    floor, dropped = given["floor"], given["dropped"]
    cells, rejected, late = {"all": [0, 0, 0]}, {}, {}
    accepted = undated = 0
    watermark, closed, since, around = None, floor or 0, {}, {}
    begun = []
    for offset in range(given["start"], given["offset"] + 1):
        for rule in given["rules"]:
            if rule["offset"] <= offset and rule not in begun:
                begun.append(rule)
                hops = {name: SPANS[name][1] for name in rule.get("windows", []) if name != "all"}
                new = {n: 0 if watermark is None else watermark - watermark % e + e for n, e in hops.items()}
                since = {name: since.get(name, start) for name, start in new.items()}
        if offset == given["offset"]:
            break
        gap = next((gap for gap in given["gaps"] if gap[0] <= offset < gap[1]), None)
        if gap is not None:
            around.setdefault(tuple(gap), [closed, None])
            continue
        rule, record = begun[-1], vector["log"][offset]
        value, time = bytes.fromhex(record["value"]), record["timestamp"]
        if (reason := verdict(value, rule)) is not None:
            rejected[reason] = rejected.get(reason, 0) + 1
            continue
        accepted += 1
        for times in around.values():
            if times[1] is None and time >= 0:
                times[1] = time
        cell = "all"
        if "windows" in rule:
            pane = math.gcd(*(SPANS[name][1] for name in rule["windows"] if name != "all"))
            start = time - time % pane
            if time < 0:
                undated += 1
            elif start + pane <= closed:
                behind = closed - start - pane
                age = next((age for age, most in AGES.items() if behind <= most), "older")
                late[age] = late.get(age, 0) + 1
            elif start + pane > dropped:
                cell = f"{start}+{pane}"
        counts = cells.setdefault(cell, [0, 0, 0])
        for index in value[5:]:
            counts[index] += 1
        watermark = time if watermark is None else max(watermark, time)
        if "windows" in rule:
            closed = max(closed, watermark - rule["grace"] - rule["out_of_order"])
    return {
        "start": given["start"],
        "offset": given["offset"],
        "reports": sum(map(sum, cells.values())),
        "state": [sum(entries) for entries in zip(*cells.values(), strict=True)],
        "cells": {name: {"reports": sum(counts), "state": counts} for name, counts in cells.items()},
        "accepted": accepted,
        "rejected": rejected,
        "late": late,
        "undated": undated,
        "watermark": watermark,
        "closed": closed,
        "floor": floor,
        "dropped": dropped,
        "since": since,
        "gaps": given["gaps"],
        "around": list(around.values()),
        "rules": given["rules"],
    }


def test_the_vectors_say_what_their_log_says(vector):
    """The stated counts, by a recount of the log that is spelt out beside them."""
    recounted = recount(vector)
    if EVER in counted(vector)["around"]:  # nobody noted the times
        recounted["around"] = [EVER] * len(recounted["around"])
    assert recounted == counted(vector)


def test_the_vectors_blobs_are_the_bytes_that_the_layout_defines(vector):
    fields, cells = vector["fields"], counted(vector)["cells"]
    flushes = json.loads(fields["blobs"])
    assert vector["blobs"].keys() == flushes.keys() == (cells.keys() if fields["flush"] else set())
    for name, blob in vector["blobs"].items():
        magic, entries, at, written, reports, *state = counts_of(bytes.fromhex(blob))
        assert (entries, written.hex()) == (3, flushes[name])
        assert at == int(fields["offset"]) if flushes[name] == fields["flush"] else at < int(fields["offset"])
        if magic != b"LDP1":
            assert fields["lineage"] in {b"LDP2": (LAYOUT_2, OURS), b"LDP3": (OURS,)}[magic]
            assert len(blob) // 2 == 48 + 3 * (2 if max(state) > 255 else 1)
        assert {"reports": reports, "state": state} == cells[name]


def counts_of(blob):
    """What a blob of three entries says, by its layout's bytes as they are defined."""
    if blob[:4] == b"LDP1":
        return struct.unpack("<4sIq16sq3q", blob)
    *said, width = struct.unpack_from("<4sIq16sqI", blob)
    return *said, *struct.unpack_from(f"<3{ {1: 'B', 2: 'H', 4: 'I', 8: 'Q'}[width] }", blob, 48)


def test_what_is_carried_on_is_stored_as_today(vector):
    """Nothing is rewritten that need not be: the fields come out as they went in, the lineage's text above all."""
    metadata, state = read(vector)
    assert layout.fields(metadata, KEY) == vector["fields"]
    state.apply(STREAM, Batch(0, state.offset, state.offset + 1, Columns.of([], [], [])))
    if vector["fields"]["flush"]:
        assert state.changed == set()
    after, blobs = layout.dump(state, metadata, "ab" * 16)
    assert (
        after.lineage == vector["fields"]["lineage"]
    )  # that of an older layout is replaced by the claim alone
    assert after.epoch == int(vector["fields"]["epoch"])
    assert after.offset == int(vector["fields"]["offset"]) + 1
    again, before = json.loads(after.totals), json.loads(vector["fields"]["totals"])
    if "closed" not in before:  # of a layout without windows
        assert before.pop("late") == 0
        before |= NO_WINDOWS | {"around": [EVER] * len(before["gaps"])}
    assert again == before | {"rules": vector["counted"]["rules"]}
    if vector["fields"]["flush"]:
        assert (after.blobs, blobs) == (json.loads(vector["fields"]["blobs"]), {})


def test_a_window_that_changes_is_written_in_the_layout_of_today(vector):
    metadata, state = read(vector)
    frame = frames.encode(STREAM, np.array([(1,)] * 2, STREAM.oracle.report_dtype))
    state.judge_by([rules.before(state.start)])
    state.apply(STREAM, Batch(0, state.offset, state.offset + 1, Columns.of([state.offset], [7], [frame])))
    _, blobs = layout.dump(state, dataclasses.replace(metadata, lineage=OURS), "ab" * 16)
    magic, _, _, _, reports, *state = counts_of(blobs["all"])
    before = counted(vector)["cells"]["all"]
    a, b, c = before["state"]
    assert (magic, reports, state) == (b"LDP3", before["reports"] + 2, [a, b + 2, c])
    assert blobs.keys() == {"all"}


def test_a_partition_of_an_older_layout_goes_on_under_our_lineage():
    assert carried_on(LAYOUT_1, OURS) == carried_on(LAYOUT_2, OURS) == OURS
    for stored in (OURS, json.dumps(json.loads(OURS), indent=1), OURS.replace('"layout": 3', '"layout": 4')):
        assert carried_on(stored, OURS) == stored


def test_a_lineage_is_compared_by_what_it_says_not_by_its_text():
    spaced = json.dumps(dict(reversed(json.loads(OURS).items())), indent=1)
    assert spaced != OURS
    assert differing(spaced, OURS) == []
    vector = STORED["3/counted"]
    metadata = dataclasses.replace(layout.parse(vector["fields"], KEY), lineage=spaced)
    assert layout.parse(layout.fields(metadata, KEY), KEY) == metadata
    state = PartitionState.fresh(STREAM, 0)
    assert layout.dump(state, metadata, "ab" * 16)[0].lineage == spaced  # the store compares texts


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"group": "other"}, ["group is 'other' there, 'ldp-worker-colours' here"]),
        ({"topic_id": "new"}, [f"topic_id is 'new' there, '{TOPIC_ID}' here"]),
        ({"fingerprint": "00c0ffee"}, ["fingerprint is '00c0ffee' there, '8e9f39d0' here"]),
        ({"layout": "1"}, ["layout is '1' there, 3 here"]),
        ({"layout": 0}, ["layout is 0 there, 3 here"]),
        ({"layout": 1}, []),
        ({"layout": 2}, []),
        ({"layout": 4}, []),
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
        ({"layout": 4}, "layout 4, where this version reads up to 3"),
        ({"layout": 7, "group": {"of": "another kind"}}, "layout 7, where this version reads up to 3"),
        ({"windows": "hourly"}, "windows 'hourly', where this version knows 'cumulative'"),
        ({"shard": 3}, "a lineage with shard, which this version does not know"),
    ],
)
def test_what_a_newer_version_wrote_is_refused_whatever_its_other_fields_are(change, why):
    stored = json.dumps(json.loads(OURS) | change)
    for fields in ({"lineage": stored}, STORED["3/counted"]["fields"] | {"lineage": stored}):
        with pytest.raises(NewerState) as refused:
            layout.parse(fields, KEY)
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
        ("3/claimed", None),
        ("3/counted", GAP),
        ("3/taken-over", GAP),
        ("3/taken-over-twice", None),
        ("3/windowed", None),
        ("3/changed", None),
        ("3/dropped", GAP.replace("6 records", "8 records")),
    ],
)
def test_the_audit_which_shares_no_code_reads_them_too(name, outcome):
    vector = STORED[name]
    log = [(record["timestamp"], bytes.fromhex(record["value"])) for record in vector["log"]]
    blobs = {"all": None} | {window: bytes.fromhex(blob) for window, blob in vector["blobs"].items()}
    row = judge(
        STREAM.document(),
        0,
        stream="colours",
        group=GROUP,
        cut=(vector["fields"], blobs),
        bounds=(vector["log_begins"], len(log)),
        read=lambda first, last, caps: [Records.of(log[first:last])],
    )
    assert row.difference == outcome
    newer = json.dumps(json.loads(OURS) | {"layout": 4})
    row = judge(
        STREAM.document(),
        0,
        stream="colours",
        group=GROUP,
        cut=(vector["fields"] | {"lineage": newer}, blobs),
        bounds=(vector["log_begins"], len(log)),
        read=lambda first, last, caps: [Records.of(log[first:last])],
    )
    assert (
        row.difference
        == "lineage: layout 4 in Redis, this audit reads up to 3: audit with the version that wrote it"
    )


def test_the_audit_sees_a_blob_of_a_newer_layout_than_the_lineage_says():
    vector = STORED["2/counted"]
    cut = vector["fields"] | {"lineage": LAYOUT_1}, {"all": bytes.fromhex(vector["blobs"]["all"])}
    row = judge(
        STREAM.document(),
        0,
        stream="colours",
        group=GROUP,
        cut=cut,
        bounds=(4, 10),
        read=lambda first, last, caps: [],
    )
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
        methods=tuple(METHODS),
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
        methods=tuple(METHODS),
    )
    assert read.foreign(OURS) == []
    assert dataclasses.replace(read, lineage={"group": "x"}).foreign(OURS) == [
        f"group 'x' there, {GROUP!r} here"
    ]


def test_a_head_of_a_newer_version_is_refused():
    with pytest.raises(ValueError, match="schema 3, where this version reads up to 2"):
        Head.parse(head("head") | {"schema": 3})
