"""Snapshots out: a consistent cut of the store becomes one transaction on the snapshot topic.

What was published is itself the record of what was published: the head, a message of the same transaction, carries the
sequence and the offsets. A publisher that starts, or that is in any doubt, reads the head back and goes on from there.
Partitions do not depend on each other, so any set of per-partition states, each read in one step, is a consistent cut.
"""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka import errors as kafka_errors

import ldp
from ldp import snapshot
from ldp.snapshot import Cut, Message
from worker import layout
from worker.layout import Metadata, StateLost
from worker.metrics import Metrics
from worker.ownership import Loaded, Unavailable
from worker.partition import ALL
from worker.recommender import Recommender

PARTITION = 0
"""All of a stream's snapshots go to this partition, so that a `read_committed` reader sees all of one or none."""

_TIMEOUT_SECONDS = 30
_LARGEST_REQUEST = 64 << 20


@dataclass(frozen=True)
class Head:
    """The newest published snapshot: its number, its cut, its fingerprint; number 0 when there is none."""

    sequence: int
    offsets: Mapping[int, int]
    fingerprint: str

    def behind(self, offsets: Mapping[int, int]) -> bool:
        """Returns whether a cut is behind this head in any partition."""
        return any(offsets.get(partition, -1) < offset for partition, offset in self.offsets.items())


class Outbox(Protocol):
    """Where snapshots go, one whole snapshot or nothing at a time."""

    def open(self) -> Head:
        """Fences every older publisher of the stream off, and returns the head; publishing needs an open outbox."""

    def publish(self, sequence: int, messages: Sequence[Message]) -> None:
        """Publishes a snapshot as a whole; raises `Unavailable` if it may or may not have been published."""

    def close(self) -> None:
        """Lets go; an open transaction is aborted."""


class Cuts(Protocol):
    """Where cuts are read."""

    def peek(self, partition: int) -> Metadata | None:
        """Returns a partition's metadata, or None."""

    def cut(self, partition: int) -> Loaded | None:
        """Returns a partition's metadata and blobs as they stand together, or None."""


class Publisher:
    """Publishes one stream's snapshots while its worker owns partition 0.

    Args:
        stream: whose snapshots.
        cuts: where the counts are read.
        outbox: where the snapshots go.
        partitions: the topic's partitions, at the moment.
        epoch: the epoch under which this worker holds partition 0 as far as it knows, or None; safe from any thread.
        level: confidence level of Base's intervals.
        recommender: what knows the method for each query.
        metrics: where what happened is counted.
        report: called with an event's name and its facts.
    """

    def __init__(
        self,
        stream: ldp.Stream,
        cuts: Cuts,
        outbox: Outbox,
        partitions: Callable[[], Sequence[int]],
        epoch: Callable[[], int | None],
        level: float,
        recommender: Recommender,
        metrics: Metrics,
        report: Callable[..., object],
    ) -> None:
        self._stream, self._cuts, self._outbox, self._level = stream, cuts, outbox, level
        self._recommender = recommender
        self._partitions, self._epoch = partitions, epoch
        self._metrics, self._report = metrics, report
        self._head: Head | None = None

    def run(self, stopping: threading.Event, every: float, alive: Callable[[], object]) -> None:
        """Ticks until stopped, then once more, so that what was committed last is published, too.

        ``alive`` is called between ticks: committing a transaction can wait for ever, and a watchdog has to see that.
        """
        while not stopping.wait(every):
            self.tick()
            alive()
        self.tick()
        self._let_go()

    def tick(self) -> None:
        """Publishes a snapshot if there is something new to say and this worker is the one to say it.

        Raises:
            StateLost: the stored counts, or the snapshots already published, are of another stream.
        """
        name = self._stream.name
        try:
            owner = self._owns()
            self._metrics.publisher.labels(name).set(owner)
            if not owner:
                self._let_go()
                return
            if self._head is None:
                self._head = self._open()
            began = time.perf_counter()
            cut, counts, reports = self._read()
            if self._head.behind(cut.offsets):
                # the store went back: its owners notice, read the log again and catch up
                self._report("snapshot.behind", head=dict(self._head.offsets), cut=dict(cut.offsets))
                return
            if reports and dict(cut.offsets) != dict(self._head.offsets):
                self._publish(self._head.sequence + 1, cut, counts, reports)
                self._metrics.snapshot_seconds.labels(name).observe(time.perf_counter() - began)
            self._metrics.checked.labels(name).set_to_current_time()
        except Unavailable as error:
            self._metrics.errors.labels(name, "publish").inc()
            self._report("snapshot.retry", error=str(error))
            self._let_go()

    def _owns(self) -> bool:
        """Returns whether partition 0 is ours in the store, too: a fenced publisher must not fence its successor."""
        epoch = self._epoch()
        if epoch is None:
            return False
        metadata = self._cuts.peek(PARTITION)
        return metadata is not None and metadata.epoch == epoch

    def _open(self) -> Head:
        head = self._outbox.open()
        ours = self._stream.fingerprint.hex()
        if head.sequence and head.fingerprint != ours:
            raise StateLost(
                f"the snapshot topic has snapshots of a stream {self._stream.name!r} of fingerprint {head.fingerprint}"
                f"; this one's is {ours}. Give the stream another name."
            )
        self._report("publisher.opened", sequence=head.sequence)
        return head

    def _read(self) -> tuple[Cut, Any, int]:
        """Reads all partitions; returns the cut, the sum of their states and of their reports."""
        offsets, gaps = {}, {}
        total = self._stream.oracle.zeros()
        reports, lineages = 0, set()
        for partition in sorted(self._partitions()):
            loaded = self._cuts.cut(partition)
            if loaded is not None:
                lineages.add(loaded.metadata.lineage)
                if len(lineages) > 1:
                    raise StateLost(
                        f"the partitions of stream {self._stream.name!r} are counted as {sorted(lineages)}"
                    )
                state = layout.load(self._stream, loaded.metadata, loaded.blobs)
                offsets[partition], gaps[partition] = state.offset, state.gaps
                np.add(total, state.windows[ALL].state, out=total)
                reports += state.windows[ALL].reports
        return Cut(offsets, gaps), total, reports

    def _publish(self, sequence: int, cut: Cut, total: Any, reports: int) -> None:
        oracle, name = self._stream.oracle, self._stream.name
        estimate = oracle.estimate(oracle.support(total), reports)
        messages = snapshot.messages(
            self._stream, estimate, cut, sequence, self._level, recommended=self._recommender.latest
        )
        if not self._owns():
            return
        self._outbox.publish(sequence, messages)
        self._head = Head(sequence, cut.offsets, self._stream.fingerprint.hex())
        metrics = self._metrics
        metrics.snapshots.labels(name).inc()
        metrics.sequence.labels(name).set(sequence)
        metrics.snapshot_reports.labels(name).set(reports)
        metrics.complete.labels(name).set(cut.complete)
        metrics.std_error.labels(name).set(estimate.sigma)
        metrics.sum.labels(name).set(float(estimate.frequencies.sum()))
        for message in messages:
            if message.content_type == snapshot.JSON and message.key.startswith(f"{name}/{ALL}/"):
                body = json.loads(message.body)
                for query in body["queries"]:
                    metrics.query.labels(name, query["name"], body["method"]).set(query["frequency"])
        self._recommender.offer(sequence, estimate)
        self._report("snapshot.published", sequence=sequence, reports=reports, complete=cut.complete)

    def _let_go(self) -> None:
        self._head = None
        self._outbox.close()


class KafkaOutbox:
    """The snapshot topic, as `Outbox` describes it.

    `commit_transaction` of kafka-python can report success for a partial or aborted transaction; so every send's own
    answer is checked before the commit, and after any doubt the producer is thrown away and the head is read again.

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
            return self.head()
        except kafka_errors.KafkaError as error:
            self.close()
            raise Unavailable(f"Kafka: {type(error).__name__}: {error}") from error

    def publish(self, sequence: int, messages: Sequence[Message]) -> None:
        """Publishes all messages in one transaction, each one's acknowledgement checked before the commit."""
        try:
            self._producer.begin_transaction()
            futures = [
                self._producer.send(
                    self._topic,
                    value=message.body,
                    key=message.key.encode(),
                    headers=message.headers(sequence, len(messages)),
                    partition=PARTITION,
                )
                for message in messages
            ]
            self._producer.flush(_TIMEOUT_SECONDS)
            for future in futures:
                future.get(0)
            self._producer.commit_transaction()
        except (kafka_errors.KafkaError, ValueError) as error:  # ValueError: the topic is not there
            self.close()
            raise Unavailable(f"Kafka: {type(error).__name__}: {error}") from error

    def close(self) -> None:
        """Throws the producer away; the next one's start aborts what this one left open."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer._sender.force_close()  # `close` would wait for what is unsent, and raise without closing anything
            with contextlib.suppress(kafka_errors.KafkaTimeoutError):
                producer.close(timeout=0)

    def head(self) -> Head:
        """Reads the topic's newest committed head of the stream, from its end backwards in growing steps."""
        consumer = KafkaConsumer(
            **self._settings,
            group_id=None,
            auto_offset_reset="none",
            enable_auto_commit=False,
            isolation_level="read_committed",
            allow_auto_create_topics=False,
            max_partition_fetch_bytes=_LARGEST_REQUEST,
        )
        try:
            tp = TopicPartition(self._topic, PARTITION)
            consumer.assign([tp])
            first, end = consumer.beginning_offsets([tp])[tp], consumer.end_offsets([tp])[tp]
            key = f"{self._stream.name}/head".encode()
            step = 64
            upper = end
            while upper > first:
                lower = max(first, upper - step)
                if (head := _newest(consumer, tp, lower, upper, key)) is not None:
                    if not head.value:  # deleted on purpose: the sequence begins anew
                        break
                    body = json.loads(head.value)
                    offsets = {int(partition): offset for partition, offset in body["offsets"].items()}
                    return Head(body["sequence"], offsets, body["fingerprint"])
                upper, step = lower, 4 * step
            return Head(0, {}, "")
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
