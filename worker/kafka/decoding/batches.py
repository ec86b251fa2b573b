"""Kernels that parse record batches: headers to rows, records to columns.

The kernels implement the layout that `records` describes, except codecs and checksums. No kernel reads or writes
outside its arrays, because each length is compared with the available bytes before use.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import int64, njit, uint64

from ldp.kernels.inner import inner
from worker.kafka.decoding.memory import Window, big16_at, big32_at, big64_at, byte_at, window


class State(IntEnum):
    """The outcome of a batch: read, skipped, or why it is unreadable."""

    READ = 0
    PASSED = 1
    CHECKSUM = 2
    CODEC = 3
    SIZE = 4
    LENGTH = 5
    MAGIC = 6


# The row of a batch in `records.Reader`
ROW = np.dtype(
    [
        ("place", np.int64),  # the batch's index in the fetched bytes
        ("size", np.int64),  # the batch's size in bytes
        ("base", np.int64),  # its base offset
        ("start", np.int64),  # records below this offset are skipped
        ("end", np.int64),  # the offset after the batch
        ("state", np.int64),  # a `State`
        ("checksum", np.int64),
        ("attributes", np.int64),
        ("last", np.int64),  # the last offset minus the base offset
        ("timestamp", np.int64),  # base timestamp; with the broker's time, the max timestamp
        ("producer", np.int64),
        ("count", np.int64),  # number of records, from the header
        ("cap", np.int64),  # most bytes of its decompressed records
        ("begin", np.int64),  # first index of its records in the decompressed bytes
        ("stop", np.int64),  # index after its records
    ]
)

LEAST = 12  # bytes of the base offset and length fields
CHECKED_FROM = 21  # first byte that the checksum covers
HEADER = 61  # bytes before the records
LEAST_RECORD = 7  # bytes of the smallest record: 1 for each field
AHEAD = 36  # most bytes of a record's fields, without key, value and headers, read without bounds checks
CODEC, APPEND_TIME, TRANSACTIONAL, CONTROL = 7, 8, 16, 32  # bits of the attributes

_MAGIC = 16
_LAST_OFFSET = 2**63 - 1
_HIGHEST_BASE = _LAST_OFFSET - 2**31

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]


@inner
def _size_at(batches: Window, at: int) -> int:
    """Returns a batch's size in bytes, or 0 if the batch is cut off."""
    left = batches[1] - at
    if left < LEAST:
        return 0
    length = big32_at(batches, at + 8)
    if length < 0:
        return left  # an unreadable batch of all remaining bytes
    return LEAST + length if length <= left - LEAST else 0


@inner
def _end_of(batches: Window, at: int, size: int) -> int:
    """Returns the offset after a batch, at most the next batch's base offset."""
    base = big64_at(batches, at)
    if base > _HIGHEST_BASE:
        return _LAST_OFFSET
    end = base + 1
    if size >= HEADER and byte_at(batches, at + _MAGIC) > 1:  # older formats have one offset here
        last = big32_at(batches, at + 23)
        end += last if last > 0 else 0
    if _size_at(batches, at + size):
        following = big64_at(batches, at + size)
        if base < following < end:
            end = following
    return end


@njit(cache=True, nogil=True)
def scan_headers(fetched: Bytes) -> tuple[int, int, int]:
    """Finds the end of the complete batches; O(batches).

    `fetched` is a (b,) uint8 array of record batches. The last batch may be cut off.

    Returns:
        The size of the complete batches in bytes, the offset after the last batch, and its leader epoch or −1.
    """
    batches = window(fetched)
    at, end, epoch, size = 0, -1, -1, _size_at(batches, 0)
    while size:
        has_epoch = size >= HEADER and byte_at(batches, at + _MAGIC) == 2  # older: checksum here
        epoch = big32_at(batches, at + 12) if has_epoch else -1
        after = _end_of(batches, at, size)
        end = end if end > after else after
        at += size
        size = _size_at(batches, at)
    return at, end, epoch


@njit(cache=True, nogil=True)
def read_headers(fetched: Bytes, at: int, rows: Any, cap_offsets: Ints, caps: Ints) -> tuple[int, int]:
    """Reads headers of complete batches until the rows are full.

    Args:
        fetched: record batches, a (b,) uint8 array. The last batch may be cut off.
        at: the index in `fetched` of the first batch to read.
        rows: output, an (r,) array of `ROW`. The ``state`` becomes READ if size and magic are valid.
        cap_offsets: ascending offsets, a (c,) int64 array. A cap applies from its offset on.
        caps: most bytes of a batch's decompressed records, a (c,) int64 array.

    Returns:
        The number of filled rows, and the index after the last batch.
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
    fetched: Bytes,
    rows: Any,
    n: int,
    position: int,
    committed: bool,
    aborted: Ints,
    which: Ints,
    producers: Ints,
    aborting: npt.NDArray[np.bool_],
    begun: int,
) -> tuple[int, int]:
    """Skips control batches, aborted batches and batches below the position.

    As in the Java client's `CompletedFetch`, an aborted transaction begins at its first offset, and ends with its
    producer's next abort marker.

    Args:
        fetched: the bytes from which `read_headers` filled the rows.
        rows: from `read_headers`, after `crc32c.check`. This kernel changes ``state`` and ``start``.
        n: the number of rows.
        position: records below this offset are skipped.
        committed: whether aborted transactions are skipped.
        aborted: ascending first offsets of aborted transactions, an (a,) int64 array.
        which: the index in `producers` for each aborted transaction, an (a,) int64 array.
        producers: ascending producer ids, a (p,) int64 array.
        aborting: whether each producer is inside an aborted transaction, a (p,) bool array; updated.
        begun: the number of aborted transactions that have begun.

    Returns:
        The position after the rows, and ``begun`` at this position.
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
                    p = _index(producers, row.producer)
                    if p >= 0 and aborting[p]:
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
        position = position if position > row.end else row.end
    return position, begun


@inner
def _index(ascending: Ints, number: int) -> int:
    """Returns the index of a number, or −1, without np.searchsorted.

    np.searchsorted takes 0.4 s to compile.
    """
    low, high = 0, ascending.size
    while low < high:
        middle = (low + high) // 2
        if ascending[middle] < number:
            low = middle + 1
        else:
            high = middle
    return low if low < ascending.size and ascending[low] == number else -1


@inner
def _is_abort_marker(batches: Window, row: Any) -> bool:
    """Returns whether a batch is an abort marker (key: version, type 0)."""
    if not row.attributes & CONTROL or row.attributes & CODEC:
        return False
    end = row.place + row.size
    _, at = _varint(batches, row.place + HEADER, end, 5)
    _, at = _varint(batches, at + 1, end, 10)
    _, at = _varint(batches, at, end, 5)
    length, at = _varint(batches, at, end, 5)
    return length >= 4 and end - at >= 4 and big16_at(batches, at) >= 0 and big16_at(batches, at + 2) == 0


@inner
def _varint(of: Window, at: int, end: int, most: int) -> tuple[int, int]:
    """Returns a zigzag varint of at most 5 or 10 bytes, and the next index."""
    # after a damaged varint, this and all later calls return an index beyond the end: callers check only the last
    highest = np.uint64(0x0F if most == 5 else 0x01)  # largest valid last byte
    number: Any = np.uint64(0)
    for k in range(most if most < end - at else end - at):
        byte = np.uint64(byte_at(of, at + k))
        if k == most - 1 and byte > highest:
            break
        number |= (byte & np.uint64(0x7F)) << np.uint64(7 * k)
        if byte < np.uint64(0x80):
            return int64(number >> np.uint64(1)) ^ -int64(number & np.uint64(1)), at + k + 1
    return 0, end + 1


@njit(cache=True, nogil=True, inline="always")  # a call would return its tuple through memory
def _next_varint(of: Window, at: int, end: int, most: int) -> tuple[int, int]:
    """Same as `_varint`; reads one or two bytes without a bounds check."""
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
    data: Bytes, rows: Any, first: int, last: int, offsets: Ints, timestamps: Ints, begins: Ints, ends: Ints
) -> tuple[int, int]:
    """Decodes batches to columns, without damaged batches; O(bytes).

    Args:
        data: decompressed records, a (b,) uint8 array. For each row, ``stop`` + `AHEAD` ≤ b.
        rows: from `classify`, after decompression. A row with damaged records gets the ``state`` LENGTH.
        first: the first row.
        last: the index after the last row.
        offsets: output, an int64 array with space for one record per `LEAST_RECORD` bytes.
        timestamps: output, as large as `offsets`.
        begins: output, as large as `offsets`: the index in `data` at which each value begins.
        ends: output, as large as `offsets`: the index after each value.

    Returns:
        The number of records, and the number of records with a key or headers.
    """
    records = window(data)
    m = keys = 0
    for i in range(first, last):
        row = rows[i]
        if row.state != State.READ:
            continue
        base, last_delta, start = row.base, row.last, row.start
        behind, at, stop = row.end, row.begin, row.stop
        before, keys_before, previous = m, keys, -1
        first_timestamp, created = row.timestamp, 0 if row.attributes & APPEND_TIME else 1
        left = row.count if row.count <= (stop - at) // LEAST_RECORD else -1
        while left > 0:
            k = uint64(m)  # numba checks a signed index for wrap-around
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


@inner
def _record(records: Window, at: int, stop: int) -> tuple[int, int, int, int, int, bool]:
    # Returns the record's end (−1 if damaged), timestamp delta, offset delta, the value's begin and end, and whether
    # there is a key or a header. Only lengths are compared with the available bytes. Other reads beyond the end stay
    # within `AHEAD`, and return an index that is not the end.
    damaged = -1, 0, 0, 0, 0, False
    length, at = _next_varint(records, at, stop, 5)
    if length < 0 or length > stop - at:
        return damaged
    stop = at + length
    timestamp, at = _next_varint(records, at + 1, stop, 10)  # skips the record's attributes
    delta, at = _next_varint(records, at, stop, 5)
    key, at = _next_varint(records, at, stop, 5)
    if key > stop - at:
        return damaged
    value, at = _next_varint(records, at + (key if key > 0 else 0), stop, 5)
    if value > stop - at:
        return damaged
    end = at + (value if value > 0 else 0)
    headers, behind = _next_varint(records, end, stop, 5)
    if headers:
        behind = _behind_headers(records, behind, stop, headers)
    return behind if behind == stop else -1, timestamp, delta, at, end, key >= 0 or headers > 0


@inner
def _behind_headers(records: Window, at: int, end: int, headers: int) -> int:
    """Returns the index after the headers; an index above `end` if damaged."""
    if headers < 0:
        return end + 1
    for _ in range(headers):
        key, at = _varint(records, at, end, 5)
        if key < 0:
            return end + 1
        value, at = _varint(records, at + key, end, 5)
        at += value if value > 0 else 0
        if at > end:
            return at
    return at


@njit(cache=True, nogil=True)
def pick(data: Bytes, rows: Any, first: int, last: int, begins: Bytes, picked: Ints) -> int:
    """Finds the records with a key prefix in valid batches; O(bytes).

    Args:
        data: decompressed records, a (b,) uint8 array. For each row, ``stop`` + `AHEAD` ≤ b.
        rows: from `classify`, after decompression. A row with damaged records gets the ``state`` LENGTH.
        first: the first row.
        last: the index after the last row.
        begins: the prefix, a (k,) uint8 array. An empty prefix also selects records without a key.
        picked: output, an (n, 8) int64 array. Its columns are offset, timestamp, start and end of the key, start and
            end of the value, start of the headers, and end of the record. The start of a null key or value is −1.

    Returns:
        The number of matching records. If it exceeds n, ``picked`` contains only the first n of these records.
    """
    records, prefix, m = window(data), window(begins), 0
    for i in range(first, last):
        row = rows[i]
        if row.state != State.READ:
            continue
        if not _is_valid(records, row):
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
            key_end = at + (key if key > 0 else 0)
            value, at = _next_varint(records, key_end, stop, 5)
            offset = row.base + delta
            if row.start <= offset < row.end and _starts_with(records, key_begin, key_end, prefix):
                if m < len(picked):
                    to = picked[m]
                    to[0], to[1] = offset, row.timestamp + created * timestamp
                    to[2], to[3] = key_begin, key_end
                    value_end = at + (value if value > 0 else 0)
                    to[4], to[5] = at if value >= 0 else -1, value_end
                    to[6], to[7] = value_end, stop
                m += 1
            at = stop
    return m


@inner
def _is_valid(records: Window, row: Any) -> bool:
    at, previous = row.begin, -1
    left = row.count if row.count <= (row.stop - at) // LEAST_RECORD else -1
    while left > 0:
        at, _, delta, _, _, _ = _record(records, at, row.stop)
        if at < 0 or delta <= previous or delta > row.last:
            break
        previous = delta
        left -= 1
    return left == 0 and at == row.stop


@inner
def _starts_with(of: Window, at: int, end: int, prefix: Window) -> bool:
    """Returns whether a key begins with a prefix; a null key counts as empty."""
    size, same = prefix[1], 0
    if size > (end - at if at >= 0 else 0):
        return False
    while same < size and byte_at(of, at + same) == byte_at(prefix, same):
        same += 1
    return same == size
