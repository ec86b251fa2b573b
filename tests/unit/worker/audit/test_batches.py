"""The audit's reading of record batches: by hand, by kafka-python's builder, and beside the worker's own reading."""

import gzip
import random
import struct
import zlib

import crc32c
import lz4.block
import lz4.frame
import numpy as np
import pytest
import snappy
import zstandard
from kafka.codec import snappy_encode
from kafka.record.memory_records import MemoryRecordsBuilder

from worker.audit import batches
from worker.audit.codecs import Unreadable, unpack
from worker.kafka.records import Arena, Reader

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
TRANSACTIONAL, CONTROL, APPEND_TIME = 16, 32, 8
NOW = 1_700_000_000_000
ABORT, COMMIT = b"\0\0\0\0", b"\0\0\0\1"


def varint(number):
    number = number << 1 ^ number >> 63
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(made) + bytes([number])


def sized(value):
    return varint(-1) if value is None else varint(len(value)) + value


def record(delta, value, key=None, headers=(), timestamp=0):
    body = b"\0" + varint(timestamp) + varint(delta) + sized(key) + sized(value) + varint(len(headers))
    body += b"".join(sized(name) + sized(held) for name, held in headers)
    return varint(len(body)) + body


def batch(base, section, count, last=None, attributes=0, producer=-1, first=NOW, highest=NOW, magic=2):
    last = count - 1 if last is None else last
    behind = struct.pack(">hiqqqhii", attributes, last, first, highest, producer, 0, 0, count) + section
    header = struct.pack(">qiibI", base, len(behind) + 9, 0, magic, crc32c.crc32c(behind))
    return header + behind


def sealed(made):
    """With the checksum and the length that belong to it."""
    made = made[:8] + struct.pack(">i", len(made) - 12) + made[12:]
    return made[:17] + struct.pack(">I", crc32c.crc32c(made[21:])) + made[21:]


def ours(fetched, start=0, stop=1 << 62, aborted=(), caps=((0, None),)):
    """What the audit reads: (timestamp, value) of each record, and how many batches it cannot read."""
    found, unreadable = [], 0
    for read in batches.read(batches.whole(fetched), start, stop, list(aborted), list(caps)):
        unreadable += read.unreadable
        data = read.data.tobytes()
        for timestamp, begin, end in zip(read.timestamps, read.begins, read.ends, strict=True):
            found += [(int(timestamp), data[begin:end])]
    return found, unreadable


def theirs(fetched, start=0, stop=1 << 62, aborted=(), caps=((0, None),)):
    """What the worker reads of it, up to an offset."""
    reader = Reader(np.frombuffer(fetched, np.uint8), start, list(aborted), list(caps))
    arena, found, unreadable = Arena(), [], 0
    while (stretch := reader.read(arena)) is not None:
        columns = stretch.columns
        unreadable += sum(bad.end <= stop for bad in stretch.unreadable)
        wanted = range(int(np.searchsorted(columns.offsets, stop)))
        found += [(int(columns.timestamps[i]), columns.value(i)) for i in wanted]
    return found, unreadable


def compressed(data, codec, rng):
    """The data as some producer writes them in a codec."""
    way = rng.randrange(8)
    if codec == GZIP:
        half = len(data) // 2 if way == 7 else 0
        return (gzip.compress(data[:half]) if half else b"") + gzip.compress(data[half:], 1 + way)
    if codec == SNAPPY:
        return (
            snappy_encode(data, xerial_blocksize=(32 << 10, 16, 100)[way % 3])
            if way & 1
            else snappy.compress(data)
        )
    if codec == LZ4:
        return lz4.frame.compress(
            data,
            block_size=4 + way % 4,
            block_linked=bool(way & 1),
            content_checksum=bool(way & 2),
            block_checksum=bool(way & 4),
            store_size=way > 5,
        )
    if codec == ZSTD:
        return zstandard.ZstdCompressor(
            level=1 + way, write_content_size=bool(way & 1), write_checksum=bool(way & 2)
        ).compress(data)
    return data


def some_log(rng, n=12):
    """Batches of every kind in the order of their offsets, and the aborted transactions among them."""
    base, made, begun, aborted = rng.randrange(50), [], {}, []
    for _ in range(n):
        producer = rng.choice([-1, -1, 1, 2, 3])
        if producer in begun and rng.random() < 0.5:
            what = rng.choice([ABORT, COMMIT])
            first = begun.pop(producer)
            if what == ABORT:
                aborted.append((producer, first))
            made.append(batch(base, record(0, b"\0\0", what), 1, None, TRANSACTIONAL | CONTROL, producer))
            base += 1
            continue
        attributes = APPEND_TIME if rng.random() < 0.2 else 0
        if producer > 0 and (producer in begun or rng.random() < 0.6):
            attributes |= TRANSACTIONAL
            begun.setdefault(producer, base)
        kept = [i for i in range(rng.randint(1, 150)) if rng.random() < 0.8]
        section = b"".join(
            record(
                i,
                None
                if rng.random() < 0.05
                else b"frame" * rng.randrange(9) + rng.randbytes(rng.randrange(9)),
                rng.randbytes(3) if rng.random() < 0.1 else None,
                [(b"name", rng.choice([None, b"", b"held"]))] * rng.randrange(3)
                if rng.random() < 0.1
                else (),
                rng.choice([0, 1, -5, 10**5, 2**40, -(2**62)]),
            )
            for i in kept
        )
        codec = rng.randrange(5)
        last = max([*kept, 0])
        made.append(
            batch(base, compressed(section, codec, rng), len(kept), last, attributes | codec, producer)
        )
        base += last + 1 + (3 if rng.random() < 0.1 else 0)
    for producer, first in begun.items():
        made.append(batch(base, record(0, b"", ABORT), 1, None, TRANSACTIONAL | CONTROL, producer))
        aborted.append((producer, first))
        base += 1
    return made, aborted


def damaged(whole, rng):
    """A batch with something wrong, its checksum mended mostly."""
    made = bytearray(whole)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(21, len(made))
        match rng.randrange(8):
            case 0:
                made[at] ^= 1 << rng.randrange(8)
            case 1:
                made[at] = rng.choice([0, 1, 0x7F, 0x80, 0xFF])
            case 2 if at >= 61:
                del made[at : at + rng.randint(1, 8)]
            case 3 if at >= 61:
                made[at:at] = rng.randbytes(rng.randint(1, 8))
            case 4 if at >= 61:
                del made[at:]
            case 5:
                field, size = rng.choice([(57, 4), (21, 2), (27, 8), (35, 8)])
                made[field : field + size] = rng.randint(-3, 300).to_bytes(size, "big", signed=True)
            case 6 if at >= 61:
                made[at : at + 10] = b"\xff" * len(made[at : at + 10])
            case 7 if len(made) > 70:
                made[rng.randrange(61, 70)] ^= 1 << rng.randrange(8)
    made = bytes(made)
    return made if rng.random() < 0.05 else sealed(made)


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("n", [1, 10, 3_000])
def test_what_kafka_pythons_own_builder_makes_is_read(codec, n):
    builder = MemoryRecordsBuilder(2, codec, 1 << 30)
    rng = random.Random(n)
    records = [(NOW + i * i, b"\x01frame" + rng.randbytes(i % 3)) for i in range(n)]
    for i, (timestamp, value) in enumerate(records):
        headers = [("name", b"held"), ("none", None)] if i % 3 == 1 else []
        builder.append(timestamp, b"key" if i % 5 == 1 else None, value, headers)
    builder.close()
    assert ours(bytes(builder.buffer())) == (records, 0)


def test_both_readings_agree_on_whole_batches():
    records = 0
    for seed in range(80):
        rng = random.Random(seed)
        log, aborted = some_log(rng)
        fetched = b"".join(log)[: -rng.randrange(20) or None]
        start, stop = rng.choice([0, 60, 500]), rng.choice([1 << 62, 700, 900])
        found = ours(fetched, start, stop, aborted)
        assert found == theirs(fetched, start, stop, aborted)
        assert found[1] == 0
        records += len(found[0])
    assert records > 20_000


@pytest.mark.parametrize("seeds", [range(150), pytest.param(range(150, 3_000), marks=pytest.mark.slow)])
def test_both_readings_agree_on_damaged_batches(seeds):
    unreadable = readable = 0
    for seed in seeds:
        rng = random.Random(f"damaged {seed}")
        log, aborted = some_log(rng, 6)
        fetched = b"".join(damaged(one, rng) if rng.random() < 0.7 else one for one in log)
        start, stop = rng.choice([0, 0, 100]), rng.choice([1 << 62, 300])
        caps = sorted({0: None, rng.randrange(400): rng.choice([None, 100, 1_000, 5_000])}.items())
        found = ours(fetched, start, stop, aborted, caps)
        assert found == theirs(fetched, start, stop, aborted, caps), seed
        unreadable, readable = unreadable + found[1], readable + len(found[0])
    assert min(unreadable, readable) > 100


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_what_is_compressed_is_unpacked_up_to_the_cap(codec):
    rng = random.Random(codec)
    for size in (0, 1, 20, 70_000, 300_000):
        plain = bytes(size // 2) + rng.randbytes(50) * (size // 100) + rng.randbytes(size % 50)
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
        (GZIP, gzip.compress(bytes(64 << 20))),
        (GZIP, gzip.compress(bytes(100)) * 20_000),
        (LZ4, lz4.frame.compress(bytes(64 << 20))),
        (ZSTD, zstandard.ZstdCompressor().compress(bytes(64 << 20))),
        (ZSTD, zstandard.ZstdCompressor(write_content_size=False).compress(bytes(64 << 20))),
        (SNAPPY, varint(-(1 << 30)) + b"\0"),
    ],
)
def test_a_bomb_is_unpacked_no_further_than_the_cap(codec, bomb):
    with pytest.raises(Unreadable):
        unpack(codec, bomb, 1 << 20)


@pytest.mark.parametrize(
    "section",
    [
        b"\x06\x04ab\x01\x02\x00c",  # more than it says
        b"\x07\x04ab\x01\x02",  # less
        b"\x06\x04ab\x01\x00",  # from 0 bytes back
        b"\x06\x04ab\x01\x03",  # from before the beginning
        b"\x06\x04ab\x01",  # cut off
        b"\x06\x14ab",
        b"\x86\x80\x80\x80\x80\x00\x04ab\x01\x02",  # a length of six bytes
        b"\x86\x80\x80\x80\x10\x04ab\x01\x02",  # of more than 32 bits
        b"",
    ],
)
def test_a_snappy_block_is_what_its_length_says(section):
    assert bytes(unpack(SNAPPY, b"\x06\x04ab\x01\x02", 100)) == b"ababab"
    with pytest.raises(Unreadable):
        unpack(SNAPPY, section, 100)


def lz4_frame(block, flags=0x40, plain=False):
    return (
        b"\x04\x22\x4d\x18"
        + bytes([flags, 0x40, 0])
        + struct.pack("<I", len(block) | plain << 31)
        + block
        + bytes(4)
    )


def test_an_lz4_block_is_sequences_and_the_last_is_literals():
    assert bytes(unpack(LZ4, lz4_frame(b"\x11a\x01\x00\x10b"), 100)) == b"aaaaaab"
    assert bytes(unpack(LZ4, lz4_frame(b"\x11a\x01\x00\x00"), 100)) == b"aaaaaa"
    assert bytes(unpack(LZ4, lz4_frame(b"plain", plain=True), 100)) == b"plain"
    for bad in (
        b"\x11a\x01\x00",
        b"\x11a\x00\x00\x10b",
        b"\x11a\x02\x00\x10b",
        b"\x11a\x01",
        b"\x20a",
        b"\xf0\xff",
    ):
        with pytest.raises(Unreadable):
            unpack(LZ4, lz4_frame(bad), 100)
    for flags in (0x42, 0x80, 0x00, 0x48, 0x44):
        with pytest.raises(Unreadable):
            unpack(LZ4, lz4_frame(b"\x10b", flags), 100)
    linked = lz4_frame(b"\x11a\x01\x00\x10b")[:-4] + struct.pack("<I", 5) + b"\x10c\x03\x00\x00" + bytes(4)
    assert bytes(unpack(LZ4, linked, 100)) == b"aaaaaabc" + b"abca"
    with pytest.raises(Unreadable):
        unpack(LZ4, linked[:4] + b"\x60" + linked[5:], 100)  # blocks that stand alone


def test_gzip_checks_what_it_holds():
    section = gzip.compress(b"held")
    assert bytes(unpack(GZIP, section + gzip.compress(b"more"), 8)) == b"heldmore"
    for bad in (section[:-8] + bytes(8), section + b"\0", section + b"nothing", zlib.compress(b"held"), b""):
        with pytest.raises(Unreadable):
            unpack(GZIP, bad, 100)


def test_zstd_is_frames_and_nothing_else():
    frame = zstandard.ZstdCompressor().compress(b"held")
    skipped = struct.pack("<II", 0x184D2A53, 3) + b"abc"
    assert bytes(unpack(ZSTD, skipped + frame + frame, 8)) == b"heldheld"
    assert bytes(unpack(ZSTD, b"", 0)) == b""
    by_hand = b"(\xb5/\xfd\0%c" + struct.pack("<I", 4 << 3 | 1)[:3] + b"held"
    assert bytes(unpack(ZSTD, by_hand % (17 << 3), 4)) == b"held"  # a window of 2^27 bytes
    large = by_hand % (18 << 3)
    named = b"(\xb5/\xfd\x01\x50\7" + by_hand[6:]  # a dictionary, number 7
    for bad in (frame + b"\0", skipped[:-1], frame[:-1], b"(\xb5/\xfd", large, named):
        with pytest.raises(Unreadable):
            unpack(ZSTD, bad, 100)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_unreadable(codec):
    assert ours(batch(0, record(0, b"a"), 1, attributes=codec)) == ([], 1)


@pytest.mark.parametrize(
    ("what", "made"),
    [
        ("magic", batch(0, record(0, b"a"), 1, magic=1)),
        ("a checksum", batch(0, record(0, b"a"), 1)[:-1] + b"\1"),
        ("a count", batch(0, record(0, b"a"), 2)),
        ("a count below 0", batch(0, record(0, b"a"), -1, 0)),
        ("a last offset below 0", batch(0, record(0, b"a"), 1, -1)),
        ("an offset above the last", batch(0, record(1, b"a"), 1, 0)),
        ("offsets that do not ascend", batch(0, record(1, b"a") + record(1, b"b"), 2, 3)),
        ("bytes behind the records", batch(0, record(0, b"a") + b"\0", 1)),
        ("a base below 0", batch(-5, record(0, b"a"), 1)),
        ("headers below 0", batch(0, record(0, b"a")[:-1] + varint(-1), 1)),
        ("a short length", sealed(batch(0, b"", 0)[:60])),
    ],
)
def test_what_lies_is_one_unreadable_batch_and_the_next_is_read(what, made):
    fetched = made + batch(10, record(0, b"b", timestamp=3), 1)
    count = 0 if what == "a base below 0" else 1  # it ends below where reading begins
    assert ours(fetched) == theirs(fetched) == ([(NOW + 3, b"b")], count)


def test_an_unreadable_batch_counts_where_it_ends():
    made = batch(10, b"nothing", 5)
    assert batches.whole(made)[0].end == 15
    for start, stop, count in ((0, 15, 1), (0, 14, 0), (14, 15, 1), (15, 99, 0), (12, 99, 1), (0, 10, 0)):
        assert ours(made, start, stop) == ([], count), (start, stop)


def test_the_cap_is_the_one_at_the_first_offset():
    section = record(0, bytes(100))
    fetched = b"".join(batch(base, section, 1) for base in (0, 10, 20, 30))
    assert ours(fetched, caps=[(5, 10), (15, None), (30, len(section) - 1)])[1] == 3
    assert ours(fetched, caps=[(5, 10), (15, None), (30, len(section))])[1] == 2
    assert ours(fetched, start=25, caps=[(0, 10), (30, None)])[1] == 0


def test_aborted_transactions_are_passed_over_and_their_checksums_are_not():
    torn = batch(1, b"no records", 1, attributes=TRANSACTIONAL | LZ4, producer=1)
    log = [
        batch(0, record(0, b"a"), 1, attributes=TRANSACTIONAL, producer=2),
        torn,
        batch(2, record(0, b"", ABORT), 1, attributes=TRANSACTIONAL | CONTROL, producer=1),
        batch(3, record(0, b"b"), 1, attributes=TRANSACTIONAL, producer=1),
    ]
    assert ours(b"".join(log), aborted=[(1, 1)]) == ([(NOW, b"a"), (NOW, b"b")], 0)
    assert ours(b"".join(log)) == ([(NOW, b"a"), (NOW, b"b")], 1)
    log[1] = torn[:-1] + b"!"
    assert ours(b"".join(log), aborted=[(1, 1)]) == ([(NOW, b"a"), (NOW, b"b")], 1)
    assert [one.corrupt for one in batches.whole(b"".join(log))] == [False, True, False, False]


def test_many_small_batches_and_one_large_one():
    small = [batch(i, record(0, b"%d" % i), 1) for i in range(500)]
    large = batch(500, b"".join(record(i, bytes(1000)) for i in range(3_000)), 3_000)
    found, unreadable = ours(b"".join(small) + large + batch(9_000, record(0, b"x"), 1))
    assert unreadable == 0
    assert [value for _, value in found] == [b"%d" % i for i in range(500)] + [bytes(1000)] * 3_000 + [b"x"]


def test_reach_is_up_to_the_last_whole_batch():
    one, two = batch(3, record(0, b"a"), 1, 4), batch(20, record(0, b"b"), 1)
    assert batches.reach(one + two) == (len(one + two), 21)
    assert batches.reach((one + two)[:-1]) == (len(one), 8)
    assert batches.reach(one[:-1]) == (0, -1)
