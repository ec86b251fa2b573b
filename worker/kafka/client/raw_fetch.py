"""Makes kafka-python return fetched bytes instead of decoded records.

It replaces the library's private class ``PartitionRecords``, which decodes one partition's fetch. The library still
manages sessions, groups, epochs, rebalances and positions. This code runs inside the library's poll, so it must not
raise.
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
    end: int  # the offset after the last batch
    data: npt.NDArray[np.uint8]  # complete record batches, uint8
    aborted: list[tuple[int, int]]  # (producer id, first offset) of each aborted transaction

    @property
    def offset(self) -> int:
        """Offset that the library compares with the fetch offset, to skip records."""
        return max(self.end - 1, self.start)


class _Bytes(Fetcher.PartitionRecords):  # type: ignore[misc]  # kafka-python carries no types
    """Yields a partition's fetch as one `Fetched`, or nothing if it is empty."""

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
        aborted = [(one.producer_id, one.first_offset) for one in self.aborted_transactions]
        self.bytes_read = size  # a value above 0 makes the next fetch begin with another partition
        self.leader_epoch = epoch
        return Fetched(self.fetch_offset, max(end, self.fetch_offset), data[:size], aborted)


Decode = Callable[[str, int, Fetched], Iterator[tuple[int, Any]]]
"""Function that decodes a partition's fetch to pairs (next position, record or None).

The attribute ``size`` of a record is its memory in bytes.
"""


class _Decoded(_Bytes):
    """Yields the records that a function decodes from one partition's fetch.

    An empty fetch moves the position to `bound`. Otherwise the position would never reach the end of a log if
    compaction removed the last batch.
    """

    is_full = False  # Whether the last `take` reached `MOST_POLLED` bytes
    bound = 0  # The fetch's last stable offset; for `read_uncommitted` the high watermark

    def __init__(self, decode: Decode, *given: Any, **named: Any) -> None:
        self._decode = decode
        super().__init__(*given, **named)

    def take(self, n: int | None = None) -> list[Any]:
        """Returns the next n records, or fewer if they are large."""
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
            with contextlib.suppress(MemoryError):  # the batch is fetched again
                for position, record in self._decode(tp.topic, tp.partition, fetched):
                    self.next_fetch_offset = position
                    if record is not None:
                        yield record
        self.drain()


def install(consumer: KafkaConsumer) -> None:
    """Makes a consumer's `poll` return each partition's fetch as a `Fetched`."""
    consumer._fetcher.PartitionRecords = _Bytes


def install_decoder(consumer: KafkaConsumer, decode: Decode) -> None:
    """Makes a consumer's `poll` return the records that a function decodes.

    The consumer must have one assigned partition. Incremental fetch sessions must be off, because a broker may leave
    out a partition in a session. After each fetch, the consumer's attribute ``bound`` is the fetch's `_Decoded.bound`.
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
        # returning the maximum ends the poll
        return most if taken and part.is_full else taken

    fetcher._parse_fetched_data, fetcher._append = parse_with_bound, append_bounded
