"""Vectors in chunks, read by the audit's own decoder."""

import struct
from dataclasses import replace

import numpy as np
import pytest

from ldp.snapshot import chunks, encoding, rounding
from tests.unit.worker.audit.publishing import World
from tests.unit.worker.audit.test_windows import HOPS, PLAIN, TENS
from worker.audit.errors import Difference
from worker.audit.vectors import read

SPARSE = "application/vnd.ldp.sparse.float32"


@pytest.fixture
def chunked(monkeypatch):
    """Domains of three values are large ones, in chunks of two."""
    monkeypatch.setattr(encoding, "INLINE", 1)
    monkeypatch.setattr(encoding, "CHUNK", 2)
    monkeypatch.setattr(rounding, "INLINE", 1)
    monkeypatch.setattr(encoding.encode, "__defaults__", (1, 2))
    monkeypatch.setattr(encoding.encode_window, "__defaults__", (1, 2))


def test_the_audit_reads_each_type_as_it_was_written():
    coins = np.random.default_rng(3)
    made = set()
    for i in range(40):
        vector = coins.normal(size=11) * (coins.random(11) < (0.1, 0.9)[i % 2])
        vector = vector.astype(np.float32).astype(np.float64) if i % 4 < 2 else vector
        content_type, data = chunks.shortest(vector)
        made.add(content_type)
        found = read("x", "k", {"chunks": 1}, {"k/x/0": data}, {"k/x/0": content_type})
        assert found.values.tobytes() == vector.tobytes()
        assert (found.off > 0).all() == ("float32" in content_type)
    assert len(made) == 4


@pytest.mark.parametrize(("seed", "limits"), [(1, TENS), (2, HOPS)])
def test_snapshots_published_in_chunks_are_recounted(seed, limits, chunked):
    world = World(seed, limits, queries=True).run()
    types = {each.headers["content-type"].decode() for each in world.topic if each.value}
    assert {SPARSE, "application/vnd.ldp.float64"} & types
    assert "application/vnd.ldp.float32" in types
    for topic in (world.topic, world.compacted()):
        assert world.audit(topic=topic).difference is None


def changed(world, key, change):
    topic = [replace(each) for each in world.topic]
    last = max(i for i, each in enumerate(topic) if each.key == key and each.value)
    change(topic[last])
    return world.audit(topic=topic).difference


def test_a_number_off_by_more_than_its_rounding_is_detected(chunked):
    world = World(0, PLAIN, queries=True).run()

    def by_two_units(sent):
        assert sent.headers["content-type"] == b"application/vnd.ldp.float32"
        first, second = struct.unpack("<ff", sent.value)
        up = np.nextafter(np.nextafter(np.float32(first), np.float32(9)), np.float32(9))
        sent.value = struct.pack("<ff", float(up), second)

    def a_bit(sent):
        assert sent.headers["content-type"] == b"application/vnd.ldp.float64"
        first, second = struct.unpack("<dd", sent.value)
        sent.value = struct.pack("<dd", float(np.nextafter(first, 9)), second)

    def another_type(sent):
        sent.headers = sent.headers | {"content-type": b"application/vnd.ldp.float16"}

    assert "has content type 'application/vnd.ldp.float16'" in changed(
        world, "s/all/norm/frequencies/0", another_type
    )
    assert "norm: frequency[0] is" in changed(world, "s/all/norm/frequencies/0", by_two_units)
    assert "frequency[0] is" in changed(world, "s/all/base/frequencies/0", a_bit)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (struct.pack("<IHHff", 9, 3, 3, 1, 1), "indices that are not ascending"),
        (struct.pack("<IHHff", 9, 4, 3, 1, 1), "indices that are not ascending"),
        (struct.pack("<IHf", 9, 9, 1), "not ascending below 9"),
        (struct.pack("<IHf", 9, 3, 1) + b"\0", "11 bytes, an invalid size"),
    ],
)
def test_an_invalid_sparse_chunk_is_detected(data, said):
    with pytest.raises(Difference, match=said):
        read("x", "k", {"chunks": 1}, {"k/x/0": data}, {"k/x/0": SPARSE})
