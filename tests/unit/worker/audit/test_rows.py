"""The audit of rows: the publisher's rows are right, and every changed row is found."""

import json
import random
from dataclasses import replace

import pytest

from ldp.snapshot import slots
from tests.unit.worker.audit.publishing import World
from tests.unit.worker.audit.test_windows import HOPS, PLAIN, START, TENS
from worker.audit.rows import differing
from worker.audit.snapshots import Message
from worker.publishing.rows import RowTopic


def written(seed, limits=HOPS, methods=("norm-sub", "base"), top=2, to=120, changes=()):
    there = World(seed, limits, changes, retain=30_000, queries=True)
    places = slots(list(methods), top, there.queries, there.stream.oracle.domain_size)
    there.publisher = there.publisher_of(30_000, RowTopic("rows", places))
    return there.run(to=to)


def verdict(there, rows=None, head=None, topic=None):
    sent = there.topic if topic is None else topic
    messages = [Message(each.key.partition("/")[2], each.headers, each.value) for each in sent]
    return differing(head or there.head(), there.rows_there if rows is None else rows, lambda: iter(messages))


@pytest.mark.parametrize("seed", range(3))
def test_rows_of_publishers_are_correct(seed):
    there = written(seed, (HOPS, TENS, PLAIN)[seed % 3])
    assert len(there.rows_there) > 5
    assert verdict(there) is None
    assert verdict(there, topic=there.compacted()) is None


def test_rows_of_late_are_compared_and_deleted_with_it():
    limited = replace(HOPS, fewest_new=3)
    there = written(0, limited)
    keys = [key for key in there.rows_there if b'"window_name":"late","window_start":0' in key]
    assert len(keys) == 2 * (2 + 1 + 2)  # methods, values and queries
    assert verdict(there) is None
    wrong = there.rows_there | {keys[0]: there.rows_there[keys[0]].replace(b'"n":', b'"n":1')}
    assert verdict(there, wrong).startswith("rows of late: n of the row")
    there = written(0, limited, changes=[(START + 60, HOPS)])
    assert verdict(there) is None
    assert not [key for key in there.rows_there if b'"window_name":"late"' in key]
    assert [each for each in there.topic if each.key == "s/late/base"][-1].value == b""


@pytest.fixture(scope="module")
def there():
    return written(4)


def places(there):
    return [(json.loads(key), key) for key in there.rows_there]


CHANGES = {
    "value": lambda said: 1 if said is None else (said + 1) % 3,
    "label": lambda _: "x",
    "estimate": lambda said: said + 1e-12,
    "low": lambda said: 0.5 if said is None else said - 1e-12,
    "high": lambda said: 0.5 if said is None else None,
    "window_end": lambda said: 5 if said is None else said + 1,
    "n": lambda said: said + 1,
    "final": lambda said: not said,
    "complete": lambda said: not said,
}


@pytest.mark.parametrize("column", CHANGES)
def test_a_changed_row_is_detected(there, column):
    for _, key in random.Random(column).sample(places(there), 12):
        row = json.loads(there.rows_there[key])
        changed = json.dumps(row | {column: CHANGES[column](row[column])}).encode()
        said = verdict(there, there.rows_there | {key: changed})
        assert said is not None
        assert f": {column} of the row of " in said and said.endswith(f" snapshot {row['sequence']}")


def test_a_row_of_another_snapshot_or_place_is_detected(there):
    for place, key in places(there)[::5]:
        row = json.loads(there.rows_there[key])
        of_another = json.dumps(row | {"sequence": row["sequence"] - 1}).encode()
        assert "rows of several snapshots" in verdict(there, there.rows_there | {key: of_another})
        elsewhere = json.dumps(row | {"rank": place["rank"] + 1}).encode()
        assert "the value has another key" in verdict(there, there.rows_there | {key: elsewhere})


def test_missing_and_additional_rows_are_detected(there):
    for place, key in places(there)[::5]:
        message = verdict(there, {k: v for k, v in there.rows_there.items() if k != key})
        assert "missing row" in message and f"{place['query']!r}, rank {place['rank']}" in message
        row = json.loads(there.rows_there[key])
        for more in ({"rank": 9}, {"query": "other"}):
            added = {
                json.dumps(place | more, separators=(",", ":")).encode(): json.dumps(row | more).encode()
            }
            assert verdict(there, there.rows_there | added) is not None, (place, more)


def test_rows_of_a_missing_window_and_missing_rows_are_detected(there):
    key = next(key for place, key in places(there) if place["window_name"] == "all")
    there_is = json.loads(there.rows_there[key])
    elsewhere = {"window_name": "10s", "window_start": 10**12}
    place = {name: there_is[name] for name in json.loads(key)} | elsewhere
    more = {json.dumps(place, separators=(",", ":")).encode(): json.dumps(there_is | elsewhere).encode()}
    assert "rows without a snapshot" in verdict(there, there.rows_there | more)
    without = {k: v for k, v in there.rows_there.items() if json.loads(k)["window_name"] != "all"}
    assert "all: no rows, but head" in verdict(there, without)


def test_a_record_of_another_program_is_a_difference_without_traceback(there):
    key = next(key for place, key in places(there) if place["window_name"] == "all")
    row = json.loads(there.rows_there[key])
    values = [b"", b"x", b"[" * 100_000, b"[]", b"null", b"9" * 5000]
    for value in (*values, json.dumps(row | {"sequence": "7"}).encode()):
        assert "the value is not a row" in verdict(there, there.rows_there | {key: value})
    for other in (b"{}", b'{"stream":"s",', b'{"stream":"s",\xff', key.replace(b'"rank":1', b'"rank":"1"')):
        assert verdict(there, there.rows_there | {other: there.rows_there[key]}) is None
    without = {name: said for name, said in row.items() if name != "estimate"}
    assert ": estimate of the row" in verdict(there, there.rows_there | {key: json.dumps(without).encode()})
    alone = {key: json.dumps(row | {"sequence": 10**30}).encode()}
    assert "rows of snapshot" in verdict(there, alone)
    place = {name: row[name] for name in json.loads(key)} | {"method": "bass"}
    forged = row | place | {"sequence": 10**30}
    assert verdict(there, {json.dumps(place).encode(): json.dumps(forged).encode()}) is not None


def test_rows_published_meanwhile_are_ignored():
    there = written(4, to=60)
    head, rows = there.head(), dict(there.rows_there)
    there.run(since=60)
    assert there.head()["sequence"] > head["sequence"]
    assert verdict(there, rows, head) is None
    assert verdict(there, rows, head, there.compacted()) is None
