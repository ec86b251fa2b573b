"""Many partitions on a slow Redis are claimed and committed together."""

import time
from urllib.parse import urlparse

import pytest

from tests.support.harness import World, until
from tests.support.harness.proxy import Proxy

pytestmark = [pytest.mark.integration, pytest.mark.long]

PARTITIONS = 48
DELAY_SECONDS = 0.25
"""Seconds of delay in each direction."""


@pytest.fixture
def late(kafka, redis_url, tmp_path):
    at = urlparse(redis_url)
    with Proxy((at.hostname or "127.0.0.1", at.port or 6379)) as proxy:
        late_url = f"redis://127.0.0.1:{proxy.port}/0"
        with World(kafka, redis_url, tmp_path, partitions=PARTITIONS) as world:
            world.toml = world.configure("late", redis_url=late_url)
            yield world, proxy


def test_claims_of_many_partitions_send_heartbeats_and_commits_wait_once(late):
    world, proxy = late
    proxy.delay = DELAY_SECONDS
    worker = world.launch()
    said = set[str]()

    def claimed():
        if not worker.alive():
            raise AssertionError(f"it ended with {worker.process.returncode}")
        said.add(worker.says())
        return worker.owned() == set(range(PARTITIONS))

    until(claimed, "all are claimed", 120)
    assert not [one for one in said if "no step has finished" in one]

    world.send(PARTITIONS)
    world.settle()
    began = time.monotonic()
    until(lambda: world.totals()["accepted"] == PARTITIONS, "all are stored", 120)
    trips = (time.monotonic() - began) / (2 * DELAY_SECONDS)
    assert trips < PARTITIONS, "as many round trips to Redis as partitions"
