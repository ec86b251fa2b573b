"""Scripts of what somebody has to notice by itself, as nothing that it does stumbles over it.

An idle owner whose counts went back; a claim of what was published as a gap; a cut of partitions of two topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.script import Step, set_back, tag_of, wait

if TYPE_CHECKING:
    from tests.simulation.world import World


def _stands_idle(world: World, worker: Any, _partition: int) -> bool:
    """Whether a worker has stored all that it was given, and the store has just that."""
    return any(_idle(worker, p) for p in worker.ownership.counted())


def _idle(worker: Any, p: int) -> bool:
    deployment, stored = worker.deployment, worker.ownership.stored()[p]
    nothing = stored == worker.ownership.counted()[p] == deployment.reports.partitions[p].stable
    past = deployment.server.past.get(tag_of(worker, p), ())
    return nothing and len(past) > 1 and deployment.truth.offset(p) == stored


def _set_back_unseen(world: World, worker: Any, _partition: int) -> None:
    set_back(world, worker, next(p for p in worker.ownership.counted() if _idle(worker, p)))


def _gap_of(worker: Any, partition: int) -> tuple[int, int] | None:
    """Returns the stretch that a log no longer has, if the newest head says just that."""
    heads, first = worker.deployment.truth.heads, worker.deployment.reports.partitions[partition].first
    gaps = heads[-1]["gaps"].get(str(partition), []) if heads else []
    return next(((begin, end) for begin, end in gaps if end == first), None)


def _stood_at(worker: Any, partition: int, offset: int) -> Any:
    """Returns a partition's keys as they last were with counts up to an offset, if they were ever."""
    tag = tag_of(worker, partition)
    past = reversed(worker.deployment.server.past.get(tag, ()))
    return next((keys for keys in past if int(keys[tag + b":meta"][b"offset"]) == offset), None)


def _gap_was_said(world: World, worker: Any, _partition: int) -> bool:
    """Whether what the script made a gap was published, and was counted up to there once."""
    gap = _gap_of(worker, partition := world.about[0])
    return gap is not None and _stood_at(worker, partition, gap[0]) is not None


def _stored_and_waits(world: World, worker: Any, _partition: int) -> bool:
    return _gap_can_come(worker) is not None


def _gap_can_come(worker: Any) -> int | None:
    """Returns a partition whose counts are all stored, and whose log has more."""
    deployment = worker.deployment
    for p, offset in worker.ownership.stored().items():
        whole = offset == worker.ownership.counted()[p] == worker.consumer.positions.get(p)
        if whole and 0 < offset < deployment.reports.partitions[p].stable and _stood_at(worker, p, offset):
            return int(p)
    return None


def _lose_the_next(world: World, worker: Any, _partition: int) -> None:
    """A log loses what was not read of it."""
    partition = _gap_can_come(worker)
    assert partition is not None
    log = worker.deployment.reports.partitions[partition]
    log.first = log.stable
    world.about = partition, "", 0


def _go_back_before_gap(world: World, worker: Any, _partition: int) -> None:
    partition = world.about[0]
    gap = _gap_of(worker, partition)
    assert gap is not None
    worker.deployment.server.go_back(tag_of(worker, partition), _stood_at(worker, partition, gap[0]))
    world.lossy.add("store")


def _counts_the_first(world: World, worker: Any, _partition: int) -> bool:
    """Whether a worker has stored some of partition 0, nothing is ahead, and nothing was ever sent to be published."""
    stored = worker.ownership.stored().get(0, 0)
    return 0 < stored == worker.ownership.counted()[0] and not world.snapshots.records


def _make_the_rest_anew(world: World, worker: Any, _partition: int) -> None:
    """The topic is made anew and the other partitions' counts are deleted, which this worker hears of late."""
    deployment = worker.deployment
    for other in deployment.workers:
        if other is not worker:
            world.kill(other)
    for tag in [tag for tag in deployment.server.past if tag != tag_of(worker, 0)]:
        deployment.server.go_back(tag, {})
        del deployment.server.past[tag]
    world._recreate(deployment)
    world.lossy.add("store")
    world.vanished = True
    deployment.truth.starts = {0: deployment.truth.starts[0]}
    world.about = 0, worker.name, 0
    wait(world, worker, 20.0)


def _owns_the_first(world: World, worker: Any, _partition: int) -> bool:
    return bool(worker.name == world.about[1])


def _is_another(world: World, worker: Any, _partition: int) -> bool:
    return worker.name in worker.deployment.group.members and worker.name != world.about[1]


def _take_the_rest(world: World, worker: Any, _partition: int) -> None:
    """A worker that came later is given what the first one's owner has no counts of."""
    group = worker.deployment.group
    for name in group.assignment:
        group.assignment[name] -= {1}
    group.generation += 1
    group.assignment[worker.name].add(1)


def _wait_for_others(world: World, worker: Any, _partition: int) -> None:
    wait(world, worker, 10.0)


SCRIPTS: dict[str, tuple[Step, ...]] = {
    "unnoticed": (Step("before", "poll", _stands_idle, _set_back_unseen, "poll"),) * 3,
    "gapped": (
        Step("before", "poll", _stored_and_waits, _lose_the_next, "poll"),
        Step("after", "commit transaction", _gap_was_said, _go_back_before_gap, "publish"),
    ),
    "mixed": (
        Step("before", "poll", _counts_the_first, _make_the_rest_anew, "poll"),
        Step("before", "Returns a partition", _owns_the_first, _wait_for_others, "publish"),
        Step("before", "poll", _is_another, _take_the_rest, "poll"),
    ),
}
