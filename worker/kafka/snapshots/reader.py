"""Reads the latest complete snapshot of a stream or of one of its windows."""

import time
from collections.abc import Mapping
from typing import Any

import orjson
from kafka import TopicPartition
from kafka.errors import LogTruncationError, OffsetOutOfRangeError

from ldp.snapshot import (
    ALL_TIME,
    SCHEMA,
    Closed,
    Incomplete,
    NewerSchema,
    Period,
    Snapshot,
    assemble,
    assemble_window,
    domain_of,
    progress,
    whole_of,
)
from ldp.snapshot.assembling import Received
from ldp.snapshot.checking import MOST_BYTES, check_head
from worker.config import Config
from worker.config.snapshots import most_kept
from worker.kafka.client import reading
from worker.kafka.client.reading import Passed
from worker.kafka.snapshots.index import IndexEntry, SnapshotIndex
from worker.kafka.snapshots.topic import PARTITION, UNREADABLE

_POLL_MS = 200
_MESSAGE_BYTES = 512  # Approximate memory of a message without its key, headers and value


def read_snapshot(
    consumer: Any,
    tp: TopicPartition,
    index: SnapshotIndex,
    stream: str,
    entry: IndexEntry,
    most: int,
    on_passed: reading.OnPassed,
    stall_seconds: float = reading.STALL_SECONDS,
) -> Snapshot:
    """Reads and assembles an indexed snapshot, with the labels.

    Raises `Incomplete`: a message is missing, or belongs to another snapshot. Raises `NewerSchema`: a newer version
    wrote the snapshot. Raises `KafkaError`: the brokers do not answer, or no longer have the offsets.
    """
    domain, _, _ = domain_of(stream).partition("/")
    labels = None if entry.window == ALL_TIME and domain == stream else index.labels(domain)
    received, size = dict[str, tuple[Mapping[str, bytes], bytes]](), 0
    for first, last in filter(None, (labels, (entry.first, entry.last))):
        for record in reading.records(consumer, tp, first, last + 1, stall_seconds=stall_seconds):
            key, headers = (record.key or b"").decode(errors="replace"), dict(record.headers)
            belongs = key.startswith(f"{stream}/") and entry.is_marked(headers)
            if not record.value or not (belongs or (labels and key.startswith(f"{domain}/domain"))):
                continue
            more = _size(key, headers, record.value)
            more -= _size(key, *received[key]) if key in received else 0
            if size + more > most:
                why = f"more than {most:,} bytes of messages; {size:,} are kept already"
                on_passed(Passed(tp.topic, tp.partition, record.offset, why))
                continue
            received[key], size = (headers, record.value), size + more
    return _assembled(stream, entry, received)


def _size(key: str, headers: Mapping[str, bytes], value: bytes) -> int:
    names = sum(len(name) + len(text or b"") for name, text in headers.items())
    return _MESSAGE_BYTES + len(key) + len(value) + names


def _assembled(stream: str, entry: IndexEntry, received: Received) -> Snapshot:
    if entry.window == ALL_TIME:
        found = assemble(stream, received)
    else:
        found = assemble_window(stream, received, entry.window.name, entry.window.start)
    if entry.identity != found.identity:
        raise Incomplete("another snapshot replaced it")
    return found


class SnapshotReader:
    """Follows the snapshots of a stream or a part; a context manager.

    It reads the topic from the beginning and indexes the offsets of each complete snapshot. It reads only the contents
    of the requested snapshot.

    `start`: the window's first millisecond; None for the newest window.
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
        self._whole = whole_of(stream)
        self._shown: IndexEntry | None = None
        self.why_not: str | None = None
        """Reason why the newest snapshot is unreadable; None if it is readable or missing."""
        self._on_passed, self._most = on_passed, most_kept(config.served(self._whole))
        self._partition = TopicPartition(config.snapshots.topic, PARTITION)
        begins = f"{stream}/" if stream == self._whole else self._whole  # a part needs the head of its stream
        self._consumer = reading.connect(config.kafka.client(), begins=begins.encode(), on_passed=on_passed)
        self._consumer.assign([self._partition])
        self._begin()

    def _begin(self) -> None:
        self._index, self._changed = SnapshotIndex([self.stream]), False
        self.head: Mapping[str, Any] | None = None
        """The document of the stream's newest head; None if there is none."""
        self._consumer.seek_to_beginning(self._partition)

    def __enter__(self) -> "SnapshotReader":
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def latest(self, timeout_seconds: float) -> Snapshot | None:
        """Returns the latest snapshot not returned before; None after a time-out.

        Raises `NewerSchema`: a newer version wrote the snapshot.
        """
        deadline = time.monotonic() + timeout_seconds
        while True:
            wait = int(max(0, min(_POLL_MS, 1000 * (deadline - time.monotonic()))))
            # skip older snapshots: assemble only after the last available message
            more = self._read(wait) and not self._caught_up()
            if not more and self._changed and (snapshot := self._fresh()) is not None:
                return snapshot
            if time.monotonic() >= deadline:
                return None

    def catch_up(self, timeout_seconds: float) -> bool:
        """Reads to the topic's current end; returns False after the time-out."""
        deadline = time.monotonic() + timeout_seconds
        end = self._consumer.end_offsets([self._partition])[self._partition]
        while self._consumer.position(self._partition) < end:
            if time.monotonic() >= deadline:
                return False
            self._read(_POLL_MS)
        return True

    @property
    def is_there(self) -> bool:
        """Whether the requested snapshot is in the part of the topic read so far."""
        return self._entry() is not None

    @property
    def windows(self) -> list[Period]:
        """The stream's windows on the topic, sorted by name and start."""
        windows = [entry.window for entry in self._index.of(self.stream).values() if entry.window != ALL_TIME]
        return sorted(windows, key=lambda window: (window.name, window.start))

    @property
    def progress(self) -> Mapping[str, Closed]:
        """The window-close watermark of each window name, from the newest head."""
        return progress(self.head or {})

    def _read(self, wait_ms: int) -> bool:
        """Indexes the next messages; returns False without new messages."""
        try:
            polled = self._consumer.poll(timeout_ms=wait_ms)
        except (OffsetOutOfRangeError, LogTruncationError):  # the topic was created again or truncated
            self._begin()
            return False
        for record in polled.get(self._partition, ()):
            key, headers = (record.key or b"").decode(errors="replace"), dict(record.headers)
            try:
                head = _head(record.value) if key == f"{self._whole}/head" else self.head
                self._index.take(key, headers, record.value, record.offset)
                self.head, self._changed = head, True
            except UNREADABLE as error:
                why = f"not a message of a snapshot: {error}"[: reading.MOST_WHY]
                self._on_passed(Passed(self._partition.topic, PARTITION, record.offset, why))
        return bool(polled)

    def _caught_up(self) -> bool:
        end = self._consumer.highwater(self._partition)
        return end is not None and self._consumer.position(self._partition) >= end

    def _entry(self) -> IndexEntry | None:
        return self._index.find(self.stream, self._window, self._start)

    def _fresh(self) -> Snapshot | None:
        """Returns the latest snapshot; None if it is unreadable or not new."""
        self._changed, entry = False, self._entry()
        if entry is None or entry == self._shown:
            return None
        position = self._consumer.position(self._partition)
        try:
            snapshot = read_snapshot(
                self._consumer, self._partition, self._index, self.stream, entry, self._most, self._on_passed
            )
        except NewerSchema:
            raise
        except (OffsetOutOfRangeError, LogTruncationError):  # the next poll detects the change
            return None
        except UNREADABLE as error:
            self.why_not = str(error)
            return None
        finally:
            self._consumer.seek(self._partition, position)
        self.why_not, self._shown = None, entry
        return snapshot


def _head(value: bytes | None) -> Mapping[str, Any] | None:
    if value is None:
        return None
    if len(value) > MOST_BYTES:
        raise ValueError(f"{len(value)} bytes given; allowed are up to {MOST_BYTES}")
    document: dict[str, Any] = orjson.loads(value)
    if type(document) is dict and type(document.get("schema")) is int and document["schema"] > SCHEMA:
        return document
    check_head(document)
    return document
