"""Record batches to decode: valid batches of every kind, and damaged batches with valid checksums."""

import gzip
import struct
from types import SimpleNamespace

import crc32c
import lz4.frame
import numpy as np
import snappy
import zstandard
from kafka import TopicPartition
from kafka.codec import snappy_encode
from kafka.consumer.fetcher import Fetcher
from kafka.record.memory_records import MemoryRecords

from tests.support import decoding
from tests.support.decoding import HEADER
from worker.kafka.decoding.records import Arena, Reader

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
TRANSACTIONAL, CONTROL, APPEND_TIME = 16, 32, 8
ABORT, COMMIT = struct.pack(">hh", 0, 0), struct.pack(">hh", 0, 1)
NOW = 1_700_000_000_000


def varint(number):
    number = number << 1 ^ number >> 63
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(made) + bytes([number])


def sized(value):
    return varint(-1) if value is None else varint(len(value)) + value


def record(delta, value, *, key=None, headers=(), timestamp=0):
    body = b"\0" + varint(timestamp) + varint(delta) + sized(key) + sized(value) + varint(len(headers))
    body += b"".join(sized(name) + sized(held) for name, held in headers)
    return varint(len(body)) + body


def batch(
    base, section, count, *, last=None, attributes=0, producer=-1, first=NOW, highest=NOW, magic=2, leader=0
):
    """A batch of a section that is already compressed, sealed."""
    last = count - 1 if last is None else last
    fields = (
        base,
        len(section) + 49,
        leader,
        magic,
        0,
        attributes,
        last,
        first,
        highest,
        producer,
        0,
        0,
        count,
    )
    return sealed(HEADER.pack(*fields) + section)


def sealed(damaged):
    """With the checksum that belongs to it."""
    return damaged[:17] + struct.pack(">I", crc32c.crc32c(damaged[21:])) + damaged[21:]


def marker(base, producer, key=ABORT):
    return batch(
        base, record(0, b"\0\0\0\0\0\0", key=key), 1, attributes=TRANSACTIONAL | CONTROL, producer=producer
    )


def compressed(data, codec, rng=None):
    """The data in a format of the codec, one of several that producers write."""
    way = int(rng.integers(8)) if rng is not None else 0
    if codec == GZIP:
        half = len(data) // 2 if way == 7 else 0
        first = gzip.compress(data[:half], 1, mtime=0) if half else b""
        return first + gzip.compress(data[half:], 1 + way, mtime=0)
    if codec == SNAPPY:
        if way & 1:
            return snappy_encode(data, xerial_blocksize=(32 << 10, 16, 100, 1000)[way >> 1])
        return snappy.compress(data)
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
        written = zstandard.ZstdCompressor(
            write_content_size=bool(way & 1), write_checksum=bool(way & 2), level=1 + way // 3
        )
        half = len(data) // 2 if way == 7 else 0
        front = written.compress(data[:half]) + struct.pack("<II", 0x184D2A53, 3) + b"abc" if half else b""
        return front + written.compress(data[half:])
    return data


class Maker:
    """Makes a log of batches of every kind, a batch a call, in the order of their offsets."""

    def __init__(self, rng, most=12):
        self.rng = rng
        self.most = most
        self.offset = self.first = int(self.rng.integers(1000))
        self.open = {}  # producer -> (first offset, whether it will be aborted)
        self.aborted = []  # (producer, first offset, offset of the marker)

    def chance(self, p):
        return bool(self.rng.random() < p)

    def bytes(self, most):
        return self.rng.integers(
            0, 1 + int(self.rng.integers(255)), int(self.rng.integers(most)), np.uint8
        ).tobytes()

    def next(self):
        rng, base = self.rng, self.offset
        if self.open and self.chance(0.15):
            producer = list(self.open)[int(rng.integers(len(self.open)))]
            first, abort = self.open.pop(producer)
            if abort:
                self.aborted.append((producer, first, base))
            self.offset += 1
            return marker(base, producer, ABORT if abort else COMMIT)
        producer, attributes = -1, 0
        if self.chance(0.4):
            producer = int(rng.integers(4))
            if producer in self.open or self.chance(0.6):
                attributes |= TRANSACTIONAL
                self.open.setdefault(producer, (base, self.chance(0.5)))
        if self.chance(0.2):
            attributes |= APPEND_TIME
        full = int(rng.integers(1, self.most + 1))
        kept = [d for d in range(full) if self.chance(0.7)] if self.chance(0.3) else list(range(full))
        like = self.bytes(30)
        records = [
            record(
                delta,
                None if self.chance(0.05) else like + self.bytes(12),
                key=self.bytes(9) if self.chance(0.2) else None,
                headers=[
                    (b"h" * int(rng.integers(3)), None if self.chance(0.3) else self.bytes(5))
                    for _ in range(int(rng.integers(3)))
                ]
                if self.chance(0.2)
                else (),
                timestamp=int(rng.integers(-10, 10)) * 10 ** int(rng.integers(0, 15)),
            )
            for delta in kept
        ]
        codec = int(rng.integers(5)) if records else NONE
        section = compressed(b"".join(records), codec, rng)
        self.offset += full + (int(rng.integers(5)) if self.chance(0.1) else 0)
        return batch(
            base,
            section,
            len(kept),
            last=full - 1,
            attributes=attributes | codec,
            producer=producer,
            highest=NOW + int(rng.integers(10_000)),
            leader=int(rng.integers(5)),
        )

    def log(self, n):
        """A number of batches, with a marker for every aborted transaction."""
        made = [self.next() for _ in range(n)]
        for producer, (first, abort) in list(self.open.items()):
            if abort:
                made.append(marker(self.offset, producer))
                self.aborted.append((producer, first, self.offset))
                self.offset += 1
                del self.open[producer]
        return made


def damaged(whole, rng):
    """A batch with an error, most often with a valid checksum."""
    made = bytearray(whole)
    for _ in range(int(rng.integers(1, 4))):
        way, at = int(rng.integers(9)), int(rng.integers(21, max(22, len(made))))
        at = min(at, len(made) - 1)
        if way == 0:
            made[at] ^= 1 << int(rng.integers(8))
        elif way == 1:
            made[at] = (0, 1, 0x7F, 0x80, 0xFF)[int(rng.integers(5))]
        elif way == 2 and at >= 61:
            del made[at : at + int(rng.integers(1, 9))]
        elif way == 3 and at >= 61:
            made[at:at] = bytes([int(rng.integers(256))]) * int(rng.integers(1, 9))
        elif way == 4 and at >= 61:
            del made[at:]
        elif way == 5:
            field, most = [(57, 4), (23, 4), (21, 2), (27, 8), (35, 8)][int(rng.integers(5))]
            made[field : field + most] = int(rng.integers(-3, 300)).to_bytes(most, "big", signed=True)
        elif way == 6 and at >= 61:
            size = min(int(rng.integers(1, 11)), len(made) - at)
            made[at : at + size] = b"\xff" * size
        elif way == 7:
            made += bytes(int(rng.integers(1, 20)))
        elif way == 8 and len(made) > 70:
            made[61 + int(rng.integers(8))] ^= 1 << int(rng.integers(8))
    struct.pack_into(">i", made, 8, len(made) - 12)
    if rng.random() < 0.05:
        return bytes(made)
    made = bytearray(sealed(bytes(made)))
    if rng.random() < 0.003:
        made[int(rng.integers(17))] ^= 1 << int(rng.integers(8))  # bytes outside every checksum
    return bytes(made)


def spoilt(whole, rng):
    """A batch with anything wrong that a fetch can bring: in its records, its codec, or what no checksum covers."""
    made = bytearray(strange(whole, rng) if rng.random() < 0.4 else damaged(whole, rng))
    if rng.random() < 0.3:
        size, any_of = len(made) - 12, (0, 8, 12, 16)[int(rng.integers(4))]
        form, values = {
            0: (">q", (-1, -(2**63), 2**63 - 1, 2**63 - 2**31, 2**63 - 1 - 2**31, int(rng.integers(2_000)))),
            8: (">i", (-1, -(2**31), -size, 0, 4, 5, 9, 11, 48, 49, 2**31 - 1, size - 1, size + 1)),
            12: (">i", (-1, -(2**31), 7)),
            16: (">b", (0, 1, 3, 127, -1, -128)),
        }[any_of]
        struct.pack_into(form, made, any_of, values[int(rng.integers(len(values)))])
    return bytes(made)


def strange(whole, rng):
    """Returns the header of a batch with some malformed records."""

    def odd(p=0.04):
        return rng.random() < p

    def number(n, most=5):
        """A varint, perhaps another number, or in more bytes than it takes."""
        if odd():
            n = (-1, -2, 0, 1, 2**31 - 1, -(2**31), 2**31, 2**35, 2**63 - 1, -(2**63))[int(rng.integers(10))]
        made = bytearray(varint(n) if n >= 0 else varint(n & 2**64 - 1) if n < -(2**62) else varint(n))
        if odd():
            made[-1] |= 0x80
            made += bytes([0x80] * int(rng.integers(most)) + [int(rng.integers(4)) * int(rng.integers(40))])
        return bytes(made)

    def text(value):
        return number(-1) if value is None else number(len(value)) + value

    records, delta = [], 0
    for _ in range(int(rng.integers(1, 5))):
        headers = [
            (rng.bytes(int(rng.integers(3))), b"x" if odd(0.5) else None) for _ in range(int(odd(0.3)) * 2)
        ]
        body = bytes([int(odd()) * 255]) + number(int(rng.integers(-9, 99)), 10) + number(delta)
        body += text(b"key" if odd(0.2) else None) + text(rng.bytes(int(rng.integers(9))))
        body += number(len(headers)) + b"".join(text(name) + text(held) for name, held in headers)
        body += b"\0" * odd()
        records.append(number(len(body)) + body)
        delta += int(rng.integers(-1, 3)) if odd(0.1) else 1
    fields = list(HEADER.unpack_from(whole))
    codec = int(rng.integers(5)) if odd(0.5) else 0
    attributes = fields[5] & ~7 | (codec if not odd() else int(rng.integers(8)))
    if odd(0.1):
        attributes ^= (APPEND_TIME, TRANSACTIONAL, CONTROL)[int(rng.integers(3))]
    counts = len(records) + int(odd(0.1)) * int(rng.integers(-6, 3))
    last = max(fields[6], delta) + int(odd(0.1)) * int(rng.integers(-6, 3))
    times = [(-1, -(2**63), 2**63 - 1, 0)[int(rng.integers(4))] if odd() else fields[k] for k in (7, 8)]
    return batch(
        fields[0],
        compressed(b"".join(records), codec, rng),
        counts,
        last=last,
        attributes=attributes,
        producer=fields[9] if not odd() else (-1, -2, 2**63 - 1)[int(rng.integers(3))],
        first=times[0],
        highest=times[1],
    )


def drain(fetched, start=0, aborted=None, caps=((0, None),), arena=None):
    """Everything that our reader reads: records, unreadable batches, the end, and the number of records with a key."""
    reader = Reader(np.frombuffer(fetched, np.uint8), start, aborted, caps)
    arena, records, bad, end, with_key = arena or Arena(), [], [], start, 0
    while (chunk := reader.read(arena)) is not None:
        columns = chunk.columns
        data = columns.data.tobytes()
        records += [
            (offset, timestamp, data[begin:stop])
            for offset, timestamp, begin, stop in zip(
                columns.offsets.tolist(),
                columns.timestamps.tolist(),
                columns.begins.tolist(),
                columns.ends.tolist(),
                strict=True,
            )
        ]
        bad += chunk.unreadable
        assert chunk.end >= end
        end, with_key = chunk.end, with_key + chunk.with_key_or_headers
    return records, bad, end, with_key


def drain_keyed(fetched, start, aborted, caps, arena):
    """The same as `drain` returns, by the reading of our own topics."""
    reader, every = (
        Reader(np.frombuffer(fetched, np.uint8), start, aborted, caps),
        np.frombuffer(b"", np.uint8),
    )
    records, bad, end, with_key = [], [], start, 0
    while (part := reader.read_keyed(arena or Arena(), every)) is not None:
        for one in part.records:
            records.append((one.offset, one.timestamp, one.value or b""))
            with_key += one.key is not None or bool(one.headers)
        bad += part.unreadable
        end = part.end
    return records, bad, end, with_key


def by_kafka_python(fetched, start, aborted):
    """Records, as the library's own fetcher gives them, and the offset that it fetches next."""
    found = Fetcher.PartitionRecords(
        start,
        TopicPartition("t", 0),
        MemoryRecords(fetched),
        isolation_level=0 if aborted is None else 1,
        aborted_transactions=[
            SimpleNamespace(producer_id=p, first_offset=first) for p, first in aborted or []
        ],
    )
    taken = found.take()
    return [(one.offset, one.timestamp, one.value or b"") for one in taken], found.next_fetch_offset


def same_as_slowly(fetched, start, aborted, caps, arena):
    want = decoding.read(fetched, start, aborted, caps)
    read, bad, end, with_key = drain(fetched, start, aborted, caps, arena)
    assert read == want.records
    assert [(one.offset, one.end, one.size, one.sha256) for one in bad] == [one[:4] for one in want.bad]
    assert [one.why for one, (*_, reasons) in zip(bad, want.bad, strict=True) if one.why not in reasons] == []
    assert (end, with_key) == (want.end, want.with_key_or_headers)
    assert drain_keyed(fetched, start, aborted, caps, arena) == (read, bad, end, with_key)
    return read, bad
