"""The snapshot: what a stream's counts say at one cut, as messages. One schema for the topic, a file, the screen.

A snapshot is a head, a domain (the labels, once) and one body per method, the plain estimate and the paper's ten
(Section IV, Table I). The bodies follow ``snapshot.schema.json`` beside this file. Compatibility rule: within a schema
version fields are only ever added, and a reader ignores fields that it does not know; anything else is a new version.

Vectors of up to `INLINE` values stand in the JSON body. Longer ones are null there and follow in messages of their
own, keys ``<body's key>/<vector>/<i>``, each up to `CHUNK` values as little-endian float64; the body's
``chunks`` says how many.

All messages of a snapshot carry one identity, as the header ``snapshot`` and in the documents: by its number alone a
message of one snapshot could pass for a part of another that has the same number.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ldp.consistency import METHODS
from ldp.query import Query, SetQuery, of_domain, read, top, top_interval

if TYPE_CHECKING:
    from ldp.estimate import Estimate
    from ldp.stream import Stream

SCHEMA = 1
INLINE = 8192
CHUNK = 65536
JSON = "application/json"
FLOAT64 = "application/vnd.ldp.float64"

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Cut:
    """Where a snapshot cuts the stream.

    Attributes:
        offsets: partition -> the counts are those of all records before this offset.
        gaps: partition -> stretches [from, to) of the log that were lost, so that they are not in the counts.
        uncounted: partitions that have records, or had, and no counts; they are not in ``offsets``.
        rules: partition -> what decided which of its records count, in JSON's types; said in the head.
    """

    offsets: Mapping[int, int]
    gaps: Mapping[int, Sequence[tuple[int, int]]]
    uncounted: Sequence[int] = ()
    rules: Mapping[int, Sequence[Mapping[str, Any]]] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether every record before the offsets was read, and no partition is left out."""
        return not any(self.gaps.values()) and not self.uncounted


@dataclass(frozen=True)
class Recommended:
    """The method that clearly suits a query best, chosen from the reports themselves (`ldp.selection`).

    Attributes:
        method: its name.
        sequence: the number of the snapshot that it was chosen from; also the seed of the simulation.
    """

    method: str
    sequence: int


@dataclass(frozen=True)
class Message:
    """One message of a snapshot, ready for a topic; ``snapshot`` is the identity of the whole."""

    key: str
    content_type: str
    body: bytes
    snapshot: str = ""

    def headers(self, sequence: int, parts: int) -> list[tuple[str, bytes]]:
        """Returns the message's headers; ``parts`` is how many messages the whole snapshot has."""
        return [
            ("content-type", self.content_type.encode()),
            ("schema", str(SCHEMA).encode()),
            ("sequence", str(sequence).encode()),
            ("parts", str(parts).encode()),
            ("snapshot", self.snapshot.encode()),
        ]


def messages(
    stream: "Stream",
    estimate: "Estimate",
    cut: Cut,
    sequence: int,
    queries: Iterable[Query] = (),
    level: float = 0.95,
    methods: Sequence[str] = tuple(METHODS),
    inline: int = INLINE,
    recommended: Mapping[str, Recommended] | None = None,
    lineage: Mapping[str, str] | None = None,
    identity: str | None = None,
) -> list[Message]:
    """Returns all messages of one snapshot: head, domain, then Base and the ten methods in the paper's order.

    Args:
        stream: whose snapshot it is.
        estimate: Base over the whole domain.
        cut: what was counted.
        sequence: the snapshot's number.
        queries: what is to be answered.
        level: the confidence level of Base's intervals.
        methods: the names of those that are wanted.
        inline: how many values a vector that stands in its body has at most; a topic limits that, a file does not.
        recommended: the method for a query, by the query's name; other queries say null.
        lineage: what the counts are of beside the fingerprint, where they come from a topic; said in the head.
        identity: of this snapshot, 32 hex digits, where another could have its number; else made of what the head says.

    Cost: that of the methods, O(d log d), and O(d) bytes a method.

    Example:
        >>> import ldp
        >>> stream = ldp.Stream("colours", ldp.GRR(epsilon="1", domain_size=3), labels=("red", "green", "blue"))
        >>> estimate = stream.oracle.estimate(np.array([50, 30, 20]), n=100)
        >>> parts = messages(stream, estimate, Cut({0: 100}, {}), sequence=1)
        >>> [part.key for part in parts][:4]
        ['colours/head', 'colours/domain', 'colours/all/base', 'colours/all/base-pos']
        >>> body = json.loads(parts[9].body)
        >>> body["method"], body["reports"], round(body["sum"], 9)
        ('norm-sub', 100, 1.0)
    """
    shared: dict[str, Any] = {
        "schema": SCHEMA,
        "stream": stream.name,
        "fingerprint": stream.fingerprint.hex(),
        "window": {"name": "all", "start": None, "end": None, "final": False},
        "sequence": sequence,
        "reports": estimate.n,
        "offsets": {str(partition): offset for partition, offset in sorted(cut.offsets.items())},
        "complete": cut.complete,
        "gaps": {str(p): [list(gap) for gap in gaps] for p, gaps in sorted(cut.gaps.items()) if gaps},
        "uncounted": sorted(cut.uncounted),
    }
    identity = identity or hashlib.sha256(json.dumps(shared).encode()).hexdigest()[:32]
    shared["snapshot"] = identity
    document = {key: value for key, value in stream.document().items() if key != "labels"}
    head = shared | {"rules": {str(partition): list(rules) for partition, rules in sorted(cut.rules.items())}}
    if lineage is not None:
        head["lineage"] = dict(lineage)
    parts = [_json(f"{stream.name}/head", head), *_domain(stream, inline)]
    low, high = estimate.interval(level)
    sets, tops = of_domain(queries, stream.oracle.domain_size)
    most = [(query.name, top(estimate, query.k)) for query in tops]
    everything = np.arange(stream.oracle.domain_size)
    for name in methods:
        frequencies = METHODS[name](estimate)
        vectors = {"frequencies": frequencies}
        if name == "base":
            vectors |= {"low": low, "high": high}
        key = f"{stream.name}/all/{name}"
        body = shared | {
            "method": name,
            "document": document,
            "sum": read(estimate, everything, name, frequencies),
            "standard_error": estimate.sigma,
            "level": level,
            "queries": _with_method(_sets(sets, estimate, name, frequencies, level), recommended or {}),
            "top": _with_method(_top(most, estimate, name, frequencies, level), recommended or {}),
        }
        parts += _with_vectors(key, body, vectors, inline)
    return [replace(part, snapshot=identity) for part in parts]


def _sets(
    queries: Sequence[SetQuery], estimate: "Estimate", method: str, frequencies: Vector, level: float
) -> list[dict[str, Any]]:
    """Returns a method's answers for sets; Base's with standard error and interval."""
    answers: list[dict[str, Any]] = [
        {
            "name": query.name,
            "values": list(query.values),
            "frequency": read(estimate, query.values, method, frequencies),
        }
        for query in queries
    ]
    if method == "base":
        for said, query in zip(answers, queries, strict=True):
            variance = query.variance(estimate.oracle)
            low, high = variance.interval(estimate, level)
            said |= {"standard_error": variance.std_error(estimate), "low": low, "high": high}
    return answers


def _top(
    most: Sequence[tuple[str, npt.NDArray[np.intp]]],
    estimate: "Estimate",
    method: str,
    frequencies: Vector,
    level: float,
) -> list[dict[str, Any]]:
    """Returns a method's answers for the most frequent values; Base's with simultaneous intervals."""
    answers = []
    for name, values in most:
        said: dict[str, Any] = {
            "name": name,
            "values": values.tolist(),
            "frequencies": frequencies[values].tolist(),
        }
        if method == "base":
            low, high = top_interval(estimate, len(values), level)
            said |= {"low": low.tolist(), "high": high.tolist()}
        answers.append(said)
    return answers


def _with_method(
    answers: list[dict[str, Any]], recommended: Mapping[str, Recommended]
) -> list[dict[str, Any]]:
    """Returns the answers, each with the method recommended for its query, or null."""
    for said in answers:
        method = recommended.get(said["name"])
        said["recommended"] = None if method is None else asdict(method)
    return answers


def _with_vectors(
    key: str, body: dict[str, Any], vectors: Mapping[str, Vector], inline: int
) -> list[Message]:
    """Returns the body and, where its vectors are too long to stand in it, their chunks."""
    size = len(next(iter(vectors.values())))
    if size <= inline:
        lists = {name: vector.tolist() for name, vector in vectors.items()}
        return [_json(key, body | {"chunks": 0} | lists)]
    starts = range(0, size, CHUNK)
    parts = [_json(key, body | {"chunks": len(starts)} | dict.fromkeys(vectors))]
    for name, vector in vectors.items():
        for i, start in enumerate(starts):
            data = vector[start : start + CHUNK].astype("<f8", copy=False).tobytes()
            parts.append(Message(f"{key}/{name}/{i}", FLOAT64, data))
    return parts


def _domain(stream: "Stream", inline: int) -> list[Message]:
    """Returns the labels' messages; none for a stream without labels."""
    if stream.labels is None:
        return []
    key = f"{stream.name}/domain"
    starts = range(0, len(stream.labels), inline)
    head = {"schema": SCHEMA, "stream": stream.name, "fingerprint": stream.fingerprint.hex()}
    if len(starts) == 1:
        return [_json(key, head | {"chunks": 0, "labels": list(stream.labels)})]
    chunks = [
        _json(f"{key}/labels/{i}", list(stream.labels[start : start + inline]))
        for i, start in enumerate(starts)
    ]
    return [_json(key, head | {"chunks": len(starts), "labels": None}), *chunks]


def _json(key: str, body: object) -> Message:
    text = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Message(key, JSON, text.encode())


@dataclass(frozen=True)
class Snapshot:
    """A whole snapshot as a reader has put it together.

    Attributes:
        head: the head's document.
        labels: the domain's labels, or None.
        bodies: method -> its body, with every vector a float64 array.
    """

    head: Mapping[str, Any]
    labels: Sequence[str] | None
    bodies: Mapping[str, Mapping[str, Any]]


class Incomplete(ValueError):  # noqa: N818  # an answer, not a fault: more messages are to come
    """The messages at hand are not all of one snapshot."""


Received = Mapping[str, tuple[Mapping[str, bytes], bytes]]
"""The newest message of each key: its headers and its value."""
Mark = tuple[bytes | None, bytes | None]
"""What tells the messages of one snapshot from those of another: number and identity."""


def assemble(stream: str, received: Received) -> Snapshot:
    """Puts a stream's newest snapshot together from the newest message of each key, as a compacted topic gives them.

    Args:
        stream: the stream's name.
        received: key -> (headers, value).

    Raises:
        Incomplete: a message is missing, or of another snapshot than the head: of another number or identity, or a
            body whose own identity, number, reports or offsets are not the head's.

    Example:
        >>> import ldp
        >>> s = ldp.Stream("colours", ldp.GRR(epsilon="1", domain_size=2))
        >>> parts = messages(s, s.oracle.estimate(np.array([5, 5]), n=10), Cut({0: 10}, {}), sequence=3)
        >>> topic = {part.key: (dict(part.headers(3, len(parts))), part.body) for part in parts}
        >>> snapshot = assemble("colours", topic)
        >>> snapshot.head["sequence"], snapshot.bodies["norm"]["frequencies"].tolist()
        (3, [0.5, 0.5])
    """
    headers, value = received.get(f"{stream}/head", ({}, b""))
    if not value:
        raise Incomplete(f"the message '{stream}/head' is missing")
    head, mark = json.loads(value), _mark(headers)
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
            body = json.loads(_part(received, key, mark))
            for shared in ("snapshot", "sequence", "reports", "offsets"):
                if body.get(shared) != head.get(shared):
                    raise Incomplete(
                        f"the message {key!r} is of another snapshot: {shared} is not the head's"
                    )
            for vector in ("frequencies", "low", "high"):
                if vector in body:
                    body[vector] = _vector(received, f"{key}/{vector}", body[vector], body["chunks"], mark)
            bodies[rest[0]] = body
    labels = None
    if f"{stream}/domain" in received:
        domain = json.loads(_part(received, f"{stream}/domain", mark))
        labels = domain["labels"]
        if labels is None:
            chunks = (_part(received, f"{stream}/domain/labels/{i}", mark) for i in range(domain["chunks"]))
            labels = [label for chunk in chunks for label in json.loads(chunk)]
    return Snapshot(head, labels, bodies)


def _mark(headers: Mapping[str, bytes]) -> Mark:
    return headers.get("sequence"), headers.get("snapshot")


def _part(received: Received, key: str, mark: Mark) -> bytes:
    headers, value = received.get(key, ({}, b""))
    if not value or _mark(headers) != mark:
        raise Incomplete(f"the message {key!r} is missing")
    return value


def _vector(received: Received, key: str, inline: Iterable[float] | None, chunks: int, mark: Mark) -> Vector:
    if inline is not None:
        return np.array(list(inline), np.float64)
    data = [_part(received, f"{key}/{i}", mark) for i in range(chunks)]
    return np.frombuffer(b"".join(data), "<f8").astype(np.float64)
