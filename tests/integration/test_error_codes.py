"""Error codes in a broker's answers: an error of one partition is that partition's, and the others go on.

A proxy changes the codes in the answers of a real broker. `tests/unit/worker/test_refusals.py` has every code.
"""

import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ldp import snapshot
from ldp.snapshot import Cut
from tests.integration.harness import World, lying, until
from tests.integration.harness.lying import Lying
from tests.integration.harness.processes import Worker
from worker.counting.ports import Unavailable
from worker.service import publishing

pytestmark = pytest.mark.integration

UNKNOWN_SERVER_ERROR = -1
PARTITIONS, BAD = 3, 1


@pytest.fixture
def lied_to(kafka: str, redis_url: str, tmp_path: Path) -> Iterator[tuple[World, Lying]]:
    """A stream of three partitions, whose workers meet the broker only by a proxy that lies."""
    with (
        Lying(kafka) as proxy,
        World(kafka, redis_url, tmp_path, partitions=PARTITIONS, brokers=proxy.address) as world,
    ):
        yield world, proxy


def counted(world: World) -> dict[int, int]:
    """How many records of each partition are stored."""
    found = {}
    for partition in range(PARTITIONS):
        meta = world.redis.hgetall(f"{{{world.name}:{partition}}}:meta")
        found[partition] = json.loads(meta[b"totals"])["accepted"] if meta else 0
    return found


def others_count(world: World, worker: Worker, more: int) -> None:
    """Waits until the others have stored so many records more, and the stream has not begun again."""
    before = counted(world)
    for partition in range(PARTITIONS):
        world.send(more, partition=partition)
    wanted = {p: before[p] + more for p in range(PARTITIONS) if p != BAD}
    until(lambda: wanted.items() <= counted(world).items(), f"the others have {wanted}")
    assert counted(world)[BAD] == before[BAD]
    assert not worker.events("serve.retry")


@pytest.mark.long
def test_a_partition_whose_fetch_is_refused_stops_no_other_and_is_named_by_readiness_metric_and_log(
    lied_to: tuple[World, Lying],
) -> None:
    world, proxy = lied_to
    (worker,) = world.start()
    with proxy.lies(lying.FETCH, UNKNOWN_SERVER_ERROR, topic=world.topic, partition=BAD):
        others_count(world, worker, 20)
        others_count(world, worker, 20)
        why = f"Kafka: reading partition {BAD} of topic {world.topic!r}: UnknownError"
        until(lambda: why in worker.says(), "readiness says why", 60)
        assert worker.get("/readyz")[0] == 503
        assert worker.metric("errors_total", step="fetch") > 0
        (said,) = worker.events("partition.unreadable")[:1]
        assert said["partition"] == BAD and said["error"].startswith(why)
        assert worker.metric("errors_total", step="serve") == 0
        others_count(world, worker, 20)
    until(lambda: worker.says() == "serving", "it serves again", 60)
    world.assert_right(world.covered())


@pytest.mark.long
@pytest.mark.parametrize(
    ("api", "asked"),
    [
        (lying.LIST_OFFSETS, "asking for the offsets of"),
        (lying.OFFSET_FETCH, "asking for the group's offsets of"),
        (lying.OFFSET_COMMIT, "committing the group's offsets of"),
    ],
    ids=["ListOffsets", "OffsetFetch", "OffsetCommit"],
)
def test_a_partition_that_is_refused_in_a_claim_waits_alone(
    lied_to: tuple[World, Lying], api: int, asked: str
) -> None:
    world, proxy = lied_to
    with proxy.lies(api, UNKNOWN_SERVER_ERROR, topic=world.topic, partition=BAD):
        worker = world.launch()
        until(lambda: worker.owned() == {0, 2}, "the others are claimed")
        others_count(world, worker, 20)
        said = worker.events("claim.retry")[-1]
        assert said["partitions"] == [BAD]
        assert said["error"].startswith(
            f"Kafka: {asked} topic '{world.topic}, partition {BAD}': UnknownError"
        )
    until(lambda: worker.owned() == {0, 1, 2}, "all are claimed", 60)
    world.assert_right(world.covered())


@pytest.mark.long
@pytest.mark.parametrize(
    ("api", "code"), [(lying.FETCH, 29), (lying.LIST_OFFSETS, 5)], ids=["not authorised", "no leader"]
)
def test_point_10_an_owner_that_cannot_read_the_snapshot_topic_counts_on(
    lied_to: tuple[World, Lying], api: int, code: int
) -> None:
    world, proxy = lied_to
    (worker,) = world.start()
    world.send(30)
    world.covered()
    assert worker.terminate() == 0
    topic = world.config.snapshots.topic
    with proxy.lies(api, code, topic=topic, partition=0) as lie:
        worker = world.launch()
        until(lambda: worker.owned() == {0, 1, 2}, "all are claimed without the head")
        world.send(30)
        until(lambda: sum(counted(world).values()) == 60, "all is stored")
        assert lie.told > 0
        assert world.snapshots.newest().reports == 30
    world.assert_right(world.covered())


def publishes_again(world: World, proxy: Lying, api: int, codes: list[int]) -> None:
    """Publishes a snapshot for each code, which one answer has, with a new producer after each failure."""
    partition = 0 if api == lying.ADD_PARTITIONS_TO_TXN else None
    outbox = publishing.outbox_of(world.config, world.served, lambda: None, lambda *_: None)
    outbox.open()
    try:
        for sequence, code in enumerate(codes, 1):
            taken = snapshot.announce(world.stream, Cut({0: sequence}, {}), sequence, {}, "0" * 32)
            if api == lying.INIT_PRODUCER_ID:
                outbox.close()  # the next producer asks for its number
            with proxy.lies(api, code, partition=partition, times=1) as lie:
                for _ in range(3):
                    with contextlib.suppress(Unavailable):
                        if outbox._producer is None:
                            outbox.open()
                        outbox.publish(sequence, snapshot.encode(taken))
                        break
            assert lie.told == 1, code
            assert outbox.head(decided=True).sequence == sequence, code
    finally:
        outbox.close()


@pytest.mark.long
@pytest.mark.parametrize(
    "api",
    [lying.INIT_PRODUCER_ID, lying.ADD_PARTITIONS_TO_TXN, lying.END_TXN],
    ids=["InitProducerId", "AddPartitionsToTxn", "EndTxn"],
)
def test_a_publisher_that_is_refused_publishes_again_with_a_new_producer(
    lied_to: tuple[World, Lying], api: int
) -> None:
    publishes_again(*lied_to, api, [UNKNOWN_SERVER_ERROR, 47, 51])


def test_a_commit_ends_though_the_coordinator_answers_for_ever_that_it_is_not_there(
    lied_to: tuple[World, Lying],
) -> None:
    world, proxy = lied_to
    outbox = publishing.outbox_of(world.config, world.served, lambda: None, lambda *_: None)
    taken = snapshot.announce(world.stream, Cut({0: 1}, {}), 1, {}, "0" * 32)
    failed = list[Unavailable]()

    def publish() -> None:
        try:
            outbox.publish(1, snapshot.encode(taken))
        except Unavailable as error:
            failed.append(error)

    outbox.open()
    try:
        publishing_thread = threading.Thread(target=publish, daemon=True)
        with proxy.lies(lying.END_TXN, 15):
            publishing_thread.start()
            publishing_thread.join(60)
            assert not publishing_thread.is_alive()
        assert len(failed) == 1
        assert outbox.open().sequence == 1, "the coordinator had heard it"
    finally:
        outbox.close()
