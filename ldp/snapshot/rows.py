"""Encodes a snapshot as rows, which are flat records for databases.

A row's key consists of stream, window, method, query and rank. Values are ranked by Base, so their ranks are the same
for every method (`ldp.query.top`). A value that enters the top takes the row of the value that leaves, so a window's
keys are known in advance. ``row-key.connect.json`` and ``row-value.connect.json`` define the types for Kafka Connect.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import orjson

from ldp.consistency import METHODS
from ldp.query import Query, TopQuery
from ldp.snapshot.checking import check_row_key, check_row_value
from ldp.snapshot.contents import Period, Slots, Snapshot, Vector

VALUES = ""  # Name of the `query` of single values


class RowKey(NamedTuple):
    """The key of a row; fields as in ``row-key.connect.json``.

    `window_start` is in milliseconds, 0 for all time. `query` is `VALUES` for single values. `rank` starts at 1.
    """

    stream: str
    window_name: str
    window_start: int
    method: str
    query: str
    rank: int

    def encode(self) -> bytes:
        """Returns the canonical bytes of the key.

        Example:
            >>> RowKey("colours", "all", 0, "base", "", 1).encode()
            b'{"stream":"colours","window_name":"all","window_start":0,"method":"base","query":"","rank":1}'
        """
        return orjson.dumps(self._asdict())

    @classmethod
    def parse(cls, key: bytes) -> "RowKey":
        """Parses and validates a key. Raises ValueError for an invalid key."""
        columns = _object("key", key)
        check_row_key(columns)
        if tuple(columns) != cls._fields:
            raise ValueError(f"the key has other columns; allowed are exactly {', '.join(cls._fields)}")
        parsed = cls(**columns)
        if parsed.encode() != key:  # compaction compares bytes, so a key must have only one encoding
            raise ValueError("the key is not in canonical form; allowed is compact JSON")
        return parsed


class RowValue(NamedTuple):
    """The value of a row; fields as in ``row-value.connect.json``.

    The key's columns are omitted. `estimate` is a share among the n reports, which the interval covers. `value` is None
    for a set. `low` and `high` are None except for Base. `window_end` is in milliseconds, None for all time.
    """

    value: int | None
    label: str | None
    estimate: float
    low: float | None
    high: float | None
    window_end: int | None
    n: int
    sequence: int
    final: bool
    complete: bool

    @classmethod
    def parse(cls, value: bytes, key: RowKey) -> "RowValue":
        """Parses and validates a row's value. Ignores columns of later versions.

        Raises:
            ValueError: the value is invalid or belongs to another key; the message names the column.
        """
        columns = _object("value", value)
        check_row_value(columns)
        if others := [name for name, one in key._asdict().items() if columns.get(name) != one]:
            raise ValueError(f"column {others[0]} of the value differs from the key")
        return cls(*(columns[name] for name in cls._fields))


def _object(what: str, text: bytes) -> Mapping[str, Any]:
    try:
        columns = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"the {what} is not JSON: {error}") from None
    if not isinstance(columns, Mapping):
        raise ValueError(f"the {what} is not a JSON object")
    return columns


@dataclass(frozen=True)
class Row:
    """A record on the topic of rows. An empty value is a tombstone."""

    key: bytes
    value: bytes


def slots(methods: Sequence[str], top: int, queries: Iterable[Query], domain_size: int) -> Slots:
    """Returns the slots of a window, for `top` values and all queries.

    Raises ValueError for unknown, repeated or no methods, and for `top` below 1.
    """
    if not methods or not METHODS.keys() >= set(methods) or len(set(methods)) < len(methods):
        raise ValueError(
            f"methods are {', '.join(methods) or 'none'}; allowed are, once each, {', '.join(METHODS)}"
        )
    if top < 1:
        raise ValueError(f"top is {top}; it must be at least 1")
    asked = {query.name: query.k if isinstance(query, TopQuery) else 1 for query in queries}
    return Slots(tuple(methods), {VALUES: min(top, domain_size)} | asked)


def keys(stream: str, window: Period, places: Slots) -> Iterator[RowKey]:
    """Yields the keys of all rows that a window can have. O(rows)."""
    for method in places.methods:
        for query, ranks in places.ranks.items():
            for rank in range(1, ranks + 1):
                yield RowKey(stream, window.name, window.start or 0, method, query, rank)


def encode_rows(snapshot: Snapshot, places: Slots) -> list[Row]:
    """Returns a snapshot's rows for the slots `places`. O(d log d + rows).

    The column `n` is the number of reports whose documents have the value or the set. Unknown values of a population
    have no rows; slots without an answer get tombstones.

    Raises KeyError if the snapshot lacks Base or one of the methods.

    Example:
        >>> import ldp
        >>> from ldp.snapshot import Cut, take
        >>> stream = ldp.Stream("colours", ldp.GRR(epsilon="1", domain_size=3), labels=("red", "green", "blue"))
        >>> taken = take(stream, stream.oracle.estimate(np.array([20, 50, 30]), n=100), Cut({0: 100}, {}), sequence=1)
        >>> row = orjson.loads(encode_rows(taken, slots(["norm-sub"], 2, [], 3))[0].value)
        >>> row["rank"], row["value"], row["label"], round(row["estimate"], 3), row["n"]
        (1, 1, 'green', 0.775, 100)
    """
    window, known = snapshot.window, snapshot.known
    shared = {"sequence": snapshot.sequence, "final": window.final, "complete": snapshot.complete}
    most = places.ranks[VALUES] if known is None else min(places.ranks[VALUES], np.count_nonzero(known))
    order = np.argsort(-snapshot.bodies["base"].frequencies, kind="stable")[:most].tolist()
    rows = []
    for method in places.methods:
        for query, rank, value, estimate, low, high, n in _answers(snapshot, method, order):
            key = RowKey(snapshot.stream, window.name, window.start or 0, method, query, rank).encode()
            label = None if value is None or snapshot.labels is None else snapshot.labels[value]
            own = {"value": value, "label": label, "estimate": estimate, "low": low, "high": high}
            own |= {"window_end": window.end, "n": n}
            # the key's columns, followed by the others
            rows.append(Row(key, key[:-1] + b"," + orjson.dumps(own | shared)[1:]))
    if snapshot.is_population:
        there = {row.key for row in rows}
        slots = (key.encode() for key in keys(snapshot.stream, window, places))
        rows += [Row(key, b"") for key in slots if key not in there]
    return rows


_Answer = tuple[str, int, int | None, float, float | None, float | None, int]
"""Query, rank, value, estimate, the ends of the interval, and n."""


def _answers(snapshot: Snapshot, method: str, order: Sequence[int]) -> Iterator[_Answer]:
    """Yields a method's answers for the values in `order` and for all queries."""
    body = snapshot.bodies[method]
    low, high = (None, None) if body.low is None or body.high is None else (body.low[order], body.high[order])
    yield from _ranked(snapshot, VALUES, order, body.frequencies[order], low, high)
    for answer in body.sets:
        n = snapshot.reports if answer.known is None else answer.known
        if n:
            yield answer.query.name, 1, None, answer.frequency, answer.low, answer.high, n
    for most in body.tops:
        yield from _ranked(
            snapshot, most.query.name, most.values.tolist(), most.frequencies, most.low, most.high
        )


def _ranked(
    snapshot: Snapshot,
    query: str,
    values: Sequence[int],
    estimates: Vector,
    low: Vector | None,
    high: Vector | None,
) -> Iterator[_Answer]:
    none = [None] * len(values)
    ends = none if low is None else low.tolist(), none if high is None else high.tolist()
    known = snapshot.known
    for i, (value, estimate, *between) in enumerate(zip(values, estimates.tolist(), *ends, strict=True)):
        yield (
            query,
            i + 1,
            value,
            estimate,
            *between,
            snapshot.reports if known is None else int(known[value]),
        )


def delete_rows(stream: str, window: Period, places: Slots, but: Slots | None = None) -> list[Row]:
    """Returns tombstones for a window's slots `places`, except those in `but`."""
    stay = set() if but is None else set(keys(stream, window, but))
    return [Row(key.encode(), b"") for key in keys(stream, window, places) if key not in stay]
