"""Keys that are on a compacted topic: those whose newest committed record is no tombstone."""

import time
from collections.abc import Callable
from typing import Any

from kafka import TopicPartition
from kafka.errors import KafkaTimeoutError

from worker.kafka.snapshot_topic import PARTITION, TIMEOUT_SECONDS

_STALL_SECONDS = 2 * TIMEOUT_SECONDS
"""How long the topic's next record may take: as long as another stream's transaction may stay open, and more."""


def of_rows(stream: str) -> bytes:
    """Returns how the keys of a stream's rows begin, see `ldp.snapshot.RowKey`."""
    return f'{{"stream":"{stream}",'.encode()


def live(connect: Callable[[str], Any], topic: str, begins: bytes, bounds: tuple[int, int]) -> list[bytes]:
    """Returns the keys with a beginning that have a record in partition 0 of a topic, in order; O(records).

    Args:
        connect: connects a reader of an isolation level.
        topic: which.
        begins: what the keys begin with.
        bounds: the partition's first offset, and its end.

    Raises:
        KafkaError: the brokers do not answer, or a transaction stays open.
    """
    first, end = bounds
    consumer, tp = connect("read_committed"), TopicPartition(topic, PARTITION)
    try:
        consumer.assign([tp])
        consumer.seek(tp, first)
        there, before, deadline = set[bytes](), -1, 0.0
        while (position := consumer.position(tp)) < end:
            if position > before:
                before, deadline = position, time.monotonic() + _STALL_SECONDS
            elif time.monotonic() > deadline:
                raise KafkaTimeoutError(f"{tp}: records between {position} and {end} do not come")
            for record in consumer.poll(200).get(tp, []):
                if record.key is not None and record.key.startswith(begins):
                    (there.discard if record.value is None else there.add)(record.key)
        return sorted(there)
    finally:
        consumer.close(autocommit=False)
