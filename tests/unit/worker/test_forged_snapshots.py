"""Documents that another program wrote: each is refused as unreadable, and none breaks who reads it."""

import contextlib
import copy
import json

import numpy as np
import orjson
import pytest

import ldp
from ldp import snapshot
from ldp.snapshot import Closed, Cut, Period, PrivacyLoss
from worker.counting.head import Head, NewerHead
from worker.kafka.snapshots import index as snapshot_index
from worker.kafka.snapshots.index import SnapshotIndex
from worker.kafka.snapshots.topic import UNREADABLE

STREAM = ldp.Stream("s", ldp.GRR("1", 3), ["red", "green", "blue"])
RULE = {
    "offset": 0,
    "revision": 1,
    "most_reports": 100,
    "hamming_weight": True,
    "windows": ["1h"],
    "grace": 0,
    "max_out_of_orderness": 0,
}
CUT = Cut(
    {0: 12, 1: 5},
    {0: [(2, 5)]},
    rules={0: [RULE]},
    floors={0: 0},
    progress={"1h": Closed(3_600_000, ((0, 1),), (0,))},
    reached=5,
    privacy_loss=PrivacyLoss(20, 1.0, 0.5, 1e-8),
)
HOUR = Period("1h", 3_600_000, 7_200_000, final=True)
STRANGE = (
    *(
        None,
        True,
        -1,
        0.5,
        2**63,
        2**64,
        10**30,
        1e300,
        "",
        "x",
        "\ud800x".encode("utf-8", "replace").decode(),
    ),
    *([], [None], [[]], [1, 2, 3], {}, {"": None}, {"0": None}, {"-1": 1}, {"0": "1"}, {"٣": 1}),
)


def taken(window=snapshot.ALL_TIME):
    estimate = STREAM.oracle.estimate(np.array([5, 5, 5]), 15)
    return snapshot.take(STREAM, estimate, CUT, 3, lineage={"group": "g", "topic_id": "t"}, window=window)


def messages(window=snapshot.ALL_TIME):
    parts = (snapshot.encode if window == snapshot.ALL_TIME else snapshot.encode_window)(taken(window))
    return {part.key: (dict(part.headers(3)), part.body) for part in parts}


def forged(document):
    """The document with each of its fields, and those inside, taken away or made strange, one at a time."""

    def places(said, path):
        if isinstance(said, dict):
            for name in said:
                yield (*path, name)
                yield from places(said[name], (*path, name))
        elif isinstance(said, list) and said:
            yield (*path, 0)
            yield from places(said[0], (*path, 0))

    for path in places(document, ()):
        for strange in (KeyError, *STRANGE):
            made = copy.deepcopy(document)
            inner = made
            for step in path[:-1]:
                inner = inner[step]
            if strange is KeyError:
                del inner[path[-1]]
            else:
                inner[path[-1]] = strange
            yield path, strange, json.dumps(made).encode()


DEEP = b'{"stream": "s", "a": ' + b"[" * 100_000
WIDE = b'{"stream": "s", "offsets": {' + b",".join(b'"%d": 1' % i for i in range(10**6)) + b"}}"
ODD = (
    b"",
    b"\xff",
    b"null",
    b"[]",
    b"{}",
    b'"s"',
    DEEP,
    WIDE,
    b'{"stream": "s", "schema": 1e400}',
    b" " * (17 << 20),
)


def is_sane(head):
    """Whether a head has the types that its readers rely on."""
    json.dumps([head.offsets, head.reports, head.sequence, head.floors])
    assert all(type(number) is int for number in (head.sequence, head.reports, *head.offsets.values()))
    assert 0 < head.sequence < 2**53
    for partition in head.rules:
        head.rules_of(partition)
    head.needed_from({"1h": 0})
    head.foreign(ldp.Fleet((STREAM,)), '{"group": "g", "topic_id": "t"}')
    return head.behind(CUT) in (True, False)


def test_a_valid_head_is_read():
    value = messages()["s/head"][1]
    assert Head.read(value, "s") == Head.of(taken())
    with pytest.raises(ValueError, match="not a document of stream 't'"):
        Head.read(value, "t")


@pytest.mark.parametrize("value", ODD)
def test_invalid_heads_are_refused(value):
    with pytest.raises(ValueError):  # each for its own reason
        Head.read(value, "s")


def test_a_head_with_an_invalid_field_is_refused_or_harmless():
    document, refused = orjson.loads(messages()["s/head"][1]), 0
    for path, strange, value in forged(document):
        try:
            head = Head.read(value, "s")
        except ValueError:
            refused += 1
        else:
            assert is_sane(head), (path, strange)
    assert refused > 500


def test_a_head_of_a_newer_version_differs_from_an_invalid_head():
    document = orjson.loads(messages()["s/head"][1])
    with pytest.raises(NewerHead, match="schema 3, but this version reads up to 2"):
        Head.read(orjson.dumps(document | {"schema": 3}), "s")
    rule = {"offset": 0, "revision": 1, "most_reports": 1, "hamming_weight": True, "salt": 1}
    with pytest.raises(NewerHead, match="rules with 'salt', unknown to this version"):
        Head.read(orjson.dumps(document | {"rules": {"0": [rule]}}), "s")


@pytest.mark.parametrize("window", [snapshot.ALL_TIME, snapshot.LATE, HOUR])
def test_a_snapshot_with_an_invalid_field_is_incomplete_or_harmless(window):
    there = messages(window) | {"s/domain": messages()["s/domain"]}
    base = next(key for key in there if key.endswith("/base"))
    for key in (base, "s/domain", *(["s/head"] if window == snapshot.ALL_TIME else [])):
        headers, body = there[key]
        for value in (*ODD, *(value for _, _, value in forged(orjson.loads(body)))):
            index, received = SnapshotIndex(["s"]), there | {key: (headers, value)}
            for offset, (name, (said, part)) in enumerate(received.items()):
                try:
                    index.take(name, said, part, offset)
                except UNREADABLE:
                    continue
            try:
                if window == snapshot.ALL_TIME:
                    found = snapshot.assemble("s", received)
                else:
                    found = snapshot.assemble_window("s", received, window.name, window.start)
            except UNREADABLE:
                continue
            assert all(isinstance(label, str) for label in found.labels)
            assert {len(body.frequencies) for body in found.bodies.values()} == {3}
            assert type(found.reports) is int
            for body in found.bodies.values():
                f"{body.sum:.3f} {[(answer.frequency, answer.std_error) for answer in body.sets]}"


def forged_part(index, i, offset, key=None):
    """Takes a message in of a window that never becomes whole."""
    start = 3_600_000 * (i + 10)
    key, said = key or f"s/1h/{start}/base", {"parts": b"999999", "sequence": b"1", "snapshot": b"q"}
    if not key.startswith("s/all"):
        said |= {"end": b"%d" % (start + 3_600_000), "final": b"true"}
    index.take(key, said, b"x", offset)


def test_forged_windows_evict_only_each_other(monkeypatch):
    monkeypatch.setattr(snapshot_index, "_MOST_PARTS", 1 << 20)
    index, window, everything = SnapshotIndex(["s"]), messages(HOUR), messages()
    offset = 0
    for there in (window, everything):
        for key, (headers, body) in there.items():
            for i in range(100):  # between any two messages
                with contextlib.suppress(*UNREADABLE):
                    forged_part(index, 100 * offset + i, offset)
            index.take(key, headers, body, offset)
            offset += 1
    assert ("all", None) in index.of("s")
    assert index.unnamed("s", "1h", 3_600_000)  # complete, but with another snapshot's head
    for i in range(10_000):
        with contextlib.suppress(*UNREADABLE):
            forged_part(index, 10**6 + i, offset)
    assert len(index._parts) < 300
    assert index._parts_size == sum(part.size for part in index._parts.values()) <= 1 << 20
    assert ("all", None) in index.of("s")
    assert index.unnamed("s", "1h", 3_600_000)


@pytest.mark.parametrize("place", ["s/all/x{}", "s/1h/36000000/x{}"])
def test_a_forged_snapshot_of_many_messages_is_bounded(monkeypatch, place):
    monkeypatch.setattr(snapshot_index, "_MOST_PART", 100_000)
    index = SnapshotIndex(["s"])
    for i in range(5000):
        with contextlib.suppress(*UNREADABLE):
            forged_part(index, 0, i, place.format(i))
    (part,) = index._parts.values()
    assert len(part.seen) < 1000
    with pytest.raises(ValueError, match="a key of 5002 characters"):
        index.take("s/" + "x" * 5000, {}, b"x", 0)


def test_a_forged_domain_hides_no_snapshot_without_labels():
    plain = ldp.Stream("s", ldp.GRR("1", 3))
    made = snapshot.take(plain, plain.oracle.estimate(np.array([5, 5, 5]), 15), Cut({0: 15}, {}), 3)
    there = {part.key: (dict(part.headers(3)), part.body) for part in snapshot.encode(made)}
    assert snapshot.assemble("s", there | {"s/domain": ({"parts": b"x"}, b"forged")}) == made
