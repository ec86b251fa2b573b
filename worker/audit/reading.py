"""The reading of Kafka and Redis: the log's records, what the group and the newest snapshot say, a partition's cut."""

import contextlib
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

AbstractTokenProvider.register(Tokens)  # what the client demands of whoever gives it tokens
_STALL_SECONDS = 60.0
_COORDINATOR_SECONDS = 10.0
_BOUNDS_MS = 30_000
_LARGEST = 64 << 20
"""Bytes of a record batch on the topics of snapshots and rows after decompression: no producer of ours sends more."""

_SAID = {"schema", "stream", "fingerprint", "window", "complete", "gaps"}
"""What every head says, in addition to what `Head.of` reads."""


def connect_kafka(config: Config) -> KafkaConsumer:
    """Connects a consumer that reads what is committed and neither joins a group nor makes up for lost offsets.

    What it polls are record batches as they were fetched. Its `nothing` says of each partition whose last fetch brought
    nothing at which offset that was, and the last stable offset that the broker named with it.
    """
    consumer = KafkaConsumer(
        **config.kafka.client(),
        max_poll_records=1,  # a fetch, so that what follows it can be fetched again
        enable_incremental_fetch_sessions=False,  # in one a broker leaves out of whom it has nothing new
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
        parsed, said = parse(fetch), fetch.partition_data
        consumer.nothing.pop(fetch.topic_partition, None)
        if parsed is not None and not said.records:
            consumer.nothing[fetch.topic_partition] = fetch.fetched_offset, said.last_stable_offset
        return parsed

    consumer._fetcher._parse_fetched_data = parse_noting
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
    """Reads a partition's metadata and the blobs that they name, in one script.

    Raises:
        Difference: a key is neither missing nor of the type that is due.
    """
    together = Script(client, _TOGETHER)
    names = ["all"]
    while True:
        try:
            flat, *blobs = together(keys=[f"{prefix}meta", *(f"{prefix}window:{name}" for name in names)])
        except ResponseError as error:
            if "WRONGTYPE" not in str(error):
                raise
            raise Difference(f"a key in Redis is of another type than was written: {error}") from None
        said = [item.decode(errors="replace") for item in flat]
        fields = dict(zip(said[::2], said[1::2], strict=True))
        try:
            named = sorted(json.loads(fields["blobs"])) or ["all"]
        except (KeyError, ValueError, TypeError, RecursionError):
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
        consumer: from `connect_kafka`.
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
    """Yields what is polled of [begin, end), until its end is reached, or nothing more comes below it.

    Nothing more comes where a fetch at the position brought nothing and the last stable offset is not below the end:
    the last batch may be a control batch that compaction has removed.

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
        elif _is_nothing_left(consumer.nothing.get(tp, (-1, -1)), position, end):
            on_advance(end)
            return
        elif time.monotonic() - moved > _STALL_SECONDS:
            raise AuditError(
                f"{tp.topic}-{tp.partition}: no progress at offset {position} in {_STALL_SECONDS:.0f} s"
            )


def _is_nothing_left(nothing: tuple[int, int], position: int, end: int) -> bool:
    """Returns whether a fetch at the position brought nothing, though all up to the end could have come."""
    at, stable = nothing
    return at == position and stable >= end


def topic_id(settings: dict[str, Any], topic: str) -> str:
    """Returns the id of a topic that exists, another one if it was deleted and made anew."""
    with closing(KafkaAdminClient(**settings)) as admin:
        (found,) = admin.describe_topics([topic])
    return str(found["topic_id"])


def committed(settings: dict[str, Any], group: str, topic: str) -> dict[int, tuple[int, str]]:
    """Returns the offsets that a group has committed for a topic, each with its metadata."""
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
    return {tp.partition: (one.offset, one.metadata) for tp, one in offsets.items() if tp.topic == topic}


def newest_head(consumer: KafkaConsumer, topic: str, stream: str) -> tuple[dict[str, Any], int]:
    """Returns the newest head of a stream and its offset; an empty document if there is none.

    A record of its key that is no head is passed over, as `published` does.
    """
    if not consumer.partitions_for_topic(topic):
        return {}, 0
    tp, key = TopicPartition(topic, 0), f"{stream}/head".encode()
    (first, end), step = bounds_of(consumer, [tp])[tp], 100
    while first < end:
        begin = max(first, end - step)
        newest = None
        for offset, found, value, _ in _keyed(consumer, tp, begin, end, key):
            with contextlib.suppress(*UNREADABLE):
                if found == key:
                    newest = _head(value, stream), offset
        if newest is not None:
            return newest
        end, step = begin, 2 * step
    return {}, 0


def _head(value: bytes | None, stream: str) -> dict[str, Any]:
    """Returns the document of a stream's head, an empty one for a tombstone.

    Raises:
        UNREADABLE: it is no head.
    """
    if not value:
        return {}
    document = json.loads(value)
    Head.of(document)
    if missing := sorted(_SAID - document.keys()):
        raise ValueError(f"it says no {missing[0]}")
    if document["stream"] != stream:
        raise ValueError(f"it is of stream {document['stream']!r}")
    return dict(document)


def published(
    consumer: KafkaConsumer,
    topic: str,
    stream: str,
    begin: int = 0,
    on_passed: Callable[[str], object] = lambda _: None,
) -> Iterator[Message]:
    """Yields the messages of a stream on the snapshot topic, from an offset on up to its end.

    A record of the head's key that is no head was not published by a worker: it is passed over and named.
    """
    if not consumer.partitions_for_topic(topic):
        return
    tp, prefix = TopicPartition(topic, 0), f"{stream}/".encode()
    first, end = bounds_of(consumer, [tp])[tp]
    for offset, key, value, headers in _keyed(consumer, tp, max(begin, first), end, prefix):
        name = key[len(prefix) :].decode(errors="replace")
        if name == "head":
            try:
                _head(value, stream)
            except UNREADABLE as error:
                at = f"topic {topic}, partition 0, offset {offset}"
                on_passed(f"{at} is passed over (no head: {type(error).__name__}: {error})")
                continue
        yield Message(name, headers, value or b"")


def rows(consumer: KafkaConsumer, topic: str, stream: str) -> dict[bytes, bytes]:
    """Returns the rows of a stream on the topic of rows: the newest of each key, up to its end."""
    if not consumer.partitions_for_topic(topic):
        return {}
    tp, begins = TopicPartition(topic, 0), json.dumps({"stream": stream}, separators=(",", ":"))[:-1] + ","
    first, end = bounds_of(consumer, [tp])[tp]
    found = {key: value or b"" for _, key, value, _ in _keyed(consumer, tp, first, end, begins.encode())}
    return {key: value for key, value in found.items() if value}


def _keyed(
    consumer: KafkaConsumer, tp: TopicPartition, begin: int, end: int, prefix: bytes
) -> Iterator[batches.Keyed]:
    """Yields the committed records of [begin, end) whose key starts with a prefix, past what cannot be read."""
    for item in read(consumer, tp, lambda _: None, begin, end, [(0, _LARGEST)]):
        if not isinstance(item, Deleted):
            yield from batches.keyed(item, prefix)
