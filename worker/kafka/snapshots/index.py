"""Where on the snapshot topic each newest whole snapshot stands: told by what passes, of which nothing else is kept.

A snapshot's messages stand together, in one transaction. So it is enough to know between which offsets: whoever wants
one reads it there. What is kept are some words a window, however many values a domain has.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from ldp.snapshot import ALL_TIME, Period, window_identity, window_of
from ldp.snapshot.checking import MOST_BYTES, check_shared

Key = tuple[str, int | None]
"""A window of a stream: by its name and its start; that of all time is ``("all", None)``."""
_SHARED = ("sequence", "reports", "complete", "window")
_SOMETIMES = ("snapshot", "standard_error")
_MOST_UNNAMED = 100_000
"""Windows of a stream that no head vouches for yet: those of before it, where the topic is read from its beginning."""
_MOST_PARTS = 32 << 20
"""Bytes of what is kept of windows' snapshots of which some messages were seen; a publisher sends one at a time."""
_MOST_PART = 16 << 20
"""Bytes of what is kept of one such snapshot: the largest has some thousands of messages."""
_PART, _SEEN = 4096, 160
"""Bytes of memory that such a snapshot takes by itself, and each of its keys beside its text, about."""
_LONGEST_KEY, _LONGEST_NAME = 1000, 40
_MOST_METHODS = 64


class NotRead(Exception):  # noqa: N818  # an answer, not a fault: it is to be asked again
    """The topic is not read yet, or cannot be."""


class NotThere(Exception):  # noqa: N818  # an answer, not a fault
    """There is no such window on the topic.

    Args:
        unnamed: whether there are messages of one that the stream's head does not vouch for.
    """

    def __init__(self, stream: str, *, unnamed: bool = False) -> None:
        super().__init__(stream)
        self.unnamed = unnamed


@dataclass(frozen=True)
class IndexEntry:
    """A snapshot of which every message was seen.

    Attributes:
        window: of which.
        first: the offset of its first message.
        last: that of its last one.
        said: what its head and all its bodies say; where they differ, what the head says.
        methods: whose bodies it has; none where the head is alone, as there are no reports yet, or only windows.
    """

    window: Period
    first: int
    last: int
    said: Mapping[str, Any]
    methods: frozenset[str]

    @property
    def identity(self) -> str:
        """What no other snapshot has."""
        return str(self.said["snapshot"])

    def is_marked(self, headers: Mapping[str, bytes]) -> bool:
        """Returns whether a message's headers say that it is of this snapshot."""
        return headers.get("snapshot") == self.identity.encode()


@dataclass
class _Part:
    """A snapshot of which some messages were seen; `size` is how many bytes are kept of it, about."""

    mark: tuple[bytes | None, bytes | None]
    window: Period
    first: int
    seen: set[str] = field(default_factory=set)
    said: dict[str, Any] = field(default_factory=dict)
    methods: set[str] = field(default_factory=set)
    size: int = _PART

    def add(self, key: str) -> int:
        """Notes that a message was seen; returns how many bytes more are kept."""
        more = 0 if key in self.seen else _SEEN + len(key)
        self.seen.add(key)
        self.size += more
        return more


class SnapshotIndex:
    """The newest whole snapshots of some streams, as far as the newest head of their stream vouches for them.

    A head vouches for the snapshot of all time that it is a part of, and for windows with names that it lists, of no
    higher number, and where it lists starts of these. A window of its own number is known by its identity, too. Other
    messages, which somebody else wrote, take no snapshot's place.

    Args:
        streams: whose.

    Example:
        >>> import ldp
        >>> from ldp.snapshot import Cut, encode, take
        >>> stream = ldp.Stream("colours", ldp.GRR(epsilon="1", domain_size=2))
        >>> taken = take(stream, stream.oracle.estimate([6, 4], 10), Cut({0: 10}, {}), sequence=3)
        >>> index = SnapshotIndex(["colours"])
        >>> for offset, part in enumerate(encode(taken)):
        ...     _ = index.take(part.key, dict(part.headers(3)), part.body, offset)
        >>> entry = index.of("colours")["all", None]
        >>> entry.first, entry.last, entry.said["reports"]
        (0, 11, 10)
    """

    def __init__(self, streams: Iterable[str]) -> None:
        self._index: dict[str, dict[Key, IndexEntry]] = {stream: {} for stream in streams}
        self._unnamed: dict[str, dict[Key, IndexEntry]] = {stream: {} for stream in self._index}
        self._parts: OrderedDict[tuple[str, Key], _Part] = OrderedDict()  # that with the newest message last
        self._parts_size = 0
        self._labels: dict[str, tuple[int, int]] = {}

    def labels(self, stream: str) -> tuple[int, int] | None:
        """Returns where the newest labels of a stream stand, the first and the last offset; None if it has none."""
        return self._labels.get(stream)

    def of(self, stream: str) -> Mapping[Key, IndexEntry]:
        """Returns the windows of a stream, with that of all time."""
        return self._index[stream]

    def unnamed(self, stream: str, name: str, start: int | None = None) -> bool:
        """Returns whether there are messages of a window, or of any of a name, that the head does not vouch for."""
        if name == ALL_TIME.name:
            part = self._parts.get((stream, (name, None)))
            return part is not None and bool(part.methods) and f"{stream}/head" not in part.seen
        return any(key[0] == name and start in (None, key[1]) for key in self._unnamed[stream])

    def take(self, key: str, headers: Mapping[str, bytes], value: bytes | None, offset: int) -> bool:
        """Takes a message in; returns whether a snapshot is whole with it, or gone.

        Args:
            key: the message's.
            headers: the message's.
            value: the message's; None for a tombstone.
            offset: where it stands.

        Raises:
            ValueError, LookupError, TypeError, AttributeError: it is none of a snapshot's.
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
            part.said |= _said(value, window)
        elif 0 < len(name) <= _LONGEST_NAME and not chunk and len(part.methods) < _MOST_METHODS:
            if not part.methods:  # the others say the same
                part.said = _said(value, window) | part.said
            part.methods.add(name)
        if len(part.seen) < int(headers.get("parts", b"0")) or not part.said:
            return False
        if window.start is None and f"{stream}/head" not in part.seen:
            return False
        self._drop(which)
        return self._add(
            stream, which[1], IndexEntry(window, part.first, offset, part.said, frozenset(part.methods))
        )

    def _part(
        self,
        which: tuple[str, Key],
        mark: tuple[bytes | None, bytes | None],
        window: Period,
        key: str,
        offset: int,
    ) -> _Part:
        """Returns the snapshot that a message is of, with its key noted; others are dropped where there is no room.

        Those go first whose last message is the longest ago. That of all time stays: each stream has one.
        """
        part = self._parts.get(which)
        if part is None or part.mark != mark or part.size > _MOST_PART:
            self._drop(which)
            if sum(len(said or b"") for said in mark) > _LONGEST_KEY:
                raise ValueError("a mark that is no snapshot's")
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
        """Forgets what was seen of a snapshot."""
        part = self._parts.pop(which, None)
        if part is not None and which[1][1] is not None:
            self._parts_size -= part.size

    def _add(self, stream: str, key: Key, entry: IndexEntry) -> bool:
        """Takes a whole snapshot in, or sets it aside until a head vouches for it; returns whether it is taken."""
        there, aside = self._index[stream], self._unnamed[stream]
        if entry.window.start is None:
            there[key] = entry
            for other in [other for other, one in aside.items() if _vouches(entry, one)]:
                there[other] = aside.pop(other)
            return True
        if (head := there.get(("all", None))) is None or not _vouches(head, entry):
            aside[key] = entry
            if len(aside) > _MOST_UNNAMED:
                del aside[next(iter(aside))]
            return False
        aside.pop(key, None)
        there[key] = entry
        return True

    def _forget(self, stream: str, rest: str) -> bool:
        """Drops the snapshot whose head or body is deleted; one whose methods are now fewer stays."""
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


def _vouches(head: IndexEntry, entry: IndexEntry) -> bool:
    """Returns whether a head names a window with its number, and where the number is its own with its identity."""
    name, start, said = entry.window.name, entry.window.start, head.said
    starts = said.get("windows", {}).get(name)
    if start is None or starts is None or entry.said["sequence"] > said["sequence"]:
        return False
    if starts and start not in starts:
        return False
    return entry.said["sequence"] < said["sequence"] or entry.identity == window_identity(
        head.identity, name, start
    )


def _said(value: bytes, window: Period) -> dict[str, Any]:
    """Returns what a head or a body says of the whole; the offsets of all time alone, as windows can be many."""
    if len(value) > MOST_BYTES:
        raise ValueError(f"{len(value)} bytes of JSON; allowed are up to {MOST_BYTES}")
    check_shared(body := orjson.loads(value))
    names = (*_SHARED, "offsets") if window.start is None else _SHARED
    lines = body.get("windows", {}).items() if window.start is None else ()
    starts = {"windows": {name: frozenset(line["starts"]) for name, line in lines}} if lines else {}
    return (
        starts
        | {name: body[name] for name in names}
        | {name: body[name] for name in _SOMETIMES if name in body}
    )
