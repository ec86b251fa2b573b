"""Record batches as columns: against kafka-python's decoding, and against a slow reading of the same rules."""

import hashlib
import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from kafka.record.memory_records import MemoryRecordsBuilder

from tests.support import decoding
from tests.support.batches import (
    ABORT,
    APPEND_TIME,
    COMMIT,
    GZIP,
    NOW,
    TRANSACTIONAL,
    ZSTD,
    Maker,
    batch,
    by_kafka_python,
    compressed,
    damaged,
    drain,
    marker,
    record,
    same_as_slowly,
    varint,
)
from worker.kafka.decoding import records
from worker.kafka.decoding.records import Arena, Reader, scan_headers

ROOT = Path(__file__).parents[3]


def makers(seeds):
    """Logs with their start offset, and the aborted transactions that a broker reports from there on."""
    for seed in seeds:
        rng = np.random.default_rng(seed)
        maker = Maker(rng)
        log = maker.log(20)
        start = int(rng.integers(maker.offset)) if seed & 1 else 0
        told = [(producer, first) for producer, first, last in maker.aborted if last >= start]
        yield log, start, told if seed & 2 else None, rng


def test_whole_batches_are_read_as_kafka_python_reads_them():
    count = 0
    for log, start, aborted, _ in makers(range(150)):
        # the library begins at the batch that the offset is in, as a broker does
        fetched = b"".join(one for one in log if decoding.end_of(one, b"") > start)
        read, bad, end, _ = drain(fetched, start, aborted)
        assert not bad
        theirs, following = by_kafka_python(fetched, start, aborted)
        assert read == theirs
        assert end == following
        count += len(read)
    assert count > 5_000


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_batches_of_the_java_client_are_read(codec):
    vectors = json.loads((ROOT / "tests/vectors/record_batches.json").read_text(encoding="utf-8"))
    want = [(offset, timestamp, bytes.fromhex(value)) for offset, timestamp, value in vectors["records"]]
    fetched = bytes.fromhex(vectors["batches"][codec])
    assert drain(fetched, 1_000, [], [(0, 1 << 20)]) == (want, [], 1_012, vectors["with_key_or_headers"])


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("n", [1, 6_000])
def test_batches_of_the_kafka_python_builder_are_read(codec, n):
    builder = MemoryRecordsBuilder(2, codec, 1 << 30)
    values = np.random.default_rng(n).integers(0, 256, (n, 3), np.uint8)
    for i, value in enumerate(values):
        headers = [("name", b"held"), ("none", None)] if i % 3 == 1 else []
        builder.append(NOW + i, b"key" if i % 5 == 1 else None, b"\x01frame" + value.tobytes(), headers)
    builder.close()
    fetched = bytes(builder.buffer())
    read, bad, end, with_key = drain(fetched)
    assert (read, end) == by_kafka_python(fetched, 0, None)
    assert not bad
    assert with_key == sum(i % 3 == 1 or i % 5 == 1 for i in range(n))


def test_damaged_batches_are_read_or_refused_with_their_reasons():
    arena, refused = Arena(), set()
    for log, start, aborted, rng in makers(range(1_000, 1_120)):
        caps = sorted(
            {int(rng.integers(1_000)): [None, 40, 100, 300][int(rng.integers(4))] for _ in range(2)}.items()
        )
        fetched = b"".join(damaged(one, rng) if rng.random() < 0.7 else one for one in log)
        _, bad = same_as_slowly(fetched, start, aborted, caps, arena)
        refused |= {one.why for one in bad}
    assert refused >= {"checksum", "codec", "size", "length"}


def test_records_do_not_depend_on_chunk_boundaries(monkeypatch):
    for log, start, aborted, rng in makers(range(60)):
        fetched = b"".join(damaged(one, rng) if rng.random() < 0.3 else one for one in log)
        whole = drain(fetched, start, aborted, [(0, 300)])
        for group, rows in ((1, 4096), (100, 3), (1 << 20, 1)):
            monkeypatch.setattr(records, "GROUP", group)
            monkeypatch.setattr(records, "_ROWS", rows)
            assert drain(fetched, start, aborted, [(0, 300)]) == whole
        monkeypatch.undo()


def test_records_do_not_depend_on_fetch_boundaries():
    for log, start, _, rng in makers(range(60)):
        # also damaged ones, except wrong last offsets, which only the next batch shows
        worse = [damaged(one, rng) if rng.random() < 0.3 else one for one in log]
        lies = [
            bad[:8] != one[:8] or decoding.end_of(bad, b"") != decoding.end_of(one, b"")
            for one, bad in zip(log, worse, strict=True)
        ]
        left = b"".join(one if lie else bad for one, bad, lie in zip(log, worse, lies, strict=True))
        whole = drain(left, start, None, [(0, 300)])
        read, bad, end, with_key = [], [], start, 0
        while size := decoding.whole(left, 0):
            cut = left[: size + int(rng.integers(500))]
            more, refused, end, keys = drain(cut, end, None, [(0, 300)])
            read, bad, with_key = read + more, bad + refused, with_key + keys
            left = left[scan_headers(np.frombuffer(cut, np.uint8))[0] :]
        assert (read, bad, end, with_key) == whole


def test_a_header_scan_reaches_as_far_as_the_reader():
    for log, _, _, rng in makers(range(100)):
        fetched = b"".join(damaged(one, rng) if rng.random() < 0.3 else one for one in log)
        fetched = np.frombuffer(fetched[: int(rng.integers(len(fetched)))], np.uint8)
        size, end, _ = scan_headers(fetched)
        assert drain(fetched, 0)[2] == max(end, 0)
        assert drain(fetched[:size], 0) == drain(fetched, 0)


def test_an_empty_fetch_has_no_records():
    for fetched in (b"", b"\0" * 11, batch(3, b"", 0)[:-1]):
        assert Reader(np.frombuffer(fetched, np.uint8), 0, [], [(0, 1)]).read(Arena()) is None
        assert scan_headers(np.frombuffer(fetched, np.uint8)) == (0, -1, -1)


def test_a_batch_emptied_by_compaction_moves_the_end():
    assert drain(batch(7, b"", 0, last=4), 7) == ([], [], 12, 0)


ONE = record(0, b"v")
WHOLE = batch(5, ONE, 1)


def body(timestamp=b"\0", delta=b"\0", key=b"\1", value=b"\1", headers=b"\0"):
    """A record of fields as they are written."""
    made = b"\0" + timestamp + delta + key + value + headers
    return varint(len(made)) + made


def old(magic, codec):
    """A message of before Kafka 0.11."""
    builder = MemoryRecordsBuilder(magic, codec, 1 << 20)
    builder.append(NOW, None, b"value" * 20)
    builder.close()
    return struct.pack(">q", 5) + bytes(builder.buffer())[8:]


@pytest.mark.parametrize(
    ("fetched", "end", "why"),
    [
        (struct.pack(">qi", 5, -1) + WHOLE, 6, "length"),
        (struct.pack(">qi", 5, 0), 6, "length"),
        (struct.pack(">qi", 5, 4) + b"....", 6, "length"),
        (struct.pack(">qi", 5, 5) + b"....\2", 6, "length"),
        (struct.pack(">qi", 5, 5) + b"....\1", 6, "magic"),
        (
            batch(5, b"", 0)[:11] + b"\x30" + batch(5, b"", 0)[12:60],
            6,
            "length",
        ),  # 48 bytes after the length
        *((old(magic, codec), 6, "magic") for magic in (0, 1) for codec in (0, 1)),
        (batch(5, ONE, 1, magic=3, last=7), 13, "magic"),
        (batch(5, ONE, 1, magic=-1, last=7), 13, "magic"),
        (WHOLE[:-1] + b"\1", 6, "checksum"),
        (batch(5, ONE, 1, attributes=5), 6, "codec"),
        (batch(5, ONE, 1, last=-1), 6, "length"),
        (batch(2**63 - 1, ONE, 1), 2**63 - 1, "length"),
        (batch(2**63 - 2**31, ONE, 1), 2**63 - 1, "length"),
        (batch(5, ONE, 0, last=0), 6, "length"),
        (batch(5, ONE, 2), 7, "length"),
        (batch(5, ONE, -1, last=0), 6, "length"),
        (batch(5, ONE, 2**31 - 1, last=0), 6, "length"),
        (batch(5, ONE + b"\0", 1), 6, "length"),
        (batch(5, ONE[:-1], 1), 6, "length"),
        (batch(5, record(1, b"v"), 1), 6, "length"),  # behind the last offset
        (batch(5, record(-1, b"v"), 1), 6, "length"),
        (batch(5, ONE + ONE, 2), 7, "length"),
        (batch(5, record(1, b"v") + ONE, 2), 7, "length"),
        (batch(5, varint(-7) + ONE[1:], 1), 6, "length"),
        (batch(5, varint(2**31 - 1) + ONE[1:], 1), 6, "length"),
        (batch(5, b"\x90\x80\x80\x80\x10" + ONE[1:], 1), 6, "length"),  # 33 bits
        (batch(5, b"\x90\x80\x80\x80\x80\x00" + ONE[1:], 1), 6, "length"),  # six bytes
        (batch(5, body(timestamp=b"\xff" * 9 + b"\2"), 1), 6, "length"),  # 65 bits
        (batch(5, body(delta=b"\x80\x80\x80\x80\x80\x00"), 1), 6, "length"),
        (batch(5, body(key=varint(100)), 1), 6, "length"),
        (batch(5, body(key=varint(2**31 - 1)), 1), 6, "length"),
        (batch(5, body(value=varint(2**31 - 1)), 1), 6, "length"),
        (batch(5, body(headers=varint(-1)), 1), 6, "length"),
        (batch(5, body(headers=varint(2**31 - 1)), 1), 6, "length"),
        (batch(5, body(headers=varint(1) + varint(-1) + varint(-1)), 1), 6, "length"),
        (batch(5, body(headers=varint(1) + varint(-(2**31)) + varint(-1)), 1), 6, "length"),
        (batch(5, body(headers=varint(1) + varint(0) + varint(2**31 - 1)), 1), 6, "length"),
    ],
)
def test_an_unreadable_batch_has_a_reason(fetched, end, why):
    read, bad, behind, with_key = drain(fetched, 5)
    assert (read, behind, with_key) == ([], end, 0)
    assert [(one.offset, one.end, one.size, one.why) for one in bad] == [
        (struct.unpack_from(">q", fetched)[0], end, len(fetched), why)
    ]
    assert bad[0].sha256 == hashlib.sha256(fetched).hexdigest()
    same_as_slowly(fetched, 5, None, [(0, None)], Arena())


@pytest.mark.parametrize("codec", [GZIP, ZSTD])
def test_a_chunk_of_empty_compressed_data_ends_by_its_read_size(codec):
    section = compressed(b"", codec) * 20_000
    fetched = b"".join(batch(base, section, 0, last=0, attributes=codec) for base in range(8))
    chunk = Reader(np.frombuffer(fetched, np.uint8), 0, None, [(0, None)]).read(Arena())
    assert chunk.end * len(section) <= records.GROUP + len(section)
    assert drain(fetched) == ([], [], 8, 0)


@pytest.mark.parametrize("magic", [0, 1])
def test_the_checksum_of_an_old_message_is_not_a_leader_epoch(magic):
    # the client would ask brokers for that epoch, and they would report a truncated log
    fetched = old(magic, 0)
    assert struct.unpack_from(">i", fetched, 12) != (-1,)
    assert scan_headers(np.frombuffer(batch(4, ONE, 1, leader=7) + fetched, np.uint8))[1:] == (6, -1)
    assert scan_headers(np.frombuffer(fetched + batch(6, ONE, 1, leader=7), np.uint8))[1:] == (7, 7)


@pytest.mark.parametrize(
    "section",
    [
        body(timestamp=b"\xff" * 9 + b"\1"),  # the largest delta there is, which wraps
        body(delta=b"\x80\x80\x80\x80\x00"),  # longer than it has to be
        body(key=varint(-(2**31)), value=varint(-2)),
        body(headers=varint(1) + varint(0) + varint(-5)),
    ],
)
def test_unusual_batches_are_read(section):
    assert [offset for offset, _, _ in drain(batch(5, section, 1), 5)[0]] == [5]
    same_as_slowly(batch(5, section, 1), 5, None, [(0, None)], Arena())


def test_log_append_time_is_the_time_of_all_records():
    section = record(0, b"a", timestamp=5) + record(1, b"b", timestamp=9)
    assert drain(batch(0, section, 2, first=100, highest=777))[0] == [(0, 105, b"a"), (1, 109, b"b")]
    assert drain(batch(0, section, 2, first=100, highest=777, attributes=APPEND_TIME))[0] == [
        (0, 777, b"a"),
        (1, 777, b"b"),
    ]


def transactions():
    """Two producers whose transactions overlap; producer 1 aborts one and commits the next."""
    offsets = iter(range(100))
    log = []
    for producer, what in [
        (1, "a"),
        (2, "b"),
        (1, "c"),
        (1, ABORT),
        (2, "d"),
        (1, "e"),
        (2, COMMIT),
        (1, COMMIT),
    ]:
        base = next(offsets)
        if isinstance(what, str):
            section = record(0, what.encode())
            log.append(batch(base, section, 1, attributes=TRANSACTIONAL, producer=producer))
        else:
            log.append(marker(base, producer, what))
    return b"".join(log)


def test_committed_reads_omit_aborted_transactions():
    assert [value for _, _, value in drain(transactions(), 0, [(1, 0)])[0]] == [b"b", b"d", b"e"]
    assert [value for _, _, value in drain(transactions(), 0, None)[0]] == [b"a", b"b", b"c", b"d", b"e"]
    assert drain(transactions(), 0, [(1, 0)])[2] == 8


def test_an_aborted_batch_is_skipped_without_decoding():
    aborted = batch(0, b"no lz4", 1, attributes=TRANSACTIONAL | 3, producer=1)
    assert drain(aborted, 0, [(1, 0)]) == ([], [], 1, 0)
    assert [one.why for one in drain(aborted, 0, [(2, 0)])[1]] == ["codec"]
    mended = aborted[:-1] + b"!"
    assert [one.why for one in drain(mended, 0, [(1, 0)])[1]] == ["checksum"]


def test_the_cap_of_a_batch_depends_on_its_offset():
    section = record(0, bytes(100))
    fetched = b"".join(batch(base, section, 1) for base in (0, 10, 20, 30))
    caps = [(5, 10), (15, None), (30, len(section) - 1)]
    assert [(one.offset, one.why) for one in drain(fetched, 0, None, caps)[1]] == [
        (0, "size"),
        (10, "size"),
        (30, "size"),
    ]
    assert drain(fetched, 0, None, [(30, len(section))])[1] == []


def test_a_large_batch_has_separate_arrays():
    arena = Arena()
    data = arena.data
    section = b"".join(record(i, bytes(1000)) for i in range(5_000))
    for fetched in (batch(0, section, 5_000), batch(0, section, 5_000) + batch(5_000, record(0, b"x"), 1)):
        assert len(drain(fetched, arena=arena)[0]) in (5_000, 5_001)
    assert arena.data is data
    assert data.size < 2 * records.ROOM


def test_a_chunk_is_about_half_a_mebibyte():
    section = b"".join(record(i, bytes(90)) for i in range(1_000))
    fetched = b"".join(batch(1_000 * k, section, 1_000) for k in range(40))
    reader, arena, sizes = Reader(np.frombuffer(fetched, np.uint8), 0, [], [(0, None)]), Arena(), []
    while chunk := reader.read(arena):
        sizes.append(int(chunk.columns.ends[-1]))
    assert sum(sizes) > 3 << 20
    assert all(size + len(section) >= records.GROUP and size <= records.ROOM for size in sizes[:-1])


@pytest.mark.long
def test_array_accesses_stay_within_bounds(tmp_path):
    """Damaged batches and JSON frames with every index checked: numba compiles that in, not from the usual cache."""
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    sizes = ["--whole", "1000", "--damaged", "10000", "--audited", "0", "--texts", "10000"]
    command = [sys.executable, "-m", "tests.long.fuzz", *sizes, "--seed", "5"]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, timeout=1100)


@pytest.mark.slow
def test_boundscheck_covers_memory_accesses(tmp_path):
    code = """
import numpy as np
from numba import njit
from worker.kafka.decoding import memory

@njit
def read(data, at):
    return memory.little32_at(memory.window(data), at)

@njit
def copy(data, to, at):
    memory.copy_wide(memory.window(data), to, memory.window(data), at)

data = np.zeros(20, np.uint8)
read(data, 16), copy(data, 4, 0), copy(data, 0, 4)
for call, places in ((read, (17,)), (read, (-1,)), (copy, (5, 0)), (copy, (0, 5)), (copy, (-1, 0))):
    try:
        call(data, *places)
    except IndexError:
        continue
    raise SystemExit(f"{call.__name__}{places} is outside")
"""
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, check=True, timeout=120)
