"""The reading of Kafka and Redis: the log's records, what the group and the newest snapshot say, a partition's cut."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import redis
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.errors import OffsetOutOfRangeError, RetriableError
from redis.backoff import NoBackoff
from redis.retry import Retry

from worker.audit.errors import AuditError
from worker.audit.records import Deleted, Record
from worker.audit.stored import StoredCut
from worker.config import Config

_STALL_SECONDS = 60.0
_COORDINATOR_SECONDS = 10.0


def connect_kafka(config: Config) -> KafkaConsumer:
    """Connects a consumer that reads committed records and neither joins a group nor makes up for lost offsets."""
    return KafkaConsumer(
        **config.kafka.client(),
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="none",
        isolation_level="read_committed",
        allow_auto_create_topics=False,
        max_partition_fetch_bytes=8 << 20,
    )


def connect_redis(config: Config) -> "redis.Redis":
    """Connects to Redis; what only reads may be sent twice."""
    return redis.Redis.from_url(
        config.redis.url,
        password=config.redis.password.get_secret_value() if config.redis.password else None,
        socket_timeout=config.redis.timeout_seconds,
        socket_connect_timeout=config.redis.timeout_seconds,
        retry=Retry(NoBackoff(), 1),
    )


def partitions_of(consumer: KafkaConsumer, topic: str, config: Config) -> list[TopicPartition]:
    """Returns the partitions of a topic in ascending order.

    Raises:
        AuditError: there is no such topic.
    """
    numbers = consumer.partitions_for_topic(topic)
    if not numbers:
        raise AuditError(
            f"topic {topic!r}: there is none at {', '.join(config.kafka.bootstrap_servers)};"
            " ldp-worker create-topics makes what is missing"
        )
    return [TopicPartition(topic, number) for number in sorted(numbers)]


_TOGETHER = """
local found = {redis.call('HGETALL', KEYS[1])}
for i = 2, #KEYS do
  found[i] = redis.call('GET', KEYS[i])
end
return found
"""
"""A script that reads a hash and strings as they stand together. KEYS: the hash, then the strings."""


def cut_of(client: "redis.Redis", prefix: str) -> StoredCut:
    """Reads a partition's metadata and the blobs that they name, in one script."""
    together = client.register_script(_TOGETHER)
    names = ["all"]
    while True:
        flat, *blobs = together(keys=[f"{prefix}meta", *(f"{prefix}window:{name}" for name in names)])
        said = [item.decode(errors="replace") for item in flat]
        fields = dict(zip(said[::2], said[1::2], strict=True))
        try:
            named = sorted(json.loads(fields["blobs"])) or ["all"]
        except (KeyError, ValueError, TypeError):
            named = ["all"]  # nothing is named yet or the names are damaged, which is judged later
        if names == named:
            return fields, dict(zip(names, blobs, strict=True))
        names = named


def read(
    consumer: KafkaConsumer, tp: TopicPartition, on_advance: Callable[[int], None], begin: int, end: int
) -> Iterator[Record | Deleted]:
    """Yields time and value of the committed records of [begin, end), and which offsets are deleted meanwhile."""
    for item in _records(consumer, tp, on_advance, begin, end):
        yield item if isinstance(item, Deleted) else (item.timestamp, item.value)


def _records(
    consumer: KafkaConsumer, tp: TopicPartition, on_advance: Callable[[int], None], begin: int, end: int
) -> Iterator[Any]:
    """Yields the committed records of [begin, end); markers, aborted and compacted records are passed.

    Where records are deleted while they are read, it says which offsets and goes on behind them.
    """
    consumer.assign([tp])
    consumer.seek(tp, begin)
    position, moved = begin, time.monotonic()
    while position < end:
        try:
            polled = consumer.poll(timeout_ms=500, max_records=5000).get(tp, ())
        except OffsetOutOfRangeError:
            first = consumer.beginning_offsets([tp])[tp]
            if first <= position:
                said = (
                    f"{tp.topic}-{tp.partition}: the log now ends before offset {position}: it was truncated"
                )
                raise AuditError(said) from None
            yield Deleted((position, min(first, end)))
            consumer.seek(tp, first)
            position, moved = first, time.monotonic()
            continue
        for record in polled:
            if record.offset < end:
                yield record
        if (now := consumer.position(tp)) > position:
            position, moved = now, time.monotonic()
            on_advance(min(position, end))
        elif time.monotonic() - moved > _STALL_SECONDS:
            raise AuditError(
                f"{tp.topic}-{tp.partition}: no progress at offset {position} in {_STALL_SECONDS:.0f} s"
            )


def offset_metadata(settings: dict[str, Any], group: str, topic: str) -> dict[int, str]:
    """Returns the metadata of the offsets that a group has committed for a topic."""
    deadline = time.monotonic() + _COORDINATOR_SECONDS
    with closing(KafkaAdminClient(**settings)) as admin:
        while True:
            try:
                offsets = admin.list_group_offsets({group: None})[group]
                break
            except RetriableError:  # a coordinator that only just starts
                if time.monotonic() >= deadline:
                    raise
                time.sleep(0.2)
    return {tp.partition: committed.metadata for tp, committed in offsets.items() if tp.topic == topic}


def published_offsets(consumer: KafkaConsumer, topic: str, stream: str) -> dict[int, int]:
    """Returns the offsets that the newest snapshot of a stream says were counted; none if there is no snapshot."""
    if not consumer.partitions_for_topic(topic):
        return {}
    tp = TopicPartition(topic, 0)
    first, end, step = consumer.beginning_offsets([tp])[tp], consumer.end_offsets([tp])[tp], 100
    while first < end:
        begin = max(first, end - step)
        newest = None
        for record in _records(consumer, tp, lambda _: None, begin, end):
            if not isinstance(record, Deleted) and record.key == f"{stream}/head".encode():
                newest = record
        if newest is not None:
            said = json.loads(newest.value)["offsets"] if newest.value else {}
            return {int(partition): offset for partition, offset in said.items()}
        end, step = begin, 2 * step
    return {}
