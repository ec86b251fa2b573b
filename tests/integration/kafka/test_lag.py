"""The consumer group's lag in Kafka, which KEDA reads."""

import pytest

from tests.support.harness import World, until

pytestmark = pytest.mark.integration


def committed(world):
    """Returns the group's offsets."""
    offsets = world.admin.list_group_offsets({world.group: None})[world.group]
    return {tp.partition: entry.offset for tp, entry in offsets.items() if entry.offset >= 0}


def test_group_offsets_reach_the_end_of_every_partition(kafka, redis_url, tmp_path):
    with World(kafka, redis_url, tmp_path, protocol="grr", domain_size=5, partitions=3) as world:
        world.start()
        assert committed(world) == dict.fromkeys(range(3), 0)  # before the first record

        producer = world.open_producer(transactional_id=f"{world.name}-in")
        producer.init_transactions()
        for commit in (True, False, True):
            producer.begin_transaction()
            world.send(30, counted=commit, producer=producer)
            producer.flush()
            world.settle()
            (producer.commit_transaction if commit else producer.abort_transaction)()
        # 3 markers in each partition; the broker writes the last ones after it acknowledges the commit
        until(lambda: sum(world.ends().values()) == 3 * 30 + 3 * 3, "three markers in each partition")
        ends = world.ends()
        until(lambda: committed(world) == ends, f"the group's offsets reach {ends}")
        world.assert_right(world.covered())
