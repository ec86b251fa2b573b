"""One wrong answer of a real broker about where a log begins: it loses no report, and no gap is recorded.

A proxy changes the answer. `tests/unit/worker/test_firsts.py` has the proof that a gap needs.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.harness import World, lying, until
from tests.integration.harness.lying import Lie, Lying
from tests.integration.harness.processes import Worker

pytestmark = pytest.mark.integration

OFFSET_OUT_OF_RANGE = 1
SENT = 20
TOO_HIGH = SENT + 10
"""Behind what is counted, and before the end of the log."""


@pytest.fixture
def lied_to(kafka: str, redis_url: str, tmp_path: Path) -> Iterator[tuple[World, Lying]]:
    """A stream of one partition, whose workers meet the broker only by a proxy that lies."""
    with (
        Lying(kafka) as proxy,
        World(kafka, redis_url, tmp_path, partitions=1, brokers=proxy.address) as world,
    ):
        yield world, proxy


def too_high(
    world: World, proxy: Lying, after: int, times: int | None = 1
) -> contextlib.AbstractContextManager[Lie]:
    """Has the group's members be told that the log begins too late, after so many true answers; None: always."""
    client = f"ldp-worker-{world.group}"
    return proxy.begins(client, world.topic, 0, TOO_HIGH, after=after, times=times)


def assert_nothing_is_lost(world: World, worker: Worker) -> None:
    snapshot = world.covered()
    assert snapshot.reports == world.n
    assert not worker.events("partition.gap")
    assert snapshot.complete
    world.assert_right(snapshot)


@pytest.mark.parametrize(
    ("counted", "after", "times"),
    [(0, 0, 1), (SENT, 1, 1), (SENT, 0, None)],
    ids=["where counting begins", "where a gap would be recorded", "in all answers"],
)
def test_point_9_a_log_start_that_is_too_high_at_a_claim_loses_nothing(
    lied_to: tuple[World, Lying], counted: int, after: int, times: int | None
) -> None:
    """A claim asks before the ownership is confirmed, and again once the epoch is raised."""
    world, _ = lied_to
    if counted:
        (first,) = world.start()
        world.send(counted)
        world.covered()
        assert first.terminate() == 0
    world.send(2 * SENT)
    world.settle()
    with too_high(*lied_to, after, times) as lie:
        worker = world.launch()
        until(lambda: worker.owned() == {0}, "the partition is claimed")
        assert lie.told
    assert_nothing_is_lost(world, worker)


def test_point_9_a_refused_fetch_and_a_log_start_that_is_too_high_once_lose_nothing(
    lied_to: tuple[World, Lying],
) -> None:
    world, proxy = lied_to
    (worker,) = world.start()
    world.send(SENT)
    world.covered()
    worker.pause()  # so that all that is sent meanwhile is behind the refused fetch
    with (
        proxy.lies(lying.FETCH, OFFSET_OUT_OF_RANGE, topic=world.topic, partition=0, times=1) as refusal,
        too_high(*lied_to, 1) as lie,
    ):
        world.send(SENT)
        world.settle()
        worker.go_on()
        until(lambda: lie.told, "the partition is claimed again")
        assert refusal.told == 1
    assert_nothing_is_lost(world, worker)
