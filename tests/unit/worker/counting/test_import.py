"""An import among the workers: each step interrupted, any worker first, and untouched other state."""

import contextlib
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import ldp
from ldp.offset_range import OffsetRange
from ldp.state import State
from tests.support.memory.standalone import Importer, batch
from tests.unit.worker.counting.still import Still, alone, count_all, lie_once, look_twice, shifted
from worker.counting import layout
from worker.counting.head import Head
from worker.counting.ports import CLAIMED, COUNTED, Metadata, StateLost, Unavailable
from worker.importing import Prefix, Refused


def world_of(records: int = 10, partitions: int = 1) -> Still:
    """A log of good records and a malformed one, all uncounted."""
    world = Still(partitions)
    world.send(records - 1)
    for partition in range(partitions):
        world.produce(partition, b"\x07noise", "version")
    return world


def imported(world: Still, *histories: State, by: Importer | None = None) -> list[tuple[int, bool]]:
    """Imports; returns which partitions have it, and whether they had it before."""
    done = list[tuple[int, bool]]()

    def on_done(prefix: Prefix, before: bool) -> None:
        done.append((prefix.covered.partition, before))

    named = {f"{n}.ldp": history for n, history in enumerate(histories)}
    (by or Importer(world)).importing.run(named, on_done)
    return done


def test_committed_offsets_are_never_lowered() -> None:
    world = world_of()
    history = batch(world, 0, 0, 6)
    imported(world, history)
    only = world.stored[0]
    count_all(world, alone(world, 1))
    world.members.clear()
    world.stored[0], world.offsets[0] = only, (10, COUNTED)  # the store went back
    assert imported(world, history) == [(0, True)]
    assert world.offsets[0] == (10, COUNTED)


def test_an_import_is_recognised_after_later_records_are_lost() -> None:
    world = world_of()
    history = batch(world, 0, 0, 6)
    imported(world, history)
    world.firsts[0] = 8
    count_all(world, alone(world, 1))
    world.verify(0)
    assert imported(world, history) == [(0, True)]


def test_another_history_of_a_partition_is_never_accepted() -> None:
    world = world_of()
    history = batch(world, 0, 0, 6)
    imported(world, history)
    before = world.stored[0]
    other = replace(history, counters=np.roll(history.counters, 1))
    assert other != history
    for different in (other, batch(world, 0, 0, 7), batch(world, 0, 0, 5), batch(world, 0, 0, 6, most=1)):
        assert refusal(world, different) == (
            "partition 0: it already has counts up to offset 6; an import never changes existing counts"
        )
    assert world.stored[0] == before
    count_all(world, alone(world, 1))
    for different in (batch(world, 0, 0, 7), batch(world, 0, 0, 6, most=1)):
        assert "it already has counts up to offset 10" in refusal(world, different)
    # the batch's rule applied before the worker's rule, so this is a part of it
    assert imported(world, batch(world, 0, 0, 5)) == [(0, True)]


def refusal(world: Still, *histories: State) -> str:
    """Why an import is refused, which then changed nothing."""
    before = {**world.stored}, {**world.offsets}
    with pytest.raises(Refused) as refused:
        imported(world, *histories)
    assert (world.stored, world.offsets) == before
    return str(refused.value)


LIES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "Metadata: another topic id": ("topic_id", lambda _: "topic-2"),
    "ListOffsets: the log begins too early": ("bounds", shifted(-4, 0)),
    "ListOffsets: the log begins too late": ("bounds", shifted(2, 0)),
    "Fetch: no records before the import": ("has_records", lambda _: False),
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("first", [0, 4])
def test_one_wrong_answer_never_changes_the_start_of_an_import(lie: str, nth: int, first: int) -> None:
    """A log that begins at 4 is stored from there; with earlier records the import is refused."""
    world, (name, change) = world_of(), LIES[lie]
    world.firsts[0] = first
    importer = Importer(world)
    if nth == 2:
        lie_once(importer.log, name, lambda said: (lie_once(importer.log, name, change), said)[1])
    else:
        lie_once(importer.log, name, change)
    with contextlib.suppress(Unavailable, Refused):
        imported(world, batch(world, 0, 4, 8), by=importer)
    assert not world.stored or first == 4
    if first == 4:
        before = bool(world.stored)
        assert imported(world, batch(world, 0, 4, 8)) == [(0, before)]
        found = world.stored[0].metadata
        assert (layout.start(found), json.loads(found.lineage)["topic_id"]) == (4, "topic-1")


def test_an_import_resumes_only_where_the_store_lost_it() -> None:
    world = world_of()
    history, process = batch(world, 0, 0, 6), alone(world, 1)
    imported(world, history)
    process = alone(world, 1)
    del world.stored[0]
    world.offsets[0] = (6, COUNTED)
    with pytest.raises(StateLost, match="has offset 6 committed in Kafka"):
        look_twice(process)
    assert imported(world, history) == [(0, False)]
    process = alone(world, 2)
    count_all(world, process)
    process.publisher.tick()
    world.deliver()
    assert (world.offsets[0], world.heads[-1].offsets) == ((10, COUNTED), {0: 10})
    # everything is lost, and Kafka's offset shows that more was counted than the import has
    del world.stored[0]
    assert refusal(world, history) == (
        "partition 0: Redis has no counts, but group 'group' has offset 10 committed in Kafka ('counted'): they were"
        " lost, or another Redis has them, and the import lacks some of them"
    )
    # without the group's offset, the head names the rules of the import, so it is only set back
    world.offsets.clear()
    assert imported(world, history) == [(0, False)]
    count_all(world, alone(world, 3))
    world.verify(0)


def test_counts_published_by_other_rules_are_not_imported() -> None:
    world = world_of()
    process = alone(world, 1)
    count_all(world, process)
    process.publisher.tick()
    del world.stored[0]
    world.offsets.clear()
    assert refusal(world, batch(world, 0, 0, 10)) == (
        "partition 0: Redis has no counts, but snapshot 1 was published with counts up to offset 10: they were"
        " lost, or another Redis has them."
        " Remedy: restore Redis, or give the stream another name: the worker then counts its topic again"
    )


def test_a_longer_history_does_not_replace_a_published_one() -> None:
    world = world_of()
    imported(world, batch(world, 0, 0, 6))
    process = alone(world, 1)
    count_all(world, process)
    process.publisher.tick()
    del world.stored[0]
    world.offsets.clear()
    # the configuration's rule applied in between
    assert "they were lost" in refusal(world, batch(world, 0, 0, 8))


@pytest.mark.parametrize(
    ("head", "why"),
    [
        (
            Head(3, {0: 7}, 5),
            "snapshot 3 was published with counts up to offset 7",
        ),  # written before rules existed
        (Head(3, uncounted=(0,)), "silently lack the records before offset 2"),
        (Head(3, lineage={"group": "others"}), "snapshot 3 on the snapshot topic belongs to other counts"),
    ],
)
def test_an_import_that_contradicts_the_head_is_refused(head: Head, why: str) -> None:
    world = world_of()
    world.firsts[0] = 2
    world.heads.append(head)
    assert why in refusal(world, batch(world, 0, 2, 8))


def test_every_record_of_an_uncounted_partition_may_be_imported() -> None:
    world = world_of()
    world.heads.append(Head(3, uncounted=(0,)))
    assert imported(world, batch(world, 0, 0, 8)) == [(0, False)]


@pytest.mark.parametrize(
    ("committed", "allowed"),
    [
        ((5, COUNTED), True),  # counts that were lost, and that the import has
        ((9, COUNTED), False),
        ((9, ""), False),
        ((9, CLAIMED), True),  # by a worker that counted nothing
    ],
)
def test_committed_offsets_decide_whether_an_import_is_allowed(
    committed: tuple[int, str], allowed: bool
) -> None:
    world = world_of()
    world.offsets[0] = committed
    if not allowed:
        assert f"has offset 9 committed in Kafka ({committed[1] or 'by another program'!r})" in refusal(
            world, batch(world, 0, 0, 8)
        )
        return
    imported(world, batch(world, 0, 0, 8))
    assert world.offsets[0] == (8, COUNTED)
    count_all(world, alone(world, 1))
    world.verify(0)


def test_an_import_commits_no_offsets_while_members_exist() -> None:
    world = world_of()
    alone(world, 1)
    imported(world, batch(world, 0, 0, 8))
    assert world.offsets == {}


def test_an_import_begins_at_the_log_start() -> None:
    world = Still()
    for _ in range(3):
        world.produce(0, None, [], marker=True)
    world.send()
    assert "the log has earlier records from offset 0 on" in refusal(world, batch(world, 0, 4, 8))
    # a range without records is not a hole
    assert imported(world, batch(world, 0, 3, 8)) == [(0, False)]
    assert layout.load(ldp.Fleet((world.stream,)), *vars(world.stored[0]).values()).start == 0
    count_all(world, alone(world, 1))
    world.verify(0)


@pytest.mark.parametrize(
    ("first", "start", "offset", "why"),
    [
        (0, 0, 11, "the counts reach offset 11, but the log ends at 10"),
        (5, 0, 4, "the counts end at offset 4, but the log begins at 5: both lack the records between"),
        (5, 0, 5, ""),
        (5, 2, 10, ""),
    ],
)
def test_the_log_continues_where_an_import_ends(first: int, start: int, offset: int, why: str) -> None:
    world = world_of(11)
    history = batch(world, 0, start, offset)
    world.logs[0].pop()
    world.firsts[0] = first
    if why:
        assert why in refusal(world, history)
        return
    imported(world, history)
    count_all(world, alone(world, 1))
    state = layout.load(ldp.Fleet((world.stream,)), *vars(world.stored[0]).values())
    assert (state.start, state.gaps) == (start, [])


def test_all_partitions_are_checked_before_the_first_import() -> None:
    world = world_of(partitions=3)
    good, short = batch(world, 0, 0, 6), [batch(world, p, 0, 6) for p in (1, 2)]
    world.firsts[1:] = [8, 9]
    said = refusal(world, good, *short).splitlines()
    assert [line.split(":")[0] for line in said] == ["partition 1", "partition 2"]
    assert "two" not in refusal(world, good, good)
    assert refusal(world, good, good) == "0.ldp and 1.ldp both cover partition 0; merge them"
    assert "topic reports has no partition 7" in refusal(world, moved(good, partition=7))


def moved(history: State, **changes: Any) -> State:
    """A history of another range."""
    return replace(history, log=(replace(history.log[0], **changes),))


def test_a_history_of_another_stream_is_refused() -> None:
    world = world_of()
    history = batch(world, 0, 0, 6)
    for other, why in (
        (
            moved(history, topic="others"),
            "0.ldp: the counts cover others, partition 0, offsets 0 to 5; the stream's topic",
        ),
        (replace(history, log=()), "the counts cover no offset range; an import"),
        (
            replace(history, log=(*history.log, OffsetRange("reports", 1, 0, 5))),
            "offsets 0 to 4; an import covers one",
        ),
        (replace(history, windows=((0, 1000),)), "the counts have windows"),
        (moved(history, max_timestamp=None), "no highest timestamp, but 6 accepted records"),
        (
            replace(history, rejected={"boredom": 1}, log=(OffsetRange("reports", 0, 0, 9, 5),)),
            "rejected for boredom; allowed are",
        ),
        (
            moved(replace(history, reports=18, counters=3 * history.counters), most_reports=2),
            "records of reports, partition 0, offsets 0 to 5 cannot have these counts: 6 accepted records have 18",
        ),
    ):
        assert why in refusal(world, other)


def test_an_unreadable_store_is_not_overwritten() -> None:
    world = world_of()
    importer = Importer(world)

    def damaged(partition: int) -> Metadata:
        raise StateLost("metadata cannot be read")

    importer.importing.store.peek = damaged  # type: ignore[method-assign]
    with pytest.raises(StateLost):
        imported(world, batch(world, 0, 0, 6), by=importer)
    assert world.stored == {}


def test_recount_after_changes_nothing_for_an_import() -> None:
    world = world_of()
    world.recount_after = sys.maxsize
    world.offsets[0] = (9, COUNTED)
    assert "they were lost" in refusal(world, batch(world, 0, 0, 8))
