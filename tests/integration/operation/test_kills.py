"""Workers killed at random times count every report exactly once."""

import random
import time

import pytest

from tests.support.harness import Sending, World, assert_snapshot_topic, until

pytestmark = pytest.mark.integration

ROUNDS = (1, 2)
"""The number of workers that die at once; the first one's session times out."""


def test_workers_killed_at_random_times_one_by_one_and_all_at_once(kafka, redis_url, tmp_path):
    rng = random.Random(20)
    with World(kafka, redis_url, tmp_path, client={"session_timeout_seconds": 6}) as world:
        with Sending(world, pause=0.1) as sending:
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
            world.assert_keys()
            sending.more()
        last = world.covered()
        world.assert_right(last)
        assert last.complete
        assert assert_snapshot_topic(world) == last.sequence
        assert all(worker.alive() for worker in alive)
