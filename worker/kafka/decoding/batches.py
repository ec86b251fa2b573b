"""Kernels over record batches: headers become rows, and records become columns.

They implement the layout in `records`, without codecs and checksums, in one file: that is why it is longer than others.
No kernel reads or writes outside its arrays: each length is compared with the available bytes before its use.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import int64, njit, uint64

from worker.kafka.decoding.memory import Window, big16_at, big32_at, big64_at, byte_at, window


class State(IntEnum):
    """The outcome of a batch: read, passed over, or the reason why it cannot be read."""

    READ = 0
    PASSED = 1
    CHECKSUM = 2
    CODEC = 3
    SIZE = 4
    LENGTH = 5
    MAGIC = 6


# A batch in the reader
ROW = np.dtype(
    [
        ("place", np.int64),  # where in what was fetched the batch begins
        ("size", np.int64),  # its bytes
        ("base", np.int64),  # its base offset
        ("start", np.int64),  # records below this offset are not wanted
        ("end", np.int64),  # the offset behind it
        ("state", np.int64),  # a `State`
        ("checksum", np.int64),
        ("attributes", np.int64),
        ("last", np.int64),  # the last offset, less the base offset
        ("timestamp", np.int64),  # of the first record, or of all by the broker's clock
        ("producer", np.int64),
        ("count", np.int64),  # of records, as the header claims
        ("cap", np.int64),  # the most bytes that its records may have
        ("begin", np.int64),  # where among the decompressed bytes its records begin
        ("stop", np.int64),  # and where they end
    ]
)

LEAST = 12  # bytes of base offset and length
CHECKED_FROM = 21  # first byte of the checksum
HEADER = 61  # bytes before the records
LEAST_RECORD = 7  # bytes of the smallest record: one for each field
AHEAD = 36  # most bytes of a record's fields besides key, value and headers, read without a bounds check
CODEC, APPEND_TIME, TRANSACTIONAL, CONTROL = 7, 8, 16, 32  # bits of the attributes

_MAGIC = 16
_LAST_OFFSET = 2**63 - 1
_HIGHEST_BASE = _LAST_OFFSET - 2**31


@njit(cache=True, nogil=True)
def _size_at(batches: Window, at: int) -> int:
    """Bytes of the batch there, 0 if it is cut off; a negative length takes the rest."""
    left = batches[1] - at
    if left < LEAST:
        return 0
    length = big32_at(batches, at + 8)
    if length < 0:
        return left
    return LEAST + length if length <= left - LEAST else 0


@njit(cache=True, nogil=True)
def _end_of(batches: Window, at: int, size: int) -> int:
    """The offset behind a whole batch: as its header claims, but not behind the next base offset."""
    base = big64_at(batches, at)
    if base > _HIGHEST_BASE:
        return _LAST_OFFSET
    end = base + 1
    if size >= HEADER and byte_at(batches, at + _MAGIC) > 1:  # an older one has its last offset
        end += max(big32_at(batches, at + 23), 0)
    if _size_at(batches, at + size):
        following = big64_at(batches, at + size)
        if following > base:
            end = min(end, following)
    return end


@njit(cache=True, nogil=True)
def scan_headers(fetched: npt.NDArray[np.uint8]) -> tuple[int, int, int]:
    """Returns how far whole batches reach; O(batches).

    Args:
        fetched: (b,) uint8, record batches, the last one perhaps cut off.

    Returns:
        The bytes of whole batches, the offset behind them and the leader epoch of the last one, −1 if it has none.
    """
    batches = window(fetched)
    at, end, epoch, size = 0, -1, -1, _size_at(batches, 0)
    while size:
        has_epoch = size >= HEADER and byte_at(batches, at + _MAGIC) == 2  # older ones have a checksum there
        epoch = big32_at(batches, at + 12) if has_epoch else -1
        end = max(end, _end_of(batches, at, size))
        at += size
        size = _size_at(batches, at)
    return at, end, epoch


@njit(cache=True, nogil=True)
def read_headers(
    fetched: npt.NDArray[np.uint8],
    at: int,
    rows: Any,
    cap_offsets: npt.NDArray[np.int64],
    caps: npt.NDArray[np.int64],
) -> tuple[int, int]:
    """Reads headers of whole batches until the rows are full.

    Args:
        fetched: (b,) uint8, record batches, the last one perhaps cut off.
        at: the place to start.
        rows: (r,) of `ROW`, filled; ``state`` is READ if a right checksum makes the header valid.
        cap_offsets: (c,) int64, ascending: the first offset of each cap.
        caps: (c,) int64, the caps.

    Returns:
        The number of rows, and the place behind the last one.
    """
    batches, n = window(fetched), 0
    while n < rows.size:
        size = _size_at(batches, at)
        if not size:
            break
        row = rows[n]
        row.place = at
        row.size = size
        row.base = big64_at(batches, at)
        row.end = _end_of(batches, at, size)
        c = caps.size - 1
        while c and cap_offsets[c] > row.base:
            c -= 1
        row.cap = caps[c]
        if size <= _MAGIC or big32_at(batches, at + 8) < 0:
            row.state = State.LENGTH
        elif byte_at(batches, at + _MAGIC) != 2:
            row.state = State.MAGIC
        elif size < HEADER:
            row.state = State.LENGTH
        else:
            row.state = State.READ
            row.checksum = big32_at(batches, at + 17) & 0xFFFFFFFF
            row.attributes = big16_at(batches, at + 21)
            row.last = big32_at(batches, at + 23)
            row.timestamp = big64_at(batches, at + (35 if row.attributes & APPEND_TIME else 27))
            row.producer = big64_at(batches, at + 43)
            row.count = big32_at(batches, at + 57)
        at += size
        n += 1
    return n, at


@njit(cache=True, nogil=True)
def classify(
    fetched: npt.NDArray[np.uint8],
    rows: Any,
    n: int,
    position: int,
    committed: bool,
    aborted: npt.NDArray[np.int64],
    which: npt.NDArray[np.int64],
    producers: npt.NDArray[np.int64],
    aborting: npt.NDArray[np.bool_],
    begun: int,
) -> tuple[int, int]:
    """Decides by the headers which batches to read: no control batch, no aborted one, none below the position.

    As the Java client's `CompletedFetch`: an aborted transaction begins at its first offset, and ends with its
    producer's next abort marker.

    Args:
        fetched: the bytes that the rows are of.
        rows: from `read_headers`, with checksums checked; ``state`` and ``start`` are changed.
        n: how many rows there are.
        position: records below this offset are not wanted.
        committed: whether aborted transactions are left out.
        aborted: (a,) int64, their first offsets, ascending.
        which: (a,) int64, the index of the producer of each.
        producers: (p,) int64, ascending ids.
        aborting: (p,) bool, whether each is inside such a transaction; changed.
        begun: the number of these transactions that have begun.

    Returns:
        The position behind the rows, and ``begun`` there.
    """
    batches = window(fetched)
    for i in range(n):
        row = rows[i]
        row.start = position
        if row.state == State.READ:
            if row.last < 0 or row.base < 0 or row.base > _HIGHEST_BASE:
                row.state = State.LENGTH
            else:
                if committed and row.producer >= 0:
                    while begun < aborted.size and aborted[begun] <= row.base + row.last:
                        aborting[which[begun]] = True
                        begun += 1
                    p = np.searchsorted(producers, row.producer)
                    if p < producers.size and producers[p] == row.producer and aborting[p]:
                        if _is_abort_marker(batches, row):
                            aborting[p] = False
                        elif row.attributes & TRANSACTIONAL:
                            row.state = State.PASSED
                if row.attributes & CONTROL:
                    row.state = State.PASSED
                elif row.state == State.READ and row.attributes & CODEC > 4:
                    row.state = State.CODEC
        if row.end <= position:
            row.state = State.PASSED
        position = max(position, row.end)
    return position, begun


@njit(cache=True, nogil=True)
def _is_abort_marker(batches: Window, row: Any) -> bool:
    """Whether a batch is an abort marker: its record's key is a version and the type 0."""
    if not row.attributes & CONTROL or row.attributes & CODEC:
        return False
    end = row.place + row.size
    _, at = _varint(batches, row.place + HEADER, end, 5)
    _, at = _varint(batches, at + 1, end, 10)
    _, at = _varint(batches, at, end, 5)
    length, at = _varint(batches, at, end, 5)
    return length >= 4 and end - at >= 4 and big16_at(batches, at) >= 0 and big16_at(batches, at + 2) == 0


@njit(cache=True, nogil=True)
def _varint(of: Window, at: int, end: int, most: int) -> tuple[int, int]:
    """A zigzag varint of at most 5 or 10 bytes, and the place behind it."""
    # a damaged one gives a place behind the end, and so does each one read there: callers check only the last place
    highest = np.uint64(0x0F if most == 5 else 0x01)  # what fits of the last byte
    number: Any = np.uint64(0)
    for k in range(min(most, end - at)):
        byte = np.uint64(byte_at(of, at + k))
        if k == most - 1 and byte > highest:
            break
        number |= (byte & np.uint64(0x7F)) << np.uint64(7 * k)
        if byte < np.uint64(0x80):
            return int64(number >> np.uint64(1)) ^ -int64(number & np.uint64(1)), at + k + 1
    return 0, end + 1


@njit(cache=True, nogil=True, inline="always")  # else it is called, through memory
def _next_varint(of: Window, at: int, end: int, most: int) -> tuple[int, int]:
    """The same; one or two bytes without a bounds check."""
    first = byte_at(of, at)
    if first < 0x80:
        return first >> 1 ^ -(first & 1), at + 1
    second = byte_at(of, at + 1)
    if second < 0x80:
        number = (second << 7) + first - 0x80
        return number >> 1 ^ -(number & 1), at + 2
    return _varint(of, at, end, most)


@njit(cache=True, nogil=True)
def decode_records(
    data: npt.NDArray[np.uint8],
    rows: Any,
    first: int,
    last: int,
    offsets: npt.NDArray[np.int64],
    timestamps: npt.NDArray[np.int64],
    begins: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
) -> tuple[int, int]:
    """Decodes the records of batches to columns, each batch whole or not at all; O(bytes).

    Args:
        data: (b,) uint8, decompressed records; a row's are those from ``begin`` to ``stop``, `AHEAD` of ``b``.
        rows: from `classify`; one whose records are damaged becomes LENGTH.
        first: the first row.
        last: the row behind the last one.
        offsets: (m,) int64, filled like the others; m is a seventh of the bytes.
        timestamps: (m,) int64.
        begins: (m,) int64, the places of the values in the data.
        ends: (m,) int64, the places behind the values.

    Returns:
        The number of records, and of those with a key or headers.
    """
    records = window(data)
    m = keys = 0
    for i in range(first, last):
        row = rows[i]
        if row.state != State.READ:
            continue
        base, last_delta, start, behind, at, stop = (
            row.base,
            row.last,
            row.start,
            row.end,
            row.begin,
            row.stop,
        )
        before, keys_before, previous = m, keys, -1
        first_timestamp, created = row.timestamp, 0 if row.attributes & APPEND_TIME else 1
        left = row.count if row.count <= (stop - at) // LEAST_RECORD else -1
        while left > 0:
            k = uint64(m)  # a signed index is checked for wrap-around
            at, timestamp, delta, begins[k], ends[k], with_key = _record(records, at, stop)
            if at < 0 or delta <= previous or delta > last_delta:
                break
            previous = delta
            offsets[k] = base + delta
            timestamps[k] = first_timestamp + created * timestamp
            wanted = start <= base + delta < behind
            m += wanted
            keys += wanted and with_key
            left -= 1
        if left or at != stop:
            row.state = State.LENGTH
            m, keys = before, keys_before
    return m, keys


@njit(cache=True, nogil=True)
def _record(records: Window, at: int, stop: int) -> tuple[int, int, int, int, int, bool]:
    """A record's end (−1 if damaged), time and offset deltas, ends of its value, whether it has key or headers."""
    # Only lengths are compared with the available bytes. Other reads behind the end lie within `AHEAD`, and lead to
    # a place that is not the end.
    damaged = -1, 0, 0, 0, 0, False
    length, at = _next_varint(records, at, stop, 5)
    if length < 0 or length > stop - at:
        return damaged
    stop = at + length
    timestamp, at = _next_varint(records, at + 1, stop, 10)  # behind the record's attributes
    delta, at = _next_varint(records, at, stop, 5)
    key, at = _next_varint(records, at, stop, 5)
    if key > stop - at:
        return damaged
    value, at = _next_varint(records, at + max(key, 0), stop, 5)
    if value > stop - at:
        return damaged
    end = at + max(value, 0)
    headers, behind = _next_varint(records, end, stop, 5)
    if headers:
        behind = _behind_headers(records, behind, stop, headers)
    return behind if behind == stop else -1, timestamp, delta, at, end, key >= 0 or headers > 0


@njit(cache=True, nogil=True)
def _behind_headers(records: Window, at: int, end: int, headers: int) -> int:
    """The place behind so many headers; behind the end if they do not fit."""
    if headers < 0:
        return end + 1
    for _ in range(headers):
        key, at = _varint(records, at, end, 5)
        if key < 0:
            return end + 1
        value, at = _varint(records, at + key, end, 5)
        at += max(value, 0)
        if at > end:
            return at
    return at


@njit(cache=True, nogil=True)
def pick(
    data: npt.NDArray[np.uint8],
    rows: Any,
    first: int,
    last: int,
    begins: npt.NDArray[np.uint8],
    picked: npt.NDArray[np.int64],
) -> int:
    """Finds the records with a key prefix, each batch whole or not at all; O(bytes).

    Args:
        data: (b,) uint8, decompressed records; a row's are those from ``begin`` to ``stop``, `AHEAD` of ``b``.
        rows: from `classify`; one whose records are damaged becomes LENGTH.
        first: the first row.
        last: the row behind the last one.
        begins: (k,) uint8, the prefix. An empty one picks records without a key, too.
        picked: (n, 8) int64, filled: offset, timestamp, begin and end of the key, begin and end of the value, begin of
            the headers, end of the record. The begin of a key or value that is null is −1.

    Returns:
        The number of records; at most the first n are filled in.
    """
    records, prefix, m = window(data), window(begins), 0
    for i in range(first, last):
        row = rows[i]
        if row.state != State.READ:
            continue
        if not _is_whole(records, row):
            row.state = State.LENGTH
            continue
        created, at = 0 if row.attributes & APPEND_TIME else 1, row.begin
        for _ in range(row.count):
            length, at = _next_varint(records, at, row.stop, 5)
            stop = at + length
            timestamp, at = _next_varint(records, at + 1, stop, 10)
            delta, at = _next_varint(records, at, stop, 5)
            key, at = _next_varint(records, at, stop, 5)
            key_begin = at if key >= 0 else -1
            key_end = at + max(key, 0)
            value, at = _next_varint(records, key_end, stop, 5)
            offset = row.base + delta
            if row.start <= offset < row.end and _starts_with(records, key_begin, key_end, prefix):
                if m < len(picked):
                    to = picked[m]
                    to[0], to[1] = offset, row.timestamp + created * timestamp
                    to[2], to[3] = key_begin, key_end
                    to[4], to[5] = at if value >= 0 else -1, at + max(value, 0)
                    to[6], to[7] = at + max(value, 0), stop
                m += 1
            at = stop
    return m


@njit(cache=True, nogil=True)
def _is_whole(records: Window, row: Any) -> bool:
    """Whether a batch holds exactly the records that it claims."""
    at, previous = row.begin, -1
    left = row.count if row.count <= (row.stop - at) // LEAST_RECORD else -1
    while left > 0:
        at, _, delta, _, _, _ = _record(records, at, row.stop)
        if at < 0 or delta <= previous or delta > row.last:
            break
        previous = delta
        left -= 1
    return left == 0 and at == row.stop


@njit(cache=True, nogil=True)
def _starts_with(of: Window, at: int, end: int, prefix: Window) -> bool:
    """Whether bytes start with a prefix; a null key starts with the empty one."""
    size, same = prefix[1], 0
    if size > (end - at if at >= 0 else 0):
        return False
    while same < size and byte_at(of, at + same) == byte_at(prefix, same):
        same += 1
    return same == size
