"""Assembles a snapshot from the newest messages of a stream."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import orjson

from ldp.query import SetQuery, TopQuery
from ldp.snapshot import chunks
from ldp.snapshot.checking import MOST_BYTES, check_body, check_domain, check_head
from ldp.snapshot.contents import (
    LATE,
    Body,
    Cut,
    Period,
    Recommended,
    SetAnswer,
    Snapshot,
    TopAnswer,
    Vector,
)
from ldp.snapshot.documents import (
    BASE_ONLY,
    KNOWN,
    SCHEMA,
    VECTORS,
    counted,
    period,
    privacy_loss_of,
    progress,
    released_of,
    rows_of,
)
from ldp.snapshot.parts import domain_of
from ldp.stream import fingerprint

Received = Mapping[str, tuple[Mapping[str, bytes], bytes]]
"""Key -> headers and value of its newest message."""
Mark = tuple[bytes | None, bytes | None]
"""Number and identity of a snapshot, which all its messages share."""


class Incomplete(ValueError):  # noqa: N818  # not an error: more messages can follow
    """Raised if messages are missing or belong to another snapshot."""


class NewerSchema(ValueError):  # noqa: N818  # named after the finding
    """Raised if a snapshot has a newer schema than this version reads."""


def assemble(stream: str, received: Received) -> Snapshot:
    """Assembles the newest snapshot of all time of a stream or a part.

    `stream` is the name of a stream or of a part (`part_of`). `received` maps each key to the headers and value of the
    key's newest message. It may include messages of windows. For a segment, it needs the stream's labels.

    Raises:
        Incomplete: a message is missing or belongs to another snapshot, or the snapshot has only a head.
        NewerSchema: a message has a newer schema than this version reads.
        ValueError: a message is invalid.

    Example:
        >>> import ldp
        >>> from ldp.snapshot import encode, take
        >>> s = ldp.Stream("colours", ldp.GRR(epsilon="1", domain_size=2))
        >>> taken = take(s, s.oracle.estimate(np.array([5, 5]), n=10), Cut({0: 10}, {}), sequence=3)
        >>> topic = {part.key: (dict(part.headers(3)), part.body) for part in encode(taken)}
        >>> assemble("colours", topic) == taken
        True
    """
    headers, value = received.get(f"{stream}/head", ({}, b""))
    if not value:
        raise Incomplete(f"the message '{stream}/head' is missing")
    head, mark = _parse(value), _mark(headers)
    _check_schema(stream, head)
    check_head(head)
    head_key, prefixes = f"{stream}/head", (f"{stream}/all/", f"{stream}/domain")
    ours = [
        key
        for key, (own, body) in received.items()
        if body and _mark(own) == mark and (key == head_key or key.startswith(prefixes))
    ]
    if len(ours) < (parts := int(headers["parts"])):
        raise Incomplete(
            f"snapshot {head['sequence']} of {stream!r} has {parts} messages; {len(ours)} were received"
        )
    bodies = _bodies(received, f"{stream}/all/", ours, mark)
    if not bodies:
        why = (
            "has no method's body"
            if head["reports"]
            else "has only a head: there are no reports yet, or too few"
        )
        raise Incomplete(f"snapshot {head['sequence']} of {stream!r} {why}")
    expected = {
        shared: head.get(shared) for shared in ("schema", "snapshot", "sequence", "reports", "offsets")
    }
    documents = head["documents"]
    expected["documents"] = [counted(one) for one in documents] if len(documents) > 1 else None
    for method, body in bodies.items():
        for shared, value in expected.items():
            if body.get(shared) != value:
                raise Incomplete(
                    f"the message '{stream}/all/{method}' is from another snapshot: {shared} differs from the head"
                )
    one = next(iter(bodies.values()))
    if ":" in stream or _is_without_labels(one):  # a segment has the stream's labels
        return _snapshot(head, _known_labels(stream, received, one), bodies)
    return _snapshot(head, _labels(stream, received, mark), bodies)


def assemble_window(stream: str, received: Received, name: str, start: int | None) -> Snapshot:
    """Assembles the newest snapshot of a window, by name and start in ms.

    `stream` is the name of a stream or of a part. `start` is None for `late`. `received` is as for `assemble`. The
    snapshot has no rules, lineage, floors or progress, which only heads have.

    Raises:
        Incomplete: a message is missing or belongs to another snapshot or window; or the labels are missing or belong
            to another stream.
        NewerSchema: a message has a newer schema than this version reads.
        ValueError: a message is invalid.
    """
    prefix = f"{stream}/{Period(name, start).place}/"
    there = {key: headers for key, (headers, value) in received.items() if value and key.startswith(prefix)}
    what = f"window {name!r} of {stream!r}" + ("" if start is None else f" that starts at {start}")
    if not there:
        raise Incomplete(f"no message of the {what} was received")
    newest = _newest(there.values())
    mark = _mark(newest)
    ours = [key for key, headers in there.items() if _mark(headers) == mark]
    if len(ours) < (parts := int(newest["parts"])):
        raise Incomplete(f"the {what} has {parts} messages; {len(ours)} were received")
    bodies = _bodies(received, prefix, ours, mark)
    if not bodies:
        raise Incomplete(f"the {what} has no method's body")
    one = next(iter(bodies.values()))
    if (period(one["window"]).name, period(one["window"]).start) != (name, start):
        raise Incomplete(f"the messages of the {what} belong to another window: {one['window']}")
    expected = {"snapshot": newest["snapshot"].decode() or None, "sequence": int(newest["sequence"])}
    expected |= {
        shared: one.get(shared) for shared in ("schema", "window", "reports", "offsets", "documents")
    }
    for method, body in bodies.items():
        for shared, value in expected.items():
            if body.get(shared) != value:
                raise Incomplete(
                    f"the message {prefix + method!r} is from another snapshot: {shared} differs"
                )
    return _snapshot(one, _known_labels(stream, received, one), bodies)


def windows(stream: str, received: Received) -> list[Period]:
    """Lists the completely received windows, by name and start. O(messages)."""
    there: dict[tuple[str, int], list[Mapping[str, bytes]]] = {}
    found: dict[tuple[str, int], Period] = {}
    for key, (headers, value) in received.items():
        window = window_of(key, headers) if value and key.startswith(f"{stream}/") else None
        if window is not None and window.start is not None:
            there.setdefault((window.name, window.start), []).append(headers)
    for which, messages in sorted(there.items()):
        newest = _newest(messages)
        if sum(_mark(headers) == _mark(newest) for headers in messages) == int(newest["parts"]):
            found[which] = Period(*which, int(newest["end"]), newest["final"] == b"true")
    return list(found.values())


def window_of(key: str, headers: Mapping[str, bytes]) -> Period | None:
    """Reads a message's window from its key and headers; None for all time."""
    if "end" not in headers:
        return LATE if key.split("/")[1:2] == [LATE.name] else None
    _, name, start, *_ = key.split("/")
    return Period(name, int(start), int(headers["end"]), headers["final"] == b"true")


def _newest(messages: Iterable[Mapping[str, bytes]]) -> Mapping[str, bytes]:
    return max(messages, key=lambda headers: int(headers["sequence"]))


def _parse(value: bytes, kind: type = dict) -> Any:
    if len(value) > MOST_BYTES:
        raise ValueError(f"{len(value)} bytes of JSON given; allowed are up to {MOST_BYTES}")
    document = orjson.loads(value)
    if type(document) is not kind:
        raise ValueError(f"JSON of type {type(document).__name__} given; allowed is {kind.__name__}")
    return document


def _check_schema(stream: str, document: Mapping[str, Any]) -> None:
    if type(schema := document.get("schema")) is int and schema > SCHEMA:
        raise NewerSchema(
            f"snapshot {document.get('sequence')} of {stream!r} has schema {schema} of a newer version; this version"
            f" reads schemas up to {SCHEMA}"
        )


def _bodies(received: Received, prefix: str, ours: Iterable[str], mark: Mark) -> dict[str, dict[str, Any]]:
    """Returns the body of each method, with the vectors as arrays."""
    bodies = {}
    for key in ours:
        method = key.removeprefix(prefix)
        if method == key or "/" in method:
            continue
        body = _parse(_part(received, key, mark))
        _check_schema(key.partition("/")[0], body)
        check_body(body)
        for vector in (*VECTORS, KNOWN):
            if vector in body or vector in body.get("vectors", ()):
                body[vector] = read_vector(
                    received, f"{key}/{vector}", body.get(vector), body["chunks"], mark
                )
        bodies[method] = body
    return bodies


def _mark(headers: Mapping[str, bytes]) -> Mark:
    return headers.get("sequence"), headers.get("snapshot")


def _part(received: Received, key: str, mark: Mark) -> bytes:
    headers, value = received.get(key, ({}, b""))
    if not value or _mark(headers) != mark:
        raise Incomplete(f"the message {key!r} is missing")
    return value


def read_vector(
    received: Received, key: str, inline: Sequence[float] | None, parts: int, mark: Mark
) -> Vector:
    """Returns a vector of a body, or of messages with the key and a number."""
    if inline is not None:
        return np.array(inline, np.float64)
    return np.concatenate([_chunk(received, f"{key}/{i}", mark) for i in range(parts)])


def _chunk(received: Received, key: str, mark: Mark) -> Vector:
    data = _part(received, key, mark)
    content_type = received[key][0].get("content-type", b"").decode()
    try:
        return chunks.read(content_type, data)
    except KeyError:
        raise NewerSchema(
            f"the message {key!r} has content type {content_type}, which this version cannot read"
        ) from None


def _is_without_labels(body: Mapping[str, Any]) -> bool:
    """Returns whether the documents of a body have no labels."""
    first = body["documents"][0] if "documents" in body else body
    return bool(fingerprint(first["document"]).hex() == first["fingerprint"])


def _labels(stream: str, received: Received, mark: Mark) -> tuple[str, ...]:
    key = domain_of(stream)
    domain = _parse(_part(received, key, mark))
    check_domain(domain)
    if domain["labels"] is not None:
        return tuple(domain["labels"])
    chunks = (_part(received, f"{key}/labels/{i}", mark) for i in range(domain["chunks"]))
    return tuple(label for chunk in chunks for label in _parse(chunk, list))


def _known_labels(stream: str, received: Received, body: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Returns the labels of a body, which are the first of the newest labels.

    Raises Incomplete unless the body's documents are the first of the newest documents.
    """
    if _is_without_labels(body):
        return None
    key = domain_of(stream)
    headers, value = received.get(key, ({}, b""))
    if not value:
        raise Incomplete(f"the message {key!r} is missing")
    check_domain(domain := _parse(value))
    own = [one["fingerprint"] for one in body.get("documents", [body])]
    if domain.get("fingerprints", [domain["fingerprint"]])[: len(own)] != own:
        raise Incomplete(f"the message {key!r} has the labels of another stream")
    return _labels(stream, received, _mark(headers))[: len(body["frequencies"])]


def _snapshot(
    head: Mapping[str, Any], labels: tuple[str, ...] | None, bodies: Mapping[str, Mapping[str, Any]]
) -> Snapshot:
    one = next(iter(bodies.values()))
    _expect_fit(labels, bodies)
    queries: dict[str, SetQuery] = {}
    return Snapshot(
        stream=head["stream"],
        fingerprint=head["fingerprint"],
        document=one.get("document", {}),
        labels=labels,
        sequence=head["sequence"],
        identity=head["snapshot"],
        lineage=head.get("lineage"),
        cut=Cut(
            {int(partition): offset for partition, offset in head["offsets"].items()},
            {int(partition): gaps for partition, gaps in head["gaps"].items()},
            head["uncounted"],
            {int(partition): rules for partition, rules in head.get("rules", {}).items()},
            {int(partition): floor for partition, floor in head.get("floors", {}).items()},
            progress(head),
            rows_of(head),
            None if (methods := head.get("methods")) is None else tuple(methods),
            head.get("reached"),
            released_of(head),
            privacy_loss_of(head),
            head.get("segments"),
            head.get("hidden", 0),
            head.get("parts_fewest"),
        ),
        complete=head["complete"],
        reports=head["reports"],
        std_error=one["standard_error"],
        level=one["level"],
        recommended={
            answer["name"]: Recommended(found["method"], found["sequence"])
            for answer in (*one["queries"], *one["top"])
            if (found := answer["recommended"]) is not None
        },
        bodies={method: _body(body, queries) for method, body in bodies.items()},
        window=period(head["window"]),
        epsilon=head.get("epsilon"),
        published=head.get("published"),
        withheld=head.get("withheld"),
        documents=tuple(head.get("documents", ())),
        known=None if KNOWN not in one else one[KNOWN].astype(np.int64),
    )


def _expect_fit(labels: tuple[str, ...] | None, bodies: Mapping[str, Mapping[str, Any]]) -> None:
    """Raises Incomplete unless vectors, labels and values fit one domain."""
    vectors = (*VECTORS, KNOWN)
    sizes = {len(body[vector]) for body in bodies.values() for vector in vectors if vector in body}
    size = next(iter(sizes), 0)
    highest = max(
        (
            max(answer["values"], default=0)
            for body in bodies.values()
            for part in ("queries", "top")
            for answer in body[part]
        ),
        default=0,
    )
    if len(sizes) != 1 or highest >= size or (labels is not None and len(labels) != size):
        raise Incomplete("the messages have domains of different sizes")
    if labels is not None and not {*map(type, labels)} <= {str}:
        raise Incomplete("a label is not text")
    _expect_known(bodies)


def _expect_known(bodies: Mapping[str, Mapping[str, Any]]) -> None:
    """Raises ValueError unless all vectors are NaN exactly where `known` is 0."""
    one = next(iter(bodies.values()))
    known = one.get(KNOWN, np.ones(len(one["frequencies"])))
    if not (known >= 0).all() or (known % 1).any():
        raise ValueError("known has a number that is not a number of reports")
    for method, body in bodies.items():
        if not np.array_equal(body.get(KNOWN, known), one.get(KNOWN, known)):
            raise ValueError(f"known of {method} differs from that of the other methods")
        for name in VECTORS:
            if name in body and not np.array_equal(np.isnan(body[name]), known == 0):
                raise ValueError(
                    f"{name} of {method} has nulls that do not match known; allowed is null exactly where known is 0"
                )


def _body(body: Mapping[str, Any], queries: dict[str, SetQuery]) -> Body:
    """Builds a body from a document. `queries` caches queries by name."""
    sets = []
    for answer in body["queries"]:
        query = queries.get(answer["name"])
        if query is None or query.values != tuple(answer["values"]):
            query = queries[answer["name"]] = SetQuery(answer["name"], answer["values"])
        base_only = {name: answer[name] for name in BASE_ONLY if name in answer}
        frequency = math.nan if answer["frequency"] is None else answer["frequency"]
        base_only |= {KNOWN: answer.get(KNOWN)}
        sets.append(SetAnswer(query, frequency, answer.get("standard_error"), **base_only))
    return Body(
        body["frequencies"],
        body["sum"],
        tuple(sets),
        tuple(_top(answer) for answer in body["top"]),
        **{name: body[name] for name in BASE_ONLY if name in body},
    )


def _top(answer: Mapping[str, Any]) -> TopAnswer:
    base_only = {name: np.array(answer[name], np.float64) for name in BASE_ONLY if name in answer}
    return TopAnswer(
        TopQuery(answer["name"], len(answer["values"])),
        np.array(answer["values"], np.int64),
        np.array(answer["frequencies"], np.float64),
        **base_only,
    )
