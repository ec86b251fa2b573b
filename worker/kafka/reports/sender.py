"""Sends records with reports, and waits for acknowledgements."""

import re
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from kafka import KafkaProducer
from kafka.errors import KafkaError, KafkaTimeoutError, MessageSizeTooLargeError, RecordListTooLargeError

from worker.config import Config, Served
from worker.kafka.client import quirks

LARGEST_RECORD = 8 << 20  # Most bytes of a request; the topic's limit is usually lower
_IN_FLIGHT = 64 << 20  # Most unacknowledged bytes; the producer itself has no bound
_OVERHEAD = 640  # Bytes of a record in flight in addition to its value
_SETTLE = 1 << 20  # Bytes sent between two checks of acknowledgements
_RUN = 64  # Consecutive records for one partition, to fill batches
_AHEAD = 0.05  # Most seconds ahead of the rate


class SendError(RuntimeError):
    """A report was not acknowledged, or the topic does not exist."""


@dataclass(frozen=True)
class Sent:
    """The counts and the duration of a `send`."""

    reports: int  # acknowledged reports
    records: int  # records with reports
    malformed: int  # malformed records
    seconds: float


class _Unacknowledged:
    def __init__(self, on_acknowledged: Callable[[int], object]) -> None:
        self._on_acknowledged = on_acknowledged
        self._pending: deque[tuple[Any, int, int]] = deque()
        self._waiting = 0
        self.acknowledged = 0

    def add(self, future: Any, reports: int, size: int) -> None:
        self._pending.append((future, reports, size))
        self._waiting += size

    def settle(self, at_most: int) -> None:
        """Waits until at most `at_most` bytes are unacknowledged."""
        while self._pending and (self._pending[0][0].is_done or self._waiting > at_most):
            future, reports, size = self._pending.popleft()
            self._waiting -= size
            future.get(timeout=60)
            self.acknowledged += reports
        self._on_acknowledged(self.acknowledged)


def send(
    config: Config,
    served: Served,
    records: Iterable[tuple[bytes, int]],
    *,
    rate: float | None = None,
    at: Callable[[int], int] | None = None,
    on_acknowledged: Callable[[int], object] = lambda _: None,
) -> Sent:
    """Sends records, and waits for their acknowledgements.

    `records`: pairs of a value and its number of reports, which is 0 for a malformed record. `rate`: most reports per
    second, or None for no limit. `at`: returns a record's timestamp in ms for the number of reports sent before; None
    for the current time. Raises `SendError`: a report was not acknowledged, or the topic does not exist.
    """
    began = time.monotonic()
    quirks.mend_connections()
    producer = KafkaProducer(
        **config.kafka.client(),
        client_id="ldp-worker-simulate",
        acks="all",
        compression_type="lz4",
        linger_ms=20,
        batch_size=128 << 10,
        max_request_size=LARGEST_RECORD,
        max_block_ms=20_000,
        allow_auto_create_topics=False,
    )
    unacknowledged = _Unacknowledged(on_acknowledged)
    try:
        good, bad = _send(producer, served.topic, records, unacknowledged, rate, at)
    except (MessageSizeTooLargeError, RecordListTooLargeError) as error:
        raise SendError(
            f"a record is larger than max.message.bytes of topic {served.topic!r}, or than {LARGEST_RECORD} bytes;"
            f" a report has {served.stream.oracle.report_bytes} bytes: send fewer reports per record (--batch)"
        ) from error
    except KafkaError as error:
        # Without WRITE on any topic, the brokers deny a producer id with a cluster error
        if closed := re.search(r"(Cluster|Topic)AuthorizationFailed\w*", repr(error)):
            raise SendError(
                f"topic {served.topic!r} is closed to this login ({closed[0]}): grant it WRITE in the brokers' ACLs"
            ) from error
        raise SendError(f"not every report was acknowledged: {error}") from error
    finally:
        producer.close(timeout=10)
    return Sent(unacknowledged.acknowledged, good, bad, time.monotonic() - began)


def _send(
    producer: KafkaProducer,
    topic: str,
    records: Iterable[tuple[bytes, int]],
    unacknowledged: _Unacknowledged,
    rate: float | None,
    at: Callable[[int], int] | None,
) -> tuple[int, int]:
    try:
        partitions = sorted(producer.partitions_for(topic))
    except KafkaTimeoutError:
        raise SendError(
            f"topic {topic!r} does not exist; ldp-worker create-topics creates missing topics"
        ) from None
    began = time.monotonic()
    sent = good = bad = unsettled = 0
    for i, (value, reports) in enumerate(records):
        partition = partitions[i // _RUN % len(partitions)]
        size = len(value) + _OVERHEAD
        time_ms = None if at is None else at(sent)
        future = producer.send(topic, value, partition=partition, timestamp_ms=time_ms)
        unacknowledged.add(future, reports, size)
        sent += reports
        good += reports > 0
        bad += not reports
        unsettled += size
        if unsettled >= _SETTLE:
            unsettled = 0
            unacknowledged.settle(_IN_FLIGHT)
        if rate is not None and (ahead := began + sent / rate - time.monotonic()) > _AHEAD:
            unacknowledged.settle(_IN_FLIGHT)
            time.sleep(ahead)
    producer.flush()
    unacknowledged.settle(0)
    return good, bad
