"""Reading a snapshot back: the newest messages of a stream become the object again."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson

from ldp.query import SetQuery, TopQuery
from ldp.snapshot.contents import Body, Cut, Recommended, SetAnswer, Snapshot, TopAnswer, Vector
from ldp.snapshot.documents import SCHEMA

Received = Mapping[str, tuple[Mapping[str, bytes], bytes]]
"""The newest message of each key: its headers and its value."""
Mark = tuple[bytes | None, bytes | None]
"""What tells the messages of one snapshot from those of another: number and identity."""


class Incomplete(ValueError):  # noqa: N818  # an answer, not a fault: more messages are to come
    """The messages at hand are not all of one snapshot."""


class NewerSchema(ValueError):  # noqa: N818  # named for what was found
    """A newer version wrote the snapshot, by a schema that this one cannot read."""


def assemble(stream: str, received: Received) -> Snapshot:
    """Puts a stream's newest snapshot together from the newest message of each key, as a compacted topic gives them.

    Args:
        stream: the stream's name.
        received: key -> (headers, value).

    Raises:
        Incomplete: a message is missing, or of another snapshot than the head: of another number or identity, or a
            body whose own identity, number, reports or offsets are not the head's.
        NewerSchema: the head is of a newer version of the schema.

    Example:
        >>> import ldp
        >>> from ldp.snapshot import encode, take
        >>> s = ldp.Stream("colours", ldp.GRR(epsilon="1", domain_size=2))
        >>> taken = take(s, s.oracle.estimate(np.array([5, 5]), n=10), Cut({0: 10}, {}), sequence=3)
        >>> parts = encode(taken)
        >>> topic = {part.key: (dict(part.headers(3, len(parts))), part.body) for part in parts}
        >>> assemble("colours", topic) == taken
        True
    """
    headers, value = received.get(f"{stream}/head", ({}, b""))
    if not value:
        raise Incomplete(f"the message '{stream}/head' is missing")
    head, mark = orjson.loads(value), _mark(headers)
    if (schema := head.get("schema", SCHEMA)) > SCHEMA:
        raise NewerSchema(
            f"snapshot {head.get('sequence')} of {stream!r} is of schema {schema}, where this version reads up to"
            f" {SCHEMA}: a newer version wrote it"
        )
    ours = [
        key for key, (said, _) in received.items() if key.startswith(f"{stream}/") and _mark(said) == mark
    ]
    if len(ours) != (parts := int(headers["parts"])):
        raise Incomplete(
            f"snapshot {head['sequence']} of {stream!r} has {parts} messages; {len(ours)} are here"
        )
    bodies = {}
    for key in ours:
        _, kind, *rest = key.split("/")
        if kind == "all" and len(rest) == 1:
            body = orjson.loads(_part(received, key, mark))
            for shared in ("snapshot", "sequence", "reports", "offsets"):
                if body.get(shared) != head.get(shared):
                    raise Incomplete(
                        f"the message {key!r} is of another snapshot: {shared} is not the head's"
                    )
            for vector in ("frequencies", "low", "high"):
                if vector in body:
                    body[vector] = _vector(received, f"{key}/{vector}", body[vector], body["chunks"], mark)
            bodies[rest[0]] = body
    if not bodies:
        raise Incomplete(f"snapshot {head['sequence']} of {stream!r} has no method's body")
    return _snapshot(head, _labels(stream, received, mark), bodies)


def _mark(headers: Mapping[str, bytes]) -> Mark:
    return headers.get("sequence"), headers.get("snapshot")


def _part(received: Received, key: str, mark: Mark) -> bytes:
    headers, value = received.get(key, ({}, b""))
    if not value or _mark(headers) != mark:
        raise Incomplete(f"the message {key!r} is missing")
    return value


def _vector(received: Received, key: str, inline: Sequence[float] | None, chunks: int, mark: Mark) -> Vector:
    if inline is not None:
        return np.array(inline, np.float64)
    data = [_part(received, f"{key}/{i}", mark) for i in range(chunks)]
    return np.frombuffer(b"".join(data), "<f8").astype(np.float64)


def _labels(stream: str, received: Received, mark: Mark) -> tuple[str, ...] | None:
    if f"{stream}/domain" not in received:
        return None
    domain = orjson.loads(_part(received, f"{stream}/domain", mark))
    if domain["labels"] is not None:
        return tuple(domain["labels"])
    chunks = (_part(received, f"{stream}/domain/labels/{i}", mark) for i in range(domain["chunks"]))
    return tuple(label for chunk in chunks for label in orjson.loads(chunk))


def _snapshot(
    head: Mapping[str, Any], labels: tuple[str, ...] | None, bodies: Mapping[str, Mapping[str, Any]]
) -> Snapshot:
    """Returns what the documents say, whose vectors are arrays; an earlier version left some of it out."""
    one = next(iter(bodies.values()))
    queries: dict[str, SetQuery] = {}
    return Snapshot(
        stream=head["stream"],
        fingerprint=head["fingerprint"],
        document=one["document"],
        labels=labels,
        sequence=head["sequence"],
        identity=head.get("snapshot"),
        lineage=head.get("lineage"),
        cut=Cut(
            {int(partition): offset for partition, offset in head["offsets"].items()},
            {int(partition): gaps for partition, gaps in head["gaps"].items()},
            head.get("uncounted", ()),
            {int(partition): rules for partition, rules in head.get("rules", {}).items()},
        ),
        complete=head["complete"],
        reports=head["reports"],
        std_error=one["standard_error"],
        level=one["level"],
        recommended={
            said["name"]: Recommended(found["method"], found["sequence"])
            for said in (*one["queries"], *one.get("top", ()))
            if (found := said.get("recommended")) is not None
        },
        bodies={method: _body(body, queries) for method, body in bodies.items()},
    )


def _body(body: Mapping[str, Any], queries: dict[str, SetQuery]) -> Body:
    """Returns what a body says; the queries are the same in all, and made once."""
    sets = []
    for said in body["queries"]:
        query = queries.get(said["name"])
        if query is None or query.values != tuple(said["values"]):
            query = queries[said["name"]] = SetQuery(said["name"], said["values"])
        ends = said.get("standard_error"), said.get("low"), said.get("high")
        sets.append(SetAnswer(query, said["frequency"], *ends))
    return Body(
        body["frequencies"],
        body["sum"],
        tuple(sets),
        tuple(_top(said) for said in body.get("top", ())),
        body.get("low"),
        body.get("high"),
    )


def _top(said: Mapping[str, Any]) -> TopAnswer:
    ends = [np.array(said[end], np.float64) for end in ("low", "high") if end in said]
    return TopAnswer(
        TopQuery(said["name"], len(said["values"])),
        np.array(said["values"], np.int64),
        np.array(said["frequencies"], np.float64),
        *ends,
    )
