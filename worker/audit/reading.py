"""The reading of Kafka and Redis: the log's records, what the group and the newest snapshot say, a partition's cut."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.consumer.fetcher import Fetcher
from kafka.errors import KafkaTimeoutError, OffsetOutOfRangeError, RetriableError
from kafka.net.sasl.oauth import AbstractTokenProvider

from worker.audit import batches
from worker.audit.errors import AuditError
from worker.audit.records import Caps, Deleted, Records
from worker.audit.snapshots import Message
from worker.audit.stored import StoredCut
from worker.config import Config
from worker.login import Tokens
from worker.redis.connecting import Client, connect
from worker.redis.script import Script

AbstractTokenProvider.register(Tokens)  # what the client demands of whoever gives it tokens
_STALL_SECONDS = 60.0
_COORDINATOR_SECONDS = 10.0
_BOUNDS_MS = 30_000


def connect_kafka(config: Config, most_records: int = 5000) -> KafkaConsumer:
    """Connects a consumer that reads committed records and neither joins a group nor makes up for lost offsets."""
    return KafkaConsumer(
        max_poll_records=most_records,
        **config.kafka.client(),
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="none",
        isolation_level="read_committed",
        allow_auto_create_topics=False,
        max_partition_fetch_bytes=8 << 20,
    )


def connect_log(config: Config) -> KafkaConsumer:
    """Connects a consumer for `read`: what it polls are record batches as they were fetched."""
    consumer = connect_kafka(config, most_records=1)  # a fetch, so that what follows it can be fetched again
    consumer._fetcher.PartitionRecords = _AsFetched
    return consumer


def connect_redis(config: Config) -> Client:
    """Connects to Redis; what only reads may be sent twice."""
    return connect(config.redis, retries=1)


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


def bounds_of(
    consumer: KafkaConsumer, topic: Sequence[TopicPartition]
) -> dict[TopicPartition, tuple[int, int]]:
    """Returns where the logs of some partitions begin and end.

    Raises:
        AuditError: one of them has no leader, or the brokers do not answer in time.
    """
    try:
        begins = consumer.beginning_offsets(topic, timeout_ms=_BOUNDS_MS)
        ends = consumer.end_offsets(topic, timeout_ms=_BOUNDS_MS)
    except KeyError as error:  # what the client leaves out it then looks for
        (tp,) = error.args
        raise AuditError(f"{tp.topic}-{tp.partition}: it has no leader now; audit once it has one") from None
    except KafkaTimeoutError:  # none of them has one, or no broker answers
        said = ", ".join(f"{tp.topic}-{tp.partition}" for tp in topic)
        raise AuditError(
            f"{said}: no broker says in {_BOUNDS_MS // 1000} s where they begin and end"
        ) from None
    return {tp: (begins[tp], ends[tp]) for tp in topic}


_TOGETHER = """
local found = {redis.call('HGETALL', KEYS[1])}
for i = 2, #KEYS do
  found[i] = redis.call('GET', KEYS[i])
end
return found
"""
"""A script that reads a hash and strings as they stand together. KEYS: the hash, then the strings."""


def cut_of(client: Client, prefix: str) -> StoredCut:
    """Reads a partition's metadata and the blobs that they name, in one script."""
    together = Script(client, _TOGETHER)
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


@dataclass(frozen=True)
class _Fetched:
    """What one fetch brought of one partition: record batches as they came, and the aborted transactions among them."""

    start: int
    data: bytes
    offset: int
    """What the client takes for this one's offset: the last one of the batches."""
    aborted: list[tuple[int, int]]


class _AsFetched(Fetcher.PartitionRecords):  # type: ignore[misc]  # kafka-python carries no types
    """In the place of the client's own decoding: a fetch is one item, its bytes; nothing here may raise."""

    def _unpack_records(self, _tp: Any, records: Any, *_deserializers: Any) -> Iterator[_Fetched]:
        data = bytes(records._buffer)
        size, end = batches.reach(data)
        if size:
            self.bytes_read = size  # or else the client asks for this partition first, again and again
            self.next_fetch_offset = max(end, self.fetch_offset)
            aborted = [(said.producer_id, said.first_offset) for said in self.aborted_transactions]
            yield _Fetched(self.fetch_offset, data[:size], max(end - 1, self.fetch_offset), aborted)
        self.drain()


def read(
    consumer: KafkaConsumer,
    tp: TopicPartition,
    on_advance: Callable[[int], None],
    begin: int,
    end: int,
    caps: Caps,
) -> Iterator[Records | Deleted]:
    """Yields the committed records of [begin, end), and which offsets are deleted meanwhile.

    A batch whose checksum is wrong is fetched a second time; one that comes with the same bytes again was written so.

    Args:
        consumer: from `connect_log`.
        tp: whose log.
        on_advance: told the offset that is reached.
        begin: the first offset.
        end: the one behind the last.
        caps: how many bytes a batch may have after decompression; see `worker.audit.batches.read`.
    """
    seen = set[bytes]()
    for item in _polled(consumer, tp, on_advance, begin, end):
        if isinstance(item, Deleted):
            yield item
            continue
        found = batches.whole(item.data)
        if suspects := {batch.data for batch in found if batch.corrupt} - seen:
            seen |= suspects
            consumer.seek(tp, item.start)
            continue
        yield from batches.read(found, item.start, end, item.aborted, caps)


def _polled(
    consumer: KafkaConsumer, tp: TopicPartition, on_advance: Callable[[int], None], begin: int, end: int
) -> Iterator[Any]:
    """Yields what is polled of [begin, end), until its end is reached.

    Where records are deleted while they are read, it says which offsets and goes on behind them.
    """
    consumer.assign([tp])
    consumer.seek(tp, begin)
    position, moved = begin, time.monotonic()
    while position < end:
        try:
            polled = consumer.poll(timeout_ms=500).get(tp, ())
        except OffsetOutOfRangeError:
            first, _ = bounds_of(consumer, [tp])[tp]
            if first <= position:
                said = (
                    f"{tp.topic}-{tp.partition}: the log now ends before offset {position}: it was truncated"
                )
                raise AuditError(said) from None
            yield Deleted((position, min(first, end)))
            consumer.seek(tp, first)
            position, moved = first, time.monotonic()
            continue
        yield from polled
        if (now := consumer.position(tp)) > position:
            position, moved = now, time.monotonic()
            on_advance(min(position, end))
        elif time.monotonic() - moved > _STALL_SECONDS:
            raise AuditError(
                f"{tp.topic}-{tp.partition}: no progress at offset {position} in {_STALL_SECONDS:.0f} s"
            )


def topic_id(settings: dict[str, Any], topic: str) -> str:
    """Returns the id of a topic that exists, another one if it was deleted and made anew."""
    with closing(KafkaAdminClient(**settings)) as admin:
        (found,) = admin.describe_topics([topic])
    return str(found["topic_id"])


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


def newest_head(consumer: KafkaConsumer, topic: str, stream: str) -> tuple[dict[str, Any], int]:
    """Returns the head of the newest snapshot of a stream and its offset; an empty document if there is none."""
    if not consumer.partitions_for_topic(topic):
        return {}, 0
    tp = TopicPartition(topic, 0)
    (first, end), step = bounds_of(consumer, [tp])[tp], 100
    while first < end:
        begin = max(first, end - step)
        newest = None
        for record in _polled(consumer, tp, lambda _: None, begin, end):
            if (
                not isinstance(record, Deleted)
                and record.offset < end
                and record.key == f"{stream}/head".encode()
            ):
                newest = record
        if newest is not None:
            return dict(json.loads(newest.value)) if newest.value else {}, newest.offset
        end, step = begin, 2 * step
    return {}, 0


def published(consumer: KafkaConsumer, topic: str, stream: str, begin: int = 0) -> Iterator[Message]:
    """Yields the messages of a stream on the snapshot topic, from an offset on up to its end."""
    if not consumer.partitions_for_topic(topic):
        return
    tp = TopicPartition(topic, 0)
    first, end = bounds_of(consumer, [tp])[tp]
    for record in _polled(consumer, tp, lambda _: None, max(begin, first), end):
        if isinstance(record, Deleted) or record.offset >= end or record.key is None:
            continue
        owner, _, key = record.key.decode(errors="replace").partition("/")
        if owner == stream:
            yield Message(key, dict(record.headers), record.value or b"")


def rows(consumer: KafkaConsumer, topic: str, stream: str) -> dict[bytes, bytes]:
    """Returns the rows of a stream on the topic of rows: the newest of each key, up to its end."""
    if not consumer.partitions_for_topic(topic):
        return {}
    tp, begins = TopicPartition(topic, 0), json.dumps({"stream": stream}, separators=(",", ":"))[:-1] + ","
    first, end = bounds_of(consumer, [tp])[tp]
    found: dict[bytes, bytes] = {}
    for record in _polled(consumer, tp, lambda _: None, first, end):
        if isinstance(record, Deleted) or record.offset >= end or record.key is None:
            continue
        if record.key.startswith(begins.encode()):
            found[record.key] = record.value or b""
    return {key: value for key, value in found.items() if value}
