"""Rows: what is on the topic of rows, held against the bodies of the snapshots that they name.

The rows are read first and the snapshots then, up to their end: the bodies of each row's snapshot are there, or newer
ones have taken their place meanwhile, and then nothing is said of that window.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from worker.audit.errors import Difference
from worker.audit.snapshots import UNREADABLE, Message
from worker.audit.vectors import Vector, read

_KEY = ("stream", "window_name", "window_start", "method", "query", "rank")
_TYPES = (str, str, int, str, str, int)
_GONE = 1 << 63
"""The number of what is deleted."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def differing(
    head: Mapping[str, Any], rows: Mapping[bytes, bytes], messages: Callable[[], Iterable[Message]]
) -> str | None:
    """Returns what of the rows is not what the snapshots say, or None.

    Args:
        head: the newest head's document, from before the rows were read; one that says nothing of rows says that none
            are written.
        rows: key -> value, the newest, as they are on the topic.
        messages: reads those of the stream on the topic of snapshots, in their order.
    """
    if head.get("rows") is None:
        return None
    try:
        Rows(head, rows).expect_right(messages())
    except Difference as difference:
        return f"rows of {difference}"
    except UNREADABLE as error:
        return f"rows: what is on the topic cannot be read ({type(error).__name__})"
    return None


@dataclass
class _Parts:
    """The messages of a window's bodies, and their content types, by what follows the window in their keys."""

    messages: dict[str, bytes] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)

    def vectors(self, method: str) -> dict[str, Vector]:
        """Returns the vectors that rows are made of."""
        body = json.loads(self.messages[method])
        names = ("frequencies", "low", "high") if method == "base" else ("frequencies",)
        return {name: read(name, method, body, self.messages, self.types).values for name in names}


class Rows:
    """The rows of a stream, by their windows.

    Args:
        head: the newest head's document, from before they were read.
        rows: key -> value, the newest, as they are on the topic.

    Attributes:
        compared: how many rows were held against a body.
    """

    def __init__(self, head: Mapping[str, Any], rows: Mapping[bytes, bytes]) -> None:
        self.compared, self._head = 0, head
        self._rows = dict[str, list[dict[str, Any]]]()
        self._sequences = dict[str, set[int]]()
        self._methods = {"base"}
        for key, value in rows.items():
            if (place := _place(key)) is None:
                continue  # another program wrote it, and no reader of rows takes it for one
            row = _row(key, place, value)
            name, start = place["window_name"], place["window_start"]
            window = name if name == "all" else f"{name}/{start}"
            self._rows.setdefault(window, []).append(row)
            self._sequences.setdefault(window, set()).add(row["sequence"])
            self._methods.add(place["method"])

    def expect_right(self, messages: Iterable[Message]) -> None:
        """Sees that each row is what the body says that it is of.

        Args:
            messages: of the stream on the topic of snapshots, read after the rows, in their order.

        Raises:
            Difference: one is not; or a window that is not there has rows, or rows of several snapshots; or there are
                not those of all time that the head says.
        """
        if "all" not in self._rows and self._head["reports"]:
            raise Difference(f"all: has no rows, and by head {self._head['sequence']} there are some")
        bodies, newest, labels = dict[str, _Parts](), dict[str, int](), list[str]()
        for message in messages:
            window, _, part = _split(message.key)
            if message.key.startswith("domain"):
                labels = _labels(labels, message)
            if window not in self._rows or part.split("/")[0] not in self._methods:
                continue
            if not message.value:
                newest[window] = _GONE
                continue
            newest[window] = sequence = int(message.headers["sequence"])
            if sequence in self._sequences[window]:
                whole = bodies.setdefault(window, _Parts())
                whole.messages[part] = message.value
                whole.types[part] = message.headers["content-type"].decode()
        for window, rows in sorted(self._rows.items()):
            sequence = max(self._sequences[window])
            if window not in newest:
                raise Difference(f"{window}: has rows, and no snapshot of it is there")
            if newest[window] > sequence:
                continue  # a newer one took its place meanwhile, or it was deleted
            if len(self._sequences[window]) > 1:
                raise Difference(f"{window}: has rows of snapshots {sorted(self._sequences[window])}")
            if newest[window] < sequence:
                raise Difference(
                    f"{window}: has rows of snapshot {sequence}, and the newest is {newest[window]}"
                )
            self._expect_window(window, rows, bodies[window], labels or None)

    def _expect_window(
        self,
        window: str,
        rows: Iterable[Mapping[str, Any]],
        parts: _Parts,
        labels: list[str] | None,
    ) -> None:
        due = dict[tuple[str, str, int], dict[str, Any]]()
        base = parts.vectors("base")["frequencies"]
        order = np.argsort(-base, kind="stable")
        said = {(row["method"], row["query"], row["rank"]): row for row in rows}
        methods = {method for method, _, _ in said}
        ranks = max((rank for _, query, rank in said if not query), default=0)
        if self._sequences[window] == {
            self._head["sequence"]
        }:  # else it may have been another configuration's
            methods, ranks = {*self._head["rows"]["methods"]}, self._head["rows"]["ranks"][""]
        for method in methods:
            if method not in parts.messages:
                raise Difference(
                    f"{window}: has rows of method {method!r}, and its snapshot has no such body"
                )
            for (query, rank), row in _due(method, parts, order[:ranks], labels).items():
                due[method, query, rank] = row
        if said.keys() != due.keys():
            method, query, rank = min(said.keys() ^ due.keys())
            there = "is there" if (method, query, rank) in said else "is not there"
            raise Difference(f"{window}: the row of {method}, query {query!r}, rank {rank} {there}")
        for place, row in due.items():
            if wrong := [
                column for column in row if column not in said[place] or said[place][column] != row[column]
            ]:
                raise Difference(
                    f"{window}: the row of {place[0]}, query {place[1]!r}, rank {place[2]} has another {wrong[0]} than"
                    f" snapshot {row['sequence']}"
                )
        self.compared += len(due)


def _place(key: bytes) -> dict[str, Any] | None:
    """Returns what a row's key says; None for a key that is no row's."""
    try:
        place = json.loads(key)
    except (ValueError, RecursionError):
        return None
    good = type(place) is dict and tuple(place) == _KEY and tuple(map(type, place.values())) == _TYPES
    return place if good else None


def _row(key: bytes, place: Mapping[str, Any], value: bytes) -> dict[str, Any]:
    """Returns what stands at a place.

    Raises:
        Difference: it is no row, or one of another place.
    """
    try:
        row = json.loads(value)
    except (ValueError, RecursionError):
        row = None
    if type(row) is not dict or type(row.get("sequence")) is not int:
        raise Difference(f"{key.decode()}: its value is no row")
    if not place.items() <= row.items():
        raise Difference(f"{key.decode()}: its value is of another place")
    return row


def _split(key: str) -> tuple[str, str, str]:
    """Returns the window of a message's key, how it is divided, and what of it the message is."""
    name, slash, rest = key.partition("/")
    if name == "all":
        return name, slash, rest
    start, slash, rest = rest.partition("/")
    return f"{name}/{start}", slash, rest


def _labels(before: list[str], message: Message) -> list[str]:
    """Returns the labels, as far as messages have said them."""
    said = json.loads(message.value)
    if message.key == "domain":
        return list(said["labels"] or [])
    return [*before, *said]


def _due(
    method: str, parts: _Parts, order: Any, labels: list[str] | None
) -> dict[tuple[str, int], dict[str, Any]]:
    """Returns the rows of a method: query and rank -> all that the key does not say."""
    body = json.loads(parts.messages[method])
    end = body["window"]["end"]
    shared = {
        "window_end": None
        if end is None
        else (datetime.fromisoformat(end) - _EPOCH) // timedelta(milliseconds=1),
        "n": body["reports"],
        "sequence": body["sequence"],
        "final": body["window"]["final"],
        "complete": body["complete"],
    }

    def row(value: int | None, estimate: float, low: float | None, high: float | None) -> dict[str, Any]:
        label = None if value is None or labels is None else labels[value]
        own = {"value": value, "label": label, "estimate": estimate, "low": low, "high": high}
        return own | shared

    vectors = parts.vectors(method)

    def of_value(v: int) -> list[float | None]:
        return [
            float(vectors[name][v]) if name in vectors else None for name in ("frequencies", "low", "high")
        ]

    due = {("", i + 1): row(int(v), *of_value(int(v))) for i, v in enumerate(order)}  # type: ignore[arg-type]
    for one in body["queries"]:
        due[one["name"], 1] = row(None, one["frequency"], one.get("low"), one.get("high"))
    for one in body["top"]:
        ends = [one.get(name) or [None] * len(one["values"]) for name in ("low", "high")]
        for i, v in enumerate(one["values"]):
            due[one["name"], i + 1] = row(v, one["frequencies"][i], ends[0][i], ends[1][i])
    return due
