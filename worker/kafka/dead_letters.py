"""Dead letters: malformed records leave for a topic of their own, with where they came from and why in their headers.

At least once: the letters are flushed before the offset that passes them is committed, so a crash in between sends
them again. Their key is ``topic/partition/offset``; their headers are named as Kafka Connect names them.
"""

import contextlib
import hashlib
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import numpy.typing as npt
from kafka import KafkaProducer
from kafka import errors as kafka_errors

import ldp
from ldp import frames
from worker.counting.columns import Batch, Unreadable
from worker.counting.ports import Unavailable
from worker.counting.rejections import REASONS, UNREADABLE
from worker.kafka import quirks

ERRORS = "__connect.errors."
"""What the names of most headers begin with, after Kafka Connect's."""
PREFIX_BYTES = 1024
"""How much is kept of a record that is too large for the dead-letter topic."""

_FLUSH_SECONDS = 10
_MOST_PENDING = 64 << 20
"""Bytes of letters that may wait for their acknowledgement, before counting waits for them."""

_TOO_LARGE = (kafka_errors.MessageSizeTooLargeError, kafka_errors.RecordListTooLargeError)


class KafkaDeadLetters:
    """The dead letters of one stream, as `worker.counting.ports.DeadLetters` describes them.

    Args:
        settings: keyword arguments for every Kafka client.
        stream: whose records they are.
        source: the topic that the records come from.
        topic: the dead-letter topic.
        on_acknowledged: called for each letter that is safe.
        attempt: makes what a sending runs in, so that readiness hears how it went.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        stream: ldp.Stream,
        source: str,
        topic: str,
        on_acknowledged: Callable[[], object],
        attempt: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._stream, self._source, self._topic = stream, source, topic
        self._on_acknowledged, self._attempt = on_acknowledged, attempt
        self._pending: deque[tuple[Any, bytes, bytes, list[tuple[str, bytes]]]] = deque()
        self._waiting = 0
        try:
            self._producer = KafkaProducer(
                **settings,
                client_id=f"ldp-worker-{stream.name}-dead-letters",
                compression_type="lz4",
                linger_ms=5,
                batch_size=1 << 14,
                acks="all",
                **quirks.OUTLIVES_REFUSALS,
                max_request_size=1 << 30,  # the topic's own limit decides
                max_block_ms=_FLUSH_SECONDS * 1000,
                allow_auto_create_topics=False,
            )
        except kafka_errors.RetriableError as error:
            raise Unavailable(f"Kafka: {error}") from error

    def add(self, batch: Batch, verdicts: npt.NDArray[np.uint8]) -> None:
        """Sends a batch's rejected records and unreadable record batches, without waiting for the broker's answer.

        Raises:
            Unavailable: too many letters wait for an acknowledgement already, or the topic is not there.
        """
        columns = batch.columns
        for i in np.flatnonzero(verdicts).tolist():
            offset, reason = int(columns.offsets[i]), frames.VERDICTS[verdicts[i]]
            self._add(batch.partition, offset, reason, columns.value(i))
        for bad in batch.unreadable:
            self._add(batch.partition, bad.offset, UNREADABLE, None, bad)

    def _add(
        self, partition: int, offset: int, reason: str, value: bytes | None, bad: Unreadable | None = None
    ) -> None:
        if self._waiting > _MOST_PENDING:
            self.flush()
        key = f"{self._source}/{partition}/{offset}".encode()
        headers = [
            (f"{ERRORS}topic", self._source.encode()),
            (f"{ERRORS}partition", str(partition).encode()),
            (f"{ERRORS}offset", str(offset).encode()),
            (f"{ERRORS}exception.class.name", reason.encode()),
            (f"{ERRORS}exception.message", REASONS[reason].encode()),
            ("stream", self._stream.name.encode()),
        ]
        if bad is not None:
            headers += [
                ("batch.why", bad.why.encode()),
                ("batch.end", str(bad.end).encode()),
                ("batch.size", str(bad.size).encode()),
                ("batch.sha256", bad.sha256.encode()),
            ]
        with self._attempt():
            self._send(key, value or b"", headers)

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
            future, key, value, headers = self._pending[0]  # where it stays until it is safe
            try:
                future.get(max(0.0, deadline - time.monotonic()))
                self._on_acknowledged()
            except _TOO_LARGE:
                if len(value) <= PREFIX_BYTES:
                    raise kafka_errors.MessageSizeTooLargeError(
                        f"topic {self._topic!r} does not take a malformed record of {len(value)} bytes, nor the first"
                        f" {PREFIX_BYTES} bytes of a longer one: raise its max.message.bytes"
                    ) from None
                digest = hashlib.sha256(value).hexdigest().encode()
                cut = [("truncated.sha256", digest), ("truncated.size", str(len(value)).encode())]
                self._send(key, value[:PREFIX_BYTES], headers + cut)
            except kafka_errors.RetriableError as error:
                if future.is_done:  # else it is still on its way
                    self._send(key, value, headers)
                    self._pop()
                raise Unavailable(f"Kafka: dead letters are not acknowledged: {error}") from error
            self._pop()

    def close(self) -> None:
        """Closes the producer."""
        with contextlib.suppress(kafka_errors.KafkaTimeoutError):  # what is lost here was never committed
            self._producer.close(timeout=_FLUSH_SECONDS)

    def _pop(self) -> None:
        _, _, value, _ = self._pending.popleft()
        self._waiting -= len(value)

    def _send(self, key: bytes, value: bytes, headers: list[tuple[str, bytes]]) -> None:
        try:
            future = self._producer.send(self._topic, value=value, key=key, headers=headers)
        except (kafka_errors.RetriableError, quirks.TOPIC_MISSING) as error:
            raise Unavailable(f"Kafka: dead letters cannot be sent: {error}") from error
        self._pending.append((future, key, value, headers))
        self._waiting += len(value)
