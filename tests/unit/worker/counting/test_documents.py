"""Counts of a document that the configuration does not name stop the stream, wherever the document is recorded."""

import json
from dataclasses import replace

import pytest

import ldp
from tests.support.cells import naming
from tests.unit.worker.counting.still import STREAM, Still, alone, count_all, look_twice
from worker.counting import layout, rules
from worker.counting.claim import demand_ours, foreign
from worker.counting.documents import unnamed
from worker.counting.head import Head
from worker.counting.lineage import lineage_of
from worker.counting.partition_state import PartitionState
from worker.counting.ports import CLAIMED, StateLost
from worker.counting.rules import RecordLimits, RequestedRule, Rule, Status

OTHER = ldp.Stream(STREAM.name, ldp.GRR(epsilon="2", domain_size=3))
OURS, THEIRS = STREAM.fingerprint.hex(), OTHER.fingerprint.hex()
NAMED = f'epsilon: "1" → "2"; the recorded documents are {OURS}; the configuration names none of them'


def counted(partitions: int = 1, *, published: bool = True) -> Still:
    world = Still(partitions)
    world.send()
    process = world.member(1)
    count_all(world, process)
    if published:
        process.publisher.tick()
        assert world.heads
    return world


@pytest.mark.parametrize("published", [False, True])
def test_a_changed_document_is_named_and_changes_nothing(published: bool) -> None:
    world = counted(published=published)
    stored, offsets = dict(world.stored), dict(world.offsets)
    world.stream = OTHER
    with pytest.raises(StateLost) as lost:
        look_twice(alone(world, 2))
    assert f"partition 0: Redis has counts of another history: {NAMED}." in str(lost.value)
    assert "another name and another topic" in lost.value.remedy
    assert (world.stored, world.offsets) == (stored, offsets)
    world.stream = STREAM
    world.send()
    count_all(world, alone(world, 3))


def test_a_published_document_is_compared_without_counts() -> None:
    world = counted()
    world.stored.clear()
    world.offsets = {0: (5, CLAIMED)}
    world.stream = OTHER
    with pytest.raises(StateLost) as lost:
        look_twice(alone(world, 2))
    assert f"snapshot 1 on the snapshot topic belongs to other counts: {NAMED}." in str(lost.value)


def test_a_publisher_refuses_counts_of_another_document() -> None:
    world = counted(partitions=2, published=False)
    other = Still(partitions=2)
    other.stream = OTHER
    count_all(other, other.member(1))
    world.stored[1] = other.stored[1]
    with pytest.raises(StateLost, match=f"partition 1: the recorded documents are {THEIRS}"):
        alone(world, 2).publisher._read([0, 1])


def test_renamed_documents_are_of_the_same_stream() -> None:
    world = counted()
    metadata = world.stored[0].metadata
    demand_ours(ldp.Fleet((ldp.Stream("renamed", STREAM.oracle),)), 0, metadata, metadata.lineage)
    with pytest.raises(StateLost, match=r"totals '{}' cannot be read"):
        demand_ours(ldp.Fleet((STREAM,)), 0, replace(metadata, totals="{}"), metadata.lineage)


def test_the_first_document_is_recorded_with_the_first_rule() -> None:
    world = counted()
    metadata = world.stored[0].metadata
    assert layout.documents(metadata) == {OURS: STREAM.hashed.decode()}
    assert [rule.documents for rule in layout.recorded(metadata)] == [{OURS: Status(0, False)}]
    assert "documents" not in world.heads[-1].rules[0][0]
    assert world.heads[-1].documents == {OURS: STREAM.hashed.decode()}
    assert world.heads[-1].rules_of(0) == layout.recorded(metadata)


def test_rules_of_lost_counts_come_from_the_head_with_their_document() -> None:
    world = counted()
    before = layout.recorded(world.stored[0].metadata)
    world.stored.clear()
    world.offsets.clear()
    world.recount_after = 1
    world.send()
    count_all(world, alone(world, 2))
    assert layout.recorded(world.stored[0].metadata) == before


@pytest.mark.parametrize(
    "named", [{}, {OURS: Status(1)}, {OURS: Status(0, True)}, {OURS: Status(), THEIRS: Status()}]
)
def test_other_names_than_the_first_document_are_published(named: dict[str, Status]) -> None:
    limits = RecordLimits(9, hamming_weight=True)
    listed = [
        Rule(4, 1, limits, named or {OURS: Status()}),
        Rule(7, 2, limits, {THEIRS: Status(3, True)}, {"DE": Status(3)}),
    ]
    shown = rules.published(listed, OURS)
    assert ("documents" in shown[0]) == bool(named)
    assert (shown[1]["documents"], shown[1]["segments"]) == ({THEIRS: [3, True]}, {"DE": [3, False]})
    assert rules.parse(shown, 4, OURS) == listed
    assert rules.parse([rule.as_json() for rule in listed], 4) == listed


def test_a_status_is_joined_by_its_order() -> None:
    assert Status() < Status(0, True) < Status(1) < Status(1, True)


def test_the_only_document_has_version_0_in_any_revision() -> None:
    """So the head of a stream with one document is that of streams without documents."""
    asked = [RequestedRule(revision, RecordLimits(9, True)) for revision in (None, 0, 7)]
    listed = [rules.first(each, 0, each.names(ldp.Fleet((STREAM,)))) for each in asked]
    assert [rule.documents for rule in listed] == [{OURS: Status(0)}] * 3
    assert listed[0] == naming(STREAM, [replace(listed[0], documents={})])[0]


LABELLED = ldp.Stream(STREAM.name, ldp.GRR("3", 2), ["no", "yes"])
COLLIDING = [ldp.Stream(STREAM.name, ldp.GRR("1", 2), ["no", f"yes {i}"]) for i in (42406, 49502)]


def test_a_document_with_the_fingerprint_of_a_recorded_one_stops_the_stream() -> None:
    first, second = COLLIDING
    assert first.fingerprint == second.fingerprint
    text = f"another document with the fingerprint {first.fingerprint.hex()} is recorded"
    text = f"labels: SHA-256 {hashed(first)}… → SHA-256 {hashed(second)}…; {text}"
    metadata = layout.initial(lineage_of("g", "id"), PartitionState.fresh(ldp.Fleet((first,)), 0))
    demand_ours(ldp.Fleet((first,)), 0, metadata, metadata.lineage)
    head, fleet = Head(1, documents=layout.documents(metadata)), ldp.Fleet((LABELLED, second))
    with pytest.raises(StateLost) as lost:
        demand_ours(fleet, 0, metadata, metadata.lineage)
    for error in (lost.value, foreign(fleet, head, head.foreign(fleet, metadata.lineage))):
        assert text in str(error)
        assert error.remedy.startswith("change the document, for example the order of its labels")
    with pytest.raises(StateLost, match="another document with the fingerprint"):  # the publisher
        layout.load(fleet, metadata, {})


def hashed(stream: ldp.Stream) -> str:
    return str(json.loads(stream.hashed)["labels"])[:8]


def test_one_colliding_document_of_several_is_refused() -> None:
    first, second = COLLIDING
    recorded = {each.fingerprint.hex(): each.hashed.decode() for each in (LABELLED, first)}
    assert unnamed(recorded, ldp.Fleet((first, LABELLED))) == []
    assert unnamed(recorded, ldp.Fleet((LABELLED, second))) == [
        f"another document with the fingerprint {second.fingerprint.hex()} is recorded"
    ]
