"""Undecided records: what an open transaction holds back from every reader of committed records.

The last stable offset is where the first open transaction of a partition begins: nothing behind it is read, of
whichever producer, until that transaction ends. Lag is measured to it, so it does not show what lies behind.
"""

import time
from collections.abc import Collection
from dataclasses import dataclass

import kafka.errors
from kafka import IsolationLevel, TopicPartition
from kafka.admin import KafkaAdminClient, OffsetSpec

LONG_SECONDS = 300.0
"""A transaction open for longer than this holds up what others wait for; so the alert has it, too."""


@dataclass(frozen=True)
class Undecided:
    """What is undecided in one partition.

    Attributes:
        partition: which.
        first: the last stable offset, where it begins.
        end: the high watermark, where it ends.
        by: the transactional ids of the open transactions that touch the partition, as far as we may know them.
        seconds: how long the oldest of these has been open; None if there is none that we may know.
    """

    partition: int
    first: int
    end: int
    by: tuple[str, ...] = ()
    seconds: float | None = None


def find_undecided(admin: KafkaAdminClient, topic: str, partitions: Collection[int]) -> list[Undecided]:
    """Finds the partitions of a topic in which records wait for the end of a transaction.

    Two questions if there are none, else two more.
    """
    latest = {TopicPartition(topic, partition): OffsetSpec.LATEST for partition in partitions}
    # the watermark first, so that what was only just written does not look undecided
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
        found.append(Undecided(tp.partition, first, end, tuple(sorted(ids)), age))
    return found


def _opened(admin: KafkaAdminClient) -> dict[str, tuple[float, set[TopicPartition]]]:
    """Returns since when each open transaction is open and what it touches; none where we may not ask."""
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
