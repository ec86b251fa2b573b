"""A worker with a wrong clock names the remedy."""

import os

import pytest
from kafka.admin import ConfigResource, ConfigResourceType

from tests.support.harness import World, until
from tests.support.harness.processes import Worker

pytestmark = [pytest.mark.integration, pytest.mark.long]

AHEAD = 7200
"""Seconds ahead, twice the default limit of brokers."""
_SHIFT = "import time\n_true = time.time\ntime.time = lambda: _true() + {seconds}\n"


def wrong(folder, seconds):
    """Returns the environment of a worker with a shifted clock."""
    (folder / "sitecustomize.py").write_text(_SHIFT.format(seconds=seconds), encoding="utf-8")
    return {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}


def stamped(world, name, by):
    """Sets `message.timestamp.type` of a topic."""
    topic = ConfigResource(ConfigResourceType.TOPIC, name)
    topic.configs = {"message.timestamp.type": by}
    world.admin.alter_configs([topic])


def test_a_clock_ahead_of_topics_with_producer_time_names_the_remedy(kafka, redis_url, tmp_path):
    with World(kafka, redis_url, tmp_path, protocol="grr", domain_size=5, partitions=1) as world:
        topic, dead_letters = world.config.snapshots.topic, world.config.dead_letters.topic
        for each in (topic, dead_letters):
            stamped(world, each, "CreateTime")
        world.worker = Worker
        world.environ = wrong(tmp_path, AHEAD)
        (worker,) = world.start()
        world.send(20)
        said = until(lambda: worker.events("snapshot.retry"), "publishing fails")[-1]
        assert "The timestamp should be within" in said["error"]
        assert said["remedy"].startswith("correct the clock of this machine or of the brokers, or set")
        assert f"message.timestamp.type=LogAppendTime on topic {topic}" in said["remedy"]
        world.put(b"malformed")
        said = until(lambda: worker.events("commit.retry"), "the dead letter is rejected")[-1]
        assert f"message.timestamp.type=LogAppendTime on topic {dead_letters}" in said["remedy"]
        assert not worker.events("serve.retry")
        for each in (topic, dead_letters):
            stamped(world, each, "LogAppendTime")
        assert world.covered().reports == world.n
