"""The topic of reports and the group in memory."""

from collections.abc import Callable, Collection, Mapping, Sequence

from tests.faults.memory.scheduler import Member
from tests.faults.memory.world import World
from worker.counting.columns import Batch, Columns, Unreadable
from worker.counting.ports import NotOwner, Unavailable
from worker.counting.rules import Rule


class MemoryLog:
    """The topic and the group as one client sees them: its generation and assignment change in `poll` only."""

    def __init__(self, world: World, member: Member) -> None:
        self.world, self.member = world, member
        self.seen, self.mine = -1, set[int]()
        self.positions: dict[int, int] = {}
        self.revoked: set[int] = set()

    def poll(self) -> list[Batch]:
        return self.world.call(self._poll)

    def _poll(self) -> list[Batch]:
        world, number = self.world, self.member.number
        if self.seen != world.generation or number not in world.assignment:
            if number not in world.assignment:
                world.members[number] = self.member
                world.rebalance()
            self._join(world.assignment[number])
        batches = []
        for partition, at in sorted(self.positions.items()):
            if partition not in self.mine or partition in world.leaderless:
                continue
            log = world.logs[partition]
            if at < world.firsts[partition]:
                self.revoked.add(partition)  # out of range: let go of, and claimed again
                continue
            end = world.whole(partition, min(len(log), at + world.rng.randint(0, 6)))
            if end > at:
                batches.append(self._batch(partition, at, end))
                self.positions[partition] = end
        return batches

    def _batch(self, partition: int, at: int, end: int) -> Batch:
        log = self.world.logs[partition]
        seen = [i for i in range(at, end) if not log[i].marker and log[i].unreadable is None]
        columns = Columns.of(seen, [log[i].timestamp for i in seen], [log[i].value for i in seen])
        # one of which the log has lost the beginning is still there as a whole
        bad = [(first, i + 1) for i in range(at, end) if (first := log[i].unreadable) is not None]
        unreadable = tuple(Unreadable(first, to, 100, "00" * 32, "checksum") for first, to in bad)
        return Batch(partition, at, end, columns, unreadable, sum(log[i].keyed for i in seen))

    def _join(self, assignment: Collection[int]) -> None:
        world, new = self.world, set(assignment)
        self.seen = world.generation
        if world.rng.random() < 0.7:
            self.revoked |= self.mine - new
        else:
            world.note("lost without a word")
        self.mine = new

    def take_revoked(self) -> set[int]:
        revoked, self.revoked = self.revoked, set()
        for partition in revoked:
            self.positions.pop(partition, None)
        return revoked

    def topic_id(self) -> str:
        if self.world.rng.random() < self.world.faults.lost_request:
            raise Unavailable("the topic is not in the metadata (yet)")
        return "topic-1"

    def generation(self) -> object | None:
        return None if self.seen < 0 else (self.seen, self.member.number)

    def assigned(self) -> set[int]:
        return set(self.mine)

    def committed(self, partitions: Collection[int]) -> Mapping[int, tuple[int, str] | None]:
        return self.world.call(lambda: {p: self.world.offsets.get(p) for p in partitions})

    def bounds(self, partitions: Collection[int]) -> Mapping[int, tuple[int, int] | Unavailable]:
        def effect() -> Mapping[int, tuple[int, int] | Unavailable]:
            none = Unavailable("Kafka: no leader")
            return {
                p: none if p in world.leaderless else (world.firsts[p], len(world.logs[p]))
                for p in partitions
            }

        world = self.world
        return world.call(effect)

    def firsts(self, offsets: Mapping[int, int]) -> Mapping[int, int]:
        world = self.world

        def effect() -> Mapping[int, int]:
            return {
                p: max(world.firsts[p], offset) for p, offset in offsets.items() if p not in world.leaderless
            }

        return world.call(effect)

    def confirm(self, offsets: Mapping[int, tuple[int, str]]) -> Mapping[int, Unavailable | None]:
        self.world.call(self._commit(offsets), remote=True)
        return dict.fromkeys(offsets)

    def mirror(self, offsets: Mapping[int, tuple[int, str]]) -> None:
        if self.world.rng.random() >= self.world.faults.lost_mirror:
            self.world.late.append(self._commit(offsets))

    def _commit(self, offsets: Mapping[int, tuple[int, str]]) -> Callable[[], None]:
        """A commit as the broker takes it: of the generation it was sent in, which must be the one that is."""
        seen, world = self.seen, self.world

        def effect() -> None:
            if seen != world.generation:
                raise NotOwner
            world.offsets.update(offsets)

        return effect

    def start(self, partition: int, offset: int, rules: Sequence[Rule]) -> None:
        if partition in self.mine:
            self.positions[partition] = offset

    def stop(self, partition: int) -> None:
        self.positions.pop(partition, None)
