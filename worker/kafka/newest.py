"""The newest records of a topic, read back from its end, within bounds: what people are shown of a topic."""

import time
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaTimeoutError

from worker.config import Config
from worker.kafka import quirks

MOST = 1000
"""Records that are read of a partition."""
_FIRST = 4
"""Records of a partition that are read first, to learn how large they are."""
_BYTES = 16 << 20
"""Bytes of values that are read of a topic, but for the first records of each partition."""
_SECONDS = 10.0


def newest_records(config: Config, topic: str) -> list[Any]:
    """Returns the newest committed records of each partition of a topic, in the order of partition and offset.

    At most `MOST` of a partition, and fewer where they are large or do not come in time.

    Args:
        config: where the brokers are.
        topic: a topic that exists.

    Raises:
        kafka.errors.KafkaError: the brokers do not answer, or a record batch cannot be read.
    """
    with closing(reader(config)) as consumer:
        deadline = time.monotonic() + _SECONDS
        partitions = [TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic) or ()]
        bounds = quirks.whole_bounds(consumer, partitions, round(1000 * _SECONDS))
        room = _BYTES // max(1, len(partitions))
        last = {tp: (max(first, end - _FIRST), end) for tp, (first, end) in bounds.items()}
        found = _read(consumer, last, 1 << 62, deadline)
        if missing := sorted(tp.partition for tp in last.keys() - found.keys()):
            raise KafkaTimeoutError(
                f"topic {topic}, partition {', '.join(map(str, missing))}: no records in {_SECONDS:g} s"
            )
        before = {}
        for tp, records in found.items():
            begin, _ = last[tp]
            size = sum(map(_size, records)) / max(1, len(records))
            more = min(MOST - _FIRST, int(room / max(1.0, 2 * size)))  # older ones may be larger
            before[tp] = (max(bounds[tp][0], begin - more), begin)
        older = _read(consumer, before, room, deadline)
    return [record for tp in sorted(found) for record in [*older.get(tp, ()), *found[tp]]]


def reader(config: Config, **settings: Any) -> KafkaConsumer:
    """Connects a consumer that reads what is committed, joins no group and commits nothing."""
    return KafkaConsumer(
        **config.kafka.client(),
        **settings,
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="earliest",  # where retention passes meanwhile
        isolation_level="read_committed",
        allow_auto_create_topics=False,
    )


def _read(
    consumer: KafkaConsumer, wanted: Mapping[TopicPartition, tuple[int, int]], room: int, deadline: float
) -> dict[TopicPartition, list[Any]]:
    """Returns the records of stretches [from, to); without those that are too large or do not come in time."""
    consumer.assign(list(wanted))
    consumer.resume(*wanted)
    for tp, (begin, _) in wanted.items():
        consumer.seek(tp, begin)
    read: dict[TopicPartition, list[Any]] = {tp: [] for tp in wanted}
    bytes_read = dict.fromkeys(wanted, 0)
    done: dict[TopicPartition, list[Any]] = {}
    while wanted and time.monotonic() < deadline:
        for tp, records in consumer.poll(timeout_ms=200, max_records=MOST).items():
            mine = [record for record in records if record.offset < wanted[tp][1]]
            read[tp] += mine
            bytes_read[tp] += sum(map(_size, mine))
        wanted = {tp: stretch for tp, stretch in wanted.items() if bytes_read[tp] <= room}
        done |= {tp: read[tp] for tp, (_, end) in wanted.items() if consumer.position(tp) >= end}
        wanted = {tp: stretch for tp, stretch in wanted.items() if tp not in done}
        consumer.pause(*(consumer.assignment() - wanted.keys()))
    return done


def _size(record: Any) -> int:
    return len(record.value or b"")
