"""Snapshots on the topic, and the consistency of their messages.

This module checks that a snapshot is complete, that its documents, headers and keys agree, and that each vector of one
document follows from Base by its method. `published` compares the snapshots with the log.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt

from worker.audit.decoding import chances_of, expect_spent
from worker.audit.errors import Difference
from worker.audit.intervals import expect_intervals, vectors_due
from worker.audit.methods import Estimate, expect_method
from worker.audit.parsing import Documents
from worker.audit.populations import Bodies, Joined
from worker.audit.records import Range
from worker.audit.vectors import Read, read
from worker.audit.windows import ends_of, shape_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ALL, LATE = "all", "late"
UNTIMED = (ALL, LATE)
"""Names without a start and an end; `late` has the released reports that are in no window."""
UNREADABLE = (LookupError, ValueError, TypeError, AttributeError, OverflowError, RecursionError)
"""Errors that parsing an invalid message can raise."""
# Fields with equal values in all documents of a snapshot
_SHARED = (
    *("schema", "stream", "fingerprint", "window", "sequence", "snapshot", "reports", "offsets", "complete"),
    *("gaps", "uncounted", "epsilon", "published", "withheld"),
)


@dataclass(frozen=True)
class Message:
    """A message of the snapshot topic; its value is empty for a tombstone."""

    key: str  # without the stream's name: `head`, `all/base`, `1h/7200000/base/frequencies/0`
    headers: Mapping[str, bytes]
    value: bytes
    part: str = ""  # `@` and a document, or `:` and a segment; "" for the stream


@dataclass(frozen=True)
class Snapshot:
    """An all-time snapshot, or the snapshot of a window."""

    name: str  # configured window, or one of `UNTIMED`
    start: int  # milliseconds; 0 for `UNTIMED`
    end: int
    final: bool
    sequence: int
    reports: int
    offsets: Mapping[int, int]  # partition -> end of the counted offsets
    gaps: Mapping[int, list[Range]]  # by partition
    uncounted: tuple[int, ...]  # partitions without counts
    complete: bool
    frequencies: npt.NDArray[np.float64] | None  # (d,); None if dropped to save memory; then not recounted
    documents: tuple[str, ...]  # fingerprints, in the order of the head
    fault: str | None = None  # first number that does not follow from Base
    withheld: int | None = None  # reports of the window that are published only for all time; None: no limit
    part: str = ""  # `@` and a document, or `:` and a segment; "" for all reports
    bodies: Bodies | None = None  # messages of several documents, unless dropped
    retired: frozenset[str] | None = None  # retired documents; None if no head lists them

    def __str__(self) -> str:
        what = f"snapshot {self.sequence}" if self.name == ALL else f"window {self.name}"
        what = what if self.name in UNTIMED else f"{what}/{self.start}"
        return f"{what} of {self.part[1:]}" if self.part else what

    def covers(self, document: str, segment: str) -> bool:
        """Returns whether the snapshot includes a document and a segment."""
        if not self.part:
            return True
        name = self.part[1:]
        return document == name if self.part[0] == "@" else f"{segment}:".startswith(f"{name}:")

    def has(self, pane: str) -> bool:
        """Returns whether the window contains a pane."""
        begin, end = ends_of(pane)
        return self.name == ALL or (self.start <= begin and end <= self.end)


@dataclass
class Whole:
    """Messages of one snapshot."""

    headers: Mapping[str, bytes]
    messages: dict[str, bytes] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    live: set[str] = field(default_factory=set)
    snapshot: Snapshot | None = None
    of_another: bool = False  # whether it has the fingerprint of another document

    @property
    def mark(self) -> tuple[bytes | None, bytes | None]:
        """Number and identity of the snapshot."""
        return self.headers.get("sequence"), self.headers.get("snapshot")

    @property
    def sequence(self) -> int:
        """Number of the snapshot."""
        return int(self.headers["sequence"])

    @property
    def parts(self) -> int:
        """Number of messages."""
        return int(self.headers["parts"])


def read_snapshot(
    of: str, part: str, whole: Whole, base: Mapping[str, Any], documents: Documents
) -> Snapshot:
    """Returns a snapshot; compares the numbers of one document with its Base.

    The recount has the estimates of several documents, so their numbers are compared later.
    """
    head, bodies, vectors = _bodies(whole, base, documents)
    snapshot = Snapshot(
        **_fields(of, whole, base),
        frequencies=vectors["base"]["frequencies"].values,
        documents=tuple(documents),
        part=part,
    )
    if "documents" in base:
        retired = frozenset(one["fingerprint"] for one in head.get("documents", ()) if one["retired"])
        return replace(snapshot, bodies=Bodies(bodies, vectors), retired=retired if head else None)
    (document,), fault = documents.values(), None
    expect_spent(base, document)
    own = Estimate(vectors["base"]["frequencies"].values, snapshot.reports, *chances_of(document))
    try:
        for method, of_method in vectors.items():
            expect_method(method, bodies[method], own, of_method)
        expect_intervals(base, own, vectors["base"])
    except Difference as difference:
        fault = str(difference)
    return replace(snapshot, fault=fault)


def _bodies(
    whole: Whole, base: Mapping[str, Any], documents: Documents
) -> tuple[dict[str, Any], dict[str, Any], dict[str, dict[str, Read]]]:
    """Returns the head or an empty dict, and the methods' bodies and vectors."""
    names = [key for key in whole.messages if "/" not in key and key not in ("head", "domain")]
    bodies = {key: json.loads(whole.messages[key]) for key in names}
    head = json.loads(whole.messages.get("head") or "{}")
    _expect_agreement(whole, base, bodies | ({"head": head} if head else {}), documents)
    if (methods := head.get("methods")) and {*methods} != bodies.keys():
        raise Difference(f"the head has methods {methods}, but the bodies are {sorted(bodies)}")
    if base["reports"] < 1:
        raise Difference(f"{base['reports']} reports published, expected at least 1")
    vectors = {}
    for key, body in bodies.items():
        due = ["frequencies", *(vectors_due(base) if key == "base" else ())]
        due += ["known"] if "known" in body or "known" in body.get("vectors", ()) else []
        vectors[key] = {name: read(name, key, body, whole.messages, whole.types) for name in due}
    return head, bodies, vectors


def _fields(of: str, whole: Whole, base: Mapping[str, Any]) -> dict[str, Any]:
    name, _, start = of.partition("/")
    begin, end = _agreed_bounds(name, int(start or 0), base["window"], whole.headers)
    return {
        "name": name,
        "start": begin,
        "end": end,
        "final": bool(base["window"]["final"]),
        "sequence": whole.sequence,
        "reports": int(base["reports"]),
        "offsets": {int(partition): int(offset) for partition, offset in base["offsets"].items()},
        "gaps": {int(partition): [(a, b) for a, b in gaps] for partition, gaps in base["gaps"].items()},
        "uncounted": tuple(base["uncounted"]),
        "complete": bool(base["complete"]),
        "withheld": base.get("withheld"),
    }


def _expect_agreement(
    whole: Whole, base: Mapping[str, Any], bodies: Mapping[str, Any], documents: Documents
) -> None:
    for key, body in bodies.items():
        for what in _SHARED:
            if body.get(what) != base.get(what):
                raise Difference(f"{key} has {what} {body.get(what)!r}, base has {base.get(what)!r}")
        if key == "head":
            _expect_counted(body, base)
            continue
        if body["method"] != key:
            raise Difference(f"the key of {key} has the body of {body['method']}")
        listed = body["documents"] if "documents" in base else [body]
        if "documents" in base and listed != base["documents"]:
            raise Difference(f"{key}: other documents than base")
        for one, document in zip(listed, documents.values(), strict=True):
            if one["document"] != {k: v for k, v in document.items() if k != "labels"}:
                raise Difference(f"{key}: another document, {one['document']}")
    identity = whole.headers.get("snapshot", b"").decode()
    if (base["sequence"], base["snapshot"]) != (whole.sequence, identity):
        raise Difference(f"the headers have snapshot {whole.sequence}, the documents {base['sequence']}")
    if int(whole.headers["schema"]) != base["schema"]:
        raise Difference(
            f"the headers have schema {whole.headers['schema']!r}, the documents {base['schema']}"
        )
    if "head" in whole.messages and ":" not in base["stream"]:
        _expect_labels(whole, base, documents)


def _expect_counted(head: Mapping[str, Any], base: Mapping[str, Any]) -> None:
    """Compares the documents and reports of a head with those of Base."""
    fields = ("fingerprint", "reports")
    listed, own = (
        [tuple(one[field] for field in fields) for one in each.get("documents", [each])]
        for each in (head, base)
    )
    if listed != own:
        raise Difference(f"the head lists the documents {listed}, base {own}")


def _expect_labels(whole: Whole, base: Mapping[str, Any], documents: Documents) -> None:
    labels = Joined.of([*documents], documents).labels
    if labels is None:
        return
    domain = json.loads(whole.messages["domain"])
    found = domain["labels"]
    if found is None:
        parts = (json.loads(whole.messages[f"domain/labels/{i}"]) for i in range(domain["chunks"]))
        found = [label for part in parts for label in part]
    if found != labels:
        raise Difference("the published labels differ from the document")
    if domain.get("fingerprints", [base["fingerprint"]]) != [*documents]:
        raise Difference(
            f"the labels belong to documents {domain.get('fingerprints')}, expected {[*documents]}"
        )


def _agreed_bounds(
    name: str, start: int, document: Mapping[str, Any], headers: Mapping[str, bytes]
) -> tuple[int, int]:
    if name in UNTIMED:
        if document != {"name": name, "start": None, "end": None, "final": False}:
            raise Difference(f"published as {document}")
        return 0, 0
    length, hop = shape_of(name)
    begin, end = _milliseconds(document["start"]), _milliseconds(document["end"])
    if (document["name"], begin, end) != (name, start, start + length) or begin % hop:
        raise Difference(f"published as {document}")
    if (int(headers["end"]), headers["final"]) != (end, b"true" if document["final"] else b"false"):
        raise Difference(
            f"published as {document}, the headers have end {headers['end']!r} and final {headers['final']!r}"
        )
    return begin, end


def _milliseconds(date: str) -> int:
    return (datetime.fromisoformat(date) - _EPOCH) // timedelta(milliseconds=1)
