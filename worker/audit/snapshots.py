"""Consistency of a stream's messages on the snapshot topic.

A snapshot of all time or of a window consists of several messages, which share one sequence and identity. The headers
contain the number of messages. This module checks that

- each snapshot is complete, and its documents, headers and keys agree
- each vector follows from Base by its method
- final windows are not published again, heads do not move backwards, and unlisted windows are deleted

`published` compares the snapshots with the log. Compaction keeps the newest message of each key and some older
messages, so a superseded snapshot may be incomplete.
"""

import heapq
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt

from worker.audit.decoding import chances_of, expect_spent
from worker.audit.errors import Difference
from worker.audit.hashes import State
from worker.audit.heads import Head, expect_follows
from worker.audit.intervals import expect_intervals, vectors_due
from worker.audit.methods import Estimate, expect_method
from worker.audit.parsing import fingerprint_of
from worker.audit.records import Range
from worker.audit.stored import expect_sealed
from worker.audit.vectors import read
from worker.audit.windows import ends_of, shape_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ALL, LATE = "all", "late"
UNTIMED = (_ALL, LATE)
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
    fault: str | None  # first number that does not follow from Base
    by_rate: State | None = None  # reports at several rates: counts of each value at each rate
    withheld: int | None = None  # reports of the window that are published only for all time; None: no limit

    def __str__(self) -> str:
        if self.name in UNTIMED:
            return f"snapshot {self.sequence}" if self.name == _ALL else f"window {self.name}"
        return f"window {self.name}/{self.start}"

    def has(self, pane: str) -> bool:
        """Returns whether the window contains a pane."""
        begin, end = ends_of(pane)
        return self.name == _ALL or (self.start <= begin and end <= self.end)


@dataclass
class _Whole:
    """Messages of one snapshot."""

    headers: Mapping[str, bytes]
    messages: dict[str, bytes] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    live: set[str] = field(default_factory=set)
    snapshot: Snapshot | None = None
    of_another: bool = False  # whether it has the fingerprint of another document

    @property
    def mark(self) -> tuple[bytes | None, bytes | None]:
        return self.headers.get("sequence"), self.headers.get("snapshot")

    @property
    def sequence(self) -> int:
        return int(self.headers["sequence"])

    @property
    def parts(self) -> int:
        return int(self.headers["parts"])


def _expect_documents(head: Mapping[str, Any], fingerprint: str) -> None:
    """Raises `Difference` unless a head lists the stream's only document."""
    (one,) = head["documents"]
    if any("documents" in rule or "segments" in rule for rules in head["rules"].values() for rule in rules):
        raise Difference(f"head {head['sequence']}: rules name documents, but the stream has only one")
    expect_sealed(one["document"], fingerprint)
    due = {"fingerprint": fingerprint, "reports": head["reports"], "variance_share": 1, "retired": False}
    for name, value in (due | {"partitions": len(head["rules"])}).items():
        if one[name] != value:
            raise Difference(
                f"head {head['sequence']}: {name} of the document is {one[name]!r}, expected {value!r}"
            )


class Snapshots:
    """Parser of a stream's messages in their order on the topic.

    Keeps the frequencies of only the `most` windows that end last.
    """

    def __init__(self, document: Mapping[str, Any], most: int) -> None:
        self._document, self._fingerprint, self._most = document, fingerprint_of(document).hex(), most
        self.head: Head | None = None  # newest head
        self._clear()

    def _clear(self) -> None:
        self._wholes: dict[str, _Whole] = {}
        self._finals: dict[str, int] = {}
        self._leaving: dict[str, int] = {}
        self._kept: list[tuple[int, str]] = []
        self._left: dict[str, set[str]] = {}  # window -> undeleted keys of earlier snapshots

    def take(self, message: Message) -> None:
        """Adds the next message; raises `Difference` for a contradiction."""
        try:
            self._take(message)
        except UNREADABLE as error:
            raise Difference(f"{message.key}: the message is invalid ({error!r})") from None

    def _take(self, message: Message) -> None:
        of, key = _split(message.key)
        if not message.value:
            self._delete(of, key)
            return
        if key == "head":
            self._next_head(json.loads(message.value))
        whole, what, new = self._wholes.get(of), _named(of), _Whole(message.headers)
        if whole is None or whole.mark != new.mark:
            if of in self._finals:
                raise Difference(
                    f"{what}: published in snapshot {new.sequence}, but already final in snapshot {self._finals[of]}"
                )
            if self.head is not None and new.sequence < self.head.sequence:
                raise Difference(f"{what}: snapshot {new.sequence} published after {self.head.sequence}")
            if whole is not None:
                self._left.setdefault(of, set()).update(whole.live)
            whole = self._wholes[of] = new
        if key in whole.messages or key in whole.live:
            raise Difference(f"{what}: {message.key} published twice in snapshot {whole.sequence}")
        if message.headers != {**whole.headers, "content-type": message.headers["content-type"]}:
            raise Difference(f"{what}: the headers of {message.key} differ from its other messages")
        whole.messages[key] = message.value
        whole.types[key] = message.headers["content-type"].decode()
        whole.live.add(key)
        self._left.get(of, set()).discard(key)
        if whole.headers.get("final") == b"true" and len(whole.live) == whole.parts:
            self._read(of, whole)

    def _next_head(self, document: Mapping[str, Any]) -> None:
        if document["fingerprint"] != self._fingerprint:
            raise Difference(f"head: fingerprint {document['fingerprint']}, expected {self._fingerprint}")
        expect_spent(document, self._document)
        head = Head.of(document)
        _expect_documents(document, self._fingerprint)
        if self.head is not None and head.sequence <= self.head.sequence:
            self._clear()  # heads were deleted, and numbers restart
        elif self.head is not None:
            self._leaving |= dict.fromkeys(expect_follows(head, self.head), head.sequence)
        self.head = head

    def _delete(self, of: str, key: str) -> None:
        if key == "head":
            self.head = None
            self._clear()
            return
        self._left.get(of, set()).discard(key)
        if (whole := self._wholes.get(of)) is not None:
            whole.live.discard(key)
            whole.messages.pop(key, None)
            if not whole.live:
                del self._wholes[of]

    def _read(self, of: str, whole: _Whole) -> None:
        try:
            base = json.loads(whole.messages["base"])
            if base["fingerprint"] != self._fingerprint:
                whole.of_another = True
            else:
                whole.snapshot = _snapshot(of, whole, base, self._document)
        except Difference as difference:
            raise Difference(f"{_named(of)}: {difference}") from None
        except UNREADABLE as error:
            raise Difference(f"{_named(of)}: a message is invalid ({error!r})") from None
        whole.messages = {}
        if whole.snapshot is None:
            return
        if whole.snapshot.final:
            self._finals[of] = whole.sequence
        if of not in UNTIMED:
            heapq.heappush(self._kept, (whole.snapshot.end, of))
        while len(self._kept) > self._most:
            _, oldest = heapq.heappop(self._kept)
            if (other := self._wholes.get(oldest)) is not None and other.snapshot is not None:
                other.snapshot = replace(other.snapshot, frequencies=None)

    def finish(self) -> list[Snapshot]:
        """Returns the newest all-time snapshot, if any, and all window snapshots.

        Raises `Difference` if a message is missing or contradicts the newest head.
        """
        try:
            for of, whole in self._wholes.items():
                if len(whole.live) != whole.parts and not whole.of_another:
                    raise Difference(
                        f"{_named(of)}: {len(whole.live)} of {whole.parts} messages are on the topic"
                    )
                if (left := sorted(self._left.get(of, ()))) and whole.live != {"head"}:
                    raise Difference(f"{_named(of)}: {left[0]} of an earlier snapshot was not deleted")
                if whole.snapshot is None and whole.live != {"head"}:
                    self._read(of, whole)
        except UNREADABLE as error:
            raise Difference(f"a message is invalid ({error!r})") from None
        found = [whole.snapshot for whole in self._wholes.values() if whole.snapshot is not None]
        if self.head is not None:
            there = {f"{each.name}/{each.start}": each for each in found if each.name not in UNTIMED}
            for of, sequence in self._leaving.items():
                if of in there and there[of].sequence < sequence:
                    raise Difference(
                        f"window {of}: unlisted since snapshot {sequence}, but still on the topic"
                    )
            self.head.expect_listed(
                {(each.name, each.start, each.end): each.final for each in there.values()}
            )
            for each in found:
                if each.sequence > self.head.sequence:
                    raise Difference(
                        f"{each}: in snapshot {each.sequence}, but the newest head is {self.head.sequence}"
                    )
        return found


def _split(key: str) -> tuple[str, str]:
    """Splits a message's key into its window, such as `1h/0`, and the rest."""
    if key == "head" or key.partition("/")[0] == "domain":
        return _ALL, key
    of, _, rest = key.partition("/")
    if of not in UNTIMED:
        start, _, rest = rest.partition("/")
        of = f"{of}/{start}"
    return of, rest


def _named(of: str) -> str:
    return "the newest snapshot" if of == _ALL else f"window {of}"


def _snapshot(of: str, whole: _Whole, base: Mapping[str, Any], document: Mapping[str, Any]) -> Snapshot:
    name, _, start = of.partition("/")
    names = [key for key in whole.messages if "/" not in key and key not in ("head", "domain")]
    bodies = {key: json.loads(whole.messages[key]) for key in names}
    head = json.loads(whole.messages.get("head") or "{}")
    expect_spent(base, document)
    begin, end = _agreed_bounds(name, int(start or 0), base["window"], whole.headers)
    _expect_agreement(whole, base, bodies | ({"head": head} if head else {}), document)
    if (methods := head.get("methods")) and {*methods} != bodies.keys():
        raise Difference(f"the head has methods {methods}, but the bodies are {sorted(bodies)}")
    vectors = {
        key: {
            name: read(name, key, body, whole.messages, whole.types)
            for name in ("frequencies", *(vectors_due(base) if key == "base" else ()))
        }
        for key, body in bodies.items()
    }
    frequencies, reports = vectors["base"]["frequencies"].values, int(base["reports"])
    if reports < 1:
        raise Difference(f"{reports} reports published, expected at least 1")
    by_rate = _by_rate(base, document, reports)
    fault, own = None, Estimate(frequencies, reports, *chances_of(document, by_rate))
    try:
        for method, read_vectors in vectors.items():
            expect_method(method, bodies[method], own, read_vectors)
        expect_intervals(base, own, vectors["base"])
    except Difference as difference:
        fault = str(difference)
    return Snapshot(
        name,
        begin,
        end,
        bool(base["window"]["final"]),
        whole.sequence,
        reports,
        {int(partition): int(offset) for partition, offset in base["offsets"].items()},
        {int(partition): [(a, b) for a, b in gaps] for partition, gaps in base["gaps"].items()},
        tuple(base["uncounted"]),
        bool(base["complete"]),
        frequencies,
        fault,
        by_rate,
        base.get("withheld"),
    )


def _expect_agreement(
    whole: _Whole, base: Mapping[str, Any], bodies: Mapping[str, Any], document: Mapping[str, Any]
) -> None:
    for key, body in bodies.items():
        for what in _SHARED:
            if body.get(what) != base.get(what):
                raise Difference(f"{key} has {what} {body.get(what)!r}, base has {base.get(what)!r}")
        if key != "head" and body["method"] != key:
            raise Difference(f"the key of {key} has the body of {body['method']}")
        if key != "head" and body["document"] != {k: v for k, v in document.items() if k != "labels"}:
            raise Difference(f"{key}: another document, {body['document']}")
    identity = whole.headers.get("snapshot", b"").decode()
    if (base["sequence"], base["snapshot"]) != (whole.sequence, identity):
        raise Difference(f"the headers have snapshot {whole.sequence}, the documents {base['sequence']}")
    if "head" in whole.messages and "labels" in document:
        domain = json.loads(whole.messages["domain"])
        labels = domain["labels"]
        if labels is None:
            parts = (json.loads(whole.messages[f"domain/labels/{i}"]) for i in range(domain["chunks"]))
            labels = [label for part in parts for label in part]
        if labels != list(document["labels"]):
            raise Difference("the published labels differ from the document")


def _by_rate(base: Mapping[str, Any], document: Mapping[str, Any], reports: int) -> State | None:
    if "rates" not in document:
        return None
    rates = base["rates"]
    if [each["rate"] for each in rates] != document["rates"]:
        raise Difference(f"base has rates {[each['rate'] for each in rates]}, expected {document['rates']}")
    counts = np.array([each["counts"] for each in rates], np.int64)
    sums = [each["reports"] for each in rates]
    if counts.shape != (len(rates), 2) or sums != counts.sum(axis=1).tolist():
        raise Difference(f"base has inconsistent counts by rate, {rates}")
    if counts.sum() != reports:
        raise Difference(f"base has {reports} reports, but {counts.sum()} by rate")
    return counts.ravel()


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
