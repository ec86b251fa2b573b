"""Start of counting after a claim: a test for each row of the tables of `Claim.decide` and `Claim.resume`."""

from types import SimpleNamespace
from typing import Any

import pytest

import ldp
from worker.counting import layout
from worker.counting.claim import Claim
from worker.counting.head import Head
from worker.counting.lineage import lineage_of
from worker.counting.partition_state import PartitionState
from worker.counting.ports import CLAIMED, COUNTED, Metadata, StateLost
from worker.counting.rules import RequestedRule

STREAM = ldp.Stream("colours", ldp.GRR("1", 3))
OURS, OTHERS = lineage_of("group", "topic"), lineage_of("other", "topic")
NONE = Head()
PUBLISHED = Head(4, {0: 20}, 7)
UNCOUNTED = Head(4, {1: 20}, 7, uncounted=(0,))


def a_claim(head: Head = NONE, recount_after: int | None = None) -> tuple[Claim, list[str]]:
    told = list[str]()
    events: Any = SimpleNamespace(
        warning=lambda event, **_: told.append(event),
        gap_found=lambda _, begin, end: told.append(f"gap {begin} to {end}"),
    )
    head_reader: Any = SimpleNamespace(head=lambda *, decided: head)
    return Claim(
        "group", ldp.Fleet((STREAM,)), RequestedRule(), recount_after, head_reader, events, OURS
    ), told


def stored(offset: int, commit_id: str = "ab" * 16, lineage: str = OURS) -> Metadata:
    fresh = PartitionState.fresh(ldp.Fleet((STREAM,)), offset)
    return Metadata(lineage, 1, offset, commit_id, {}, layout.totals(fresh))


@pytest.mark.parametrize(
    ("metadata", "committed", "head", "expected"),
    [
        (stored(9), (12, COUNTED), NONE, (12, COUNTED)),
        (stored(9), (5, COUNTED), PUBLISHED, (9, COUNTED)),
        (stored(9), None, NONE, (9, COUNTED)),
        (stored(9), (3, CLAIMED), NONE, (9, COUNTED)),
        (stored(9, commit_id=""), (9, CLAIMED), NONE, (9, CLAIMED)),
        (None, None, UNCOUNTED, (0, CLAIMED)),
        (None, (20, CLAIMED), PUBLISHED, (20, CLAIMED)),
        (None, (3, CLAIMED), NONE, (3, CLAIMED)),
        (None, None, NONE, (2, CLAIMED)),
    ],
)
def test_a_claim_resumes_at_the_expected_offset(metadata, committed, head, expected):
    claim, told = a_claim()
    assert claim.decide(0, metadata, committed, 2, head) == expected
    assert told == []


@pytest.mark.parametrize(
    ("committed", "head"),
    [
        ((12, COUNTED), NONE),
        ((12, ""), NONE),
        ((12, COUNTED), PUBLISHED),
        (None, PUBLISHED),
        ((3, CLAIMED), PUBLISHED),
    ],
)
def test_lost_counts_stop_the_stream_unless_they_are_given_up(committed, head):
    claim, _ = a_claim()
    with pytest.raises(StateLost, match=f"recount_after = {head.sequence}"):
        claim.decide(0, None, committed, 2, head)
    claim, told = a_claim(recount_after=head.sequence)
    assert claim.decide(0, None, committed, 2, head) == (0, CLAIMED)
    assert told == ["partition.given_up"]
    if head.sequence:
        claim, _ = a_claim(recount_after=head.sequence - 1)
        with pytest.raises(StateLost):
            claim.decide(0, None, committed, 2, head)


@pytest.mark.parametrize(
    ("metadata", "head"),
    [
        (stored(9, lineage=OTHERS), NONE),
        (stored(9), Head(4, {0: 20}, 7, lineage={"group": "other", "topic_id": "topic"})),
        (None, Head(4, {0: 20}, 7, lineage={"group": "group", "topic_id": "other"})),
    ],
)
def test_another_history_stops_the_stream_despite_any_recount_setting(metadata, head):
    claim, _ = a_claim(recount_after=99)
    with pytest.raises(StateLost):
        claim.decide(0, metadata, None, 2, head)


@pytest.mark.parametrize(
    ("known", "first", "end", "head", "told"),
    [
        (0, 0, 9, NONE, []),
        (9, 9, 30, NONE, []),
        (30, 5, 30, PUBLISHED, []),
        (9, 15, 30, NONE, ["gap 9 to 15"]),
        (0, 15, 30, Head(4, {0: 20}, 7, gaps={0: [(9, 15)]}), ["gap 9 to 15"]),
    ],
)
def test_a_loaded_state_continues_or_has_a_gap(known, first, end, head, told):
    claim, said = a_claim(head)
    state = PartitionState.fresh(ldp.Fleet((STREAM,)), 9)
    assert claim.resume(0, state, stored(9), known, (first, end), head) == bool(told)
    assert said == told
    assert (state.offset, state.gaps) == ((first, [(9, first)]) if told else (9, []))


@pytest.mark.parametrize(("known", "head"), [(12, NONE), (0, PUBLISHED)])
def test_lost_counted_records_stop_the_stream_unless_given_up(known, head):
    claim, _ = a_claim(head)
    with pytest.raises(StateLost, match="rolled back too"):
        claim.resume(0, PartitionState.fresh(ldp.Fleet((STREAM,)), 9), stored(9), known, (15, 30), head)
    claim, said = a_claim(head, recount_after=head.sequence)
    assert claim.resume(0, PartitionState.fresh(ldp.Fleet((STREAM,)), 9), stored(9), known, (15, 30), head)
    assert said == ["partition.given_up", "gap 9 to 15"]


@pytest.mark.parametrize(("known", "head", "end"), [(0, NONE, 8), (12, NONE, 11), (0, PUBLISHED, 19)])
def test_a_truncated_log_stops_the_stream_despite_any_recount_setting(known, head, end):
    claim, _ = a_claim(head, recount_after=99)
    with pytest.raises(StateLost, match="truncated or created again"):
        claim.resume(0, PartitionState.fresh(ldp.Fleet((STREAM,)), 9), stored(9), known, (0, end), head)
