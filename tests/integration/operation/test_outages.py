"""Kafka or Redis lose data: exact counts, or a stop with the cause."""

import contextlib

import pytest
from kafka import TopicPartition
from kafka.errors import UnknownTopicOrPartitionError

from tests.support.harness import TIMEOUT_SECONDS, Sending, assert_snapshot_topic, until

pytestmark = pytest.mark.integration


@pytest.fixture
def world(own_world):
    return own_world


def commits(*workers):
    return sum(worker.metric("commits_total", verdict="done") for worker in workers)


def more_commits(*workers, count=3):
    """Waits for more commits."""
    goal = commits(*workers) + count
    until(lambda: commits(*workers) >= goal, f"{count} more commits")


def assert_all_right(world):
    last = world.covered()
    world.assert_right(last)
    assert last.complete
    assert assert_snapshot_topic(world) == last.sequence


def test_redis_dies_and_comes_back(world, own_redis):
    with Sending(world) as sending:
        workers = world.start(2)
        more_commits(*workers)
        own_redis.kill()
        sending.more()
        until(
            lambda: all(w.metric("errors_total", step="commit") for w in workers),
            "both workers notice that Redis is away",
        )
        own_redis.start()
        more_commits(*workers)
    assert all(worker.alive() for worker in workers)
    assert_all_right(world)


def test_redis_is_emptied_while_workers_count(world):
    with Sending(world) as sending:
        workers = world.start(2)
        more_commits(*workers)
        sequence = until(world.snapshots.sequence, "a snapshot")
        world.redis.flushall()
        for worker in workers:
            why = worker.stopped_for()
            assert f". Cause: stream {world.name!r}, partition " in why
            assert "Redis" in why
        sending.more()
    world.settle()
    sequence = max(sequence, world.snapshots.sequence())

    # and no other worker counts from the middle, or from the beginning
    why = world.launch().stopped_for()
    assert f". Cause: stream {world.name!r}, partition " in why
    assert "Redis has no counts" in why
    assert world.group in why
    # only staged blobs of refused attempts are left, and they expire
    for key in world.redis.scan_iter("*"):
        assert b":staged:" in key
        assert world.redis.ttl(key) > 0
    assert world.snapshots.sequence() == sequence
    assert assert_snapshot_topic(world) == sequence


@pytest.mark.long
def test_a_changed_byte_of_the_counts_stops_the_stream(world):
    (worker,) = world.start()
    world.send(40)
    world.covered()
    (key,) = world.redis.scan_iter(f"{{{world.name}:2}}:window:all@*")
    last = world.redis.strlen(key) - 1
    world.redis.setrange(key, last, bytes([world.redis.getrange(key, last, last)[0] ^ 1]))
    for why in (worker.stopped_for(), world.launch().stopped_for()):
        assert (
            f"stream {world.name!r}, partition 2: the counts of 'all@{world.stream.fingerprint.hex()}' are damaged"
            in why
        )
        assert "restore Redis" in why and "Then restart the worker" in why


def test_records_deleted_before_they_were_counted_are_a_gap(world):
    (worker,) = world.start()
    world.put(b"malformed", partition=0).get(
        TIMEOUT_SECONDS
    )  # some records are counted, but none of partition 1
    until(lambda: world.totals()["rejected"], "it is counted")
    assert worker.terminate() == 0
    world.send(10, partition=1, counted=False)
    world.send(20, partition=1)
    world.send(10)
    world.settle()
    world.admin.delete_records({TopicPartition(world.topic, 1): 10})
    (worker,) = world.start()
    last = world.covered()
    assert not last.complete
    assert last.cut.gaps == {1: [(0, 10)]}
    assert last.reports == world.n
    # the audit reports this, and no other fault
    verdict = world.audit()
    lost = (
        "partition 1: gap: offsets 0 to 9: deleted before they were counted; all other counts match the log"
    )
    assert (verdict.reports, verdict.difference) == (world.n, lost)
    assert worker.metric("claims_total", start="gap") == 1
    assert [sample.value for sample in worker.samples("snapshot_complete")] == [0]
    assert_snapshot_topic(world)


@pytest.mark.long
def test_records_deleted_under_a_worker_that_fell_behind_are_a_gap(world):
    (worker,) = world.start()
    world.send(40)
    world.covered()
    counted = world.ends()[2]
    worker.pause()  # for less than its session lasts
    world.send(1, partition=2)  # answers a fetch that is under way
    world.settle()
    world.send(49, partition=2)
    world.settle()
    world.admin.delete_records({TopicPartition(world.topic, 2): counted + 40})
    worker.go_on()
    last = world.covered()
    ((begin, end),) = last.cut.gaps[2]
    assert counted <= begin < end == counted + 40
    assert not last.complete
    assert last.reports == world.n - (end - begin)
    assert worker.metric("claims_total", start="gap") == 1
    assert_snapshot_topic(world)


def create_again(world):
    """Deletes and recreates the topic of reports."""
    world.admin.delete_topics([world.topic])

    def gone():
        with contextlib.suppress(UnknownTopicOrPartitionError):
            return not world.admin.describe_topics([world.topic])[0]["partitions"]
        return True

    until(gone, "the topic is gone")
    world.create_topics()


def test_a_topic_created_again_is_refused(world):
    (worker,) = world.start()
    world.send(100)
    world.covered()
    assert worker.terminate() == 0
    create_again(world)
    world.send(400, counted=False)
    world.settle()
    why = world.launch().stopped_for()
    assert f". Cause: stream {world.name!r}, partition " in why
    assert "topic_id" in why
    assert world.totals()["accepted"] == 100


@pytest.mark.long
def test_a_topic_created_again_under_a_running_worker_is_refused(world):
    (worker,) = world.start()
    world.send(100)
    sequence = world.covered().sequence
    create_again(world)
    world.send(400, counted=False, producer=world.open_producer())
    world.settle()
    why = worker.stopped_for()
    assert why.startswith("StateLost: ")
    assert world.totals()["accepted"] == 100
    assert world.snapshots.sequence() == sequence
