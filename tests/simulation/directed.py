"""Directed histories: each theme here has a script, which places one fault exactly where it matters.

The rest of such a history is drawn as in any other, and the same must be so of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kafka.errors import CommitFailedError

from tests.simulation import losing, noticing
from tests.simulation.script import HELD, LOST_REPLY, Act, Fits, Step, set_back, tag_of, wait
from worker.counting import rules

if TYPE_CHECKING:
    from tests.simulation.world import World


def _waits(worker: Any) -> list[int]:
    """Returns the partitions that a worker reads, of which something waits that it has not been given yet."""
    intake = worker.log._intake
    found = []
    for pending in intake._pending:
        ahead = intake._ahead is not None and intake._ahead[0] is pending and intake._ahead[1].value is None
        first = pending is intake._pending[0] and intake._ahead is None
        if not ahead and not first and pending.partition in worker.log._positions:
            found.append(pending.partition)
    return sorted({*found} & worker.consumer.mine & worker.ownership.reading())


def _lose_blobs(world: World, worker: Any, partition: int) -> None:
    server, tag = worker.deployment.server, tag_of(worker, partition)
    server.go_back(tag, {key: value for key, value in server.of(tag).items() if key.endswith(b":meta")})
    server.past.pop(tag, None)
    world.lossy.add("store")
    world.vanished = True


def _has_blobs(world: World, worker: Any, partition: int) -> bool:
    return len(worker.deployment.server.of(tag_of(worker, partition))) > 1


def _rot(world: World, worker: Any, partition: int) -> None:
    """Counts of a partition take each other's places, so their sum stays; where all are equal, one of them changes."""
    server, tag = worker.deployment.server, tag_of(worker, partition)
    for key in [key for key in server.of(tag) if b":window:" in key]:
        header, counts = server.keys[key][:48], server.keys[key][48:]
        other = counts[1:] + counts[:1]
        server.keys[key] = header + (other if other != counts else bytes([counts[0] ^ 1]) + counts[1:])
    _damaged(world, server, tag)


def _misread(world: World, worker: Any, partition: int) -> None:
    """A digit of a partition's metadata is another one than was written."""
    server, tag = worker.deployment.server, tag_of(worker, partition)
    fields = server.keys[tag + b":meta"]
    number = json.loads(fields[b"totals"])["accepted"]
    totals = fields[b"totals"].replace(b'"accepted": %d' % number, b'"accepted": %d' % (number ^ 1))
    server.keys[tag + b":meta"] = fields | {b"totals": totals}
    _damaged(world, server, tag)


def _damaged(world: World, server: Any, tag: bytes) -> None:
    server.past.pop(tag, None)
    world.lossy.add("store")
    world.vanished = True


def _kill(world: World, worker: Any, _partition: int) -> None:
    world.kill(worker)


def _anew(world: World, worker: Any, _partition: int) -> str:
    """The topic is made anew, and its counts, with the group's offsets, are deleted; a claim is still on its way."""
    deployment = worker.deployment
    for other in deployment.workers:
        if other is not worker:
            world.kill(other)
    for tag in list(deployment.server.past):
        deployment.server.go_back(tag, {})
    deployment.server.past.clear()
    world._recreate(deployment)
    world.lossy.add("store")
    world.vanished = True
    deployment.truth.starts.clear()
    return HELD


def _found(world: World, worker: Any, partition: int) -> bool:
    server = worker.deployment.server
    return bool(server.of(tag_of(worker, partition))) and not world.snapshots.records


def _let_go(world: World, worker: Any, _partition: int) -> None:
    world.late += world.held


def _other(world: World, worker: Any, partition: int) -> bool:
    return bool(world.held) and world.held[0][0].endswith(f":{partition}}}:meta")


def _overtaken(world: World, worker: Any, _partition: int) -> bool:
    return any(_can_pass(worker, p) for p in _waits(worker))


def _settled(world: World, worker: Any, _partition: int) -> bool:
    """Whether this can be, and nothing is on its way to the store: what is counted meanwhile would wait for it."""
    return worker.commits._writing is None and _overtaken(world, worker, -1)


def _can_pass(worker: Any, p: int) -> bool:
    log = worker.deployment.reports.partitions[p]
    return (
        log.first <= worker.consumer.positions.get(p, 1 << 60) < log.stable
        and p not in worker.consumer.paused
    )


def _pass(worker: Any, p: int) -> None:
    worker.deployment.reports.partitions[p].first = worker.consumer.positions[p] + 1


def _overtake(world: World, worker: Any, _partition: int) -> None:
    _pass(worker, next(p for p in _waits(worker) if _can_pass(worker, p)))


def _two_wait(world: World, worker: Any, _partition: int) -> bool:
    others = worker.deployment.group.members.keys() - {worker.name}
    return len(_waits(worker)) > 1 and bool(others) and _overtaken(world, worker, -1)


def _take_and_pass(world: World, worker: Any, _partition: int) -> None:
    """One partition of which something waits is taken away, and of another one the log has no more what comes next."""
    waits = _waits(worker)
    passed = next(p for p in waits if _can_pass(worker, p))
    _pass(worker, passed)
    _move(worker, next(p for p in waits if p != passed))


def _waits_of(world: World, worker: Any, partition: int) -> bool:
    return (
        partition in _waits(worker)
        and len(worker.deployment.server.past.get(tag_of(worker, partition), ())) > 1
    )


def _headed(world: World, worker: Any, _partition: int) -> bool:
    """Whether a head is sent and nothing was ever published, and another deployment counts already."""
    others = [d for d in world.deployments if d is not worker.deployment]
    sent = any(record.key.endswith(b"/head") and record.value for record, _ in world.snapshots.records)
    return (
        sent
        and not any(d.truth.heads for d in world.deployments)
        and any(d.server.past and any(not w.dead for w in d.workers) for d in others)
    )


def _die_and_rebalance(world: World, worker: Any, _partition: int) -> None:
    for deployment in world.deployments:
        if deployment is not worker.deployment:
            deployment.group.rebalance()
    world.kill(worker)


def _published(times: int) -> Fits:
    return lambda world, worker, partition: len(worker.deployment.truth.heads) >= times


def _delete_head(world: World, worker: Any, _partition: int) -> str:
    world._delete_head(worker.deployment)
    return LOST_REPLY


def _lacking(world: World, worker: Any) -> int:
    """How many records there have to be more until the head is the last before a stretch of reading back."""
    snapshots = world.snapshots
    name = f"{worker.deployment.stream.name}/head".encode()
    at = max(record.offset for record, _ in snapshots.records if record.key == name)
    return int(64 - (snapshots.end - at))


def _fill(world: World, worker: Any, _partition: int) -> str:
    """Another stream writes so much that the head is the last record before a stretch of reading back."""
    for _ in range(_lacking(world, worker)):
        world.snapshots.append("others", b"others/head", b"{}")
    world.snapshots.decide("others", "committed")
    return LOST_REPLY


def _can_fill(world: World, worker: Any, partition: int) -> bool:
    published = _published(2)(world, worker, partition) and not world.snapshots.open
    return published and _lacking(world, worker) > 0


def _unread(world: World, worker: Any, _partition: int) -> None:
    world.snapshots.unreadable_until = world.now + 200.0


def _move(worker: Any, partition: int) -> str:
    """Gives a partition to another member; returns its name."""
    group = worker.deployment.group
    to = str(min(group.members.keys() - {worker.name}))
    group.generation += 1
    group.assignment[worker.name].discard(partition)
    group.assignment[to].add(partition)
    return to


def _ahead(fresh: bool) -> Fits:
    """Whether a worker has counted some of a partition, and stored nothing yet, or not the last of it."""

    def fits(world: World, worker: Any, _partition: int) -> bool:
        return bool(_counted(worker, fresh)) and len(worker.deployment.group.members) > 1

    return fits


def _counted(worker: Any, fresh: bool) -> list[int]:
    held = worker.ownership._held
    stands = [p for p, one in held.items() if one.state.offset > one.metadata.offset and not one.waiting]
    return sorted(
        p for p in stands if p and (held[p].metadata.flush == "") == fresh and held[p].flush is None
    )


def _hand_over(fresh: bool) -> Act:
    """The first such partition is given to another member, of which its owner hears late."""

    def act(world: World, worker: Any, _partition: int) -> None:
        partition = _counted(worker, fresh)[0]
        world.about = partition, _move(worker, partition), worker.ownership.stored()[partition]
        wait(world, worker, 2.0)

    return act


def _peeks(world: World, worker: Any, partition: int) -> bool:
    return (partition, worker.name) == world.about[:2]


def _looks(world: World, worker: Any, _partition: int) -> bool:
    return bool(worker.name == world.about[1] and worker.consumer.mine - worker.ownership.counted().keys())


def _stand_still(world: World, worker: Any, _partition: int) -> None:
    wait(world, worker, 5.0)


def _says_more(world: World, worker: Any, _partition: int) -> bool:
    partition, _, offset = world.about
    heads, past = worker.deployment.truth.heads, worker.deployment.server.past
    return heads[-1]["offsets"].get(str(partition), 0) > offset and len(past[tag_of(worker, partition)]) > 1


def _go_back(world: World, worker: Any, _partition: int) -> None:
    set_back(world, worker, world.about[0])


def _go_back_and_lose(world: World, worker: Any, _partition: int) -> None:
    partition = world.about[0]
    set_back(world, worker, partition)
    said = worker.deployment.truth.heads[-1]["offsets"][str(partition)]
    worker.deployment.reports.partitions[partition].first = said


def _to_be_ruled(worker: Any) -> list[int]:
    """Returns the partitions that a worker has counted of which another member, of two, would record a rule."""
    members = worker.deployment.group.members.keys()
    others = [w for w in worker.deployment.workers if w is not worker and not w.dead and w.name in members]
    if len(others) != 1:
        return []
    held, configured = worker.ownership._held, others[0].ownership._configured
    return [
        p
        for p in _counted(worker, fresh=False)
        if isinstance(rules.decide(held[p].state.rules, configured, held[p].state.offset), rules.Rule)
    ]


def _may_be_ruled(world: World, worker: Any, _partition: int) -> bool:
    return bool(_to_be_ruled(worker))


def _have_ruled(world: World, worker: Any, _partition: int) -> None:
    """The first such partition is given to that member."""
    partition = _to_be_ruled(worker)[0]
    world.about = partition, _move(worker, partition), worker.ownership.stored()[partition]


def _have_ruled_late(world: World, worker: Any, _partition: int) -> None:
    """The same, but its owner hears of it late."""
    _have_ruled(world, worker, -1)
    wait(world, worker, 2.0)


def _reads_it(world: World, worker: Any, partition: int) -> bool:
    return partition == world.about[0]


def _rules(fields: Mapping[bytes, Any], tag: bytes) -> list[Any]:
    """Returns the rules that a partition's keys say, or none before its first commit."""
    meta = fields.get(tag + b":meta")
    said: list[Any] = json.loads(meta[b"totals"]).get("rules", []) if meta and meta[b"flush"] else []
    return said


def _before_its_rule(worker: Any, tag: bytes) -> dict[bytes, Any] | None:
    """Returns a partition's keys as they last were without the newest of its rules."""
    server = worker.deployment.server
    now = _rules(server.of(tag), tag)
    past = (keys for keys in reversed(server.past.get(tag, ())) if 0 < len(_rules(keys, tag)) < len(now))
    return next(past, None)


def _rule_is_new(world: World, worker: Any, partition: int) -> bool:
    """Whether a partition has just been read with records that a rule judged which no head says."""
    deployment, tag = worker.deployment, tag_of(worker, partition)
    said = deployment.truth.heads[-1]["rules"].get(str(partition), []) if deployment.truth.heads else []
    recorded, offset = _rules(deployment.server.of(tag), tag), deployment.truth.offset(partition) or 0
    new = len(recorded) > len(said) > 0 and offset > recorded[-1]["offset"]
    return new and len(deployment.group.members) > 1 and _before_its_rule(worker, tag) is not None


def _forget_rule(world: World, worker: Any, partition: int) -> None:
    """The store goes back to before a rule that is on its way to a snapshot, and its owner records another one.

    It begins elsewhere, as Kafka has heard how much was counted by the first one.
    """
    tag = tag_of(worker, partition)
    before = _before_its_rule(worker, tag)
    assert before is not None
    for mirror in [late for late in world.late if late[0].startswith("mirror")]:
        world.late.remove(mirror)
        with suppress(CommitFailedError):
            mirror[1]()
    worker.deployment.server.go_back(tag, before)
    world.lossy.add("store")
    world.about = partition, "", 0
    wait(world, worker, 5.0)


def _hand_over_again(world: World, worker: Any, _partition: int) -> None:
    """Its owner has to give it to another member, who claims it before the publisher goes on."""
    partition, group = world.about[0], worker.deployment.group
    for owner in [w for w in worker.deployment.workers if partition in group.assignment.get(w.name, ())]:
        _move(owner, partition)
    wait(world, worker, 5.0)


def _is_shared(world: World, worker: Any, _partition: int) -> bool:
    return len(worker.deployment.group.members) > 1


def _is_free(world: World, importer: Any, partition: int) -> bool:
    return not importer.deployment.server.of(tag_of(importer, partition))


def _be_forestalled(world: World, importer: Any, _partition: int) -> None:
    """An import that found nothing waits with its counts until a worker has claimed the partition."""
    wait(world, importer, 10.0)


def _stood_when_ruled(world: World, worker: Any, partition: int) -> bool:
    """Whether the newest head says all rules of a partition, of whose newest the store has not counted a record."""
    deployment, tag = worker.deployment, tag_of(worker, partition)
    head = deployment.truth.heads[-1] if deployment.truth.heads else {"rules": {}}
    said, before = head["rules"].get(str(partition), []), _before_its_rule(worker, tag)
    if before is None or len(_rules(deployment.server.of(tag), tag)) != len(said):
        return False
    return int(before[tag + b":meta"][b"offset"]) >= int(head["offsets"][str(partition)])


def _undo_rule(world: World, worker: Any, partition: int) -> None:
    """The store goes back to before a rule that a head says, and the publisher reads it so."""
    tag = tag_of(worker, partition)
    before = _before_its_rule(worker, tag)
    assert before is not None
    worker.deployment.server.go_back(tag, before)
    world.lossy.add("store")


def _was_final(world: World, worker: Any, _partition: int) -> bool:
    return bool(worker.deployment.truth.windows.finals)


def _any(world: World, worker: Any, _partition: int) -> bool:
    return True


_OVERRULED = (
    Step("before", "poll", _may_be_ruled, _have_ruled, "poll"),
    Step("before", "Returns a partition", _reads_it, _stand_still, "publish"),
    Step("after", "Returns a partition", _rule_is_new, _forget_rule, "publish"),
)

SCRIPTS: dict[str, tuple[Step, ...]] = {
    "blobs": (Step("before", "Says whether", _has_blobs, _lose_blobs),),
    "rotten": (Step("before", "Raises", _has_blobs, _rot),),
    "misread": (Step("before", "hgetall", _has_blobs, _misread, "poll"),),
    "lineage": (
        Step("after", "Raises", _any, _kill),
        Step("before", "Raises", _found, _anew),
        Step("after", "Raises", _other, _let_go),
    ),
    "overtaken": (Step("before", "poll", _settled, _overtake),),
    "taken": (Step("before", "poll", _two_wait, _take_and_pass),),
    "dropped": (Step("before", "Says whether", _waits_of, set_back),),
    "foreign": (Step("after", "produce", _headed, _die_and_rebalance, "publish"),),
    "deleted": (Step("after", "commit transaction", _published(3), _delete_head, "publish"),),
    "forgotten": (Step("after", "commit transaction", _published(8), _delete_head, "publish"),),
    "stretch": (Step("after", "commit transaction", _can_fill, _fill, "publish"),),
    "peeked": (
        Step("before", "poll", _ahead(fresh=True), _hand_over(fresh=True), "poll"),
        Step("after", "hgetall", _peeks, _stand_still, "poll"),
    ),
    "regone": (
        Step("before", "poll", _ahead(fresh=False), _hand_over(fresh=False), "poll"),
        Step("after", "latest of snapshots, read_uncommitted", _looks, _stand_still, "poll"),
        Step("after", "commit transaction", _says_more, _go_back_and_lose, "publish"),
    ),
    "reruled": (
        Step("before", "poll", _ahead(fresh=False), _hand_over(fresh=False), "poll"),
        Step("after", "latest of snapshots, read_uncommitted", _looks, _stand_still, "poll"),
        Step("after", "commit transaction", _says_more, _go_back, "publish"),
    ),
    "outruled": (
        Step("before", "poll", _may_be_ruled, _have_ruled_late, "poll"),
        Step("after", "latest of snapshots, read_uncommitted", _looks, _stand_still, "poll"),
        Step("after", "commit transaction", _says_more, _go_back, "publish"),
    ),
    "overruled": _OVERRULED,
    "disputed": (
        *_OVERRULED,
        Step("after", "commit transaction", _is_shared, _hand_over_again, "publish"),
    ),
    "unread": (Step("before", "read snapshots", _any, _unread, "publish"),),
    "forestalled": (Step("before", "Imports", _is_free, _be_forestalled, "import"),),
    "unruled": (Step("before", "Returns a partition", _stood_when_ruled, _undo_rule, "publish"),),
    "succeeded": (Step("after", "commit transaction", _was_final, _kill, "publish"),),
    **noticing.SCRIPTS,
    **losing.SCRIPTS,
}
