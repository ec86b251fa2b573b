"""Follows the snapshot topic while somebody asks: where its newest snapshots stand, and any of them, read when wanted.

One thread reads, on a client of its own, by turns with what it leaves to others: it follows half of the time at most.
It begins with the first question, ends when nobody has asked for a while, and keeps some words a window and a few
snapshots. So a worker that nobody looks at pays nothing, and one that is looked at little.
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

from ldp.snapshot import ALL_TIME, Incomplete, NewerSchema, Snapshot, assemble, assemble_window
from worker.config import Config
from worker.config.snapshots import most_kept
from worker.kafka.client import reading
from worker.kafka.client.reading import Passed
from worker.kafka.snapshots.index import IndexEntry, Key, NotRead, NotThere, SnapshotIndex
from worker.kafka.snapshots.messages import Messages
from worker.kafka.snapshots.topic import PARTITION, UNREADABLE

IDLE_SECONDS = 300.0
"""How long nobody asks before the thread ends."""
_POLL_MS = 100
_RECORDS = 100
_FETCH_BYTES = 4 << 20
_READ_SECONDS = 4.0
"""How long the next of a snapshot that is read may take to come."""
WAIT_SECONDS = 2.0
"""How long an answer waits for the topic, and for a snapshot: together less than a connection may last."""
_RETRY_SECONDS = 2.0
_KEPT_NUMBERS = 8_000_000
"""Of the snapshots that are kept beside the newest of them: frequencies and ends, of eight bytes each."""


@dataclass(frozen=True)
class _Wanted:
    """A snapshot that somebody waits for."""

    stream: str
    entry: IndexEntry
    answer: "Future[Snapshot]"


class Follower:
    """The newest snapshots of all streams of a configuration.

    Args:
        config: where the topic is, and whose snapshots are followed.
        consumer: connects a reader of what is committed; by the configuration unless another is given.
        idle_seconds: how long nobody asks before the thread ends.
        on_passed: receives each record batch that cannot be read, and each message that no worker wrote.
    """

    def __init__(
        self,
        config: Config,
        consumer: Callable[[], Any] | None = None,
        idle_seconds: float = IDLE_SECONDS,
        on_passed: reading.OnPassed = reading.ignore,
    ) -> None:
        self._partition = TopicPartition(config.snapshots.topic, PARTITION)
        self._most = {served.stream.name: most_kept(served) for served in config.streams}
        self._settings, self._idle_seconds = config.kafka.client(), idle_seconds
        self._connect, self._on_passed = consumer or self._consumer, on_passed
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._asked = 0.0
        self._wanted: deque[_Wanted] = deque()
        self._kept: OrderedDict[tuple[str, str], Snapshot] = OrderedDict()
        self._begin()

    def _begin(self) -> None:
        """Knows nothing."""
        self._index, self._read, self._why = SnapshotIndex(self._most), False, "it has just begun"
        self._kept.clear()

    @property
    def running(self) -> bool:
        """Whether the topic is read at present."""
        return self._thread is not None

    def newest(self, stream: str) -> Mapping[Key, IndexEntry]:
        """Returns what is on the topic of a stream, as far as it was read; somebody asks.

        Args:
            stream: one of the configuration's.
        """
        with self._changed:
            self._ask()
            return dict(self._index.of(stream)) if self._read else {}

    def wait(self, seconds: float) -> bool:
        """Waits until something changed, at most so long; returns whether the topic was read to its end."""
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
        """Returns where a snapshot stands; waits for that until the topic is read.

        Args:
            stream: one of the configuration's.
            window: whose; the name of the windows as they are configured.
            start: the first millisecond of the window; None for the newest that there is.
            seconds: how long to wait.

        Raises:
            NotThere: there is no such window.
            NotRead: the topic is not read yet.
        """
        with self._changed:
            self._ask()
            self._changed.wait_for(lambda: self._read, seconds)
            if not self._read:
                raise NotRead(self._why)
            there = [entry for entry in self._index.of(stream).values() if entry.methods]
            unnamed = self._index.unnamed(stream, window, start)
        found = [
            entry for entry in there if entry.window.name == window and start in (None, entry.window.start)
        ]
        if not found:
            raise NotThere(stream, unnamed=unnamed)
        return max(found, key=lambda entry: entry.window.start or 0)

    def read(self, stream: str, entry: IndexEntry, seconds: float = WAIT_SECONDS) -> Snapshot:
        """Returns a snapshot, read from where it stands.

        Args:
            stream: whose.
            entry: where it stands.
            seconds: how long to wait.

        Raises:
            NotRead: it did not come in time, cannot be read, or a newer one has taken its place meanwhile.
            NewerSchema: a newer version wrote it.
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
            raise NotRead("the snapshot did not come in time") from None
        except Incomplete as error:
            raise NotRead(str(error)) from None

    def _ask(self) -> None:
        """Notes that somebody asks, and begins to read if nobody did."""
        self._asked = time.monotonic()
        if self._thread is None:
            self._begin()
            self._thread = threading.Thread(target=self._run, name="follow", daemon=True)
            self._thread.start()

    # the thread

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
                    self._thread = None  # the next question begins anew
                raise

    def _ended(self) -> bool:
        """Ends, if nobody has asked for long."""
        with self._changed:
            if time.monotonic() - self._asked < self._idle_seconds:
                return False
            self._thread = None
            self._begin()
            return True

    def _follow(self, consumer: Any) -> None:
        """Reads from the topic's beginning on, until nobody asks any more."""
        with self._changed:
            self._begin()
            self._why = "it is not read to its end yet"
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
                time.sleep(min(1.0, time.monotonic() - began))  # others are to count meanwhile

    def _take(self, records: Sequence[Any], read: bool) -> None:
        changed = False
        with self._changed:
            for record in records:
                try:
                    key, headers = (record.key or b"").decode(), dict(record.headers)
                    changed |= self._index.take(key, headers, record.value, record.offset)
                except UNREADABLE as error:
                    self._pass_over(record, f"no message of a snapshot: {error}")
            if (changed and self._read) or read > self._read:
                self._read = True
                self._changed.notify_all()

    def _answer(self, consumer: Any, wanted: _Wanted) -> None:
        """Reads a snapshot from where it stands, and goes back to where the topic is being read."""
        if not wanted.answer.set_running_or_notify_cancel():
            return None  # nobody waits any more
        with self._changed:
            kept = self._kept.get((wanted.stream, wanted.entry.identity))
            if large := kept is None and self._is_full():
                self._kept.clear()  # large ones are not to be there together with what the next is made of
        if kept is not None:
            return wanted.answer.set_result(kept)
        if large:
            give_back()
        position = consumer.position(self._partition)
        try:
            snapshot = self._snapshot(consumer, wanted)
        except (Incomplete, NewerSchema) as error:
            wanted.answer.set_exception(error)
        except UNREADABLE as error:
            wanted.answer.set_exception(Incomplete(f"the snapshot cannot be read: {type(error).__name__}"))
        except OffsetOutOfRangeError:  # the topic was made again, which is seen when it is followed on
            wanted.answer.set_exception(Incomplete("the snapshot is no longer where it stood"))
        except KafkaTimeoutError:
            wanted.answer.set_exception(Incomplete("the snapshot does not come"))
        except KafkaError:
            wanted.answer.set_exception(Incomplete("the brokers do not answer"))
            raise
        else:
            self._keep(wanted.stream, wanted.entry, snapshot)
            wanted.answer.set_result(snapshot)
        finally:
            consumer.seek(self._partition, position)
        return None

    def _snapshot(self, consumer: Any, wanted: _Wanted) -> Snapshot:
        """Reads a snapshot's messages, with the labels of a window, and puts them together."""
        stream, entry = wanted.stream, wanted.entry
        received, domain = Messages(self._most[stream]), f"{stream}/domain"
        labels = None if entry.window.start is None else self._index.labels(stream)
        for first, last in filter(None, (labels, (entry.first, entry.last))):
            for record in reading.records(
                consumer, self._partition, first, last + 1, stall_seconds=_READ_SECONDS
            ):
                key, headers = (record.key or b"").decode(errors="replace"), dict(record.headers)
                is_its = key.startswith(f"{stream}/") and entry.is_marked(headers)
                if record.value and (is_its or (labels is not None and key.startswith(domain))):
                    try:
                        received[key] = headers, record.value
                    except ValueError as error:
                        self._pass_over(record, str(error))
        return _assembled(stream, entry, received)

    def _pass_over(self, record: Any, why: str) -> None:
        self._on_passed(Passed(self._partition.topic, PARTITION, record.offset, why[: reading.MOST_WHY]))

    def _keep(self, stream: str, entry: IndexEntry, snapshot: Snapshot) -> None:
        """Keeps a snapshot for the next question, and no more of others than there is room for."""
        with self._changed:
            self._kept[stream, entry.identity] = snapshot
            while len(self._kept) > 1 and sum(map(_numbers, self._kept.values())) > _KEPT_NUMBERS:
                self._kept.popitem(last=False)
            large = self._is_full()
        if large:
            give_back()

    def _is_full(self) -> bool:
        """Returns whether half of what may be kept is."""
        return sum(map(_numbers, self._kept.values())) > _KEPT_NUMBERS // 2

    def _consumer(self) -> Any:
        # without a reset: of a topic that was made again nothing is known, it is read anew
        return reading.connect(
            self._settings,
            on_passed=self._on_passed,
            max_partition_fetch_bytes=_FETCH_BYTES,
            fetch_max_bytes=_FETCH_BYTES,
        )


def _assembled(
    stream: str, entry: IndexEntry, received: Mapping[str, tuple[Mapping[str, bytes], bytes]]
) -> Snapshot:
    if entry.window.start is None:
        found = assemble(stream, received)
    else:
        found = assemble_window(stream, received, entry.window.name, entry.window.start)
    if entry.identity != found.identity:
        raise Incomplete("another snapshot stands there")
    return found


def _numbers(snapshot: Snapshot) -> int:
    """How many numbers a snapshot has, about; a label takes the room of some."""
    bodies: Iterable[Any] = snapshot.bodies.values()
    return sum(len(body.frequencies) * (1 if body.low is None else 6) for body in bodies) + 10 * len(
        snapshot.labels or ()
    )


def give_back() -> None:
    """Gives freed memory back to the system.

    glibc keeps for each thread what a large snapshot took: its messages, and answers that were made of an older one.
    """
    if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)
