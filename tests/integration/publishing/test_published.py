"""Published heads prevent double counts and contradictions."""

import contextlib
import signal
import subprocess
import sys

import pytest
from kafka import TopicPartition
from kafka.admin import TransactionState

from tests.support.harness import TIMEOUT_SECONDS, World, assert_snapshot_topic, until
from worker import check, config

pytestmark = pytest.mark.integration

DIES_INSIDE = """
import json, os, signal, sys
from pathlib import Path
from ldp.snapshot import Message
from worker.config import load
from worker.kafka.snapshots.producer import KafkaSnapshotProducer
from worker.kafka.snapshots.topic import SnapshotTopic
config = load(Path(sys.argv[1]), {})
(served,) = config.streams
stream = served.stream
topic = SnapshotTopic(config.kafka.client(), config.transactional_id(stream.name), config.snapshots.topic)
snapshot_producer = KafkaSnapshotProducer(topic, stream)
snapshot_producer.open()
snapshot_producer._producer.commit_transaction = lambda: os.kill(os.getpid(), signal.SIGKILL)
head = {"sequence": 1, "offsets": {}, "reports": 1, "gaps": {}, "fingerprint": stream.fingerprint.hex()}
snapshot_producer.publish(1, [Message(f"{stream.name}/head", "application/json", json.dumps(head).encode())])
"""


@pytest.fixture
def pair(kafka, redis_url, tmp_path):
    """Two streams on one snapshot topic."""
    with contextlib.ExitStack() as stack:
        worlds = []
        for name in ("first", "second"):
            folder = tmp_path / name
            folder.mkdir()
            shared = worlds[0].config.snapshots.topic if worlds else None
            world = World(kafka, redis_url, folder, partitions=2, domain_size=2000, snapshots=shared)
            worlds.append(stack.enter_context(world))
        yield worlds


def gone(world, worker):
    """Kills a worker and expels it."""
    worker.kill()
    world.expel(list(world.members()))


@pytest.mark.long
def test_a_publisher_killed_inside_its_transaction_hides_no_head(pair):
    first, second = pair
    (worker,) = first.start()
    first.send(20)
    first.covered()
    # the other stream's publisher is killed between its messages and its commit
    died = subprocess.run(
        [sys.executable, "-c", DIES_INSIDE, second.toml], timeout=TIMEOUT_SECONDS, check=False
    )
    assert died.returncode == -signal.SIGKILL
    identity = second.config.transactional_id(second.name)
    state = first.admin.describe_transactions([identity])[identity].state
    assert state is TransactionState.ONGOING  # it hides later committed records
    published = worker.metric("snapshot_sequence")
    first.send(20)
    first.settle()
    until(lambda: worker.metric("snapshot_sequence") > published, "a snapshot behind the open transaction")
    gone(first, worker)
    first.send(20)
    first.start()  # counts on, though nothing is decided yet
    ends = first.ends()
    until(lambda: first.totals()["offsets"] == ends, "counting goes on meanwhile")
    # its successor ends the transaction
    second.start()
    last = first.covered()
    first.assert_right(last)
    assert assert_snapshot_topic(first) == last.sequence > published + 1


def test_a_second_deployment_of_a_stream_name_stops(kafka, redis_url, tmp_path):
    with World(kafka, redis_url, tmp_path, partitions=2) as world:
        (worker,) = world.start()
        world.send(40)
        sequence = world.covered().sequence
        elsewhere = redis_url.rpartition("/")[0] + "/1"
        toml = world.configure("other", group="others", redis_url=elsewhere)
        why = world.launch(toml).stopped_for()
        assert "other counts: group" in why
        assert f"'{world.group}' there, 'others-{world.name}' here" in why
        found = {finding.subject: finding for finding in check.findings(config.load(toml, {}))}
        assert found[f"snapshots of {world.name}"].level is check.Level.ERROR
        assert "group" in found[f"snapshots of {world.name}"].text
        world.send(40)
        last = world.covered()
        world.assert_right(last)
        assert last.sequence > sequence
        assert last.lineage["group"] == world.group
        assert_snapshot_topic(world)
        assert worker.alive()


def forget(world):
    """Deletes the stream's keys and the group."""
    for key in world.redis.scan_iter(f"{{{world.name}:*"):
        world.redis.delete(key)
    until(lambda: not world.members(), "the group is empty")
    world.admin.delete_groups([world.group])


@pytest.mark.long
def test_a_restart_from_the_middle_is_refused(kafka, redis_url, tmp_path):
    with World(kafka, redis_url, tmp_path, partitions=2) as world:
        (worker,) = world.start()
        world.send(100)
        last = world.covered()
        assert worker.terminate() == 0
        forget(world)
        world.admin.delete_records({TopicPartition(world.topic, p): 30 for p in range(2)})
        # every reader of the state reports it before any count
        counts = {f.subject: f for f in check.findings(world.config)}[f"counts of {world.name}"]
        assert counts.level is check.Level.ERROR
        assert "a snapshot was published with counts up to offset" in counts.text
        assert "a snapshot was published of offsets up to" in world.audit().difference
        why = world.launch().stopped_for()
        assert f"Redis has no counts, but snapshot {last.sequence} has counts up to" in why
        assert f"set recount_after = {last.sequence}" in why
        assert world.snapshots.newest().reports == 100
        # the operator allows a restart: lost records become a recorded gap
        world.workers.clear()
        worker = world.launch(world.configure("given-up", recount_after=last.sequence))
        world.send(10)
        newest = world.covered()
        assert newest.cut.gaps == {0: [(0, 30)], 1: [(0, 30)]}
        assert not newest.complete
        assert newest.reports == 50
        assert newest.sequence == last.sequence + 1
        assert worker.events("partition.given_up")


@pytest.mark.long
def test_snapshots_with_few_new_reports_are_held_back(kafka, redis_url, tmp_path):
    with World(kafka, redis_url, tmp_path, partitions=1) as world:
        worker = world.launch(world.configure("few", snapshots={"fewest_new": 10}))
        world.send(9)
        world.settle()
        until(lambda: worker.metric("partition_offset") == 9, "all is counted")
        assert worker.terminate() == 0  # it looks once more after its last commit
        assert world.snapshots.newest() is None
        worker = world.launch(world.configure("few", snapshots={"fewest_new": 10}))
        world.send(1)
        assert world.covered().reports == 10
        world.send(3)
        world.settle()
        until(lambda: worker.metric("partition_offset") == 13, "all is counted")
        assert worker.terminate() == 0  # nor on the way out
        assert world.snapshots.newest().reports == 10
        assert world.totals()["accepted"] == 13
        worker = world.launch(world.configure("few", snapshots={"fewest_new": 10}))
        world.send(7)  # the published counts are read from the snapshot topic
        assert world.covered().reports == 20
