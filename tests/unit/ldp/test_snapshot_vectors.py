"""Snapshots that were published once: read for ever."""

import json
from base64 import b64decode
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import ldp
from ldp import snapshot
from ldp.query import SetQuery, TopQuery
from tests.unit.ldp.test_snapshot_roundtrip import as_python_writes

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "snapshots.json").read_text(encoding="utf-8"))
SNAPSHOTS = [pytest.param(vector, id=vector["name"]) for vector in VECTORS["snapshots"]]


def value(message):
    return message["body"].encode() if "body" in message else b64decode(message["base64"])


def topic(vector):
    """The messages by their keys, as a reader of the topic has them."""
    return {
        message["key"]: ({name: said.encode() for name, said in message["headers"].items()}, value(message))
        for message in vector["messages"]
    }


@pytest.mark.parametrize("vector", SNAPSHOTS)
def test_what_was_published_is_read(vector):
    read = snapshot.assemble(vector["stream"], topic(vector))
    assert list(read.bodies) == vector["methods"]
    labels = vector["document"].get("labels")
    assert (read.labels and list(read.labels)) == labels


def taken(vector):
    """The same snapshot, taken today."""
    head = json.loads(vector["messages"][0]["body"])
    queries = [SetQuery(*asked) for asked in vector["sets"]] + [TopQuery(*asked) for asked in vector["tops"]]
    found = {}
    for said in json.loads(next(m["body"] for m in vector["messages"] if "/all/" in m["key"]))["queries"]:
        if said["recommended"]:
            found[said["name"]] = snapshot.Recommended(**said["recommended"])
    stream = ldp.Stream.from_document(vector["stream"], vector["document"])
    return snapshot.take(
        stream,
        stream.oracle.estimate(vector["counts"], vector["reports"]),
        snapshot.Cut(
            {int(p): offset for p, offset in head["offsets"].items()},
            {int(p): gaps for p, gaps in head["gaps"].items()},
            head["uncounted"],
            {int(p): rules for p, rules in head["rules"].items()},
        ),
        head["sequence"],
        queries,
        vector["level"],
        vector["methods"],
        found | {"most": snapshot.Recommended("base-cut", 7)},
        head.get("lineage"),
        head["snapshot"] if "lineage" in head and vector["name"] == "plain" else None,
    )


@pytest.mark.parametrize("vector", SNAPSHOTS)
def test_what_was_published_is_written_again_to_the_byte(vector):
    """But for floats with an exponent, of which one writer makes 1e-05 and another 0.00001: the same doubles."""
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


@pytest.mark.parametrize("vector", SNAPSHOTS)
def test_what_was_published_is_what_is_taken_today(vector):
    read, again = snapshot.assemble(vector["stream"], topic(vector)), taken(vector)
    nothing = {"bodies": {}, "std_error": 0.0}
    assert replace(read, **nothing) == replace(again, **nothing)
    assert read.std_error == pytest.approx(again.std_error, rel=1e-12)
    for name, body in read.bodies.items():
        same = again.bodies[name]
        assert body.sum == pytest.approx(same.sum, rel=1e-9, abs=1e-12)
        assert [answer.query for answer in body.sets] == [answer.query for answer in same.sets]
        for vectors in zip(numbers(body), numbers(same), strict=True):
            np.testing.assert_allclose(*vectors, rtol=1e-9, atol=1e-12)


def numbers(body):
    vectors = [body.frequencies, body.low, body.high]
    for answer in body.sets:
        vectors += [answer.frequency, answer.std_error, answer.low, answer.high]
    for answer in body.tops:
        vectors += [answer.values, answer.frequencies, answer.low, answer.high]
    return [np.array(vector, np.float64) for vector in vectors]
