"""Rows: flat records against the snapshot's messages; column types."""

import json
import re
import subprocess
import sys
from importlib.resources import files

import numpy as np
import pytest

import ldp
from ldp.consistency import METHODS
from ldp.query import SetQuery, TopQuery
from ldp.snapshot import (
    Cut,
    Period,
    RowKey,
    Rows,
    RowValue,
    Slots,
    assemble,
    delete_rows,
    encode,
    encode_rows,
    encode_window,
    slots,
    take,
)
from tests.support.docs import blocks, page

LABELS = ("red", "green", 'a "quoted" / 🟣 one', "Grün, grau", "blue")
WINDOW = Period("1h", 7_200_000, 10_800_000, final=True)
QUERIES = (SetQuery("warm", (0, 2)), TopQuery("most", 2))
KEY, VALUE = (
    json.loads(files("ldp.snapshot").joinpath(f"row-{part}.connect.json").read_text())
    for part in ("key", "value")
)
TYPES = {"string": str, "int32": int, "int64": int, "double": float, "boolean": bool}


def taken(window=None, labels=LABELS, counts=(30, 50, 10, 50, 60), queries=QUERIES, d=5):
    stream = ldp.Stream("colours", ldp.GRR(epsilon="1", domain_size=d), labels=labels)
    estimate = stream.oracle.estimate(np.array(counts), n=sum(counts))
    more = {} if window is None else {"window": window}
    return take(stream, estimate, Cut({0: 9}, {0: [(1, 2)]}), sequence=7, queries=queries, **more)


def reread(messages, methods, top):
    """Expected rows, read from the messages' JSON: key's columns -> the others."""
    expected = {}
    bodies = {m.key.rsplit("/", 1)[1]: json.loads(m.body) for m in messages if m.key.count("/") > 1}
    base = bodies["base"]
    order = sorted(range(len(base["frequencies"])), key=lambda v: (-base["frequencies"][v], v))[:top]
    labels = next((json.loads(m.body)["labels"] for m in messages if m.key.endswith("/domain")), None)
    for method in methods:
        body = bodies[method]
        window = body["window"]
        milli = {
            end: 0 if window[end] is None else round(np.datetime64(window[end][:-1], "ms").astype(int).item())
            for end in ("start", "end")
        }
        where = ("colours", window["name"], milli["start"], method)
        shared = {
            "n": body["reports"],
            "sequence": body["sequence"],
            "final": window["final"],
            "complete": body["complete"],
            "window_end": milli["end"] or None,
        }

        def row(value, estimate, low, high, shared=shared):
            label = labels[value] if labels and value is not None else None
            return {"value": value, "label": label, "estimate": estimate, "low": low, "high": high} | shared

        def end(said, which, i):
            return said[which][i] if which in said else None

        for rank, v in enumerate(order, 1):
            expected[*where, "", rank] = row(
                v, body["frequencies"][v], end(body, "low", v), end(body, "high", v)
            )
        for said in body["queries"]:
            expected[*where, said["name"], 1] = row(
                None, said["frequency"], said.get("low"), said.get("high")
            )
        for said in body["top"]:
            for i, v in enumerate(said["values"]):
                expected[*where, said["name"], i + 1] = row(
                    v, said["frequencies"][i], end(said, "low", i), end(said, "high", i)
                )
    return expected


def flat(rows):
    """Rows as a reader sees them, the key's columns apart."""
    read = [(json.loads(row.key), json.loads(row.value)) for row in rows]
    assert all(value | key == value for key, value in read), "a value says another key"
    names = [column["field"] for column in KEY["fields"]]
    assert len({row.key for row in rows}) == len(rows)
    return {
        tuple(key.values()): {name: one for name, one in value.items() if name not in names}
        for key, value in read
    }


@pytest.mark.parametrize(("top", "window"), [(1, None), (3, WINDOW), (100, None)])
def test_rows_equal_the_messages(top, window):
    snapshot = taken(window)
    messages = encode(snapshot) if window is None else [*encode(taken()), *encode_window(snapshot)]
    if window is not None:  # the stream defines the labels
        messages = [m for m in messages if m.window == window or m.key.endswith("/domain")]
    methods = ["norm-sub", "base", "post-pos"]
    rows = encode_rows(snapshot, slots(methods, top, QUERIES, 5))
    assert flat(rows) == reread(messages, methods, top)


@pytest.mark.parametrize(("window", "labels"), [(None, LABELS), (WINDOW, None)])
def test_rows_have_the_columns_and_types_of_the_schemas(window, labels):
    rows = encode_rows(taken(window, labels), slots(list(METHODS), 5, QUERIES, 5))
    for said, schema in [
        (json.loads(text), schema) for row in rows for text, schema in ((row.key, KEY), (row.value, VALUE))
    ]:
        assert list(said) == [column["field"] for column in schema["fields"]] or schema is VALUE
        assert {*said} == {column["field"] for column in schema["fields"]}
        for column in schema["fields"]:
            one = said[column["field"]]
            assert type(one) is TYPES[column["type"]] or (one is None and column["optional"]), column


def test_tombstones_cover_exactly_the_rows():
    snapshot, places = taken(WINDOW), slots(["base", "norm"], 3, QUERIES, 5)
    rows, gone = encode_rows(snapshot, places), delete_rows("colours", WINDOW, places)
    assert {row.key for row in rows} == {row.key for row in gone}
    assert {row.value for row in gone} == {b""}
    fewer = slots(["norm"], 2, QUERIES[:1], 5)
    left = {row.key for row in rows} - {row.key for row in delete_rows("colours", WINDOW, places, but=fewer)}
    assert left == {row.key for row in encode_rows(taken(WINDOW, queries=QUERIES[:1]), fewer)}


def test_a_head_lists_the_possible_rows():
    said = Rows("ldp-rows", Slots(("base",), {"": 3}), Slots(("norm",), {"": 9, "warm": 1}), until=5)
    for rows in (None, said, Rows("ldp-rows", Slots(("base",), {"": 3}))):
        snapshot = taken()
        object.__setattr__(snapshot.cut, "rows", rows)
        topic = {part.key: (dict(part.headers(7)), part.body) for part in encode(snapshot)}
        assert assemble("colours", topic).cut.rows == rows
        assert assemble("colours", topic) == snapshot


def in_duckdb(sql):
    """Column types and rows that a separate process finds."""
    script = f"""
import duckdb, json
found = duckdb.sql({sql!r})
print(json.dumps([dict(zip(found.columns, map(str, found.types))), found.fetchall()], default=str))
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def test_duckdb_reads_rows_with_their_types(tmp_path):
    """As the page on databases has it: JSON lines without column types."""
    snapshot = taken(WINDOW)
    rows = encode_rows(snapshot, slots(["base", "norm"], 4, QUERIES, 5))
    file = tmp_path / "rows.jsonl"
    file.write_bytes(b"".join(row.value + b"\n" for row in rows))
    names = [column["field"] for column in KEY["fields"]]
    others = [column["field"] for column in VALUE["fields"] if column["field"] not in names]
    kinds, found = in_duckdb(f"SELECT {', '.join([*names, *others])} FROM read_json('{file}')")
    assert kinds["estimate"] == kinds["low"] == "DOUBLE"
    assert kinds["rank"] == kinds["n"] == kinds["window_start"] == "BIGINT"
    assert kinds["final"] == "BOOLEAN"
    assert {tuple(row[:6]): dict(zip(others, row[6:], strict=True)) for row in found} == flat(rows)
    _, best = in_duckdb(
        f"SELECT epoch_ms(window_start), label FROM read_json('{file}') WHERE rank = 1 AND query = ''"
    )
    assert best == [["1970-01-01 02:00:00", "blue"]] * 2


def test_the_block_for_duckdb_runs_with_and_without_rows(tmp_path):
    script = blocks(page("guides/databases"), "sh")[0].split("<<'END'\n")[1].removesuffix("END\n")
    for rows, found in ((), "0 rows"), (encode_rows(taken(), slots(["base"], 4, (), 5)), "blue"):
        (tmp_path / "rows.jsonl").write_bytes(b"".join(row.value + b"\n" for row in rows))
        assert found in subprocess.check_output([sys.executable, "-c", script], cwd=tmp_path, text=True)


PLACE = RowKey("colours", "1h", 7_200_000, "base", "", 1)


def changed(where, **changes):
    said = where | {name: one for name, one in changes.items() if one is not ...}
    return json.dumps({name: one for name, one in said.items() if changes.get(name, 0) is not ...}).encode()


def test_rows_of_the_worker_survive_a_round_trip():
    for window in (None, WINDOW):
        for row in encode_rows(taken(window), slots(list(METHODS), 5, QUERIES, 5)):
            key = RowKey.parse(row.key)
            assert key.encode() == row.key
            assert json.loads(row.value) == key._asdict() | RowValue.parse(row.value, key)._asdict()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"stream": 5}, "key.stream: 5 given; allowed is a text of 1 to 200"),
        ({"stream": "a\0"}, "without control characters"),
        ({"stream": "x" * 201}, "key.stream: "),
        ({"stream": ...}, "allowed is an object with the key 'stream'"),
        ({"more": 1}, "the key has other columns"),
        ({"window_name": ["1h"]}, "key.window_name: ['1h'] given; allowed is a text of 1 to 64"),
        (
            {"window_start": -1},
            "key.window_start: -1 given; allowed is a whole number from 0 to 253402300800000",
        ),
        ({"window_start": 1 << 63}, "key.window_start: 9223372036854775808 given"),
        ({"method": "bass"}, "key.method: 'bass' given; allowed is one of base, base-pos"),
        ({"query": None}, "key.query: None given"),
        ({"rank": 0}, "key.rank: 0 given; allowed is a whole number from 1 to 100000"),
        ({"rank": 1.0}, "key.rank: 1.0 given"),
    ],
)
def test_a_key_of_another_program_is_refused(change, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        RowKey.parse(changed(PLACE._asdict(), **change))


def test_a_row_has_exactly_one_valid_key():
    key = PLACE.encode()
    for other in (key.replace(b":", b": "), key.replace(b'{"', b'{"stream":"x","', 1), key + b" "):
        with pytest.raises(ValueError, match="canonical form"):
            RowKey.parse(other)


GOOD = PLACE._asdict() | {
    "value": 3, "label": "grün", "estimate": -0.25, "low": None, "high": 1, "window_end": 10_800_000,
    "n": 5, "sequence": 7, "final": True, "complete": False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"rank": 2}, "column rank of the value differs from the key"),
        ({"label": ...}, "allowed is an object with the key 'label'"),
        ({"label": "a\0b"}, "control characters"),
        ({"label": "\ud800"}, "not JSON"),
        ({"value": 1 << 24}, "value.value: 16777216 given; allowed is a whole number from 0 to 16777215"),
        ({"estimate": None}, "value.estimate: None given; allowed is a finite number"),
        ({"estimate": 10**400}, "n"),
        ({"low": "0"}, "value.low: '0' given; allowed is a finite number"),
        ({"n": 1 << 63}, "value.n: 9223372036854775808 given"),
        ({"sequence": 0}, "value.sequence: 0 given"),
        ({"window_end": 1 << 50}, "value.window_end: "),
        ({"final": 1}, "value.final: 1 given; allowed is true or false"),
    ],
)
def test_a_value_of_another_program_is_refused(change, says):
    RowValue.parse(changed(GOOD, column_of_a_later_version=[1]), PLACE)
    with pytest.raises(ValueError, match=re.escape(says)):
        RowValue.parse(changed(GOOD, **change), PLACE)


@pytest.mark.parametrize(
    "text", [b"", b"\xff", b"[" * 100_000, b'{"a":1}\0', b'{"n":NaN}', b"7" * 5000, b"null"]
)
def test_bytes_other_than_json_objects_are_refused_in_one_line(text):
    with pytest.raises(ValueError, match=r"^the key is not (JSON|a JSON object)") as caught:
        RowKey.parse(text)
    assert len(str(caught.value)) < 200
    with pytest.raises(ValueError, match=r"^the value is not (JSON|a JSON object)"):
        RowValue.parse(text, PLACE)
