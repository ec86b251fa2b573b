"""Chunks of vectors: rounding to float32, content types, round trip."""

import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ldp
from ldp import snapshot
from ldp.consistency import METHODS
from ldp.query import SetQuery, TopQuery
from ldp.snapshot import Cut, chunks
from ldp.snapshot.documents import vectors

SCHEMA = json.loads((Path(snapshot.__file__).parent / "snapshot.schema.json").read_text())
HOUR = snapshot.Period("1h", 7_200_000, 10_800_000, final=True)
LARGE = snapshot.INLINE + 1


def taken(d, n=100_000, window=snapshot.ALL_TIME):
    """A few values are frequent, and most have no users: many methods have zeros there."""
    stream = ldp.Stream("s", ldp.OUE("1", domain_size=d))
    coins, q = np.random.default_rng(9), float(stream.oracle.q)
    counts = coins.binomial(n, q, d)
    counts[:50] += n // 100
    queries = [SetQuery("some", (0, 3, d - 1)), TopQuery("most", 5)]
    return snapshot.take(
        stream, stream.oracle.estimate(counts, n), Cut({0: n}, {}), 3, queries, window=window
    )


def received(parts):
    return {part.key: (dict(part.headers(3)), part.body) for part in parts}


def size(parts):
    return sum(len(part.body) for part in parts)


def test_numbers_are_read_as_float32_and_base_exactly():
    whole = taken(LARGE)
    short = snapshot.rounded(whole)
    parts = snapshot.encode(short)
    read = snapshot.assemble("s", received(parts))
    assert read == short
    assert list(read.bodies) == list(METHODS)
    for method, body in whole.bodies.items():
        own = read.bodies[method]
        for name, vector in vectors(whole, body).items():
            exact = name == "poisoning_tolerance" or (method, name) == ("base", "frequencies")
            due = vector if exact else vector.astype(np.float32).astype(np.float64)
            assert getattr(own, name).tobytes() == due.tobytes(), (method, name)
            assert np.abs(due - vector).max() < whole.std_error / 100
        assert (own.sum, own.sets) == (body.sum, body.sets)
        assert own.tops[0].frequencies.tolist() == own.frequencies[own.tops[0].values].tolist()
    assert read.estimate().known_counts().tolist() == whole.estimate().known_counts().tolist()
    assert size(parts) < 0.55 * 8 * LARGE * sum(len(vectors(whole, body)) for body in whole.bodies.values())


def test_chunks_use_the_shortest_type():
    by_type = {}
    for part in snapshot.encode(snapshot.rounded(taken(LARGE))):
        by_type.setdefault(part.content_type, set()).add(part.key.removeprefix("s/all/"))
    assert "base/frequencies/0" in by_type[snapshot.FLOAT64]
    assert {"base/low/0", "norm/frequencies/0"} <= by_type[snapshot.FLOAT32]
    assert {f"{m}/frequencies/0" for m in ("norm-sub", "base-cut", "norm-cut")} <= by_type[snapshot.SPARSE32]


def test_a_vector_keeps_its_type_if_rounding_would_show():
    """σ falls with the reports, and float32 does not follow."""
    d, n = LARGE, 1 << 50
    stream = ldp.Stream("s", ldp.OUE("1", domain_size=d))
    counts = np.random.default_rng(2).integers(n // 4, n // 2, d)
    whole = snapshot.take(stream, stream.oracle.estimate(counts, n), Cut({}, {}), 3, methods=["base", "norm"])
    assert np.abs(whole.bodies["norm"].frequencies).max() * 2.0**-26 > whole.std_error / 100
    assert snapshot.rounded(whole) == whole
    read = snapshot.assemble("s", received(snapshot.encode(whole)))
    assert read == whole


def test_all_messages_follow_the_schema():
    whole = taken(LARGE, window=HOUR)
    parts = snapshot.encode_window(snapshot.rounded(whole))
    validator = jsonschema.Draft202012Validator(SCHEMA)
    bodies = 0
    for part in parts:
        assert dict(part.headers(3))["schema"] == b"1"
        if part.content_type != snapshot.JSON:
            continue
        said = json.loads(part.body)
        validator.validate(said)
        assert not validator.is_valid(said | {"schema": 2})
        if "method" in said:
            bodies += 1
            assert not {"frequencies", "low", "high"} & said.keys()
            assert not validator.is_valid({key: of for key, of in said.items() if key != "vectors"})
    assert bodies == len(METHODS)
    assert snapshot.assemble_window("s", received(parts), "1h", HOUR.start) == snapshot.rounded(whole)


def test_a_content_type_of_a_newer_version_is_refused_as_newer():
    topic = received(snapshot.encode(snapshot.rounded(taken(LARGE))))
    headers, data = topic["s/all/norm/frequencies/0"]
    topic["s/all/norm/frequencies/0"] = headers | {"content-type": b"application/vnd.ldp.float16"}, data
    with pytest.raises(snapshot.NewerSchema, match=r"'s/all/norm/frequencies/0' has content type .*float16"):
        snapshot.assemble("s", topic)


DOUBLES = (
    st.integers(0, 2**64 - 1).map(lambda bits: float(np.uint64(bits).view(np.float64))).filter(np.isfinite)
)
SHORT = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(st.lists(DOUBLES | SHORT | st.sampled_from([0.0, -0.0]) | st.just(0.0), min_size=1, max_size=40))
@settings(deadline=None)
def test_every_chunk_is_exact_and_at_most_as_long_as_float64(numbers):
    vector = np.array(numbers)
    content_type, data = chunks.shortest(vector)
    assert chunks.read(content_type, data).tobytes() == vector.tobytes()
    assert len(data) <= 8 * len(vector)


def test_an_invalid_chunk_is_refused():
    content_type, data = chunks.shortest(np.array([0.0] * 20 + [0.5]))
    assert content_type == snapshot.SPARSE32
    beyond = data[:4] + (21).to_bytes(2, "little") + data[6:]
    for wrong in (data[:-1], data + b"\0\0\0", beyond):
        with pytest.raises(ValueError, match="bytes are not a chunk of"):
            chunks.read(content_type, wrong)
    with pytest.raises(ValueError, match="the chunk has 65537 values; allowed are up to 65536"):
        chunks.shortest(np.zeros(65_537))
