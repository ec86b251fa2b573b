"""Converts parts of a snapshot to and from JSON documents."""

from collections.abc import Mapping
from dataclasses import asdict, fields
from datetime import UTC, datetime, timedelta
from typing import Any

from ldp.snapshot.contents import (
    Body,
    Closed,
    Period,
    PrivacyLoss,
    Recommended,
    Released,
    Rows,
    SetAnswer,
    Slots,
    Snapshot,
    TopAnswer,
)

SCHEMA = 2  # Newest version of ``snapshot.schema.json`` that can be read; see `Snapshot.schema`
INLINE = 8192
CHUNK = 65536
BASE_ONLY = ("low", "high", "anytime_low", "anytime_high", "poisoning_tolerance")
"""Fields that only Base has: for single values, for sets, and for the most frequent values."""
VECTORS = ("frequencies", *BASE_ONLY)  # Vectors of a body; methods except Base have only the first
KNOWN = "known"  # Vector of the bodies of a population
ROUNDED = VECTORS[:-1]  # Vectors of frequencies, which may be rounded
_EPOCH = datetime.fromtimestamp(0, UTC)


def shared_document(snapshot: Snapshot) -> dict[str, Any]:
    """Returns the fields that the head and all bodies have in common."""
    cut = snapshot.cut
    document = {
        "schema": snapshot.schema,
        "stream": snapshot.stream,
        "fingerprint": snapshot.fingerprint,
        "window": asdict(snapshot.window)
        | {"start": _date(snapshot.window.start), "end": _date(snapshot.window.end)},
        "sequence": snapshot.sequence,
        "reports": snapshot.reports,
        "offsets": {str(partition): offset for partition, offset in cut.offsets.items()},
        "complete": snapshot.complete,
        "gaps": {str(partition): [list(gap) for gap in gaps] for partition, gaps in cut.gaps.items()},
        "uncounted": list(cut.uncounted),
    }
    optional = {name: getattr(snapshot, name) for name in ("epsilon", "published", "withheld")}
    given = {name: value for name, value in optional.items() if value is not None}
    return document | given | {"snapshot": snapshot.identity}


def _date(milliseconds: int | None) -> str | None:
    """Returns a time in the format of RFC 3339."""
    if milliseconds is None:
        return None
    date = _EPOCH + timedelta(milliseconds=milliseconds)
    return date.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def period(document: Mapping[str, Any]) -> Period:
    """Reads the window of a snapshot."""
    start, end = (
        None
        if document[end] is None
        else (datetime.fromisoformat(document[end]) - _EPOCH) // timedelta(milliseconds=1)
        for end in ("start", "end")
    )
    return Period(document["name"], start, end, document["final"])


def progress(head: Mapping[str, Any]) -> dict[str, Closed]:
    """Returns the closed windows in a head, by name."""
    return {
        name: Closed(one["closed"], tuple((a, b) for a, b in one["bounded"]), tuple(one["starts"]))
        for name, one in head.get("windows", {}).items()
    }


def released_of(head: Mapping[str, Any]) -> Released | None:
    """Returns the published part of the counts in a head; None if it is all."""
    if (released := head.get("released")) is None:
        return None
    return Released(released["closed"], tuple((since, fewest) for since, fewest in released["fewest"]))


def privacy_loss_of(head: Mapping[str, Any]) -> PrivacyLoss | None:
    """Returns the privacy loss in a head; None if it has none."""
    if (loss := head.get("privacy_loss")) is None:
        return None
    return PrivacyLoss(**{field.name: loss[field.name] for field in fields(PrivacyLoss)})


def rows_of(head: Mapping[str, Any]) -> Rows | None:
    """Returns the slots of rows in a head; None for a stream without rows."""
    if (rows := head.get("rows")) is None:
        return None
    own, older = _slots(rows), rows["older"]
    return (
        Rows(rows["topic"], own) if older is None else Rows(rows["topic"], own, _slots(older), older["until"])
    )


def _slots(document: Mapping[str, Any]) -> Slots:
    return Slots(tuple(document["methods"]), dict(document["ranks"]))


def head_document(snapshot: Snapshot) -> dict[str, Any]:
    """Returns the head: number, cut, rules, documents, windows and lineage."""
    rules = {str(partition): list(rules) for partition, rules in snapshot.cut.rules.items()}
    head = shared_document(snapshot) | {"rules": rules, "documents": list(snapshot.documents)}
    if snapshot.cut.methods is not None:
        head |= {"methods": list(snapshot.cut.methods)}
    if snapshot.cut.floors or snapshot.cut.progress:
        floors = {str(partition): floor for partition, floor in snapshot.cut.floors.items()}
        head |= {
            "floors": floors,
            "windows": {name: asdict(line) for name, line in snapshot.cut.progress.items()},
        }
    if snapshot.cut.reached is not None:
        head |= {"reached": snapshot.cut.reached}
    if snapshot.cut.released is not None:
        released = asdict(snapshot.cut.released)
        head |= {"released": released | {"fewest": [list(step) for step in released["fewest"]]}}
    if snapshot.cut.privacy_loss is not None:
        head |= {"privacy_loss": asdict(snapshot.cut.privacy_loss)}
    if snapshot.cut.segments is not None:
        head |= {"segments": dict(snapshot.cut.segments), "hidden": snapshot.cut.hidden}
    if snapshot.cut.parts_fewest is not None:
        head |= {"parts_fewest": snapshot.cut.parts_fewest}
    if (rows := snapshot.cut.rows) is not None:
        older = None if rows.older is None else asdict(rows.older) | {"until": rows.until}
        head |= {"rows": {"topic": rows.topic} | asdict(rows.slots) | {"older": older}}
    return head if snapshot.lineage is None else head | {"lineage": dict(snapshot.lineage)}


def body_document(
    snapshot: Snapshot, method: str, inline: int = INLINE, chunk: int = CHUNK
) -> dict[str, Any]:
    """Returns the body of a method with vectors as arrays.

    If vectors are longer than `inline`, the field `chunks` is the number of messages per vector, each of up to
    `chunk` values. Otherwise it is 0.
    """
    body = snapshot.bodies[method]
    size = len(body.frequencies)
    return (
        shared_document(snapshot)
        | {
            "method": method,
            **_documents(snapshot),
            "sum": body.sum,
            "standard_error": snapshot.std_error,
            "level": snapshot.level,
            "queries": _sets(body, snapshot.recommended),
            "top": _tops(body, snapshot.recommended),
            "chunks": -(-size // chunk) if size > inline else 0,
        }
        | _additive(snapshot, method)
        | vectors(snapshot, body)
    )


def _documents(snapshot: Snapshot) -> dict[str, Any]:
    if not snapshot.is_population:
        return {"document": dict(snapshot.document)}
    return {"documents": [counted(one) for one in snapshot.documents]}


def counted(document: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a body's entry of a document from the head's entry."""
    without_labels = {key: value for key, value in document["document"].items() if key != "labels"}
    return {
        "fingerprint": document["fingerprint"],
        "document": without_labels,
        "reports": document["reports"],
    }


def _additive(snapshot: Snapshot, method: str) -> dict[str, bool]:
    parted = snapshot.is_population or ":" in snapshot.stream
    return {"additive": False} if parted and method != "base" else {}


def vectors(snapshot: Snapshot, body: Body) -> dict[str, Any]:
    """Returns a body's vectors by name."""
    known = {} if snapshot.known is None else {KNOWN: snapshot.known}
    return {"frequencies": body.frequencies} | _base_only(body) | known


def _base_only(results: Body | SetAnswer | TopAnswer) -> dict[str, Any]:
    return {name: value for name in BASE_ONLY if (value := getattr(results, name)) is not None}


def _sets(body: Body, recommended: Mapping[str, Recommended]) -> list[dict[str, Any]]:
    answers = []
    for answer in body.sets:
        document: dict[str, Any] = {
            "name": answer.query.name,
            "values": answer.query.values,
            "frequency": None if answer.known == 0 else answer.frequency,
        }
        if answer.std_error is not None:
            document["standard_error"] = answer.std_error
        if answer.known is not None:
            document[KNOWN] = answer.known
        answers.append(document | _base_only(answer) | _method(recommended.get(answer.query.name)))
    return answers


def _tops(body: Body, recommended: Mapping[str, Recommended]) -> list[dict[str, Any]]:
    answers = []
    for answer in body.tops:
        document: dict[str, Any] = {
            "name": answer.query.name,
            "values": answer.values,
            "frequencies": answer.frequencies,
        }
        answers.append(document | _base_only(answer) | _method(recommended.get(answer.query.name)))
    return answers


def _method(found: Recommended | None) -> dict[str, Any]:
    return {"recommended": None if found is None else asdict(found)}
