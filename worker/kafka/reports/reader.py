"""The newest reports of a stream, judged as the worker would judge them: for who is told what it would reject.

Their topic is open to whoever sends, so its record batches are decoded as the worker decodes them: within a cap, and
each with an outcome. Nothing of what a record holds is kept.
"""

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaTimeoutError

from worker.config import Config, Served
from worker.counting import rejections
from worker.kafka.client import quirks, raw_fetch
from worker.kafka.client.newest import MOST
from worker.kafka.decoding.records import Arena, Reader

_FIRST = 4
"""Offsets of a partition that are read first, to learn how large a record is."""
_BYTES = 16 << 20
"""Bytes that are fetched of a topic, but for the first of each partition."""
_FETCH_BYTES = 1 << 20
_SECONDS = 10.0


@dataclass
class Judged:
    """What was found of the newest records of a topic.

    Attributes:
        records: how many were looked at; a record batch that cannot be read is one.
        keyed: how many of them have a key or headers.
        reasons: how many would be rejected, by reason.
        oldest: the lowest of their timestamps, in milliseconds; None if none has one.
    """

    records: int = 0
    keyed: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    oldest: int | None = None

    def age(self, timestamps: Iterable[int]) -> None:
        """Takes timestamps into account; a negative one is none."""
        known = [time for time in timestamps if time >= 0]
        self.oldest = min([*known, *([] if self.oldest is None else [self.oldest])], default=None)


def newest_reports(config: Config, served: Served) -> Judged:
    """Judges about the newest `MOST` records of each partition, fewer where they are large or do not come in time.

    Args:
        config: where the brokers are.
        served: the stream; its topic exists.

    Raises:
        kafka.errors.KafkaError: the brokers do not answer.
    """
    with closing(_connect(config)) as consumer:
        raw_fetch.install(consumer)
        partitions = [
            TopicPartition(served.topic, p) for p in consumer.partitions_for_topic(served.topic) or ()
        ]
        bounds = quirks.whole_bounds(consumer, partitions, round(1000 * _SECONDS))
        reading = _Reading(consumer, served, time.monotonic() + _SECONDS)
        last = {tp: (max(first, end - _FIRST), end) for tp, (first, end) in bounds.items()}
        sizes = reading.read(last, 1 << 62)
        if missing := sorted(tp.partition for tp in last.keys() - sizes.keys()):
            raise KafkaTimeoutError(
                f"topic {served.topic}, partition {', '.join(map(str, missing))}: no records in {_SECONDS:g} s"
            )
        room = _BYTES // max(1, len(partitions))
        before = {}
        for tp, size in sizes.items():
            more = min(MOST - _FIRST, room * _FIRST // max(1, 2 * size))  # older ones may be larger
            before[tp] = (max(bounds[tp][0], last[tp][0] - more), last[tp][0])
        reading.read(before, room)
    return reading.judged


def _connect(config: Config) -> KafkaConsumer:
    """Connects a consumer that reads what is committed, joins no group and commits nothing."""
    quirks.mend_connections()
    return KafkaConsumer(
        **config.kafka.client(),
        fetch_max_bytes=_FETCH_BYTES,
        max_partition_fetch_bytes=_FETCH_BYTES,
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="earliest",  # where retention passes meanwhile
        isolation_level="read_committed",
        allow_auto_create_topics=False,
    )


class _Reading:
    """Reads chunks of partitions, and judges what is in them."""

    def __init__(self, consumer: KafkaConsumer, served: Served, deadline: float) -> None:
        self._consumer, self._served, self._deadline = consumer, served, deadline
        self._arena = Arena()
        self.judged = Judged()

    def read(self, wanted: Mapping[TopicPartition, tuple[int, int]], room: int) -> dict[TopicPartition, int]:
        """Judges chunks [from, to), of each partition until so many bytes are fetched.

        Returns:
            The bytes fetched of each partition that was read to its end in time.
        """
        consumer, sizes, done = self._consumer, dict.fromkeys(wanted, 0), dict[TopicPartition, int]()
        consumer.assign(list(wanted))
        consumer.resume(*wanted)
        for tp, (begin, _) in wanted.items():
            consumer.seek(tp, begin)
        while wanted and time.monotonic() < self._deadline:
            for tp, fetches in consumer.poll(timeout_ms=200).items():
                for fetched in fetches:
                    sizes[tp] += fetched.data.size
                    self._judge(fetched, wanted[tp][1])
            done |= {tp: sizes[tp] for tp, (_, end) in wanted.items() if consumer.position(tp) >= end}
            wanted = {tp: chunk for tp, chunk in wanted.items() if tp not in done and sizes[tp] <= room}
            consumer.pause(*(consumer.assignment() - wanted.keys()))
        return done

    def _judge(self, fetched: raw_fetch.Fetched, end: int) -> None:
        terms = self._served.configured.terms
        caps = [(0, terms.max_batch_bytes)]
        decoder = Reader(fetched.data, fetched.start, fetched.aborted, caps)
        while time.monotonic() < self._deadline and (chunk := decoder.read(self._arena)) is not None:
            unreadable = [bad for bad in chunk.unreadable if bad.offset < end]
            columns = chunk.columns.between(0, int((chunk.columns.offsets < end).sum()))
            self.judged.records += len(columns) + len(unreadable)
            self.judged.keyed += chunk.keyed
            self.judged.age(columns.timestamps.tolist())
            self.judged.reasons += rejections.reasons(self._served.stream, terms, columns, len(unreadable))
            if chunk.end >= end:
                behind = Reader(fetched.data, end, fetched.aborted, caps)
                self.judged.keyed += self._keyed(decoder) - self._keyed(behind)
                break

    def _keyed(self, decoder: Reader) -> int:
        """Counts the records with a key or headers in all that is left of a fetch."""
        return sum(chunk.keyed for chunk in iter(lambda: decoder.read(self._arena), None))
