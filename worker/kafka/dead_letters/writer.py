"""Sends malformed records, and optionally late ones, as dead letters.

Delivery is at least once. Records are committed after their dead letters are acknowledged, so a crash in between sends
dead letters again. Above a rate limit only a sample is sent; see `sampling`. A dead letter has the key
``topic/partition/offset``, headers named as in Kafka Connect, and the record's value. A large value is truncated, and
headers contain its full size and hash. For a late record, headers name the window pane that the record missed.
"""

import contextlib
import hashlib
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from kafka import KafkaProducer
from kafka import errors as kafka_errors

import ldp
from ldp import frames
from worker.counting.columns import Batch, Unreadable
from worker.counting.lateness import Late
from worker.counting.rejections import REASONS, UNREADABLE
from worker.kafka.client import quirks
from worker.kafka.client.errors import unavailable
from worker.kafka.dead_letters.sampling import Sample

ERRORS = "__connect.errors."  # Prefix of Kafka Connect's header names
WHOLE_BYTES = (1 << 20) - (8 << 10)
"""Largest value sent complete: with its headers it fits the brokers' default max.message.bytes."""
PREFIX_BYTES = 1024  # Bytes sent of a larger value, or of a value that is too large for the dead-letter topic
LEAST_ROOM = 4096  # Bytes that the dead-letter topic must accept in addition to the longest headers

LATE = "late"  # Reason for a late record, which is not rejected
LATE_HEADERS = ("timestamp", "start", "end", "closed")
"""Headers ``late.…``: the record's timestamp, its pane, and the window-close watermark that it missed."""
MESSAGES = {
    **REASONS,
    LATE: "the record came after its windows were closed: it counts only in the window all",
}  # Reason of a dead letter -> message

_FLUSH_SECONDS = 10
_MOST_PENDING = 32 << 20  # Most unacknowledged bytes; counting waits above this number

_TOO_LARGE = (kafka_errors.MessageSizeTooLargeError, kafka_errors.RecordListTooLargeError)
_CLOCK = (kafka_errors.InvalidTimestampError, kafka_errors.InvalidRecordError)
"""Errors if the producer's clock is ahead of the brokers' clock."""


@dataclass(frozen=True)
class _DeadLetter:
    key: bytes
    value: bytes
    headers: list[tuple[str, bytes]]

    @property
    def size(self) -> int:
        return len(self.key) + len(self.value) + sum(len(name) + len(text) for name, text in self.headers)

    def cut(self) -> "_DeadLetter":
        value, more = _cut(self.value)
        return _DeadLetter(self.key, value, self.headers + more)


def _cut(value: bytes | memoryview) -> tuple[bytes, list[tuple[str, bytes]]]:
    """Returns a value's first bytes, and headers with its full size and hash."""
    digest = hashlib.sha256(value).hexdigest()
    headers = [("truncated.sha256", digest.encode()), ("truncated.size", str(len(value)).encode())]
    return bytes(value[:PREFIX_BYTES]), headers


def connect_producer(settings: Mapping[str, Any], stream: str, compression: str = "gzip") -> KafkaProducer:
    """Connects the dead-letter producer; raises `Unavailable` without brokers."""
    quirks.mend_connections()
    try:
        return KafkaProducer(
            **settings,
            client_id=f"ldp-worker-{stream}-dead-letters",
            **quirks.compress(compression),
            linger_ms=50,  # batching pays: a request costs as much as 10 dead letters; commits wait up to 50 ms
            batch_size=1 << 14,
            acks="all",
            **quirks.OUTLIVES_REFUSALS,
            max_request_size=2 << 20,  # above any dead letter, so that the topic's limit applies
            max_block_ms=_FLUSH_SECONDS * 1000,
            allow_auto_create_topics=False,
        )
    except kafka_errors.RetriableError as error:
        raise unavailable(error, "connecting") from error


class KafkaDeadLetters:
    """Sends the dead letters of a stream; implements `ports.DeadLetters`.

    `on_acknowledged`: called for each acknowledged dead letter. `attempt`: returns a context manager that reports a
    failed send or flush to the readiness check. `close` closes the `producer`.
    """

    def __init__(
        self,
        producer: Any,
        stream: ldp.Stream,
        source: str,
        topic: str,
        on_acknowledged: Callable[[], object],
        attempt: Callable[[], AbstractContextManager[None]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._producer, self._stream, self._source, self._topic = producer, stream, source, topic
        self._on_acknowledged, self._attempt = on_acknowledged, attempt
        self._sample = Sample(clock)
        self._pending: deque[tuple[Any, _DeadLetter]] = deque()
        self._waiting = 0

    def add(self, batch: Batch, verdicts: npt.NDArray[np.uint8]) -> int:
        """Sends a sample of rejected and unreadable records.

        It waits only if too many dead letters are unacknowledged. Raises `Unavailable`: the brokers do not acknowledge
        dead letters in time, or the topic is missing.

        Returns:
            The number of records left out of the sample.
        """
        columns = batch.columns
        chosen = self._sample.choose(columns, verdicts)
        unreadable = batch.unreadable[: self._sample.most(UNREADABLE)]
        for i in chosen.tolist():
            value = columns.data[columns.begins[i] : columns.ends[i]]
            self._add(batch.partition, int(columns.offsets[i]), frames.VERDICTS[verdicts[i]], value)
        for bad in unreadable:
            self._add(batch.partition, bad.offset, UNREADABLE, np.empty(0, np.uint8), bad)
        rejected = int(np.count_nonzero(verdicts)) + len(batch.unreadable)
        return rejected - len(chosen) - len(unreadable)

    def add_late(self, batch: Batch, late: Late) -> int:
        """Sends a sample of a batch's late records; returns the number left out.

        A header contains the record's timestamp. The dead letter's own timestamp is the time of sending.
        """
        columns = batch.columns
        first = self._sample.first(LATE, columns, late.at)
        for i in range(first):
            at, start = late.at[i], int(late.starts[i])
            times = (int(late.times[i]), start, start + late.pane, int(late.closed[i]))
            more = [(f"{LATE}.{name}", b"%d" % n) for name, n in zip(LATE_HEADERS, times, strict=True)]
            value = columns.data[columns.begins[at] : columns.ends[at]]
            self._add(batch.partition, int(columns.offsets[at]), LATE, value, more=more)
        return len(late.at) - first

    def _add(
        self,
        partition: int,
        offset: int,
        reason: str,
        value: npt.NDArray[np.uint8],
        bad: Unreadable | None = None,
        more: Sequence[tuple[str, bytes]] = (),
    ) -> None:
        if self._waiting > _MOST_PENDING:
            self.flush()
        headers = [
            (f"{ERRORS}topic", self._source.encode()),
            (f"{ERRORS}partition", str(partition).encode()),
            (f"{ERRORS}offset", str(offset).encode()),
            (f"{ERRORS}exception.class.name", reason.encode()),
            (f"{ERRORS}exception.message", MESSAGES[reason].encode()),
            ("stream", self._stream.name.encode()),
            *more,
        ]
        if bad is not None:
            headers += [
                ("batch.why", bad.why.encode()),
                ("batch.end", str(bad.end).encode()),
                ("batch.size", str(bad.size).encode()),
                ("batch.sha256", bad.sha256.encode()),
            ]
        kept, cut = _cut(value.data) if len(value) > WHOLE_BYTES else (value.tobytes(), [])
        with self._attempt():
            self._send(_DeadLetter(f"{self._source}/{partition}/{offset}".encode(), kept, headers + cut))
        self._sample.sent(reason, len(value))

    def flush(self) -> None:
        """Waits for all acknowledgements; truncates oversized dead letters.

        Raises `Unavailable`: the brokers did not acknowledge in time. The next flush continues. Raises `KafkaError`:
        an error that retries do not resolve.
        """
        if self._pending:
            with self._attempt():
                self._flush()

    def _flush(self) -> None:
        deadline = time.monotonic() + _FLUSH_SECONDS
        while self._pending:
            future, dead_letter = self._pending[0]  # it stays in the queue until it is acknowledged
            try:
                future.get(max(0.0, deadline - time.monotonic()))
                self._on_acknowledged()
            except _TOO_LARGE:
                if len(dead_letter.value) <= PREFIX_BYTES:
                    raise kafka_errors.MessageSizeTooLargeError(
                        f"topic {self._topic!r} rejects a dead letter with {len(dead_letter.value)} bytes of a record;"
                        f" it must accept {PREFIX_BYTES} bytes and the headers: raise its max.message.bytes"
                    ) from None
                self._send(dead_letter.cut())
            except (kafka_errors.RetriableError, *_CLOCK) as error:
                if future.is_done:  # otherwise the first send is still pending
                    self._send(dead_letter)
                    self._pop()
                raise unavailable(error, "sending dead letters to", self._topic) from error
            self._pop()

    def close(self) -> None:
        """Closes the producer."""
        with contextlib.suppress(kafka_errors.KafkaTimeoutError):  # uncommitted records are sent again
            self._producer.close(timeout=_FLUSH_SECONDS)

    def _pop(self) -> None:
        _, dead_letter = self._pending.popleft()
        self._waiting -= dead_letter.size

    def _send(self, dead_letter: _DeadLetter) -> None:
        try:
            future = self._producer.send(
                self._topic, value=dead_letter.value, key=dead_letter.key, headers=dead_letter.headers
            )
        except (kafka_errors.RetriableError, quirks.TOPIC_MISSING) as error:
            raise unavailable(error, "sending dead letters to", self._topic) from error
        self._pending.append((future, dead_letter))
        self._waiting += dead_letter.size
