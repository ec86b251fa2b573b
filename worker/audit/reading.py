"""Reads Kafka and Redis: log, group, snapshots, rows, and stored counts."""

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
from redis import ResponseError

from worker.audit import batches
from worker.audit.errors import AuditError, Difference
from worker.audit.heads import Head
from worker.audit.records import Caps, Deleted, Records
from worker.audit.snapshots import UNREADABLE, Message
from worker.audit.stored import StoredCut
from worker.config import Config
from worker.login import Tokens
from worker.redis.connecting import Client, connect
from worker.redis.script import Script

AbstractTokenProvider.register(Tokens)  # the client requires it of token providers
_STALL_SECONDS = 60.0
_COORDINATOR_SECONDS = 10.0
_BOUNDS_MS = 30_000
_LARGEST = 64 << 20  # Maximum bytes of a decompressed batch on the topics of snapshots and rows
_OF_HEADS = {"schema", "stream", "fingerprint", "window", "complete", "gaps"}
"""Required fields of a head, in addition to those that `Head.of` reads."""


def connect_kafka(config: Config) -> KafkaConsumer:
    """Connects a consumer that has no group and polls undecoded batches.

    Its attribute `nothing` maps each partition whose last fetch was empty to (fetched offset, last stable offset).
    """
    consumer = KafkaConsumer(
        **config.kafka.client(),
        max_poll_records=1,  # one fetch per poll, so that it can be repeated
        enable_incremental_fetch_sessions=False,  # a session omits partitions without new records
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="none",
        isolation_level="read_committed",
        allow_auto_create_topics=False,
        max_partition_fetch_bytes=8 << 20,
    )
    consumer.nothing = {}
    consumer._fetcher.PartitionRecords = _AsFetched
    parse = consumer._fetcher._parse_fetched_data

    def parse_noting(fetch: Any) -> Any:
        parsed, answer = parse(fetch), fetch.partition_data
        consumer.nothing.pop(fetch.topic_partition, None)
        if parsed is not None and not answer.records:
            consumer.nothing[fetch.topic_partition] = fetch.fetched_offset, answer.last_stable_offset
        return parsed

    consumer._fetcher._parse_fetched_data = parse_noting
    return consumer


def connect_redis(config: Config) -> Client:
    """Connects to Redis; retries a command once, which is safe for reads."""
    return connect(config.redis, retries=1)


def partitions_of(consumer: KafkaConsumer, topic: str, config: Config) -> list[TopicPartition]:
    """Returns a topic's partitions; raises `AuditError` if there is no topic."""
    numbers = consumer.partitions_for_topic(topic)
    if not numbers:
        raise AuditError(
            f"topic {topic!r}: missing at {', '.join(config.kafka.bootstrap_servers)};"
            " ldp-worker create-topics creates missing topics"
        )
    return [TopicPartition(topic, number) for number in sorted(numbers)]


def bounds_of(
    consumer: KafkaConsumer, topic: Sequence[TopicPartition]
) -> dict[TopicPartition, tuple[int, int]]:
    """Returns the first and the last stable offset of each partition.

    Raises `AuditError` if no broker returns the offsets.
    """
    try:
        begins = consumer.beginning_offsets(topic, timeout_ms=_BOUNDS_MS)
        ends = consumer.end_offsets(topic, timeout_ms=_BOUNDS_MS)
    except KeyError as error:  # the client looks up a partition that its answer lacks
        (tp,) = error.args
        raise AuditError(f"{tp.topic}-{tp.partition}: no leader; audit again once it has one") from None
    except KafkaTimeoutError:
        names = ", ".join(f"{tp.topic}-{tp.partition}" for tp in topic)
        raise AuditError(
            f"{names}: no broker returned the first and last offsets in {_BOUNDS_MS // 1000} s"
        ) from None
    return {tp: (begins[tp], ends[tp]) for tp in topic}


_TOGETHER = """
local found = {redis.call('HGETALL', KEYS[1])}
for i = 2, #KEYS do
  found[i] = redis.call('GET', KEYS[i])
end
return found
"""


def cut_of(client: Client, prefix: str) -> StoredCut:
    """Reads a partition's metadata and blobs atomically in one script.

    Raises `Difference` if a key has an unexpected type.
    """
    together = Script(client, _TOGETHER)
    names = ["all"]
    while True:
        try:
            flat, *blobs = together(keys=[f"{prefix}meta", *(f"{prefix}window:{name}" for name in names)])
        except ResponseError as error:
            if "WRONGTYPE" not in str(error):
                raise
            raise Difference(f"a key in Redis has another type than the worker wrote: {error}") from None
        texts = [item.decode(errors="replace") for item in flat]
        fields = dict(zip(texts[::2], texts[1::2], strict=True))
        try:
            named = sorted(json.loads(fields["blobs"])) or ["all"]
        except (KeyError, ValueError, TypeError, RecursionError):
            named = ["all"]  # names are missing or damaged, which `decode` reports
        if names == named:
            return fields, dict(zip(names, blobs, strict=True))
        names = named


@dataclass(frozen=True)
class _Fetched:
    start: int
    data: bytes
    offset: int  # last offset; the client continues after it
    aborted: list[tuple[int, int]]  # transactions


class _AsFetched(Fetcher.PartitionRecords):  # type: ignore[misc]  # kafka-python carries no types
    """Yields each fetch as one undecoded item; must not raise."""

    def _unpack_records(self, _tp: Any, records: Any, *_deserializers: Any) -> Iterator[_Fetched]:
        data = bytes(records._buffer)
        size, end = batches.reach(data)
        if size:
            self.bytes_read = size  # else the client keeps fetching this partition first
            self.next_fetch_offset = max(end, self.fetch_offset)
            aborted = [(one.producer_id, one.first_offset) for one in self.aborted_transactions]
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
    """Yields the committed records of [begin, end), and deleted ranges.

    A batch with a wrong checksum is fetched again. If the second fetch returns the same bytes, the batch is damaged in
    the log.
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
    """Yields fetches of [begin, end), and ranges deleted during the read."""
    # An empty fetch with a last stable offset of at least `end` is also the end: compaction may have removed a
    # control batch there.
    consumer.assign([tp])
    consumer.seek(tp, begin)
    position, moved = begin, time.monotonic()
    while position < end:
        try:
            polled = consumer.poll(timeout_ms=500).get(tp, ())
        except OffsetOutOfRangeError:
            first, _ = bounds_of(consumer, [tp])[tp]
            if first <= position:
                raise AuditError(
                    f"{tp.topic}-{tp.partition}: the log now ends before offset {position}; it was truncated"
                ) from None
            yield Deleted((position, min(first, end)))
            consumer.seek(tp, first)
            position, moved = first, time.monotonic()
            continue
        yield from polled
        if (now := consumer.position(tp)) > position:
            position, moved = now, time.monotonic()
            on_advance(min(position, end))
            continue
        at, stable = consumer.nothing.get(tp, (-1, -1))
        if at == position and stable >= end:
            on_advance(end)
            return
        if time.monotonic() - moved > _STALL_SECONDS:
            raise AuditError(
                f"{tp.topic}-{tp.partition}: no progress at offset {position} in {_STALL_SECONDS:.0f} s"
            )


def topic_id(settings: dict[str, Any], topic: str) -> str:
    """Returns Kafka's id of a topic; a recreated topic has another id."""
    with closing(KafkaAdminClient(**settings)) as admin:
        (found,) = admin.describe_topics([topic])
    return str(found["topic_id"])


def committed(settings: dict[str, Any], group: str, topic: str) -> dict[int, tuple[int, str]]:
    """Returns the group's (offset, metadata) for each partition of a topic."""
    deadline = time.monotonic() + _COORDINATOR_SECONDS
    with closing(KafkaAdminClient(**settings)) as admin:
        while True:
            try:
                offsets = admin.list_group_offsets({group: None})[group]
                break
            except RetriableError:  # the coordinator is starting
                if time.monotonic() >= deadline:
                    raise
                time.sleep(0.2)
    return {tp.partition: (one.offset, one.metadata) for tp, one in offsets.items() if tp.topic == topic}


def newest_head(consumer: KafkaConsumer, topic: str, stream: str) -> tuple[dict[str, Any], int]:
    """Returns the newest head and its offset, or ({}, 0) without a head."""
    found: tuple[dict[str, Any], int] = {}, 0
    for offset, message in _messages(consumer, topic, stream, 0, lambda _: None):
        if message.key == "head" and not message.part:
            found = json.loads(message.value or b"{}"), offset
    return found


def published(
    consumer: KafkaConsumer,
    topic: str,
    stream: str,
    begin: int = 0,
    on_passed: Callable[[str], object] = lambda _: None,
) -> Iterator[Message]:
    """Yields a stream's messages; calls `on_passed` for each invalid head."""
    for _, message in _messages(consumer, topic, stream, begin, on_passed):
        yield message


def _messages(
    consumer: KafkaConsumer, topic: str, stream: str, begin: int, on_passed: Callable[[str], object]
) -> Iterator[tuple[int, Message]]:
    for offset, key, value, headers in _keyed(consumer, topic, begin, stream.encode()):
        part, slash, name = key[len(stream) :].decode(errors="replace").partition("/")
        if not slash or (part and part[0] not in "@:"):
            continue  # another stream, whose name is longer
        if name == "head" and value:
            try:
                document = json.loads(value)
                Head.of(document)
                if missing := sorted(_OF_HEADS - document.keys()):
                    raise ValueError(f"{missing[0]} is missing")
                if document["stream"] != f"{stream}{part}":
                    raise ValueError(f"the stream is {document['stream']!r}")
            except UNREADABLE as error:
                at = f"topic {topic}, partition 0, offset {offset}"
                on_passed(f"skipped the invalid head at {at} ({type(error).__name__}: {error})")
                continue
        yield offset, Message(name, headers, value or b"", part)


def rows(consumer: KafkaConsumer, topic: str, stream: str) -> dict[bytes, bytes]:
    """Returns the newest row of each key of a stream."""
    prefix = json.dumps({"stream": stream}, separators=(",", ":"))[:-1] + ","
    found = {key: value for _, key, value, _ in _keyed(consumer, topic, 0, prefix.encode())}
    return {key: value for key, value in found.items() if value}


def _keyed(consumer: KafkaConsumer, topic: str, begin: int, prefix: bytes) -> Iterator[batches.Keyed]:
    """Yields records whose key begins with `prefix`; skips unreadable batches."""
    if not consumer.partitions_for_topic(topic):
        return
    tp = TopicPartition(topic, 0)
    first, end = bounds_of(consumer, [tp])[tp]
    for item in read(consumer, tp, lambda _: None, max(begin, first), end, [(0, _LARGEST)]):
        if not isinstance(item, Deleted):
            yield from batches.keyed(item, prefix)
