"""Layouts: what a worker of before stored is taken over where it is claimed, whatever that worker still does."""

import json
from dataclasses import replace

import pytest

from tests.faults.memory import OlderStore, Process
from tests.faults.still import Still, alone, count_all, during, turn
from worker.counting.ports import NewerState

MAGIC = {1: b"LDP1", 2: b"LDP2"}
"""What a blob of an older layout begins with."""


def before(world: Still, number: int, layout: int) -> Process:
    """A worker of the last version that wrote an older layout."""
    today, world.layout = world.layout, layout
    process = world.member(number)
    world.layout = today
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


@pytest.mark.parametrize("layout", [1, 2])
def test_what_an_older_layout_stored_is_taken_over_where_it_is_claimed(layout: int) -> None:
    world = Still()
    world.send()
    count_all(world, before(world, 1, layout))
    assert layouts(world) == [(layout, MAGIC[layout])]
    totals = json.loads(world.stored[0].metadata.totals)
    assert totals.keys() == {"start", "rules", "accepted", "rejected", "late", "watermark", "gaps"}
    assert totals["late"] == 0
    new = alone(world, 2)
    turn(new)
    assert layouts(world) == [
        (3, MAGIC[layout])
    ]  # by the claim: the blob is that of before until its cell changes
    assert world.stored[0].metadata.epoch == 2
    world.verify(0)
    world.send()
    count_all(world, new)
    assert layouts(world) == [(3, b"LDP3")]
    assert world.stored[0].metadata.epoch == 2
    world.verify(0)
    count_all(world, alone(world, 3))  # and the next owner goes on with that
    assert (layouts(world), world.stored[0].metadata.epoch) == ([(3, b"LDP3")], 3)


def test_what_each_layout_stored_is_taken_over_by_the_next() -> None:
    world = Still()
    world.send()
    count_all(world, before(world, 1, 1))
    world.members.clear()
    world.rebalance()
    count_all(world, before(world, 2, 2))
    assert layouts(world) == [(2, b"LDP1")]
    count_all(world, alone(world, 3))
    assert layouts(world) == [(3, b"LDP1")]
    world.send()
    count_all(world, alone(world, 4))
    assert layouts(world) == [(3, b"LDP3")]
    world.verify(0)


@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("step", ["commit", "compare", "release"])
@pytest.mark.parametrize("layout", [1, 2])
def test_a_zombie_of_an_older_layout_is_refused_and_then_names_the_newer_version(
    layout: int, step: str, committed: bool
) -> None:
    """By the lineage, which the scripts of layout 1 compare first, or by the epoch; then it claims."""
    world = Still()
    world.send()
    old = before(world, 1, layout)
    count_all(world, old)
    if step != "compare":  # it has counted on
        world.send()
        count_on(old)
    new = alone(world, 2)
    if committed:
        count_all(world, new)
    else:
        turn(new, commit=False)
    assert layouts(world)[0][0] == 3
    stored, confirmed = world.stored[0], world.offsets[0]
    old.ownership.release([0]) if step == "release" else getattr(old.ownership, step)()
    assert old.ownership.counted() == {}  # dropped, not stopped
    assert (world.stored[0], world.offsets[0]) == (stored, confirmed)
    count_all(world, new)
    world.verify(0)
    stored, confirmed = world.stored[0], world.offsets[0]
    world.assignment, old.log.mine = {1: {0}}, {0}
    world.members = {1: old}
    with pytest.raises(NewerState, match="of layout 3: a newer version"):
        turn(old)
    assert (world.stored[0], world.offsets[0]) == (stored, confirmed)


@pytest.mark.parametrize(("layout", "newer"), [(1, 2), (1, 3), (2, 3)])
def test_an_older_worker_refuses_what_a_newer_layout_took_over_and_names_it(layout: int, newer: int) -> None:
    world = Still()
    world.send()
    count_all(world, world.member(1) if newer == 3 else before(world, 1, newer))
    stored = world.stored[0]
    assert layouts(world)[0][0] == newer
    world.members.clear()
    with pytest.raises(NewerState, match=rf"partition 0: .* of layout {newer}: a newer version"):
        turn(before(world, 2, layout))
    assert world.stored[0] == stored


@pytest.mark.parametrize("layout", [1, 2])
def test_a_claim_that_another_worker_overtakes_replaces_no_lineage(layout: int) -> None:
    """The owner of an older layout claims again between a newer worker's look and its claim."""
    world = Still()
    world.send()
    old = before(world, 1, layout)
    count_all(world, old)
    old.ownership.drop([0])
    new = alone(world, 2)

    def again() -> None:
        found = world.stored[0].metadata
        assert OlderStore(world, layout).claim(0, found, found) is not None

    during(new.log, "confirm", again)
    turn(new)
    assert new.ownership.counted() == {}
    assert (layouts(world), world.stored[0].metadata.epoch) == ([(layout, MAGIC[layout])], 2)
    count_all(world, new)
    assert (layouts(world), world.stored[0].metadata.epoch) == ([(3, MAGIC[layout])], 3)


@pytest.mark.parametrize("layout", [1, 2])
def test_a_store_that_goes_back_over_the_claim_to_an_older_layout_is_taken_over_again(layout: int) -> None:
    world = Still()
    world.send()
    count_all(world, before(world, 1, layout))
    older = world.stored[0]
    new = alone(world, 2)
    world.send()
    count_all(world, new)
    world.stored[0] = older
    new.ownership.compare()
    assert new.ownership.counted() == {}  # fenced, by an epoch that is lower: dropped, not stopped
    count_all(world, new)
    assert layouts(world) == [(3, b"LDP3")]
    world.verify(0)


@pytest.mark.parametrize("layout", [1, 2])
def test_partitions_of_both_layouts_are_published_side_by_side(layout: int) -> None:
    world = Still(partitions=2)
    world.send()
    count_all(world, before(world, 1, layout))
    new = alone(world, 2)
    count_all(world, new)
    world.send()
    count_on(new)
    new.ownership.commit([0])
    assert layouts(world) == [(3, b"LDP3"), (3, MAGIC[layout])]
    new.publisher.tick()
    assert world.snapshots[-1][1] == {0: 10, 1: 5}
    # partition 1 is still the old owner's
    old = json.loads(world.stored[1].metadata.lineage) | {"layout": layout, "windows": "cumulative"}
    metadata = replace(world.stored[1].metadata, lineage=json.dumps(old, sort_keys=True))
    world.stored[1] = replace(world.stored[1], metadata=metadata)
    world.send()
    count_on(new)
    new.ownership.commit([0])
    assert layouts(world) == [(3, b"LDP3"), (layout, MAGIC[layout])]
    new.publisher.tick()
    assert world.snapshots[-1][1] == {0: 15, 1: 5}


@pytest.mark.parametrize("layout", [1, 2])
def test_a_publisher_of_an_older_layout_stops_at_a_cut_of_a_newer_one(layout: int) -> None:
    """That is why the workers of before end before the first of this version begins: see the README."""
    world = Still(partitions=2)
    world.send()
    old = before(world, 1, layout)
    count_all(world, old)
    new = world.member(2)
    new.log.poll()
    world.assignment = {1: {0}, 2: {1}}
    old.log.mine, new.log.mine = {0}, {1}
    old.ownership.release([1])
    new.log.seen = old.log.seen = world.generation
    turn(new)
    assert layouts(world) == [(layout, MAGIC[layout]), (3, MAGIC[layout])]
    snapshots = list(world.snapshots)
    with pytest.raises(NewerState, match="of layout 3"):
        old.publisher.tick()
    assert world.snapshots == snapshots
