"""Indexes the offsets of complete snapshots by stream and window.

A snapshot is one transaction, so a reader finds its messages between two offsets.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from ldp.snapshot import ALL_TIME, Period, part_identity, whole_of, window_identity, window_of
from ldp.snapshot.checking import MOST_BYTES, check_shared

Key = tuple[str, int | None]  # A window's name and start; None for ``all`` and ``late``
_SHARED = ("sequence", "reports", "complete", "window")
_SOMETIMES = ("snapshot", "standard_error", "published", "privacy_loss")
_MOST_WINDOWS = 100_000  # Most windows of a stream that the head lists, and that it does not list yet
_MOST_PARTS, _MOST_PART = 32 << 20, 16 << 20
"""Most memory of all incomplete snapshots of windows, and of one incomplete snapshot."""
_PART, _SEEN = 4096, 160  # Approximate memory of an incomplete snapshot, and of each key without its text
_LONGEST_KEY, _LONGEST_NAME = 1000, 40
_MOST_METHODS = 64


class NotRead(Exception):  # noqa: N818  # not an error: the caller retries
    """The topic is not read to its end yet, or the brokers do not answer."""


class NotThere(Exception):  # noqa: N818  # not an error
    """The topic does not have the requested window."""

    def __init__(self, stream: str, *, unnamed: bool = False) -> None:
        super().__init__(stream)
        self.unnamed = unnamed


@dataclass(frozen=True)
class IndexEntry:
    """The offsets and shared fields of a complete snapshot."""

    window: Period
    first: int  # the offset of its first message
    last: int  # the offset of its last message
    fields: Mapping[str, Any]  # shared fields of head and bodies; the head's value if they differ
    methods: frozenset[str]  # methods of its bodies; empty for an all-time snapshot without reports

    @property
    def identity(self) -> str:
        """The snapshot's unique identity."""
        return str(self.fields["snapshot"])

    def is_marked(self, headers: Mapping[str, bytes]) -> bool:
        """Returns whether a message's headers name this snapshot."""
        return headers.get("snapshot") == self.identity.encode()


@dataclass
class _Part:
    """An incomplete snapshot; `size` is its memory in bytes."""

    mark: tuple[bytes | None, bytes | None]
    window: Period
    first: int
    seen: set[str] = field(default_factory=set)
    fields: dict[str, Any] = field(default_factory=dict)
    methods: set[str] = field(default_factory=set)
    size: int = _PART

    def add(self, key: str) -> int:
        """Adds a message's key; returns the additional memory in bytes."""
        more = 0 if key in self.seen else _SEEN + len(key)
        self.seen.add(key)
        self.size += more
        return more


class SnapshotIndex:
    """The newest complete snapshots that the newest head of a stream lists.

    A head lists its own snapshots of all time and of `late`. It names the windows that it lists, and their starts if it
    has any. The sequence number of a listed window is at most the head's number. If the numbers are equal, the window's
    identity derives from the head's identity. So messages from other programs do not replace snapshots. The head of a
    part's stream lists the windows of the part, and is indexed, too.

    Example:
        >>> import ldp
        >>> from ldp.snapshot import Cut, encode, take
        >>> stream = ldp.Stream("colours", ldp.GRR(epsilon="1", domain_size=2))
        >>> taken = take(stream, stream.oracle.estimate([6, 4], 10), Cut({0: 10}, {}), sequence=3)
        >>> index = SnapshotIndex(["colours"])
        >>> for offset, part in enumerate(encode(taken)):
        ...     _ = index.take(part.key, dict(part.headers(3)), part.body, offset)
        >>> entry = index.of("colours")["all", None]
        >>> entry.first, entry.last, entry.fields["reports"]
        (0, 11, 10)
    """

    def __init__(self, streams: Iterable[str]) -> None:
        names = [name for stream in streams for name in (whole_of(stream), stream)]
        self._index: dict[str, dict[Key, IndexEntry]] = {name: {} for name in names}
        self._unnamed: dict[str, dict[Key, IndexEntry]] = {stream: {} for stream in self._index}
        self._parts: OrderedDict[tuple[str, Key], _Part] = OrderedDict()  # least recently extended first
        self._parts_size = 0
        self._labels: dict[str, tuple[int, int]] = {}

    def labels(self, stream: str) -> tuple[int, int] | None:
        """Returns the first and last offset of a stream's newest labels, or None."""
        return self._labels.get(stream)

    def of(self, stream: str) -> Mapping[Key, IndexEntry]:
        """Returns a stream's snapshots, including the snapshot of all time."""
        return self._index[stream]

    def find(self, stream: str, name: str, start: int | None = None) -> IndexEntry | None:
        """Returns a window's entry, or None without an entry that has reports.

        `start`: the window's first millisecond; None for the newest window with reports.
        """
        found = [
            entry
            for entry in self._index[stream].values()
            if entry.methods and entry.window.name == name and start in (None, entry.window.start)
        ]
        return max(found, key=lambda entry: entry.window.start or 0, default=None)

    def unnamed(self, stream: str, name: str, start: int | None = None) -> bool:
        """Returns whether the topic has messages of a window that no head lists."""
        if name == ALL_TIME.name:
            part = self._parts.get((stream, (name, None)))
            return part is not None and bool(part.methods) and f"{stream}/head" not in part.seen
        return any(key[0] == name and start in (None, key[1]) for key in self._unnamed[stream])

    def take(self, key: str, headers: Mapping[str, bytes], value: bytes | None, offset: int) -> bool:
        """Indexes a message; returns whether it completes or deletes a snapshot.

        Raises:
            ValueError, LookupError, TypeError, AttributeError: the message does not belong to a snapshot.
        """
        stream, _, rest = key.partition("/")
        if stream not in self._index:
            return False
        if len(key) > _LONGEST_KEY:
            raise ValueError(f"a key of {len(key)} characters; allowed are up to {_LONGEST_KEY}")
        window = window_of(key, headers) or ALL_TIME
        if value is None:
            return self._forget(stream, rest)
        which = stream, (window.name, window.start)
        mark = headers.get("sequence"), headers.get("snapshot")
        part = self._part(which, mark, window, key, offset)
        name, *chunk = rest.split("/")[1 if window.start is None else 2 :] or [""]
        if window.start is None and rest.startswith("domain"):
            first, _ = (offset, offset) if rest == "domain" else self._labels.get(stream, (offset, offset))
            self._labels[stream] = first, offset
        elif rest == "head":
            part.fields |= _shared_fields(value, window, mark) | _parts(orjson.loads(value))
        elif 0 < len(name) <= _LONGEST_NAME and not chunk and len(part.methods) < _MOST_METHODS:
            if not part.methods:  # all bodies have the same shared fields
                part.fields = _shared_fields(value, window, mark) | part.fields
            part.methods.add(name)
        if len(part.seen) < int(headers.get("parts", b"0")) or not part.fields:
            return False
        if window == ALL_TIME and f"{stream}/head" not in part.seen:
            return False
        self._drop(which)
        entry = IndexEntry(window, part.first, offset, part.fields, frozenset(part.methods))
        return self._add(stream, which[1], entry)

    def _part(
        self,
        which: tuple[str, Key],
        mark: tuple[bytes | None, bytes | None],
        window: Period,
        key: str,
        offset: int,
    ) -> _Part:
        """Returns a message's incomplete snapshot; may drop other snapshots."""
        part = self._parts.get(which)
        if part is None or part.mark != mark or part.size > _MOST_PART:
            self._drop(which)
            if sum(len(header or b"") for header in mark) > _LONGEST_KEY:
                raise ValueError("its sequence and snapshot headers are too long")
            part = self._parts[which] = _Part(mark, window, offset)
            self._parts_size += part.size if window.start is not None else 0
        self._parts.move_to_end(which)
        more = part.add(key)
        if window.start is not None:
            self._parts_size += more
            while self._parts_size > _MOST_PARTS:
                self._drop(next(other for other in self._parts if other[1][1] is not None))
        return part

    def _drop(self, which: tuple[str, Key]) -> None:
        part = self._parts.pop(which, None)
        if part is not None and which[1][1] is not None:
            self._parts_size -= part.size

    def _add(self, stream: str, key: Key, entry: IndexEntry) -> bool:
        """Adds a complete snapshot; returns False if no head lists it yet."""
        there, aside = self._index[stream], self._unnamed[stream]
        if entry.window == ALL_TIME:
            there[key] = entry
            for part, of_part in self._unnamed.items():
                if whole_of(part) == stream:
                    for other in [other for other, one in of_part.items() if _lists(entry, part, one)]:
                        self._index[part][other] = of_part.pop(other)
            return True
        head = self._index[whole_of(stream)].get(("all", None))
        if head is None or not _lists(head, stream, entry):
            aside[key] = entry
            if len(aside) > _MOST_WINDOWS:
                del aside[next(iter(aside))]
            return False
        aside.pop(key, None)
        there[key] = entry
        if len(there) > _MOST_WINDOWS:
            del there[next(other for other in there if other[1] is not None)]
        return True

    def _forget(self, stream: str, rest: str) -> bool:
        """Drops a deleted message's snapshot; returns whether there was one."""
        place, _, name = rest.rpartition("/")
        of, _, start = place.partition("/")
        which = of or "all", int(start) if start.isdecimal() else None
        self._drop((stream, which))
        self._unnamed[stream].pop(which, None)
        entry = self._index[stream].get(which)
        if entry is None or not (name in entry.methods or rest == "head"):
            return False
        del self._index[stream][which]
        return True


def _lists(head: IndexEntry, stream: str, entry: IndexEntry) -> bool:
    """Returns whether a head lists a window of its stream or of a part of it."""
    name, start, listed = entry.window.name, entry.window.start, head.fields
    identity = head.identity if stream == whole_of(stream) else part_identity(head.identity, stream)
    own = entry.identity == window_identity(identity, name, start)
    if start is None:  # `late` belongs to the head's own snapshot
        return own
    starts = listed.get("windows", {}).get(name)
    if starts is None or entry.fields["sequence"] > listed["sequence"]:
        return False
    if starts and start not in starts:
        return False
    return entry.fields["sequence"] < listed["sequence"] or own


def _parts(head: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a head's documents and segments, with their reports."""
    documents = {
        str(one["fingerprint"]): {"reports": int(one["reports"]), "retired": bool(one["retired"])}
        for one in head.get("documents", ())
    }
    segments = {str(name): int(reports) for name, reports in head.get("segments", {}).items()}
    return {"documents": documents, "segments": segments, "hidden": int(head.get("hidden", 0))}


def _shared_fields(value: bytes, window: Period, mark: tuple[bytes | None, bytes | None]) -> dict[str, Any]:
    """Returns a message's shared fields, with `offsets` only for all time."""
    if len(value) > MOST_BYTES:
        raise ValueError(f"{len(value)} bytes of JSON; allowed are up to {MOST_BYTES}")
    check_shared(body := orjson.loads(value))
    if (str(body["sequence"]), body.get("snapshot") or "") != tuple((one or b"").decode() for one in mark):
        raise ValueError("its headers belong to another snapshot")
    names = (*_SHARED, "offsets") if window.start is None else _SHARED
    lines = body.get("windows", {}).items() if window.start is None else ()
    starts = {"windows": {name: frozenset(line["starts"]) for name, line in lines}} if lines else {}
    return (
        starts
        | {name: body[name] for name in names}
        | {name: body[name] for name in _SOMETIMES if name in body}
    )
