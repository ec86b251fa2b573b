"""What is published: the snapshot topic's messages of a stream, in their order, become what each snapshot says.

A snapshot of all time, and that of each window, is a whole of as many messages as their headers say, all of one number
and identity. Looked at here is what the messages say of each other: that a whole is whole, that its documents, headers
and keys agree, that each method's vector is what the method makes of the plain estimate, that what was final is never
published again, that heads do not go back, and that what leaves a head's list is deleted. What the log says of it is
asked elsewhere.

Compaction leaves the newest message of each key and some older ones: of those that are superseded nothing is demanded.
"""

import heapq
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt

from worker.audit.beside import expect_beside
from worker.audit.decoding import chances_of
from worker.audit.errors import Difference
from worker.audit.hashes import State
from worker.audit.heads import Head, expect_follows
from worker.audit.methods import Estimate, expect_method
from worker.audit.parsing import fingerprint_of
from worker.audit.records import Stretch
from worker.audit.spending import expect_spent
from worker.audit.vectors import read
from worker.audit.windows import ends_of, shape_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ALL = "all"
UNREADABLE = (LookupError, ValueError, TypeError, AttributeError, OverflowError, RecursionError)
"""What reading a message raises that another program wrote."""
_SHARED = (
    "schema",
    "stream",
    "fingerprint",
    "window",
    "sequence",
    "reports",
    "offsets",
    "complete",
    "gaps",
    "uncounted",
    "epsilon",
)
"""What all documents of a whole say."""
_BESIDE = ("low", "high", "anytime_low", "anytime_high", "fakes")
"""What Base has a vector of beside its frequencies; the last three not by versions before."""


@dataclass(frozen=True)
class Message:
    """A message of the snapshot topic.

    Attributes:
        key: without the stream: `head`, `all/base`, `1h/7200000/base`, `1h/7200000/base/frequencies/0`.
        headers: by their names.
        value: what it says; empty for a tombstone.
    """

    key: str
    headers: Mapping[str, bytes]
    value: bytes


@dataclass(frozen=True)
class Said:
    """What a snapshot says.

    Attributes:
        name: of its windows, as they are configured, or `all`.
        start: its first millisecond; of all time 0.
        end: the first one behind it; of all time 0.
        final: whether it never changes any more.
        sequence: the snapshot's number.
        reports: how many it says there are.
        offsets: partition -> the offset up to which it was counted.
        gaps: partition -> the stretches that it says were lost.
        uncounted: partitions that it says have no counts.
        complete: whether it says that nothing is missing.
        frequencies: (d,) by the plain estimate; None where it is not recounted, to save memory.
        fault: what a method does not make of these, or None.
        by_rate: of reports at several rates, how many it says there are of each value at each; else None.
    """

    name: str
    start: int
    end: int
    final: bool
    sequence: int
    reports: int
    offsets: Mapping[int, int]
    gaps: Mapping[int, list[Stretch]]
    uncounted: tuple[int, ...]
    complete: bool
    frequencies: npt.NDArray[np.float64] | None
    fault: str | None
    by_rate: State | None = None

    def __str__(self) -> str:
        return f"snapshot {self.sequence}" if self.name == _ALL else f"window {self.name}/{self.start}"

    def has(self, pane: str) -> bool:
        """Returns whether a pane is within it."""
        begin, end = ends_of(pane)
        return self.name == _ALL or (self.start <= begin and end <= self.end)


@dataclass
class _Whole:
    """The messages of one snapshot of all time or of a window."""

    headers: Mapping[str, bytes]
    messages: dict[str, bytes] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    live: set[str] = field(default_factory=set)
    said: Said | None = None
    of_another: bool = False

    @property
    def mark(self) -> tuple[bytes | None, bytes | None]:
        return self.headers.get("sequence"), self.headers.get("snapshot")

    @property
    def sequence(self) -> int:
        return int(self.headers["sequence"])

    @property
    def parts(self) -> int:
        return int(self.headers["parts"])


class Snapshots:
    """Takes the messages of a stream, in their order.

    Args:
        document: the stream's public document.
        most: of so many windows the frequencies are kept, those that end last.

    Attributes:
        head: the newest head, None before the first.
    """

    def __init__(self, document: Mapping[str, Any], most: int) -> None:
        self._document, self._fingerprint, self._most = document, fingerprint_of(document).hex(), most
        self.head: Head | None = None
        self._wholes: dict[str, _Whole] = {}
        self._finals: dict[str, int] = {}
        self._leaving: dict[str, int] = {}
        self._kept: list[tuple[int, str]] = []
        self._left: dict[str, set[str]] = {}  # of -> what is there of snapshots before its newest

    def take(self, message: Message) -> None:
        """Takes the next message.

        Raises:
            Difference: it contradicts those before it.
        """
        try:
            self._take(message)
        except UNREADABLE as error:
            raise Difference(f"{message.key}: what is published cannot be read ({error!r})") from None

    def _take(self, message: Message) -> None:
        of, key = _split(message.key)
        if not message.value:
            self._delete(of, key)
            return
        if key == "head":
            self._next_head(json.loads(message.value))
        whole, what = self._wholes.get(of), _named(of)
        if whole is None or whole.mark != (message.headers.get("sequence"), message.headers.get("snapshot")):
            new = _Whole(message.headers)
            if of in self._finals:
                raise Difference(
                    f"{what}: published in snapshot {new.sequence}, though it was final in snapshot {self._finals[of]}"
                )
            if self.head is not None and new.sequence < self.head.sequence:
                raise Difference(f"{what}: of snapshot {new.sequence}, published after {self.head.sequence}")
            if whole is not None:
                self._left.setdefault(of, set()).update(whole.live)
            whole = self._wholes[of] = new
        if key in whole.messages or key in whole.live:
            raise Difference(f"{what}: {message.key} is published twice in snapshot {whole.sequence}")
        if message.headers != {**whole.headers, "content-type": message.headers["content-type"]}:
            raise Difference(f"{what}: the headers of {message.key} are not those of its other messages")
        whole.messages[key] = message.value
        whole.types[key] = message.headers["content-type"].decode()
        whole.live.add(key)
        self._left.get(of, set()).discard(key)
        if whole.headers.get("final") == b"true" and len(whole.live) == whole.parts:
            self._read(of, whole)

    def _next_head(self, document: Mapping[str, Any]) -> None:
        if document["fingerprint"] != self._fingerprint:
            raise Difference(f"head: of fingerprint {document['fingerprint']}, {self._fingerprint} is due")
        expect_spent(document, self._document)
        head = Head.of(document)
        if self.head is not None and head.sequence <= self.head.sequence:
            # the heads of before were deleted: another history begins, which says nothing of that one
            self._wholes, self._finals, self._leaving, self._kept = {}, {}, {}, []
            self._left = {}
        elif self.head is not None:
            gone = expect_follows(head, self.head)
            self._leaving |= dict.fromkeys(gone, head.sequence)
        self.head = head

    def _delete(self, of: str, key: str) -> None:
        if key == "head":
            self._wholes, self._finals, self._leaving, self._kept, self.head = {}, {}, {}, [], None
            self._left = {}
            return
        self._left.get(of, set()).discard(key)
        if (whole := self._wholes.get(of)) is not None:
            whole.live.discard(key)
            whole.messages.pop(key, None)
            if not whole.live:
                del self._wholes[of]

    def _read(self, of: str, whole: _Whole) -> None:
        """Reads a whole, and lets go of its messages."""
        try:
            base = json.loads(whole.messages["base"])
            if base["fingerprint"] != self._fingerprint:
                whole.of_another = True
            else:
                whole.said = _said(of, whole, base, self._document)
        except Difference as difference:
            raise Difference(f"{_named(of)}: {difference}") from None
        except UNREADABLE as error:
            raise Difference(f"{_named(of)}: what is published cannot be read ({error!r})") from None
        whole.messages = {}
        if whole.said is None:
            return
        if whole.said.final:
            self._finals[of] = whole.sequence
        if of != _ALL:
            heapq.heappush(self._kept, (whole.said.end, of))
        while len(self._kept) > self._most:
            _, oldest = heapq.heappop(self._kept)
            if (other := self._wholes.get(oldest)) is not None and other.said is not None:
                other.said = replace(other.said, frequencies=None)

    def finish(self) -> list[Said]:
        """Returns what there is now: the newest snapshot of all time, if it is more than a head, and each window's.

        Raises:
            Difference: something is missing, or is there though the newest head says otherwise.
        """
        try:
            for of, whole in self._wholes.items():
                if len(whole.live) != whole.parts and not whole.of_another:
                    raise Difference(
                        f"{_named(of)}: {len(whole.live)} of its {whole.parts} messages are there"
                    )
                if (left := sorted(self._left.get(of, ()))) and whole.live != {"head"}:
                    raise Difference(f"{_named(of)}: {left[0]} of a snapshot before it was not deleted")
                if whole.said is None and whole.live != {"head"}:
                    self._read(of, whole)
        except UNREADABLE as error:
            raise Difference(f"what is published cannot be read ({error!r})") from None
        said = [whole.said for whole in self._wholes.values() if whole.said is not None]
        if self.head is not None:
            there = {f"{each.name}/{each.start}": each for each in said if each.name != _ALL}
            for of, sequence in self._leaving.items():
                if of in there and there[of].sequence < sequence:
                    raise Difference(
                        f"window {of}: left the head's list in snapshot {sequence}, and is still there"
                    )
            self.head.expect_listed(
                {(each.name, each.start, each.end): each.final for each in there.values()}
            )
            for each in said:
                if each.sequence > self.head.sequence:
                    raise Difference(
                        f"{each}: of snapshot {each.sequence}, the newest head is {self.head.sequence}"
                    )
        return said


def _split(key: str) -> tuple[str, str]:
    """Returns of what a message is, `all` or `1h/7200000`, and its key within that."""
    if key == "head" or key.partition("/")[0] == "domain":
        return _ALL, key
    of, _, rest = key.partition("/")
    if of != _ALL:
        start, _, rest = rest.partition("/")
        of = f"{of}/{start}"
    return of, rest


def _named(of: str) -> str:
    return "the newest snapshot" if of == _ALL else f"window {of}"


def _said(of: str, whole: _Whole, base: Mapping[str, Any], document: Mapping[str, Any]) -> Said:
    """Returns what a whole says, whose documents agree, and each of whose vectors is its method's."""
    name, _, start = of.partition("/")
    bodies = {key: json.loads(value) for key, value in whole.messages.items() if _is_body(key)}
    if head := whole.messages.get("head"):
        bodies["head"] = json.loads(head)
    expect_spent(base, document)
    begin, end = _window(name, int(start or 0), base["window"], whole.headers)
    for key, body in bodies.items():
        for what in (*_SHARED, "snapshot"):
            if body.get(what) != base.get(what):
                raise Difference(f"{key} says {what} {body.get(what)!r}, base {base.get(what)!r}")
        if key != "head" and body["method"] != key:
            raise Difference(f"the key of method {key} has {body['method']}'s")
        if key != "head" and body["document"] != {k: v for k, v in document.items() if k != "labels"}:
            raise Difference(f"{key}: of the document {body['document']}")
    if (base["sequence"], base["snapshot"]) != (
        whole.sequence,
        whole.headers.get("snapshot", b"").decode(),
    ):
        raise Difference(f"the headers are of snapshot {whole.sequence}, the documents of {base['sequence']}")
    _expect_labels(whole.messages, document)
    there = bodies.keys() - {"head"}
    if (methods := bodies.get("head", {}).get("methods")) and {*methods} != there:
        raise Difference(f"the head says methods {methods}, the bodies are of {sorted(there)}")
    listed = {
        key: {name: read(name, key, body, whole.messages, whole.types) for name in _vectors(key, body)}
        for key, body in bodies.items()
        if key != "head"
    }
    frequencies, reports = listed["base"]["frequencies"].values, int(base["reports"])
    if reports < 1:
        raise Difference(f"{reports} reports are published, at least one is due")
    by_rate = _by_rate(base, document, reports)
    fault, own = None, Estimate(frequencies, reports, *chances_of(document, by_rate))
    try:
        for method, vectors in listed.items():
            expect_method(method, bodies[method], own, vectors)
        expect_beside(base, own, listed["base"])
    except Difference as difference:
        fault = str(difference)
    return Said(
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
    )


def _by_rate(base: Mapping[str, Any], document: Mapping[str, Any], reports: int) -> State | None:
    """Returns the counters of reports at several rates, as Base says them."""
    if "rates" not in document:
        return None
    said = base["rates"]
    if [each["rate"] for each in said] != document["rates"]:
        raise Difference(f"base says rates {[each['rate'] for each in said]}")
    counters = np.array([each["counts"] for each in said], np.int64)
    if (
        counters.shape != (len(said), 2)
        or [each["reports"] for each in said] != counters.sum(axis=1).tolist()
    ):
        raise Difference(f"base says of rates {said}")
    if counters.sum() != reports:
        raise Difference(f"base says {reports} reports, and of all rates {counters.sum()}")
    return counters.ravel()


def _is_body(key: str) -> bool:
    return "/" not in key and key not in ("head", "domain")


def _window(name: str, start: int, said: Mapping[str, Any], headers: Mapping[str, bytes]) -> tuple[int, int]:
    """Returns the ends of a window that its key names."""
    if name == _ALL:
        if said != {"name": _ALL, "start": None, "end": None, "final": False}:
            raise Difference(f"published as {said}")
        return 0, 0
    length, hop = shape_of(name)
    begin, end = _milliseconds(said["start"]), _milliseconds(said["end"])
    if (said["name"], begin, end) != (name, start, start + length) or begin % hop:
        raise Difference(f"published as {said}")
    if (int(headers["end"]), headers["final"]) != (end, b"true" if said["final"] else b"false"):
        raise Difference(
            f"published as {said}, the headers say end {headers['end']!r} and final {headers['final']!r}"
        )
    return begin, end


def _milliseconds(date: str) -> int:
    return (datetime.fromisoformat(date) - _EPOCH) // timedelta(milliseconds=1)


def _vectors(key: str, body: Mapping[str, Any]) -> list[str]:
    """Returns the names of the vectors that a body has."""
    beside = _BESIDE if key == "base" else ()
    return ["frequencies", *(name for name in beside if name in body or name in body.get("vectors", ()))]


def _expect_labels(messages: Mapping[str, bytes], document: Mapping[str, Any]) -> None:
    """Sees that the labels are the stream's, where there are any."""
    if "head" not in messages or "labels" not in document:
        return
    domain = json.loads(messages["domain"])
    labels = domain["labels"]
    if labels is None:
        parts = (json.loads(messages[f"domain/labels/{i}"]) for i in range(domain["chunks"]))
        labels = [label for part in parts for label in part]
    if labels != list(document["labels"]):
        raise Difference("the labels that are published are not the stream's")
