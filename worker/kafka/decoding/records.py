"""Decodes the record batches of a fetch to columns.

A record batch of magic 2 has big-endian numbers::

    0   base offset           8      27  base timestamp        8
    8   length from here on   4      35  max timestamp         8
    12  leader epoch          4      43  producer id           8
    16  magic                 1      51  producer epoch        2
    17  CRC-32C from 21 on    4      53  base sequence         4
    21  attributes            2      57  count of records      4
    23  last offset delta     4      61  records, compressed as one

Attributes: codec (bits 0-2), broker's time (bit 3), transactional (bit 4), control (bit 5). With the broker's time all
timestamps are the max timestamp. Otherwise a timestamp is the base timestamp plus a record's delta, modulo
2⁶⁴. A record has zigzag varints of at most 5 bytes and varlongs of at most 10 bytes::

    length varint, attributes 1 byte, timestamp delta varlong, offset delta varint,
    key length varint (-1: none), key, value length varint (-1: none), value,
    count of headers varint, and for each header: key length varint, key, value length varint (-1: none), value

**Outcome of a batch.** The first rule that matches decides. An unreadable batch is rejected completely, with the reason
in quotes. Its output takes no more memory than its cap.

1. Its length field is negative (the batch then takes all remaining bytes), or too small to reach the magic: "length".
2. Its magic is not 2: "magic". (Magic 0 and 1 are message sets from before Kafka 0.11.)
3. Its length field is below 49: "length".
4. Its checksum is wrong: "checksum".
5. Its last offset delta or its base offset is negative, or its base offset is above 2⁶³ − 1 − 2³¹: "length".
6. It is a control batch, or (if aborted transactions are left out) a transactional batch of an aborted transaction:
   skipped. An aborted transaction begins at the first offset that the broker returned, and ends with its producer's
   next abort marker. A marker is an uncompressed control batch. Its first record's key begins with a version (2 bytes,
   not negative) and the type 0 (2 bytes).
7. Its codec is above 4: "codec".
8. Its compressed bytes violate the format in `blocks` or `streams`: "codec". Its output exceeds the cap: "size".
9. Its records are invalid: "length". Valid records have the count in the header, and exactly fill the decompressed
   bytes. A record's fields exactly fill its length. No count or header key length is negative, and no varint has too
   many bits. Offset deltas ascend from at least 0 to at most the last offset delta.

A negative length of a key, a value or a header's value means null. Columns contain an empty value for null. A batch's
end is the offset after its base offset plus its last offset delta, but at most the base offset of a complete next
batch. The last offset delta counts as 0 if it is negative or missing, or if the magic is 0 or 1. Records below the
fetch offset or below the end of an earlier batch are left out. A batch that contains only such records is skipped.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import zstandard

from worker.counting.columns import Columns, Unreadable
from worker.kafka.decoding.batches import (
    CODEC,
    HEADER,
    LEAST_RECORD,
    ROW,
    State,
    classify,
    decode_records,
    pick,
    read_headers,
    scan_headers,
)
from worker.kafka.decoding.blocks import DAMAGED, FULL, GZIP, LZ4, SLACK, SNAPPY, ZSTD, unpack
from worker.kafka.decoding.crc32c import check
from worker.kafka.decoding.streams import unpack_gzip, unpack_zstd

__all__ = ["Arena", "Chunk", "Keyed", "Reader", "Record", "scan_headers", "warm"]

GROUP = 512 << 10  # Decompressed bytes after which a chunk ends

ROOM = 1 << 20  # Decompressed bytes that an arena holds

_GROWTH = 4
_ROWS = 4096
_PICKED = 256  # Matching records of one pass; more need a second pass
MOST_HEADERS = 64  # Most headers that are read from a record
MOST_HEADER_BYTES = 64 << 10  # Most bytes that are kept of a record's headers
MOST_KEY = 4096  # Longest key in bytes; the workers' keys are shorter
MOST_VALUE = (16 << 20) + 1  # Most bytes that are kept of a value: more than the parsers accept
_OVERHEAD = 256  # Approximate memory of a record without its fields
_NO_CAP = 2**63 - 1


class Arena:
    """Reusable arrays for chunks of up to 1 MiB, for one thread."""

    def __init__(self) -> None:
        self.zstd = zstandard.ZstdDecompressor()
        self.data = _data(ROOM)
        self.fields = _fields(ROOM)
        self.compressed: bool | None = None  # True after the first batch in Snappy or LZ4


@dataclass(frozen=True)
class Chunk:
    """A decoded part of a fetch."""

    end: int  # the offset after the chunk
    columns: Columns  # its records, valid until the next chunk is read into the arena
    unreadable: tuple[Unreadable, ...]
    with_key_or_headers: int  # the number of records with a key or headers


@dataclass(frozen=True)
class Record:
    """A record; the attributes are named as in kafka-python."""

    offset: int
    timestamp: int  # milliseconds since the epoch
    key: bytes | None
    value: bytes | None  # None for a tombstone; at most the first `MOST_VALUE` bytes
    raw_headers: bytes = b"\0"  # the encoded headers; at most the first `MOST_HEADER_BYTES`

    @property
    def size(self) -> int:
        """Approximate memory of the record, in bytes."""
        return _OVERHEAD + len(self.key or b"") + len(self.value or b"") + len(self.raw_headers)

    @property
    def headers(self) -> list[tuple[str, bytes | None]]:
        """The first `MOST_HEADERS` headers; invalid UTF-8 in names is escaped."""
        raw, found = self.raw_headers, list[tuple[str, bytes | None]]()
        n, at = _varint(raw, 0)
        with contextlib.suppress(IndexError):  # the bytes were cut at `MOST_HEADER_BYTES`
            for _ in range(min(n, MOST_HEADERS)):
                size, at = _varint(raw, at)
                name, at = raw[at : at + size].decode(errors="backslashreplace"), at + size
                size, at = _varint(raw, at)
                found.append((name, None if size < 0 else raw[at : at + size]))
                at += max(size, 0)
        return found


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while raw[at] & 0x80:
        number |= (raw[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
    number |= raw[at] << shift
    return number >> 1 ^ -(number & 1), at + 1


@dataclass(frozen=True)
class Keyed:
    """A part of a fetch, decoded to records with keys and headers."""

    start: int
    end: int  # the offset after the part
    records: Iterator[Record]  # valid until the next part is read
    long_keys: tuple[int, ...]  # offsets of left-out records, whose keys exceed `MOST_KEY` bytes
    unreadable: tuple[Unreadable, ...]  # see `Chunk`


class Reader:
    """Decodes a partition's fetch in parts, whose sizes do not affect results.

    Args:
        fetched: record batches, a (b,) uint8 array. A cut-off batch at the end is ignored.
        start: records below this offset are left out.
        aborted: (producer id, first offset) of each aborted transaction; None to read aborted records, too.
        caps: ascending (offset, cap), where a cap is the most bytes of a decompressed batch, or None. A batch has
            the last cap whose offset is not above its own. Batches below all offsets have the first cap.
    """

    def __init__(
        self,
        fetched: npt.NDArray[np.uint8],
        start: int,
        aborted: Sequence[tuple[int, int]] | None,
        caps: Sequence[tuple[int, int | None]],
    ) -> None:
        self._fetched = fetched.view()
        self._fetched.flags.writeable = False  # so that kernels are compiled for one array type
        self._at = 0
        self._position = start
        self._rows: Any = np.empty(min(_ROWS, 1 + fetched.size // HEADER), ROW)
        self._next = self._last = 0
        self._committed = aborted is not None
        begins = sorted(aborted or [], key=lambda transaction: transaction[1])
        self._aborted = np.array([first for _, first in begins], np.int64)
        self._producers, self._which = np.unique(
            np.array([producer for producer, _ in begins], np.int64), return_inverse=True
        )
        self._aborting = np.zeros(self._producers.size, np.bool_)
        self._begun = 0
        self._cap_offsets = np.array([offset for offset, _ in caps], np.int64)
        self._caps = np.array([_NO_CAP if cap is None else cap for _, cap in caps], np.int64)

    def read(self, arena: Arena) -> Chunk | None:
        """Decodes the next batches, up to about `GROUP` bytes; None at the end.

        Raises `MemoryError`: there is no memory for a batch. The call can be repeated.
        """
        if self._next == self._last and not self._scan():
            return None
        first = self._next
        data, fields, last = self._unpack(arena)
        m, with_key_or_headers = decode_records(data, self._rows, first, last, *fields)
        self._next = last
        rows = self._rows[first:last]
        offsets, timestamps, begins, ends = (field[:m] for field in fields)
        return Chunk(
            end=max(int(rows["start"][-1]), int(rows["end"][-1])),
            columns=Columns(offsets, timestamps, data, begins, ends),
            unreadable=tuple(self._unreadable(row) for row in rows[rows["state"] > State.PASSED]),
            with_key_or_headers=with_key_or_headers,
        )

    def read_keyed(self, arena: Arena, begins: npt.NDArray[np.uint8]) -> Keyed | None:
        """Decodes the records of the next batches that have a key prefix.

        `begins`: the prefix, a (k,) uint8 array; empty for all records. Limits and errors are those of `read`.
        """
        if self._next == self._last and not self._scan():
            return None
        first = self._next
        data, _, last = self._unpack(arena)
        picked = np.empty((_PICKED, 8), np.int64)
        if (m := pick(data, self._rows, first, last, begins, picked)) > _PICKED:
            picked = np.empty((m, 8), np.int64)
            pick(data, self._rows, first, last, begins, picked)
        picked, long_keys = _bounded(picked[:m])
        self._next = last
        rows = self._rows[first:last]
        return Keyed(
            start=int(rows["start"][0]),
            end=max(int(rows["start"][-1]), int(rows["end"][-1])),
            records=(_record(data, found) for found in picked),
            long_keys=long_keys,
            unreadable=tuple(self._unreadable(row) for row in rows[rows["state"] > State.PASSED]),
        )

    def _scan(self) -> bool:
        rows, fetched = self._rows, self._fetched
        n, self._at = read_headers(fetched, self._at, rows, self._cap_offsets, self._caps)
        check(fetched, rows, n)
        self._position, self._begun = classify(
            fetched,
            rows,
            n,
            self._position,
            self._committed,
            self._aborted,
            self._which,
            self._producers,
            self._aborting,
            self._begun,
        )
        self._next, self._last = 0, n
        return n > 0

    def _unpack(self, arena: Arena) -> tuple[npt.NDArray[np.uint8], tuple[npt.NDArray[np.int64], ...], int]:
        """Decompresses batches; returns data, column arrays and the next row."""
        rows, data, fields = self._rows, arena.data, arena.fields
        i, to, budget = self._next, 0, GROUP
        while True:
            i, to, budget = unpack(self._fetched, rows, i, self._last, data, to, budget, arena.compressed)
            if i == self._last or budget <= 0:
                break
            row, room = rows[i], data.size - SLACK - to
            if arena.compressed is None and row["attributes"] & CODEC in (SNAPPY, LZ4):
                arena.compressed = True
                continue
            most = min(int(row["cap"]), room)
            made = self._unpack_one(row, data[to : to + most + 1], arena)
            if made == FULL and most < row["cap"]:
                if to:
                    break  # the batch begins the next chunk
                data = _data(min(int(row["cap"]), _GROWTH * room))
                continue
            if made < 0:
                row["state"] = State.CODEC if made == DAMAGED else State.SIZE
                budget -= most
            else:
                row["begin"], row["stop"] = to, to + made
                budget -= max(made, int(row["size"]))  # reading the input takes time even without output
                to += made
            i += 1
        return data, fields if data is arena.data else _fields(to), i

    def _unpack_one(self, row: Any, room: npt.NDArray[np.uint8], arena: Arena) -> int:
        """Decompresses gzip or zstd to `room`; returns FULL for other codecs."""
        section = self._fetched[row["place"] + HEADER : row["place"] + row["size"]]
        codec = row["attributes"] & CODEC
        if codec == GZIP:
            return unpack_gzip(section, room)
        if codec == ZSTD:
            return unpack_zstd(section, room, arena.zstd)
        return FULL

    def _unreadable(self, row: Any) -> Unreadable:
        place, size = int(row["place"]), int(row["size"])
        return Unreadable(
            offset=int(row["base"]),
            end=int(row["end"]),
            size=size,
            sha256=hashlib.sha256(self._fetched[place : place + size].data).hexdigest(),
            why=State(int(row["state"])).name.lower(),
        )


def _bounded(picked: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], tuple[int, ...]]:
    """Truncates values and headers; separates the records with long keys."""
    np.minimum(picked[:, 5], picked[:, 4] + MOST_VALUE, out=picked[:, 5])
    np.minimum(picked[:, 7], picked[:, 6] + MOST_HEADER_BYTES, out=picked[:, 7])
    is_long = (picked[:, 2] >= 0) & (picked[:, 3] - picked[:, 2] > MOST_KEY)
    if not is_long.any():
        return picked, ()
    return picked[~is_long], tuple(picked[is_long, 0].tolist())


def _record(data: npt.NDArray[np.uint8], found: npt.NDArray[np.int64]) -> Record:
    offset, timestamp, key, key_end, value, value_end, headers, end = found.tolist()
    return Record(
        offset,
        timestamp,
        None if key < 0 else data[key:key_end].tobytes(),
        None if value < 0 else data[value:value_end].tobytes(),
        data[headers:end].tobytes(),
    )


def _data(room: int) -> npt.NDArray[np.uint8]:
    return np.empty(room + SLACK, np.uint8)


def _fields(room: int) -> tuple[npt.NDArray[np.int64], ...]:
    """Allocates columns for as many records as `room` bytes can hold."""
    return tuple(np.empty(room // LEAST_RECORD, np.int64) for _ in range(4))


def warm() -> None:
    """Compiles or loads the kernels of uncompressed and gzip batches.

    Example:
        >>> warm()
    """
    fetched = np.zeros(HEADER, np.uint8)
    fetched[11], fetched[16] = HEADER - 12, 2
    scan_headers(fetched)
    Reader(fetched, 0, [(1, 1)], [(0, None)]).read(Arena())
    Reader(fetched, 0, [(1, 1)], [(0, None)]).read_keyed(Arena(), fetched)


def warm_codecs() -> None:
    """Compiles or loads the kernels of compressed batches."""
    fetched, rows = np.zeros(HEADER, np.uint8), np.zeros(1, ROW)
    unpack(fetched, rows, 0, 0, fetched, 0, 0, True)
    unpack_zstd(fetched, fetched, zstandard.ZstdDecompressor())
