"""Scripts of losses, each where one guard alone stands against it, and of steps that take long or fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.noticing import _gap_can_come, _lose_the_next
from tests.simulation.script import HELD, Step, tag_of, wait
from worker.counting.ports import COUNTED

if TYPE_CHECKING:
    from tests.simulation.world import World


def _published(worker: Any, partition: int) -> int:
    """Returns the offset up to which the newest head has counted a partition."""
    heads = worker.deployment.truth.heads
    return int(heads[-1]["offsets"].get(str(partition), 0)) if heads else 0


def _offset(keys: Any, tag: bytes) -> int:
    return int(keys[tag + b":meta"][b"offset"])


def _known_alone(worker: Any) -> tuple[int, Any] | None:
    """Returns a partition of whose newest counts only the group and the store know, and its keys of before these."""
    for p, offset in worker.ownership.stored().items():
        tag, group = tag_of(worker, p), worker.deployment.group
        past = worker.deployment.server.past.get(tag, ())
        if len(past) > 1 and group.offsets.get(p) == (offset, COUNTED):
            before = past[-2]
            if _published(worker, p) <= _offset(before, tag) < offset and before[tag + b":meta"][b"flush"]:
                return p, before
    return None


def _is_known_alone(world: World, worker: Any, _partition: int) -> bool:
    return _known_alone(worker) is not None


def _go_back_and_lose(world: World, worker: Any, _partition: int) -> None:
    """The store loses a commit that no head has, and the log its records."""
    found = _known_alone(worker)
    assert found is not None
    partition, before = found
    worker.deployment.reports.partitions[partition].first = worker.ownership.stored()[partition]
    worker.deployment.server.go_back(tag_of(worker, partition), before)
    world.lossy.add("store")


def _is_published(world: World, worker: Any, _partition: int) -> bool:
    heads = worker.deployment.truth.heads
    return bool(heads) and any(heads[-1]["offsets"].values())


def _vanish(world: World, worker: Any, _partition: int) -> None:
    """All workers die, and a partition that was published is gone from the store and from the group."""
    deployment = worker.deployment
    published = deployment.truth.heads[-1]["offsets"]
    tag = tag_of(worker, next(int(p) for p, offset in published.items() if offset))
    deployment.server.go_back(tag, {})
    deployment.server.past.pop(tag, None)
    deployment.group.offsets.clear()
    deployment.expired = world.vanished = True
    world.late.clear()
    world.lossy.add("store")
    for each in list(deployment.workers):
        world.kill(each)


def _read_to_the_end(worker: Any) -> int | None:
    """Returns a partition that is read and stored up to its end, and whose last batch can be truncated."""
    for p, offset in worker.ownership.stored().items():
        log = worker.deployment.reports.partitions[p]
        stands = offset == log.end == worker.consumer.positions.get(p) and p in worker.consumer.highs
        if stands and log.first < offset and log.batches and log.whole(log.batches[-1][0]):
            return int(p)
    return None


def _can_be_truncated(world: World, worker: Any, _partition: int) -> bool:
    return _read_to_the_end(worker) is not None


def _truncate(world: World, worker: Any, _partition: int) -> None:
    partition = _read_to_the_end(worker)
    assert partition is not None
    log = worker.deployment.reports.partitions[partition]
    log.truncate(log.batches[-1][0])
    world.lossy.add("truncated")


def _truncate_and_die(world: World, worker: Any, _partition: int) -> None:
    """Who claims it next has not read it."""
    _truncate(world, worker, -1)
    for each in list(worker.deployment.workers):
        world.kill(each)


def _counted_before(worker: Any) -> int | None:
    """Returns a partition that the group says was counted, which no head has, and whose counts can be undone."""
    for p, (_, word) in worker.deployment.group.offsets.items():
        tag = tag_of(worker, p)
        past = worker.deployment.server.past.get(tag, ())
        claimed = len(past) > 1 and not past[0][tag + b":meta"][b"flush"]
        if p and word == COUNTED and claimed and not _published(worker, p):
            return int(p)
    return None


def _looks_before_a_cut(world: World, worker: Any, partition: int) -> bool:
    """Whether the publisher asks whether it is the owner at the beginning of a tick."""
    stored = [worker.deployment.truth.load(p) for p in range(len(worker.deployment.reports.partitions))]
    begins = partition == 0 and world.steps > worker.cut_at + 40
    return begins and any(s.reports for s in stored if s) and _counted_before(worker) is not None


def _undo_counts(world: World, worker: Any, _partition: int) -> None:
    """The store goes back to the claim of a partition, before anything was counted."""
    partition = _counted_before(worker)
    assert partition is not None
    tag = tag_of(worker, partition)
    worker.deployment.server.go_back(tag, worker.deployment.server.past[tag][0])
    world.lossy.add("store")


def _all_are_named(world: World, worker: Any, _partition: int) -> bool:
    """Whether a first head names all partitions, for which they wait with nothing counted."""
    heads, known = worker.deployment.truth.heads, worker.deployment.reports.partitions
    named = bool(heads) and len(heads[-1]["floors"]) == len(heads[-1]["offsets"]) == len(known)
    return named and not any(heads[-1]["offsets"].values()) and len(world.deployments) == 1


def _delete_head(world: World, worker: Any, _partition: int) -> None:
    world._delete_head(worker.deployment)


def _is_left_over(world: World, worker: Any, _partition: int) -> bool:
    """Whether something was polled that is not counted yet."""
    counted, positions = worker.ownership.counted(), worker.log._positions
    return any(positions.get(p, 0) > counted[p] for p in worker.ownership.reading())


def _fail(world: World, worker: Any, _partition: int) -> str:
    return HELD


def _any(world: World, worker: Any, _partition: int) -> bool:
    return True


def _take_long(world: World, worker: Any, _partition: int) -> None:
    wait(world, worker, 6.0)


def _published_and_waits(world: World, worker: Any, _partition: int) -> bool:
    partition = _gap_can_come(worker)
    return partition is not None and _published(worker, partition) > 0


def _lose_in_the_dark(world: World, worker: Any, _partition: int) -> None:
    """A log loses what was not read of it, while no head can be read."""
    _lose_the_next(world, worker, -1)
    world.snapshots.unreadable_until = world.now + 20.0


def _closed_and_waits(world: World, worker: Any, _partition: int) -> bool:
    """Whether a log can lose what comes behind windows that its partition has closed, and that are not final."""
    partition = _gap_can_come(worker)
    if partition is None or not worker.deployment.truth.heads:
        return False
    state, lines = (
        worker.ownership._held[partition].state,
        worker.deployment.truth.heads[-1].get("windows", {}),
    )
    return any(
        line["closed"] < pane.end <= state.windows.closed for line in lines.values() for pane in state.panes
    )


def _is_new(worker: Any, partition: int) -> bool:
    """Whether this is partition 1, and the store has nothing of it."""
    return partition == 1 and not worker.deployment.server.of(tag_of(worker, 1))


def _claims_first(world: World, worker: Any, partition: int) -> bool:
    return _is_new(worker, partition)


def _kill(world: World, worker: Any, _partition: int) -> None:
    world.kill(worker)


def _found_nothing(world: World, worker: Any, partition: int) -> bool:
    return _is_new(worker, partition) and len(worker.deployment.group.members) > 1


def _be_outrun(world: World, worker: Any, _partition: int) -> None:
    """Another member is given all, claims it and publishes it, before who found nothing reads the head."""
    group = worker.deployment.group
    to = min(group.members.keys() - {worker.name})
    group.generation += 1
    group.assignment[to] |= group.assignment[worker.name]
    group.assignment[worker.name] = set()
    wait(world, worker, 8.0)


def _can_be_lost(world: World, worker: Any, _partition: int) -> bool:
    """Whether what a worker reads can be given to another member, which it is not told."""
    told = world.faults.silent < 1.0
    return not told and bool(worker.ownership.reading()) and len(worker.deployment.group.members) > 1


def _give_away(world: World, worker: Any, _partition: int) -> None:
    group, partition = worker.deployment.group, min(worker.ownership.reading())
    to = min(group.members.keys() - {worker.name})
    group.generation += 1
    group.assignment[worker.name].discard(partition)
    group.assignment[to].add(partition)
    world.about = partition, worker.name, 0


def _has_let_go(world: World, worker: Any, _partition: int) -> bool:
    partition, name, _ = world.about
    gone = partition not in worker.consumer.mine and partition not in worker.ownership.counted()
    return worker.name == name and name in worker.deployment.group.members and gone


def _give_back(world: World, worker: Any, _partition: int) -> None:
    group, partition = worker.deployment.group, world.about[0]
    group.generation += 1
    for mine in group.assignment.values():
        mine.discard(partition)
    group.assignment[worker.name].add(partition)


def _claims_again(world: World, worker: Any, _partition: int) -> bool:
    return bool(worker.name == world.about[1] and world.about[0] in worker.consumer.mine)


def _before_windows(worker: Any, partition: int) -> Any:
    """Returns a partition's keys of before its first rule of windows, if the newest head has counted some by it."""
    heads, tag = worker.deployment.truth.heads, tag_of(worker, partition)
    said = heads[-1]["rules"].get(str(partition), []) if heads else []
    windowed = [rule["offset"] for rule in said if "windows" in rule]
    if not windowed or "windows" in said[0] or _published(worker, partition) <= windowed[0]:
        return None
    for keys in reversed(worker.deployment.server.past.get(tag, ())):
        meta = keys[tag + b":meta"]
        if meta[b"flush"] and int(meta[b"offset"]) < windowed[0]:
            return keys
    return None


def _had_windows(world: World, worker: Any, _partition: int) -> bool:
    return _before_windows(worker, 0) is not None


def _go_back_before_windows(world: World, worker: Any, _partition: int) -> None:
    worker.deployment.server.go_back(tag_of(worker, 0), _before_windows(worker, 0))
    world.lossy.add("store")


def _has_windows_ahead(world: World, worker: Any, partition: int) -> bool:
    """Whether a partition is stored that waits, now or later, for a head to name it for windows of before."""
    state = worker.deployment.truth.load(partition) if partition == 0 else None
    return state is not None and state.offset > 0 and state.waits_at is not None


def _delete_head_and_die(world: World, worker: Any, _partition: int) -> None:
    world._delete_head(worker.deployment)
    for each in list(worker.deployment.workers):
        world.kill(each)


SCRIPTS: dict[str, tuple[Step, ...]] = {
    "recalled": (Step("before", "poll", _is_known_alone, _go_back_and_lose, "poll"),),
    "vanished": (Step("after", "commit transaction", _is_published, _vanish, "publish"),),
    "shortened": (Step("before", "poll", _can_be_truncated, _truncate, "poll"),),
    "cut": (Step("before", "poll", _can_be_truncated, _truncate_and_die, "poll"),),
    "uncounted": (Step("before", "hgetall", _looks_before_a_cut, _undo_counts, "publish"),),
    "unheeded": (Step("after", "commit transaction", _all_are_named, _delete_head, "publish"),),
    "leftover": (Step("before", "poll", _is_left_over, _fail, "poll"),),
    "stood": (Step("before", "Commits", _any, _take_long, "write"),),
    "darkgap": (Step("before", "poll", _published_and_waits, _lose_in_the_dark, "poll"),),
    "closedgap": (Step("before", "poll", _closed_and_waits, _lose_the_next, "poll"),),
    "outrun": (
        Step("before", "Raises", _claims_first, _kill, "poll"),
        Step("after", "hgetall", _found_nothing, _be_outrun, "poll"),
    ),
    "silenced": (
        Step("before", "poll", _can_be_lost, _give_away, "poll"),
        Step("before", "poll", _has_let_go, _give_back, "poll"),
        Step("before", "committed", _claims_again, _fail, "poll"),
    ),
    "forsaken": (
        Step("after", "commit transaction", _had_windows, _go_back_before_windows, "publish"),
        Step("after", "Commits", _has_windows_ahead, _delete_head_and_die),
    ),
}
