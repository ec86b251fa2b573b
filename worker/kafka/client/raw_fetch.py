"""The raw fetch hook: where kafka-python makes objects of a fetch's records, its bytes are handed on as they came.

The library keeps sessions, groups, epochs, rebalances and positions; only what it calls ``PartitionRecords``, which
turns the bytes of one partition's fetch into records one by one, is replaced. That is a private name of one version of
the library: every command refuses another one.

What is replaced runs inside the library's poll, which an exception would leave in pieces: nothing here raises.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
from kafka import KafkaConsumer
from kafka.consumer.fetcher import Fetcher

from worker.kafka.decoding.batches import scan_headers

MOST_POLLED = 4 << 20
"""Bytes of decoded records after which a poll takes no more: it holds so many, and one record."""


@dataclass(frozen=True)
class Fetched:
    """What one fetch brought of one partition.

    Attributes:
        start: the offset that was asked for; the first batch may begin below it.
        end: the offset behind the last batch.
        data: whole record batches, uint8.
        aborted: (producer id, first offset) of each aborted transaction that it touches.
    """

    start: int
    end: int
    data: npt.NDArray[np.uint8]
    aborted: list[tuple[int, int]]

    @property
    def offset(self) -> int:
        """Returns what the library takes for this record's offset: it passes over those below the one it asked for."""
        return max(self.end - 1, self.start)


class _Bytes(Fetcher.PartitionRecords):  # type: ignore[misc]  # kafka-python carries no types
    """The records of one partition's fetch, as one `Fetched` or, of an empty one, as nothing."""

    def _unpack_records(self, _tp: Any, records: Any, *_deserializers: Any) -> Iterator[Any]:
        if (fetched := self._fetched(records)) is not None:
            self.next_fetch_offset = fetched.end
            yield fetched
        self.drain()

    def _fetched(self, records: Any) -> Fetched | None:
        """Returns what was fetched; None for nothing."""
        data = np.frombuffer(records._buffer, np.uint8)
        size, end, epoch = scan_headers(data)
        if not size:
            return None
        aborted = [(said.producer_id, said.first_offset) for said in self.aborted_transactions]
        self.bytes_read = size  # more than none: the next fetch begins with another partition
        self.leader_epoch = epoch
        return Fetched(self.fetch_offset, max(end, self.fetch_offset), data[:size], aborted)


Decode = Callable[[str, int, Fetched], Iterator[tuple[int, Any]]]
"""Given a topic, a partition and what was fetched: yields positions, each with the record before it or None.

A record has a ``size``: the bytes that it takes.
"""


class _Decoded(_Bytes):
    """The records of one partition's fetch, as a function decodes them.

    Where it is empty, the position moves to the offset below which the broker says that all could be read: none of the
    offsets before it has a record. Without that, a position never reaches the end of a log whose last batch compaction
    has removed.
    """

    is_full = False
    """Whether the last records that were taken have `MOST_POLLED` bytes."""
    bound = 0
    """The last stable offset that came with the fetch, or the high watermark for a reader of all that is written."""

    def __init__(self, decode: Decode, *given: Any, **named: Any) -> None:
        self._decode = decode
        super().__init__(*given, **named)

    def take(self, n: int | None = None) -> list[Any]:
        """Returns the next records: n, or fewer where these have many bytes."""
        taken, room = [], MOST_POLLED
        for record in islice(self.record_iterator, n):
            taken.append(record)
            room -= record.size
            if room <= 0:
                break
        self.is_full = room <= 0
        return taken

    def _unpack_records(self, tp: Any, records: Any, *_deserializers: Any) -> Iterator[Any]:
        if (fetched := self._fetched(records)) is None:
            self.next_fetch_offset = max(self.fetch_offset, self.bound)
        else:
            with contextlib.suppress(MemoryError):  # then it is fetched again
                for position, record in self._decode(tp.topic, tp.partition, fetched):
                    self.next_fetch_offset = position
                    if record is not None:
                        yield record
        self.drain()


def install(consumer: KafkaConsumer) -> None:
    """Has the `poll` of a consumer of what is committed return one `Fetched` for a fetch of a partition."""
    consumer._fetcher.PartitionRecords = _Bytes


def install_decoder(consumer: KafkaConsumer, decode: Decode) -> None:
    """Has the `poll` of a consumer return what a function makes of each fetch.

    The consumer has one partition assigned at a time, and no incremental fetch sessions: a broker leaves a partition
    without records out of an answer where the answer is full, or where the session has nothing new of it.

    Its attribute ``bound`` is the `_Decoded.bound` of the newest fetch that `poll` took records from.
    """
    fetcher = consumer._fetcher
    fetcher.PartitionRecords, parse = partial(_Decoded, decode), fetcher._parse_fetched_data
    append = fetcher._append
    committed = consumer.config["isolation_level"] == "read_committed"

    def parse_with_bound(fetch: Any) -> Any:
        if (parsed := parse(fetch)) is not None:
            data = fetch.partition_data
            parsed.bound = data.last_stable_offset if committed else data.high_watermark
            consumer.bound = parsed.bound
        return parsed

    def append_bounded(drained: Any, part: Any, most: int, update: bool) -> int:
        taken: int = append(drained, part, most, update)
        # as many as the poll may take end it
        return most if taken and part.is_full else taken

    fetcher._parse_fetched_data, fetcher._append = parse_with_bound, append_bounded
