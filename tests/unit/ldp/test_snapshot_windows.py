"""The messages of windows, read independently of later heads."""

import json
from dataclasses import replace

import jsonschema
import numpy as np
import pytest

import ldp
from ldp import snapshot
from ldp.consistency import METHODS
from ldp.query import SetQuery, TopQuery
from ldp.snapshot import Closed, Cut, Incomplete, Period
from tests.unit.ldp.test_snapshot import SCHEMA, topic

HOUR = 3_600_000
RULE = {"offset": 0, "revision": 1, "most_reports": 9, "hamming_weight": True}
HOURS = Closed(5 * HOUR, ((4 * HOUR, 5 * HOUR),), (HOUR, 5 * HOUR))
CUT = Cut(
    {0: 12, 1: 7},
    {1: [(2, 5)]},
    rules={0: [RULE | {"windows": ["1h"], "grace": 5, "max_out_of_orderness": 0}]},
    floors={0: 0, 1: HOUR},
    progress={"1h": HOURS, "24h every 1h": Closed(HOUR)},
)
QUERIES = [SetQuery("pair", (0, 2)), TopQuery("most", 2)]
LINEAGE = {"group": "g", "topic_id": "t"}
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def stream(d=5, labels=None):
    return ldp.Stream("s", ldp.OLH("1", d), labels)


def taken(window=snapshot.ALL_TIME, sequence=4, d=5, n=1000, labels=None, **more):
    one = stream(d, labels)
    counts = np.random.default_rng(n).binomial(n, 0.27, d)
    return snapshot.take(
        one, one.oracle.estimate(counts, n), CUT, sequence, QUERIES, lineage=LINEAGE, window=window, **more
    )


def hour(start, *, final=False, name="1h", hours=1):
    return Period(name, start * HOUR, (start + hours) * HOUR, final)


def written(taken, *sizes):
    encode = snapshot.encode if taken.window.start is None else snapshot.encode_window
    return topic(encode(taken, *sizes), taken.sequence)


def read(received, window):
    return snapshot.assemble_window("s", received, window.name, window.start)


@pytest.mark.parametrize("labels", [None, tuple("abcde")])
@pytest.mark.parametrize("sizes", [(), (4, 2)])
def test_each_window_is_read_as_written_despite_later_messages(labels, sizes):
    final = taken(hour(1, final=True), 2, n=10, labels=labels, complete=True)
    day = taken(hour(1, name="24h every 1h", hours=24), 3, n=30, labels=labels)
    early, later = (taken(hour(2), sequence, n=20 * sequence, labels=labels) for sequence in (2, 4))
    everything = taken(sequence=4, labels=labels)
    received = {}
    for one in (taken(sequence=2, labels=labels), final, early, taken(sequence=3, labels=labels), day):
        received |= written(one, *sizes)
    assert read(received, hour(2)) == early
    received |= written(everything, *sizes) | written(later, *sizes)
    for one in (final, day, later):
        assert read(received, one.window) == one
        assert list(read(received, one.window).bodies) == list(METHODS)
    assert snapshot.assemble("s", received) == everything
    assert snapshot.windows("s", received) == [final.window, later.window, day.window]
    assert (final.complete, everything.complete, final.reports) == (True, False, 10)
    # fields that only the head has are absent from a window's snapshot
    assert (final.lineage, final.cut) == (None, Cut(CUT.offsets, CUT.gaps))
    assert (everything.lineage, everything.cut) == (LINEAGE, CUT)


def test_every_missing_message_is_detected():
    one, others = taken(hour(1)), taken(hour(2)) and written(taken(hour(2)))
    whole = written(one, 4, 3)
    assert read(whole | others, hour(1)) == one
    for key in whole:
        without = others | {other: message for other, message in whole.items() if other != key}
        with pytest.raises(
            Incomplete, match=rf"window '1h' of 's' .*{HOUR} has 43 messages; 42 were received"
        ):
            read(without, hour(1))
        assert snapshot.windows("s", without) == [hour(2)]
        with pytest.raises(Incomplete):  # as a tombstone, too
            read(whole | {key: (whole[key][0], b"")}, hour(1))
    with pytest.raises(Incomplete, match=f"no message of the window '1h' of 's' that starts at {3 * HOUR}"):
        read(whole | others, hour(3))
    with pytest.raises(Incomplete, match="no message of the window '2h'"):
        snapshot.assemble_window("s", whole, "2h", HOUR)


def test_two_snapshots_of_a_window_are_never_mixed():
    old, new = written(taken(hour(1), 4, n=10)), written(taken(hour(1), 5, n=20))
    assert old.keys() == new.keys()
    for key in new:
        with pytest.raises(Incomplete):
            read(old | {key: new[key]}, hour(1))
        with pytest.raises(Incomplete):
            read(new | {key: old[key]}, hour(1))
    # messages that a later snapshot does not use may stay: they have an older number
    assert read(written(taken(hour(1), 4), 2, 1) | new, hour(1)) == taken(hour(1), 5, n=20)


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("snapshot", "0" * 32),
        ("sequence", 5),
        ("reports", 99),
        ("offsets", {"0": 1}),
    ],
)
def test_a_body_must_match_its_headers_and_the_other_messages(field, wrong):
    for method in ("base", "norm-sub"):
        received = written(taken(hour(1)))
        key = f"s/1h/{HOUR}/{method}"
        headers, value = received[key]
        received[key] = headers, json.dumps(json.loads(value) | {field: wrong}).encode()
        with pytest.raises(Incomplete, match=r"from another snapshot: |belong to another window"):
            read(received, hour(1))


def test_messages_under_the_key_of_another_window_are_refused():
    moved = {key.replace(str(HOUR), str(2 * HOUR)): said for key, said in written(taken(hour(1))).items()}
    with pytest.raises(Incomplete, match=rf"starts at {2 * HOUR} belong to another window: .*T01:00:00.000Z"):
        read(moved, hour(2))
    renamed = {key.replace("/1h/", "/2h/"): said for key, said in written(taken(hour(1))).items()}
    with pytest.raises(Incomplete, match="belong to another window"):
        snapshot.assemble_window("s", renamed, "2h", HOUR)


def test_a_window_without_its_labels_is_not_read():
    one = taken(hour(1), labels=tuple("abcde"))
    with pytest.raises(Incomplete, match="'s/domain' is missing"):
        read(written(one), hour(1))
    with pytest.raises(Incomplete, match="'s/domain' has the labels of another stream"):
        read(written(taken(labels=tuple("abcdf"))) | written(one), hour(1))
    assert read(written(taken(labels=tuple("abcde"))) | written(one), hour(1)) == one
    chunked = written(taken(labels=tuple("abcde")), 2)
    del chunked["s/domain/labels/1"]
    with pytest.raises(Incomplete, match="'s/domain/labels/1' is missing"):
        read(chunked | written(one), hour(1))


def test_headers_of_a_window_contain_its_end_and_finality():
    for final in (False, True):
        for headers, _ in written(taken(hour(1, final=final))).values():
            assert (headers["end"], headers["final"]) == (str(2 * HOUR).encode(), str(final).lower().encode())
            assert headers["parts"] == str(len(METHODS)).encode()
    assert "final" not in written(taken())["s/all/base"][0]


def test_every_message_follows_the_schema():
    for one in (taken(), taken(hour(1, final=True)), taken(hour(3, name="24h every 1h", hours=24))):
        for part, (_, value) in written(one).items():
            assert not list(VALIDATOR.iter_errors(json.loads(value))), part
    head = json.loads(written(taken())["s/head"][1])
    assert head["floors"] == {"0": 0, "1": HOUR}
    assert head["windows"] == {
        "1h": {"closed": 5 * HOUR, "bounded": [[4 * HOUR, 5 * HOUR]], "starts": [HOUR, 5 * HOUR]},
        "24h every 1h": {"closed": HOUR, "bounded": [], "starts": []},
    }
    assert snapshot.progress(head) == CUT.progress
    body = json.loads(written(taken(hour(1)))[f"s/1h/{HOUR}/base"][1])
    for wrong in (
        {"name": "all"},
        {"final": "yes"},
    ):
        assert not VALIDATOR.is_valid(body | {"window": body["window"] | wrong}), wrong
    assert not VALIDATOR.is_valid(body | {"reports": 0})


def test_windows_read_from_messages_merge_to_the_original_counts():
    one, two = (taken(hour(start, final=True), n=n) for start, n in ((1, 700), (2, 301)))
    received = written(one) | written(two)
    merged = read(received, hour(1)).estimate().merge(read(received, hour(2)).estimate())
    counts = sum(np.random.default_rng(n).binomial(n, 0.27, 5) for n in (700, 301))
    again = stream().oracle.estimate(counts, 1001)
    assert merged.frequencies.tobytes() == again.frequencies.tobytes()
    assert (merged.n, merged.windows) == (1001, ((HOUR, 3 * HOUR),))
    with pytest.raises(ValueError, match="overlap: reports in both would be counted twice"):
        merged.merge(taken(hour(2, name="24h every 1h", hours=24)).estimate())
    with pytest.raises(ValueError, match="an estimate of the whole stream cannot be merged"):
        merged.merge(taken().estimate())
    with pytest.raises(ValueError, match="their counts are not comparable"):
        merged.merge(taken(hour(9), d=6).estimate())
    with pytest.raises(ValueError, match="has the methods norm; base is required"):
        taken(hour(1), methods=["norm"]).estimate()


def test_a_deleted_window_leaves_no_message():
    d = snapshot.INLINE + 1
    one, everything = taken(hour(1, final=True), 3, d=d), taken(sequence=9, d=d)
    gone = snapshot.delete_window(everything, one.window)
    assert [part.key for part in gone if part.body] == []
    assert sorted(part.key for part in gone) == sorted(written(one))
    received = written(one) | written(everything)
    for message in gone:
        received[message.key] = dict(message.headers(9)), message.body
    assert snapshot.windows("s", received) == []
    assert snapshot.assemble("s", received) == everything
    with pytest.raises(Incomplete, match="no message of the window"):
        read(received, one.window)


@pytest.mark.parametrize(("partitions", "starts"), [(1, 0), (64, 0), (64, 20_000)])
def test_messages_with_windows_stay_within_the_stated_size(partitions, starts):
    latest = 253_402_300_799_000
    names = ["366d every 1s", "24h every 1h", "1h"]
    everywhere = range(2**31 - partitions, 2**31)
    rule = {
        "offset": 2**63 - 1,
        "revision": 2**31 - 1,
        "most_reports": 2**31 - 1,
        "hamming_weight": False,
        "max_batch_bytes": 2**31 - 1,
        "windows": ["all", *names],
        "grace": 366 * 24 * HOUR,
        "max_out_of_orderness": 366 * 24 * HOUR,
    }
    cut = Cut(
        dict.fromkeys(everywhere, 2**63 - 1),
        {},
        rules=dict.fromkeys(everywhere, [rule] * 3),
        floors=dict.fromkeys(everywhere, latest),
        progress={name: Closed(latest, ((latest, latest),) * 8, (latest,) * starts) for name in names},
    )
    one = replace(taken(), cut=cut)
    later = taken(Period("366d every 1s", latest - 366 * 24 * HOUR, latest, final=True))
    parts = snapshot.encode(one) + snapshot.encode_window(
        replace(later, cut=replace(cut, rules={}, progress={}))
    )
    largest = max(len(part.body) + len(part.key) for part in parts)
    bound = snapshot.largest_message(stream(), QUERIES, partitions, dict.fromkeys(names, starts))
    assert largest <= bound <= 2 * largest + 16_384


def test_a_window_derives_a_separate_identity():
    given = "ab" * 16
    everything, one, other = (taken(each, identity=given) for each in (snapshot.ALL_TIME, hour(1), hour(2)))
    assert everything.identity == given
    assert len({everything.identity, one.identity, other.identity}) == 3
    assert taken(hour(1), identity=given) == one
    assert taken(hour(1), identity="cd" * 16).identity != one.identity
    assert taken(hour(1), identity=given, published=7).identity == one.identity
