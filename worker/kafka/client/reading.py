"""Reads the output topics: snapshots, rows and dead letters.

Other programs may write to these topics, so a size cap bounds each record batch, as for reports
(`worker.kafka.decoding`). Readers skip and report unreadable batches, and records whose keys exceed `MOST_KEY` bytes. A
batch with a wrong checksum is fetched again. If the same bytes return, the batch is unreadable.
"""

import functools
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaTimeoutError

from worker.kafka.client import quirks, raw_fetch
from worker.kafka.client.raw_fetch import Fetched
from worker.kafka.decoding.records import MOST_KEY, Arena, Reader, Record, warm

LARGEST = 64 << 20  # Largest request of the workers' producers, which bounds an uncompressed batch
STALL_SECONDS = 60.0  # Longest wait for the next record: twice the time-out of a small transaction
MOST_WHY = 200  # Most characters of a reason, which may quote a record
_POLL_MS = 200
_NOT_FETCHED = 1 << 63


@dataclass(frozen=True)
class Passed:
    """A skipped record, or a skipped record batch with its first offset.

    Example:
        >>> str(Passed("ldp-snapshots", 0, 17, "record batch: length"))
        'topic ldp-snapshots, partition 0, offset 17 is skipped (record batch: length)'
    """

    topic: str
    partition: int
    offset: int
    why: str

    def __str__(self) -> str:
        return f"topic {self.topic}, partition {self.partition}, offset {self.offset} is skipped ({self.why})"


OnPassed = Callable[[Passed], object]


def ignore(_: Passed) -> None:
    """Ignores a skipped record or record batch."""


def connect(
    settings: Mapping[str, Any],
    level: str = "read_committed",
    begins: bytes = b"",
    on_passed: OnPassed = ignore,
    cap: int = LARGEST,
    **more: Any,
) -> Any:
    """Connects a consumer that joins no group and returns `Record`s.

    See `raw_fetch.install_decoder`.
    """
    quirks.mend_connections()
    _load_kernels()  # compiling later may exceed a time-out
    consumer = KafkaConsumer(
        **settings,
        **{"auto_offset_reset": "none", "group_id": None} | more,
        enable_auto_commit=False,
        isolation_level=level,
        allow_auto_create_topics=False,
        enable_incremental_fetch_sessions=False,
    )
    raw_fetch.install_decoder(consumer, _Decoder(begins, on_passed, cap))
    return consumer


@functools.cache
def _load_kernels() -> None:
    warm()


class _Decoder:
    def __init__(self, begins: bytes, on_passed: OnPassed, cap: int = LARGEST) -> None:
        self._begins, self._cap = np.frombuffer(begins, np.uint8), cap
        self._on_passed = on_passed
        self._arena = Arena()
        self._suspects = set[tuple[str, int, int, str]]()

    def __call__(self, topic: str, partition: int, fetched: Fetched) -> Iterator[tuple[int, Record | None]]:
        """Yields (next position, record or None) pairs; see `raw_fetch.Decode`."""
        reader = Reader(fetched.data, fetched.start, fetched.aborted, [(0, self._cap)])
        while (part := reader.read_keyed(self._arena, self._begins)) is not None:
            failing = {
                (topic, partition, batch.offset, batch.sha256)
                for batch in part.unreadable
                if batch.why == "checksum"
            }
            if new := failing - self._suspects:
                self._suspects |= new
                yield part.start, None  # the consumer fetches again from here
                return
            self._suspects -= failing
            for batch in part.unreadable:
                self._on_passed(Passed(topic, partition, batch.offset, f"record batch: {batch.why}"))
            for offset in part.long_keys:
                self._on_passed(Passed(topic, partition, offset, f"key: more than {MOST_KEY} bytes"))
            for record in part.records:
                yield record.offset + 1, record
            yield part.end, None


def records(
    consumer: Any,
    tp: TopicPartition,
    first: int,
    end: int | None,
    on_poll: Callable[[], object] = lambda: None,
    stall_seconds: float = STALL_SECONDS,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Any]:
    """Yields the records at the offsets [first, end).

    It stops when the position reaches the end. It also stops after a fetch without records if the broker's last stable
    offset is at or beyond the end.

    `end`: the offset after the last record; None for the log's end at the newest fetch. `on_poll`: called before each
    poll. Raises `KafkaTimeoutError`: the position does not advance for `stall_seconds`, because brokers do not
    deliver or a transaction stays open. Raises `KafkaError`: the brokers do not answer.
    """
    consumer.assign([tp])
    consumer.seek(tp, first)
    before, deadline, consumer.bound = -1, 0.0, _NOT_FETCHED
    while (position := consumer.position(tp)) < (bound := consumer.bound if end is None else end):
        if position > before:
            before, deadline = position, clock() + stall_seconds
        elif clock() > deadline:
            raise KafkaTimeoutError(f"{tp}: no records from offset {position} to {bound} arrive")
        on_poll()
        for record in consumer.poll(_POLL_MS).get(tp, ()):
            if end is None or record.offset < end:
                yield record
