"""What is stored is damaged: the worker that claims it and the publisher that reads it stop, and touch nothing."""

from dataclasses import replace

import pytest

from tests.faults.still import Still, alone, count_all, turn
from worker.counting import layout
from worker.counting.ports import COUNTED, StateLost


def counted() -> Still:
    world = Still()
    world.send()
    count_all(world, alone(world, 1))
    return world


def flip_blob(world: Still) -> None:
    stored = world.stored[0]
    blob = bytearray(stored.blobs["all"])
    blob[-1] ^= 1
    world.stored[0] = replace(stored, blobs={"all": bytes(blob)})


def flip_offset(world: Still) -> None:
    world.changed_fields[0] = {"offset": str(world.stored[0].metadata.offset ^ 1)}


def of_another_partition(world: Still, partition: int, stream: str = "") -> None:
    """Metadata that are whole, and under the key of another partition or stream."""
    key = layout.meta_key(stream or world.stream.name, partition)
    world.changed_fields[0] = layout.fields(world.stored[0].metadata, key)


def swap_partitions(world: Still) -> None:
    """Both keys."""
    of_another_partition(world, 1)


def swap_streams(world: Still) -> None:
    of_another_partition(world, 0, "another")


def flip_totals(world: Still) -> None:
    said = layout.fields(world.stored[0].metadata, layout.meta_key(world.stream.name, 0))["totals"]
    world.changed_fields[0] = {"totals": said.replace('"accepted": ', '"accepted": 1', 1)}


def more_than_was_sent(world: Still) -> None:
    """With the right checksums, as a program writes it that is wrong."""
    stored = world.stored[0]
    state = layout.load(world.stream, stored.metadata, stored.blobs)
    state.accepted, state.changed = 1_000, {"all"}
    state.cells["all"].state += 1_000
    state.cells["all"].reports += 1_000 * len(state.cells["all"].state)
    metadata, blobs = layout.dump(state, stored.metadata, stored.metadata.flush)
    world.stored[0] = replace(stored, metadata=metadata, blobs=blobs)


DAMAGES = [flip_blob, flip_offset, flip_totals, more_than_was_sent, swap_partitions, swap_streams]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_counts_stop_the_next_owner_before_kafka_is_told(damage) -> None:
    world = counted()
    world.send()
    damage(world)
    stored, told = world.stored[0], dict(world.offsets)
    new = alone(world, 2)
    with pytest.raises(StateLost, match=r"partition 0: .*(damaged|counting cannot reach).* restore Redis"):
        for _ in range(3):
            turn(new)
    assert (world.stored[0].blobs, world.stored[0].metadata.offset) == (stored.blobs, stored.metadata.offset)
    assert world.offsets[0] in (told[0], (stored.metadata.offset, COUNTED))
    assert new.ownership.counted() == {}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_counts_are_not_published(damage) -> None:
    world = Still()
    world.send()
    new = alone(world, 1)
    count_all(world, new)
    new.publisher.tick()
    snapshots = list(world.snapshots)
    damage(world)
    with pytest.raises(StateLost, match=r"partition 0: .*(damaged|counting cannot reach).* restore Redis"):
        new.publisher.tick()
    assert world.snapshots == snapshots
