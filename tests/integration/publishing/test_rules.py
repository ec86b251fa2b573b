"""Record limits are stored with the counts and hold from an offset on."""

import json

import pytest

from tests.support.harness import World, until

pytestmark = [pytest.mark.integration, pytest.mark.long]


def ruled(world, partition=0):
    """Returns a partition's rules as (offset, revision, most_reports)."""
    totals = json.loads(world.redis.hget(f"{{{world.name}:{partition}}}:meta", "totals"))
    return [(rule["offset"], rule["revision"], rule["most_reports"]) for rule in totals["rules"]]


def counted(world, **expected):
    """Waits until everything is counted; asserts totals and audit."""
    world.settle()
    ends = world.ends()
    until(lambda: world.totals()["offsets"] == ends, f"all of {ends} counted")
    totals = world.totals()
    assert {key: totals[key] for key in expected} == expected
    assert world.audit().difference is None


def restart(world, file, **changes):
    """Restarts a worker with a changed configuration."""
    for worker in world.workers:
        if worker.alive():
            assert worker.terminate() == 0
    worker = world.launch(world.configure(file, **changes))
    until(worker.ready, f"{worker.log.name} ready")
    until(world.balanced, "it owns all")
    return worker


def test_a_changed_limit_keeps_earlier_counts(kafka, redis_url, tmp_path):
    with World(kafka, redis_url, tmp_path, partitions=1, most_reports=5) as world:
        world.start()
        world.send(10, reports=5)
        counted(world, accepted=10, rejected={})

        worker = restart(world, "lower", most_reports=2)
        until(lambda: len(ruled(world)) == 2, "the new rule is stored though nothing came")
        assert [event["offset"] for event in worker.events("rules.added")] == [10]
        world.send(10, reports=5)
        world.send(10, reports=2)
        counted(world, accepted=20, rejected={"many": 10})

        worker = restart(world, "back")  # as in a roll-out: it is older, and follows the recorded rules
        (event,) = worker.events("config.outdated")
        assert (event["level"], event["remedy"]) == ("warning", "to apply it, set streams.revision to 3")
        world.send(10, reports=5)
        counted(world, accepted=20, rejected={"many": 20})

        restart(world, "on-purpose", revision=3)
        world.send(10, reports=5)
        counted(world, accepted=30, rejected={"many": 20})
        assert ruled(world) == [(0, 1, 5), (10, 2, 2), (40, 3, 5)]
