"""Classifies the newest reports of a stream as the worker would, to show what it rejects.

It decodes record batches as the worker does, within its cap, and keeps no record contents.
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
"""Offsets of a partition that are read first, to estimate the record size."""
_BYTES = 16 << 20
"""Bytes of a topic, besides the first records of each partition."""
_FETCH_BYTES = 1 << 20
_SECONDS = 10.0


@dataclass
class Judged:
    """Counts over the newest records of a topic.

    Attributes:
        records: all; an unreadable record batch counts as one.
        keyed: those with a key or headers.
        reasons: rejected ones, by reason.
        oldest: the lowest timestamp, in milliseconds; None if none has one.
    """

    records: int = 0
    keyed: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    oldest: int | None = None

    def age(self, timestamps: Iterable[int]) -> None:
        """Adds timestamps; a negative one counts as missing."""
        known = [time for time in timestamps if time >= 0]
        self.oldest = min([*known, *([] if self.oldest is None else [self.oldest])], default=None)


def newest_reports(config: Config, served: Served) -> Judged:
    """Classifies about the newest `MOST` records of each partition; fewer if large or late.

    Args:
        config: the brokers.
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
    """Connects a `read_committed` consumer without a group."""
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
    """Reads and classifies ranges of partitions."""

    def __init__(self, consumer: KafkaConsumer, served: Served, deadline: float) -> None:
        self._consumer, self._served, self._deadline = consumer, served, deadline
        self._arena = Arena()
        self.judged = Judged()

    def read(self, wanted: Mapping[TopicPartition, tuple[int, int]], room: int) -> dict[TopicPartition, int]:
        """Classifies ranges [from, to), of each partition until so many bytes are fetched.

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
        """Counts the records with a key or headers in the rest of a fetch."""
        return sum(chunk.keyed for chunk in iter(lambda: decoder.read(self._arena), None))
