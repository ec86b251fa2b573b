"""The audit's reading of record batches, compared with kafka-python's builder and the worker's reading."""

import gzip
import random
import struct
import zlib

import lz4.frame
import numpy as np
import pytest
import zstandard
from kafka.record.memory_records import MemoryRecordsBuilder

from tests.long.fuzz import audited
from tests.long.fuzz.audited import ours, some_log, theirs
from tests.support.batches import (
    GZIP,
    LZ4,
    NOW,
    SNAPPY,
    TRANSACTIONAL,
    ZSTD,
    batch,
    compressed,
    marker,
    record,
    varint,
)
from worker.audit import batches
from worker.audit.codecs import Unreadable, unpack


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("n", [1, 10, 3_000])
def test_batches_of_the_kafka_python_builder_are_read(codec, n):
    builder = MemoryRecordsBuilder(2, codec, 1 << 30)
    rng = random.Random(n)
    records = [(NOW + i * i, b"\x01frame" + rng.randbytes(i % 3)) for i in range(n)]
    for i, (timestamp, value) in enumerate(records):
        headers = [("name", b"held"), ("none", None)] if i % 3 == 1 else []
        builder.append(timestamp, b"key" if i % 5 == 1 else None, value, headers)
    builder.close()
    assert ours(bytes(builder.buffer())) == (records, 0)


def test_both_readers_agree_on_whole_batches():
    records = 0
    for seed in range(12):
        made, start, stop, aborted, rng = some_log(seed, 20)
        fetched = b"".join(made)[: -int(rng.integers(20)) or None]
        found = ours(fetched, start, stop, aborted)
        assert found == theirs(fetched, start, stop, aborted), seed
        assert found[1] == 0
        records += len(found[0])
    assert records > 2_000


def test_a_negative_length_with_a_valid_checksum_is_unreadable():
    """The rest of the fetch belongs to it, and may look like one complete batch."""
    good = batch(40, record(0, b"\x01frame"), 1)
    negative = good[:8] + struct.pack(">i", -89) + good[12:]
    assert ours(negative) == theirs(negative) == ([], 1)
    (one,) = batches.whole(negative)
    assert (one.sound, one.corrupt) == (False, False)  # another fetch brings the same


def test_both_readers_agree_on_damaged_batches():
    """`make fuzz` compares a million batches."""
    counted = audited.fuzz(60, 0)
    assert min(counted["unreadable"], counted["readable"]) > 40


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_data_is_decompressed_up_to_the_cap(codec):
    rng = np.random.default_rng(codec)
    for size in (0, 1, 20, 70_000, 300_000):
        plain = bytes(size // 2) + rng.bytes(50) * (size // 100) + rng.bytes(size % 50)
        for _ in range(4):
            section = compressed(plain, codec, rng)
            assert bytes(unpack(codec, section, len(plain))) == plain
            if plain:
                with pytest.raises(Unreadable):
                    unpack(codec, section, len(plain) - 1)
            with pytest.raises(Unreadable):
                unpack(codec, section[:-1], len(plain))


@pytest.mark.parametrize(
    ("codec", "bomb"),
    [
        (GZIP, gzip.compress(bytes(64 << 20), mtime=0)),
        (GZIP, gzip.compress(bytes(100), mtime=0) * 20_000),
        (LZ4, lz4.frame.compress(bytes(64 << 20))),
        (ZSTD, zstandard.ZstdCompressor().compress(bytes(64 << 20))),
        (ZSTD, zstandard.ZstdCompressor(write_content_size=False).compress(bytes(64 << 20))),
        (SNAPPY, varint(-(1 << 30)) + b"\0"),
    ],
)
def test_a_bomb_is_decompressed_up_to_the_cap(codec, bomb):
    with pytest.raises(Unreadable):
        unpack(codec, bomb, 1 << 20)


def expect_unreadable(codec, *sections):
    for section in sections:
        with pytest.raises(Unreadable):
            unpack(codec, section, 100)


def test_a_snappy_block_matches_its_length():
    assert bytes(unpack(SNAPPY, b"\x06\x04ab\x01\x02", 100)) == b"ababab"
    wrong_length = b"\x06\x04ab\x01\x02\x00c", b"\x07\x04ab\x01\x02"
    wrong_distance = b"\x06\x04ab\x01\x00", b"\x06\x04ab\x01\x03"
    cut_off = b"\x06\x04ab\x01", b"\x06\x14ab", b""
    long_length = b"\x86\x80\x80\x80\x80\x00\x04ab\x01\x02", b"\x86\x80\x80\x80\x10\x04ab\x01\x02"
    expect_unreadable(SNAPPY, *wrong_length, *wrong_distance, *cut_off, *long_length)


def lz4_frame(block, flags=0x40, plain=False):
    head = b"\x04\x22\x4d\x18" + bytes([flags, 0x40, 0])
    return head + struct.pack("<I", len(block) | plain << 31) + block + bytes(4)


def test_an_lz4_block_ends_with_literals():
    assert bytes(unpack(LZ4, lz4_frame(b"\x11a\x01\x00\x10b"), 100)) == b"aaaaaab"
    assert bytes(unpack(LZ4, lz4_frame(b"\x11a\x01\x00\x00"), 100)) == b"aaaaaa"
    assert bytes(unpack(LZ4, lz4_frame(b"plain", plain=True), 100)) == b"plain"
    distances = b"\x11a\x01\x00", b"\x11a\x00\x00\x10b", b"\x11a\x02\x00\x10b", b"\x11a\x01"
    expect_unreadable(LZ4, *map(lz4_frame, (*distances, b"\x20a", b"\xf0\xff")))
    expect_unreadable(LZ4, *(lz4_frame(b"\x10b", flags) for flags in (0x42, 0x80, 0x00, 0x48, 0x44)))
    linked = lz4_frame(b"\x11a\x01\x00\x10b")[:-4] + struct.pack("<I", 5) + b"\x10c\x03\x00\x00" + bytes(4)
    assert bytes(unpack(LZ4, linked, 100)) == b"aaaaaabc" + b"abca"
    expect_unreadable(LZ4, linked[:4] + b"\x60" + linked[5:])  # independent blocks


def test_gzip_verifies_its_checksum():
    section = gzip.compress(b"held")
    assert bytes(unpack(GZIP, section + gzip.compress(b"more"), 8)) == b"heldmore"
    expect_unreadable(GZIP, section[:-8] + bytes(8), section + b"\0", zlib.compress(b"held"), b"")


def test_zstd_data_consists_of_frames_only():
    frame = zstandard.ZstdCompressor().compress(b"held")
    skipped = struct.pack("<II", 0x184D2A53, 3) + b"abc"
    assert bytes(unpack(ZSTD, skipped + frame + frame, 8)) == b"heldheld"
    assert bytes(unpack(ZSTD, b"", 0)) == b""
    by_hand = b"(\xb5/\xfd\0%c" + struct.pack("<I", 4 << 3 | 1)[:3] + b"held"
    assert bytes(unpack(ZSTD, by_hand % (17 << 3), 4)) == b"held"  # a window of 2^27 bytes
    large = by_hand % (18 << 3)
    named = b"(\xb5/\xfd\x01\x50\7" + by_hand[6:]  # a dictionary, number 7
    expect_unreadable(ZSTD, frame + b"\0", skipped[:-1], frame[:-1], b"(\xb5/\xfd", large, named)


@pytest.mark.parametrize(
    ("what", "made"),
    [
        ("magic", batch(0, record(0, b"a"), 1, magic=1)),
        ("a codec", batch(0, record(0, b"a"), 1, attributes=5)),
        ("a checksum", batch(0, record(0, b"a"), 1)[:-1] + b"\1"),
        ("a count", batch(0, record(0, b"a"), 2)),
        ("a count below 0", batch(0, record(0, b"a"), -1, last=0)),
        ("a last offset below 0", batch(0, record(0, b"a"), 1, last=-1)),
        ("an offset above the last", batch(0, record(1, b"a"), 1, last=0)),
        ("offsets that do not ascend", batch(0, record(1, b"a") + record(1, b"b"), 2, last=3)),
        ("bytes behind the records", batch(0, record(0, b"a") + b"\0", 1)),
        ("a base below 0", batch(-5, record(0, b"a"), 1)),
        ("headers below 0", batch(0, record(0, b"a")[:-1] + varint(-1), 1)),
        ("a short length", b"\0" * 11 + b"\x30" + batch(0, b"", 0)[12:60]),
    ],
)
def test_a_false_batch_is_one_unreadable_batch_and_the_next_is_read(what, made):
    fetched = made + batch(10, record(0, b"b", timestamp=3), 1)
    count = 0 if what == "a base below 0" else 1  # it ends below where reading begins
    assert ours(fetched) == theirs(fetched) == ([(NOW + 3, b"b")], count)


def test_an_unreadable_batch_counts_at_its_end():
    made = batch(10, b"nothing", 5)
    assert batches.whole(made)[0].end == 15
    for start, stop, count in ((0, 15, 1), (0, 14, 0), (14, 15, 1), (15, 99, 0), (12, 99, 1), (0, 10, 0)):
        assert ours(made, start, stop) == ([], count), (start, stop)


def test_the_cap_is_that_of_the_first_offset():
    section = record(0, bytes(100))
    fetched = b"".join(batch(base, section, 1) for base in (0, 10, 20, 30))
    assert ours(fetched, caps=[(5, 10), (15, None), (30, len(section) - 1)])[1] == 3
    assert ours(fetched, caps=[(5, 10), (15, None), (30, len(section))])[1] == 2
    assert ours(fetched, start=25, caps=[(0, 10), (30, None)])[1] == 0


def test_aborted_transactions_are_skipped_but_their_checksums_are_checked():
    torn = batch(1, b"no records", 1, attributes=TRANSACTIONAL | LZ4, producer=1)
    log = [
        batch(0, record(0, b"a"), 1, attributes=TRANSACTIONAL, producer=2),
        torn,
        marker(2, 1),
        batch(3, record(0, b"b"), 1, attributes=TRANSACTIONAL, producer=1),
    ]
    assert ours(b"".join(log), aborted=[(1, 1)]) == ([(NOW, b"a"), (NOW, b"b")], 0)
    assert ours(b"".join(log)) == ([(NOW, b"a"), (NOW, b"b")], 1)
    log[1] = torn[:-1] + b"!"
    assert ours(b"".join(log), aborted=[(1, 1)]) == ([(NOW, b"a"), (NOW, b"b")], 1)
    assert [one.corrupt for one in batches.whole(b"".join(log))] == [False, True, False, False]


def test_the_reach_ends_at_the_last_whole_batch():
    one, two = batch(3, record(0, b"a"), 1, last=4), batch(20, record(0, b"b"), 1)
    assert batches.reach(one + two) == (len(one + two), 21)
    assert batches.reach((one + two)[:-1]) == (len(one), 8)
    assert batches.reach(one[:-1]) == (0, -1)
