"""The AsyncAPI description against real messages, the schema of snapshots, and the pages that it draws on."""

import json
import re
from collections import Counter
from functools import cache

import jsonschema
import numpy as np

import ldp
from docs.generate.__main__ import REFERENCE
from ldp import snapshot
from ldp.query import SetQuery, TopQuery
from ldp.snapshot import Cut, Period, Slots
from tests.support.docs import page
from tests.support.harness.rights import lines
from tests.support.wire_vectors import streams

DOCUMENT = json.loads((REFERENCE / "asyncapi.json").read_text(encoding="utf-8"))
CHANNELS = DOCUMENT["channels"]
SNAPSHOT = json.loads(
    (REFERENCE.parents[1] / "ldp/snapshot/snapshot.schema.json").read_text(encoding="utf-8")
)
JSON = "application/json"


@cache
def validator(channel, message, part):
    """Returns the validator of a part of a message: payload, headers or key."""
    found = CHANNELS[channel]["messages"][message]
    schema = found["bindings"]["kafka"]["key"] if part == "key" else found[part]
    return jsonschema.Draft7Validator(schema | {"components": DOCUMENT["components"]})


def published():
    """Yields the messages of three snapshots: small, of a window, and in chunks."""
    rng = np.random.default_rng(7)
    small = ldp.Stream("small", ldp.OLH("1", domain_size=4), labels=("a", "b", "c/d", "é"))
    estimate = small.oracle.estimate(np.array([50, 30, 20, 25]), 100)
    asked = [SetQuery("some", (0, 2)), TopQuery("most", 2)]
    cut = Cut({0: 90, 1: 12}, {0: [(3, 7)]})
    yield from snapshot.encode(snapshot.take(small, estimate, cut, 3, queries=asked, published=7))
    window = Period("1h", 3_600_000, 7_200_000, final=True)
    yield from snapshot.encode_window(snapshot.take(small, estimate, cut, 3, queries=asked, window=window))
    d = snapshot.INLINE + 5
    large = ldp.Stream("large", ldp.OUE("1", domain_size=d), labels=tuple(map(str, range(d))))
    counts = rng.binomial(1000, 0.3, d)
    yield from snapshot.encode(snapshot.take(large, large.oracle.estimate(counts, 1000), cut, 1))


def test_each_message_of_a_snapshot_is_described_once():
    seen = Counter()
    for message in published():
        headers = {name: text.decode() for name, text in message.headers(3)}
        fitting = [
            name
            for name in CHANNELS["snapshots"]["messages"]
            if validator("snapshots", name, "key").is_valid(message.key)
            and validator("snapshots", name, "headers").is_valid(headers)
        ]
        assert len(fitting) == 1, (message.key, fitting)
        described = CHANNELS["snapshots"]["messages"][fitting[0]]
        assert described["contentType"] == message.content_type
        assert described["headers"]["properties"].keys() >= headers.keys()
        seen[fitting[0]] += 1
        if message.content_type == JSON:
            validator("snapshots", fitting[0], "payload").validate(json.loads(message.body))
    of_json = [name for name, m in CHANNELS["snapshots"]["messages"].items() if m["contentType"] == JSON]
    assert all(seen[name] >= 2 for name in of_json), seen
    assert sum(seen[name] for name in seen if name not in of_json) >= 2


def changed(value):
    """Yields JSON values that differ from the given one in one place."""
    match value:
        case dict():
            for key in value:
                yield {k: v for k, v in value.items() if k != key}
                yield from (value | {key: other} for other in changed(value[key]))
        case list() if value:
            yield []
            yield [*value, value[0]]
            yield from ([other, *value[1:]] for other in changed(value[0]))
        case _:
            yield from (other for other in (None, -1, 0.5, "", [], {}) if other != value)


def test_the_payloads_are_those_of_the_schema_of_snapshots():
    """Draft 7 and draft 2020-12 agree on each document, changed in each place."""
    verdicts = Counter()
    for message in published():
        kind = re.search("/(head|domain|base|norm)$", message.key)
        if message.content_type != JSON or kind is None or message.key.startswith("large"):
            continue
        kind = {"base": "body", "norm": "body"}.get(kind[1], kind[1])
        theirs = jsonschema.Draft202012Validator({**SNAPSHOT, "oneOf": [{"$ref": f"#/$defs/{kind}"}]})
        for document in changed(json.loads(message.body)):
            good = theirs.is_valid(document)
            assert validator("snapshots", kind, "payload").is_valid(document) == good, document
            verdicts[kind, good] += 1
    assert min(verdicts[kind, good] for kind in ("head", "domain", "body") for good in (True, False)) > 2


def test_rows_follow_their_description():
    stream = ldp.Stream("colours", ldp.GRR("1", domain_size=3))
    taken = snapshot.take(stream, stream.oracle.estimate([50, 30, 20], 100), Cut({0: 100}, {}), 1)
    rows = snapshot.encode_rows(taken, Slots(("base", "norm-sub"), {"": 3}))
    assert len(rows) == 6
    key, value = (validator("rows", "row", part) for part in ("key", "payload"))
    for row in rows:
        for schema, text in ((key, row.key), (value, row.value)):
            document = json.loads(text)
            schema.validate(document)
            assert schema.schema["properties"].keys() == document.keys()
            for name in document:
                assert not schema.is_valid({k: v for k, v in document.items() if k != name})
                assert not schema.is_valid(document | {name: []})
    empty = {name for name in value.schema["properties"] if value.is_valid(document | {name: None})}
    assert empty == {"value", "label", "low", "high", "window_end"}


ACCEPTED = re.compile(
    'report is "|list for bytes|rate alone|byte too|two reports|for another stream|hexadecimal|bits set|line break'
    "|another protocol"
)
"""Malformed frames that the schema accepts: most need the stream's document.

In Python, $ also matches before a line feed at the end.
"""


def test_json_frames_follow_their_description():
    schema, verdicts = validator("reports", "jsonFrame", "payload"), Counter()
    for record in (
        one for kind in ("frames", "oracles", "channels") for each in streams(kind) for one in each["records"]
    ):
        if record.get("text", "")[:1] != "{":
            continue
        try:
            good = schema.is_valid(parsed(record["text"]))
        except (ValueError, RecursionError):
            good = False
        verdicts[record.get("reason"), good] += 1
        if record.get("reason") == "json":
            assert not good or ACCEPTED.search(record["what"]), record
    assert not verdicts[None, False], verdicts
    assert min(verdicts[None, True], verdicts["json", False]) > 50, verdicts


def parsed(text):
    """Returns a frame; refuses repeated keys, and makes no integer of a float."""

    def once(pairs):
        if len(dict(pairs)) < len(pairs):
            raise ValueError("a key is repeated")
        return dict(pairs)

    return json.loads(text, object_pairs_hook=once, parse_float=lambda _: 0.5)


def named(text):
    """Returns the names in the first column of a table."""
    return {
        name
        for cell in re.findall(r"(?m)^\| (`.+?|reason.+?) \|", text)
        for name in re.findall("`([^`]+)`", cell)
    }


def test_headers_are_those_of_the_page():
    letters, _, snapshots = page("reference/topics-and-messages").partition("## Snapshots")
    tables = {
        "deadLetters": named(letters.partition("| part |")[2]) - {"batch", "late"},  # the two are reasons
        "snapshots": named(snapshots.partition("| header |")[2]),
    }
    for channel, names in tables.items():
        headers = [message["headers"]["properties"] for message in CHANNELS[channel]["messages"].values()]
        assert set().union(*headers) == names, channel


def test_topics_have_their_cleanup_policy_and_permissions():
    policies = {
        name: one["bindings"]["kafka"]["topicConfiguration"]["cleanup.policy"]
        for name, one in CHANNELS.items()
    }
    assert policies == {
        "reports": ["delete"],
        "snapshots": ["compact"],
        "rows": ["compact"],
        "deadLetters": ["delete"],
    }
    for line in lines():
        operation, _, topic = line.removeprefix("--operation ").partition(" --topic ")
        for channel in CHANNELS.values():
            if channel["address"] == topic:
                assert operation in channel["x-permissions"]["ldp-worker"]
    assert "only Read" in CHANNELS["snapshots"]["x-permissions"]["a consumer of snapshots"]
    assert "Write" in CHANNELS["rows"]["x-permissions"]["`rows.topic`, to write rows"]
    assert "only Write" in CHANNELS["reports"]["x-permissions"]["`simulate`, a producer"]
