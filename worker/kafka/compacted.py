"""Compacted topics, read: what stands in their one partition now, as far as it is committed."""

import time
from collections.abc import Callable, Iterator
from typing import Any

from kafka import TopicPartition
from kafka.errors import KafkaTimeoutError

from worker.kafka.snapshot_topic import PARTITION, TIMEOUT_SECONDS

_STALL_SECONDS = 2 * TIMEOUT_SECONDS
"""How long the topic's next record may take: as long as another stream's transaction may stay open, and more."""


def _unheard() -> None:
    """Nobody waits to hear of it."""


def of_rows(stream: str) -> bytes:
    """Returns how the keys of a stream's rows begin, see `ldp.snapshot.RowKey`."""
    return f'{{"stream":"{stream}",'.encode()


def records(
    consumer: Any, topic: str, first: int, end: int, on_poll: Callable[[], object] = _unheard
) -> Iterator[Any]:
    """Yields the records of partition 0 of a topic whose offsets are in [first, end), or a little beyond it.

    Args:
        consumer: a reader of committed records.
        topic: which.
        first: where to begin.
        end: up to where all are wanted.
        on_poll: called again and again, as it may take minutes.

    Raises:
        KafkaError: the brokers do not answer, or a transaction stays open.
    """
    tp = TopicPartition(topic, PARTITION)
    consumer.assign([tp])
    consumer.seek(tp, first)
    before, deadline = -1, 0.0
    while (position := consumer.position(tp)) < end:
        if position > before:
            before, deadline = position, time.monotonic() + _STALL_SECONDS
        elif time.monotonic() > deadline:
            raise KafkaTimeoutError(f"{tp}: records between {position} and {end} do not come")
        on_poll()
        yield from consumer.poll(200).get(tp, [])


def keys(
    connect: Callable[[str], Any],
    topic: str,
    begins: bytes,
    first: int,
    end: int,
    on_poll: Callable[[], object] = _unheard,
) -> list[bytes]:
    """Returns the keys with a beginning whose newest record below an offset is no tombstone, in order; O(records).

    Args:
        connect: connects a reader of an isolation level.
        topic: which.
        begins: what the keys begin with.
        first: the partition's first offset.
        end: its end.
        on_poll: called again and again, as it may take minutes.

    Raises:
        KafkaError: see `records`.
    """
    consumer = connect("read_committed")
    try:
        there = set[bytes]()
        for record in records(consumer, topic, first, end, on_poll):
            if record.key is not None and record.key.startswith(begins):
                (there.discard if record.value is None else there.add)(record.key)
        return sorted(there)
    finally:
        consumer.close(autocommit=False)
