"""Each guard of claim, commit and publish: its absence costs more than a history would show."""

import json
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.memory import Process, rules_of
from tests.unit.worker.counting.still import STREAM, Still, alone, count_all, during, look_twice, turn
from worker.counting.ports import CLAIMED, COUNTED, NewerState, StateLost, Unavailable
from worker.counting.rules import MAX_BATCH_BYTES, RecordLimits, RequestedRule
from worker.observe.events import StreamEvents
from worker.observe.metrics import Metrics
from worker.observe.progress import Progress

# --- the claim


def both_owners(world: Still) -> tuple[Process, Process]:
    """Two workers claim one partition: a group never assigns so, but two generations at once look like it."""
    slow, quick = world.member(1), world.member(2)
    slow.log.poll()
    world.assignment = {1: {0}, 2: {0}}
    slow.log.mine = {0}
    return slow, quick


# --- state loss


def test_an_offset_committed_by_another_program_is_not_used() -> None:
    world = Still()
    world.send()
    world.offsets[0] = (3, "")
    with pytest.raises(StateLost, match="by another program"):
        look_twice(world.member(1))


def test_claim_step_9_an_overtaken_claim_is_not_state_loss() -> None:
    """The log loses records while its bounds are on their way: who comes between records another gap, published."""
    world = Still()
    world.send()
    slow, quick = both_owners(world)
    world.firsts[0] = 3
    world.offsets[0] = (0, CLAIMED)  # by one that died before it counted

    def overtake() -> None:
        world.firsts[0] = 4
        quick.log.seen, quick.log.mine = world.generation, {0}
        count_all(world, quick)
        publish(world, quick)

    during(slow.log, "bounds", lambda: during(slow.log, "bounds", overtake))
    turn(slow)
    assert slow.ownership.counted() == {}
    count_all(world, slow)
    world.verify(0)


def test_claim_step_9_lost_counts_stop_the_stream_once_redis_answers() -> None:
    """The worker asks whether another owner came between; without an answer it claims again."""
    world = Still()
    world.send()
    count_all(world, world.member(1))
    del world.logs[0][3:]
    process = alone(world, 2)

    def silent(*_: object) -> None:
        del process.ownership._store.compare
        raise Unavailable("no answer")

    process.ownership._store.compare = silent
    turn(process)
    with pytest.raises(StateLost, match="offset 5, but the log ends at 3"):
        look_twice(process)


# --- counting and committing


def test_a_release_commits_reports_counted_during_a_pending_commit() -> None:
    """Else its next owner counts it again; and where the log has lost it meanwhile, it is a gap."""
    world = Still()
    world.send()
    process = world.member(1)
    count_all(world, process)
    under_way = []
    for end in (10, 15):
        world.send()
        while process.ownership.counted() != {0: end}:
            turn(process, commit=False)
        under_way = under_way or process.ownership.prepare()
    stored = process.ownership._store.peek
    process.ownership.release([0])
    assert stored(0).offset == 15
    process.ownership.settle(process.ownership.write(under_way))  # it comes late, and changes nothing
    assert stored(0).offset == 15
    world.verify(0)


def test_a_release_tries_an_unavailable_store_once() -> None:
    world = Still()
    world.send()
    process = world.member(1)
    count_all(world, process)
    for _ in range(2):
        world.send()
        turn(process, commit=False)
        process.ownership.prepare()
    asked = []

    def silent(*_: Any) -> None:
        asked.append(None)
        raise Unavailable("no answer")

    process.ownership._store.stage = silent
    process.ownership.release([0])
    assert len(asked) == 1
    assert process.ownership.counted() == {}


def test_commit_step_6_kafka_receives_offsets_stored_before_a_failure() -> None:
    world = Still(partitions=2)
    world.send()
    process = world.member(1)
    while process.ownership.counted() != {0: 5, 1: 5}:
        turn(process, commit=False)
    promote = process.ownership._store.promote

    def second_fails(partition: int, *rest: Any) -> Any:
        if partition == 1:
            raise Unavailable("no answer")
        return promote(partition, *rest)

    process.ownership._store.promote = second_fails
    process.ownership.commit()
    world.deliver()
    assert process.ownership.stored() == {0: 5, 1: 0}
    assert world.offsets == {0: (5, COUNTED), 1: (0, CLAIMED)}


def test_commit_step_5_an_attempt_with_unknown_outcome_is_timed_and_logged() -> None:
    world = Still()
    process = world.member(1)
    turn(process)
    world.send()
    while process.ownership.counted() == {0: 0}:
        turn(process, commit=False)
    metrics, said = Metrics(), list[tuple[str, dict[str, Any]]]()
    log = SimpleNamespace(warning=lambda event, **facts: said.append((event, facts)))
    process.ownership._events = StreamEvents(STREAM.name, metrics, Progress(), log)

    def refuse() -> None:
        raise Unavailable("Redis: no")

    during(process.ownership._store, "promote", refuse)
    process.ownership.commit()
    assert said == [("commit.retry", {"error": "Redis: no", "remedy": ""})]
    seen = metrics.registry.get_sample_value
    assert seen("ldp_worker_commit_seconds_count", {"stream": STREAM.name}) == 1
    assert seen("ldp_worker_commits_total", {"stream": STREAM.name, "verdict": "done"}) is None
    assert seen("ldp_worker_errors_total", {"stream": STREAM.name, "step": "commit"}) == 1


def test_a_range_without_records_writes_no_blob() -> None:
    world = Still()
    world.send()
    process = world.member(1)
    count_all(world, process)
    flush = world.stored[0].metadata.blobs
    world.produce(0, None, [], marker=True)
    world.staged.clear()
    count_all(world, process)
    assert world.stored[0].metadata.offset == 6
    assert world.stored[0].metadata.blobs == flush
    assert not world.staged


# --- rules


def configure(world: Still, most: int) -> None:
    """Configuration of the workers that start from here on."""
    world.configured = RequestedRule(limits=RecordLimits(most, True, MAX_BATCH_BYTES))


def ruled(world: Still) -> list[tuple[int, int, int]]:
    return [(rule["offset"], rule["revision"], rule["most_reports"]) for rule in rules_of(world.stored[0])]


def test_a_rule_reports_no_progress_before_the_first_count() -> None:
    world = Still()
    turn(world.member(1))
    configure(world, 7)
    process = alone(world, 2)
    turn(process)
    world.deliver()
    assert world.offsets[0] == (0, CLAIMED)
    assert ruled(world) == [(0, 1, 10_000)]
    world.send(1)
    count_all(world, process)
    assert ruled(world) == [(0, 1, 10_000), (0, 2, 7)]


# --- without a head


def unread(process: Process) -> Callable[[], None]:
    """Stops a worker's polling thread from reading heads; returns a function that ends this."""
    ownership = process.ownership
    head_reader = ownership._head_reader

    def head(*, decided: bool) -> Any:
        raise Unavailable("Kafka: no record of the snapshot topic comes")

    ownership._head_reader = SimpleNamespace(head=head)  # type: ignore[assignment]

    def end() -> None:
        ownership._head_reader = head_reader

    return end


def published(world: Still) -> None:
    """Counts five records of each partition and publishes them."""
    world.send()
    process = world.member(1)
    count_all(world, process)
    publish(world, process)
    world.deliver()


def test_counting_continues_without_a_head_and_honours_it_once_readable() -> None:
    world = Still(partitions=2)
    published(world)
    process = alone(world, 2)
    end = unread(process)
    for _ in range(3):
        world.send()
        count_all(world, process)
    assert {p: process.ownership.epoch(p) for p in (0, 1)} == {0: 2, 1: 2}
    end()
    world.heads[-1] = replace(world.heads[-1], lineage={"group": "theirs"})
    world.said = world.heads[-1]
    with pytest.raises(
        StateLost, match="snapshot 1 on the snapshot topic belongs to other counts: group 'theirs'"
    ):
        for _ in range(20):
            turn(process)
            process.ownership.compare()


@pytest.mark.parametrize(
    "why", ["nothing is stored", "set back", "a gap", "a new rule", "nothing was counted"]
)
def test_a_partition_without_a_head_waits_for_it(why: str) -> None:
    world = Still()
    if why == "nothing was counted":
        turn(world.member(1))
    else:
        published(world)
    match why:
        case "nothing is stored":
            del world.stored[0]
            world.offsets.clear()
        case "set back":
            older = world.stored[0]
            world.send()
            count_all(world, alone(world, 5))
            world.deliver()
            world.stored[0] = older
        case "a gap":
            world.send()
            world.firsts[0] = 7
        case "a new rule":
            configure(world, 7)
    stored, confirmed = world.stored.get(0), world.offsets.get(0)
    process = alone(world, 2)
    end = unread(process)
    for _ in range(10):
        turn(process)
    assert process.ownership.counted() == {}
    if why != "a gap":  # its epoch was raised already
        assert (world.stored.get(0), world.offsets.get(0)) == (stored, confirmed)
    end()
    if why == "nothing is stored":
        with pytest.raises(StateLost, match="Redis has no counts, but snapshot 1 has counts"):
            look_twice(process)
        return
    count_all(world, process)
    assert ruled(world) == [(0, 1, 10_000), *([(5, 2, 7)] if why == "a new rule" else [])]
    world.verify(0)


# --- versions


def relabel(world: Still, **changes: Any) -> str:
    """Makes the store return another lineage; returns its text."""
    stored = world.stored[0]
    lineage = json.dumps(json.loads(stored.metadata.lineage) | changes, indent=1)
    world.stored[0] = replace(stored, metadata=replace(stored.metadata, lineage=lineage))
    return lineage


@pytest.mark.parametrize("counted", [False, True])
def test_counts_of_a_newer_layout_are_refused_and_kept(counted: bool) -> None:
    world = Still()
    world.send()
    process = world.member(1)
    count_all(world, process) if counted else turn(process, commit=False)
    relabel(world, layout=2)
    stored, confirmed = world.stored[0], world.offsets[0]
    with pytest.raises(
        NewerState, match=r"partition 0: the counts in Redis have layout 2, .* Run that version"
    ):
        turn(alone(world, 2))
    assert world.stored[0] == stored
    assert world.offsets[0] == confirmed


def test_an_owner_writes_nothing_after_a_sudden_change_of_lineage() -> None:
    world = Still()
    world.send()
    process = world.member(1)
    count_all(world, process)
    relabel(world, layout=2)  # and the epoch is the same: no claim did that
    stored = world.stored[0]
    world.send()
    with pytest.raises(StateLost, match="partition 0: the counts in Redis have layout 2"):
        count_all(world, process)
    assert world.stored[0] == stored


@pytest.mark.parametrize("step", ["commit", "compare"])
def test_an_owner_fenced_by_a_newer_version_reports_the_reason(step: str) -> None:
    world = Still()
    world.send()
    process = world.member(1)
    count_all(world, process)
    relabel(world, layout=2)
    world.stored[0] = replace(world.stored[0], metadata=replace(world.stored[0].metadata, epoch=2))
    stored = world.stored[0]
    if step == "commit":
        world.send()
        turn(process, commit=False)
        turn(process)
    else:
        process.ownership.compare()
    assert process.ownership.counted() == {}  # dropped, not stopped
    with pytest.raises(NewerState, match="layout 2, but this version reads up to 1"):
        turn(process)
    assert world.stored[0] == stored


def test_a_lineage_written_by_another_version_is_kept_and_published() -> None:
    """Another version may write the same lineage otherwise; the store compares texts."""
    world = Still(partitions=2)
    world.send()
    count_all(world, world.member(1))
    text = relabel(world)
    assert text != world.stored[1].metadata.lineage
    process = alone(world, 2)
    world.send()
    count_all(world, process)
    assert world.stored[0].metadata.lineage == text
    publish(world, process)
    process.ownership.compare()
    assert process.ownership.counted() == {0: 10, 1: 10}
    for partition in (0, 1):
        world.verify(partition)


# --- the publisher


def test_a_publisher_fenced_while_reading_publishes_nothing() -> None:
    world = Still()
    world.send()
    old = world.member(1)
    count_all(world, old)
    cut: Any = old.publisher._state_reader.cut

    def cut_then_lose(partition: int) -> Any:
        loaded = cut(partition)
        count_all(world, alone(world, 2))
        return loaded

    old.publisher._state_reader.cut = cut_then_lose
    old.publisher.tick()
    assert not world.snapshots


def publish(world: Still, process: Process) -> None:
    """Lets a worker publish what there is."""
    process.publisher.tick()
    assert world.snapshots[-1][1] == {p: len(log) for p, log in enumerate(world.logs)}


def test_a_claim_waits_for_a_head_hidden_by_another_transaction() -> None:
    world = Still()
    world.send()
    old = world.member(1)
    count_all(world, old)
    publish(world, old)
    # another stream's publisher dies inside a transaction: later committed records stay hidden
    world.open_until = world.clock + 1000
    world.send()
    count_all(world, old)
    publish(world, old)
    new = alone(world, 2)
    count_all(world, new)
    world.send()
    count_all(world, new)
    for _ in range(3):
        new.publisher.tick()
        assert [sequence for sequence, _ in world.snapshots] == [1, 2]
    world.open_until = 0.0
    publish(world, new)
    assert [sequence for sequence, _ in world.snapshots] == [1, 2, 3]


def test_continuing_owners_do_not_wait_for_another_streams_transaction() -> None:
    """Otherwise the owner of partition 0 would wait for the open transaction that only it can end."""
    world = Still()
    world.send()
    count_all(world, world.member(1))
    world.open_until = world.clock + 100_000
    world.send()
    count_all(world, alone(world, 2))


def test_a_snapshot_with_too_few_new_reports_is_held_back() -> None:
    world = Still()
    world.choose(fewest_new=4)
    process = world.member(1)
    for sent, published in ((3, []), (1, [4]), (3, [4]), (2, [4, 9])):
        world.send(sent)
        count_all(world, process)
        process.publisher.tick()
        assert [head.reports for head in world.heads] == published


@pytest.mark.parametrize("first", [1, 10])
def test_few_reports_are_held_back_even_after_a_loss(first: int) -> None:
    world = Still()
    world.choose(fewest_new=5)
    world.send(10)
    process = world.member(1)
    count_all(world, process)
    publish(world, process)
    world.deliver()
    del world.stored[0]
    world.firsts[0] = first
    world.recount_after = 1
    process = alone(world, 2)
    world.send(first // 10)
    count_all(world, process)
    for sent, published in ((0, 10), (4, 10), (first, 10 if first == 1 else 15)):
        world.send(sent)
        count_all(world, process)
        process.publisher.tick()
        assert (world.heads[-1].reports, len(world.heads[-1].gaps)) == (published, 1)


def test_a_published_rule_that_the_counts_lack_is_not_adopted() -> None:
    """The store is set back between a publisher's cut and its publishing, so that counts and rules would
    differ."""
    world = Still()
    process = world.member(1)
    turn(process)
    world.send(6)
    count_all(world, process)
    publish(world, process)
    added = {"offset": 5, "revision": 2, "most_reports": 1, "hamming_weight": True}
    world.heads[-1] = world.said = replace(head := world.heads[-1], rules={0: [*head.rules[0], added]})
    with pytest.raises(StateLost, match="snapshot 1 has counts by the rules"):
        look_twice(alone(world, 2))
