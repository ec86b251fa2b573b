"""Publishes snapshots, each in one transaction, and reads the newest head.

All streams share a partition, so another stream's open transaction hides later committed heads. A starting publisher
therefore waits until every transaction below the topic's end has ended.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from kafka import TopicPartition
from kafka import errors as kafka_errors
from kafka.admin import OffsetSpec
from kafka.protocol.consumer.offsets import IsolationLevel

import ldp
from ldp.snapshot import Incomplete, Message, Received, Row
from worker.counting.head import Head, NewerHead
from worker.counting.ports import Read, StateLost, Unavailable
from worker.kafka.client import quirks, reading, transactions
from worker.kafka.client.errors import OPEN, unavailable
from worker.kafka.client.reading import Passed
from worker.kafka.client.transactions import TIMEOUT_SECONDS
from worker.kafka.snapshots import compacted
from worker.kafka.snapshots.topic import PARTITION, UNREADABLE

_CLAIM_SECONDS = 2.0  # Longest wait of a claim for the end of open transactions
_DECIDED_SECONDS = 0.05  # Pause between two checks of open transactions
_COMMITTED, _UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED


class KafkaSnapshotProducer:
    """Publishes snapshots; implements `ports.SnapshotProducer`.

    It checks the acknowledgement of every message before the commit. After any error it drops the producer, and the
    caller reads the head again.

    `rows`: the topic of rows, written in the same transactions, or None. `heartbeat`: called repeatedly during long
    reads and sends.
    """

    def __init__(
        self,
        topic: Any,
        stream: ldp.Stream,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
        rows: str | None = None,
        heartbeat: Callable[[], object] = lambda: None,
        on_passed: reading.OnPassed = reading.ignore,
    ) -> None:
        self._rows, self._heartbeat, self._on_passed = rows, heartbeat, on_passed
        self._topic, self._stream, self._clock, self._sleep = topic, stream, clock, sleep
        self._producer: Any = None

    def open(self) -> Head:
        """Starts a producer, fences off its predecessor, and reads the head.

        It reads the head twice, because a wrong answer would restart sequence numbers and final windows.
        """
        self.close()
        try:
            self._producer = self._topic.producer()
            self._producer.init_transactions()
            head, again = (self.head(decided=True, wait_seconds=TIMEOUT_SECONDS) for _ in range(2))
            if head != again:
                numbers = f"{head.sequence} and {again.sequence}"
                raise Unavailable(f"Kafka: two reads of the newest head differ (snapshots {numbers})")
            return head
        except Unavailable:
            self.close()
            raise
        except kafka_errors.KafkaError as error:
            self.close()
            raise unavailable(error, "starting to publish to", self._topic.name) from error

    def publish(self, sequence: int, messages: Sequence[Message], rows: Sequence[Row] = ()) -> None:
        """Publishes in one transaction; steps 7 to 9 of `Publisher.tick`."""
        try:
            # Step 7.
            self._producer.begin_transaction()
            records = (
                {
                    "topic": self._topic.name,
                    "value": message.body or None,
                    "key": message.key.encode(),
                    "headers": message.headers(sequence),
                    "partition": PARTITION,
                }
                for message in messages
            )
            sent = transactions.send(self._producer, records, self._heartbeat)
            sent += [
                self._producer.send(self._rows, value=row.value or None, key=row.key, partition=PARTITION)
                for row in rows
            ]
            # Steps 8 and 9.
            quirks.commit_transaction(self._producer, sent, TIMEOUT_SECONDS)
        except (kafka_errors.KafkaError, quirks.TOPIC_MISSING) as error:
            self.close()
            raise unavailable(error, "publishing to", self._topic.name) from error

    def newest(self, begin: str, read: Callable[[Received], Read]) -> Read | None:
        """Reads the newest messages whose keys begin so, without windows.

        Reads backwards until `read` does not raise `Incomplete`, O(topic) at worst; then returns None. Call it while
        this producer is open, so that no other publisher replaces the messages.
        """
        tp = TopicPartition(self._topic.name, PARTITION)
        received = dict[str, tuple[Mapping[str, bytes], bytes]]()
        try:
            with contextlib.closing(self._topic.admin()) as admin:
                bounds = self._bounds(admin, self._topic.name, decided=True, wait_seconds=TIMEOUT_SECONDS)
            consumer = self._topic.consumer("read_committed", begin.encode(), self._on_passed)
            with contextlib.ExitStack() as closing:
                closing.callback(consumer.close, autocommit=False)
                for offsets in _backwards(*bounds):
                    records = reading.records(
                        consumer, tp, *offsets, self._heartbeat, TIMEOUT_SECONDS, self._clock
                    )
                    received = {
                        record.key.decode(): (dict(record.headers), record.value or b"")
                        for record in records
                        if record.key
                        and record.key.startswith(begin.encode())
                        and "end" not in dict(record.headers)
                    } | received
                    with contextlib.suppress(Incomplete):
                        return read(received)
        except kafka_errors.KafkaError as error:
            raise unavailable(error, "reading the newest snapshot of", self._topic.name) from error
        except UNREADABLE:
            pass  # another program wrote a message
        return None

    def rows(self) -> list[bytes]:
        """Returns the stream's keys on the topic of rows; O(topic)."""
        assert self._rows is not None
        try:
            with contextlib.closing(self._topic.admin()) as admin:
                bounds = self._bounds(admin, self._rows, decided=True, wait_seconds=TIMEOUT_SECONDS)
            begins = compacted.of_rows(self._stream.name)
            consumer = self._topic.consumer("read_committed", begins, self._on_passed)
            return compacted.keys(consumer, self._rows, begins, *bounds, self._heartbeat)
        except kafka_errors.KafkaError as error:
            raise unavailable(error, "reading the keys of", self._rows) from error

    def close(self) -> None:
        """Drops the producer; the next producer aborts an open transaction."""
        producer, self._producer = self._producer, None
        if producer is not None:
            quirks.drop(producer)

    def head(self, *, decided: bool, wait_seconds: float = _CLAIM_SECONDS) -> Head:
        """Finds the newest head by reading backwards in growing ranges.

        It opens its own clients, so any thread may call it. A head is a record with the key ``STREAM/head`` that
        `Head.read` accepts. Other records and unreadable batches are skipped. Callers also check the store and the
        group's offsets before they decide anything permanent. Raises `Unavailable`; see
        `worker.counting.ports.HeadReader`. Raises `StateLost`: a newer version wrote the head, or records have the key
        but none is a head.
        """
        level, found = "read_committed" if decided else "read_uncommitted", None
        unreadable = list[int]()
        try:
            with contextlib.closing(self._topic.admin()) as admin:
                begin, end = self._bounds(admin, self._topic.name, decided=decided, wait_seconds=wait_seconds)
            if begin < end:
                found = self._newest(_backwards(begin, end), level, unreadable)
            if begin < end and found is None:
                with contextlib.closing(self._topic.admin()) as admin:
                    now = _offset(admin, self._topic.name, OffsetSpec.LATEST, _COMMITTED)
                if now > end:
                    # Compaction keeps the newest head, so the search above found none only if there is none, or if
                    # a newer head was written after the end. This search reads to the log's end and decides.
                    found = self._newest([(end, None)], level, unreadable)
        except kafka_errors.KafkaError as error:
            raise unavailable(error, "reading the newest head of", self._topic.name) from error
        except NewerHead as error:
            if not decided:
                return self.head(decided=True)
            raise StateLost(
                f"topic {self._topic.name!r}: a newer version wrote the head of stream {self._stream.name!r} ({error})"
            ) from None
        if found is None and unreadable:
            if not decided:
                return self.head(decided=True)
            raise StateLost(
                f"topic {self._topic.name!r}: the record at the key of the head of stream {self._stream.name!r} (offset"
                f" {max(unreadable)}) is not a head, and no older head exists: another program wrote it. Allow only"
                " the workers to write to this topic. Then write a record with this key and no value; a stream with"
                " windows needs a new name."
            )
        return found or Head()

    def _bounds(self, admin: Any, topic: str, *, decided: bool, wait_seconds: float) -> tuple[int, int]:
        """Returns (first offset, end); `decided` waits for open transactions."""
        first = _offset(admin, topic, OffsetSpec.EARLIEST, _UNCOMMITTED)
        end = _offset(admin, topic, OffsetSpec.LATEST, _UNCOMMITTED)
        deadline = self._clock() + wait_seconds
        while decided and (stable := _offset(admin, topic, OffsetSpec.LATEST, _COMMITTED)) < end:
            if self._clock() >= deadline:
                raise Unavailable(
                    f"Kafka: topic {topic!r}: a transaction is open since offset {stable} of {end}", OPEN
                )
            self._sleep(_DECIDED_SECONDS)
        return first, end

    def _newest(
        self, ranges: Iterable[tuple[int, int | None]], level: str, unreadable: list[int]
    ) -> Head | None:
        """Returns the newest head of the first range with a head, or None."""
        key, newest = f"{self._stream.name}/head".encode(), None
        consumer = self._topic.consumer(level, key, self._on_passed)
        try:
            tp = TopicPartition(self._topic.name, PARTITION)
            for offsets in ranges:
                for record in reading.records(
                    consumer, tp, *offsets, self._heartbeat, TIMEOUT_SECONDS, self._clock
                ):
                    if record.key == key:
                        newest = self._head_of(record, unreadable) or newest
                if newest is not None:
                    break
        finally:
            consumer.close(autocommit=False)
        if isinstance(newest, NewerHead):
            raise newest
        return newest

    def _head_of(self, record: Any, unreadable: list[int]) -> Head | NewerHead | None:
        try:
            # after a tombstone, sequence numbers restart
            return Head.read(record.value, self._stream.name) if record.value else Head()
        except NewerHead as error:
            return error
        except ValueError as error:
            unreadable.append(record.offset)
            self._on_passed(Passed(self._topic.name, PARTITION, record.offset, f"not a head: {error}"))
            return None


def _backwards(first: int, end: int) -> Iterator[tuple[int, int]]:
    """Yields growing ranges of [first, end), from the end backwards."""
    step, upper = 64, end
    while upper > first:
        lower = max(first, upper - step)
        yield lower, upper
        upper, step = lower, 4 * step


def _offset(admin: Any, topic: str, spec: OffsetSpec, level: IsolationLevel) -> int:
    tp = TopicPartition(topic, PARTITION)
    return int(admin.list_partition_offsets({tp: spec}, isolation_level=level)[tp].offset)
