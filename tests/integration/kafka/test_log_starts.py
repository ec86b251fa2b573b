"""Wrong log starts from a real broker lose no report, and no gap is recorded.

A proxy changes the broker's answers. `tests/unit/worker/test_firsts.py` tests the proof that a gap needs.
"""

import pytest

from tests.support.harness import World, lying, until

pytestmark = pytest.mark.integration

OFFSET_OUT_OF_RANGE = 1
SENT = 20
TOO_HIGH = SENT + 10
"""After the counted records, before the end of the log."""


@pytest.fixture
def lied_to(kafka, redis_url, tmp_path):
    with (
        lying.Lying(kafka) as proxy,
        World(kafka, redis_url, tmp_path, partitions=1, brokers=proxy.address) as world,
    ):
        yield world, proxy


def assert_nothing_is_lost(world, worker):
    snapshot = world.covered()
    assert snapshot.reports == world.n
    assert not worker.events("partition.gap")
    assert snapshot.complete
    world.assert_right(snapshot)


@pytest.mark.parametrize(
    ("counted", "after", "times"),
    [
        pytest.param(0, 0, 1, marks=pytest.mark.long),
        (SENT, 1, 1),
        pytest.param(SENT, 0, None, marks=pytest.mark.long),
    ],
    ids=["where counting begins", "where a gap would be recorded", "in all answers"],
)
def test_a_log_start_that_is_too_high_at_a_claim_loses_nothing(lied_to, counted, after, times):
    world, proxy = lied_to
    if counted:
        (first,) = world.start()
        world.send(counted)
        world.covered()
        assert first.terminate() == 0
    world.send(2 * SENT)
    world.settle()
    with proxy.begins(f"ldp-worker-{world.group}", world.topic, TOO_HIGH, after=after, times=times) as lie:
        worker = world.launch()
        until(lambda: worker.owned() == {0}, "the partition is claimed")
        assert lie.told
    assert_nothing_is_lost(world, worker)


@pytest.mark.long
def test_a_refused_fetch_and_a_log_start_that_is_too_high_once_lose_nothing(lied_to):
    world, proxy = lied_to
    (worker,) = world.start()
    world.send(SENT)
    world.covered()
    worker.pause()  # so that the refused fetch covers all records sent until the worker continues
    with (
        proxy.lies(lying.FETCH, OFFSET_OUT_OF_RANGE, topic=world.topic, partition=0, times=1) as refusal,
        proxy.begins(f"ldp-worker-{world.group}", world.topic, TOO_HIGH, after=1) as lie,
    ):
        world.send(SENT)
        world.settle()
        worker.go_on()
        until(lambda: lie.told, "the partition is claimed again")
        assert refusal.told == 1
    assert_nothing_is_lost(world, worker)
