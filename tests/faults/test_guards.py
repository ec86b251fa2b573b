"""Each guard of claim, commit and publish, alone: where its absence costs more than a history would show."""

import json
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ldp import frames
from tests.faults.memory import Crash, MemoryLog, Process, rules_of
from tests.faults.still import STREAM, Still, alone, count_all, during, look_twice, turn
from worker.counting import layout
from worker.counting.ports import CLAIMED, COUNTED, NewerState, NotOwner, StateLost, Unavailable
from worker.counting.rules import MAX_BATCH_BYTES, RecordLimits, RequestedRule
from worker.observe.events import StreamEvents
from worker.observe.metrics import Metrics
from worker.observe.progress import Progress


def telling(said: list[tuple[str, dict[str, Any]]]) -> StreamEvents:
    """The worker's own events, whose log is kept."""

    def keep(event: str, **facts: Any) -> None:
        said.append((event, facts))

    return StreamEvents(STREAM.name, Metrics(), Progress(), SimpleNamespace(info=keep, warning=keep))


# --- the claim


def both_owners(world: Still) -> tuple[Process, Process]:
    """Two that claim one partition: the group never does this; two generations side by side look like it."""
    slow, quick = world.member(1), world.member(2)
    slow.log.poll()
    world.assignment = {1: {0}, 2: {0}}
    slow.log.mine = {0}
    return slow, quick


def test_claim_steps_1_to_5_another_overtakes_it_which_is_no_state_loss() -> None:
    """Kafka's offsets are read before the store's: what they speak of is then found there."""
    for step in ("assigned", "topic_id", "committed", "peek", "bounds"):
        world = Still()
        world.send()
        slow, quick = both_owners(world)

        def overtake(quick: Process = quick, world: Still = world) -> None:
            quick.log.seen, quick.log.mine = world.generation, {0}
            count_all(world, quick)
            world.deliver()

        during(slow.ownership._store if step == "peek" else slow.log, step, overtake)
        turn(slow)
        count_all(world, slow)
        world.verify(0)


def test_claim_step_4_one_that_another_overtakes_and_publishes_is_no_state_loss() -> None:
    """What a head speaks of is looked for after it: another may have counted since the store was asked first."""
    for step in ("committed", "peek"):
        world = Still()
        world.send()
        slow, quick = both_owners(world)

        def overtake(quick: Process = quick, world: Still = world) -> None:
            quick.log.seen, quick.log.mine = world.generation, {0}
            count_all(world, quick)
            publish(world, quick)

        during(slow.ownership._store if step == "peek" else slow.log, step, overtake)
        turn(slow)
        count_all(world, slow)
        world.verify(0)


@pytest.mark.parametrize("what", ["generation", "assignment", "refused"])
def test_claim_steps_6_and_7_nothing_is_claimed_if_the_membership_changed_meanwhile(what: str) -> None:
    world = Still()
    world.send()
    process = world.member(1)
    process.log.poll()

    def change() -> None:
        if what == "generation":
            process.log.seen += 1
        elif what == "assignment":
            process.log.mine = set()
        else:
            raise NotOwner

    during(process.log, "confirm", change)
    process.ownership.claim()
    assert not world.stored
    assert process.ownership.counted() == {}


def test_claim_step_6_a_worker_of_a_past_generation_claims_nothing() -> None:
    world = Still()
    world.send()
    old = world.member(1)
    count_all(world, old)
    old.ownership.drop([0])
    new = alone(world, 2)
    count_all(world, new)
    held = world.stored[0]
    world.clock += 10
    old.ownership.claim()
    assert world.stored[0] == held


def test_what_is_no_longer_assigned_is_let_go_of_without_a_word() -> None:
    world = Still(partitions=2)
    world.send()
    process = world.member(1)
    count_all(world, process)
    process.log.mine = {1}
    process.ownership.release([])
    assert process.ownership.counted() == {1: 5}
    assert process.ownership.epoch(0) is None


def test_what_is_let_go_of_is_read_no_more_though_it_was_lost_without_a_word() -> None:
    """Else it would be read on, for nothing, when it comes back."""
    world = Still()
    process = world.member(1)
    world.send()
    count_all(world, process)
    process.log.mine = set()
    process.ownership.release(process.log.take_revoked())
    assert process.log.positions == {}


def test_what_was_taken_away_is_let_go_of_though_it_cannot_be_committed() -> None:
    """The log forgets at once where it read; a partition that is kept and comes back would be read no more."""
    world = Still()
    world.send()
    process = world.member(1)
    count_all(world, process)
    world.send()
    turn(process, commit=False)
    process.log.mine, process.log.revoked = set(), {0}

    def unknown() -> None:
        raise Unavailable("the topic is not in the metadata (yet)")

    during(process.log, "topic_id", unknown)
    process.ownership.release(process.log.take_revoked())
    process.log.mine = {0}
    count_all(world, process)
    world.verify(0)


# --- state loss


def test_commit_step_6_the_next_owner_tells_kafka_of_counts_whose_own_word_never_arrived() -> None:
    world = Still()
    world.send()
    count_all(world, world.member(1))
    world.late.clear()
    assert world.offsets[0] == (0, CLAIMED)
    turn(alone(world, 2))
    assert world.offsets[0] == (5, COUNTED)
    del world.stored[0]
    with pytest.raises(StateLost, match="no counts"):
        look_twice(alone(world, 3))
    assert not world.stored


def test_a_claim_lost_before_anything_was_counted_is_made_again_from_the_same_start() -> None:
    world = Still()
    world.send(3)
    world.firsts[0] = 2
    turn(world.member(1), commit=False)
    assert world.offsets[0] == (2, CLAIMED)
    assert world.stored[0].metadata.offset == 2
    del world.stored[0]
    world.send()
    process = alone(world, 2)
    count_all(world, process)
    world.starts[0] = 2
    world.verify(0)


def test_an_offset_that_another_program_committed_is_not_taken_for_ours() -> None:
    world = Still()
    world.send()
    world.offsets[0] = (3, "")
    with pytest.raises(StateLost, match="by another program"):
        look_twice(world.member(1))


def test_commit_step_2_a_topic_made_anew_stops_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Still()
    world.send()
    process = world.member(1)
    count_all(world, process)
    stored = world.stored[0]
    monkeypatch.setattr(MemoryLog, "topic_id", lambda _: "topic-2")
    world.send()
    with pytest.raises(StateLost, match="topic-2"):
        count_all(world, process)
    with pytest.raises(StateLost, match="topic-2"):
        look_twice(alone(world, 2))
    assert world.stored[0] == stored


def test_claim_step_9_one_that_another_overtakes_and_publishes_is_no_state_loss() -> None:
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


def test_claim_step_9_counts_that_are_lost_stop_the_stream_once_the_store_answers() -> None:
    """Whether another owner came between is asked; no answer is none, and the claim is made again."""
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


def test_an_idle_owner_notices_a_store_that_went_back_and_counts_again() -> None:
    world = Still()
    world.send()
    process = world.member(1)
    count_all(world, process)
    world.stored[0] = world.past[0][0]
    turn(process)
    assert process.ownership.counted() == {0: 5}
    process.ownership.compare()
    assert process.ownership.counted() == {}
    count_all(world, process)
    assert world.stored[0].metadata.offset == 5
    world.verify(0)


def test_commit_step_3_a_record_whose_letter_cannot_be_sent_is_counted_again() -> None:
    world = Still()
    process = world.member(1)
    turn(process)
    for _ in range(3):
        world.produce(0, b"\x07noise", "version")
    add, letters = process.ownership._dead_letters.send, []

    def refuse_the_second(*args: Any) -> None:
        letters.append(args)
        if len(letters) == 2:
            raise Unavailable("no answer")
        add(*args)

    process.ownership._dead_letters.send = refuse_the_second
    count_all(world, process)
    world.verify(0)
    assert world.letters == {(0, 0), (0, 1), (0, 2)}


def test_what_was_polled_in_a_failed_step_is_counted_though_nothing_follows() -> None:
    world = Still(partitions=2)
    process = world.member(1)
    turn(process)
    world.send()
    ownership = process.ownership
    failed: list[Any] = []
    apply = ownership.apply

    def fail_once(batch: Any) -> None:
        if not failed:
            failed.append(batch)
            raise Unavailable("no answer")
        apply(batch)

    ownership.apply = fail_once
    count_all(world, process)
    assert failed


def test_a_release_that_fails_leaves_no_partition_behind() -> None:
    """Revoked, not released because the topic's metadata were away, and assigned again: it must be counted on."""
    world = Still()
    world.send()
    process = world.member(1)
    count_all(world, process)
    world.send()
    turn(process, commit=False)
    assert process.ownership.counted() != process.ownership.stored()

    def unknown() -> str:
        del process.log.topic_id
        raise Unavailable("no answer")

    process.log.topic_id = unknown
    process.log.revoked = {0}
    count_all(world, process)


def test_a_release_commits_what_was_counted_behind_a_commit_that_is_under_way() -> None:
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


def test_a_release_tries_a_store_that_does_not_answer_once() -> None:
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


def test_commit_step_5_a_commit_whose_blobs_ran_out_of_time_stages_them_again() -> None:
    world = Still()
    process = world.member(1)
    turn(process)
    world.send(1)
    ran_out = list[int]()

    def run_out() -> None:
        ran_out.append(len(world.staged))
        world.staged.clear()

    during(process.ownership._store, "stage", run_out)
    epoch = process.ownership.epoch(0)
    count_all(world, process)
    assert process.ownership.epoch(0) == epoch  # it was not claimed again
    assert ran_out == [1]


def test_commit_step_6_kafka_hears_of_what_was_stored_before_another_partition_failed() -> None:
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


def test_commit_step_5_an_attempt_whose_outcome_is_unknown_is_timed_and_told() -> None:
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


def test_a_stretch_without_records_writes_no_blob() -> None:
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
    """What the workers from here on are configured with."""
    world.configured = RequestedRule(terms=RecordLimits(most, True, MAX_BATCH_BYTES))


def ruled(world: Still) -> list[tuple[int, int, int]]:
    return [(rule["offset"], rule["revision"], rule["most_reports"]) for rule in rules_of(world.stored[0])]


def test_point_16_a_new_rule_is_stored_though_no_record_comes_and_an_old_one_is_not() -> None:
    world = Still()
    world.send()
    count_all(world, world.member(1))
    configure(world, 1)
    said: list[tuple[str, dict[str, Any]]] = []
    for number, most in ((2, 1), (3, 10_000), (4, 1), (5, 10_000)):
        configure(world, most)
        process = alone(world, number)
        process.ownership._events = telling(said)
        turn(process)
        turn(process)
        process.ownership.compare()
        assert process.ownership.epoch(0) is not None  # what is stored is what is held
        assert ruled(world) == [(0, 1, 10_000), (5, 2, 1)]
        assert world.stored[0].metadata.offset == 5
    about = [event for event, _ in said if event.startswith("rules.")]
    assert about == ["rules.added", "rules.older", "rules.older"]  # once a claim
    assert all(
        "set streams.revision to 3" in facts["remedy"] for event, facts in said if event == "rules.older"
    )
    world.produce(0, frames.encode(STREAM, np.zeros(2, STREAM.oracle.report_dtype)), [0, 0])
    count_all(world, process)
    assert rejected(world) == {"many": 1}  # by the recorded rule, whoever counts


def rejected(world: Still) -> dict[str, int]:
    counted: dict[str, int] = json.loads(world.stored[0].metadata.totals)["rejected"]
    return counted


def test_point_16_a_rule_says_nothing_of_progress_before_anything_is_counted() -> None:
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


@pytest.mark.parametrize("most", [10_000, 1, 7], ids=["older", "same", "newer"])
@pytest.mark.parametrize("hidden", [False, True], ids=["seen", "hidden"])
def test_point_16_a_store_that_was_set_back_is_counted_again_by_the_rules_of_what_was_published(
    most: int, hidden: bool
) -> None:
    world = Still()
    world.produce(0, frames.encode(STREAM, np.zeros(2, STREAM.oracle.report_dtype)), [0, 0])
    world.send(4)
    count_all(world, world.member(1))
    older = world.stored[0]
    configure(world, 1)
    process = alone(world, 2)
    world.produce(0, frames.encode(STREAM, np.zeros(2, STREAM.oracle.report_dtype)), [0, 0])
    count_all(world, process)
    publish(world, process)
    assert (world.heads[-1].reports, ruled(world)) == (6, [(0, 1, 10_000), (5, 2, 1)])
    # every state that there was, and the worker's configuration of every age
    for past in [*world.past[0], older]:
        world.stored[0] = past
        world.late.clear()
        configure(world, most)
        again = alone(world, 10 + world.publisher_fence)
        world.open_until = world.clock + 50 if hidden else 0.0
        count_all(world, again)
        expected = [(0, 1, 10_000), (5, 2, 1), *([(6, 3, 7)] if most == 7 else [])]
        assert ruled(world) == expected
        world.verify(0)
        again.publisher.tick()
        assert world.heads[-1].reports == 6


def test_point_16_the_publisher_refuses_counts_by_other_rules_than_were_published() -> None:
    world = Still()
    world.send()
    process = world.member(1)
    count_all(world, process)
    publish(world, process)
    head = process.publisher._head
    said = [{**rule, "most_reports": 5} for rule in head.rules[0]]
    process.publisher._head = replace(head, rules={0: said})
    with pytest.raises(StateLost, match="partition 0 is counted in Redis by other rules than snapshot 1"):
        process.publisher.tick()


# --- without a head


def unread(process: Process) -> Callable[[], None]:
    """Has a worker's polling thread read no head; returns what ends that."""
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


def test_point_10_counting_goes_on_where_no_head_can_be_read_and_the_head_is_heeded_once_it_can() -> None:
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
        StateLost, match="snapshot 1 in the snapshot topic is of other counts: group 'theirs'"
    ):
        for _ in range(20):
            turn(process)
            process.ownership.compare()


def test_point_10_who_went_on_without_a_head_claims_once_more_and_counts_the_same() -> None:
    world = Still()
    published(world)
    process = alone(world, 2)
    end = unread(process)
    world.send()
    count_all(world, process)
    process.ownership.compare()
    assert process.ownership.epoch(0) == 2  # there still is none to read
    end()
    world.send()
    for _ in range(5):
        turn(process)
        process.ownership.compare()
    count_all(world, process)
    assert process.ownership.epoch(0) == 3
    world.verify(0)
    publish(world, process)


@pytest.mark.parametrize(
    "why", ["nothing is stored", "set back", "a gap", "a new rule", "nothing was counted"]
)
def test_point_10_what_would_stay_waits_for_the_head(why: str) -> None:
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
        with pytest.raises(StateLost, match="Redis has no counts, but snapshot 1 was published"):
            look_twice(process)
        return
    count_all(world, process)
    assert ruled(world) == [(0, 1, 10_000), *([(5, 2, 7)] if why == "a new rule" else [])]
    world.verify(0)


def test_point_10_one_that_needs_the_head_keeps_no_other_from_counting() -> None:
    world = Still(partitions=3)
    published(world)
    world.send()
    world.firsts[0] = 7
    process = alone(world, 2)
    end = unread(process)
    for _ in range(20):
        turn(process)
    assert process.ownership.stored() == {1: 10, 2: 10}
    end()
    count_all(world, process)
    assert process.ownership.stored() == {0: 10, 1: 10, 2: 10}


# --- versions


def relabel(world: Still, **changes: Any) -> str:
    """Has the store say something else of what its counts are; returns the text."""
    stored = world.stored[0]
    lineage = json.dumps(json.loads(stored.metadata.lineage) | changes, indent=1)
    world.stored[0] = replace(stored, metadata=replace(stored.metadata, lineage=lineage))
    return lineage


@pytest.mark.parametrize("counted", [False, True])
def test_counts_of_a_newer_layout_are_refused_and_left_alone(counted: bool) -> None:
    world = Still()
    world.send()
    process = world.member(1)
    count_all(world, process) if counted else turn(process, commit=False)
    relabel(world, layout=2)
    stored, confirmed = world.stored[0], world.offsets[0]
    with pytest.raises(
        NewerState, match=r"partition 0: the counts in Redis are of layout 2, .* Run that version"
    ):
        turn(alone(world, 2))
    assert world.stored[0] == stored
    assert world.offsets[0] == confirmed


def test_an_owner_whose_partition_is_of_another_lineage_all_at_once_writes_nothing() -> None:
    world = Still()
    world.send()
    process = world.member(1)
    count_all(world, process)
    relabel(world, layout=2)  # and the epoch is the same: no claim did that
    stored = world.stored[0]
    world.send()
    with pytest.raises(StateLost, match="partition 0: the counts in Redis are of layout 2"):
        count_all(world, process)
    assert world.stored[0] == stored


@pytest.mark.parametrize("found", ["nothing", "other counts"])
@pytest.mark.parametrize("step", ["commit", "compare"])
def test_an_owner_whose_counts_are_gone_or_anothers_stops(step: str, found: str) -> None:
    world = Still()
    world.send()
    process = world.member(1)
    count_all(world, process)
    if found == "nothing":
        del world.stored[0]
    else:
        relabel(world, group="theirs")
    if step == "commit":
        world.send()
        turn(process, commit=False)
    with pytest.raises(StateLost, match="vanished or were replaced while this worker counted"):
        getattr(process.ownership, step)()


@pytest.mark.parametrize("step", ["commit", "compare"])
def test_an_owner_whose_partition_a_newer_version_claimed_is_fenced_and_then_says_why(step: str) -> None:
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
    with pytest.raises(NewerState, match="of layout 2, where this version reads up to 1"):
        turn(process)
    assert world.stored[0] == stored


def test_a_lineage_is_carried_on_as_it_is_stored_and_published_over_side_by_side() -> None:
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


def test_only_the_owner_of_partition_0_opens_the_snapshot_producer() -> None:
    world = Still()
    world.send()
    old = world.member(1)
    count_all(world, old)
    old.publisher.tick()
    assert world.snapshots == [(1, {0: 5})]
    fence = world.publisher_fence
    old.publisher.tick()  # nothing new
    assert world.snapshots == [(1, {0: 5})]
    new = alone(world, 2)
    count_all(world, new)
    world.send()
    count_all(world, new)
    # the old one believes that it is the owner, and so does Kafka's client in it
    assert old.ownership.epoch(0) is not None
    old.publisher.tick()
    assert world.publisher_fence == fence
    idle = world.member(3)
    idle.publisher.tick()
    assert world.publisher_fence == fence
    new.publisher.tick()
    assert world.snapshots == [(1, {0: 5}), (2, {0: 10})]


def test_a_publisher_fenced_while_it_reads_publishes_nothing() -> None:
    world = Still()
    world.send()
    old = world.member(1)
    count_all(world, old)
    cut: Any = old.publisher._cuts.cut

    def cut_then_lose(partition: int) -> Any:
        loaded = cut(partition)
        count_all(world, alone(world, 2))
        return loaded

    old.publisher._cuts.cut = cut_then_lose
    old.publisher.tick()
    assert not world.snapshots


def publish(world: Still, process: Process) -> None:
    """Lets a worker publish what there is."""
    process.publisher.tick()
    assert world.snapshots[-1][1] == {p: len(log) for p, log in enumerate(world.logs)}


def test_point_1_a_head_that_another_transaction_hides_is_waited_for() -> None:
    world = Still()
    world.send()
    old = world.member(1)
    count_all(world, old)
    publish(world, old)
    # another stream's publisher dies inside a transaction: what is committed behind it is not seen
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


def test_point_1_owners_that_go_on_do_not_wait_for_another_streams_transaction() -> None:
    """Else the owner of partition 0, who alone can end its own stream's open transaction, would wait for it."""
    world = Still()
    world.send()
    count_all(world, world.member(1))
    world.open_until = world.clock + 100_000
    world.send()
    count_all(world, alone(world, 2))


def test_point_1_a_publisher_that_died_inside_its_transaction_does_not_stop_its_successor() -> None:
    world = Still()
    world.send()
    old = world.member(1)
    count_all(world, old)

    def die(*_: Any) -> None:
        raise Crash

    snapshot_producer: Any = old.publisher._snapshot_producer
    snapshot_producer.commit = die
    with pytest.raises(Crash):
        old.publisher.tick()
    assert world.said is not None and not world.heads
    new = alone(world, 2)
    count_all(world, new)
    publish(world, new)
    assert [sequence for sequence, _ in world.snapshots] == [1]


def deployment(world: Still, number: int, group: str) -> Process:
    """A worker of another deployment: another group, with a store of its own."""
    process = alone(world, number)
    process.ownership._group = group
    return process


def test_point_3_a_second_deployment_neither_counts_nor_publishes() -> None:
    world = Still()
    world.send()
    first = world.member(1)
    count_all(world, first)
    publish(world, first)
    stored, world.stored, world.offsets = world.stored, {}, {}
    second = deployment(world, 2, "other-group")
    with pytest.raises(StateLost, match="group 'group' there, 'other-group' here"):
        count_all(world, second)
    assert not world.stored
    world.stored = stored


def test_point_3_two_deployments_that_began_together_end_as_one() -> None:
    world = Still()
    world.send()
    first = world.member(1)
    count_all(world, first)
    stored, world.stored, world.offsets = world.stored, {}, {}
    second = deployment(world, 2, "other-group")
    count_all(world, second)  # nothing is published yet, so nobody knows
    theirs, world.stored = world.stored, stored
    publish(world, first)
    world.stored = theirs
    with pytest.raises(StateLost, match="'other-group' here"):
        second.publisher.tick()
    world.stored = stored
    world.send()
    count_all(world, alone(world, 3))
    assert [sequence for sequence, _ in world.snapshots] == [1]


def test_point_3_a_first_head_of_another_deployment_is_refused_in_the_middle_of_a_claim() -> None:
    """Else it would be taken for one's own: counts would be called lost, or be given up."""
    world = Still()
    world.send()
    first = world.member(1)
    count_all(world, first)
    publish(world, first)
    heads, world.heads, world.said, world.stored, world.offsets = world.heads, [], None, {}, {}
    turn(deployment(world, 2, "other-group"), commit=False)
    world.firsts[0] = 3  # what is lost before it is counted has the head read again
    world.recount_after = 1000
    third = deployment(world, 3, "other-group")
    during(third.log, "confirm", lambda: world.heads.extend(heads))
    with pytest.raises(StateLost, match="of other counts: group 'group' there, 'other-group' here"):
        look_twice(third)


def test_point_4_a_fresh_start_of_what_was_published_is_state_loss() -> None:
    world = Still(partitions=2)
    world.send()
    process = world.member(1)
    count_all(world, process)
    publish(world, process)
    world.stored.clear()
    world.late.clear()
    world.offsets.clear()  # a week off: the group is forgotten
    world.firsts[:] = [3, 3]
    with pytest.raises(StateLost, match="snapshot 1 was published with those up to offset 5"):
        look_twice(alone(world, 2))
    assert not world.stored


def test_point_4_nothing_begins_anew_while_a_head_may_be_hidden() -> None:
    world = Still()
    world.send()
    world.open_until = 50.0
    process = world.member(1)
    turn(process)
    assert not world.stored
    count_all(world, process)  # turn by turn the clock goes on
    assert world.clock > 50


@pytest.mark.parametrize("began", [0, 2])
def test_point_4_the_operator_can_say_that_counts_are_given_up(began: int) -> None:
    world = Still()
    world.send(10)
    world.firsts[0] = began
    process = world.member(1)
    count_all(world, process)
    publish(world, process)
    del world.stored[0]
    world.deliver()
    world.firsts[0] = 4
    world.starts.clear()
    for word in (None, 0):
        world.recount_after = word
        with pytest.raises(StateLost, match="set recount_after = 1 for the stream"):
            look_twice(alone(world, 2))
    world.recount_after = 1
    process = alone(world, 3)
    count_all(world, process)
    world.send(1)
    count_all(world, process)
    publish(world, process)
    head = world.heads[-1]
    assert (head.sequence, head.gaps, head.reports) == (2, {0: [(began, 4)]}, 7)
    count_all(world, alone(world, 4))  # it is stored so that it can be read


def test_point_4_a_snapshot_with_fewer_reports_and_no_gap_is_never_published() -> None:
    world = Still()
    world.send()
    process = world.member(1)
    count_all(world, process)
    publish(world, process)
    head = process.publisher._head
    process.publisher._head = replace(head, reports=head.reports + 1)
    world.send(0)
    with pytest.raises(StateLost, match="5 reports, but snapshot 1 has 6"):
        process.publisher.tick()


def count_the_first(world: Still, process: Process) -> None:
    """Counts partition 0; the other is assigned to nobody."""
    process.log.poll()
    process.log.mine = {0}
    for _ in range(20):
        turn(process)
        process.log.seen, process.log.mine = world.generation, {0}


def test_point_5_a_partition_without_counts_makes_the_snapshot_incomplete() -> None:
    world = Still(partitions=2)
    world.send()
    process = world.member(1)
    told: list[tuple[str, dict[str, Any]]] = []
    process.publisher._events = telling(told)
    count_the_first(world, process)
    process.publisher.tick()
    process.publisher.tick()
    head = world.heads[-1]
    assert (head.sequence, head.offsets, head.uncounted) == (1, {0: 5}, (1,))
    assert [t for t in told if t[0] == "snapshot.uncounted"] == [("snapshot.uncounted", {"partitions": [1]})]
    process.log.mine = {0, 1}
    count_all(world, process)
    process.publisher.tick()
    assert (world.heads[-1].sequence, world.heads[-1].uncounted) == (2, ())


def test_point_5_an_empty_partition_that_nobody_claimed_is_complete() -> None:
    world = Still(partitions=2)
    world.logs[1].clear()
    world.produce(0, frames.encode(STREAM, np.array([(1,)], STREAM.oracle.report_dtype)), [1])
    process = world.member(1)
    process.log.poll()
    for _ in range(20):
        process.log.mine = {0}
        turn(process)
    process.publisher.tick()
    assert (world.heads[-1].sequence, world.heads[-1].uncounted) == (1, ())


@pytest.mark.parametrize("source", ["head", "group"])
def test_point_6_set_back_beyond_the_logs_start_is_state_loss(source: str) -> None:
    world = Still()
    process = world.member(1)
    turn(process)
    for _ in range(2):
        world.send()
        count_all(world, process)
    if source == "head":
        publish(world, process)
        world.late.clear()
    else:
        world.deliver()
    world.stored[0] = next(past for past in world.past[0] if 0 < past.metadata.offset < 8)
    world.firsts[0] = 8
    with pytest.raises(StateLost, match="those up to 10 were there once"):
        look_twice(alone(world, 2))
    with pytest.raises(StateLost):  # nor later, by a worker that looks again
        look_twice(alone(world, 3))
    world.recount_after = len(world.heads)
    count_all(world, alone(world, 4))
    assert layout.load(STREAM, world.stored[0].metadata, world.stored[0].blobs).gaps


def test_point_6_records_lost_before_anyone_counted_them_are_a_gap() -> None:
    world = Still()
    world.send()
    process = world.member(1)
    count_all(world, process)
    publish(world, process)
    world.deliver()
    world.send(10)
    world.firsts[0] = 8
    count_all(world, alone(world, 2))
    assert layout.load(STREAM, world.stored[0].metadata, world.stored[0].blobs).gaps == [(5, 8)]


def test_point_18_a_snapshot_with_too_few_new_reports_is_held_back() -> None:
    world = Still()
    process = world.member(1)
    process.choose(fewest_new=4)
    for sent, published in ((3, []), (1, [4]), (3, [4]), (2, [4, 9])):
        world.send(sent)
        count_all(world, process)
        process.publisher.tick()
        assert [head.reports for head in world.heads] == published


@pytest.mark.parametrize(
    "configured", [RequestedRule(terms=RecordLimits(7, True, MAX_BATCH_BYTES)), RequestedRule(3)], ids=str
)
def test_point_4_an_empty_partition_that_is_given_up_has_the_published_rules(
    configured: RequestedRule,
) -> None:
    world = Still(partitions=2)
    world.send(5)
    world.logs[1].clear()
    process = world.member(1)
    count_all(world, process)
    publish(world, process)
    world.configured = configured
    world.stored.clear()
    world.late.clear()
    world.offsets = {0: (5, COUNTED), 1: (0, CLAIMED)}
    world.recount_after = 1
    process = alone(world, 3)
    count_all(world, process)
    process.publisher.tick()
    process.publisher.tick()
    assert world.heads[-1].reports == 5


def test_point_5_what_an_uncounted_partition_loses_is_a_gap() -> None:
    world = Still(partitions=2)
    world.send()
    process = world.member(1)
    count_the_first(world, process)
    process.publisher.tick()
    assert world.heads[-1].uncounted == (1,)
    world.firsts[1] = 3
    process.log.mine = {0, 1}
    count_all(world, process)
    process.publisher.tick()
    assert (world.heads[-1].gaps, world.heads[-1].uncounted) == ({1: [(0, 3)]}, ())


def twice(world: Still) -> Process:
    """Counts 5 records, then 5 more, and publishes them."""
    process = world.member(1)
    turn(process)
    for _ in range(2):
        world.send()
        count_all(world, process)
    publish(world, process)
    return process


@pytest.mark.parametrize("source", ["head", "group"])
def test_point_6_a_store_set_back_with_the_logs_tail_is_state_loss(source: str) -> None:
    world = Still()
    twice(world)
    if source == "head":
        world.late.clear()
    else:
        world.deliver()
        world.heads.clear()
        world.said = None
    world.stored[0] = next(p for p in reversed(world.past[0]) if p.metadata.offset <= 5)
    del world.logs[0][5:], world.answers[0][5:]  # a power cut
    with pytest.raises(StateLost, match="the counts reach offset 10, but the log ends at 5"):
        count_all(world, alone(world, 2))


def test_point_6_a_gap_that_was_published_is_found_again() -> None:
    world = Still()
    process = world.member(1)
    turn(process)
    world.send()
    count_all(world, process)
    world.send(10)
    world.firsts[0] = 8
    process = alone(world, 2)
    count_all(world, process)
    publish(world, process)
    assert world.heads[-1].gaps == {0: [(5, 8)]}
    world.late.clear()
    world.offsets[0] = (15, COUNTED)
    world.stored[0] = [p for p in world.past[0] if p.metadata.offset == 5][-1]
    count_all(world, alone(world, 3))
    world.verify(0)


@pytest.mark.parametrize("first", [1, 10])
def test_point_18_few_reports_are_held_back_also_where_others_were_lost(first: int) -> None:
    world = Still()
    world.send(10)
    process = world.member(1)
    process.choose(fewest_new=5)
    count_all(world, process)
    publish(world, process)
    world.deliver()
    del world.stored[0]
    world.firsts[0] = first
    world.recount_after = 1
    process = alone(world, 2)
    process.choose(fewest_new=5)
    world.send(first // 10)
    count_all(world, process)
    process.publisher.tick()
    assert len(world.heads) == 1


def test_point_16_a_rule_that_counts_are_without_is_not_taken_over() -> None:
    """A store set back between a publisher's cut and its publishing: counts would be by other rules than they say."""
    world = Still()
    process = world.member(1)
    turn(process)
    world.send(6)
    count_all(world, process)
    publish(world, process)
    rules = [*world.heads[-1].rules[0], {"offset": 5, "revision": 2, "most_reports": 1, "ones": True}]
    world.heads[-1] = world.said = replace(world.heads[-1], rules={0: rules})
    with pytest.raises(StateLost, match="was published with counts by"):
        look_twice(alone(world, 2))


def test_partitions_that_are_counted_as_different_histories_are_not_published() -> None:
    """Another deployment claimed one of them, in the same store, after this one's publisher looked last."""
    world = Still(partitions=2)
    world.send()
    process = world.member(1)
    count_all(world, process)
    stored = world.stored[1]
    theirs = json.dumps({**json.loads(stored.metadata.lineage), "group": "another"})
    world.stored[1] = replace(stored, metadata=replace(stored.metadata, lineage=theirs))
    with pytest.raises(
        StateLost, match="partitions have counts of two histories: group is 'group' there, 'another' here"
    ):
        process.publisher.tick()
    assert not world.snapshots


def test_a_partition_without_a_leader_keeps_no_other_from_being_claimed() -> None:
    world = Still(partitions=3)
    world.send()
    said: list[tuple[str, dict[str, Any]]] = []
    process = world.member(1, telling(said))
    world.leaderless = {0}
    for _ in range(6):
        turn(process)
    assert process.ownership.stored() == {1: 5, 2: 5}
    assert {tuple(facts["partitions"]) for event, facts in said if event == "claim.retry"} == {(0,)}
    world.leaderless = set()
    count_all(world, process)
    assert world.stored[0].metadata.epoch == 1  # nobody had claimed it meanwhile


def test_a_partition_without_a_leader_keeps_no_other_from_being_held() -> None:
    world = Still(partitions=3)
    world.send()
    process = world.member(1)
    world.leaderless = {0}
    for _ in range(6):
        turn(process)
    world.send()
    world.leaderless = {0, 1}  # one that is held, too
    for _ in range(6):
        turn(process)
    assert process.ownership.stored() == {1: 5, 2: 10}
    world.leaderless = set()
    count_all(world, process)
    assert {stored.metadata.epoch for stored in world.stored.values()} == {1}  # none was let go of


def test_a_partition_that_loses_its_leader_in_step_9_is_claimed_later() -> None:
    world = Still()
    world.send()
    process = world.member(1)
    log: Any = process.log
    bounds, asked = log.bounds, list[int]()

    def once(partitions: Any) -> Any:
        asked.append(1)
        return {} if len(asked) == 2 else bounds(partitions)

    log.bounds = once
    while len(asked) < 2:
        turn(process)
    assert process.ownership.counted() == {}
    count_all(world, process)
