"""Who imports: no member of the group, and what a batch has counted of a log."""

from collections.abc import Collection, Mapping

import numpy as np

from ldp.state import State
from ldp.stretch import Stretch
from tests.faults.memory.scheduler import Member, Task
from tests.faults.memory.store import MemoryStore
from tests.faults.memory.topics import MemoryOutbox
from tests.faults.memory.world import World
from worker.counting.importing import Import, Prefix, Refused
from worker.counting.ports import Unavailable

TOPIC = "reports"


class MemoryStandalone:
    """The topic and the group as who is no member sees them."""

    def __init__(self, world: World) -> None:
        self.world = world

    def topic_id(self) -> str:
        return "topic-1"

    def partitions(self) -> set[int]:
        return self.world.call(lambda: {*range(len(self.world.logs))})

    def committed(self, partitions: Collection[int]) -> Mapping[int, tuple[int, str]]:
        offsets = self.world.offsets
        return self.world.call(lambda: {p: offsets[p] for p in partitions if p in offsets})

    def bounds(self, partitions: Collection[int]) -> Mapping[int, tuple[int, int]]:
        world = self.world
        return world.call(lambda: {p: (world.firsts[p], len(world.logs[p])) for p in partitions})

    def has_records(self, partition: int, begin: int, end: int) -> bool:
        log = self.world.logs[partition]
        return self.world.call(lambda: not all(record.marker for record in log[begin:end]))

    def mirror(self, offsets: Mapping[int, tuple[int, str]]) -> None:
        def effect() -> None:
            if any(not member.dead for member in self.world.members.values()):
                return  # the brokers take nothing from who is no member
            self.world.offsets.update(offsets)

        self.world.call(effect, remote=True)


class Importer(Member):
    """A process that imports."""

    def __init__(self, world: World, number: int) -> None:
        super().__init__(number)
        self.world = world
        self.log, self.store = MemoryStandalone(world), MemoryStore(world)
        self.importing = Import("group", world.stream, TOPIC, self.log, self.store, MemoryOutbox(world))
        self.ended = False

    def start(self, histories: Mapping[str, State]) -> None:
        """Imports on a task of its own, again and again until that is done or refused."""

        def on_done(_prefix: Prefix, before: bool) -> None:
            if before:
                self.world.note("own import recognised")

        def body() -> None:
            while not self.ended:
                try:
                    self.importing.run(histories, on_done)
                except Unavailable:
                    continue
                except Refused:
                    self.world.note("import refused")
                self.ended = True

        self.world.tasks.append(Task(self.world, self, body))


def batch(world: World, partition: int, start: int, offset: int, most: int | None = None) -> State:
    """Returns what a batch counts of a stretch of a log, by the world's own arithmetic."""
    rule = {"offset": start, "revision": 0, "most_reports": most, "ones": True}
    counted = world.recount(partition, start, offset, [], [rule])
    stretch = Stretch(TOPIC, partition, start, offset, counted.watermark, most)
    return State(
        world.stream,
        counted.reports,
        np.array(counted.state),
        counted.accepted,
        counted.rejected,
        log=(stretch,),
    )
