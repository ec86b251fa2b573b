"""The topic of reports and the group in memory."""

from collections.abc import Collection, Mapping, Sequence

from tests.support.memory.world import World
from worker.counting.columns import Batch, Columns, Unreadable
from worker.counting.ports import NotOwner, Unavailable
from worker.counting.rules import Rule

MOST_POLLED = 4
"""Maximum number of records of a partition in a poll."""


class MemoryLog:
    """The topic and the group as one client sees them: its generation and assignment change in `poll` only."""

    def __init__(self, world: World, number: int) -> None:
        self.world, self.number = world, number
        self.seen, self.mine = -1, set[int]()
        self.positions: dict[int, int] = {}
        self.revoked: set[int] = set()

    def poll(self) -> list[Batch]:
        world = self.world
        if self.seen != world.generation or self.number not in world.assignment:
            if self.number not in world.assignment:
                world.members.add(self.number)
                world.rebalance()
            new = set(world.assignment[self.number])
            self.revoked |= self.mine - new
            self.seen, self.mine = world.generation, new
        batches = []
        for partition, at in sorted(self.positions.items()):
            if partition not in self.mine or partition in world.leaderless:
                continue
            if at < world.firsts[partition]:
                self.revoked.add(partition)  # out of range: released, and claimed again
                continue
            end = world.whole(partition, min(len(world.logs[partition]), at + MOST_POLLED))
            if end > at:
                batches.append(self.batch(partition, at, end))
                self.positions[partition] = end
        return batches

    def batch(self, partition: int, at: int, end: int) -> Batch:
        """Returns a range of a log as a poll does."""
        log = self.world.logs[partition]
        seen = [i for i in range(at, end) if not log[i].marker and log[i].unreadable is None]
        columns = Columns.of(seen, [log[i].timestamp for i in seen], [log[i].value for i in seen])
        # one of which the log has lost the beginning is still there as a whole
        bad = [(first, i + 1) for i in range(at, end) if (first := log[i].unreadable) is not None]
        unreadable = tuple(Unreadable(first, to, 100, "00" * 32, "checksum") for first, to in bad)
        return Batch(partition, at, end, columns, unreadable, sum(log[i].with_key_or_headers for i in seen))

    def take_revoked(self) -> set[int]:
        revoked, self.revoked = self.revoked, set()
        for partition in revoked:
            self.positions.pop(partition, None)
        return revoked

    def topic_id(self) -> str:
        return "topic-1"

    def generation(self) -> object | None:
        return None if self.seen < 0 else (self.seen, self.number)

    def assigned(self) -> set[int]:
        return set(self.mine)

    def committed(self, partitions: Collection[int]) -> Mapping[int, tuple[int, str] | None]:
        return {p: self.world.offsets.get(p) for p in partitions}

    def bounds(self, partitions: Collection[int]) -> Mapping[int, tuple[int, int] | Unavailable]:
        world, none = self.world, Unavailable("Kafka: no leader")
        return {
            p: none if p in world.leaderless else (world.firsts[p], len(world.logs[p])) for p in partitions
        }

    def firsts(self, offsets: Mapping[int, int]) -> Mapping[int, int]:
        world = self.world
        return {p: max(world.firsts[p], offset) for p, offset in offsets.items() if p not in world.leaderless}

    def confirm(self, offsets: Mapping[int, tuple[int, str]]) -> Mapping[int, Unavailable | None]:
        self._commit(self.seen, offsets)
        return dict.fromkeys(offsets)

    def mirror(self, offsets: Mapping[int, tuple[int, str]]) -> None:
        seen = self.seen
        self.world.late.append(lambda: self._commit(seen, offsets))

    def _commit(self, seen: int, offsets: Mapping[int, tuple[int, str]]) -> None:
        """Commits as the broker does: only of the newest generation."""
        if seen != self.world.generation:
            raise NotOwner
        self.world.offsets.update(offsets)

    def start(self, partition: int, offset: int, rules: Sequence[Rule]) -> None:
        if partition in self.mine:
            self.positions[partition] = offset

    def stop(self, partition: int) -> None:
        self.positions.pop(partition, None)
