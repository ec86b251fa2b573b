"""Directed histories: scripts that place one fault exactly where it matters.

Anything else in such a history is drawn as in any other, and the same must hold.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from kafka.errors import CommitFailedError

from tests.simulation.script import HELD, LOST_REPLY, Act, Call, Fits, Step
from worker.counting import rules
from worker.counting.ports import COUNTED

_COMMIT, _READ = "commit transaction", "Reads a partition"


def _kill(call: Call) -> None:
    call.world.kill(call.worker)


def _kill_all(call: Call) -> None:
    for worker in list(call.deployment.workers):
        call.world.kill(worker)


def _stand_still(seconds: float) -> Act:
    return lambda call: call.wait(seconds)


def _move(call: Call, partition: int) -> str:
    """Gives a partition of a worker to another member; returns its name."""
    group, worker = call.group, call.worker
    to = str(min(group.members.keys() - {worker.name}))
    group.generation += 1
    group.assignment[worker.name].discard(partition)
    group.assignment[to].add(partition)
    return to


def _hand_over(call: Call, partition: int) -> None:
    """Moves a partition to another member, and notes it for later steps."""
    call.world.about = partition, _move(call, partition), call.worker.ownership.stored()[partition]


def _darken(seconds: float) -> Act:
    """No snapshot can be read for a while."""

    def act(call: Call) -> None:
        call.world.snapshots.unreadable_until = call.world.now + seconds

    return act


def _is_shared(call: Call) -> bool:
    return len(call.group.members) > 1


def _delete_head(call: Call) -> None:
    call.world.delete_head(call.deployment)


def _delete_head_unheard(call: Call) -> str:
    _delete_head(call)
    return LOST_REPLY


# the store loses or damages what it had


def _has_blobs(call: Call) -> bool:
    return len(call.keys(call.partition)) > 1


def _lose_blobs(call: Call) -> None:
    kept = {key: value for key, value in call.keys(call.partition).items() if key.endswith(b":meta")}
    call.damage(call.partition, kept)


def _rot(call: Call) -> None:
    """Rotates a partition's counts, which keeps their sum, or changes one."""
    keys = call.keys(call.partition)
    for key in [key for key in keys if b":window:" in key]:
        header, counts = keys[key][:50], keys[key][50:]
        other = counts[1:] + counts[:1]
        keys[key] = header + (other if other != counts else bytes([counts[0] ^ 1]) + counts[1:])
    call.damage(call.partition, keys)


def _misread(call: Call) -> None:
    """Changes a digit of a partition's metadata."""
    keys = call.keys(call.partition)
    fields = call.meta(keys, call.partition)
    number = json.loads(fields[b"totals"])["accepted"]
    totals = fields[b"totals"].replace(b'"accepted": %d' % number, b'"accepted": %d' % (number ^ 1))
    call.damage(call.partition, keys | {call.tag(call.partition) + b":meta": fields | {b"totals": totals}})


def _vanish(call: Call) -> None:
    """Kills all workers; a published partition is lost from store and group."""
    call.damage(next(int(p) for p, offset in call.heads[-1]["offsets"].items() if offset), {})
    call.group.offsets.clear()
    call.deployment.expired = True
    call.world.late.clear()
    _kill_all(call)


def _known_alone(call: Call) -> tuple[int, Any] | None:
    """Returns a partition whose last commit no head has, and its older keys."""
    for p, offset in call.worker.ownership.stored().items():
        if len(past := call.past(p)) > 1 and call.group.offsets.get(p) == (offset, COUNTED):
            meta = call.meta(before := past[-2], p)
            if call.published(p) <= int(meta[b"offset"]) < offset and meta[b"commit_id"]:
                return p, before
    return None


def _lose_what_is_known(call: Call) -> None:
    """The store loses a commit that no head has, and the log its records."""
    found = _known_alone(call)
    assert found is not None
    partition, before = found
    call.log(partition).first = call.worker.ownership.stored()[partition]
    call.go_back(partition, before)


def _idle(call: Call) -> list[int]:
    """Returns the partitions that are counted and stored up to the end."""
    stored, counted = call.worker.ownership.stored(), call.worker.ownership.counted()
    return [
        p
        for p in counted
        if stored[p] == counted[p] == call.log(p).stable
        and len(call.past(p)) > 1
        and call.deployment.truth.offset(p) == stored[p]
    ]


def _set_back(call: Call, partition: int) -> None:
    """Undoes the last write of a partition."""
    call.go_back(partition, call.past(partition)[-2])


def _undone(call: Call) -> int | None:
    """Returns a counted, unpublished partition whose counts can be undone."""
    for p, (_, word) in call.group.offsets.items():
        past = call.past(p)
        claimed = len(past) > 1 and not call.meta(past[0], p)[b"commit_id"]
        if p and word == COUNTED and claimed and not call.published(p):
            return int(p)
    return None


def _looks_before_a_cut(call: Call) -> bool:
    """Whether the publisher looks for its ownership as a tick begins."""
    truth = call.deployment.truth
    stored = [truth.load(p) for p in range(len(call.deployment.reports.partitions))]
    begins = call.partition == 0 and call.world.steps > call.worker.cut_at + 40
    return begins and any(s.reports for s in stored if s) and _undone(call) is not None


def _undo_counts(call: Call) -> None:
    """Sets a partition back to its claim."""
    partition = _undone(call)
    assert partition is not None
    call.go_back(partition, call.past(partition)[0])


# the log loses what was not counted, or its end


def _waits(call: Call) -> list[int]:
    """Returns the partitions with fetched data that was not handed out yet."""
    log = call.worker.log
    prefetch = log._prefetch
    found = set[int]()
    for pending in prefetch._pending:
        ahead = (
            prefetch._ahead is not None and prefetch._ahead[0] is pending and prefetch._ahead[1].value is None
        )
        first = pending is prefetch._pending[0] and prefetch._ahead is None
        if not ahead and not first and pending.partition in log._positions:
            found.add(pending.partition)
    return sorted(found & call.worker.consumer.mine & call.worker.ownership.reading())


def _passable(call: Call) -> list[int]:
    """Returns those whose log can lose what comes next."""
    consumer = call.worker.consumer
    return [
        p
        for p in _waits(call)
        if call.log(p).first <= consumer.positions.get(p, 1 << 60) < call.log(p).stable
        and p not in consumer.paused
    ]


def _settled(call: Call) -> bool:
    """Whether there are some, and no commit is under way."""
    return call.worker.commits._writing is None and bool(_passable(call))


def _overtake(call: Call) -> None:
    passed = _passable(call)[0]
    call.log(passed).first = call.worker.consumer.positions[passed] + 1


def _two_wait(call: Call) -> bool:
    others = call.group.members.keys() - {call.worker.name}
    return len(_waits(call)) > 1 and bool(others) and bool(_passable(call))


def _take_and_pass(call: Call) -> None:
    """Moves one waiting partition, and truncates another one's log beginning."""
    taken = next(p for p in _waits(call) if p != _passable(call)[0])
    _overtake(call)
    _move(call, taken)


def _stood_at(call: Call, partition: int, offset: int) -> Any:
    """Returns a partition's last keys with counts up to an offset, or None."""
    past = reversed(call.past(partition))
    return next((keys for keys in past if int(call.meta(keys, partition)[b"offset"]) == offset), None)


def _gaps_can_come(call: Call) -> list[int]:
    """Returns the stored partitions whose log has more."""
    ownership, positions = call.worker.ownership, call.worker.consumer.positions
    return [
        p
        for p, offset in ownership.stored().items()
        if offset == ownership.counted()[p] == positions.get(p)
        and 0 < offset < call.log(p).stable
        and _stood_at(call, p, offset)
    ]


def _closed_and_waits(call: Call) -> bool:
    """Whether a log can lose records after closed windows that are not final."""
    if not call.heads or not (found := _gaps_can_come(call)):
        return False
    state, lines = call.worker.ownership._held[found[0]].state, call.heads[-1].get("windows", {})
    return any(
        line["closed"] < pane.end <= state.windows.closed for line in lines.values() for pane in state.panes
    )


def _lose_the_next(call: Call) -> None:
    """Removes a log's records that were not read."""
    partition = _gaps_can_come(call)[0]
    call.log(partition).first = call.log(partition).stable
    call.world.about = partition, "", 0


def _lose_in_the_dark(call: Call) -> None:
    """Does the same while no head can be read."""
    _lose_the_next(call)
    _darken(20.0)(call)


def _before_gap(call: Call) -> Any:
    """Returns the keys from before the script's gap, once a head has it."""
    partition = call.world.about[0]
    gaps = call.deployment.truth.published("gaps", partition) or []
    begin = next((begin for begin, end in gaps if end == call.log(partition).first), None)
    return None if begin is None else _stood_at(call, partition, begin)


def _read_to_the_end(call: Call) -> list[int]:
    """Returns the partitions that are stored, and whose end can be cut off."""
    consumer, found = call.worker.consumer, list[int]()
    for p, offset in call.worker.ownership.stored().items():
        log = call.log(p)
        stands = offset == log.end == consumer.positions.get(p) and p in consumer.highs
        if stands and log.first < offset and log.batches and log.whole(log.batches[-1][0]):
            found.append(p)
    return found


def _truncate(call: Call) -> None:
    log = call.log(_read_to_the_end(call)[0])
    log.truncate(log.batches[-1][0])
    call.world.lossy.add("truncated")


def _truncate_and_die(call: Call) -> None:
    """Truncates a log that the next owner has not read."""
    _truncate(call)
    _kill_all(call)


def _is_left_over(call: Call) -> bool:
    """Whether polled records are not counted yet."""
    counted, positions = call.worker.ownership.counted(), call.worker.log._positions
    return any(positions.get(p, 0) > counted[p] for p in call.worker.ownership.reading())


def _waits_of(call: Call) -> bool:
    return call.partition in _waits(call) and len(call.past(call.partition)) > 1


def _published_and_waits(call: Call) -> bool:
    return any(call.published(p) > 0 for p in _gaps_can_come(call)[:1])


# the topic is recreated


def _make_anew(call: Call, *kept: int) -> None:
    """Recreates the topic; counts of other partitions and offsets are deleted."""
    world, truth = call.world, call.deployment.truth
    for other in call.deployment.workers:
        if other is not call.worker:
            world.kill(other)
    for tag in list(call.server.past):
        if tag not in map(call.tag, kept):
            call.server.go_back(tag, {})
            del call.server.past[tag]
    world.recreate(call.deployment)
    world.lossy.add("store")
    world.vanished = True
    truth.starts = {p: truth.starts[p] for p in kept}


def _anew(call: Call) -> str:
    """Recreates the topic while a claim is on its way."""
    _make_anew(call)
    return HELD


def _make_the_rest_anew(call: Call) -> None:
    """Recreates the topic while the worker of partition 0 hangs."""
    _make_anew(call, 0)
    call.world.about = 0, call.worker.name, 0
    call.wait(20.0)


def _found(call: Call) -> bool:
    return bool(call.keys(call.partition)) and not call.world.snapshots.records


def _let_go(call: Call) -> None:
    call.world.late += call.world.held


def _other(call: Call) -> bool:
    held = call.world.held
    return bool(held) and held[0][0].endswith(f":{call.partition}}}:meta")


def _counts_the_first(call: Call) -> bool:
    """Whether partition 0 is stored, and nothing was ever published."""
    stored = call.worker.ownership.stored().get(0, 0)
    return 0 < stored == call.worker.ownership.counted()[0] and not call.world.snapshots.records


def _is_another(call: Call) -> bool:
    return call.worker.name in call.group.members and call.worker.name != call.world.about[1]


def _take_the_rest(call: Call) -> None:
    """Assigns the worker partition 1."""
    for name in call.group.assignment:
        call.group.assignment[name] -= {1}
    call.group.generation += 1
    call.group.assignment[call.worker.name].add(1)


# heads


def _headed(call: Call) -> bool:
    """Whether a first head is on its way, and another deployment counts."""
    others = [d for d in call.world.deployments if d is not call.deployment]
    sent = any(record.key.endswith(b"/head") and record.value for record, _ in call.world.snapshots.records)
    return (
        sent
        and not any(d.truth.heads for d in call.world.deployments)
        and any(d.server.past and any(not w.dead for w in d.workers) for d in others)
    )


def _die_and_rebalance(call: Call) -> None:
    for deployment in call.world.deployments:
        if deployment is not call.deployment:
            deployment.group.rebalance()
    _kill(call)


def _lacking(call: Call) -> int:
    """Returns how many records put the head at the end of a read range."""
    snapshots = call.world.snapshots
    name = f"{call.deployment.stream.name}/head".encode()
    at = max(record.offset for record, _ in snapshots.records if record.key == name)
    return int(64 - (snapshots.end - at))


def _can_fill(call: Call) -> bool:
    return len(call.heads) >= 2 and not call.world.snapshots.open and _lacking(call) > 0


def _fill(call: Call) -> str:
    """Has another stream write that many records."""
    snapshots = call.world.snapshots
    for _ in range(_lacking(call)):
        snapshots.append("others", b"others/head", b"{}")
    snapshots.decide("others", "committed")
    return LOST_REPLY


def _all_are_named(call: Call) -> bool:
    """Whether a first head names all partitions, with nothing counted."""
    known = call.deployment.reports.partitions
    named = bool(call.heads) and len(call.heads[-1]["floors"]) == len(call.heads[-1]["offsets"]) == len(known)
    return named and not any(call.heads[-1]["offsets"].values()) and len(call.world.deployments) == 1


# a partition changes hands


def _ahead(fresh: bool) -> Fits:
    """Whether a worker has counts that are not stored."""
    return lambda call: _counted(call, fresh) and _is_shared(call)


def _counted(call: Call, fresh: bool) -> list[int]:
    held = call.worker.ownership._held
    stands = [p for p, one in held.items() if one.state.offset > one.metadata.offset and not one.waiting]
    return sorted(
        p for p in stands if p and (held[p].metadata.commit_id == "") == fresh and held[p].pending is None
    )


def _hand_over_late(fresh: bool) -> Act:
    """Moves the first such partition; its owner learns of it late."""

    def act(call: Call) -> None:
        _hand_over(call, _counted(call, fresh)[0])
        call.wait(2.0)

    return act


def _peeks(call: Call) -> bool:
    return (call.partition, call.worker.name) == call.world.about[:2]


def _looks(call: Call) -> bool:
    mine = call.worker.consumer.mine - call.worker.ownership.counted().keys()
    return bool(call.worker.name == call.world.about[1] and mine)


def _says_more(call: Call) -> bool:
    partition, _, offset = call.world.about
    return call.published(partition) > offset and len(call.past(partition)) > 1


def _go_back_and_lose(call: Call) -> None:
    partition = call.world.about[0]
    _set_back(call, partition)
    call.log(partition).first = call.published(partition)


def _has_decided(call: Call) -> bool:
    """Whether panes are released by the newest head."""
    steps = call.heads[-1].get("released", {}).get("fewest", [])
    return any(m is not None for _, m in steps)


def _deplete(call: Call) -> None:
    """The store loses a partition's state, and its log loses the published records."""
    partition = max(range(len(call.deployment.reports.partitions)), key=call.published)
    call.damage(partition, {})
    log = call.log(partition)
    log.first = max(log.first, min(call.published(partition), log.stable))
    _kill_all(call)


def _is_new(call: Call) -> bool:
    """Whether this is partition 1 without stored keys."""
    return call.partition == 1 and not call.keys(1)


def _be_outrun(call: Call) -> None:
    """Moves all partitions; the other member publishes before the worker reads."""
    group, name = call.group, call.worker.name
    to = min(group.members.keys() - {name})
    group.generation += 1
    group.assignment[to] |= group.assignment[name]
    group.assignment[name] = set()
    call.wait(8.0)


def _can_be_lost(call: Call) -> bool:
    """Whether a partition can be moved without a word."""
    told = call.world.faults.silent < 1.0
    return not told and bool(call.worker.ownership.reading()) and _is_shared(call)


def _give_away(call: Call) -> None:
    partition = min(call.worker.ownership.reading())
    _move(call, partition)
    call.world.about = partition, call.worker.name, 0


def _has_let_go(call: Call) -> bool:
    partition, name, _ = call.world.about
    gone = partition not in call.worker.consumer.mine and partition not in call.worker.ownership.counted()
    return call.worker.name == name and name in call.group.members and gone


def _give_back(call: Call) -> None:
    partition = call.world.about[0]
    call.group.generation += 1
    for mine in call.group.assignment.values():
        mine.discard(partition)
    call.group.assignment[call.worker.name].add(partition)


def _claims_again(call: Call) -> bool:
    return bool(call.worker.name == call.world.about[1] and call.world.about[0] in call.worker.consumer.mine)


# rules


def _to_be_ruled(call: Call) -> list[int]:
    """Returns the partitions for which the other member would add a rule."""
    worker, members = call.worker, call.group.members.keys()
    others = [w for w in call.deployment.workers if w is not worker and not w.dead and w.name in members]
    if len(others) != 1:
        return []
    held, configured = worker.ownership._held, others[0].ownership._configured
    return [
        p
        for p in _counted(call, fresh=False)
        if isinstance(rules.decide(held[p].state.rules, configured, held[p].state.offset), rules.Rule)
    ]


def _have_ruled(seconds: float) -> Act:
    """Moves the first such partition; its owner learns of it later."""

    def act(call: Call) -> None:
        _hand_over(call, _to_be_ruled(call)[0])
        if seconds:
            call.wait(seconds)

    return act


def _rules(call: Call, keys: dict[bytes, Any]) -> list[Any]:
    """Returns the rules in the partition's keys, none before its first commit."""
    meta = call.meta(keys, call.partition)
    said: list[Any] = json.loads(meta[b"totals"]).get("rules", []) if meta and meta[b"commit_id"] else []
    return said


def _before_its_rule(call: Call) -> dict[bytes, Any] | None:
    """Returns the partition's last keys without its newest rule."""
    now = len(_rules(call, call.keys(call.partition)))
    past = reversed(call.past(call.partition))
    return next((keys for keys in past if 0 < len(_rules(call, keys)) < now), None)


def _rule_is_new(call: Call) -> bool:
    """Whether records were read under an unpublished rule."""
    said = call.deployment.truth.published("rules", call.partition) or []
    recorded = _rules(call, call.keys(call.partition))
    offset = call.deployment.truth.offset(call.partition) or 0
    new = len(recorded) > len(said) > 0 and offset > recorded[-1]["offset"]
    return new and _is_shared(call) and _before_its_rule(call) is not None


def _forget_rule(call: Call) -> None:
    """Undoes a rule that is about to be published; its owner then adds another one.

    The new rule begins elsewhere, as Kafka knows how far the first one counted.
    """
    for mirror in [late for late in call.world.late if late[0].startswith("mirror")]:
        call.world.late.remove(mirror)
        with suppress(CommitFailedError):
            mirror[1]()
    _undo_rule(call)
    call.world.about = call.partition, "", 0
    call.wait(5.0)


def _hand_over_again(call: Call) -> None:
    """Moves the partition before the publisher continues."""
    partition, assignment = call.world.about[0], call.group.assignment
    for owner in [w for w in call.deployment.workers if partition in assignment.get(w.name, ())]:
        _move(Call(call.world, owner, partition), partition)
    call.wait(5.0)


def _stood_when_ruled(call: Call) -> bool:
    """Whether the head has a rule whose records the store has not counted."""
    said = call.deployment.truth.published("rules", call.partition) or []
    before = _before_its_rule(call)
    if before is None or len(_rules(call, call.keys(call.partition))) != len(said):
        return False
    return int(call.meta(before, call.partition)[b"offset"]) >= call.published(call.partition)


def _undo_rule(call: Call) -> None:
    """Sets the partition back to before its newest rule."""
    before = _before_its_rule(call)
    assert before is not None
    call.go_back(call.partition, before)


def _before_windows(call: Call) -> Any:
    """Returns partition 0's last keys before its first windows, if published."""
    said = call.deployment.truth.published("rules", 0) or []
    windowed = [rule["offset"] for rule in said if "windows" in rule]
    if not windowed or "windows" in said[0] or call.published(0) <= windowed[0]:
        return None
    for keys in reversed(call.past(0)):
        meta = call.meta(keys, 0)
        if meta[b"commit_id"] and int(meta[b"offset"]) < windowed[0]:
            return keys
    return None


def _go_back_before_windows(call: Call) -> None:
    """Sets it back, and replaces all workers by the newest configuration."""
    call.go_back(0, _before_windows(call))
    call.deployment.configured = call.deployment.configured[-1:]
    _kill_all(call)


def _has_windows_ahead(call: Call) -> bool:
    """Whether partition 0 will wait for a head, for windows since removed."""
    state = call.deployment.truth.load(0) if call.partition == 0 else None
    return state is not None and state.offset > 0 and state.waits_at is not None and state.windowing is None


def _sends_released(call: Call) -> bool:
    """Whether released counts are among the messages of the publisher's open transaction."""
    one = call.world.snapshots.open.get(f"ldp-{call.deployment.stream.name}")
    return one is not None and any(record.key.endswith(b"/released") for record in one.sent)


def _delete_head_and_die(call: Call) -> None:
    _delete_head(call)
    _kill_all(call)


_OVERRULED = (
    Step("before", "poll", _to_be_ruled, _have_ruled(0.0), "poll"),
    Step("before", _READ, lambda call: call.partition == call.world.about[0], _stand_still(5.0), "publish"),
    Step("after", _READ, _rule_is_new, _forget_rule, "publish"),
)
_LOOKS = Step("after", "latest of snapshots, read_uncommitted", _looks, _stand_still(5.0), "poll")
_TAKEN_LATE = (Step("before", "poll", _ahead(fresh=False), _hand_over_late(fresh=False), "poll"), _LOOKS)
_GO_BACK = Step("after", _COMMIT, _says_more, lambda call: _set_back(call, call.world.about[0]), "publish")

SCRIPTS: dict[str, tuple[Step, ...]] = {
    "blobs": (Step("before", "Compares", _has_blobs, _lose_blobs),),
    "rotten": (Step("before", "Claims", _has_blobs, _rot),),
    "misread": (Step("before", "hgetall", _has_blobs, _misread, "poll"),),
    "lineage": (
        Step("after", "Claims", lambda _: True, _kill),
        Step("before", "Claims", _found, _anew),
        Step("after", "Claims", _other, _let_go),
    ),
    "overtaken": (Step("before", "poll", _settled, _overtake),),
    "taken": (Step("before", "poll", _two_wait, _take_and_pass),),
    "dropped": (Step("before", "Compares", _waits_of, lambda call: _set_back(call, call.partition)),),
    "foreign": (Step("after", "produce", _headed, _die_and_rebalance, "publish"),),
    "deleted": (Step("after", _COMMIT, lambda call: len(call.heads) >= 3, _delete_head_unheard, "publish"),),
    "forgotten": (
        Step("after", _COMMIT, lambda call: len(call.heads) >= 8, _delete_head_unheard, "publish"),
    ),
    "range": (Step("after", _COMMIT, _can_fill, _fill, "publish"),),
    "peeked": (
        Step("before", "poll", _ahead(fresh=True), _hand_over_late(fresh=True), "poll"),
        Step("after", "hgetall", _peeks, _stand_still(5.0), "poll"),
    ),
    "regone": (*_TAKEN_LATE, Step("after", _COMMIT, _says_more, _go_back_and_lose, "publish")),
    "reruled": (*_TAKEN_LATE, _GO_BACK),
    "outruled": (Step("before", "poll", _to_be_ruled, _have_ruled(2.0), "poll"), _LOOKS, _GO_BACK),
    "overruled": _OVERRULED,
    "disputed": (*_OVERRULED, Step("after", _COMMIT, _is_shared, _hand_over_again, "publish")),
    "unread": (Step("before", "read snapshots", lambda _: True, _darken(200.0), "publish"),),
    "forestalled": (
        Step("before", "Imports", lambda call: not call.keys(call.partition), _stand_still(10.0), "import"),
    ),
    "unruled": (Step("before", _READ, _stood_when_ruled, _undo_rule, "publish"),),
    "succeeded": (
        Step("after", _COMMIT, lambda call: call.deployment.truth.windows.finals, _kill, "publish"),
    ),
    "depleted": (Step("after", _COMMIT, _has_decided, _deplete, "publish"),),
    "doubted": (
        Step("after", _COMMIT, lambda call: call.heads[-1]["reports"], lambda _: LOST_REPLY, "publish"),
    )
    * 4,
    "revised": (
        Step("after", "produce", _sends_released, _kill, "publish"),
        Step("before", _COMMIT, _sends_released, _kill, "publish"),
    )
    * 3,
    # nothing that the owner does stumbles over these
    "unnoticed": (Step("before", "poll", _idle, lambda call: _set_back(call, _idle(call)[0]), "poll"),) * 3,
    "gapped": (
        Step("before", "poll", _gaps_can_come, _lose_the_next, "poll"),
        Step(
            "after",
            _COMMIT,
            _before_gap,
            lambda call: call.go_back(call.world.about[0], _before_gap(call)),
            "publish",
        ),
    ),
    "mixed": (
        Step("before", "poll", _counts_the_first, _make_the_rest_anew, "poll"),
        Step(
            "before",
            _READ,
            lambda call: call.worker.name == call.world.about[1],
            _stand_still(10.0),
            "publish",
        ),
        Step("before", "poll", _is_another, _take_the_rest, "poll"),
    ),
    # a single guard prevents each of these faults
    "recalled": (Step("before", "poll", _known_alone, _lose_what_is_known, "poll"),),
    "vanished": (
        Step(
            "after",
            _COMMIT,
            lambda call: call.heads and any(call.heads[-1]["offsets"].values()),
            _vanish,
            "publish",
        ),
    ),
    "shortened": (Step("before", "poll", _read_to_the_end, _truncate, "poll"),),
    "cut": (Step("before", "poll", _read_to_the_end, _truncate_and_die, "poll"),),
    "uncounted": (Step("before", "hgetall", _looks_before_a_cut, _undo_counts, "publish"),),
    "unheeded": (Step("after", _COMMIT, _all_are_named, _delete_head, "publish"),),
    "leftover": (Step("before", "poll", _is_left_over, lambda _: HELD, "poll"),),
    "stood": (Step("before", "Commits", lambda _: True, _stand_still(6.0), "write"),),
    "darkgap": (Step("before", "poll", _published_and_waits, _lose_in_the_dark, "poll"),),
    "closedgap": (Step("before", "poll", _closed_and_waits, _lose_the_next, "poll"),),
    "outrun": (
        Step("before", "Claims", _is_new, _kill, "poll"),
        Step("after", "hgetall", lambda call: _is_new(call) and _is_shared(call), _be_outrun, "poll"),
    ),
    "silenced": (
        Step("before", "poll", _can_be_lost, _give_away, "poll"),
        Step("before", "poll", _has_let_go, _give_back, "poll"),
        Step("before", "committed", _claims_again, lambda _: HELD, "poll"),
    ),
    "forsaken": (
        Step("after", _COMMIT, _before_windows, _go_back_before_windows, "publish"),
        Step("after", "Commits", _has_windows_ahead, _delete_head_and_die),
    ),
}
