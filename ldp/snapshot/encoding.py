"""Encodes a snapshot as messages."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import orjson

from ldp.consistency import METHODS
from ldp.snapshot import chunks
from ldp.snapshot.contents import ALL_TIME, Body, Period, Snapshot
from ldp.snapshot.documents import CHUNK, INLINE, KNOWN, VECTORS, body_document, head_document, vectors
from ldp.snapshot.parts import domain_of

JSON = "application/json"


@dataclass(frozen=True)
class Message:
    """One message of a snapshot; `body` is empty for a tombstone."""

    key: str
    content_type: str
    body: bytes
    snapshot: str = ""
    parts: int = 1
    window: Period = ALL_TIME
    schema: int = 1

    def headers(self, sequence: int) -> list[tuple[str, bytes]]:
        """Returns the headers. Only messages of windows have `end` and `final`."""
        headers = [
            ("content-type", self.content_type.encode()),
            ("schema", str(self.schema).encode()),
            ("sequence", str(sequence).encode()),
            ("parts", str(self.parts).encode()),
            ("snapshot", self.snapshot.encode()),
        ]
        if self.window.start is None:
            return headers
        final = b"true" if self.window.final else b"false"
        return [*headers, ("end", str(self.window.end).encode()), ("final", final)]


def encode(snapshot: Snapshot, inline: int = INLINE, chunk: int = CHUNK) -> list[Message]:
    """Returns a snapshot's messages: head, domain, and the methods' bodies.

    Args:
        snapshot: the snapshot.
        inline: largest number of values of a vector that is part of the body. Files need no limit.
        chunk: largest number of values in one message of a longer vector (`ldp.snapshot.chunks`).

    Raises:
        ValueError: a number is infinite or NaN, or `chunk` is too large.

    Cost: O(d) bytes per method, about 40 ns per number.

    Example:
        >>> import ldp
        >>> from ldp.snapshot import Cut, take
        >>> stream = ldp.Stream("colours", ldp.GRR(epsilon="1", domain_size=3), labels=("red", "green", "blue"))
        >>> parts = encode(take(stream, stream.oracle.estimate([50, 30, 20], n=100), Cut({0: 100}, {}), sequence=1))
        >>> [part.key for part in parts][:4]
        ['colours/head', 'colours/domain', 'colours/all/base', 'colours/all/base-pos']
    """
    parts = [_json(f"{snapshot.stream}/head", head_document(snapshot))]
    return _whole(snapshot, [*parts, *_domain(snapshot, inline), *_bodies(snapshot, inline, chunk)])


def encode_window(snapshot: Snapshot, inline: int = INLINE, chunk: int = CHUNK) -> list[Message]:
    """Returns the messages of a window: the methods' bodies.

    The window has its own identity, because its messages stay on the topic after later heads. Arguments: see `encode`.

    Raises:
        ValueError: a number is infinite or NaN, or the snapshot covers all time.
    """
    if snapshot.window == ALL_TIME:
        raise ValueError(
            f"snapshot {snapshot.sequence} of {snapshot.stream!r} has no window; one is required"
        )
    return _whole(snapshot, _bodies(snapshot, inline, chunk))


def _whole(snapshot: Snapshot, parts: list[Message]) -> list[Message]:
    """Adds identity, window and number of messages to each message."""
    identity, window, schema = snapshot.identity, snapshot.window, snapshot.schema
    return [
        replace(part, snapshot=identity, parts=len(parts), window=window, schema=schema) for part in parts
    ]


def delete_window(
    snapshot: Snapshot, window: Period, methods: Iterable[str] = tuple(METHODS)
) -> list[Message]:
    """Returns tombstones for all possible messages of a window or of all time.

    `snapshot` is any snapshot of the stream. The window may have methods that `snapshot` does not have, so the default
    of `methods` is all methods.
    """
    return delete_part(snapshot, snapshot.stream, window, methods)


def delete_part(snapshot: Snapshot, part: str, window: Period, methods: Iterable[str]) -> list[Message]:
    """Returns tombstones for all possible messages of a window of a part.

    `part` is a name from `part_of`. The other arguments are those of `delete_window`.
    """
    size = len(next(iter(snapshot.bodies.values())).frequencies)
    many = -(-size // CHUNK) if size > INLINE else 0
    known = (KNOWN,) if snapshot.is_population else ()
    keys = [f"{part}/{window.place}/{method}" for method in methods]
    longer = [
        f"{key}/{vector}/{i}"
        for key in keys
        for vector in ((*VECTORS, *known) if key.endswith("/base") else (*VECTORS[:1], *known))
        for i in range(many)
    ]
    return [Message(key, JSON, b"", snapshot.identity) for key in (*keys, *longer)]


def _bodies(snapshot: Snapshot, inline: int, chunk: int) -> list[Message]:
    parts, where = [], snapshot.window.place
    for method, body in snapshot.bodies.items():
        _check_finite(snapshot, method, body)
        key, document = f"{snapshot.stream}/{where}/{method}", body_document(snapshot, method, inline, chunk)
        longer = vectors(snapshot, body) if document["chunks"] else {}
        if longer:
            document = {k: v for k, v in document.items() if k not in longer} | {"vectors": [*longer]}
        parts.append(_json(key, document))
        for name, vector in longer.items():
            for i in range(document["chunks"]):
                content_type, data = chunks.shortest(vector[i * chunk : (i + 1) * chunk])
                parts.append(Message(f"{key}/{name}/{i}", content_type, data))
    return parts


def _domain(snapshot: Snapshot, inline: int) -> list[Message]:
    labels, key = snapshot.labels, f"{snapshot.stream}/domain"
    if labels is None or key != domain_of(snapshot.stream):
        return []
    starts = range(0, len(labels), inline)
    domain = {"schema": snapshot.schema, "stream": snapshot.stream, "fingerprint": snapshot.fingerprint}
    if snapshot.is_population:
        domain["fingerprints"] = [one["fingerprint"] for one in snapshot.documents]
    if len(starts) == 1:
        return [_json(key, domain | {"chunks": 0, "labels": labels})]
    chunks = [_json(f"{key}/labels/{i}", labels[start : start + inline]) for i, start in enumerate(starts)]
    return [_json(key, domain | {"chunks": len(starts), "labels": None}), *chunks]


def _check_finite(snapshot: Snapshot, method: str, body: Body) -> None:
    """Raises ValueError for a number that the encoder would write as null.

    Numbers of unknown values are null.
    """
    known = slice(None) if snapshot.known is None else snapshot.known > 0
    numbers: list[Any] = [snapshot.std_error, snapshot.level, body.sum]
    numbers += [vector[known] for vector in vectors(snapshot, body).values()]
    for answer in body.sets:
        if answer.known == 0:
            continue
        numbers += [answer.frequency, answer.std_error, answer.low, answer.high]
        numbers += [answer.anytime_low, answer.anytime_high]
    for most in body.tops:
        numbers += [most.frequencies, most.low, most.high, most.anytime_low, most.anytime_high]
    if not all(np.isfinite(number).all() for number in numbers if number is not None):
        raise ValueError(
            f"snapshot {snapshot.sequence} of {snapshot.stream!r}: {method} has a number that is not finite;"
            " JSON allows finite numbers"
        )


def _json(key: str, document: object) -> Message:
    return Message(key, JSON, orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY))
