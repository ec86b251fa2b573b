"""Lists the keys of a compacted topic with one partition."""

from collections.abc import Callable
from typing import Any

from kafka import TopicPartition

from worker.kafka.client import reading
from worker.kafka.snapshots.topic import PARTITION


def of_rows(stream: str) -> bytes:
    """Returns the key prefix of a stream's rows; see `ldp.snapshot.RowKey`."""
    return f'{{"stream":"{stream}",'.encode()


def keys(
    consumer: Any,
    topic: str,
    begins: bytes | tuple[bytes, ...],
    first: int,
    end: int,
    on_poll: Callable[[], object] = lambda: None,
) -> list[bytes]:
    """Returns the sorted keys with one of the prefixes; O(records).

    It closes the consumer. Raises `KafkaError`; see `worker.kafka.client.reading.records`.
    """
    try:
        there = set[bytes]()
        for record in reading.records(consumer, TopicPartition(topic, PARTITION), first, end, on_poll):
            if record.key is not None and record.key.startswith(begins):
                (there.discard if record.value is None else there.add)(record.key)
        return sorted(there)
    finally:
        consumer.close(autocommit=False)
