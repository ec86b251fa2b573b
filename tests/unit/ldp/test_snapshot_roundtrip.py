"""Snapshots survive encoding and decoding to the last bit."""

import json
import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ldp
from ldp import snapshot
from ldp.consistency import METHODS, applicable
from ldp.oracles import ORACLES
from ldp.query import SetQuery, TopQuery
from ldp.snapshot.documents import VECTORS

oracle = cache(ldp.oracle)
TEXT = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=8)
OFFSET = st.integers(0, 2**63 - 1)
PARTITIONS = st.integers(0, 2**31 - 1)
TIMES = st.integers(0, 200_000_000_000_000)  # in the year 8307; the dates of JSON end in 9999
NAMES = st.sampled_from(["1s", "1h", "24h every 1h", "366d"])
DOUBLES = (
    st.integers(0, 2**64 - 1).map(lambda bits: float(np.uint64(bits).view(np.float64))).filter(np.isfinite)
)


@st.composite
def cuts(draw):
    gap = st.tuples(OFFSET, OFFSET).map(sorted).map(tuple)
    rule = st.fixed_dictionaries(
        {
            "offset": OFFSET,
            "revision": st.integers(0, 2**31),
            "most_reports": st.none() | OFFSET,
            "hamming_weight": st.booleans(),
        },
        optional={"windows": st.lists(NAMES, min_size=1), "grace": TIMES, "max_out_of_orderness": TIMES},
    )
    progress = st.builds(
        snapshot.Closed,
        TIMES,
        st.lists(st.tuples(TIMES, TIMES).map(sorted).map(tuple), max_size=2).map(tuple),
        st.lists(TIMES, max_size=3).map(tuple),
    )
    return snapshot.Cut(
        draw(st.dictionaries(PARTITIONS, OFFSET, max_size=4)),
        draw(st.dictionaries(PARTITIONS, st.lists(gap, max_size=2), max_size=3)),
        draw(st.lists(PARTITIONS, max_size=3)),
        draw(st.dictionaries(PARTITIONS, st.lists(rule, max_size=2), max_size=3)),
        *draw(
            st.just(({}, {}))
            | st.tuples(
                st.dictionaries(PARTITIONS, TIMES, max_size=3), st.dictionaries(NAMES, progress, max_size=2)
            )
        ),
    )


@st.composite
def periods(draw):
    start, length = draw(TIMES), draw(st.integers(1, 366 * 86_400_000))
    return snapshot.Period(draw(NAMES), start, start + length, draw(st.booleans()))


@st.composite
def snapshots(draw):
    name = draw(st.sampled_from(list(ORACLES)))
    d = draw(st.integers(2 if name == "subset" else 1, 14))
    protocol = oracle(name, epsilon="1", domain_size=d)
    labels = draw(st.none() | st.lists(TEXT, min_size=d, max_size=d, unique=True))
    stream = ldp.Stream("a.b-c_1", protocol, labels)
    frequencies = draw(st.lists(st.floats(-2, 2), min_size=d, max_size=d))
    estimate = ldp.Estimate(frequencies, draw(st.integers(1, 10**9)), protocol)
    values = st.lists(st.integers(0, d - 1), min_size=1, unique=True)
    queries = [
        SetQuery(name, draw(values)) if draw(st.booleans()) else TopQuery(name, draw(st.integers(1, d)))
        for name in draw(st.lists(TEXT, max_size=4, unique=True))
    ]
    found = st.builds(snapshot.Recommended, st.sampled_from(list(METHODS)), st.integers(1, 2**53 - 1))
    names = st.sampled_from([query.name for query in queries] + ["of nothing"])
    return snapshot.take(
        stream,
        estimate,
        draw(cuts()),
        draw(st.integers(1, 2**53 - 1)),
        queries,
        draw(st.floats(0.01, 0.99)),
        draw(st.lists(st.sampled_from(applicable(d)), min_size=1, unique=True)),
        draw(st.dictionaries(names, found)),
        draw(st.none() | st.fixed_dictionaries({"group": TEXT, "topic_id": TEXT})),
        draw(st.none() | st.just("0123456789abcdef" * 2)),
        draw(st.just(snapshot.ALL_TIME) | periods()),
        draw(st.none() | st.booleans()),
    )


SIZES = st.integers(1, 16), st.integers(1, 5)


def topic(parts, sequence):
    return {part.key: (dict(part.headers(sequence)), part.body) for part in parts}


def written_and_read(taken, inline, chunk):
    """The messages of a snapshot, of all time or of a window, and their parsed content."""
    window, everything = taken.window, replace(taken, window=snapshot.ALL_TIME, identity="0f" * 16)
    if window.start is None:
        parts = snapshot.encode(taken, inline, chunk)
        return parts, snapshot.assemble(taken.stream, topic(parts, taken.sequence))
    parts, others = snapshot.encode_window(taken, inline, chunk), snapshot.encode(everything, inline, chunk)
    received = topic(others, 1) | topic(parts, taken.sequence)
    assert snapshot.windows(taken.stream, received) == [window]
    return parts, snapshot.assemble_window(taken.stream, received, window.name, window.start)


def as_python_writes(text):
    """A JSON text with its floats as the standard library writes them."""
    token = r'"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+(?:[eE][-+]?\d+)?|[eE][-+]?\d+)'

    def written(found):
        return found[0] if found[0].startswith('"') else repr(float(found[0]))

    return re.sub(token, written, text)


def length(part):
    """Number of values in a chunk; a sparse one has it in its first four bytes."""
    if ".sparse." in part.content_type:
        return int.from_bytes(part.body[:4], "little")
    return len(part.body) // (8 if part.content_type.endswith("64") else 4)


@pytest.mark.slow
@given(snapshots(), *SIZES)
@settings(max_examples=50, deadline=None)
def test_a_snapshot_survives_a_round_trip(taken, inline, chunk):
    parts, read = written_and_read(taken, inline, chunk)
    assert len({part.key for part in parts}) == len(parts)
    assert type(read) is type(taken)
    assert read == taken
    assert list(read.bodies) == list(taken.bodies)
    again, _ = written_and_read(read, inline, chunk)
    assert again == parts
    for part in parts:
        if part.content_type == snapshot.JSON:
            text = part.body.decode()
            plain = json.dumps(json.loads(text), ensure_ascii=False, separators=(",", ":"))
            assert as_python_writes(text) == plain
    chunks = [length(part) for part in parts if part.content_type.startswith("application/vnd.ldp.")]
    d = taken.document["domain_size"]
    assert max(chunks, default=0) == (min(chunk, d) if d > inline else 0)


@given(st.lists(DOUBLES, min_size=1, max_size=9), *SIZES)
@settings(max_examples=40, deadline=None)
def test_every_double_is_read_exactly(numbers, inline, chunk):
    stream = ldp.Stream("s", oracle("grr", epsilon="1", domain_size=len(numbers)))
    estimate = ldp.Estimate(np.zeros(len(numbers)), 10, stream.oracle)
    taken = snapshot.take(stream, estimate, snapshot.Cut({}, {}), 1, methods=["base"])
    body = replace(
        taken.bodies["base"], frequencies=np.array(numbers), sum=numbers[0], low=-np.array(numbers)
    )
    taken = replace(taken, bodies={"base": body}, level=numbers[-1])
    read = snapshot.assemble("s", topic(snapshot.encode(taken, inline, chunk), 1))
    assert read == taken
    assert read.bodies["base"].frequencies.tobytes() == np.array(numbers).tobytes()
    assert (read.level.hex(), read.bodies["base"].sum.hex()) == (numbers[-1].hex(), numbers[0].hex())


def test_snapshots_that_differ_by_one_bit_are_unequal():
    stream = ldp.Stream("s", ldp.GRR("1", 3), ["a", "b", "c"])
    queries = [SetQuery("q", (0, 1)), TopQuery("t", 2)]
    found = {"q": snapshot.Recommended("norm", 3)}
    cut = snapshot.Cut({0: 4}, {0: [(1, 2)]})

    def take(**other):
        given = {
            "cut": cut,
            "sequence": 4,
            "queries": queries,
            "recommended": found,
            "identity": "ab" * 16,
        } | other
        return snapshot.take(stream, stream.oracle.estimate([5, 0, 4], 9), **given)

    one = take()
    assert one == take()
    assert one != take(cut=replace(cut, uncounted=[1]))
    for other in (
        {"sequence": 5},
        {"published": 5},
        {"recommended": {}},
        {"level": 0.9},
        {"cut": replace(cut, floors={0: 1})},
    ):
        assert one != take(**other)
    base = one.bodies["base"]
    zero = replace(base, frequencies=np.where(base.frequencies < 0, 0.0, base.frequencies))
    minus = replace(base, frequencies=np.where(base.frequencies < 0, -0.0, base.frequencies))
    assert zero != minus
    for name in VECTORS:
        vector = getattr(base, name).copy()
        vector[1] = np.nextafter(vector[1], 9.0)
        assert one != replace(one, bodies=one.bodies | {"base": replace(base, **{name: vector})})
    answer = replace(base.sets[0], low=np.nextafter(base.sets[0].low, 9.0))
    assert one != replace(one, bodies=one.bodies | {"base": replace(base, sets=(answer,))})
    assert base != base.frequencies.tolist()
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)
