"""The log: buffered fetches, their budget and their outcome, with a scripted client."""

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from kafka import TopicPartition
from kafka import errors as kafka_errors
from kafka.structs import ConsumerGroupMetadata, MemberState

from tests.support.batches import batch, record
from worker.counting.ports import Displaced, StateLost, Unavailable
from worker.counting.rules import Names, RequestedRule, Status, first
from worker.kafka.client import quirks
from worker.kafka.client.raw_fetch import Fetched
from worker.kafka.reports import log as kafka_log

BUDGET = 1 << 20
MOST = BUDGET // kafka_log._LEAST_FETCH
"""Number of small fetches that may wait."""


class Handlers(SimpleNamespace):
    """Handlers of the client's answers; none here."""

    def __getattr__(self, name):
        return None


class Consumer:
    """A member that is assigned partitions 0 to 9; unless all are paused, a poll brings what is made ready."""

    def __init__(self):
        self._fetcher, self._coordinator, self._cluster, self.name = Handlers(), Handlers(), Handlers(), None
        self.ready, self.paused, self.positions = deque(), set(), {}

    def subscribe(self, topics, listener):
        (self.topic,) = topics

    def group_metadata(self):
        return ConsumerGroupMetadata("g", 1, "m", self.name, MemberState.STABLE)

    def assignment(self):
        return {TopicPartition(self.topic, partition) for partition in range(10)}

    def poll(self, _timeout_ms):
        if not self.ready or self.paused == self.assignment():
            return {}
        if isinstance(polled := self.ready.popleft(), Exception):
            raise polled
        tps = {TopicPartition(self.topic, partition): found for partition, found in polled.items()}
        self.positions.update({tp: found[-1].offset + 1 for tp, found in tps.items()})
        return tps

    def seek(self, tp, offset):
        self.positions[tp] = offset

    def position(self, tp, timeout_ms):
        return self.positions[tp]

    def pause(self, *tps):
        self.paused |= set(tps)

    def resume(self, *tps):
        self.paused -= set(tps)

    def close(self, **_how):
        pass


@pytest.fixture
def log(monkeypatch):
    monkeypatch.setattr(kafka_log, "_FETCH_SECONDS", 0)
    log = kafka_log.KafkaLog(Consumer(), "reports", kafka_log._WAITING * BUDGET, ThreadPoolExecutor(1))
    log.poll(0)  # notes the membership
    for partition in range(10):
        log.start(partition, 0, [first(RequestedRule(), 0, Names({"8e9f39d0": Status()}))])
    yield log
    log.close()


def fetched(*offsets):
    """A record at each offset, as one fetch brings them."""
    found = b"".join(batch(at, record(0, b"v"), 1) for at in offsets)
    return [Fetched(offsets[0], offsets[-1] + 1, np.frombuffer(found, np.uint8), [])]


def everything(log):
    """All batches until none comes, as (partition, offset)."""
    found, still = [], 0
    while still < 3:
        batches = log.poll(0)
        still = 0 if batches else still + 1
        found += [(batch.partition, offset) for batch in batches for offset in batch.columns.offsets.tolist()]
    return found


def test_prefetched_data_stays_within_the_budget_for_small_fetches(log):
    for at in range(100):
        log._consumer.ready.append({partition: fetched(at) for partition in range(10)})
    found = []
    for _ in range(50):
        for handed in log.poll(0):  # each of one partition, while ten come with each fetch
            found += [(handed.partition, offset) for offset in handed.columns.offsets.tolist()]
        assert len(log._prefetch._pending) <= MOST + 10
    found += everything(log)
    assert sorted(found) == [(partition, at) for partition in range(10) for at in range(100)]


def test_records_fetched_before_their_deletion_are_counted(log):
    late = kafka_errors.OffsetOutOfRangeError({TopicPartition("reports", 3): 7})
    log._consumer.ready += [{3: fetched(5), 4: fetched(0)}, late, {4: fetched(1)}, late]
    found = []
    while log._consumer.ready:
        found += [(one.partition, one.end) for one in log.poll(0)]
        assert (log.take_revoked() == {3}) == (not log._consumer.ready)
    found += [(one.partition, one.end) for one in log.poll(0)]
    assert [taken for taken in found if taken[1] > 1] == [(3, 6), (4, 2)]


def test_a_damaged_partition_does_not_block_the_others(log):
    counted = []
    for at in range(4):
        (damaged,) = fetched(0)
        bytewise = damaged.data.copy()
        bytewise[-1] ^= 1 + at
        log._consumer.ready.append({3: [replace(damaged, data=bytewise)], 4: fetched(len(counted))})
        with pytest.raises(Unavailable, match="partition 3: the checksum of the record batch at offset 0"):
            while True:
                counted += [one.partition for one in log.poll(0)]
        for partition in range(10):
            log.start(
                partition,
                counted.count(partition),
                [first(RequestedRule(), 0, Names({"8e9f39d0": Status()}))],
            )
    assert counted == [4, 4, 4]
    assert len(log._suspects[3]) == 1


@pytest.mark.parametrize("again", ["the same", "as it was written"])
def test_only_equal_bytes_in_two_fetches_are_damage_in_the_log(log, again):
    (written,) = fetched(0, 1)
    bytewise = written.data.copy()
    bytewise[-1] ^= 1
    damaged = replace(written, data=bytewise)
    log._consumer.ready.append({3: [damaged]})
    with pytest.raises(Unavailable, match="at offset 1 fails"):
        log.poll(0)
    log.start(3, 0, [first(RequestedRule(), 0, Names({"8e9f39d0": Status()}))])
    log._consumer.ready.append({3: [damaged if again == "the same" else written]})
    (handed,) = log.poll(0)
    assert (handed.start, handed.end, handed.columns.offsets.tolist()) == (
        (0, 2, [0]) if again == "the same" else (0, 2, [0, 1])
    )
    assert [bad.offset for bad in handed.unreadable] == ([1] if again == "the same" else [])
    assert log._suspects[3] == {}


@pytest.fixture
def named(monkeypatch):
    """A member with a name; its list has the group changes that its client would notice."""
    noticed = []
    monkeypatch.setattr(quirks, "leave_on_close", lambda _: None)
    monkeypatch.setattr(quirks, "displaced", lambda _: "displaced" in noticed)
    monkeypatch.setattr(quirks, "known_partitions", lambda *_: next(iter(noticed), None))
    monkeypatch.setattr(quirks, "rejoin", lambda _: noticed.append("joins again"))
    consumer = Consumer()
    consumer.name = "worker-1"
    log = kafka_log.KafkaLog(consumer, "reports", kafka_log._WAITING * BUDGET, ThreadPoolExecutor(1))
    yield log, noticed
    log.close()


def test_a_displaced_member_stops_polling_and_names_the_cause(named):
    log, noticed = named
    log.poll(0)
    noticed.append("displaced")
    with pytest.raises(Displaced, match="another process joined the group 'g' as 'worker-1'"):
        log.poll(0)


def test_a_member_displaced_while_joining_names_the_cause(named):
    log, _ = named
    log._consumer.ready.append(kafka_errors.FencedInstanceIdError())
    with pytest.raises(Displaced, match="as 'worker-1'"):
        log.poll(0)


def test_a_displaced_member_may_fail_to_commit_unneeded_offsets(named, monkeypatch):
    log, _ = named

    def refuse(_offsets):
        raise kafka_errors.FencedInstanceIdError

    monkeypatch.setattr(log._consumer, "commit_async", refuse, raising=False)
    log.mirror({0: (7, "counted")})


@pytest.mark.parametrize(
    ("known", "again"),
    [
        ([None, {0, 1}, {0, 1}], 0),
        ([{0}, {0}, {0, 1}, {0, 1}], 1),
        ([{0}, None, {0}, set(), {0}], 0),
        ([{0}, set(), {0, 1}, {0, 1, 2}], 2),
    ],
)
def test_a_named_member_rejoins_when_the_topic_grows(named, known, again):
    log, noticed = named
    for partitions in known:
        noticed.insert(0, partitions)
        log.poll(0)
    assert noticed.count("joins again") == again


def test_a_refused_session_timeout_is_named_by_its_key(log):
    log._consumer.ready.append(kafka_errors.InvalidSessionTimeoutError())
    with pytest.raises(
        Unavailable, match="joining the group of topic 'reports': InvalidSessionTimeout"
    ) as raised:
        log.poll(0)
    assert "set kafka.session_timeout_seconds within the limits" in raised.value.remedy


def test_a_log_truncated_below_the_position_stops_the_stream(log):
    log._consumer.ready.append(kafka_errors.LogTruncationError({TopicPartition("reports", 3): 17}))
    with pytest.raises(StateLost, match="topic 'reports' was truncated below the read position"):
        log.poll(0)


@pytest.mark.parametrize(
    "error", [kafka_errors.LeaderNotAvailableError, kafka_errors.NotLeaderForPartitionError]
)
def test_the_worker_waits_for_a_partition_without_a_leader(log, error):
    """Whatever the client lets through of it; mostly it asks again by itself, and the others come."""
    log._consumer.ready += [error(), {5: fetched(0)}]
    with pytest.raises(Unavailable):
        log.poll(0)
    assert everything(log) == [(5, 0)]
