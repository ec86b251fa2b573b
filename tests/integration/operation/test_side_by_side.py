"""Workers replaced one after the other under load."""

import pytest

from tests.support.harness import Sending, World, until

pytestmark = [pytest.mark.integration, pytest.mark.long]


def test_a_rolling_update_counts_every_report(kafka, redis_url, tmp_path):
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
