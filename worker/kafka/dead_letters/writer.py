"""Dead letters: malformed records leave for a topic of their own, with where they came from and why in their headers.

So do late ones, where they are to: they are accepted, and counted but in a window; their letters say in which pane they
would have been, so that whoever keeps windows can add them by hand.

At least once: the letters are flushed before the offset that passes them is committed, so a crash in between sends
them again. Where there are more of them than anybody reads, they are a sample. Their key is
``topic/partition/offset``; their headers are named as Kafka Connect names them. A letter has a record's value, or of a
large one the first bytes, its size and its hash; never its key or its headers.
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
from worker.kafka.client.failures import unavailable
from worker.kafka.dead_letters.sampling import Sample

ERRORS = "__connect.errors."
"""What the names of most headers begin with, after Kafka Connect's."""
WHOLE_BYTES = (1 << 20) - (8 << 10)
"""The largest record that is kept whole: with its headers no more than brokers let into a topic by themselves."""
PREFIX_BYTES = 1024
"""How much is kept of a record that is larger than that, or too large for the dead-letter topic."""
LEAST_ROOM = 4096
"""What the dead-letter topic has to take: so much and the longest headers, in a record batch of its own."""

LATE = "late"
"""The reason of a letter of a late record, which is not rejected."""
LATE_HEADERS = ("timestamp", "start", "end", "closed")
"""The headers of its own that it has, named ``late.…``: the record's time, its pane, and the line that it met."""
SAID = {
    **REASONS,
    LATE: "the record came after its windows were closed: it counts in all, and in no other window",
}
"""What each reason of a letter says to people."""

_FLUSH_SECONDS = 10
_MOST_PENDING = 32 << 20
"""Bytes of letters that may wait for their acknowledgement, before counting waits for them."""

_TOO_LARGE = (kafka_errors.MessageSizeTooLargeError, kafka_errors.RecordListTooLargeError)
_CLOCK = (kafka_errors.InvalidTimestampError, kafka_errors.InvalidRecordError)
"""How the brokers refuse a record whose producer's clock is ahead of theirs."""


@dataclass(frozen=True)
class _Letter:
    """A letter on its way."""

    key: bytes
    value: bytes
    headers: list[tuple[str, bytes]]

    @property
    def size(self) -> int:
        return len(self.key) + len(self.value) + sum(len(name) + len(said) for name, said in self.headers)

    def cut(self) -> "_Letter":
        value, said = _cut(self.value)
        return _Letter(self.key, value, self.headers + said)


def _cut(value: bytes | memoryview) -> tuple[bytes, list[tuple[str, bytes]]]:
    """Returns the first bytes of a value, and headers that say what it was; it is not copied."""
    digest = hashlib.sha256(value).hexdigest()
    said = [("truncated.sha256", digest.encode()), ("truncated.size", str(len(value)).encode())]
    return bytes(value[:PREFIX_BYTES]), said


class KafkaDeadLetters:
    """The dead letters of one stream, as `worker.counting.ports.DeadLetters` describes them.

    Args:
        producer: as `connect` makes it; closed with the letters.
        stream: whose records they are.
        source: the topic that the records come from.
        topic: the dead-letter topic.
        on_acknowledged: called for each letter that is safe.
        attempt: makes what a sending runs in, so that readiness hears how it went.
        clock: seconds, for how many letters are sent.
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
        self._pending: deque[tuple[Any, _Letter]] = deque()
        self._waiting = 0

    @classmethod
    def connect(
        cls,
        settings: Mapping[str, Any],
        stream: ldp.Stream,
        source: str,
        topic: str,
        on_acknowledged: Callable[[], object],
        attempt: Callable[[], AbstractContextManager[None]],
    ) -> "KafkaDeadLetters":
        """Connects a producer; ``settings`` are keyword arguments for every Kafka client, the rest as above.

        Raises:
            Unavailable: the brokers do not answer.
        """
        try:
            producer = KafkaProducer(
                **settings,
                client_id=f"ldp-worker-{stream.name}-dead-letters",
                compression_type="lz4",
                linger_ms=50,  # a request costs ten times what a letter does; and as long waits a commit
                batch_size=1 << 14,
                acks="all",
                **quirks.OUTLIVES_REFUSALS,
                max_request_size=2 << 20,  # more than any letter has: the topic's own limit decides
                max_block_ms=_FLUSH_SECONDS * 1000,
                allow_auto_create_topics=False,
            )
        except kafka_errors.RetriableError as error:
            raise unavailable(error, "connecting") from error
        return cls(producer, stream, source, topic, on_acknowledged, attempt)

    def add(self, batch: Batch, verdicts: npt.NDArray[np.uint8]) -> int:
        """Sends a batch's rejected records and unreadable record batches, without waiting for the broker's answer.

        Of those that come too fast a sample, see `sampling`: O(records) in arrays, and what each letter
        that is sent costs.

        Returns:
            How many were left out.

        Raises:
            Unavailable: too many letters wait for an acknowledgement already, or the topic is not there.
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
        """Sends late records of a batch, as `add` does malformed ones.

        A letter is written when it is sent, like all of them, or the topic would delete those of old records at once;
        the record's own timestamp, its pane and the line that it met are headers.
        """
        columns = batch.columns
        first = self._sample.first(LATE, columns, late.at)
        for i in range(first):
            at, start = late.at[i], int(late.starts[i])
            said = (int(late.times[i]), start, start + late.pane, int(late.lines[i]))
            more = [(f"{LATE}.{name}", b"%d" % n) for name, n in zip(LATE_HEADERS, said, strict=True)]
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
            (f"{ERRORS}exception.message", SAID[reason].encode()),
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
        kept, said = _cut(value.data) if len(value) > WHOLE_BYTES else (value.tobytes(), [])
        with self._attempt():
            self._send(_Letter(f"{self._source}/{partition}/{offset}".encode(), kept, headers + said))
        self._sample.sent(reason, len(value))

    def flush(self) -> None:
        """Waits until every letter is acknowledged; one that is too large for the topic goes as its hash and prefix.

        Raises:
            Unavailable: the brokers did not acknowledge in time; the letters are kept and sent again.
            KafkaError: an error that waiting does not mend.
        """
        if self._pending:
            with self._attempt():
                self._flush()

    def _flush(self) -> None:
        deadline = time.monotonic() + _FLUSH_SECONDS
        while self._pending:
            future, letter = self._pending[0]  # where it stays until it is safe
            try:
                future.get(max(0.0, deadline - time.monotonic()))
                self._on_acknowledged()
            except _TOO_LARGE:
                if len(letter.value) <= PREFIX_BYTES:
                    raise kafka_errors.MessageSizeTooLargeError(
                        f"topic {self._topic!r} does not take a malformed record of {len(letter.value)} bytes, nor the"
                        f" first {PREFIX_BYTES} bytes of a longer one: raise its max.message.bytes"
                    ) from None
                self._send(letter.cut())
            except (kafka_errors.RetriableError, *_CLOCK) as error:
                if future.is_done:  # else it is still on its way
                    self._send(letter)
                    self._pop()
                raise unavailable(error, "sending dead letters to", self._topic) from error
            self._pop()

    def close(self) -> None:
        """Closes the producer."""
        with contextlib.suppress(kafka_errors.KafkaTimeoutError):  # what is lost here was never committed
            self._producer.close(timeout=_FLUSH_SECONDS)

    def _pop(self) -> None:
        _, letter = self._pending.popleft()
        self._waiting -= letter.size

    def _send(self, letter: _Letter) -> None:
        try:
            future = self._producer.send(
                self._topic, value=letter.value, key=letter.key, headers=letter.headers
            )
        except (kafka_errors.RetriableError, quirks.TOPIC_MISSING) as error:
            raise unavailable(error, "sending dead letters to", self._topic) from error
        self._pending.append((future, letter))
        self._waiting += letter.size
