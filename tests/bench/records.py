"""Decoding record batches: the bytes of a fetch as columns, against kafka-python's record by record."""

import struct
from collections.abc import Iterator

import numpy as np
from kafka.record.memory_records import MemoryRecords, MemoryRecordsBuilder

from tests.bench.measure import Line, compare
from worker.kafka.decoding.records import Arena, Reader, warm

RECORDS = 280_000
PEER_RECORDS = 14_000
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
CASES = [
    ("lz4", 7_000),
    ("zstd", 7_000),
    ("gzip", 7_000),
    ("snappy", 7_000),
    ("lz4", 100),
    ("lz4", 10),
    ("none", 1),
]


def lines() -> Iterator[Line]:
    """Records a second, for frames of one report that producers batched."""
    warm()
    arena = Arena()
    for codec, n in CASES:
        fetched, few = log(CODECS[codec], n, RECORDS), log(CODECS[codec], n, PEER_RECORDS)
        assert ours(few, arena) == theirs(few), "the peer decodes otherwise"
        yield compare(
            f"decode record batches, {codec}, {n} a batch",
            lambda fetched=fetched: ours(fetched, arena),  # type: ignore[misc]
            lambda few=few: theirs(few),  # type: ignore[misc]
            peer_name="kafka-python, one record at a time",
            setup=f"values of 8 bytes, {len(fetched) / RECORDS:.1f} bytes a record, {RECORDS} records a call",
            rate=(RECORDS, "records"),
            peer_handles=PEER_RECORDS,
        )


def log(codec: int, n: int, records: int) -> bytes:
    """So many records in batches of n: a frame of one report each, two to five of them in a millisecond."""
    rng, made = np.random.default_rng(3), bytearray()
    pool = [_batch(codec, n, rng) for _ in range(min(20, records // n))]
    for k in range(records // n):
        made += struct.pack(">q", k * n) + pool[k % len(pool)][8:]
    return bytes(made)


def _batch(codec: int, n: int, rng: np.random.Generator) -> bytes:
    builder = MemoryRecordsBuilder(2, codec, 1 << 24)
    clock = 1_700_000_000_000 + np.cumsum(rng.random(n) < 0.3)
    for timestamp, report in zip(clock.tolist(), rng.integers(0, 256, (n, 3), np.uint8), strict=True):
        builder.append(timestamp, None, b"\x01\x9f\x86\xd0\x81" + report.tobytes(), [])
    builder.close()
    return bytes(builder.buffer())


def ours(fetched: bytes, arena: Arena) -> tuple[int, int]:
    """How many records there are, and the sum of their offsets."""
    reader = Reader(np.frombuffer(fetched, np.uint8), 0, [], [(0, 16 << 20)])
    count = total = 0
    while (chunk := reader.read(arena)) is not None:
        count += len(chunk.columns)
        total += int(chunk.columns.offsets.sum())
    return count, total


def theirs(fetched: bytes) -> tuple[int, int]:
    """The same of kafka-python's record batches, checksums checked as its consumer does."""
    log, count, total = MemoryRecords(fetched), 0, 0
    while (batch := log.next_batch()) is not None:
        assert batch.validate_crc()
        for record in batch:
            count += 1
            total += record.offset
    return count, total
