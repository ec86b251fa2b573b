"""Stored snapshots stay readable."""

import json
from base64 import b64decode
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from ldp import snapshot
from tests.unit.ldp.test_snapshot import SCHEMA
from tests.unit.ldp.test_snapshot_roundtrip import as_python_writes

STORED = Path(__file__).parents[2] / "vectors" / "snapshot-schema-1"
WITH_WINDOWS = json.loads((STORED / "windows.json").read_text(encoding="utf-8"))
VECTORS = [
    json.loads((STORED / f"{name}.json").read_text(encoding="utf-8"))
    for name in ("plain", "chunked", "of-a-file")
]
POPULATION = json.loads((STORED.parent / "snapshot-schema-2/population.json").read_text(encoding="utf-8"))
PARTS = [pytest.param(said, id=f"{said['name']} {said['window'] or ''}") for said in POPULATION["snapshots"]]
SNAPSHOTS = [pytest.param(vector, id=vector["name"]) for vector in VECTORS]


def value(message):
    return message["body"].encode() if "body" in message else b64decode(message["base64"])


def topic(vector):
    """The messages by their keys, as a reader of the topic has them."""
    return {
        message["key"]: ({name: said.encode() for name, said in message["headers"].items()}, value(message))
        for message in vector["messages"]
    }


@pytest.mark.parametrize("vector", SNAPSHOTS)
def test_published_vectors_are_read(vector):
    read = snapshot.assemble(vector["stream"], topic(vector))
    assert list(read.bodies) == vector["methods"]
    labels = vector["document"].get("labels")
    assert (read.labels and list(read.labels)) == labels


@pytest.mark.parametrize("vector", SNAPSHOTS)
def test_published_vectors_are_rewritten_byte_for_byte(vector):
    """Except for floats with an exponent, which writers format as 1e-05 or 0.00001: the same doubles."""
    read = snapshot.assemble(vector["stream"], topic(vector))
    parts = snapshot.encode(read, vector["inline"], vector["chunk"])
    assert [part.key for part in parts] == [message["key"] for message in vector["messages"]]
    same = 0
    for part, message in zip(parts, vector["messages"], strict=True):
        headers = {name: said.decode() for name, said in part.headers(read.sequence)}
        assert list(headers.items()) == list(message["headers"].items())
        if "base64" in message:
            assert part.body == b64decode(message["base64"])
        else:
            assert as_python_writes(part.body.decode()) == message["body"]
            same += part.body.decode() == message["body"]
            assert "e-" in message["body"] or part.body.decode() == message["body"]
    assert same


def read_window(said):
    everything = topic(WITH_WINDOWS)
    if said["start"] is None:
        return snapshot.assemble("colours", everything)
    return snapshot.assemble_window("colours", everything, said["name"], said["start"])


WINDOWS = [pytest.param(said, id=f"{said['name']} {said['sequence']}") for said in WITH_WINDOWS["windows"]]


@pytest.mark.parametrize("said", WINDOWS)
def test_published_windows_are_read(said):
    read = read_window(said)
    assert (read.window, read.sequence) == (
        snapshot.Period(said["name"], said["start"], said["end"], said["final"]),
        said["sequence"],
    )
    assert (read.reports, read.complete) == (sum(said["counts"]), said["complete"])
    assert list(read.labels) == WITH_WINDOWS["document"]["labels"]
    # GRR: e to a user's own value, 1 to each other one, so that count / n = f·e / (e + 2) + (1 - f) / (e + 2)
    e, n = float(np.e), read.reports
    expected = [(count / n * (e + 2) - 1) / (e - 1) for count in said["counts"]]
    np.testing.assert_allclose(read.bodies["base"].frequencies, expected, atol=1e-9)
    assert read.bodies["base"].sets[0].frequency == pytest.approx(expected[0])
    assert read.estimate().windows == (() if said["start"] is None else ((said["start"], said["end"]),))


@pytest.mark.parametrize("said", WINDOWS)
def test_published_windows_are_rewritten_byte_for_byte(said):
    read = read_window(said)
    encode = snapshot.encode if said["start"] is None else snapshot.encode_window
    messages = {message["key"]: message for message in WITH_WINDOWS["messages"]}
    for part in encode(read, said["inline"], said["chunk"]):
        message = messages[part.key]
        assert {name: text.decode() for name, text in part.headers(read.sequence)} == message["headers"]
        assert part.body == value(message)


def test_topics_follow_the_schema():
    validator = jsonschema.Draft202012Validator(SCHEMA)
    for vector in (WITH_WINDOWS, POPULATION):
        for key, (headers, body) in topic(vector).items():
            if headers["content-type"] == b"application/json" and "/labels/" not in key:
                validator.validate(json.loads(body))


def test_a_topic_with_windows_lists_them():
    received = topic(WITH_WINDOWS)
    assert snapshot.windows("colours", received) == sorted(
        (read_window(said).window for said in WITH_WINDOWS["windows"] if said["start"] is not None),
        key=lambda window: (window.name, window.start),
    )


def read_part(said):
    everything = topic(POPULATION)
    if said["window"] is None:
        return snapshot.assemble(said["name"], everything)
    return snapshot.assemble_window(said["name"], everything, *said["window"])


@pytest.mark.parametrize("said", PARTS)
def test_published_populations_and_parts_are_read(said):
    read, e, counts_of = read_part(said), float(np.e), iter(said["counts"])
    sums, known = dict.fromkeys(read.labels, 0.0), dict.fromkeys(read.labels, 0)
    for document in POPULATION["documents"]:
        if "@" in said["name"] and document["labels"] != list(read.labels):
            continue
        counts = next(counts_of)
        for label, count in zip(document["labels"], counts or (), strict=False):
            # GRR: the share f of the users of the document gives count / n = (f·(e − 1) + 1) / (e + 2)
            sums[label] += count * (e + 2) - sum(counts)
            known[label] += sum(counts)
    assert read.reports == max(known.values())
    expected = [sums[label] / (e - 1) / n if n else np.nan for label, n in known.items()]
    for name, body in read.bodies.items():
        of_post_pos = np.maximum(expected, 0) if name == "post-pos" else expected
        if name != "norm-sub":
            np.testing.assert_allclose(body.frequencies, of_post_pos, atol=1e-9)
    assert (read.known is None) == (len({*known.values()}) == 1)
    if read.known is not None:
        assert read.known.tolist() == [*known.values()]


@pytest.mark.parametrize("said", PARTS)
def test_published_populations_and_parts_are_rewritten_byte_for_byte(said):
    read = read_part(said)
    encode = snapshot.encode if said["window"] is None else snapshot.encode_window
    messages = {message["key"]: message for message in POPULATION["messages"]}
    for part in encode(read, POPULATION["inline"], POPULATION["chunk"]):
        message = messages[part.key]
        assert {name: text.decode() for name, text in part.headers(read.sequence)} == message["headers"]
        assert part.body == value(message)
