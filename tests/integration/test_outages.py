"""Kafka or Redis die, lose what they held or get an older copy back: counts stay right, or the stream says why not.

These tests kill servers, so they have a Kafka and a Redis of their own.
"""

import contextlib
import time

import pytest
import redis
from kafka import TopicPartition
from kafka.errors import UnknownTopicOrPartitionError

from tests.integration.harness import TIMEOUT_SECONDS, Sending, assert_snapshot_topic, until

pytestmark = pytest.mark.integration


@pytest.fixture
def world(own_world):
    return own_world


def commits(*workers):
    return sum(worker.metric("commits_total", verdict="done") for worker in workers)


def more_commits(*workers, count=3):
    """Waits until so many more commits came through."""
    goal = commits(*workers) + count
    until(lambda: commits(*workers) >= goal, f"{count} more commits")


def assert_all_right(world):
    last = world.covered()
    world.assert_right(last)
    assert last.complete
    assert assert_snapshot_topic(world) == last.sequence


# --- outages that mend ------------------------------------------------------------------------------------------------


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


def test_the_broker_dies_and_comes_back(own_pair_world, own_services):
    world = own_pair_world
    with Sending(world) as sending:
        workers = world.start(2)
        more_commits(*workers)
        own_services.kafka.restart()
        sending.more()
        more_commits(*workers)
    assert all(worker.alive() for worker in workers)
    assert_all_right(world)


def test_a_stopped_worker_wakes_up_as_a_zombie(world):
    with Sending(world) as sending:
        first, second = world.start(2)
        more_commits(first, second)
        first.pause()
        owned = second.owned()
        world.expel([member for member in world.members() if not serves(world, member, owned)])
        until(lambda: second.owned() == set(range(world.partitions)), "the other took over")
        sending.more()
        first.go_on()
        until(world.balanced, "both own partitions again")
        sending.more()
        more_commits(first, second)
    assert_all_right(world)


def serves(world, member, partitions):
    """Whether a member of the group is the one that these partitions are assigned to."""
    for one in world.admin.describe_groups([world.group])[world.group]["members"]:
        if one["member_id"] == member:
            assigned = one["member_assignment"]["assigned_partitions"]
            return {p for topic in assigned for p in topic["partitions"]} == partitions
    return False


# --- what Redis held is lost or older ---------------------------------------------------------------------------------


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

    # nor does any other worker count from the middle, or from the beginning
    why = world.launch().stopped_for()
    assert f". Cause: stream {world.name!r}, partition " in why
    assert "Redis has no counts" in why
    assert world.group in why
    # all that is left is what attempts staged that were then refused, and that goes by itself
    for key in world.redis.scan_iter("*"):
        assert b":staged:" in key
        assert world.redis.ttl(key) > 0
    assert world.snapshots.sequence() == sequence
    assert assert_snapshot_topic(world) == sequence


@pytest.mark.long
def test_idle_workers_notice_that_redis_was_emptied(world):
    (worker,) = world.start()
    world.send(40)
    world.covered()
    world.redis.flushall()
    assert "Redis" in worker.stopped_for()


@pytest.mark.long
def test_redis_is_set_back_to_an_older_state_while_workers_count(world):
    with Sending(world) as sending:
        workers = world.start(2)
        more_commits(*workers)
        older = copy(world)
        sending.more()
        more_commits(*workers)
        put_back(world, older)
        sending.more()
        more_commits(*workers)
    assert all(worker.alive() for worker in workers)
    assert_all_right(world)


@pytest.mark.long
@pytest.mark.parametrize("running", [True, False], ids=["idle", "stopped"])
def test_redis_is_set_back_to_an_older_state_while_nothing_arrives(world, running):
    (worker,) = world.start()
    world.send(100)
    world.covered()
    older = copy(world)
    world.send(100)
    sequence = world.covered().sequence
    if not running:
        assert worker.terminate() == 0
    put_back(world, older)
    if not running:
        (worker,) = world.start()
    offsets = world.ends()
    until(lambda: world.totals()["offsets"] == offsets, "the log was counted again")
    world.assert_audit_equal(whole=True)
    assert worker.alive()
    world.send(1)
    assert_all_right(world)
    assert world.snapshots.sequence() > sequence


def copy(world):
    """All keys of the stream with their values, each partition's in one step; as a replica behind would have them."""
    state = {}
    for partition in range(world.partitions):
        keys = [f"{{{world.name}:{partition}}}:{rest}" for rest in ("meta", "window:all")]
        with world.redis.pipeline(transaction=True) as pipeline:
            for key in keys:
                pipeline.dump(key)
            state |= dict(zip(keys, pipeline.execute(), strict=True))
    return state


def put_back(world, state):
    """Puts a copy in the place of what is there, each partition in one step."""
    for partition in range(world.partitions):
        with world.redis.pipeline(transaction=True) as pipeline:
            for key, value in state.items():
                if key.startswith(f"{{{world.name}:{partition}}}"):
                    pipeline.restore(key, 0, value, replace=True)
            pipeline.execute()


@pytest.mark.long
def test_point_8_audit_on_a_full_redis(world):
    (worker,) = world.start()
    world.send(40)
    world.covered()
    assert worker.terminate() == 0
    before = world.redis.config_get("maxmemory")["maxmemory"]
    world.redis.config_set("maxmemory", 1)
    try:
        with pytest.raises(redis.exceptions.OutOfMemoryError):
            world.redis.set("one more", "value")
        world.assert_audit_equal(whole=True)
    finally:
        world.redis.config_set("maxmemory", before)


def test_a_lost_blob_is_state_loss(world):
    (worker,) = world.start()
    world.send(40)
    world.covered()
    worker.kill()
    world.expel(list(world.members()))
    world.redis.delete(f"{{{world.name}:2}}:window:all")
    why = world.launch().stopped_for()
    assert f"stream {world.name!r}, partition 2: the counts of 'all' are missing" in why


@pytest.mark.long
def test_a_changed_byte_of_the_counts_stops_the_stream(world):
    """At the next snapshot's reading, without another record; and a restart does not go on with it, either."""
    (worker,) = world.start()
    world.send(40)
    world.covered()
    key = f"{{{world.name}:2}}:window:all"
    last = world.redis.strlen(key) - 1
    world.redis.setrange(key, last, bytes([world.redis.getrange(key, last, last)[0] ^ 1]))
    for why in (worker.stopped_for(), world.launch().stopped_for()):
        assert f"stream {world.name!r}, partition 2: the counts of 'all' are damaged" in why
        assert "restore Redis" in why


# --- what Kafka held is lost ------------------------------------------------------------------------------------------


def test_records_deleted_before_they_were_counted_are_a_gap(world):
    (worker,) = world.start()
    world.put(b"malformed", partition=0).get(
        TIMEOUT_SECONDS
    )  # something is counted, but nothing of partition 1
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
    # the audit says so, too, and that nothing else is wrong
    verdict = world.audit()
    lost = (
        "partition 1: gap: offsets 0 to 9: recorded as lost, deleted before they were counted;"
        " all else equals the log"
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


@pytest.mark.long
def test_records_deleted_after_they_were_counted_change_nothing(world):
    (worker,) = world.start()
    world.send(40)
    world.covered()
    world.admin.delete_records({TopicPartition(world.topic, p): end for p, end in world.ends().items()})
    world.send(40)
    last = world.covered()
    assert last.complete
    assert last.reports == world.n
    assert worker.terminate() == 0
    world.start()
    world.send(1)
    last = world.covered()
    assert last.complete
    assert last.reports == world.n


def create_again(world):
    """Deletes the topic of reports and makes one of the same name."""
    world.admin.delete_topics([world.topic])

    def gone():
        with contextlib.suppress(UnknownTopicOrPartitionError):
            return not world.admin.describe_topics([world.topic])[0]["partitions"]
        return True

    until(gone, "the topic is gone")
    world.create_topics()


@pytest.mark.long
def test_a_topic_created_again_under_a_worker_that_stands_still_is_not_counted_on(world):
    """Its client fetches by name, at the old offsets, and hears by itself only later that the id is another one."""
    (worker,) = world.start()
    world.send(40)
    world.covered()
    worker.pause()
    time.sleep(1.5)  # what was fetched last is answered, so that no error tells of the end of the topic
    create_again(world)
    world.send(400, counted=False, producer=world.open_producer())
    world.settle()
    worker.go_on()
    assert "topic_id" in worker.stopped_for()
    assert world.totals()["accepted"] == 40
    assert "it was deleted and made anew" in str(world.audit().difference)


@pytest.mark.parametrize(
    "records", [pytest.param(10, marks=pytest.mark.long), 400], ids=["shorter", "longer"]
)
def test_a_topic_created_again_is_refused(world, records):
    (worker,) = world.start()
    world.send(100)
    world.covered()
    assert worker.terminate() == 0
    create_again(world)
    world.send(records, counted=False)
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
