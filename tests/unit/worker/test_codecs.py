"""Codecs: decoded data, refusals with their reason, and the checksum of a batch."""

import gzip
import struct
import zlib

import crc32c as peer
import numpy as np
import pytest
import snappy
import zstandard
from numba import njit

from tests.support.batches import GZIP, LZ4, NONE, SNAPPY, ZSTD, batch, compressed, drain, record
from worker.kafka.decoding import crc32c
from worker.kafka.decoding.memory import window

RNG = np.random.default_rng(7)


def read(section, codec, cap=None):
    """The value of the one record of a section, or why it cannot be read."""
    records, bad, _, _ = drain(batch(0, section, 1, attributes=codec), 0, None, [(0, cap)])
    return records[0][2] if records else bad[0].why


def values():
    """Sizes around the copy width, repetitions at every short distance, and noise."""
    yield from (bytes(n) for n in (0, 1, 15, 16, 17, 31, 32, 33, 64, 65, 300, 70_000))
    for distance in range(1, 40):
        pattern = RNG.integers(0, 256, distance, np.uint8).tobytes()
        yield (
            RNG.bytes(int(RNG.integers(20)))
            + pattern * (1 + 400 // distance)
            + RNG.bytes(int(RNG.integers(20)))
        )
    yield RNG.bytes(200_000)
    yield RNG.integers(0, 3, 300_000, np.uint8).tobytes()
    yield RNG.bytes(3_000) * 3_000


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_data_compressed_by_the_libraries_is_read(codec):
    for value in values():
        for _ in range(3):
            assert read(compressed(record(0, value), codec, RNG), codec) == value


def lz4_frame(*blocks, flags=0x60, most=0x40, middle=b"", after=b""):
    """A frame of blocks that are (sequences, whether they are packed)."""
    made = b"".join(struct.pack("<I", len(b) | (0 if packed else 1 << 31)) + b for b, packed in blocks)
    return struct.pack("<IBB", 0x184D2204, flags, most) + middle + b"?" + made + bytes(4) + after


def xerial(*blocks, head=b"\x82SNAPPY\0\0\0\0\1\0\0\0\1"):
    return head + b"".join(struct.pack(">i", len(block)) + block for block in blocks)


def zstd_frame(content, flags=0x20, head=None):
    """A frame of one raw block."""
    head = bytes([len(content)]) if head is None else head
    return (
        struct.pack("<IB", 0xFD2FB528, flags) + head + struct.pack("<I", len(content) << 3 | 1)[:3] + content
    )


R = record(0, b"value")
LITERALS = bytes([len(R) << 4]) + R
SKIPPED = struct.pack("<II", 0x184D2A5F, 2) + b"??"
ELEMENT = bytes([len(R), len(R) - 1 << 2]) + R
WITHOUT = zstandard.ZstdCompressor(write_content_size=False)


@pytest.mark.parametrize(
    ("codec", "section"),
    [
        (NONE, R),
        (LZ4, lz4_frame((LITERALS, True))),
        (LZ4, lz4_frame((R, False))),
        (LZ4, lz4_frame((R[:4], False), (R[4:], False), flags=0x40, most=0x70)),
        (LZ4, lz4_frame((R, False), flags=0x68, middle=struct.pack("<Q", len(R)))),
        (LZ4, lz4_frame((R, False), flags=0x61, middle=b"dict")),
        (LZ4, lz4_frame((R, False), flags=0x64, after=b"sum?")),
        (LZ4, lz4_frame((b"\0", True), (R, False))),
        (SNAPPY, ELEMENT),
        (SNAPPY, bytes([len(R), 60 << 2, len(R) - 1]) + R),
        (SNAPPY, bytes([len(R), 63 << 2, len(R) - 1, 0, 0, 0]) + R),
        (SNAPPY, bytes([len(R) | 0x80, 0x80, 0, 60 << 2, len(R) - 1]) + R),
        (SNAPPY, xerial(ELEMENT)),
        (SNAPPY, xerial(snappy.compress(R[:3]), b"\0", snappy.compress(R[3:]))),
        (SNAPPY, xerial(ELEMENT, head=b"\x82SNAPPY\0\1\0\0\0\1\0\0\0")),
        (GZIP, gzip.compress(R, mtime=0)),
        (GZIP, gzip.compress(R[:5], mtime=0) + gzip.compress(b"", mtime=0) + gzip.compress(R[5:], mtime=0)),
        (ZSTD, zstd_frame(R)),
        (ZSTD, SKIPPED + zstd_frame(R[:5]) + SKIPPED + zstd_frame(b"") + zstd_frame(R[5:]) + SKIPPED),
        (ZSTD, WITHOUT.compress(R[:5]) + zstandard.compress(R[5:])),
        (ZSTD, zstd_frame(R, flags=0x21, head=b"\0" + bytes([len(R)]))),
        (ZSTD, zstd_frame(R, flags=0, head=b"\x88")),  # a window of 2^27
    ],
)
def test_valid_sections_are_decompressed(codec, section):
    assert read(section, codec) == b"value"
    assert read(section, codec, cap=len(R)) == b"value"
    assert read(section, codec, cap=len(R) - 1) == "size"


@pytest.mark.parametrize(
    ("codec", "section", "why"),
    [
        *((codec, b"", "codec") for codec in (GZIP, SNAPPY, LZ4)),
        *((codec, b"not of the codec", "codec") for codec in (GZIP, SNAPPY, LZ4, ZSTD, 5, 6, 7)),
        (NONE, b"", "length"),
        (ZSTD, b"", "length"),  # no frame, so no record
        (LZ4, lz4_frame((LITERALS, True))[:-4], "codec"),
        (LZ4, lz4_frame((LITERALS, True)) + b"\0", "codec"),
        (LZ4, lz4_frame((R, False)) * 2, "codec"),
        (LZ4, lz4_frame((R, False), flags=0x62), "codec"),
        (LZ4, lz4_frame((R, False), flags=0xA0), "codec"),
        (LZ4, lz4_frame((R, False), most=0x30), "codec"),
        (LZ4, lz4_frame((R, False), most=0x41), "codec"),
        (LZ4, lz4_frame((R, False), flags=0x68, middle=struct.pack("<Q", len(R) + 1)), "codec"),
        (LZ4, lz4_frame((R, False), flags=0x68, middle=b"\xff" * 8), "codec"),
        (LZ4, lz4_frame((R + bytes(65536), False)), "codec"),  # larger than the BD byte allows
        (LZ4, lz4_frame((b"\x1f\0\1\0" + b"\xff" * 257 + b"\0\0", True)), "codec"),  # larger, unpacked
        (LZ4, lz4_frame((LITERALS + b"\1\0", True)), "codec"),  # ends with a match
        (LZ4, lz4_frame((LITERALS[:-1], True)), "codec"),
        (LZ4, lz4_frame((b"\x10a\0\0\0", True)), "codec"),  # reaches back 0 bytes
        (LZ4, lz4_frame((b"\x10a\2\0\0", True)), "codec"),  # before the frame
        (
            LZ4,
            lz4_frame((b"abcd", False), (b"\x10a\2\0\0", True)),
            "codec",
        ),  # before the block, an independent one
        (LZ4, lz4_frame((b"\xf0" + b"\xff" * 9, True)), "codec"),
        (SNAPPY, ELEMENT[:-1], "codec"),
        (SNAPPY, ELEMENT + b"\0a", "codec"),
        (SNAPPY, b"\xff\xff\xff\xff\x1f", "codec"),
        (SNAPPY, b"\xff\xff\xff\xff\x0f", "codec"),  # 4 GiB of five bytes
        (SNAPPY, b"\x80\x80\x80\x80\x80\x00", "codec"),
        (SNAPPY, b"\5\0a\1\0", "codec"),  # reaches back 0 bytes
        (SNAPPY, b"\5\0a\1\2", "codec"),
        (SNAPPY, b"\5\0a\2\2\0", "codec"),
        (SNAPPY, b"\5\0a\3\0\0\0\x80", "codec"),
        (SNAPPY, b"\6\0a\1\1", "codec"),  # 5 bytes, but the header has 6
        (SNAPPY, xerial(ELEMENT)[:-1], "codec"),
        (SNAPPY, xerial(ELEMENT) + b"\0", "codec"),
        (SNAPPY, xerial(ELEMENT) + b"\xff\xff\xff\xff", "codec"),
        (SNAPPY, xerial(b""), "codec"),
        (SNAPPY, xerial(), "length"),  # no block, so no record
        (GZIP, gzip.compress(R, mtime=0)[:-1], "codec"),
        (GZIP, gzip.compress(R, mtime=0) + b"\0", "codec"),
        (GZIP, gzip.compress(R, mtime=0)[:-8] + bytes(8), "codec"),
        (GZIP, zlib.compress(R), "codec"),
        (ZSTD, zstd_frame(R)[:-1], "codec"),
        (ZSTD, zstd_frame(R) + b"\0", "codec"),
        (ZSTD, zstd_frame(R, flags=0x28), "codec"),
        (ZSTD, zstd_frame(R, flags=0x21, head=b"\1" + bytes([len(R)])), "codec"),  # a dictionary
        (ZSTD, zstd_frame(R, head=bytes([len(R) + 1])), "codec"),
        (ZSTD, zstd_frame(R, flags=0, head=b"\x89"), "size"),  # a window of 9/8 of 2^27
        (ZSTD, zstd_frame(R, flags=0, head=b"\xff"), "size"),
        (ZSTD, zstd_frame(R, flags=0xE0, head=b"\xff" * 8), "codec"),  # declares what its block cannot hold
        (ZSTD, SKIPPED[:-1], "codec"),
        (ZSTD, zstandard.ZstdCompressor(write_checksum=True).compress(R)[:-1] + b"?", "codec"),
    ],
)
def test_invalid_sections_are_refused(codec, section, why):
    assert read(section, codec) == why
    assert read(section, codec, cap=1 << 24) == why


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_a_truncated_section_is_refused(codec):
    whole = compressed(record(0, b"abc" * 100 + bytes(range(256))), codec)
    assert {read(whole[:size], codec) for size in range(1, len(whole))} == {"codec"}


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
@pytest.mark.parametrize("n", [5_000, 3_000_000])
def test_a_batch_may_have_exactly_the_bytes_of_the_cap(codec, n):
    data = record(0, bytes(n // 2) + RNG.bytes(n // 2))
    for _ in range(8):
        section = compressed(data, codec, RNG)
        assert len(read(section, codec, cap=len(data))) == n
        assert read(section, codec, cap=len(data) - 1) == "size"


# the checksum


@njit
def _by(way, data, begin, end):
    return way(window(data), begin, end)


def test_both_checksum_implementations_agree():
    data = RNG.integers(0, 256, 2_000, np.uint8)
    ways = [crc32c.by_tables] + [crc32c.by_instruction] * crc32c.HAS_INSTRUCTION
    for way in ways:
        for _ in range(300):
            begin, end = sorted(RNG.integers(0, len(data) + 1, 2).tolist())
            end = min(end, begin + int(RNG.integers(40))) if RNG.random() < 0.5 else end
            assert _by(way, data, begin, end) == peer.crc32c(data[begin:end].tobytes())
    assert crc32c.crc32c(data) == peer.crc32c(data.tobytes())
    assert crc32c.crc32c(data[:0]) == 0
