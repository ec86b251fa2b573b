"""Errors of Redis and foreign heads: wait, or stop with the cause."""

import pytest

from tests.support.harness import World, until

pytestmark = pytest.mark.integration


def refused(worker, step, *words):
    """Waits until a step fails again with these words."""
    event = {"commit": "commit.retry", "publish": "snapshot.retry"}[step]
    known = len(worker.events(event))

    def said():
        errors = [line["error"] for line in worker.events(event)[known:]]
        return any(all(word in error for word in words) for error in errors)

    until(said, f"{event} says {words}")
    assert worker.metric("errors_total", step=step) > 0


@pytest.mark.long
def test_commits_wait_for_a_redis_that_refuses(own_world):
    world = own_world
    (worker,) = world.start()
    world.send(8)
    world.covered()
    world.redis.replicaof("127.0.0.1", 1)  # as a replica that was written to would be after a failover
    try:
        world.send(8)
        refused(worker, "commit", "ReadOnlyError")
    finally:
        world.redis.replicaof("NO", "ONE")
    world.covered()
    with world.redis.client() as one:  # the connection is already authorized
        one.config_set("requirepass", "another")
        try:
            one.client_kill_filter(_type="normal", skipme=True)
            world.send(8)
            refused(worker, "commit", "AuthenticationError")
        finally:
            one.config_set("requirepass", "")
    world.assert_right(world.covered())
    assert not worker.events("stream.stopped")
    assert not worker.events("serve.retry")


def test_a_head_that_another_program_wrote_stops_the_stream(kafka, redis_url, tmp_path):
    with World(kafka, redis_url, tmp_path, partitions=1) as world:
        key = f"{world.name}/head".encode()
        world.producer.send(world.config.snapshots.topic, key=key, value=b"not a head", partition=0).get(10)
        world.send(8)
        why = world.launch().stopped_for()
        assert f"the head of stream {world.name!r} (offset 0) is not a head, and no older head exists" in why
        assert "another program wrote it" in why
        assert world.totals()["accepted"] == 0
