"""Error codes in a real broker's answers."""

import contextlib
import json

import pytest

from ldp import snapshot
from ldp.snapshot import Cut
from tests.support.harness import World, lying, until
from tests.support.harness.lying import Lying
from worker.counting.ports import Unavailable
from worker.service import publishing

pytestmark = [pytest.mark.integration, pytest.mark.long]

UNKNOWN_SERVER_ERROR = -1
PARTITIONS, BAD = 3, 1


@pytest.fixture
def lied_to(kafka, redis_url, tmp_path):
    """A stream whose workers connect through the proxy."""
    with (
        Lying(kafka) as proxy,
        World(kafka, redis_url, tmp_path, partitions=PARTITIONS, brokers=proxy.address) as world,
    ):
        yield world, proxy


def counted(world):
    """Returns the number of stored records by partition."""
    found = {}
    for partition in range(PARTITIONS):
        meta = world.redis.hgetall(f"{{{world.name}:{partition}}}:meta")
        found[partition] = json.loads(meta[b"totals"])["accepted"] if meta else 0
    return found


def others_count(world, worker, more):
    """Waits until the other partitions store more records without a restart."""
    before = counted(world)
    for partition in range(PARTITIONS):
        world.send(more, partition=partition)
    wanted = {p: before[p] + more for p in range(PARTITIONS) if p != BAD}
    until(lambda: wanted.items() <= counted(world).items(), f"the others have {wanted}")
    assert counted(world)[BAD] == before[BAD]
    assert not worker.events("serve.retry")


def test_a_partition_refused_in_a_fetch_blocks_no_other(lied_to):
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


def test_a_partition_refused_in_a_claim_blocks_no_other(lied_to):
    world, proxy = lied_to
    with proxy.lies(lying.LIST_OFFSETS, UNKNOWN_SERVER_ERROR, topic=world.topic, partition=BAD):
        worker = world.launch()
        until(lambda: worker.owned() == {0, 2}, "the others are claimed")
        others_count(world, worker, 20)
        said = worker.events("claim.retry")[-1]
        assert said["partitions"] == [BAD]
        where = f"topic '{world.topic}, partition {BAD}'"
        assert said["error"].startswith(f"Kafka: asking for the offsets of {where}: UnknownError")
    until(lambda: worker.owned() == {0, 1, 2}, "all are claimed", 60)
    world.assert_right(world.covered())


@pytest.mark.parametrize(
    "api",
    [lying.INIT_PRODUCER_ID, lying.ADD_PARTITIONS_TO_TXN, lying.END_TXN],
    ids=["InitProducerId", "AddPartitionsToTxn", "EndTxn"],
)
def test_a_refused_publisher_retries_with_a_new_producer(lied_to, api):
    world, proxy = lied_to
    partition = 0 if api == lying.ADD_PARTITIONS_TO_TXN else None
    snapshot_producer = publishing.snapshot_producer_of(
        world.config, world.served, lambda: None, lambda *_: None
    )
    snapshot_producer.open()
    try:
        for sequence, code in enumerate([UNKNOWN_SERVER_ERROR, 47, 51], 1):
            taken = snapshot.announce(world.stream, Cut({0: sequence}, {}), sequence, {}, "0" * 32)
            if api == lying.INIT_PRODUCER_ID:
                snapshot_producer.close()  # the next producer requests its id
            with proxy.lies(api, code, partition=partition, times=1) as lie:
                for _ in range(3):
                    with contextlib.suppress(Unavailable):
                        if snapshot_producer._producer is None:
                            snapshot_producer.open()
                        snapshot_producer.publish(sequence, snapshot.encode(taken))
                        break
            assert lie.told == 1, code
            assert snapshot_producer.head(decided=True).sequence == sequence, code
    finally:
        snapshot_producer.close()
