"""Workers killed with SIGKILL at random times while reports arrive: every report is counted exactly once."""

import random
import time

import pytest

from tests.integration.harness import Sending, World, assert_snapshot_topic, until

pytestmark = pytest.mark.integration

# How many workers of the two die at once; 20 in all. The first one's session runs out by itself.
ROUNDS = (1, 1, 2, 1, 2, 1, 1, 2, 1, 2, 1, 2, 1, 2)


def test_twenty_kills(kafka, redis_url, tmp_path):
    assert sum(ROUNDS) == 20
    rng = random.Random(20)
    with World(kafka, redis_url, tmp_path) as world:
        with Sending(world) as sending:
            alive = world.join(2)
            for number, count in enumerate(ROUNDS):
                time.sleep(rng.uniform(0, 0.7))  # anywhere within several commits and a snapshot
                victims = rng.sample(alive, count)
                for victim in victims:
                    victim.kill()
                alive = [worker for worker in alive if worker not in victims]
                new = world.join(count, dead=victims if number else [])
                for worker in new:
                    until(lambda w=worker: w.metric("commits_total", verdict="done"), "the new one commits")
                alive += new
                world.assert_audit_equal()
            sending.more()
        last = world.covered()
        world.assert_right(last)
        assert last.complete
        assert assert_snapshot_topic(world) == last.sequence
        assert all(worker.alive() for worker in alive)
