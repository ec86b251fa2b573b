"""The newest records of a topic, read back from its end, within bounds: what people are shown of a topic."""

import contextlib
import time
from collections.abc import Iterable
from contextlib import closing
from typing import Any

from kafka import TopicPartition
from kafka.errors import KafkaTimeoutError

from worker.config import Config
from worker.kafka.client import quirks, reading

MOST = 1000
"""Records that are read of a partition."""
_FIRST = 4
"""Records of a partition that are read first, to learn how large they are."""
_BYTES = 16 << 20
"""Bytes that are read of a topic, but for the first records of each partition."""
_LARGEST = 2 << 20
"""Bytes of the largest of these: the workers write no larger dead letter."""
_SECONDS = 10.0


def newest_records(
    config: Config, topic: str, on_passed: reading.OnPassed = reading.ignore
) -> dict[int, list[Any]]:
    """Returns the newest committed records of each partition of a topic, in the order of their offsets.

    At most `MOST` of a partition, and fewer where they are large or do not come in time; none larger than any of ours.

    Args:
        config: where the brokers are.
        topic: a topic that exists.
        on_passed: receives each record batch that cannot be read.

    Raises:
        kafka.errors.KafkaError: the brokers do not answer.
    """
    found = dict[int, list[Any]]()
    with closing(
        reading.connect(
            config.kafka.client(),
            on_passed=on_passed,
            auto_offset_reset="earliest",  # where retention passes meanwhile
        )
    ) as consumer:
        deadline = time.monotonic() + _SECONDS
        partitions = [TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic) or ()]
        bounds = quirks.whole_bounds(consumer, partitions, round(1000 * _SECONDS))
        room = _BYTES // max(1, len(partitions))
        for tp, (first, end) in sorted(bounds.items()):

            def read(begin: int, end: int, tp: TopicPartition = tp) -> Iterable[Any]:
                left = max(0.0, deadline - time.monotonic())
                return reading.records(consumer, tp, begin, end, stall_seconds=left)

            begin = max(first, end - _FIRST)
            newest = [record for record in read(begin, end) if _size(record) <= _LARGEST]
            size = sum(map(_size, newest)) / max(1, len(newest))
            more = min(MOST - _FIRST, int(room / max(1.0, 2 * size)))  # older ones may be larger
            found[tp.partition] = _within(room, read(max(first, begin - more), begin)) + newest
    return found


def _within(room: int, records: Iterable[Any]) -> list[Any]:
    """Returns records, or none where they have more bytes than there is room for or do not come in time."""
    read, size = list[Any](), 0
    with contextlib.suppress(KafkaTimeoutError):
        for record in records:
            size += _size(record)
            if size > room:
                return []
            read.append(record)
        return read
    return []


def _size(record: Any) -> int:
    headers = sum(len(name) + len(said or b"") for name, said in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers
