"""Layouts: what a worker of before stored is taken over where it is claimed, whatever that worker still does."""

import json
from dataclasses import replace

import pytest

from tests.faults.memory import Layout1Store, Process
from tests.faults.still import Still, alone, count_all, during, turn
from worker.counting.ports import NewerState, StateLost


def before(world: Still, number: int) -> Process:
    """A worker of the last version that wrote layout 1."""
    world.layout = 1
    process = world.member(number)
    world.layout = 2
    return process


def count_on(process: Process) -> None:
    """Counts all that there is, and commits nothing."""
    ends = {partition: len(log) for partition, log in enumerate(process.world.logs)}
    while process.ownership.counted() != ends:
        turn(process, commit=False)


def layouts(world: Still) -> list[tuple[int, bytes]]:
    """Of each partition, the layout that its lineage says, and the magic of its blob."""
    return [
        (json.loads(stored.metadata.lineage)["layout"], stored.blobs["all"][:4])
        for _, stored in sorted(world.stored.items())
    ]


def test_what_layout_1_stored_is_taken_over_where_it_is_claimed() -> None:
    world = Still()
    world.send()
    count_all(world, before(world, 1))
    assert layouts(world) == [(1, b"LDP1")]
    new = alone(world, 2)
    turn(new)
    assert layouts(world) == [
        (2, b"LDP1")
    ]  # by the claim: the blob is that of before until its window changes
    assert world.stored[0].metadata.epoch == 2
    world.verify(0)
    world.send()
    count_all(world, new)
    assert layouts(world) == [(2, b"LDP2")]
    assert world.stored[0].metadata.epoch == 2
    world.verify(0)
    count_all(world, alone(world, 3))  # and the next owner goes on with that
    assert (layouts(world), world.stored[0].metadata.epoch) == ([(2, b"LDP2")], 3)


@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("step", ["commit", "compare", "release"])
def test_a_zombie_of_layout_1_is_refused_and_harms_nothing(step: str, committed: bool) -> None:
    """Its own script compares the lineage first, so it stops, where one of today would be fenced."""
    world = Still()
    world.send()
    old = before(world, 1)
    count_all(world, old)
    if step != "compare":  # it has counted on
        world.send()
        count_on(old)
    new = alone(world, 2)
    if committed:
        count_all(world, new)
    else:
        turn(new, commit=False)
    stored, confirmed = world.stored[0], world.offsets[0]
    with pytest.raises(StateLost, match="vanished or were replaced while this worker counted"):
        old.ownership.release([0]) if step == "release" else getattr(old.ownership, step)()
    assert (world.stored[0], world.offsets[0]) == (stored, confirmed)
    count_all(world, new)
    world.verify(0)


def test_a_worker_of_layout_1_refuses_what_layout_2_took_over_and_names_it() -> None:
    world = Still()
    world.send()
    count_all(world, world.member(1))
    stored = world.stored[0]
    world.members.clear()
    with pytest.raises(NewerState, match=r"partition 0: .* of layout 2: a newer version"):
        turn(before(world, 2))
    assert world.stored[0] == stored


def test_a_claim_that_another_worker_overtakes_replaces_no_lineage() -> None:
    """The owner of layout 1 claims again between a newer worker's look and its claim."""
    world = Still()
    world.send()
    old = before(world, 1)
    count_all(world, old)
    old.ownership.drop([0])
    new = alone(world, 2)

    def again() -> None:
        found = world.stored[0].metadata
        assert Layout1Store(world).claim(0, found, found) is not None

    during(new.log, "confirm", again)
    turn(new)
    assert new.ownership.counted() == {}
    assert (layouts(world), world.stored[0].metadata.epoch) == ([(1, b"LDP1")], 2)
    count_all(world, new)
    assert (layouts(world), world.stored[0].metadata.epoch) == ([(2, b"LDP1")], 3)


def test_a_store_that_goes_back_over_the_claim_to_layout_1_is_taken_over_again() -> None:
    world = Still()
    world.send()
    count_all(world, before(world, 1))
    layout_1 = world.stored[0]
    new = alone(world, 2)
    world.send()
    count_all(world, new)
    world.stored[0] = layout_1
    new.ownership.compare()
    assert new.ownership.counted() == {}  # fenced, by an epoch that is lower: dropped, not stopped
    count_all(world, new)
    assert layouts(world) == [(2, b"LDP2")]
    world.verify(0)


def test_partitions_of_both_layouts_are_published_side_by_side() -> None:
    world = Still(partitions=2)
    world.send()
    count_all(world, before(world, 1))
    new = alone(world, 2)
    count_all(world, new)
    world.send()
    count_on(new)
    new.ownership.commit([0])
    assert layouts(world) == [(2, b"LDP2"), (2, b"LDP1")]
    new.publisher.tick()
    assert world.snapshots[-1][1] == {0: 10, 1: 5}
    # partition 1 is still the old owner's
    old = json.loads(world.stored[1].metadata.lineage) | {"layout": 1}
    metadata = replace(world.stored[1].metadata, lineage=json.dumps(old, sort_keys=True))
    world.stored[1] = replace(world.stored[1], metadata=metadata)
    world.send()
    count_on(new)
    new.ownership.commit([0])
    assert layouts(world) == [(2, b"LDP2"), (1, b"LDP1")]
    new.publisher.tick()
    assert world.snapshots[-1][1] == {0: 15, 1: 5}


def test_a_publisher_of_layout_1_stops_at_a_cut_of_layout_2() -> None:
    """That is why the workers of before end before the first of this version begins: see the README."""
    world = Still(partitions=2)
    world.send()
    old = before(world, 1)
    count_all(world, old)
    new = world.member(2)
    new.log.poll()
    world.assignment = {1: {0}, 2: {1}}
    old.log.mine, new.log.mine = {0}, {1}
    old.ownership.release([1])
    new.log.seen = old.log.seen = world.generation
    turn(new)
    assert layouts(world) == [(1, b"LDP1"), (2, b"LDP1")]
    snapshots = list(world.snapshots)
    with pytest.raises(NewerState, match="of layout 2"):
        old.publisher.tick()
    assert world.snapshots == snapshots
