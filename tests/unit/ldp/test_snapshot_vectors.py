"""Snapshots that were published once: read for ever."""

import json
from base64 import b64decode
from pathlib import Path

import pytest

from ldp import snapshot

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
