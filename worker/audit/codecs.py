"""Decompression of record batches up to a size limit.

The audit and `worker.kafka.decoding` must agree on which batches are readable. This module implements Snappy and LZ4
itself. For gzip and Zstandard it uses libraries, but checks the bounds of members and frames itself.
"""

import zlib
from collections.abc import Callable, Sequence

import zstandard

NO_LIMIT = 1 << 62


class Unreadable(Exception):  # noqa: N818  # an outcome, not an error
    """The compressed bytes are invalid, or their content exceeds the limit."""


def unpack(codec: int, section: bytes, limit: int) -> bytes | bytearray:
    r"""Returns decompressed bytes; O(limit).

    Raises `Unreadable` if the codec is unknown, the bytes are invalid, or the result exceeds the limit.

    Example:
        >>> bytes(unpack(2, b"\x06\x04ab\x01\x02", 6))
        b'ababab'
    """
    if codec >= len(_CODECS):
        raise Unreadable
    made = _CODECS[codec](section, limit)
    if len(made) > limit:
        raise Unreadable
    return made


def _gzip(section: bytes, limit: int) -> bytearray:
    """Unpacks gzip members; rejects other bytes (RFC 1952)."""
    made, at, member = bytearray(), 0, zlib.decompressobj(wbits=31)
    while True:
        piece = section[at : at + 4096]
        try:
            made += member.decompress(piece, limit + 1 - len(made))
        except zlib.error:
            raise Unreadable from None
        at += len(piece) - len(member.unused_data)
        if len(made) > limit or (not piece and not member.eof):
            raise Unreadable
        if member.eof:
            if at == len(section):
                return made
            member = zlib.decompressobj(wbits=31)


def _snappy(section: bytes, limit: int) -> bytearray:
    """Unpacks a Snappy block, or a xerial frame of length-prefixed blocks."""
    made = bytearray()
    if len(section) < 16 or section[:8] != b"\x82SNAPPY\x00":
        _snappy_block(section, made, limit)
        return made
    at = 16
    while at < len(section):
        length = int.from_bytes(section[at : at + 4], "big", signed=True)
        at += 4
        if not 0 <= length <= len(section) - at:
            raise Unreadable
        _snappy_block(section[at : at + length], made, limit)
        at += length
    return made


def _snappy_block(block: bytes, made: bytearray, limit: int) -> None:
    length = at = 0
    while True:
        if at == min(5, len(block)):
            raise Unreadable
        byte = block[at]
        length |= (byte & 0x7F) << 7 * at
        at += 1
        if byte < 0x80:
            break
    first, stop, end = len(made), len(made) + length, len(block)
    if length >> 32 or length > 32 * end or stop > limit:
        raise Unreadable
    while at < end:
        tag = block[at]
        kind = tag & 3
        more = max(0, (tag >> 2) - 59) if kind == 0 else 4 if kind == 3 else kind
        number = int.from_bytes(block[at + 1 : at + 1 + more], "little")
        at += 1 + more
        if kind == 0:
            n = (number if more else tag >> 2) + 1
            if n > end - at or n > stop - len(made):
                raise Unreadable
            made += block[at : at + n]
            at += n
        elif at > end:
            raise Unreadable
        elif kind == 1:
            _repeat(made, first, number | tag >> 5 << 8, (tag >> 2 & 7) + 4, stop)
        else:
            _repeat(made, first, number, (tag >> 2) + 1, stop)
    if len(made) != stop:
        raise Unreadable


def _repeat(made: bytearray, first: int, distance: int, n: int, stop: int) -> None:
    """Appends `n` bytes, copied from `distance` bytes before the end."""
    place = len(made) - distance
    if distance == 0 or place < first or place + distance + n > stop:
        raise Unreadable
    if distance >= n:
        made += made[place : place + n]
    else:  # the copy overlaps its source
        made += (made[place:] * (n // distance + 1))[:n]


def _lz4(section: bytes, limit: int) -> bytearray:
    def number(at: int, n: int) -> int:
        if at + n > len(section):
            raise Unreadable
        return int.from_bytes(section[at : at + n], "little")

    flags, largest = number(4, 1), number(5, 1)
    if number(0, 4) != 0x184D2204 or flags >> 6 != 1 or flags & 2 or largest & 0x8F or largest < 0x40:
        raise Unreadable
    most, at = 1 << 2 * (largest >> 4) + 8, 6
    content = None
    if flags & 8:
        content = number(at, 8)
        if content > min(limit, 256 * len(section)):
            raise Unreadable
        at += 8
    at += 1 + (4 if flags & 1 else 0)
    made = bytearray()
    while head := number(at, 4):
        length = head & 0x7FFFFFFF
        at += 4
        if length > most or at + length > len(section):
            raise Unreadable
        if head >> 31:
            made += section[at : at + length]
        else:
            block, stop = section[at : at + length], min(limit, len(made) + most)
            _lz4_block(block, made, len(made) if flags & 32 else 0, stop)
        if len(made) > limit:
            raise Unreadable
        at += length + (4 if flags & 16 else 0)
    at += 4 + (4 if flags & 4 else 0)  # skips the checksum, because the batch has one
    if at != len(section) or content not in (None, len(made)):
        raise Unreadable
    return made


def _lz4_block(block: bytes, made: bytearray, first: int, stop: int) -> None:
    at, end = 0, len(block)
    while at < end:  # each sequence has literals and, except for the last, a copy
        token = block[at]
        at += 1
        n = token >> 4
        if n == 15:
            n, at = _lz4_length(block, at, n)
        if n > end - at or n > stop - len(made):
            raise Unreadable
        if n:
            made += block[at : at + n]
            at += n
        if at == end:
            return
        distance = block[at] | (block[at + 1] << 8 if at + 1 < end else 0)
        at += 2
        n = (token & 15) + 4
        if n == 19:
            n, at = _lz4_length(block, at, n)
        if at > end:
            raise Unreadable
        _repeat(made, first, distance, n, stop)
    raise Unreadable


def _lz4_length(block: bytes, at: int, n: int) -> tuple[int, int]:
    """Returns `n` plus extension bytes from `at` on, and the next position."""
    while at < len(block):
        n += block[at]
        at += 1
        if block[at - 1] < 255:
            return n, at
    raise Unreadable


def _zstd(section: bytes, limit: int) -> bytearray:
    """Unpacks frames, skips skippable ones and rejects other bytes (RFC 8878)."""
    at, left = 0, limit
    while at < len(section):
        magic = int.from_bytes(section[at : at + 4], "little")
        if magic >> 4 == 0x184D2A5 and at + 8 <= len(section):
            at += 8 + int.from_bytes(section[at + 4 : at + 8], "little")
        elif magic == 0xFD2FB528 and at + 5 <= len(section):
            at, content = _behind_zstd_frame(section, at + 4)
            left -= content
        else:
            raise Unreadable
        if at > len(section) or left < 0:
            raise Unreadable
    made = bytearray()
    try:
        with zstandard.ZstdDecompressor().stream_reader(section, read_across_frames=True) as frames:
            while len(made) <= limit and (more := frames.read(min(limit + 1 - len(made), 1 << 20))):
                made += more
    except zstandard.ZstdError as error:
        if "memory" in str(error):
            raise MemoryError(str(error)) from error
        raise Unreadable from None
    return made


def _behind_zstd_frame(section: bytes, at: int) -> tuple[int, int]:
    """Returns the end and declared content size of a frame; 0 if undeclared."""
    flags = section[at]
    single = flags >> 5 & 1
    window_at, at = at + 1, at + 2 - single
    names, sizes = (0, 1, 2, 4)[flags & 3], (single, 2, 4, 8)[flags >> 6]
    dictionary = int.from_bytes(section[at : at + names], "little")
    content = int.from_bytes(section[at + names : at + names + sizes], "little") + (256 if sizes == 2 else 0)
    at += names + sizes
    if flags & 8 or dictionary or at > len(section):
        raise Unreadable
    window = content
    if not single:
        exponent, eighths = section[window_at] >> 3, section[window_at] & 7
        window = (1 << 10 + exponent) // 8 * (8 + eighths)
    most, held, last = min(window, _MOST_BLOCK), 0, 0
    while not last:
        if at + 3 > len(section):
            raise Unreadable
        head = int.from_bytes(section[at : at + 3], "little")
        last, kind, size = head & 1, head >> 1 & 3, head >> 3
        if kind == 3 or size > most:
            raise Unreadable
        at += 3 + (1 if kind == 1 else size)
        held += most if kind == 2 else size
    if window > _MOST_WINDOW or content > held:
        raise Unreadable
    return at + (4 if flags & 4 else 0), content


_MOST_WINDOW, _MOST_BLOCK = 1 << 27, 1 << 17

_CODECS: Sequence[Callable[[bytes, int], bytes | bytearray]] = (
    lambda section, _limit: section,
    _gzip,
    _snappy,
    _lz4,
    _zstd,
)
