"""The reader of our own topics: it survives every record, and ends where the log does."""

import json
import struct
from types import SimpleNamespace

import numpy as np
import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaTimeoutError
from kafka.record.memory_records import MemoryRecords

from ldp.snapshot.checking import MOST_BYTES
from tests.support.batches import (
    ABORT,
    GZIP,
    LZ4,
    NOW,
    TRANSACTIONAL,
    ZSTD,
    batch,
    compressed,
    marker,
    record,
)
from worker.kafka.client import raw_fetch, reading
from worker.kafka.client.reading import Passed
from worker.kafka.decoding.records import Record

TP = TopicPartition("snapshots", 0)


def decoded(data, *, start=0, begins=b"", aborted=(), times=1):
    """Result of a repeated fetch for a consumer: records, positions, and skipped parts."""
    passed = []
    decode = reading._Decoder(begins, passed.append)
    fetched = raw_fetch.Fetched(start, start, np.frombuffer(data, np.uint8), list(aborted))
    for _ in range(times):
        steps = list(decode(*TP, fetched))
    return [record for _, record in steps if record is not None], [at for at, _ in steps], passed


def good(base, *keys):
    section = b"".join(
        record(i, b"value", key=key, headers=[(b"parts", b"%d" % i)]) for i, key in enumerate(keys)
    )
    return batch(base, section, len(keys))


def test_a_record_has_its_key_value_and_headers():
    section = record(0, b"v", key=b"k", headers=[(b"a", b"1"), (b"b", None)], timestamp=5)
    section += record(1, None, key=b"k") + record(2, b"", key=None)
    records, positions, passed = decoded(batch(7, compressed(section, LZ4), 3, attributes=LZ4), start=7)
    assert [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in records] == [
        (7, NOW + 5, b"k", b"v", [("a", b"1"), ("b", None)]),
        (8, NOW, b"k", None, []),
        (9, NOW, None, b"", []),
    ]
    assert (positions, passed) == ([8, 9, 10, 10], [])


@pytest.mark.parametrize("name", [b"\xff\xfe", b"\x80" * 300, b"", b"\xed\xa0\x80", b"a\x00b"])
def test_an_undecodable_header_key_stops_no_reader(name):
    section = record(0, b"v", key=b"s/head", headers=[(name, b"x"), (b"parts", b"1")])
    (found,), _, passed = decoded(batch(0, section, 1))
    assert (found.key, found.value, found.headers[1], passed) == (b"s/head", b"v", ("parts", b"1"), [])
    assert json.dumps(found.headers[0][0])


def test_only_the_first_of_very_many_headers_are_read():
    (found,), _, _ = decoded(batch(0, record(0, b"v", headers=[(b"h", None)] * 100_000), 1))
    assert found.headers == [("h", None)] * 64


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (lambda: batch(1, b"not even compressed", 1, attributes=ZSTD), "codec"),
        (lambda: batch(1, record(0, b"v"), 1, attributes=5), "codec"),
        (lambda: batch(1, record(0, b"v"), 1, magic=1), "magic"),
        (lambda: batch(1, record(0, b"v"), 2, last=0), "length"),
        (lambda: batch(1, record(0, b"v")[:-1], 1), "length"),
        (lambda: batch(1, record(0, b"v"), 10**6, last=0), "length"),
        (
            lambda: batch(1, compressed(record(0, bytes(reading.LARGEST + 1)), GZIP), 1, attributes=GZIP),
            "size",
        ),
    ],
)
def test_an_unreadable_batch_is_skipped_and_reported(bad, why):
    records, positions, passed = decoded(good(0, b"s/a") + bad() + good(2, b"s/b"))
    assert [(r.offset, r.key) for r in records] == [(0, b"s/a"), (2, b"s/b")]
    assert positions[-1] == 3
    assert passed == [Passed("snapshots", 0, 1, f"record batch: {why}")]


def test_a_batch_whose_checksum_fails_is_fetched_a_second_time():
    """The newest head may be in it: only the same bytes twice are what the log holds."""
    bad = bytearray(good(1, b"s/head"))
    bad[-1] ^= 1
    data = good(0, b"s/a") + bytes(bad) + good(2, b"s/b")
    assert decoded(data) == ([], [0], [])
    records, positions, passed = decoded(data, times=2)
    assert [r.key for r in records] == [b"s/a", b"s/b"]
    assert positions[-1] == 3
    assert passed == [Passed("snapshots", 0, 1, "record batch: checksum")]


def test_aborted_records_are_omitted():
    aborted = batch(0, record(0, b"v", key=b"s/a"), 1, attributes=TRANSACTIONAL, producer=5)
    data = aborted + good(1, b"s/b") + marker(2, 5, ABORT)
    records, positions, _ = decoded(data, aborted=[(5, 0)])
    assert ([r.key for r in records], positions[-1]) == ([b"s/b"], 3)


@pytest.mark.parametrize(
    ("begins", "offsets"),
    [(b"", [0, 1, 2, 3, 4]), (b"s", [0, 1, 2]), (b"s/", [0, 1]), (b"s/head", [0]), (b"s/heads", [])],
)
def test_records_are_selected_by_key_prefix(begins, offsets):
    section = b"".join(
        record(i, b"v", key=key) for i, key in enumerate([b"s/head", b"s/all", b"s", b"t", None])
    )
    assert [r.offset for r in decoded(batch(0, section, 5), begins=begins)[0]] == offsets


def test_more_records_than_one_selection_are_read():
    section = b"".join(record(i, b"%d" % i, key=b"s/%d" % (i % 2)) for i in range(1000))
    records, _, _ = decoded(batch(0, section, 1000), begins=b"s/1")
    assert [(r.offset, r.value) for r in records] == [(i, b"%d" % i) for i in range(1, 1000, 2)]


def polled(data, offset, bound):
    """The records of one fetch as the client library decodes them, and its next position."""
    decode = reading._Decoder(b"", lambda passed: None)
    made = raw_fetch._Decoded(decode, offset, TP, MemoryRecords(data), aborted_transactions=[])
    made.bound = bound
    return made.take(500), made.next_fetch_offset, made.record_iterator


def test_an_empty_fetch_moves_the_position_to_the_readable_end():
    """Compaction removes a control batch, and it was the last one: no position reaches the end otherwise."""
    assert polled(b"", 12, 13) == ([], 13, None)
    assert polled(b"", 12, 12) == ([], 12, None)
    assert polled(b"", 12, -1) == ([], 12, None)


def test_the_position_follows_the_last_returned_record():
    decode = reading._Decoder(b"", lambda passed: None)
    made = raw_fetch._Decoded(
        decode, 0, TP, MemoryRecords(good(0, b"a", b"b", b"c")), aborted_transactions=[]
    )
    assert ([r.offset for r in made.take(2)], made.next_fetch_offset) == ([0, 1], 2)
    assert ([r.offset for r in made.take(2)], made.next_fetch_offset) == ([2], 3)


def test_the_size_of_a_poll_is_bounded():
    """A bomb of 60 MiB is a few KiB: 500 of them in a poll would be 29 GiB."""
    decode = reading._Decoder(b"", lambda passed: None)
    size = raw_fetch.MOST_POLLED // 4
    large = [
        batch(i, compressed(record(0, bytes(size), key=b"s/head"), ZSTD), 1, attributes=ZSTD)
        for i in range(10)
    ]
    data = b"".join(large) + good(10, *[b"s/a"] * 600)
    consumer = KafkaConsumer(
        enable_incremental_fetch_sessions=False, bootstrap_servers=[], api_version=(4, 0)
    )
    consumer.assign([TP])
    consumer.seek(TP, 0)
    raw_fetch.install_decoder(consumer, decode)
    fetcher, counts, position = consumer._fetcher, [], 0
    fetcher._next_partition_records = fetcher.PartitionRecords(
        0, TP, MemoryRecords(data), aborted_transactions=[]
    )
    while position < 610:
        polled, _ = fetcher.fetched_records(500)
        counts.append(len(polled[TP]))
        position = consumer._subscription.assignment[TP].position.offset
        assert position == polled[TP][-1].offset + 1
    assert counts == [4, 4, 500, 102]
    consumer.close()


def test_an_oversized_key_is_skipped_and_reported():
    section = (
        record(0, b"v", key=b"s/" + bytes(4095)) + record(1, b"v", key=b"s/a") + record(2, b"v", key=None)
    )
    records, positions, passed = decoded(batch(0, section, 3))
    assert [r.offset for r in records] == [1, 2]
    assert positions[-1] == 3
    assert passed == [Passed("snapshots", 0, 0, "key: more than 4096 bytes")]
    (longest,), _, passed = decoded(batch(0, record(0, b"v", key=bytes(4096)), 1))
    assert (len(longest.key), passed) == (4096, [])


def test_oversized_values_and_headers_are_truncated():
    """The cut value is still larger than a parser accepts, so a record at the head's key is still no head."""
    headers = [(b"parts", b"1"), (b"a", bytes(1 << 20)), (b"b", b"2")]
    made = record(0, bytes(20 << 20), key=b"s/head", headers=headers)
    (found,), _, passed = decoded(batch(0, compressed(made, ZSTD), 1, attributes=ZSTD))
    assert (found.key, len(found.value), passed) == (b"s/head", MOST_BYTES + 1, [])
    assert found.headers[0] == ("parts", b"1")
    assert found.size < MOST_BYTES + (1 << 17)


@pytest.mark.parametrize(("level", "bound"), [("read_committed", 40), ("read_uncommitted", 50)])
def test_the_readable_end_depends_on_the_isolation_level(level, bound):
    parsed = SimpleNamespace(bound=0)
    fetcher = SimpleNamespace(_parse_fetched_data=lambda fetch: parsed, _append=None)
    consumer = SimpleNamespace(_fetcher=fetcher, config={"isolation_level": level})
    raw_fetch.install_decoder(consumer, lambda *fetch: iter(()))
    data = SimpleNamespace(last_stable_offset=40, high_watermark=50)
    assert fetcher._parse_fetched_data(SimpleNamespace(partition_data=data)).bound == bound


class Consumer:
    """A consumer with scripted positions, one step per poll."""

    def __init__(self, *steps):
        self.steps, self.at, self.now = list(steps), None, 0.0

    def assign(self, tps):
        assert tps == [TP]

    def seek(self, tp, offset):
        self.at = offset

    def position(self, tp):
        return self.at

    def poll(self, timeout_ms):
        self.now += timeout_ms / 1000
        offsets, self.at = self.steps.pop(0) if self.steps else ([], self.at)
        return {TP: [Record(offset, 0, b"k", b"v") for offset in offsets]}


def test_reading_stops_when_the_position_reaches_the_end():
    consumer, alive = Consumer(([0, 1], 2), ([], 5), ([5, 6, 7], 8)), []
    found = reading.records(consumer, TP, 0, 7, lambda: alive.append(consumer.now))
    assert [r.offset for r in found] == [0, 1, 5, 6]
    assert len(alive) == 3
    assert list(reading.records(Consumer(), TP, 3, 3)) == []


def test_reading_fails_if_the_brokers_do_not_deliver():
    consumer = Consumer(([0, 1], 2))
    with pytest.raises(KafkaTimeoutError, match="no records from offset 2 to 7 arrive"):
        list(reading.records(consumer, TP, 0, 7, stall_seconds=30, clock=lambda: consumer.now))
    assert 30 < consumer.now < 31


def test_a_log_of_random_bytes_reads_without_an_error():
    rng = np.random.default_rng(1)
    for size in (11, 12, 60, 61, 62, 500):
        for _ in range(200):
            data = bytearray(rng.bytes(size))
            if size > 12:
                struct.pack_into(">i", data, 8, size - 12)
            decoded(bytes(data), times=2)
