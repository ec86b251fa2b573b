"""Sending: records of reports, spread over a topic's partitions and acknowledged, as clients would send them."""

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

LARGEST_RECORD = 8 << 20
"""A request to the brokers, in bytes; their own limit for the topic is usually lower."""
_IN_FLIGHT = 64 << 20
"""Records sent and not acknowledged yet, in bytes: the producer itself does not bound them."""
_OVERHEAD = 640
"""What a record in flight takes beside its value, in bytes."""
_SETTLE = 1 << 20
"""How often acknowledgements are taken in, in bytes sent."""
_RUN = 64
"""Records in a row to one partition, so that batches fill."""
_AHEAD = 0.05
"""How far reports are sent ahead of their rate, in seconds."""


class SendError(RuntimeError):
    """Not every report was acknowledged, or the topic does not exist."""


@dataclass(frozen=True)
class Sent:
    """What was sent and acknowledged.

    Attributes:
        reports: how many.
        records: well-formed records.
        malformed: malformed records.
        seconds: from the first record to the last acknowledgement.
    """

    reports: int
    records: int
    malformed: int
    seconds: float


class _Unacknowledged:
    """The records that were sent and are not acknowledged yet.

    Attributes:
        acknowledged: the reports of the others.
    """

    def __init__(self, on_acknowledged: Callable[[int], object]) -> None:
        self._on_acknowledged = on_acknowledged
        self._pending: deque[tuple[Any, int, int]] = deque()
        self._waiting = 0
        self.acknowledged = 0

    def add(self, future: Any, reports: int, size: int) -> None:
        """Adds a record of so many reports and bytes."""
        self._pending.append((future, reports, size))
        self._waiting += size

    def settle(self, at_most: int) -> None:
        """Takes acknowledgements in, and waits until records of at most so many bytes have none."""
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

    Args:
        config: where the brokers are.
        served: the stream and its topic.
        records: (value of a record, reports in it); 0 reports for a malformed one.
        rate: reports a second at most, whatever number of them a record has, or None for as fast as it goes.
        at: given how many reports were sent before a record, returns its time in milliseconds; None for the present.
        on_acknowledged: told now and then how many reports are acknowledged.

    Raises:
        SendError: a report was not acknowledged, or the topic does not exist.
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
            f"a record is larger than the max.message.bytes of topic {served.topic!r}, or than {LARGEST_RECORD} bytes;"
            f" a report has {served.stream.oracle.report_bytes} bytes: put fewer in a record (--batch)"
        ) from error
    except KafkaError as error:
        # of the cluster where this login may write to no topic at all: then it gets no producer's number
        if closed := re.search(r"(Cluster|Topic)AuthorizationFailed\w*", repr(error)):
            raise SendError(
                f"topic {served.topic!r} is closed to this login ({closed[0]}): let the brokers' ACLs allow it to WRITE"
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
    """Sends records and waits for their acknowledgements; returns how many were well-formed, and how many were not."""
    try:
        partitions = sorted(producer.partitions_for(topic))
    except KafkaTimeoutError:
        raise SendError(
            f"topic {topic!r} is not there; ldp-worker create-topics makes what is missing"
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
