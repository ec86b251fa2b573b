"""Kernels that decompress the codecs none, Snappy and LZ4.

A section is the compressed records of a batch. Only the formats below are accepted. Other input is rejected as
"codec", and output above the batch's cap as "size". The first violation decides. Checksums inside a section are
ignored, because the checksum of the batch covers all its bytes.

**none**: the section contains the records unchanged.

**snappy**, raw: the section is one block. A block begins with the length of its output: a varint of at most 5 bytes,
below 2³². The elements that follow (Snappy's format description) produce exactly this length and end exactly at the
block's end. A copy reaches back by at least 1 byte, and at most to the beginning of its block's output. Before
any output, a length above 32 times the block's size is rejected as "codec", and a length above the cap as "size".

**snappy**, framed as by xerial's Java library: the section begins with 82 53 4E 41 50 50 59 00 and 8 ignored bytes (the
versions, which differ between producers). Then blocks as above follow to the end of the section. Before each block is
its size in 4 bytes, big-endian. A section without blocks is valid.

**lz4**: the section is exactly one frame (LZ4's frame format), with little-endian numbers, in this order:

- the magic number 0x184D2204; FLG with version 1 and bit 1 clear
- BD with a block limit of 64 KiB, 256 KiB, 1 MiB or 4 MiB and its other bits clear
- the content size if FLG has its bit, the dictionary's id if FLG has its bit, and 1 ignored byte of checksum
- the blocks. Each is a length in 4 bytes, the data, and 4 ignored bytes of checksum if FLG has the bit
- the end mark (4 zero bytes), and 4 ignored bytes of checksum if FLG has the bit

A block whose length has its highest bit set is uncompressed. Other blocks are sequences (LZ4's block format), and the
last sequence ends with its literals. Neither the input nor the output of a block exceeds the block limit. A match
reaches back by at least 1 byte, and at most to the beginning of the frame's output, or of the block's output if FLG
declares independent blocks. Dictionaries are not supported. Before any output, a content size above 256 times the
frame's size is rejected as "codec", and a content size above the cap as "size". A content size that differs from the
output is "codec".
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from worker.kafka.decoding.batches import CODEC, HEADER, State
from worker.kafka.decoding.memory import (
    WIDE,
    Window,
    big32_at,
    byte_at,
    copy_wide,
    little16_at,
    little32_at,
    little64_at,
    window,
    write_byte,
)

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4

SLACK = 64
"""Spare bytes at the end of an output array, for wide copies and for reads by `batches.decode_records`."""

DAMAGED, FULL = -1, -2  # Results of decompression: invalid format; output above the limit

# Highest accepted ratio of output to input
_MOST_OF_SNAPPY, _MOST_OF_LZ4 = 32, 256


@njit(cache=True, nogil=True, inline="always")
def _copy(data: Window, to: int, of: Window, at: int, length: int) -> None:
    if to + length + WIDE <= data[1] and at + length + WIDE <= of[1]:
        copy_wide(data, to, of, at)  # most copies are short
        k = WIDE
        while k < length:
            copy_wide(data, to + k, of, at + k)
            k += WIDE
    else:
        for k in range(length):
            write_byte(data, to + k, byte_at(of, at + k))


@njit(cache=True, nogil=True, inline="always")
def _repeat(data: Window, to: int, distance: int, length: int) -> None:
    """Copies earlier output; source and target may overlap."""
    if distance >= WIDE and to + length + WIDE <= data[1]:
        copy_wide(data, to, data, to - distance)
        k = WIDE
        while k < length:
            copy_wide(data, to + k, data, to + k - distance)
            k += WIDE
    else:
        _repeat_pattern(data, to, distance, length)


@njit(cache=True, nogil=True)
def _repeat_pattern(data: Window, to: int, distance: int, length: int) -> None:
    wide = distance * ((WIDE + distance - 1) // distance)
    k = 0
    while k < length and (k < wide or to + length + WIDE > data[1]):
        write_byte(data, to + k, byte_at(data, to + k - distance))
        k += 1
    while k < length:
        copy_wide(data, to + k, data, to + k - wide)
        k += WIDE


@njit(cache=True, nogil=True)
def _little_endian(of: Window, at: int, n: int) -> int:
    number = 0
    for k in range(n):
        number |= byte_at(of, at + k) << (8 * k)
    return number


@njit(cache=True, nogil=True)
def _lz4_length(of: Window, at: int, end: int) -> tuple[int, int]:
    """Returns the extension of a length field of 15, and the next index."""
    length = 0
    while at < end:
        byte = byte_at(of, at)
        at += 1
        length += byte
        if byte != 255:
            return length, at
    return 0, end + 1


@njit(cache=True, nogil=True)
def _lz4_block(
    of: Window,
    at: int,
    end: int,
    data: Window,
    to: int,
    floor: int,
    limit: int,
) -> int:
    """Decompresses one block to [to, limit); matches reach back to ``floor``."""
    while at < end:
        token = byte_at(of, at)
        at += 1
        length = token >> 4
        if length == 15:
            more, at = _lz4_length(of, at, end)
            length += more
        if length > end - at:
            return DAMAGED
        if length > limit - to:
            return FULL
        _copy(data, to, of, at, length)
        at += length
        to += length
        if at == end:
            return to
        if end - at < 2:
            return DAMAGED
        distance = little16_at(of, at)
        at += 2
        length = (token & 15) + 4
        if length == 19:
            more, at = _lz4_length(of, at, end)
            length += more
        if distance == 0 or distance > to - floor or at > end:
            return DAMAGED
        if length > limit - to:
            return FULL
        _repeat(data, to, distance, length)
        to += length
    return DAMAGED


@njit(cache=True, nogil=True)
def _lz4_header(of: Window, at: int, end: int) -> tuple[int, int, int, int]:
    if end - at < 7 or little32_at(of, at) != 0x184D2204:
        return -1, -1, -1, -1
    flags, most = byte_at(of, at + 4), byte_at(of, at + 5)
    size = 7 + 8 * (flags >> 3 & 1) + 4 * (flags & 1)
    if flags >> 6 != 1 or flags & 2 or most & 0x8F or most >> 4 < 4 or end - at < size:
        return -1, -1, -1, -1
    content = -1
    if flags & 8:
        content = little64_at(of, at + 6)
        if content < 0 or content > _MOST_OF_LZ4 * (end - at):  # negative: 2⁶³ or more
            return -1, -1, -1, -1
    return flags, 1 << (2 * (most >> 4) + 8), content, at + size


@njit(cache=True, nogil=True)
def _lz4(of: Window, at: int, end: int, data: Window, to: int, limit: int) -> int:
    flags, most, content, at = _lz4_header(of, at, end)
    if flags < 0:
        return DAMAGED
    if content > limit - to:
        return FULL
    checksum, first = 4 * (flags >> 4 & 1), to
    while end - at >= 4:
        length = little32_at(of, at)
        at += 4
        if length == 0:
            behind = at + 4 * (flags >> 2 & 1)
            return to if behind == end and (content < 0 or content == to - first) else DAMAGED
        plain, length = length >> 31, length & 0x7FFFFFFF
        if length > most or length > end - at - checksum:
            return DAMAGED
        if plain:
            if length > limit - to:
                return FULL
            _copy(data, to, of, at, length)
            to += length
        else:
            bound = min(limit, to + most)
            to = _lz4_block(of, at, at + length, data, to, to if flags & 32 else first, bound)
            if to < 0:
                return DAMAGED if bound < limit else to
        at += length + checksum
    return DAMAGED


@njit(cache=True, nogil=True)
def _snappy_length(of: Window, at: int, end: int) -> tuple[int, int]:
    length = 0
    for k in range(min(5, end - at)):
        byte = byte_at(of, at + k)
        length |= (byte & 0x7F) << (7 * k)
        if byte < 0x80:
            return (length, at + k + 1) if length < 1 << 32 else (-1, at)
    return -1, at


@njit(cache=True, nogil=True)
def _snappy_block(of: Window, at: int, end: int, data: Window, to: int, limit: int) -> int:
    most = _MOST_OF_SNAPPY * (end - at)
    length, at = _snappy_length(of, at, end)
    if length < 0 or length > most:
        return DAMAGED
    if length > limit - to:
        return FULL
    first, limit = to, to + length
    while at < end:
        tag = byte_at(of, at)
        at += 1
        kind, length = tag & 3, (tag >> 2) + 1
        if kind == 0:
            if length > 60:
                size = length - 60
                if size > end - at:
                    return DAMAGED
                length = _little_endian(of, at, size) + 1
                at += size
            if length > end - at or length > limit - to:
                return DAMAGED
            _copy(data, to, of, at, length)
            at += length
        else:
            size = 4 if kind == 3 else kind
            if size > end - at:
                return DAMAGED
            if kind == 1:
                distance = byte_at(of, at) | tag >> 5 << 8
                length = (tag >> 2 & 7) + 4
            else:
                distance = little16_at(of, at) if kind == 2 else little32_at(of, at)
            at += size
            if distance == 0 or distance > to - first or length > limit - to:
                return DAMAGED
            _repeat(data, to, distance, length)
        to += length
    return to if to == limit else DAMAGED


@njit(cache=True, nogil=True)
def _is_framed(of: Window, at: int, end: int) -> bool:
    """Returns whether a section has xerial's framing, which no raw block has."""
    return end - at >= 16 and little64_at(of, at) == 0x0059505041_4E5382


@njit(cache=True, nogil=True)
def _snappy(of: Window, at: int, end: int, data: Window, to: int, limit: int) -> int:
    if not _is_framed(of, at, end):
        return _snappy_block(of, at, end, data, to, limit)
    at += 16
    while end - at >= 4:
        length = big32_at(of, at)
        at += 4
        if length < 0 or length > end - at:
            return DAMAGED
        to = _snappy_block(of, at, at + length, data, to, limit)
        if to < 0:
            return to
        at += length
    return to if at == end else DAMAGED


@njit(cache=True, nogil=True)
def _none(of: Window, at: int, end: int, data: Window, to: int, limit: int) -> int:
    if end - at > limit - to:
        return FULL
    _copy(data, to, of, at, end - at)
    return to + end - at


@njit(cache=True, nogil=True)
def unpack(
    fetched: npt.NDArray[np.uint8],
    rows: Any,
    i: int,
    n: int,
    data: npt.NDArray[np.uint8],
    to: int,
    budget: int,
    compressed: Any,
) -> tuple[int, int, int]:
    """Decompresses the records of batches until the budget is spent.

    `rows` come from `batches.classify`. The kernel sets ``begin`` and ``stop``, and may set ``state`` to CODEC or SIZE.
    `data` is the output, a uint8 array with `SLACK` spare bytes. Its first `to` bytes are already filled. `budget` is
    the number of bytes to write. Failed batches also reduce the budget. `compressed` is True, or None to compile
    without Snappy and LZ4, and to stop before batches with these codecs.

    Returns:
        The next row, the number of bytes filled, and the remaining budget. The next row is n, a row with another
        codec, or a row without enough space or budget.
    """
    of, made = window(fetched), window(data)
    while i < n and budget > 0:
        row = rows[i]
        if row.state == State.READ:
            codec, at, end = row.attributes & CODEC, row.place + HEADER, row.place + row.size
            most = min(row.cap, data.size - SLACK - to)
            if codec == 0:
                stop = _none(of, at, end, made, to, to + most)
            elif compressed is None:
                break
            elif codec == SNAPPY:
                stop = _snappy(of, at, end, made, to, to + most)
            elif codec == LZ4:
                stop = _lz4(of, at, end, made, to, to + most)
            else:
                break
            if stop == FULL and most < row.cap:
                break
            if stop < 0:
                row.state = State.SIZE if stop == FULL else State.CODEC
                budget -= min(most, _MOST_OF_LZ4 * (end - at))
            else:
                row.begin, row.stop = to, stop
                budget -= stop - to
                to = stop
        i += 1
    return i, to, budget
