"""Names of documents: workers of old and new configurations take turns, and each partition accepts the same.

Each test fails without one rule: names are joined (1), stored documents (2), names in heads (3), the offset of a rule
(4), counts of retired documents (10), unknown documents are rejected (11), a configuration that names no recorded
document (12), differences (15), bounds (16).
"""

import itertools
import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

import ldp
from ldp import frames
from tests.support.memory import Process
from tests.support.memory.process import Silence
from tests.unit.worker.counting.still import Still, alone, count_all, look_twice, turn
from worker.counting import layout, rules
from worker.counting.head import Head
from worker.counting.partition_state import PartitionState
from worker.counting.ports import Events, StateLost, StoredPartition, Unavailable
from worker.counting.rules import Names, RequestedRule, Rule, Status

A, B, C = (ldp.Stream("guards", ldp.GRR(epsilon, d)) for epsilon, d in (("1", 3), ("2", 5), ("3", 4)))
NAMES = {each: each.fingerprint.hex() for each in (A, B, C)}
OLD, NEW = ldp.Fleet((A,)), ldp.Fleet((B, A))
RETIRED = ldp.Fleet((B, A), frozenset([A.fingerprint]))


class Told(Silence):
    """Events by name."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def info(self, event: str, **facts: Any) -> None:
        self.events.append((event, facts))

    warning = info

    def of(self, name: str) -> list[dict[str, Any]]:
        return [facts for event, facts in self.events if event == name]


class Documents(Still):
    """A world of several documents; its records are recounted by `counted`."""

    def __init__(self, partitions: int = 1) -> None:
        super().__init__(partitions)
        self.stream, self.fleet = A, NEW

    def verify(self, partition: int, before: StoredPartition | None = None) -> None:
        """Leaves the recount to `demand`."""

    def post(self, stream: ldp.Stream, count: int = 3, partition: int = 0, reason: str | None = None) -> None:
        """Appends records of one value each; `reason` names the expected rejection."""
        for _ in range(count):
            value = len(self.logs[partition]) % stream.oracle.domain_size
            frame = frames.encode(stream, np.array([(value,)], stream.oracle.report_dtype))
            self.produce(partition, frame, reason or [value])

    def worker(self, fleet: ldp.Fleet, events: Events | None = None, revision: int | None = None) -> Process:
        """Starts a worker with a configuration; it gets all partitions."""
        self.fleet, self.configured = fleet, replace(self.configured, revision=revision)
        return alone(self, len(self.assignment) + 1, events)

    def count(self, fleet: ldp.Fleet, events: Events | None = None, revision: int | None = None) -> Process:
        process = self.worker(fleet, events, revision)
        count_all(self, process)
        return process

    def state(self, partition: int = 0) -> PartitionState:
        stored = self.stored[partition]
        return layout.load(ldp.Fleet((A, B, C)), stored.metadata, stored.blobs)

    def names(self, partition: int = 0) -> Names:
        return rules.joined(layout.recorded(self.stored[partition].metadata))

    def publish(self) -> None:
        """Publishes a head of the stored counts."""
        states = {p: self.state(p) for p in self.stored}
        documents = {
            name: one.sealed for state in states.values() for name, one in sorted(state.documents.items())
        }
        first = next(iter(documents))
        self.said = Head(
            sequence=len(self.heads) + 1,
            offsets={p: state.offset for p, state in states.items()},
            rules={p: rules.published(state.rules, first) for p, state in states.items()},
            documents=documents,
        )
        self.heads.append(self.said)

    def demand(self, partition: int = 0) -> None:
        """Compares stored counts with the log: every record by the answer that was given with it."""
        state, log = self.state(partition), self.logs[partition]
        assert state.offset == len(log)
        counts, rejected = Counter[tuple[str, int]](), Counter[str]()
        for record, answer in zip(log, self.answers[partition], strict=True):
            if isinstance(answer, str):
                rejected[answer] += 1
            else:
                assert record.value is not None
                counts[record.value[1:5].hex(), answer[0]] += 1
        assert state.rejected == rejected
        for name in state.documents:
            found = state.total(name).state.tolist()
            assert found == [counts[name, value] for value in range(len(found))]
        assert state.reports == counts.total()


def test_an_old_worker_counts_a_document_that_only_new_workers_recorded() -> None:
    """Rules 1 and 2: its own list was never recorded there, and it has no parameters of the new document."""
    world, told = Documents(), Told()
    world.post(B)
    world.count(NEW)
    world.post(A)
    world.post(B)
    world.count(OLD, cast(Events, told))
    world.demand()
    assert len(layout.recorded(world.stored[0].metadata)) == 1
    (outdated,) = told.of("config.outdated")
    assert f"document {NAMES[B]} is recorded; the configuration does not name it" in outdated["why"]


def test_unknown_documents_are_rejected_for_good() -> None:
    world, told = Documents(), Told()
    world.post(A)
    world.post(B, reason="fingerprint")
    world.count(OLD)
    world.post(B)
    world.count(NEW, cast(Events, told))
    world.demand()
    (added,) = told.of("document.added")
    assert added == {"partition": 0, "offset": 6, "fingerprint": NAMES[B]}
    assert told.of("rules.added") == []


def test_retired_documents_keep_their_counts_until_a_higher_revision() -> None:
    world, told = Documents(), Told()
    world.post(A)
    world.count(OLD)
    world.post(A)
    world.count(NEW)
    world.publish()  # the head has the lower status
    world.post(A, reason="retired")
    world.post(B)
    world.count(RETIRED, cast(Events, told))
    assert told.of("document.retired") == [{"partition": 0, "offset": 6, "fingerprint": NAMES[A]}]
    for fleet in (NEW, OLD, RETIRED):  # at one version, retired wins
        world.post(A, reason="retired")
        world.count(fleet, cast(Events, told))
    assert "retired at revision 0" in told.of("config.outdated")[0]["why"]
    assert told.of("config.outdated")[0]["remedy"] == "to accept it again, set streams.revision to 1"
    world.post(A)
    world.count(NEW, revision=1)
    world.post(A)
    world.count(RETIRED)
    world.demand()
    assert world.state().total(NAMES[A]).reports == 12


def test_names_converge_in_any_order_of_workers() -> None:
    fleets = OLD, NEW, RETIRED, ldp.Fleet((C, B, A)), ldp.Fleet((C, B))
    versions = (None, 1, 2)
    for seed in range(200):
        rng = random.Random(seed)
        some = [(rng.choice(fleets), RequestedRule(rng.choice(versions))) for _ in range(rng.randint(2, 5))]
        ended = set()
        for _ in range(3):
            fleet, asked = rng.choice(some)
            listed = [rules.first(asked, 0, asked.names(fleet))]
            turns = [*some * 2]
            rng.shuffle(turns)
            for offset, (other, wanted) in enumerate(turns):
                rule = rules.joining(listed, None, wanted.names(other), offset)
                listed += [] if rule is None else [rule]
            for other, wanted in some:
                assert rules.joining(listed, None, wanted.names(other), 99) is None
            assert rules.parse([rule.as_json() for rule in listed], 0) == listed
            named = [*itertools.chain(*(rule.documents.items() for rule in listed))]
            assert len(named) == len({*named}), "a rule records only what it changes"
            ended.add(str(dict(sorted(rules.joined(listed).documents.items()))))
        assert len(ended) == 1


def test_an_added_partition_takes_names_from_the_head() -> None:
    """Rule 3, with a head that cannot be read at first: a new partition waits for it."""
    world = Documents()
    world.post(B)
    world.count(NEW)
    world.publish()
    world.grow()
    world.post(B, partition=1)
    world.open_until = world.clock + 60
    process, read = world.worker(OLD), 0

    def unread(*, decided: bool) -> Head:
        nonlocal read
        if (read := read + 1) < 4:
            raise Unavailable("Kafka: no broker answers")
        return world.heads[-1]

    cast(Any, process.ownership._head_reader).head = unread
    for _ in range(3):
        turn(process)
        assert 1 not in process.ownership.counted()
    count_all(world, process)
    world.demand(1)
    assert world.names(1) == world.names(0)
    assert [rule.offset for rule in layout.recorded(world.stored[1].metadata)] == [0]


def test_a_partition_claimed_without_a_head_joins_names_when_one_can_be_read() -> None:
    world = Documents(2)
    world.post(A)
    world.post(A, partition=1)
    world.count(OLD)
    world.post(B)
    process = world.worker(NEW)
    world.assignment[len(world.assignment)] = {0}
    count_all(world, process)
    world.stored[1] = replace(world.stored[1])
    world.publish()
    head, world.said = world.said, None
    process = world.worker(OLD)

    def unread(*, decided: bool) -> Head:
        raise Unavailable("Kafka: no broker answers")

    cast(Any, process.ownership._head_reader).head = unread
    for _ in range(3):
        turn(process)
    assert process.ownership._held[1].headless
    del cast(Any, process.ownership._head_reader).head
    world.said = head
    for _ in range(20):
        turn(process)
        process.ownership.compare()
    assert not process.ownership._held[1].headless
    assert world.names(1) == world.names(0)


def test_retired_names_are_recorded_where_they_never_were_live() -> None:
    world = Documents()
    world.post(A)
    world.count(NEW)
    world.count(RETIRED)
    world.post(A, reason="retired")
    world.count(RETIRED)
    world.publish()
    world.grow()
    world.post(A, partition=1, reason="retired")
    world.count(OLD)
    world.demand(1)
    assert world.names(1).documents[NAMES[A]].retired


def test_a_store_set_back_takes_rules_over_at_their_offsets() -> None:
    world = Documents()
    world.post(A)
    world.count(OLD)
    back = world.stored[0]
    world.post(A)
    world.post(B, reason="fingerprint")
    world.count(OLD)
    world.count(NEW)
    world.post(B)
    world.count(NEW)
    world.publish()
    recorded = layout.recorded(world.stored[0].metadata)
    assert [rule.offset for rule in recorded] == [0, 9]
    world.stored[0] = replace(back, metadata=replace(back.metadata, epoch=world.stored[0].metadata.epoch))
    world.count(OLD)  # does not know B
    world.demand()
    assert layout.recorded(world.stored[0].metadata) == recorded


def test_an_added_name_begins_after_every_counted_offset() -> None:
    """Rule 4: the group's offset and the head are ahead of a store that was set back."""
    world = Documents()
    world.post(A)
    world.count(OLD)
    back = world.stored[0]
    world.post(A, 4)
    world.post(B, 2, reason="fingerprint")
    world.count(OLD)
    world.publish()
    world.stored[0] = replace(back, metadata=replace(back.metadata, epoch=world.stored[0].metadata.epoch))
    world.post(B)
    world.count(NEW)
    world.demand()
    assert [rule.offset for rule in layout.recorded(world.stored[0].metadata)] == [0, 9]


def test_an_added_name_is_committed_where_nothing_was_counted() -> None:
    world = Documents()
    turn(world.worker(OLD))
    assert not world.stored[0].metadata.commit_id
    process = world.worker(NEW)
    turn(process)
    turn(process)
    assert world.names().documents.keys() == {NAMES[A], NAMES[B]}
    world.post(B)
    world.count(OLD)
    world.demand()


def test_a_configuration_that_names_no_recorded_document_stops() -> None:
    world = Documents()
    world.post(A)
    world.count(NEW)
    before = dict(world.stored)
    with pytest.raises(StateLost, match="the configuration names none of them"):
        look_twice(world.worker(ldp.Fleet((C,))))
    assert world.stored == before
    world.post(C)
    world.count(ldp.Fleet((C, A)))
    world.demand()


def test_rules_are_differences() -> None:
    world = Documents()
    for fleet in (OLD, NEW, RETIRED, ldp.Fleet((C, B, A), frozenset([A.fingerprint]))):
        world.post(A if fleet in (OLD, NEW) else B)
        world.count(fleet)
    listed = json.loads(world.stored[0].metadata.totals)["rules"]
    assert [rule["documents"] for rule in listed] == [
        {NAMES[A]: [0, False]},
        {NAMES[B]: [0, False]},
        {NAMES[A]: [0, True]},
        {NAMES[C]: [0, False]},
    ]
    assert {rule["revision"] for rule in listed} == {1}


def many(count: int, first: int = 0) -> Sequence[ldp.Stream]:
    return [ldp.Stream("guards", ldp.GRR(str(epsilon), 3)) for epsilon in range(first + 1, first + count + 1)]


def test_names_above_a_bound_are_refused_with_those_of_the_head() -> None:
    """Rule 16: 15 documents here and one more elsewhere leave no capacity for two."""
    world, told = Documents(2), Told()
    most = many(15)
    world.post(most[0])
    world.post(most[0], partition=1)
    world.count(ldp.Fleet(tuple(most)))
    other = many(1, 60)[0]
    documents = {each.fingerprint.hex(): each.hashed.decode() for each in (*most, other)}
    listed = layout.recorded(world.stored[0].metadata)
    elsewhere = [replace(listed[0], documents=dict.fromkeys(documents, Status()))]
    world.said = Head(1, {7: 1}, rules={7: rules.published(elsewhere, "")}, documents=documents)
    world.heads.append(world.said)
    added = many(1, 50)[0]
    world.post(added, reason="fingerprint")
    world.post(other)
    process = world.worker(ldp.Fleet((added, *most[1:])), cast(Events, told))
    count_all(world, process)
    stored = world.stored[0]
    state = layout.load(ldp.Fleet(tuple(most)), stored.metadata, stored.blobs)
    assert (state.rejected, state.total(other.fingerprint.hex()).reports) == ({"fingerprint": 3}, 3)
    assert world.names().documents.keys() == documents.keys()
    assert "17 documents, live and retired; at most 16 are allowed" in told.of("config.outdated")[0]["why"]


def test_segments_are_joined_with_limits() -> None:
    """A rule of changed limits carries the names that come with it; a rule of names keeps the last limits."""
    recorded = [rules.first(RequestedRule(), 0, Names({"8e9f39d0": Status()}, {"DE": Status()}))]
    asked = RequestedRule(2, replace(recorded[0].limits, most_reports=7), {"FR": Status(2), "DE": Status(2)})
    decided = rules.decide(recorded, asked, 5)
    assert isinstance(decided, Rule)
    rule = rules.joining(recorded, decided, Names({}, asked.segments), 5)
    assert rule == Rule(5, 2, asked.limits, {}, {"DE": Status(2), "FR": Status(2)})
    only_names = rules.joining([*recorded, rule], None, Names({"9f86d081": Status()}), 3)
    assert only_names == Rule(5, 2, asked.limits, {"9f86d081": Status()})
    with pytest.raises(ValueError, match="do not ascend"):
        rules.parse([each.as_json() for each in (recorded[0], replace(rule, revision=1))], 0)
