"""The raw fetch hook: returns a fetch's bytes instead of kafka-python's record objects.

It replaces the library's private class ``PartitionRecords``, which decodes one partition's fetch. The library keeps
sessions, groups, epochs, rebalances and positions. The code runs inside the library's poll, so it never raises.
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

MOST_POLLED = 4 << 20  # Bytes of decoded records after which a poll ends


@dataclass(frozen=True)
class Fetched:
    """The bytes that one fetch returned for one partition."""

    start: int  # the fetch offset; the first batch may begin below it
    end: int  # the offset behind the last batch
    data: npt.NDArray[np.uint8]  # complete record batches, uint8
    aborted: list[tuple[int, int]]  # (producer id, first offset) of each aborted transaction in it

    @property
    def offset(self) -> int:
        """The offset as the library sees it: it skips records below the fetch offset."""
        return max(self.end - 1, self.start)


class _Bytes(Fetcher.PartitionRecords):  # type: ignore[misc]  # kafka-python carries no types
    """The records of one partition's fetch, as one `Fetched`; none if it is empty."""

    def _unpack_records(self, _tp: Any, records: Any, *_deserializers: Any) -> Iterator[Any]:
        if (fetched := self._fetched(records)) is not None:
            self.next_fetch_offset = fetched.end
            yield fetched
        self.drain()

    def _fetched(self, records: Any) -> Fetched | None:
        data = np.frombuffer(records._buffer, np.uint8)
        size, end, epoch = scan_headers(data)
        if not size:
            return None
        aborted = [(said.producer_id, said.first_offset) for said in self.aborted_transactions]
        self.bytes_read = size  # above 0: the next fetch begins with another partition
        self.leader_epoch = epoch
        return Fetched(self.fetch_offset, max(end, self.fetch_offset), data[:size], aborted)


Decode = Callable[[str, int, Fetched], Iterator[tuple[int, Any]]]
"""Yields the positions in a fetch of a topic's partition, each with the record before it or None.

A record has a ``size``, the bytes that it takes.
"""


class _Decoded(_Bytes):
    """The records of one partition's fetch, as a function decodes them.

    An empty fetch moves the position to the bound: else it would never reach the end of a log whose last batch
    compaction removed.
    """

    is_full = False  # Whether the last `take` reached `MOST_POLLED` bytes
    bound = 0  # The fetch's last stable offset; for `read_uncommitted` the high watermark

    def __init__(self, decode: Decode, *given: Any, **named: Any) -> None:
        self._decode = decode
        super().__init__(*given, **named)

    def take(self, n: int | None = None) -> list[Any]:
        """Returns the next n records, or fewer large ones."""
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
    """Makes a `read_committed` consumer's `poll` return one `Fetched` for a fetch of a partition."""
    consumer._fetcher.PartitionRecords = _Bytes


def install_decoder(consumer: KafkaConsumer, decode: Decode) -> None:
    """Makes a consumer's `poll` return the records that a function decodes.

    The consumer has one assigned partition and no incremental fetch sessions, in which a broker may leave out a
    partition. Its attribute ``bound`` is the `_Decoded.bound` of the newest fetch polled.
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
        # the poll's maximum ends it
        return most if taken and part.is_full else taken

    fetcher._parse_fetched_data, fetcher._append = parse_with_bound, append_bounded
