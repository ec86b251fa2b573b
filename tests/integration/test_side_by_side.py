"""What deploy/README.md says of workers and deployments side by side: replaced under load; and beside each other."""

from contextlib import closing

import pytest

from tests.integration.harness import Sending, World, until
from tests.integration.harness.reader import Snapshots
from worker import audit, config
from worker.kafka.client import topics

pytestmark = pytest.mark.integration


def test_workers_are_replaced_one_after_the_other_while_reports_come(kafka, redis_url, tmp_path):
    with World(kafka, redis_url, tmp_path) as world:
        before = world.start(2)
        with Sending(world) as sending:
            for old in before:
                sending.more()
                new = world.launch()
                until(new.ready, f"{new.log.name} ready")
                assert old.terminate() == 0
                until(world.balanced, "those that are left own all")
            sending.more()
        last = world.covered()
        world.assert_right(last)
        assert last.complete
        assert {worker.alive() for worker in before} == {False}


@pytest.mark.long
def test_two_deployments_count_one_topic_with_a_group_a_database_and_a_snapshot_topic_each(
    kafka, redis_url, tmp_path
):
    with World(kafka, redis_url, tmp_path) as world:
        world.start()
        world.send(40)
        world.covered()
        elsewhere = redis_url.rpartition("/")[0] + "/1"
        own = f"{world.name}-trial-snapshots"
        toml = world.configure("trial", group="trial", redis_url=elsewhere, snapshots={"topic": own})
        trial = config.load(toml, {})
        topics.create(world.admin, trial, world.partitions, 1)
        worker = world.launch(toml)
        until(worker.ready, f"{worker.log.name} ready")
        world.send(40)
        world.assert_right(world.covered())
        with closing(Snapshots(kafka, own, world.name)) as snapshots:

            def found():
                newest = snapshots.newest()
                return newest if newest is not None and newest.reports == world.n else None

            seen = until(found, "the other deployment's snapshot of all")
        assert seen.lineage["group"] == f"trial-{world.name}"
        (served,) = trial.streams
        verdict = audit.verify(served, trial)
        assert (verdict.difference, verdict.lag, verdict.reports) == (None, 0, world.n)
        assert all(each.alive() for each in world.workers)
        world.admin.delete_topics([own])
