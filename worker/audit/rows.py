"""Comparison of published rows with the snapshots.

The audit reads rows before snapshots. If a window was published again in between, its rows are not compared.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from worker.audit.errors import Difference
from worker.audit.snapshots import UNREADABLE, UNTIMED, Message
from worker.audit.vectors import Vector, read

_KEY = ("stream", "window_name", "window_start", "method", "query", "rank")
_TYPES = (str, str, int, str, str, int)
_GONE = 1 << 63  # Stands for the sequence of a deleted body
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def differing(
    head: Mapping[str, Any], rows: Mapping[bytes, bytes], messages: Callable[[], Iterable[Message]]
) -> str | None:
    """Returns the first difference between a row and its snapshot, or None.

    The caller must read `head`, which lists rows, before `rows`, which maps each key to its newest value.
    """
    try:
        _expect_rows(head, rows, messages())
    except Difference as difference:
        return f"rows of {difference}"
    except UNREADABLE as error:
        return f"rows: the topic cannot be read ({type(error).__name__})"
    return None


@dataclass
class _Parts:
    messages: dict[str, bytes] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)

    def vectors(self, method: str) -> dict[str, Vector]:
        body = json.loads(self.messages[method])
        names = ["frequencies", *(("low", "high") if method == "base" else ())]
        names += ["known"] if "known" in body or "known" in body.get("vectors", ()) else []
        return {name: read(name, method, body, self.messages, self.types).values for name in names}


def _expect_rows(head: Mapping[str, Any], rows: Mapping[bytes, bytes], messages: Iterable[Message]) -> None:
    listed, methods = dict[str, list[dict[str, Any]]](), {"base"}
    for key, value in rows.items():
        if (row := _parse_row(key, value)) is not None:
            name = row["window_name"]
            listed.setdefault(name if name in UNTIMED else f"{name}/{row['window_start']}", []).append(row)
            methods.add(row["method"])
    sequences = {window: {row["sequence"] for row in own} for window, own in listed.items()}
    if "all" not in listed and head["reports"]:
        raise Difference(f"all: no rows, but head {head['sequence']} has reports")
    bodies, newest, labels = dict[str, _Parts](), dict[str, int](), list[str]()
    for message in messages:
        if message.part:
            continue
        name, _, part = message.key.partition("/")
        if name == "domain":
            content = json.loads(message.value)
            labels = list(content["labels"] or []) if message.key == "domain" else [*labels, *content]
        start, _, rest = part.partition("/")
        window, part = (name, part) if name in UNTIMED else (f"{name}/{start}", rest)
        if window not in listed or part.split("/")[0] not in methods:
            continue
        if not message.value:
            newest[window] = _GONE
            continue
        newest[window] = sequence = int(message.headers["sequence"])
        if sequence in sequences[window]:
            parts = bodies.setdefault(window, _Parts())
            parts.messages[part] = message.value
            parts.types[part] = message.headers["content-type"].decode()
    for window, own in sorted(listed.items()):
        sequence = max(sequences[window])
        if window not in newest:
            raise Difference(f"{window}: rows without a snapshot")
        if newest[window] > sequence:
            continue  # published again or deleted meanwhile
        if len(sequences[window]) > 1:
            raise Difference(f"{window}: rows of several snapshots, {sorted(sequences[window])}")
        if newest[window] < sequence:
            raise Difference(f"{window}: rows of snapshot {sequence}, but the newest is {newest[window]}")
        _expect_window(window, own, bodies[window], labels or None, head)


def _expect_window(
    window: str,
    rows: Iterable[Mapping[str, Any]],
    parts: _Parts,
    labels: list[str] | None,
    head: Mapping[str, Any],
) -> None:
    base = parts.vectors("base")["frequencies"]
    order = np.argsort(-base, kind="stable")[: np.count_nonzero(~np.isnan(base))]  # without unknown labels
    there = {(row["method"], row["query"], row["rank"]): row for row in rows}
    methods = {method for method, _, _ in there}
    ranks = max((rank for _, query, rank in there if not query), default=0)
    if any(row["sequence"] == head["sequence"] for row in there.values()):
        # an older snapshot may have been configured differently
        methods, ranks = {*head["rows"]["methods"]}, head["rows"]["ranks"][""]
    due = dict[tuple[str, str, int], dict[str, Any]]()
    for method in methods:
        if method not in parts.messages:
            raise Difference(f"{window}: rows of method {method!r}, which its snapshot lacks")
        for (query, rank), row in _expected_rows(method, parts, order[:ranks], labels).items():
            due[method, query, rank] = row
    for method, query, rank in sorted(there.keys() ^ due.keys()):
        kind = "unexpected" if (method, query, rank) in there else "missing"
        raise Difference(f"{window}: {kind} row of {method}, query {query!r}, rank {rank}")
    for (method, query, rank), row in due.items():
        found = there[method, query, rank]
        for column in row:
            if column not in found or found[column] != row[column]:
                raise Difference(
                    f"{window}: {column} of the row of {method}, query {query!r}, rank {rank} differs from snapshot"
                    f" {row['sequence']}"
                )


def _parse_row(key: bytes, value: bytes) -> dict[str, Any] | None:
    try:
        place = json.loads(key)
    except (ValueError, RecursionError):
        return None
    if type(place) is not dict or tuple(place) != _KEY or tuple(map(type, place.values())) != _TYPES:
        return None
    try:
        row = json.loads(value)
    except (ValueError, RecursionError):
        row = None
    if type(row) is not dict or type(row.get("sequence")) is not int:
        raise Difference(f"{key.decode()}: the value is not a row")
    if not place.items() <= row.items():
        raise Difference(f"{key.decode()}: the value has another key")
    return row


def _expected_rows(
    method: str, parts: _Parts, order: Any, labels: list[str] | None
) -> dict[tuple[str, int], dict[str, Any]]:
    body = json.loads(parts.messages[method])
    end = body["window"]["end"]
    shared = {
        "window_end": end and (datetime.fromisoformat(end) - _EPOCH) // timedelta(milliseconds=1),
        "sequence": body["sequence"],
        "final": body["window"]["final"],
        "complete": body["complete"],
    }
    vectors = parts.vectors(method)
    known = vectors.get("known")

    def row(value: int | None, n: int | None, *numbers: float | None) -> dict[str, Any]:
        label = None if value is None or labels is None else labels[value]
        n = int(known[value]) if known is not None and value is not None else n
        own = dict(zip(("estimate", "low", "high"), numbers, strict=True)) | shared
        return own | {"value": value, "label": label, "n": body["reports"] if n is None else n}

    due = dict[tuple[str, int], dict[str, Any]]()
    for i, v in enumerate(map(int, order)):
        low, high = (float(vectors[name][v]) if name in vectors else None for name in ("low", "high"))
        due["", i + 1] = row(v, None, float(vectors["frequencies"][v]), low, high)
    for one in body["queries"]:
        if one.get("known") != 0:
            numbers = one["frequency"], one.get("low"), one.get("high")
            due[one["name"], 1] = row(None, one.get("known"), *numbers)
    for one in body["top"]:
        lows, highs = (one.get(name) or [None] * len(one["values"]) for name in ("low", "high"))
        for i, v in enumerate(one["values"]):
            due[one["name"], i + 1] = row(v, None, one["frequencies"][i], lows[i], highs[i])
    return due
