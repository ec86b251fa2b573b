"""Decompresses gzip and Zstandard with libraries, piece by piece.

Only the formats below are accepted. Other input is rejected as "codec", and output above the batch's cap as "size".

**gzip**: the compressed records are one or more members (RFC 1952) without bytes between or after them. The CRC-32 and
length of each member are checked. Decompression stops at the cap, so later bytes are not checked.

**zstd**: the compressed records are zero or more frames (RFC 8878) and skippable frames, without bytes between or after
them. All headers of frames and blocks are checked before decompression. Reserved bits must be clear. No block may
exceed the limit of RFC 8878. Blocks must exactly fill their frame. No frame may declare more content than its blocks
can hold. A window of more than 2²⁷ bytes is "size", and so is declared content that exceeds the cap in total.
Dictionaries are not supported: a frame that names a dictionary is "codec". Checksums of frames are verified.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import numpy.typing as npt
import zstandard
from numba import int64, njit

from worker.kafka.decoding.blocks import DAMAGED, FULL

MOST_WINDOW = 1 << 27  # The limit of Zstandard's own decoders and of the Java client

TOO_WIDE = -3  # Result of `unpack_zstd`: a window above `MOST_WINDOW`

_MOST_BLOCK = 1 << 17
_PIECE = 1 << 16


def unpack_gzip(section: npt.NDArray[np.uint8], room: npt.NDArray[np.uint8]) -> int:
    """Decompresses gzip members; O(output).

    `section` is an (s,) uint8 array. `room` is the output, an (r + 1,) uint8 array. Its last byte detects an overflow.

    Returns:
        The number of bytes written, DAMAGED or FULL.
    """
    whole, to = memoryview(section.data), 0
    left: Any = whole
    try:
        while True:
            member = zlib.decompressobj(wbits=31)
            while not member.eof:
                piece: Any = member.unconsumed_tail
                if not piece:
                    piece, left = left[:_PIECE], left[_PIECE:]
                made = member.decompress(piece, min(room.size - to, _PIECE))
                if not piece and not made and not member.eof:
                    return DAMAGED
                room[to : to + len(made)] = np.frombuffer(made, np.uint8)
                to += len(made)
                if to == room.size:
                    return FULL
            left = whole[section.size - len(left) - len(member.unused_data) :]
            if not left:
                return to
    except zlib.error:
        return DAMAGED


def unpack_zstd(
    section: npt.NDArray[np.uint8], room: npt.NDArray[np.uint8], context: zstandard.ZstdDecompressor
) -> int:
    """Decompresses Zstandard frames; O(output).

    `section` and `room` are as for `unpack_gzip`. Raises `MemoryError`: there is no memory for a window.

    Returns:
        The number of bytes written, DAMAGED, FULL or TOO_WIDE.
    """
    if wrong := check_frames(section, 0, section.size, room.size - 1):
        return wrong
    to = 0
    try:
        with context.stream_reader(section.data, read_across_frames=True) as frames:
            while to < room.size and (made := frames.readinto(room[to:].data)):
                to += made
    except zstandard.ZstdError as error:
        if "memory" in str(error):
            raise MemoryError(str(error)) from error
        return DAMAGED
    return FULL if to == room.size else to


@njit(cache=True, nogil=True)
def _little_endian(of: npt.NDArray[np.uint8], at: int, n: int) -> int:
    number: Any = int64(0)
    for k in range(n):
        number |= int64(of[at + k]) << (8 * k)
    return int(number)


@njit(cache=True, nogil=True)
def check_frames(of: npt.NDArray[np.uint8], at: int, end: int, most: int) -> int:
    """Checks the headers of Zstandard frames and of their blocks; O(blocks).

    `of` is a (b,) uint8 array. `most` is the most bytes of content that the frames may declare together.

    Returns:
        0 if the headers are valid, otherwise DAMAGED, FULL or TOO_WIDE.
    """
    while at < end:
        if end - at < 5:
            return DAMAGED
        magic = _little_endian(of, at, 4)
        if magic >> 4 == 0x184D2A5:  # a skippable frame
            if end - at < 8 or _little_endian(of, at + 4, 4) > end - at - 8:
                return DAMAGED
            at += 8 + _little_endian(of, at + 4, 4)
            continue
        if magic != 0xFD2FB528:
            return DAMAGED
        flags, at = int64(of[at + 4]), at + 5
        content, window, at = _frame_header(of, at, end, flags)
        if at < 0:
            return DAMAGED
        at, held = _behind_blocks(of, at, end, min(window, _MOST_BLOCK))
        if flags & 4:
            at += 4
        if at < 0 or at > end or content > held:
            return DAMAGED
        if window > MOST_WINDOW:
            return TOO_WIDE
        if content > most:
            return FULL
        most -= max(content, 0)
    return 0


@njit(cache=True, nogil=True)
def _frame_header(of: npt.NDArray[np.uint8], at: int, end: int, flags: int) -> tuple[int, int, int]:
    single = flags >> 5 & 1
    windows = 1 - single
    names = (1 << (flags & 3)) >> 1  # 0, 1, 2 or 4 bytes
    sizes = 1 << (flags >> 6)  # 1, 2, 4 or 8 bytes
    if sizes == 1 and not single:
        sizes = 0
    if flags & 8 or end - at < windows + names + sizes or _little_endian(of, at + windows, names):
        return -1, -1, -1
    content = _little_endian(of, at + windows + names, sizes) if sizes else -1
    if sizes == 2:
        content += 256
    elif sizes == 8 and content < 0:
        content = 2**63 - 1
    window = content
    if windows:
        window = 1 << (10 + (of[at] >> 3))
        window += (window >> 3) * (of[at] & 7)
    return content, window, at + windows + names + sizes


@njit(cache=True, nogil=True)
def _behind_blocks(of: npt.NDArray[np.uint8], at: int, end: int, most: int) -> tuple[int, int]:
    """Returns the index after the blocks (< 0 if damaged) and the most output."""
    held = 0
    while end - at >= 3:
        header = _little_endian(of, at, 3)
        kind, size = header >> 1 & 3, header >> 3
        at += 3 + (1 if kind == 1 else size)
        held += most if kind == 2 else size
        if kind == 3 or size > most or at > end:
            break
        if header & 1:
            return at, held
    return -8, 0
