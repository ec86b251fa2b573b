"""The snapshot topic, read as any consumer would: the latest complete snapshot of a stream or of one of its windows."""

import contextlib
import time
from collections.abc import Mapping
from typing import Any

import orjson
from kafka import TopicPartition
from kafka.errors import LogTruncationError, OffsetOutOfRangeError

from ldp.snapshot import (
    ALL_TIME,
    SCHEMA,
    Incomplete,
    Line,
    NewerSchema,
    Period,
    Snapshot,
    assemble,
    assemble_window,
    lines,
    window_of,
)
from ldp.snapshot.checking import MOST_BYTES, check_body, check_domain, check_head
from worker.config import Config
from worker.config.snapshots import most_kept
from worker.kafka.client import reading
from worker.kafka.client.reading import Passed
from worker.kafka.snapshots.messages import Messages
from worker.kafka.snapshots.topic import PARTITION, UNREADABLE

_POLL_MS = 200
_MOST_WINDOWS = 100_000
"""Windows that are known; those that were known first are forgotten."""
_LONGEST_KEY, _LONGEST_NAME = 1000, 100


class SnapshotReader:
    """The snapshots of one stream, from the topic's beginning on; a context manager.

    A snapshot is one transaction in one partition, so a reader of committed records that keeps the newest message of
    each key has all of a snapshot or none of it. What is kept are the messages of all time, or of one window, and of
    the other windows that they are there: memory for two snapshots, and some words a window.

    Args:
        config: where the snapshots are.
        stream: the stream's name.
        window: whose; the name of the windows as they are configured.
        start: the first millisecond of the window; None for the newest that there is.
        on_passed: receives each record batch that cannot be read, and each message that no worker wrote.
    """

    def __init__(
        self,
        config: Config,
        stream: str,
        window: str = ALL_TIME.name,
        start: int | None = None,
        on_passed: reading.OnPassed = reading.ignore,
    ) -> None:
        self.stream, self._window, self._start = stream, window, start
        self._shown: tuple[int | None, int, str | None] | None = None
        self.published = 0.0
        """When the latest snapshot was published, by its message's timestamp, in seconds since the epoch."""
        self.why_not: str | None = None
        """Why the newest messages are no snapshot; None if they are one, or there are none."""
        self._on_passed = on_passed
        self._newest = Messages(most_kept(config.served(stream)))
        self._partition = TopicPartition(config.snapshots.topic, PARTITION)
        self._consumer = reading.connect(
            config.kafka.client(), begins=f"{stream}/".encode(), on_passed=on_passed
        )
        self._consumer.assign([self._partition])
        self._begin()

    def _begin(self) -> None:
        """Knows nothing, and reads from the topic's beginning on."""
        self._newest.clear()
        self._windows: dict[str, Period] = {}
        of_newest = self._start is None and self._window != ALL_TIME.name
        self._followed = None if of_newest else self._prefix(self._start)
        self._changed = False
        self._consumer.seek_to_beginning(self._partition)

    def __enter__(self) -> "SnapshotReader":
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def latest(self, timeout_seconds: float) -> Snapshot | None:
        """Returns the latest snapshot as soon as there is one not returned before, or None if none comes in time.

        Raises:
            NewerSchema: a newer version wrote it.
        """
        deadline = time.monotonic() + timeout_seconds
        while True:
            wait = int(max(0, min(_POLL_MS, 1000 * (deadline - time.monotonic()))))
            # older snapshots need not be put together, only what there is when nothing more comes at once
            more = self._read(wait) and not self._caught_up()
            if not more and (snapshot := self._fresh()) is not None:
                return snapshot
            if time.monotonic() >= deadline:
                return None

    def catch_up(self, timeout_seconds: float) -> bool:
        """Reads all that is on the topic now; returns whether it came in time."""
        deadline = time.monotonic() + timeout_seconds
        end = self._consumer.end_offsets([self._partition])[self._partition]
        while self._consumer.position(self._partition) < end:
            if time.monotonic() >= deadline:
                return False
            self._read(_POLL_MS)
        return True

    @property
    def is_there(self) -> bool:
        """Whether the window that is asked for is on the topic, as far as it was read; or a snapshot of all time."""
        return self._followed is not None and any(key.startswith(self._followed) for key in self._newest)

    @property
    def windows(self) -> list[Period]:
        """The windows of the stream that are on the topic, as far as it was read, by name and start."""
        return sorted(self._windows.values(), key=lambda window: (window.name, window.start))

    @property
    def head(self) -> Mapping[str, Any] | None:
        """What the newest head says, as far as the topic was read; None for none, or one that cannot be read."""
        _, value = self._newest.get(f"{self.stream}/head", ({}, b""))
        with contextlib.suppress(ValueError):
            if 0 < len(value) <= MOST_BYTES:
                check_head(said := orjson.loads(value))
                return dict(said)
        return None

    @property
    def lines(self) -> Mapping[str, Line]:
        """How far the windows of each name are closed, by the newest head."""
        return lines(self.head or {})

    def age(self) -> float:
        """Returns the seconds since the latest snapshot was published."""
        return max(0.0, time.time() - self.published)

    def _read(self, wait_ms: int) -> bool:
        """Takes in what has come; returns whether anything has."""
        try:
            polled = self._consumer.poll(timeout_ms=wait_ms)
        except (OffsetOutOfRangeError, LogTruncationError):  # the topic was made again, or is shorter
            self._begin()
            return False
        for records in polled.values():
            for record in records:
                key = (record.key or b"").decode(errors="replace")
                if key.startswith(f"{self.stream}/"):
                    try:
                        self._take(key, dict(record.headers), record.value, record.timestamp)
                    except UNREADABLE as error:
                        why = f"no message of a snapshot: {error}"[: reading.MOST_WHY]
                        self._on_passed(Passed(self._partition.topic, PARTITION, record.offset, why))
        return bool(polled)

    def _take(self, key: str, headers: dict[str, bytes], value: bytes | None, timestamp: int) -> None:
        """Keeps a message if it is of what is read, and forgets what it takes the place of."""
        _, kind, *rest = key.split("/")
        if len(key) > _LONGEST_KEY or len(kind) > _LONGEST_NAME:
            raise ValueError(f"a key of {len(key)} characters, its window of {len(kind)}")
        prefix = f"{self.stream}/{kind}/{rest[0]}/" if len(rest) > 1 else ""
        if value is None:
            self._newest.pop(key, None)
            self._windows.pop(prefix, None)
            return
        if (window := window_of(key, headers)) is not None:
            self._windows[prefix] = window
            if len(self._windows) > _MOST_WINDOWS:
                del self._windows[next(iter(self._windows))]
            if window.name == self._window and self._start is None:
                self._follow_newest()
        mine = self._followed is not None and key.startswith(self._followed)
        if (mine or kind in ("head", "domain")) and self._is_newest(key, headers, value):
            self._keep(key, headers, value)
            if mine:
                self.published = timestamp / 1000
            self._changed |= mine or self._shown is None  # the labels may come after a window that has them

    def _is_newest(self, key: str, headers: Mapping[str, bytes], value: bytes) -> bool:
        """Returns whether a message is of the newest snapshot, which then has room for it.

        A snapshot's messages stand in one transaction, the head of all time first. So messages of all time with another
        mark than the head's are older, and one that comes when all are there was not written by a worker.

        Raises:
            ValueError: no worker wrote it.
        """
        _expect_ours(self.stream, key, headers, value)
        if self._window != ALL_TIME.name:
            return self._is_newest_beside(key, headers)
        head, _ = self._newest.get(f"{self.stream}/head", ({}, b""))
        is_same = bool(head) and _mark(headers) == _mark(head)
        if is_same and len(self._newest) >= int(head["parts"]):
            raise ValueError(f"snapshot {headers['sequence'].decode()} is whole without it")
        if key == f"{self.stream}/head":
            self._newest.clear()
            return True
        return is_same

    def _is_newest_beside(self, key: str, headers: Mapping[str, bytes]) -> bool:
        """Returns whether a message is of the window that is read, or of the newest head or labels beside it."""
        domain = f"{self.stream}/domain"
        if key == domain:
            for other in [other for other in self._newest if other.startswith(domain)]:
                del self._newest[other]
        elif key.startswith(f"{domain}/"):
            marked, _ = self._newest.get(domain, ({}, b""))
            return _mark(marked) == _mark(headers)
        return not key.startswith(f"{self.stream}/head/")

    def _keep(self, key: str, headers: Mapping[str, bytes], value: bytes) -> None:
        """Keeps a message; where there is no room, older ones of the same window go first.

        Raises:
            ValueError: there is no room even so.
        """
        try:
            self._newest[key] = headers, value
        except ValueError:
            sequence, place = int(headers["sequence"]), self._followed or "/"
            there = [(other, int(kept.get("sequence", b"0"))) for other, (kept, _) in self._newest.items()]
            for other, number in there:
                if other.startswith(place) and number < sequence:
                    del self._newest[other]
            self._newest[key] = headers, value

    def _follow_newest(self) -> None:
        """Turns to the newest window of the name that is asked for."""
        before, starts = self._followed, (w.start for w in self._windows.values() if w.name == self._window)
        self._followed = self._prefix(max(start for start in starts if start is not None))
        if before is not None and before != self._followed:
            for key in [key for key in self._newest if key.startswith(before)]:
                del self._newest[key]

    def _prefix(self, start: int | None) -> str:
        """Returns how the keys begin of what is read."""
        return f"{self.stream}/{self._window}/" + ("" if start is None else f"{start}/")

    def _caught_up(self) -> bool:
        end = self._consumer.highwater(self._partition)
        return end is not None and self._consumer.position(self._partition) >= end

    def _fresh(self) -> Snapshot | None:
        """Returns the latest snapshot, if it is another than the last one."""
        if not self._changed:
            return None
        self._changed = False
        try:
            snapshot = self._assembled()
        except NewerSchema:
            raise
        except UNREADABLE as error:  # or not all is here
            self.why_not = str(error)
            return None
        self.why_not = None
        shown = snapshot.window.start, snapshot.sequence, snapshot.identity
        if shown == self._shown:
            return None
        self._shown = shown
        return snapshot

    def _assembled(self) -> Snapshot:
        if self._window == ALL_TIME.name:
            return assemble(self.stream, self._newest)
        if self._followed is None:
            raise Incomplete(f"no message of windows {self._window!r} of {self.stream!r} is here")
        start = int(self._followed.split("/")[2])
        return assemble_window(self.stream, self._newest, self._window, start)


def _mark(headers: Mapping[str, bytes]) -> tuple[bytes | None, bytes | None]:
    """Returns what tells the messages of one snapshot from those of another: number and identity."""
    return headers.get("sequence"), headers.get("snapshot")


def _expect_ours(stream: str, key: str, headers: Mapping[str, bytes], value: bytes) -> None:
    """Sees that a message is one of a snapshot; what a newer version wrote is.

    Raises:
        ValueError: it is not.
        LookupError: it lacks a header.
    """
    if int(headers["parts"]) < 1:
        raise ValueError("it has no part")
    said = int(headers["sequence"]), headers["snapshot"].decode()
    kind, *rest = key.removeprefix(f"{stream}/").split("/")
    if len(rest) > (2 if "end" in headers else kind != "domain"):
        return  # a chunk of a vector or of labels
    if len(value) > MOST_BYTES:
        raise ValueError(f"{len(value)} bytes given; allowed are up to {MOST_BYTES}")
    document = orjson.loads(value)
    if kind == "domain":
        check_domain(document)
        return
    if type(document) is dict and type(schema := document.get("schema")) is int and schema > SCHEMA:
        return
    (check_head if kind == "head" else check_body)(document)
    if (document["stream"], document["sequence"], document["snapshot"]) != (stream, *said):
        raise ValueError("its headers or its key are of another one")
