"""The snapshot topic: one transaction a snapshot, and the head read back from the topic's end.

All streams share a partition, so another stream's open transaction hides committed heads behind it from readers of
committed records: who starts to publish waits until everything below the topic's end is decided.
"""

import contextlib
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka import errors as kafka_errors
from kafka.admin import KafkaAdminClient, OffsetSpec
from kafka.protocol.consumer.offsets import IsolationLevel

import ldp
from ldp.snapshot import Message
from worker.counting.head import Head
from worker.counting.ports import StateLost, Unavailable
from worker.kafka import quirks

PARTITION = 0
"""All of a stream's snapshots go to this partition, so that a `read_committed` reader sees all of one or none."""

_TIMEOUT_SECONDS = 30
_LARGEST_REQUEST = 64 << 20
_CLAIM_SECONDS = 2.0
"""How long a claim waits until what is open now is decided: of many streams one is always publishing."""
_DECIDED_SECONDS = 0.05
"""How often is asked whether open transactions have ended."""


class KafkaOutbox:
    """The snapshot topic, as `worker.counting.ports.Outbox` describes it.

    Every send's own answer is checked before the commit; after any doubt the producer is thrown away and the head is
    read again.

    Args:
        settings: keyword arguments for every Kafka client.
        transactional_id: fences publishers of the same stream off each other.
        topic: the snapshot topic.
        stream: whose snapshots.
    """

    def __init__(
        self, settings: Mapping[str, Any], transactional_id: str, topic: str, stream: ldp.Stream
    ) -> None:
        self._settings, self._id, self._topic, self._stream = settings, transactional_id, topic, stream
        self._producer: Any = None

    def open(self) -> Head:
        """Starts a transactional producer, which ends any transaction of an older one, then reads the head back."""
        self.close()
        try:
            self._producer = KafkaProducer(
                **self._settings,
                client_id=f"ldp-worker-{self._id}-snapshots",
                transactional_id=self._id,
                transaction_timeout_ms=_TIMEOUT_SECONDS * 1000,
                delivery_timeout_ms=_TIMEOUT_SECONDS * 1000,
                request_timeout_ms=_TIMEOUT_SECONDS * 1000 // 2,
                max_block_ms=_TIMEOUT_SECONDS * 1000,
                compression_type="lz4",
                linger_ms=5,
                max_request_size=_LARGEST_REQUEST,
                allow_auto_create_topics=False,
            )
            self._producer.init_transactions()
            return self.head(decided=True, wait_seconds=_TIMEOUT_SECONDS)
        except Unavailable:
            self.close()
            raise
        except kafka_errors.KafkaError as error:
            self.close()
            raise Unavailable(f"Kafka: {type(error).__name__}: {error}") from error

    def publish(self, sequence: int, messages: Sequence[Message]) -> None:
        """Publishes all messages in one transaction, each one's acknowledgement checked before the commit."""
        try:
            parts = sum(bool(message.body) for message in messages)  # tombstones are none
            self._producer.begin_transaction()
            sent = [
                self._producer.send(
                    self._topic,
                    value=message.body or None,
                    key=message.key.encode(),
                    headers=message.headers(sequence, parts),
                    partition=PARTITION,
                )
                for message in messages
            ]
            quirks.commit_transaction(self._producer, sent, _TIMEOUT_SECONDS)
        except (kafka_errors.KafkaError, quirks.TOPIC_MISSING) as error:
            self.close()
            raise Unavailable(f"Kafka: {type(error).__name__}: {error}") from error

    def close(self) -> None:
        """Throws the producer away; the next one's start aborts what this one left open."""
        producer, self._producer = self._producer, None
        if producer is not None:
            quirks.drop(producer)

    def head(self, *, decided: bool, wait_seconds: float = _CLAIM_SECONDS) -> Head:
        """Reads the topic's newest head of the stream, from its end backwards in growing steps.

        Clients of its own do it, so any thread may ask.

        Args:
            decided: see `worker.counting.ports.Witness`.
            wait_seconds: how long to wait for that.

        Raises:
            Unavailable: see `worker.counting.ports.Witness`.
            StateLost: it is no head.
        """
        try:
            with contextlib.closing(KafkaAdminClient(**self._settings)) as admin:
                first, end = self._bounds(admin, decided=decided, wait_seconds=wait_seconds)
            level = "read_committed" if decided else "read_uncommitted"
            record = self._last(first, end, level) if first < end else None
        except kafka_errors.KafkaError as error:
            raise Unavailable(f"Kafka: {type(error).__name__}: {error}") from error
        if record is None or not record.value:  # deleted on purpose: the sequence begins anew
            return Head()
        try:
            return Head.parse(json.loads(record.value))
        except (ValueError, KeyError, TypeError) as error:
            if not decided:
                return self.head(decided=True)
            raise StateLost(
                f"topic {self._topic!r}: the head of stream {self._stream.name!r} at offset {record.offset} cannot be"
                f" read ({error!r}): another program wrote it, or a newer version"
            ) from None

    def _bounds(self, admin: KafkaAdminClient, *, decided: bool, wait_seconds: float) -> tuple[int, int]:
        """Returns the topic's first offset and its end, up to which all is decided if it is to be."""
        tp = TopicPartition(self._topic, PARTITION)

        def ask(spec: OffsetSpec, level: IsolationLevel) -> int:
            return int(admin.list_partition_offsets({tp: spec}, isolation_level=level)[tp].offset)

        first = ask(OffsetSpec.EARLIEST, IsolationLevel.READ_UNCOMMITTED)
        end = ask(OffsetSpec.LATEST, IsolationLevel.READ_UNCOMMITTED)
        deadline = time.monotonic() + wait_seconds
        while decided and (stable := ask(OffsetSpec.LATEST, IsolationLevel.READ_COMMITTED)) < end:
            if time.monotonic() >= deadline:
                raise Unavailable(
                    f"Kafka: topic {self._topic!r}: a transaction is open since offset {stable} of {end}; it ends by"
                    " itself, at the latest by its time-out"
                )
            time.sleep(_DECIDED_SECONDS)
        return first, end

    def _last(self, first: int, end: int, level: str) -> Any:
        """Returns the newest record of the stream's head in [first, end), or None."""
        consumer = KafkaConsumer(
            **self._settings,
            group_id=None,
            auto_offset_reset="none",
            enable_auto_commit=False,
            isolation_level=level,
            allow_auto_create_topics=False,
            max_partition_fetch_bytes=_LARGEST_REQUEST,
        )
        try:
            tp = TopicPartition(self._topic, PARTITION)
            consumer.assign([tp])
            key = f"{self._stream.name}/head".encode()
            step, upper = 64, end
            while upper > first:
                lower = max(first, upper - step)
                if (record := _newest(consumer, tp, lower, upper, key)) is not None:
                    return record
                upper, step = lower, 4 * step
            return None
        finally:
            consumer.close(autocommit=False)


def _newest(consumer: Any, tp: TopicPartition, lower: int, upper: int, key: bytes) -> Any:
    """Returns the last record with a key in [lower, upper), or None.

    Raises:
        KafkaTimeoutError: the records do not come.
    """
    consumer.seek(tp, lower)
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    newest = None
    while consumer.position(tp) < upper:
        if time.monotonic() > deadline:
            raise kafka_errors.KafkaTimeoutError(f"{tp}: records before offset {upper} do not come")
        for record in consumer.poll(100).get(tp, []):
            if record.key == key and record.offset < upper:
                newest = record
    return newest
