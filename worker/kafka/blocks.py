"""Codecs that compiled loops unpack: none, Snappy and LZ4, which are literals and copies of what came before.

What is read, byte by byte; anything else is "codec", and what would be more than the cap is "size", whichever comes
first. The checksum of the batch covers all of these bytes, so checksums inside them are passed over.

**none**: the section is the records.

**snappy**, raw: the section is one block. A block is the length of what it holds (a varint of at most 32 bits in five
bytes), then elements (Snappy's format description) that make exactly so many bytes out of exactly the rest. A copy
reaches back to the beginning of its block at most, and not 0 bytes. A length that is over the cap is "size" at once.

**snappy**, framed as xerial's Java library does: the section begins with 82 53 4E 41 50 50 59 00 and eight bytes that
are not looked at (a version; not all producers write it alike); then, until the section ends, blocks as above, each
behind its length in four bytes, the highest first. There may be none.

**lz4**: the section is exactly one frame (LZ4's frame format): the magic number 0x184D2204; FLG with version 1 and bit
1 clear; BD with a largest block of 64 KiB, 256 KiB, 1 MiB or 4 MiB and its other bits clear; the content's size and
the dictionary's id where FLG says so; a byte of checksum, passed over; blocks, each behind its length in four bytes,
the lowest first, and before four bytes of checksum, passed over, where FLG says so; the end mark, four zero bytes;
four bytes of checksum, passed over, where FLG says so. A block is as it is if its length's highest bit is set, else
sequences (LZ4's block format), the last of which ends with its literals; in neither way has it, packed or unpacked,
more bytes than BD says. A match reaches back at most to the beginning of the frame, of the block if FLG says that
blocks are independent, and not 0 bytes; there is no dictionary. A content's size over the cap is "size" at once; one
that is not what the blocks made is "codec".
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import int64, njit, types
from numba.extending import intrinsic

from worker.kafka.batches import CODEC, HEADER, State

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4

SLACK = 32
"""Bytes behind the room of an array to unpack into, so that copies need not be exact to its end."""

DAMAGED, FULL = -1, -2
"""What unpacking says instead of where it ended: the bytes are no such format; they make more than they may."""

_WIDE = 16
_config: Any = numba.config
_cgutils: Any = numba.core.cgutils
_MOST_EXPANDED = 256  # no format here makes more than so many bytes of one


def _copy_16_bytes(_typing: Any, to: Any, place: Any, of: Any, at: Any) -> Any:
    """Copies 16 bytes at once from anywhere to anywhere; all of them have to be inside."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide = ir.VectorType(ir.IntType(8), _WIDE)

        def pointer(kind: Any, value: Any, index: Any) -> Any:
            array = context.make_array(kind)(context, builder, value)
            if _config.BOUNDSCHECK:
                (size,) = _cgutils.unpack_tuple(builder, array.shape, 1)
                last = builder.add(index, ir.Constant(index.type, _WIDE - 1))
                _cgutils.do_boundscheck(context, builder, index, size, 0)
                _cgutils.do_boundscheck(context, builder, last, size, 0)
            return builder.bitcast(builder.gep(array.data, [index]), wide.as_pointer())

        source = pointer(signature.args[2], arguments[2], arguments[3])
        target = pointer(signature.args[0], arguments[0], arguments[1])
        builder.store(builder.load(source, align=1), target, align=1)
        return context.get_dummy_value()

    return types.none(to, place, of, at), build


_copy_wide: Any = intrinsic(_copy_16_bytes)


@njit(cache=True, nogil=True)
def _copy(data: npt.NDArray[np.uint8], to: int, of: npt.NDArray[np.uint8], at: int, length: int) -> None:
    """Copies literals."""
    k = 0
    if to + length + _WIDE <= data.size and at + length + _WIDE <= of.size:
        while k < length:
            _copy_wide(data, to + k, of, at + k)
            k += _WIDE
    else:
        while k < length:
            data[to + k] = of[at + k]
            k += 1


@njit(cache=True, nogil=True)
def _repeat(data: npt.NDArray[np.uint8], to: int, distance: int, length: int) -> None:
    """Copies what came before, which may reach into what is being copied."""
    k = 0
    if to + length + _WIDE <= data.size:
        if distance < _WIDE:  # a pattern: written out once it is wide enough, then repeated as a whole
            wide = distance * ((_WIDE + distance - 1) // distance)
            while k < min(length, wide):
                data[to + k] = data[to + k - distance]
                k += 1
            distance = wide
        while k < length:
            _copy_wide(data, to + k, data, to + k - distance)
            k += _WIDE
    else:
        while k < length:
            data[to + k] = data[to + k - distance]
            k += 1


@njit(cache=True, nogil=True)
def _little_endian(of: npt.NDArray[np.uint8], at: int, n: int) -> int:
    """A number of n bytes, the lowest first."""
    number: Any = int64(0)
    for k in range(n):
        number |= int64(of[at + k]) << (8 * k)
    return int(number)


@njit(cache=True, nogil=True)
def _lz4_length(of: npt.NDArray[np.uint8], at: int, end: int) -> tuple[int, int]:
    """What the bytes behind a length of 15 add to it, and the place behind them, behind the end if they are cut off."""
    length = 0
    while at < end:
        byte = int64(of[at])
        at += 1
        length += byte
        if byte != 255:
            return length, at
    return 0, end + 1


@njit(cache=True, nogil=True)
def _lz4_block(
    of: npt.NDArray[np.uint8],
    at: int,
    end: int,
    data: npt.NDArray[np.uint8],
    to: int,
    floor: int,
    limit: int,
) -> int:
    """Unpacks one block to the places from ``to`` up to ``limit``; matches reach back to ``floor``."""
    while at < end:
        token = int64(of[at])
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
        distance = int64(of[at]) | int64(of[at + 1]) << 8
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
def _lz4_header(of: npt.NDArray[np.uint8], at: int, end: int) -> tuple[int, int, int, int]:
    """A frame's (FLG, bytes of its largest block, content's size or −1, place behind the header), or all −1."""
    if end - at < 7 or _little_endian(of, at, 4) != 0x184D2204:
        return -1, -1, -1, -1
    flags, most = int64(of[at + 4]), int64(of[at + 5])
    size = 7 + 8 * (flags >> 3 & 1) + 4 * (flags & 1)
    if flags >> 6 != 1 or flags & 2 or most & 0x8F or most >> 4 < 4 or end - at < size:
        return -1, -1, -1, -1
    content = -1
    if flags & 8:
        content = _little_endian(of, at + 6, 8)
        if content < 0:  # above 2⁶³
            content = 2**63 - 1
    return flags, 1 << (2 * (most >> 4) + 8), content, at + size


@njit(cache=True, nogil=True)
def _lz4(
    of: npt.NDArray[np.uint8], at: int, end: int, data: npt.NDArray[np.uint8], to: int, limit: int
) -> int:
    """Unpacks a frame."""
    flags, most, content, at = _lz4_header(of, at, end)
    if flags < 0:
        return DAMAGED
    if content > limit - to:
        return FULL
    checksum, first = 4 * (flags >> 4 & 1), to
    while end - at >= 4:
        length = _little_endian(of, at, 4)
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
def _snappy_length(of: npt.NDArray[np.uint8], at: int, end: int) -> tuple[int, int]:
    """The length that heads a block, and the place behind it; −1 if it is none."""
    length = 0
    for k in range(min(5, end - at)):
        byte = int64(of[at + k])
        length |= (byte & 0x7F) << (7 * k)
        if byte < 0x80:
            return (length, at + k + 1) if length < 1 << 32 else (-1, at)
    return -1, at


@njit(cache=True, nogil=True)
def _snappy_block(
    of: npt.NDArray[np.uint8], at: int, end: int, data: npt.NDArray[np.uint8], to: int, limit: int
) -> int:
    """Unpacks one block to the places from ``to`` up to ``limit``."""
    length, at = _snappy_length(of, at, end)
    if length < 0:
        return DAMAGED
    if length > limit - to:
        return FULL
    first, limit = to, to + length
    while at < end:
        tag = int64(of[at])
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
            distance = _little_endian(of, at, size)
            at += size
            if kind == 1:
                distance |= tag >> 5 << 8
                length = (tag >> 2 & 7) + 4
            if distance == 0 or distance > to - first or length > limit - to:
                return DAMAGED
            _repeat(data, to, distance, length)
        to += length
    return to if to == limit else DAMAGED


@njit(cache=True, nogil=True)
def _is_framed(of: npt.NDArray[np.uint8], at: int, end: int) -> bool:
    """Whether a section is framed as xerial's library does; a raw block never begins like that."""
    return end - at >= 16 and _little_endian(of, at, 8) == 0x0059505041_4E5382


@njit(cache=True, nogil=True)
def _snappy(
    of: npt.NDArray[np.uint8], at: int, end: int, data: npt.NDArray[np.uint8], to: int, limit: int
) -> int:
    """Unpacks a section, raw or framed."""
    if not _is_framed(of, at, end):
        return _snappy_block(of, at, end, data, to, limit)
    at += 16
    while end - at >= 4:
        length = int64(of[at]) << 24 | int64(of[at + 1]) << 16 | int64(of[at + 2]) << 8 | int64(of[at + 3])
        at += 4
        if length > end - at:
            return DAMAGED
        to = _snappy_block(of, at, at + length, data, to, limit)
        if to < 0:
            return to
        at += length
    return to if at == end else DAMAGED


@njit(cache=True, nogil=True)
def _none(
    of: npt.NDArray[np.uint8], at: int, end: int, data: npt.NDArray[np.uint8], to: int, limit: int
) -> int:
    """Copies a section as it is."""
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
) -> tuple[int, int, int]:
    """Unpacks the records of batches one behind the other, until the budget is spent.

    Args:
        fetched: the bytes that the rows are of.
        rows: from `batches.judge`; ``begin`` and ``stop`` are filled, ``state`` may become CODEC or SIZE.
        i: the row to begin with.
        n: the row behind the last one.
        data: (room + SLACK,) uint8, filled.
        to: how much of it already is.
        budget: bytes to make; also an attempt that fails costs of them.

    Returns:
        The next row: one that is of another codec, or for which there is no room, or that the budget is spent before;
        how much is filled now; and what is left of the budget.
    """
    while i < n and budget > 0:
        row = rows[i]
        if row.state == State.READ:
            codec, at, end = row.attributes & CODEC, row.place + HEADER, row.place + row.size
            most = min(row.cap, data.size - SLACK - to)
            if codec == 0:
                stop = _none(fetched, at, end, data, to, to + most)
            elif codec == SNAPPY:
                stop = _snappy(fetched, at, end, data, to, to + most)
            elif codec == LZ4:
                stop = _lz4(fetched, at, end, data, to, to + most)
            else:
                break
            if stop == FULL and most < row.cap:
                break
            if stop < 0:
                row.state = State.SIZE if stop == FULL else State.CODEC
                budget -= min(most, _MOST_EXPANDED * (end - at))
            else:
                row.begin, row.stop = to, stop
                budget -= stop - to
                to = stop
        i += 1
    return i, to, budget
