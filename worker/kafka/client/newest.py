"""Reads a topic's newest records for display, in bounded memory and time."""

import contextlib
import time
from collections.abc import Iterable
from contextlib import closing
from typing import Any

from kafka import TopicPartition
from kafka.errors import KafkaTimeoutError

from worker.config import Config
from worker.kafka.client import quirks, reading

MOST = 1000  # Most records returned per partition
_FIRST = 4  # Records of a partition read first, to estimate the record size
_BYTES = 16 << 20  # Most bytes of a topic, in addition to `_FIRST` records of each partition
_LARGEST = 2 << 20  # Largest dead letter in bytes
_SECONDS = 10.0


def newest_records(
    config: Config,
    topic: str,
    on_passed: reading.OnPassed = reading.ignore,
    largest: int = _LARGEST,
    cap: int = reading.LARGEST,
) -> dict[int, list[Any]]:
    """Returns the newest committed records of each partition, oldest first.

    It returns at most `MOST` records per partition, and fewer if they are large or arrive too late. Raises
    `kafka.errors.KafkaError`: the brokers do not answer.
    """
    found = dict[int, list[Any]]()
    with closing(
        reading.connect(
            config.kafka.client(),
            on_passed=on_passed,
            cap=cap,
            auto_offset_reset="earliest",  # retention may overtake the position
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
            newest = [record for record in read(begin, end) if _size(record) <= largest]
            size = sum(map(_size, newest)) / max(1, len(newest))
            more = min(MOST - _FIRST, int(room / max(1.0, 2 * size)))  # older records may be larger
            found[tp.partition] = _within(room, read(max(first, begin - more), begin)) + newest
    return found


def _within(room: int, records: Iterable[Any]) -> list[Any]:
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
    headers = sum(len(name) + len(text or b"") for name, text in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers
