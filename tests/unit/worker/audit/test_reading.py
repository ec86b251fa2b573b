"""The audit's reading of logs and of the snapshot topic."""

import json
import re
from types import SimpleNamespace

import pytest
from kafka import TopicPartition
from kafka.errors import KafkaTimeoutError, OffsetOutOfRangeError
from kafka.record.memory_records import MemoryRecords

from tests.support.batches import LZ4, TRANSACTIONAL, batch, marker, record
from worker.audit import reading
from worker.audit.errors import AuditError
from worker.audit.records import Deleted
from worker.audit.snapshots import Message

TP = TopicPartition("reports", 3)


class Consumer:
    """A consumer of `connect_kafka`; each fetch returns the next answer, and then the last one again."""

    def __init__(self, *answers, aborted=(), fetch=1 << 20):
        self.answers, self.aborted, self.fetch = list(answers), aborted, fetch
        self.asked, self.at, self.nothing = [], 0, {}

    def assign(self, partitions):
        assert partitions == [TP]

    def seek(self, tp, offset):
        self.at = offset

    def position(self, tp):
        return self.at

    def beginning_offsets(self, partitions, timeout_ms):
        return {TP: self.first}

    def end_offsets(self, partitions, timeout_ms):
        return {TP: self.first + 5}

    def poll(self, timeout_ms):
        self.asked.append(self.at)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        log = b"".join(one for one in answer if reading.batches.reach(one)[1] > self.at)[: self.fetch]
        transactions = [
            SimpleNamespace(producer_id=producer, first_offset=first) for producer, first in self.aborted
        ]
        drained = []
        found = reading._AsFetched(
            self.at, TP, MemoryRecords(log), aborted_transactions=transactions, on_drain=drained.append
        )
        taken = found.take(1)
        assert not found.take(1) if found else drained
        if taken:
            self.at = found.next_fetch_offset
            assert taken[0].offset == self.at - 1
        return {TP: taken} if taken else {}


def read(consumer, begin, end, caps=((0, None),)):
    """Values, number of unreadable batches, and deleted records."""
    reached = []
    items = [*reading.read(consumer, TP, reached.append, begin, end, list(caps))]
    assert reached == sorted(reached)
    values = [
        item.data[begin:end].tobytes()
        for item in items
        if not isinstance(item, Deleted)
        for begin, end in zip(item.begins, item.ends, strict=True)
    ]
    unreadable = sum(item.unreadable for item in items if not isinstance(item, Deleted))
    return values, unreadable, [item.span for item in items if isinstance(item, Deleted)]


def log(*bases, n=5):
    return [batch(base, b"".join(record(i, b"%d" % (base + i)) for i in range(n)), n) for base in bases]


def test_a_range_is_read_from_any_sequence_of_fetches():
    whole = log(*range(0, 100, 5))
    for fetch in (100, 251, 1 << 20):
        for begin, end in ((0, 100), (3, 97), (50, 51), (99, 100)):
            values, unreadable, deleted = read(Consumer(whole, fetch=max(fetch, len(whole[-1]))), begin, end)
            assert values == [b"%d" % i for i in range(begin, end)]
            assert (unreadable, deleted) == (0, [])


def test_a_batch_with_a_wrong_checksum_is_fetched_again():
    good = log(0, 5, 10)
    torn = [good[0], good[1][:-1] + b"\7", good[2]]
    consumer = Consumer(torn, good)
    assert read(consumer, 2, 15) == ([b"%d" % i for i in range(2, 15)], 0, [])
    assert consumer.asked == [2, 2]


def test_the_same_wrong_bytes_twice_are_damage_in_the_log():
    good = log(0, 5, 10)
    torn, other = (good[1][:-1] + end for end in (b"\7", b"\6"))
    consumer = Consumer([good[0], torn, good[2]])
    rest = [b"%d" % i for i in (0, 1, 2, 3, 4, 10, 11, 12, 13, 14)]
    assert read(consumer, 0, 15) == (rest, 1, [])
    assert consumer.asked == [0, 0]
    consumer = Consumer([good[0], torn, good[2]], [good[0], other, good[2]], good)
    assert read(consumer, 0, 15)[1] == 0
    assert consumer.asked == [0, 0, 0]


def test_aborted_records_are_skipped_and_an_unreadable_batch_counts():
    whole = [
        batch(0, record(0, b"a"), 1, attributes=TRANSACTIONAL, producer=1),
        batch(1, b"no records", 1, attributes=LZ4),
        marker(2, 1),
        batch(3, record(0, b"b"), 1),
    ]
    assert read(Consumer(whole, aborted=[(1, 0)]), 0, 4) == ([b"b"], 1, [])
    assert read(Consumer(whole, aborted=[(1, 0)]), 2, 4) == ([b"b"], 0, [])
    assert read(Consumer(whole, aborted=[(1, 0)]), 0, 4, [(0, None), (3, 1)]) == ([], 2, [])


def test_records_deleted_meanwhile_are_reported_and_the_rest_is_read():
    consumer = Consumer(OffsetOutOfRangeError(), log(10))
    consumer.first = 12
    assert read(consumer, 3, 15) == ([b"12", b"13", b"14"], 0, [(3, 12)])
    assert consumer.asked == [3, 12]


def test_a_log_that_ends_early_is_an_error():
    consumer = Consumer(OffsetOutOfRangeError())
    consumer.first = 0
    with pytest.raises(AuditError, match="reports-3: the log now ends before offset 3"):
        read(consumer, 3, 15)


def test_a_log_without_progress_is_an_error(monkeypatch):
    monkeypatch.setattr(reading, "_STALL_SECONDS", 0.0)
    with pytest.raises(AuditError, match="no progress at offset 0"):
        read(Consumer([]), 0, 5)


FIRST, NEWEST = (
    b'{"schema": 1, "stream": "s", "fingerprint": "00", "window": {}, "complete": true, "gaps": {},'
    b' "sequence": %d, "reports": 1, "rules": {}, "offsets": {"0": %d}}' % numbers
    for numbers in ((6, 1), (7, 5))
)
HEADERS = {"\ufffd\ufffd": b"no text", "parts": b"2"}


class Topic:
    """A consumer of the snapshot topic, which gives its records a few at a time."""

    def __init__(self, *records, end=None):
        self.records, self.at, self.nothing = records, 0, {}
        self.end = len(records) if end is None else end

    def partitions_for_topic(self, topic):
        return {0}

    def beginning_offsets(self, partitions, timeout_ms):
        return dict.fromkeys(partitions, 0)

    def end_offsets(self, partitions, timeout_ms):
        return dict.fromkeys(partitions, self.end)

    def assign(self, partitions):
        (self.tp,) = partitions

    def seek(self, tp, offset):
        self.at = offset

    def position(self, tp):
        return self.at

    def poll(self, timeout_ms):
        begin, self.at = self.at, min(self.at + 3, len(self.records))
        if begin == self.at:
            self.nothing[self.tp] = begin, self.end
            return {}
        made = b"".join(
            record(i, value, key=key and key.encode(), headers=[(b"\xff\xfe", b"no text"), (b"parts", b"2")])
            for i, (key, value) in enumerate(self.records[begin : self.at])
        )
        data = batch(begin, made, self.at - begin)
        return {self.tp: [reading._Fetched(begin, data, self.at - 1, [])]}


def test_published_messages_are_read_from_an_offset():
    topic = Topic(
        ("s/head", FIRST),
        ("s/1h/0/base", b"provisional"),
        ("other/1h/0/base", b"another stream"),
        (None, b"no key"),
        ("s/head", NEWEST),
        ("s/24h every 1h/3600000/base", b"hopping"),
        ("s/1h/3600000/base", None),
    )
    newest = [
        Message("head", HEADERS, NEWEST),
        Message("24h every 1h/3600000/base", HEADERS, b"hopping"),
        Message("1h/3600000/base", HEADERS, b""),
    ]
    every = [*reading.published(topic, "snapshots", "s")]
    assert [each.key for each in every[:2]] == ["head", "1h/0/base"]
    assert every[2:] == newest == [*reading.published(topic, "snapshots", "s", 4)]
    assert reading.newest_head(topic, "snapshots", "s") == (json.loads(NEWEST), 4)
    assert reading.newest_head(topic, "snapshots", "none") == ({}, 0)


@pytest.mark.parametrize(
    "forged",
    [
        *(b"no JSON", b"[]", b"{}", b"[" * 100_000),
        *(NEWEST.replace(b"7", number) for number in (b"1e400", b"-1", b"true")),
        NEWEST.replace(b'"s"', b'"t"'),
        NEWEST.replace(b"fingerprint", b"finger"),
        NEWEST.replace(b'{"0": 5}', b"null"),
    ],
)
def test_a_forged_head_is_skipped_and_reported(forged):
    topic = Topic(("s/head", FIRST), ("s/head", NEWEST), ("s/head", forged))
    assert reading.newest_head(topic, "snapshots", "s") == (json.loads(NEWEST), 1)
    assert reading.newest_head(Topic(("s/head", forged)), "snapshots", "s") == ({}, 0)
    passed = []
    there = [*reading.published(topic, "snapshots", "s", on_passed=passed.append)]
    assert [each.value for each in there] == [FIRST, NEWEST]
    (said,) = passed
    assert said.startswith("skipped the invalid head at topic snapshots, partition 0, offset 2 (")


def test_the_end_of_a_topic_without_its_last_batch_is_reached():
    """Compaction removes a control batch, and it was the last one: no position reaches the end."""
    topic = Topic(("s/head", FIRST), ("s/head", NEWEST), end=3)
    assert reading.newest_head(topic, "snapshots", "s") == (json.loads(NEWEST), 1)
    assert len([*reading.published(topic, "snapshots", "s")]) == 2


class Leaderless(Topic):
    """A topic with a partition without a leader: the client leaves it out and then looks for it, or waits for it."""

    def __init__(self, error):
        super().__init__()
        self.error = error

    def end_offsets(self, partitions, timeout_ms):
        raise self.error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (KeyError(TP), f"{TP.topic}-{TP.partition}: no leader; audit again once it has one"),
        (KafkaTimeoutError("in 30000 ms"), "no broker returned the first and last offsets in 30 s"),
    ],
)
def test_a_partition_without_a_leader_is_named(error, said):
    with pytest.raises(AuditError, match=re.escape(said)):
        reading.bounds_of(Leaderless(error), [TopicPartition(TP.topic, 1 + TP.partition), TP])
