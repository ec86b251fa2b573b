"""Snapshots of several documents, and of the parts of a stream: documents and segments."""

import copy
import json
from dataclasses import replace

import jsonschema
import numpy as np
import orjson
import pytest

import ldp
from ldp import poisoning, query, snapshot
from ldp.consistency import METHODS
from ldp.fleet import Fleet
from ldp.query import SetQuery, TopQuery
from ldp.snapshot import Closed, Cut, Incomplete, NewerSchema, Period, Recommended, assembling
from tests.unit.ldp.test_snapshot import SCHEMA, topic

VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
HOUR = Period("1h", 3_600_000, 7_200_000, final=True)
IDENTITY = "ab" * 16
LEVEL = 0.9
OLD = ldp.Stream("colours", ldp.GRR("1", 3), ["red", "blue", "grey"])
NEW = ldp.Stream("colours", ldp.OUE("2", 4), ["green", "blue", "red", "pink"])
IDLE = ldp.Stream("colours", ldp.SubsetSelection("1", 5), ["white", "red", "blue", "grey", "pink"])
TINY = ldp.Stream("colours", ldp.OLH("1/2", 2), ["pink", "black"])
FLEET = Fleet((OLD, NEW, IDLE, TINY), frozenset({OLD.fingerprint}))
NAMES = [each.fingerprint.hex() for each in FLEET.documents]
USERS = [[900, 500, 600], [700, 100, 900, 300], None, [300, 700]]
QUERIES = [
    SetQuery("warm", (0, 4)),  # red and pink: in NEW, and IDLE without reports
    SetQuery("all have", (1,)),  # blue
    SetQuery("none has", (2, 6)),  # grey and black
    TopQuery("most", 2),
    TopQuery("every", 7),
]
RULE = {"offset": 0, "revision": 0, "most_reports": 9, "hamming_weight": True}
RULES = {
    0: [
        RULE | {"documents": {NAMES[0]: [0, False], NAMES[1]: [0, False]}},
        RULE | {"documents": {NAMES[0]: [0, True]}},
    ],
    1: [RULE, RULE | {"documents": {NAMES[1]: [0, False], NAMES[2]: [0, False]}}],
    3: [RULE | {"documents": {NAMES[3]: [1, True]}}, RULE | {"documents": {NAMES[3]: [0, False]}}],
    2: [RULE | {"documents": {name: [0, i == 0] for i, name in enumerate(NAMES)}}],
}
CUT = Cut(
    {0: 12, 1: 7, 2: 3},
    {1: [(2, 5)]},
    rules=RULES,
    floors={0: 0},
    progress={"1h": Closed(7_200_000)},
    reached=7_200_000,
    segments={"DE": 30, "US": 20},
    hidden=5,
)


def estimates(users=USERS, seed=1, fleet=FLEET):
    rng = np.random.default_rng(seed)
    return [
        None if each is None else document.oracle.estimate(document.oracle.simulate(each, rng), sum(each))
        for document, each in zip(fleet.documents, users, strict=True)
    ]


def taken(fleet=FLEET, users=USERS, **more):
    of = fleet.estimate(estimates(users, fleet=fleet))
    given = {
        "queries": QUERIES,
        "level": LEVEL,
        "lineage": {"group": "g", "topic_id": "t"},
        "identity": IDENTITY,
    } | more
    return snapshot.take(fleet, of, CUT, 4, **given)


def messages(one, *sizes):
    encode = snapshot.encode if one.window == snapshot.ALL_TIME else snapshot.encode_window
    return topic(encode(one, *sizes), one.sequence)


def documents(received):
    json_messages = [
        body for headers, body in received.values() if headers["content-type"] == b"application/json"
    ]
    return [document for body in json_messages if type(document := json.loads(body)) is dict]


def of_document(number, **more):
    one = FLEET.documents[number]
    part = snapshot.part_of("colours", document=NAMES[number])
    return snapshot.take(
        one, estimates()[number], CUT, 4, level=LEVEL, methods=["base"], identity=IDENTITY, part=part, **more
    )


SEGMENT = snapshot.part_of("colours", segment="US:4.3")


@pytest.mark.parametrize("sizes", [(), (3, 2)])
@pytest.mark.parametrize("window", [snapshot.ALL_TIME, HOUR])
def test_populations_and_parts_survive_a_round_trip(window, sizes):
    whole = taken(window=window)
    segment = taken(users=[[5, 7, 9], [4, 5, 6, 7], None, None], window=window, part=SEGMENT)
    parts = [whole, segment, *(of_document(number, window=window) for number in (0, 1, 3))]
    received = messages(taken(), *sizes) | {k: v for part in parts for k, v in messages(part, *sizes).items()}
    if window != snapshot.ALL_TIME:  # the labels are those of documents' snapshots of all time
        received |= messages(of_document(0)) | messages(of_document(1)) | messages(of_document(3))
    for part in parts:
        if window == snapshot.ALL_TIME:
            read = snapshot.assemble(part.stream, received)
        else:
            read = snapshot.assemble_window(part.stream, received, window.name, window.start)
            assert window in snapshot.windows(part.stream, received)
        assert read == part
        assert read.labels == (FLEET.labels if part in (whole, segment) else read.estimate().labels)
    assert len({part.identity for part in parts}) == len(parts)
    for document in documents(received):
        VALIDATOR.validate(document)
    if window == snapshot.ALL_TIME:
        for number in (0, 1, 3):
            again = snapshot.assemble(parts[2 + (0, 1, 3).index(number)].stream, received).estimate()
            assert again.frequencies.tolist() == estimates()[number].frequencies.tolist()


def test_bodies_of_a_population_have_the_results_of_its_estimate():
    of, read = FLEET.estimate(estimates()), snapshot.assemble("colours", messages(taken()))
    assert (read.reports, read.schema, read.known.tolist()) == (
        5000,
        2,
        [4000, 4000, 2000, 2000, 3000, 0, 1000],
    )
    for name, body in read.bodies.items():
        np.testing.assert_array_equal(body.frequencies, METHODS[name](of))
        warm, blue, none = body.sets
        assert warm.frequency == pytest.approx(query.answer(of, ["red", "pink"], name), abs=1e-12)
        assert blue.frequency == pytest.approx(query.answer(of, ["blue"], name), abs=1e-12)
        assert np.isnan(none.frequency)
        assert (warm.known, blue.known, none.known) == (2000, 4000, 0)
        assert [len(most.values) for most in body.tops] == [2, 6]
    base = read.bodies["base"]
    np.testing.assert_array_equal((base.low, base.high), of.interval(LEVEL))
    np.testing.assert_array_equal((base.anytime_low, base.anytime_high), of.anytime_interval(LEVEL))
    tolerances = poisoning.tolerance(of, base.low, base.high)
    np.testing.assert_array_equal(base.poisoning_tolerance[of.known > 0], tolerances[of.known > 0])
    assert base.sum == pytest.approx(of.sum, abs=1e-12)
    assert base.sets[0].std_error == query.std_error(of, ["red", "pink"])
    assert (base.sets[0].low, base.sets[0].high) == query.interval(of, ["red", "pink"], LEVEL)
    assert base.tops[0].values.tolist() == of.most_frequent(2).tolist()
    low, high = query.top_interval(of, 2, LEVEL)
    assert (base.tops[0].low.tolist(), base.tops[0].high.tolist()) == (low.tolist(), high.tolist())
    variances = [one.n**2 * one.sigma**2 for one in estimates() if one]
    assert read.std_error == pytest.approx(np.sqrt(sum(variances)) / 5000)
    head = [each["variance_share"] for each in read.documents]
    assert head == pytest.approx(np.array([*variances[:2], 0, variances[2]]) / sum(variances))


def test_the_most_frequent_values_have_enough_reports():
    for fewest, due in ((1, 6), (1000, 6), (1001, 5), (2001, 3), (4000, 2), (9999, 2)):
        (every,) = taken(queries=[TopQuery("every", 7)], fewest=fewest).bodies["base"].tops
        assert len(every.values) == due, fewest


def test_messages_of_a_population():
    received = messages(taken())
    head, domain = (json.loads(received[f"colours/{key}"][1]) for key in ("head", "domain"))
    assert {headers["schema"] for headers, _ in received.values()} == {b"2"}
    assert {document["schema"] for document in documents(received)} == {2}
    assert domain["labels"] == list(FLEET.labels)
    assert domain["fingerprints"] == NAMES
    assert [each["fingerprint"] for each in head["documents"]] == NAMES
    assert [each["reports"] for each in head["documents"]] == [2000, 2000, 0, 1000]
    assert [each["retired"] for each in head["documents"]] == [True, False, False, False]
    assert [each["partitions"] for each in head["documents"]] == [
        1,
        3,
        2,
        1,
    ]  # partition 3 retired the last one
    assert [each["document"] for each in head["documents"]] == [
        json.loads(one.hashed) for one in FLEET.documents
    ]
    assert (head["segments"], head["hidden"]) == ({"DE": 30, "US": 20}, 5)
    for method in METHODS:
        body = json.loads(received[f"colours/all/{method}"][1])
        assert "document" not in body
        assert [set(each) for each in body["documents"]] == [{"fingerprint", "document", "reports"}] * 4
        assert all("labels" not in each["document"] for each in body["documents"])
        assert body["known"] == [4000, 4000, 2000, 2000, 3000, 0, 1000]
        assert [i for i, number in enumerate(body["frequencies"]) if number is None] == [5]
        assert body.get("additive") is (None if method == "base" else False)
        assert {each["recommended"] for each in body["queries"] + body["top"]} == {None}


def test_known_is_left_out_if_all_labels_have_all_reports():
    fleet = Fleet((OLD, replace(OLD, oracle=ldp.OUE("1", 3))))
    one = taken(fleet, [[1, 2, 3], [4, 5, 6]], queries=[SetQuery("a", (0, 2))])
    assert one.known is None
    assert one.bodies["base"].sets[0].known is None
    assert not any("known" in document for document in documents(messages(one)))
    assert snapshot.assemble("colours", messages(one)) == one


def test_a_document_appended_without_reports_makes_a_population():
    before, after = OLD, Fleet((OLD, NEW))
    own = estimates()[0]
    plain = snapshot.take(before, own, CUT, 4, identity=IDENTITY)
    grown = snapshot.take(after, after.estimate([own, None]), CUT, 4, identity=IDENTITY)
    assert (plain.schema, grown.schema) == (1, 2)
    assert [one["reports"] for one in grown.documents] == [2000, 0]
    for name, body in plain.bodies.items():
        assert grown.bodies[name].frequencies[:3].tolist() == body.frequencies.tolist()
    announced = snapshot.announce(after, CUT, 1, None, IDENTITY)
    (head,) = snapshot.encode(announced)
    VALIDATOR.validate(json.loads(head.body))
    assert [one["variance_share"] > 0 for one in announced.documents] == [True, True]


def test_a_fleet_of_one_document_is_that_stream():
    fleet, own = Fleet((OLD,)), estimates()[0]
    for window in (snapshot.ALL_TIME, HOUR):
        plain = snapshot.take(OLD, own, CUT, 4, identity=IDENTITY, window=window)
        assert snapshot.take(fleet, fleet.estimate([own]), CUT, 4, identity=IDENTITY, window=window) == plain
        assert messages(plain).keys() == messages(replace(plain, known=None)).keys()
    assert {document["schema"] for document in documents(messages(plain))} == {1}


def test_a_segment_of_one_document_has_its_schema_and_labels():
    whole = snapshot.take(OLD, estimates()[0], CUT, 4, identity=IDENTITY)
    part = snapshot.take(OLD, estimates()[0], CUT, 4, identity=IDENTITY, part=SEGMENT)
    received = messages(whole) | messages(part)
    read = snapshot.assemble(SEGMENT, received)
    assert (read, read.schema, read.labels) == (part, 1, OLD.labels)
    assert read.estimate().frequencies.tolist() == estimates()[0].frequencies.tolist()
    for document in documents(received):
        VALIDATOR.validate(document)
        due = False if document.get("method", "base") != "base" and document["stream"] == SEGMENT else None
        assert document.get("additive") is due


def test_a_final_window_keeps_the_labels_of_its_documents():
    early = Fleet((OLD, NEW))
    users = USERS[:2]
    finals = [
        snapshot.take(OLD, estimates()[0], CUT, 2, identity=IDENTITY, window=HOUR),
        taken(early, users, window=replace(HOUR, start=HOUR.end, end=HOUR.end + 1), queries=[]),
        taken(early, users, window=HOUR, queries=[], part=SEGMENT),
    ]
    received = messages(taken())
    for final in finals:
        received |= messages(final)
    for final in finals:
        read = snapshot.assemble_window(final.stream, received, final.window.name, final.window.start)
        assert read == final
        assert read.labels == FLEET.labels[: len(read.labels)]
    with pytest.raises(Incomplete, match="labels of another stream"):
        foreign = messages(taken(Fleet((NEW, OLD)), users[::-1], queries=[]))
        snapshot.assemble_window("colours", received | foreign, HOUR.name, HOUR.start)
    del received["colours/domain"]
    with pytest.raises(Incomplete, match="'colours/domain' is missing"):
        snapshot.assemble_window(SEGMENT, received, HOUR.name, HOUR.start)


def test_base_of_segments_adds_up_to_the_population():
    rng, fleet = np.random.default_rng(7), Fleet(FLEET.documents[:2])
    users = [[rng.integers(500, 999, one.oracle.domain_size) for one in fleet.documents] for _ in range(4)]
    reports = np.array([[each.sum() for each in of_segment] for of_segment in users])
    states = [
        [one.oracle.simulate(each, rng) for one, each in zip(fleet.documents, of_segment, strict=True)]
        for of_segment in users
    ]

    def estimate(counts, reports):
        pairs = zip(fleet.documents, counts, reports, strict=True)
        return fleet.estimate([one.oracle.estimate(each, int(n)) for one, each, n in pairs])

    everything = estimate([sum(each) for each in zip(*states, strict=True)], reports.sum(0))
    whole = snapshot.take(fleet, everything, CUT, 4)
    names = ["DE", "FR", "US", None]  # the last is hidden
    parts = [
        snapshot.take(
            fleet, estimate(each, n), CUT, 4, part=name and snapshot.part_of("colours", segment=name)
        )
        for name, each, n in zip(names, states, reports, strict=True)
    ]
    for label in range(fleet.size):
        known = [part.known[label] for part in parts]
        total = sum(n * part.bodies["base"].frequencies[label] for n, part in zip(known, parts, strict=True))
        assert sum(known) == whole.known[label]
        assert total / sum(known) == pytest.approx(whole.bodies["base"].frequencies[label], abs=1e-12)


def test_an_older_reader_refuses_the_population_and_reads_its_documents(monkeypatch):
    received = messages(taken()) | messages(taken(window=HOUR)) | messages(of_document(1))
    monkeypatch.setattr(assembling, "SCHEMA", 1)
    with pytest.raises(NewerSchema, match="schema 2"):
        snapshot.assemble("colours", received)
    with pytest.raises(NewerSchema, match="schema 2"):
        snapshot.assemble_window("colours", received, HOUR.name, HOUR.start)
    part = of_document(1)
    assert snapshot.assemble(part.stream, received) == part
    assert {document["schema"] for document in documents(messages(part))} == {1}


def test_a_population_has_no_single_estimate():
    with pytest.raises(
        ValueError,
        match=f"has 4 documents; an estimate needs one. Read a document, such as colours@{NAMES[0]}",
    ):
        taken().estimate()


def test_names_of_parts():
    for more in ({}, {"document": NAMES[0], "segment": "DE"}):
        with pytest.raises(ValueError, match="allowed is one of them"):
            snapshot.part_of("colours", **more)
    for wrong in ("", "9F86D081", "9f86d08", "9f86d0811"):
        with pytest.raises(ValueError, match="8 hexadecimal digits"):
            snapshot.part_of("colours", document=wrong)
    for wrong in ("", ":", "DE:", "~", "US:~", "D/E", "é", "x" * 33, ":".join(["x" * 30] * 3)):
        with pytest.raises(ValueError, match="the segment"):
            snapshot.part_of("colours", segment=wrong)


def test_tombstones_delete_all_messages_of_a_window():
    names = tuple(f"value {i}" for i in range(snapshot.INLINE + 1))
    large = Fleet((ldp.Stream("colours", ldp.OUE("1", len(names)), names), OLD))
    whole = taken(large, [[1] * len(names), [4, 5, 6]], window=HOUR, queries=[])
    part = taken(
        large, [[1] * len(names), [4, 5, 6]], window=HOUR, queries=[], part=SEGMENT, methods=["base", "norm"]
    )
    for one, gone in (
        (whole, snapshot.delete_window(whole, HOUR)),
        (part, snapshot.delete_part(whole, SEGMENT, HOUR, ["base", "norm"])),
    ):
        assert not any(message.body for message in gone)
        assert {message.key for message in gone} >= messages(one).keys()
        assert len(gone) == len({message.key for message in gone})


STRANGE = (
    None,
    True,
    -1,
    0.5,
    2**63,
    10**30,
    "",
    "x",
    [],
    [None],
    [[]],
    [1, 2, 3],
    {},
    {"": None},
    {"0": None},
)


def forged(document):
    """The document with each of its fields, and those inside, taken away or made strange, one at a time."""

    def places(said, path):
        if isinstance(said, dict | list):
            for name in said if isinstance(said, dict) else range(min(len(said), 2)):
                yield (*path, name)
                yield from places(said[name], (*path, name))

    for path in places(document, ()):
        for strange in (KeyError, *STRANGE):
            made = inner = copy.deepcopy(document)
            for step in path[:-1]:
                inner = inner[step]
            if strange is KeyError:
                del inner[path[-1]]
            else:
                inner[path[-1]] = strange
            yield made


@pytest.mark.parametrize("key", ["head", "domain", "all/base", "all/norm"])
def test_forged_messages_raise_value_error_or_are_harmless(key):
    received = messages(taken(methods=["base", "norm"]))
    headers, body = received[f"colours/{key}"]
    refused = 0
    for document in forged(orjson.loads(body)):
        try:
            read = snapshot.assemble(
                "colours", received | {f"colours/{key}": (headers, json.dumps(document).encode())}
            )
        except ValueError:
            refused += 1
        else:
            snapshot.encode(read)
    assert refused > 50


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"known": [4000, 4000, 2000, 2000, 3000, 7, 1000]}, "nulls that do not match known"),
        ({"known": [4000, 4000, 0, 2000, 3000, 0, 1000]}, "nulls that do not match known"),
        ({"known": [4000, 4000, 2000, 2000, 3000, 0, 999]}, "known of (base|norm) differs"),
        ({"known": [1]}, "domains of different sizes"),
        ({"known": None}, "known"),
        ({"schema": 1}, "schema"),
        ({"documents": []}, "at least one"),
        ({"documents": [{"fingerprint": NAMES[0], "document": {}, "reports": 5000}]}, "several in schema 2"),
    ],
)
def test_bodies_that_contradict_themselves_are_refused(change, why):
    received = messages(taken(methods=["norm", "base"]))
    for method in ("base",) if "norm" in why else ("base", "norm"):
        headers, body = received[f"colours/all/{method}"]
        received[f"colours/all/{method}"] = headers, json.dumps(json.loads(body) | change).encode()
    with pytest.raises(ValueError, match=why):
        snapshot.assemble("colours", received)


def test_recommendations_stay_with_the_queries_of_one_document():
    found = {"warm": Recommended("norm-sub", 3)}
    one = snapshot.take(OLD, estimates()[0], CUT, 4, [SetQuery("warm", (0, 1))], recommended=found)
    assert one.recommended == found


@pytest.mark.parametrize("d", [3, snapshot.INLINE, snapshot.INLINE + 1])
def test_messages_of_populations_stay_within_the_stated_size(d):
    labels = [f"värde {i}" for i in range(d)]
    fleet = Fleet(
        tuple(ldp.Stream("colours", ldp.OLH(f"{i}", d), labels[i:] + labels[:i]) for i in range(1, 4))
    )
    queries = [SetQuery(f"query {i}", (i, 0)) for i in range(1, 3)] + [TopQuery("most", 3)]
    segments = [f"{country}:{i}.0" for country in ("DE", "US") for i in range(40)]
    names = [one.fingerprint.hex() for one in fleet.documents]
    retired = (9, True)
    statuses = {"documents": dict.fromkeys(names, retired), "segments": dict.fromkeys(segments, retired)}
    cut = Cut(
        dict.fromkeys(range(50), 2**62),
        {},
        rules=dict.fromkeys(range(50), (RULE | statuses,)),
        segments=dict.fromkeys([*segments, "DE", "US"], 2**62),
        hidden=2**62,
    )
    users = [[i * 13 % 7 for i in range(d)] for _ in range(3)]
    users[2][:] = [10**8] * d
    one = snapshot.take(fleet, fleet.estimate(estimates(users, fleet=fleet)), cut, 4, queries)
    largest = max(len(part.body) + len(part.key) for part in snapshot.encode(one))
    assert largest <= snapshot.largest_message(fleet, queries, 50, segments=segments) <= 3 * largest + 20_000


def test_rows_of_a_population_have_the_reports_of_their_labels():
    places = snapshot.slots(["base", "norm"], 7, QUERIES, 7)
    rows = snapshot.encode_rows(taken(), places)
    assert len({row.key for row in rows}) == len(rows) == 2 * (7 + 3 + 2 + 7)
    read = [
        (key, snapshot.RowValue.parse(row.value, key))
        for row in rows
        if row.value
        for key in [snapshot.RowKey.parse(row.key)]
    ]
    known = dict(zip(FLEET.labels, (4000, 4000, 2000, 2000, 3000, 0, 1000), strict=True))
    assert {value.label: value.n for key, value in read if key.query == ""} == {
        k: n for k, n in known.items() if n
    }
    assert all(value.n == known[value.label] for key, value in read if value.label is not None)
    assert {key.query: value.n for key, value in read if value.value is None} == {
        "warm": 2000,
        "all have": 4000,
    }
    gone = [snapshot.RowKey.parse(row.key)[3:] for row in rows if not row.value]
    assert sorted(gone) == [
        (method, query, rank)
        for method in ("base", "norm")
        for query, rank in (("", 7), ("every", 7), ("none has", 1))
    ]


def test_long_vectors_of_populations_are_rounded_except_those_of_base():
    d = snapshot.INLINE + 1
    labels = [f"value {i}" for i in range(d)]
    never = ldp.Stream("colours", ldp.GRR("1", 2), ["value 0", "unknown"])
    fleet = Fleet((ldp.Stream("colours", ldp.OUE("1", d), labels), never))
    exact = taken(fleet, [[3] * d, None], queries=[TopQuery("most", 3)], methods=["base", "norm"])
    short = snapshot.rounded(exact)
    assert snapshot.assemble("colours", messages(short)) == short
    np.testing.assert_array_equal(short.bodies["base"].frequencies, exact.bodies["base"].frequencies)
    for vector in (short.bodies["norm"].frequencies, short.bodies["base"].low):
        assert np.isnan(vector[-1])
        np.testing.assert_array_equal(vector[:-1].astype(np.float32), vector[:-1])
    size = sum(len(body) for key, (_, body) in messages(short).items() if key.startswith("colours/all/norm/"))
    assert size < 2 * 4 * d + 99  # frequencies and known
