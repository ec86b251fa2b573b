"""Importer outside the group, and the counts of a batch of a log."""

from collections.abc import Collection, Mapping

import numpy as np

import ldp
from ldp.offset_range import OffsetRange
from ldp.state import State
from tests.support.memory.store import MemoryStore
from tests.support.memory.topics import MemorySnapshotProducer
from tests.support.memory.world import World
from worker.importing import Import

TOPIC = "reports"


class MemoryNonMemberLog:
    """The topic and the group as a non-member sees them."""

    def __init__(self, world: World) -> None:
        self.world = world

    def topic_id(self) -> str:
        return "topic-1"

    def partitions(self) -> set[int]:
        return {*range(len(self.world.logs))}

    def committed(self, partitions: Collection[int]) -> Mapping[int, tuple[int, str]]:
        offsets = self.world.offsets
        return {p: offsets[p] for p in partitions if p in offsets}

    def bounds(self, partitions: Collection[int]) -> Mapping[int, tuple[int, int]]:
        return {p: (self.world.firsts[p], len(self.world.logs[p])) for p in partitions}

    def has_records(self, partition: int, begin: int, end: int) -> bool:
        return not all(record.marker for record in self.world.logs[partition][begin:end])

    def mirror(self, offsets: Mapping[int, tuple[int, str]]) -> None:
        if not self.world.members:  # brokers refuse offsets from a non-member while the group has members
            self.world.offsets.update(offsets)


class Importer:
    """A process that imports."""

    def __init__(self, world: World) -> None:
        self.log, self.store = MemoryNonMemberLog(world), MemoryStore(world)
        self.importing = Import(
            "group", ldp.Fleet((world.stream,)), TOPIC, self.log, self.store, MemorySnapshotProducer(world)
        )


def batch(world: World, partition: int, start: int, offset: int, most: int | None = None) -> State:
    """Returns the counts of a range of a log, by the world's own arithmetic."""
    rule = {"offset": start, "revision": 0, "most_reports": most, "hamming_weight": True}
    counted = world.recount(partition, start, offset, [], [rule])
    covered = OffsetRange(TOPIC, partition, start, offset, counted.watermark, most)
    return State(
        world.stream,
        counted.reports,
        np.array(counted.state),
        counted.accepted,
        counted.rejected,
        log=(covered,),
    )
