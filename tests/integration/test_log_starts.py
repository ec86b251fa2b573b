"""One wrong answer of a real broker about where a log begins: it loses no report, and no gap is recorded.

A proxy changes the answer. A gap that was recorded all the same is taken back.
`tests/unit/worker/test_firsts.py` has the proof that a gap needs.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.integration.harness import World, lying, until
from tests.integration.harness.lying import Lie, Lying
from tests.integration.harness.processes import Worker
from worker import check
from worker.counting import layout
from worker.counting.ports import Answer, StoredPartition
from worker.counting.windows import ALL
from worker.store.redis import RedisStore

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
    [
        pytest.param(0, 0, 1, marks=pytest.mark.long),
        (SENT, 1, 1),
        pytest.param(SENT, 0, None, marks=pytest.mark.long),
    ],
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


@pytest.mark.long
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


def record_gap(world: World, to: int) -> None:
    """Writes what a worker wrote that believed wrong answers: a gap from where partition 0 is counted."""
    store = RedisStore(world.redis, world.name)
    stored = store.cut_all([0])[0]
    assert isinstance(stored, StoredPartition)
    state = layout.load(world.stream, stored.metadata, stored.blobs)
    state.skip(to)
    state.changed = {ALL}
    after, blobs = layout.dump(state, stored.metadata, uuid4().hex)
    store.stage(0, "gap", blobs)
    assert store.promote_all({0: ("gap", stored.metadata, after)})[0] is Answer.DONE


@pytest.mark.long
def test_point_9_the_operator_takes_a_recorded_gap_back_that_the_log_can_fill(
    kafka: str, redis_url: str, tmp_path: Path
) -> None:
    with World(kafka, redis_url, tmp_path, partitions=1) as world:
        (first,) = world.start()
        world.send(SENT)
        world.covered()
        assert first.terminate() == 0
        world.send(2 * SENT)
        world.settle()
        record_gap(world, TOO_HIGH)
        second = world.launch()
        lacking = world.covered()
        assert (lacking.reports, lacking.complete) == (world.n - TOO_HIGH + SENT, False)
        assert second.terminate() == 0
        found = {f.subject: f for f in check.findings(world.config)}[f"counts of {world.name}"]
        assert f"set recount_after = {lacking.sequence} for it" in found.hint

        world.workers.clear()
        third = world.launch(world.configure("again", recount_after=lacking.sequence))
        whole = until(lambda: (said := world.snapshots.newest()).complete and said, "the gap is taken back")
        assert [event["start"] for event in third.events("partition.claimed")] == ["recount"]
        assert whole.sequence == lacking.sequence + 1
        world.assert_right(whole)
