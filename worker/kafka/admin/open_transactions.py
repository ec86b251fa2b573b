"""Finds open transactions and the records above the last stable offset.

`read_committed` readers receive these records only after the transaction ends. Lag does not include these records.
"""

import time
from collections.abc import Collection
from dataclasses import dataclass

import kafka.errors
from kafka import IsolationLevel, TopicPartition
from kafka.admin import KafkaAdminClient, OffsetSpec

LONG_SECONDS = 300.0  # Age at which an open transaction is an error; the alert uses the same time


@dataclass(frozen=True)
class OpenTransactions:
    """One partition's records above the last stable offset."""

    partition: int
    first: int  # the last stable offset
    end: int  # the high watermark
    by: tuple[str, ...] = ()  # ids of the open transactions that this user may list
    seconds: float | None = None  # age of the oldest one in `by`; None if `by` is empty


def find_open_transactions(
    admin: KafkaAdminClient, topic: str, partitions: Collection[int]
) -> list[OpenTransactions]:
    """Returns partitions with records above the last stable offset."""
    latest = {TopicPartition(topic, partition): OffsetSpec.LATEST for partition in partitions}
    # read the high watermark first: records written between the two reads must not look blocked
    high = admin.list_partition_offsets(latest)
    stable = admin.list_partition_offsets(latest, isolation_level=IsolationLevel.READ_COMMITTED)
    held = [tp for tp in latest if high[tp].offset > stable[tp].offset]
    if not held:
        return []
    opened = _opened(admin)
    found = []
    for tp in held:
        ids = {name: since for name, (since, touched) in opened.items() if tp in touched}
        age = max(0.0, time.time() - min(ids.values())) if ids else None
        first, end = stable[tp].offset, high[tp].offset
        found.append(OpenTransactions(tp.partition, first, end, tuple(sorted(ids)), age))
    return found


def _opened(admin: KafkaAdminClient) -> dict[str, tuple[float, set[TopicPartition]]]:
    """Returns open transactions: id -> (start in s, partitions); {} on errors."""
    try:
        listed = admin.list_transactions()
        ids = sorted({one.transactional_id for some in listed.values() for one in some})
        described = admin.describe_transactions(ids)
    except kafka.errors.KafkaError:
        return {}
    return {
        name: (one.transaction_start_time_ms / 1000, one.topic_partitions)
        for name, one in described.items()
        if one.transaction_start_time_ms >= 0
    }
