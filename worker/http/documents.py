"""Formats snapshots as JSON and CSV, and excerpts of snapshots as JSON."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import orjson

from ldp import query
from ldp.intervals.score import Of
from ldp.snapshot import Snapshot, body_document, head_document

ENDS = ("low", "high", "anytime_low", "anytime_high")
TOLERANCE = "poisoning_tolerance"
"""`ENDS` and `TOLERANCE` name additional vectors of Base, which a snapshot may lack."""
MOST_ROWS = 500
_MOST_NAMED = 20
"""Maximum number of a set's values with labels."""
_AT_ONCE = 1 << 14
"""Maximum number of a vector's elements in one part."""
Body = Mapping[str, Any]


def json(document: object) -> bytes:
    """Encodes a document as JSON."""
    return orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)


def whole(snapshot: Snapshot, methods: Sequence[str]) -> Iterator[bytes]:
    """Yields a complete snapshot as JSON, in parts of bounded size.

    Cost: O(d) per method; see ``tests/bench/page.py``.
    """
    head = _head(snapshot)
    shared = {*head, "schema", "method", "chunks"}
    yield json(head)[:-1] + b',"labels":'
    yield from _value(snapshot.labels)
    yield b',"methods":{'
    for i, method in enumerate(methods):
        body = body_document(snapshot, method)
        own = {name: value for name, value in body.items() if name not in shared}
        yield (b"," if i else b"") + json(method)
        for j, (name, value) in enumerate(own.items()):
            yield (b"," if j else b":{") + json(name) + b":"
            yield from _value(value)
        yield b"}"
    yield b"}}"


def _value(value: Any) -> Iterator[bytes]:
    """Yields a value as JSON; splits a long vector into parts."""
    if not isinstance(value, np.ndarray | tuple | list) or len(value) <= _AT_ONCE:
        yield json(value)
        return
    for at in range(0, len(value), _AT_ONCE):
        yield (b"," if at else b"[") + json(value[at : at + _AT_ONCE])[1:-1]
    yield b"]"


def csv(snapshot: Snapshot, methods: Sequence[str], of: Of = "reports") -> Iterator[bytes]:
    """Yields the values as CSV (RFC 4180), in parts of bounded size.

    A row has the value, its label if there are labels, its frequency by each method, and Base's `ENDS` and `TOLERANCE`.
    Cost: O(d) per method; see ``tests/bench/page.py``.

    Example:
        >>> import ldp
        >>> from ldp.snapshot import Cut, take
        >>> stream = ldp.Stream("s", ldp.Response("3/4", 2), labels=("red", "blue"))
        >>> taken = take(stream, stream.oracle.estimate([5, 3], 8), Cut({0: 8}, {}), sequence=3)
        >>> [row.split(b",")[:3] for row in b"".join(csv(taken, ["base"])).splitlines()]
        [[b'value', b'label', b'base'], [b'0', b'"red"', b'0.75'], [b'1', b'"blue"', b'0.25']]
    """
    leading, labels = _leading(snapshot, of), snapshot.labels
    columns = {method: snapshot.bodies[method].frequencies for method in methods}
    columns |= {name: leading[name] for name in (*ENDS, TOLERANCE) if name in leading}
    yield ",".join(["value", *([] if labels is None else ["label"]), *columns]).encode() + b"\r\n"
    for at in range(0, size := len(leading["frequencies"]), _AT_ONCE):
        part = range(at, min(at + _AT_ONCE, size))
        cells = [[b"%d" % value for value in part]]
        if labels is not None:
            cells.append([b'"' + labels[value].encode().replace(b'"', b'""') + b'"' for value in part])
        cells += [json(column[part.start : part.stop])[1:-1].split(b",") for column in columns.values()]
        yield b"".join(b",".join(row) + b"\r\n" for row in zip(*cells, strict=True))


def _leading(snapshot: Snapshot, of: Of) -> dict[str, Any]:
    """Returns Base, or the first method without Base, with the intervals."""
    leading = body_document(snapshot, "base" if "base" in snapshot.bodies else next(iter(snapshot.bodies)))
    if of == "reports" or leading["method"] != "base":
        return leading
    # a snapshot has the intervals of the reports
    estimate, level = snapshot.estimate(), snapshot.level
    sets = [
        _with_ends(answer, query.interval(estimate, answer["values"], level, of))
        for answer in leading["queries"]
    ]
    tops = [
        _with_ends(answer, query.top_interval(estimate, len(answer["values"]), level, of))
        for answer in leading["top"]
    ]
    return _with_ends(leading, estimate.interval(level, of)) | {"queries": sets, "top": tops}


def _with_ends(answer: Body, ends: tuple[Any, Any]) -> dict[str, Any]:
    """Returns an answer with another interval and without tolerances."""
    kept = {name: value for name, value in answer.items() if name not in (*ENDS, TOLERANCE)}
    return kept | {"low": ends[0], "high": ends[1]}


def _head(snapshot: Snapshot) -> dict[str, Any]:
    head = {name: value for name, value in head_document(snapshot).items() if name != "schema"}
    constant = {"document": snapshot.document, "standard_error": snapshot.std_error, "level": snapshot.level}
    return head | constant


def excerpt(
    snapshot: Snapshot,
    methods: Sequence[str],
    top: int = 50,
    offset: int = 0,
    sort: str = "base",
    find: str = "",
    of: Of = "reports",
) -> dict[str, Any]:
    """Returns some values of a snapshot, and the answers to its queries.

    `sort` is ``base`` (most frequent first) or ``value`` (domain order). `find` selects the values whose label contains
    this text, ignoring case. In a stream without labels, `find` searches the values' numbers. If `of` is "population",
    the pointwise intervals cover the share in the population, and anytime-valid intervals and poisoning tolerances are
    left out.
    Cost: O(d log d) for the order, O(d) for the search; see ``tests/bench/page.py``.

    Example:
        >>> import ldp
        >>> from ldp.snapshot import Cut, take
        >>> stream = ldp.Stream("s", ldp.GRR(epsilon="1", domain_size=3), labels=("red", "green", "blue"))
        >>> taken = take(stream, stream.oracle.estimate([5, 3, 7], 15), Cut({0: 15}, {}), sequence=3)
        >>> found = excerpt(taken, ["base"], top=2)
        >>> [row["label"] for row in found["values"]], found["matching"]
        (['blue', 'red'], 3)
        >>> [row["value"] for row in excerpt(taken, ["base"], find="RE")["values"]]
        [0, 1]
    """
    leading = _leading(snapshot, of)
    bodies = {method: body_document(snapshot, method) for method in methods}
    values = _matching(snapshot, find, len(leading["frequencies"]))
    matching = len(values)
    if sort == "base":
        values = values[np.argsort(-leading["frequencies"][values], kind="stable")]
    values = values[offset : offset + min(top, MOST_ROWS)]
    shown = [
        *(body["frequencies"][values] for body in bodies.values()),
        *(leading[end][values] for end in ENDS if end in leading),
    ]
    drawn = np.concatenate(shown)
    drawn = drawn[~np.isnan(drawn)] if not np.isnan(drawn).all() else np.zeros(1)  # unknown labels
    head = _head(snapshot)
    left_out = ("offsets", "rules", "documents", "floors", "windows", "reached", "released")
    return {
        name: value for name, value in head.items() if name not in (*left_out, "rows", "lineage", "methods")
    } | {
        "domain_size": len(leading["frequencies"]),
        "of": of,
        "methods": list(snapshot.bodies),
        "sums": {method: body.sum for method, body in snapshot.bodies.items()},
        "matching": matching,
        "offset": offset,
        "values": _rows(snapshot, leading, bodies, values),
        "range": [float(drawn.min()), float(drawn.max())],
        "documents": [_document(one) for one in snapshot.documents] if snapshot.is_population else [],
        "queries": [_set(snapshot, bodies, leading, i) for i in range(len(leading["queries"]))],
        "top": [_top(snapshot, bodies, leading, i) for i in range(len(leading["top"]))],
    }


def _document(entry: Mapping[str, Any]) -> dict[str, Any]:
    parameters = {name: entry["document"].get(name) for name in ("protocol", "epsilon")}
    return {"fingerprint": entry["fingerprint"], "reports": entry["reports"]} | parameters


def _matching(snapshot: Snapshot, find: str, size: int) -> np.ndarray:
    if not find:
        return np.arange(size)
    wanted = find.casefold()
    if (labels := snapshot.labels) is None:
        return np.array([value for value in range(size) if wanted in str(value)], np.int64)
    return np.array([value for value, label in enumerate(labels) if wanted in label.casefold()], np.int64)


def _rows(
    snapshot: Snapshot, leading: Body, bodies: Mapping[str, Body], values: np.ndarray
) -> list[dict[str, Any]]:
    labels = snapshot.labels
    vectors = {
        name: np.asarray(leading[name])[values].tolist()
        for name in (*ENDS, TOLERANCE, "known")
        if name in leading
    }
    answers = {method: body["frequencies"][values].tolist() for method, body in bodies.items()}
    return [
        {
            "value": value,
            "label": None if labels is None else labels[value],
            "frequencies": {method: column[i] for method, column in answers.items()},
        }
        | {name: column[i] for name, column in vectors.items()}
        for i, value in enumerate(values.tolist())
    ]


def _set(snapshot: Snapshot, bodies: Mapping[str, Body], leading: Body, i: int) -> dict[str, Any]:
    query, labels = leading["queries"][i], snapshot.labels
    values = list(query["values"][:_MOST_NAMED])
    return {name: of for name, of in query.items() if name != "frequency"} | {
        "values": values,
        "labels": None if labels is None else [labels[value] for value in values],
        "size": len(query["values"]),
        "answers": {method: body["queries"][i]["frequency"] for method, body in bodies.items()},
    }


def _top(snapshot: Snapshot, bodies: Mapping[str, Body], leading: Body, i: int) -> dict[str, Any]:
    query = leading["top"][i]
    values = _first(query["values"])
    vectors = {name: _first(query[name]) for name in (*ENDS, TOLERANCE) if name in query}
    return (
        {"low": None, "high": None}
        | vectors
        | {
            "name": query["name"],
            "values": values,
            "size": len(query["values"]),
            "labels": None if snapshot.labels is None else [snapshot.labels[value] for value in values or ()],
            "answers": {method: _first(body["top"][i]["frequencies"]) for method, body in bodies.items()},
            "recommended": query["recommended"],
        }
    )


def _first(vector: Any) -> list[Any] | None:
    return None if vector is None else np.asarray(vector)[:MOST_ROWS].tolist()
