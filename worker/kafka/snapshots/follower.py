"""Follows the snapshot topic while clients request snapshots.

A thread with its own Kafka client reads the topic. It pauses after each poll with records, to leave CPU time for
counting. It starts at the first request, and stops after 5 minutes without a request. A few snapshots are cached.
"""

import contextlib
import ctypes
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from typing import Any

from kafka import TopicPartition
from kafka.errors import KafkaError, KafkaTimeoutError, OffsetOutOfRangeError

from ldp.snapshot import ALL_TIME, Incomplete, NewerSchema, Snapshot
from worker.config import Config
from worker.config.snapshots import most_kept
from worker.kafka.client import reading
from worker.kafka.client.reading import Passed
from worker.kafka.snapshots.index import IndexEntry, Key, NotRead, NotThere, SnapshotIndex
from worker.kafka.snapshots.reader import read_snapshot
from worker.kafka.snapshots.topic import PARTITION, UNREADABLE

IDLE_SECONDS = 300.0  # Seconds without a request after which the thread stops
_POLL_MS = 100
_RECORDS = 100
_FETCH_BYTES = 4 << 20
_READ_SECONDS = 4.0  # Longest wait for the next message of a snapshot
WAIT_SECONDS = 2.0
"""Longest wait of a request for the topic, and then for a snapshot: less than the connection's time-out."""
_RETRY_SECONDS = 2.0
_KEPT_NUMBERS = 8_000_000  # Most numbers in the cached snapshots if there is more than one


@dataclass(frozen=True)
class _Wanted:
    stream: str
    entry: IndexEntry
    answer: "Future[Snapshot]"


class Follower:
    """The newest snapshots of all configured streams and their parts."""

    def __init__(
        self,
        config: Config,
        consumer: Callable[[], Any] | None = None,
        idle_seconds: float = IDLE_SECONDS,
        on_passed: reading.OnPassed = reading.ignore,
    ) -> None:
        self._partition = TopicPartition(config.snapshots.topic, PARTITION)
        self._most = {
            name: most_kept(served) for served in config.streams for name in (served.name, *served.parts)
        }
        self._settings, self._idle_seconds = config.kafka.client(), idle_seconds
        self._connect, self._on_passed = consumer or self._consumer, on_passed
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._asked = 0.0
        self._wanted: deque[_Wanted] = deque()
        self._kept: OrderedDict[tuple[str, str], Snapshot] = OrderedDict()
        self._begin()

    def _begin(self) -> None:
        self._index, self._read, self._why = SnapshotIndex(self._most), False, "reading has just started"
        self._kept.clear()

    @property
    def running(self) -> bool:
        """Whether the thread runs."""
        return self._thread is not None

    def newest(self, stream: str) -> Mapping[Key, IndexEntry]:
        """Returns a stream's index entries; {} until the topic is read to its end."""
        with self._changed:
            self._ask()
            return dict(self._index.of(stream)) if self._read else {}

    def wait(self, seconds: float) -> bool:
        """Waits for a change; returns whether the topic was read to its end."""
        with self._changed:
            self._ask()
            self._changed.wait(seconds)
            return self._read

    def find(
        self,
        stream: str,
        window: str = ALL_TIME.name,
        start: int | None = None,
        seconds: float = WAIT_SECONDS,
    ) -> IndexEntry:
        """Returns a snapshot's index entry, after the topic is read to its end.

        `start`: the window's first millisecond; None for the newest window. Raises `NotThere`: the window does
        not exist. Raises `NotRead`: the topic is not read to its end yet.
        """
        with self._changed:
            self._ask()
            self._changed.wait_for(lambda: self._read, seconds)
            if not self._read:
                raise NotRead(self._why)
            found = self._index.find(stream, window, start)
            if found is None:
                raise NotThere(stream, unnamed=self._index.unnamed(stream, window, start))
            return found

    def read(self, stream: str, entry: IndexEntry, seconds: float = WAIT_SECONDS) -> Snapshot:
        """Returns a snapshot, from the cache or from the topic.

        Raises `NotRead`: the snapshot did not arrive in time, is unreadable, or was replaced by a newer one.
        Raises `NewerSchema`: a newer version wrote the snapshot.
        """
        with self._changed:
            self._ask()
            if (kept := self._kept.get((stream, entry.identity))) is not None:
                self._kept.move_to_end((stream, entry.identity))
                return kept
            wanted = _Wanted(stream, entry, Future())
            self._wanted.append(wanted)
        try:
            return wanted.answer.result(seconds)
        except FutureTimeoutError:
            wanted.answer.cancel()
            raise NotRead("the snapshot did not arrive in time") from None
        except Incomplete as error:
            raise NotRead(str(error)) from None

    def _ask(self) -> None:
        self._asked = time.monotonic()
        if self._thread is None:
            self._begin()
            self._thread = threading.Thread(target=self._run, name="follow", daemon=True)
            self._thread.start()

    # The thread

    def _run(self) -> None:
        while not self._ended():
            try:
                with contextlib.closing(self._connect()) as consumer:
                    self._follow(consumer)
            except (KafkaError, OSError) as error:
                with self._changed:
                    self._why = f"Kafka: {type(error).__name__}"
                time.sleep(_RETRY_SECONDS)
            except BaseException:
                with self._changed:
                    self._thread = None  # the next request starts a new thread
                raise

    def _ended(self) -> bool:
        """Returns whether the thread is idle; if so, drops the index and cache."""
        with self._changed:
            if time.monotonic() - self._asked < self._idle_seconds:
                return False
            self._thread = None
            self._begin()
            return True

    def _follow(self, consumer: Any) -> None:
        with self._changed:
            self._begin()
            self._why = "not read to its end yet"
        consumer.assign([self._partition])
        consumer.seek_to_beginning(self._partition)
        end = consumer.end_offsets([self._partition])[self._partition]
        while time.monotonic() - self._asked < self._idle_seconds:
            began, asked = time.monotonic(), bool(self._wanted)
            while self._wanted:
                self._answer(consumer, self._wanted.popleft())
            records = consumer.poll(timeout_ms=_POLL_MS, max_records=_RECORDS).get(self._partition, [])
            self._take(records, consumer.position(self._partition) >= end)
            if records or asked:
                time.sleep(min(1.0, time.monotonic() - began))  # leave CPU time for counting

    def _take(self, records: Sequence[Any], read: bool) -> None:
        changed = False
        with self._changed:
            for record in records:
                try:
                    key, headers = (record.key or b"").decode(), dict(record.headers)
                    changed |= self._index.take(key, headers, record.value, record.offset)
                except UNREADABLE as error:
                    why = f"not a message of a snapshot: {error}"[: reading.MOST_WHY]
                    self._on_passed(Passed(self._partition.topic, PARTITION, record.offset, why))
            if (changed and self._read) or read > self._read:
                self._read = True
                self._changed.notify_all()

    def _answer(self, consumer: Any, wanted: _Wanted) -> None:
        if not wanted.answer.set_running_or_notify_cancel():
            return None  # the request has timed out
        with self._changed:
            kept = self._kept.get((wanted.stream, wanted.entry.identity))
            if large := kept is None and self._is_full():
                self._kept.clear()  # free large snapshots before assembling the next
        if kept is not None:
            return wanted.answer.set_result(kept)
        if large:
            trim_memory()
        position = consumer.position(self._partition)
        try:
            most = self._most[wanted.stream]
            snapshot = read_snapshot(
                consumer,
                self._partition,
                self._index,
                wanted.stream,
                wanted.entry,
                most,
                self._on_passed,
                _READ_SECONDS,
            )
        except (Incomplete, NewerSchema) as error:
            wanted.answer.set_exception(error)
        except UNREADABLE as error:
            wanted.answer.set_exception(Incomplete(f"the snapshot cannot be read: {type(error).__name__}"))
        except OffsetOutOfRangeError:  # the topic was created again, which the next poll detects
            wanted.answer.set_exception(Incomplete("the topic no longer has the snapshot's offsets"))
        except KafkaTimeoutError:
            wanted.answer.set_exception(Incomplete("the snapshot's messages do not arrive"))
        except KafkaError:
            wanted.answer.set_exception(Incomplete("the brokers do not answer"))
            raise
        else:
            self._keep(wanted.stream, wanted.entry, snapshot)
            wanted.answer.set_result(snapshot)
        finally:
            consumer.seek(self._partition, position)
        return None

    def _keep(self, stream: str, entry: IndexEntry, snapshot: Snapshot) -> None:
        with self._changed:
            self._kept[stream, entry.identity] = snapshot
            while len(self._kept) > 1 and sum(map(_numbers, self._kept.values())) > _KEPT_NUMBERS:
                self._kept.popitem(last=False)
            large = self._is_full()
        if large:
            trim_memory()

    def _is_full(self) -> bool:
        return sum(map(_numbers, self._kept.values())) > _KEPT_NUMBERS // 2

    def _consumer(self) -> Any:
        return reading.connect(
            self._settings,
            on_passed=self._on_passed,
            max_partition_fetch_bytes=_FETCH_BYTES,
            fetch_max_bytes=_FETCH_BYTES,
        )


def _numbers(snapshot: Snapshot) -> int:
    """Estimates how many numbers a snapshot contains; a label counts as 10."""
    bodies: Iterable[Any] = snapshot.bodies.values()
    return sum(len(body.frequencies) * (1 if body.low is None else 6) for body in bodies) + 10 * len(
        snapshot.labels or ()
    )


def trim_memory() -> None:
    """Returns freed memory to the system; glibc keeps freed memory per thread."""
    if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)
