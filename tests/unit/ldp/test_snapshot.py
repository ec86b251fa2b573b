"""The snapshot's messages: schema, numbers, round trip."""

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import numpy as np
import pytest

import ldp
from ldp import snapshot
from ldp.consistency import METHODS, applicable
from ldp.query import SetQuery, TopQuery
from ldp.snapshot import Cut, Incomplete, PrivacyLoss, checking
from ldp.snapshot.documents import BASE_ONLY

SCHEMA = json.loads((Path(snapshot.__file__).parent / "snapshot.schema.json").read_text())
CUT = Cut({1: 7, 0: 12}, {1: [(2, 5)], 0: []})


def make(domain_size, *, labels=None, sequence=4, queries=(), top=()):
    stream = ldp.Stream("s", ldp.OLH(epsilon="1", domain_size=domain_size), labels)
    asked = [*(SetQuery(*query) for query in queries), *(TopQuery(*query) for query in top)]
    n = 1000
    counts = np.random.default_rng(5).binomial(n, 0.27, domain_size)
    estimate = stream.oracle.estimate(counts, n)
    return stream, estimate, messages(stream, estimate, CUT, sequence, asked, level=0.9)


def messages(*given, **more):
    return snapshot.encode(snapshot.take(*given, **more))


def topic(messages, sequence):
    return {m.key: (dict(m.headers(sequence)), m.body) for m in messages}


@pytest.mark.parametrize("domain_size", [1, snapshot.INLINE, snapshot.CHUNK + 3])
@pytest.mark.parametrize("labelled", [False, True])
def test_messages_survive_a_round_trip(domain_size, labelled):
    labels = tuple(f"värde {i}" for i in range(domain_size)) if labelled else None
    _, estimate, parts = make(domain_size, labels=labels)
    assert len({m.key for m in parts}) == len(parts)
    assert max(len(m.body) for m in parts) < 1_000_000  # fits a topic with Kafka's default limit
    read = snapshot.assemble("s", topic(parts, 4))
    assert read.labels == labels
    assert list(read.bodies) == list(applicable(domain_size))
    for name, body in read.bodies.items():
        assert body.frequencies.tolist() == METHODS[name](estimate).tolist()
    low, high = estimate.interval(0.9)
    assert read.bodies["base"].low.tolist() == low.tolist()
    assert read.bodies["base"].high.tolist() == high.tolist()
    assert read.bodies["base-cut"].low is None


def test_the_time_of_publication_is_in_head_and_bodies_but_not_in_the_identity():
    stream, estimate, parts = make(3)
    last = 253_402_300_799_999  # 9999-12-31 23:59:59.999
    taken = snapshot.take(stream, estimate, CUT, 4, level=0.9, published=last)
    assert taken.identity == parts[0].snapshot
    encoded = snapshot.encode(taken)
    assert snapshot.assemble("s", topic(encoded, 4)) == taken
    validator = jsonschema.Draft202012Validator(SCHEMA)
    documents = [json.loads(part.body) for part in encoded]
    assert [document["published"] for document in documents] == [last] * len(parts)
    for document in documents:
        validator.validate(document)
    for wrong in (-1, last + 1, 0.5, "7", True, None):
        assert not validator.is_valid(documents[0] | {"published": wrong}), wrong
        with pytest.raises(ValueError, match="published"):
            checking.check_head(documents[0] | {"published": wrong})
    assert "published" not in json.loads(parts[0].body)  # so the same reports give a file with the same bytes


def test_a_head_without_bodies_follows_the_schema():
    stream = ldp.Stream("s", ldp.GRR("1", 3))
    for methods in (None, (), ("base", "norm")):
        head = snapshot.announce(stream, replace(CUT, methods=methods), 1, None, "ab" * 16)
        (part,) = snapshot.encode(head)
        jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(part.body))


@pytest.mark.parametrize("loss", [0.5, "infinite", None])
def test_the_privacy_loss_is_in_the_head_only(loss):
    stream, estimate, _ = make(3)
    cut = replace(CUT, privacy_loss=PrivacyLoss(20, 1.0, loss, 1e-8))
    taken = snapshot.take(stream, estimate, cut, 4, lineage={"group": "g", "topic_id": "t"})
    encoded = snapshot.encode(taken)
    assert snapshot.assemble("s", topic(encoded, 4)) == taken
    head, *others = sorted((json.loads(part.body) for part in encoded), key=lambda said: "method" in said)
    assert head["privacy_loss"] == {"fewest_new": 20, "operator": 1.0, "readers": loss, "delta": 1e-8}
    assert not any("privacy_loss" in said for said in others)
    validator = jsonschema.Draft202012Validator(SCHEMA)
    validator.validate(head)
    wrong: list[dict[str, object]] = [
        {"readers": "none"},
        {"operator": None},
        {"fewest_new": 1},
        {"delta": "0"},
    ]
    for one in wrong:
        forged = head | {"privacy_loss": head["privacy_loss"] | one}
        assert not validator.is_valid(forged), one
        with pytest.raises(ValueError, match=f"privacy_loss.{next(iter(one))}"):
            checking.check_head(forged)


def test_messages_of_an_explicit_channel_state_the_epsilon_of_a_report():
    validator = jsonschema.Draft202012Validator(SCHEMA)
    told = ldp.Unary("1", "1/4", domain_size=3, epsilon="infinite")
    for oracle, said in ((ldp.Response("3/4", domain_size=3), "22397/12500"), (told, "infinite")):  # ln 6
        stream = ldp.Stream("s", oracle)
        taken = snapshot.take(stream, oracle.estimate([60, 20, 20], n=100), CUT, 4)
        parts = snapshot.encode(taken)
        for part in parts:
            validator.validate(document := json.loads(part.body))
            assert document["epsilon"] == said
        assert snapshot.assemble("s", topic(parts, 4)) == taken
        assert taken.estimate().frequencies.tolist() == taken.bodies["base"].frequencies.tolist()
    assert "epsilon" not in json.loads(make(3)[2][0].body)


def test_the_schema_refuses_wrong_bodies():
    _, _, parts = make(3)
    good = json.loads(parts[1].body)
    validator = jsonschema.Draft202012Validator(SCHEMA)
    validator.validate(good)
    for key, wrong in [
        ("method", "median"),
        ("sequence", 0),
        ("reports", 0),
        ("frequencies", "none"),
        ("fingerprint", "XYZ"),
        ("standard_error", 0),
        ("offsets", {"0": -1}),
    ]:
        assert not validator.is_valid(good | {key: wrong}), key
    for key in good:
        if key not in (*BASE_ONLY, "top", "snapshot", "uncounted"):
            assert not validator.is_valid({k: v for k, v in good.items() if k != key}), key


def test_queries_are_answered_by_each_method():
    _, estimate, parts = make(5, queries=(("all but one", (0, 1, 2, 3)),))
    read = snapshot.assemble("s", topic(parts, 4))
    for name in METHODS:
        (answer,) = read.bodies[name].sets
        total = float(np.sum(read.bodies[name].frequencies[:4]))
        if name == "post-pos":  # on the query, not on the values
            total = max(0.0, float(np.sum(estimate.frequencies[:4])))
        assert answer.query == SetQuery("all but one", (0, 1, 2, 3))
        assert answer.frequency == pytest.approx(total)
        ends = None, None, None
        if name == "base":
            ends = ldp.query.std_error(estimate, range(4)), *ldp.query.interval(estimate, [0, 1, 2, 3], 0.9)
        assert (answer.std_error, answer.low, answer.high) == ends


@pytest.mark.parametrize("domain_size", [1, 7])
def test_the_sum_equals_the_answer_for_all_values(domain_size):
    everything = tuple(range(domain_size))
    _, estimate, parts = make(domain_size, queries=(("all", everything),))
    read = snapshot.assemble("s", topic(parts, 4))
    for name, body in read.bodies.items():
        (answer,) = body.sets
        assert body.sum == answer.frequency == ldp.answer(estimate, everything, name)
    if domain_size > 1:
        added = read.bodies["post-pos"].frequencies.sum()
        assert added == read.bodies["base-pos"].frequencies.sum() > read.bodies["post-pos"].sum
    assert read.bodies["post-pos"].sum == max(read.bodies["base"].sum, 0.0)


def test_the_most_frequent_values_by_each_method():
    _, estimate, parts = make(50, top=(("three", 3),))
    three = sorted(range(50), key=lambda v: -estimate.frequencies[v])[:3]
    for name, body in snapshot.assemble("s", topic(parts, 4)).bodies.items():
        (answer,) = body.tops
        assert (answer.query, answer.values.tolist()) == (TopQuery("three", 3), three)
        assert answer.frequencies.tolist() == body.frequencies[three].tolist()
        if name == "base":
            assert np.array_equal([answer.low, answer.high], ldp.query.top_interval(estimate, 3, 0.9))
        else:
            assert (answer.low, answer.high) == (None, None)


def test_an_incomplete_snapshot_is_not_read():
    _, _, new = make(3, sequence=5)
    _, _, old = make(3, sequence=4)
    for missing in range(len(new)):
        received = topic(old, 4) | topic([m for i, m in enumerate(new) if i != missing], 5)
        received[new[missing].key] = topic(old, 4)[new[missing].key]
        for key, (headers, _) in received.items():
            if key != new[missing].key:
                headers["parts"] = str(len(new)).encode()
        if missing:  # without its head, a new snapshot is not noticed, and the old one is deleted
            with pytest.raises(Incomplete):
                snapshot.assemble("s", received)
    with pytest.raises(Incomplete, match="'s/head' is missing"):
        snapshot.assemble("s", {})


def test_parts_of_two_snapshots_with_one_number_are_never_mixed():
    """Two publishers that both believed to be the one made number 4: whatever mix is read, it is refused."""
    _, _, one = make(5)
    stream, estimate, _ = make(5)
    other = messages(stream, estimate, snapshot.Cut({0: 11, 1: 21}, {}), 4, level=0.9)
    assert [m.key for m in one] == [m.key for m in other]
    whole = topic(one, 4)
    assert snapshot.assemble("s", whole).cut.offsets == {0: 12, 1: 7}
    for part in other:
        with pytest.raises(Incomplete):
            snapshot.assemble("s", whole | {part.key: topic(other, 4)[part.key]})


@pytest.mark.parametrize("field", ["snapshot", "sequence", "reports", "offsets"])
def test_a_body_must_match_its_headers(field):
    """A publisher that stamps another's body with its own headers is believed in nothing."""
    _, _, parts = make(5)
    received = topic(parts, 4)
    key = "s/all/norm-sub"
    headers, value = received[key]
    said = {"snapshot": "0" * 32, "sequence": 5, "reports": 99, "offsets": {"0": 1}}
    received[key] = headers, json.dumps(json.loads(value) | {field: said[field]}).encode()
    with pytest.raises(Incomplete, match=f"{field} differs from the head"):
        snapshot.assemble("s", received)


@pytest.mark.parametrize("inline", [2, 5])
def test_a_number_outside_json_is_refused(inline):
    stream, estimate, _ = make(5)
    queries = [SetQuery("q", (0,)), TopQuery("t", 2)]
    taken = snapshot.take(stream, estimate, CUT, 4, queries, methods=["base", "norm"])
    base = taken.bodies["base"]
    vector = base.frequencies.copy()
    vector[3] = np.nan
    bodies = [
        replace(base, frequencies=vector),
        replace(base, high=vector),
        replace(base, sum=np.nan),
        replace(base, sets=(replace(base.sets[0], std_error=np.inf),)),
        replace(base, tops=(replace(base.tops[0], low=vector[2:4]),)),
    ]
    for bad in [
        *(replace(taken, bodies=taken.bodies | {"base": body}) for body in bodies),
        replace(taken, std_error=np.nan),
        replace(taken, level=-np.inf),
    ]:
        with pytest.raises(ValueError, match="snapshot 4 of 's': base has a number that is not finite"):
            snapshot.encode(bad, inline)


def test_invalid_requests_are_named():
    stream, estimate, _ = make(5)
    for methods in ((), ("base", "median")):
        with pytest.raises(ValueError, match=r"methods are (none|base, median); allowed are base, base-pos"):
            snapshot.take(stream, estimate, CUT, 4, methods=methods)
    with pytest.raises(ValueError, match="two queries are named 'q'"):
        snapshot.take(stream, estimate, CUT, 4, [SetQuery("q", (0,)), TopQuery("q", 1)])
    with pytest.raises(ValueError, match="has the methods norm; base is required"):
        snapshot.take(stream, estimate, CUT, 4, methods=["norm"]).interval()


def test_a_head_without_bodies_is_incomplete():
    stream, _, older = make(3, labels=("a", "b", "c"))
    lineage = {"group": "g", "topic_id": "t"}
    (head,) = snapshot.encode(snapshot.announce(stream, CUT, 4, lineage, "ab" * 16))
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(head.body))
    for others in ({}, topic(older, 3)):
        with pytest.raises(
            Incomplete, match="snapshot 4 of 's' has only a head: there are no reports yet, or too few"
        ):
            snapshot.assemble("s", others | topic([head], 4))
    (head,) = snapshot.encode(snapshot.announce(stream, CUT, 4, lineage, "ab" * 16, reports=3))
    with pytest.raises(Incomplete, match="snapshot 4 of 's' has no method's body"):
        snapshot.assemble("s", topic([head], 4))


def test_a_snapshot_of_a_newer_schema_is_refused_as_newer():
    stream = ldp.Stream("s", ldp.GRR("1", 2))
    taken = snapshot.take(stream, stream.oracle.estimate(np.array([5, 5]), 10), Cut({0: 10}, {}), 3)
    parts = snapshot.encode(taken)
    topic = {part.key: (dict(part.headers(3)), part.body) for part in parts}
    headers, body = topic["s/head"]
    topic["s/head"] = headers, json.dumps(json.loads(body) | {"schema": 3}).encode()
    with pytest.raises(snapshot.NewerSchema, match=r"snapshot 3 of 's' has schema 3 of a newer version"):
        snapshot.assemble("s", topic)
