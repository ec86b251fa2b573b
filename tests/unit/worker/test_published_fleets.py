"""Publishing of several documents and segments, against a recount by the test's own code."""

import json
import random
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import jsonschema
import numpy as np
import pytest

import ldp
from ldp import snapshot
from ldp.query import SetQuery, TopQuery
from ldp.snapshot import Message
from tests.unit.ldp.test_snapshot import SCHEMA
from tests.unit.worker.fleets import NEW, OLD, OTHER, SECOND, Fleet, Sent
from worker.counting.rules import Status
from worker.kafka.snapshots.index import SnapshotIndex

DOCUMENTS = (OLD, NEW, OTHER)
NAMES = [document.fingerprint.hex() for document in DOCUMENTS]


def fill(world: Fleet, rng: random.Random, second: int, reports: int, documents: Any = DOCUMENTS) -> None:
    """Counts reports of a second, some of them late, and makes both partitions pass it."""
    for _ in range(reports):
        document = rng.choice(documents)
        late = rng.random() < 0.1
        time = max(0, second - 4 * late) * SECOND + rng.randrange(SECOND // 2)
        world.count(rng.randrange(2), document, rng.randrange(document.oracle.domain_size), time)


def passed(world: Fleet, second: int, document: ldp.Stream = OLD) -> None:
    """Counts a report in each partition that closes all windows up to a second."""
    for partition in range(2):
        world.count(partition, document, 0, (second + 1) * SECOND)


def within(start: int, end: int, document: str = "") -> Callable[[Sent], bool]:
    """Returns whether a window contains a report, of a document if one is given."""
    return lambda sent: (
        sent.pane is not None
        and start <= sent.pane < end
        and document in ("", sent.document.fingerprint.hex())
    )


@pytest.mark.parametrize("seed", range(8))
def test_a_fleet_is_published_as_it_is_recounted(seed: int) -> None:
    rng = random.Random(seed)
    world, finals = Fleet(DOCUMENTS), dict[tuple[str, str, int], bytes]()
    world.tick()
    for second in range(2, 9):
        fill(world, rng, second, rng.randrange(30))
        if rng.random() < 0.3:
            passed(world, second)
        if rng.random() < 0.3:
            world.restart()
        world.tick()
        if not world.sent:
            continue
        whole, head = world.read(), world.document
        world.demand(whole)
        assert whole.labels == ("red", "green", "blue", "grey", "pink", "cyan")
        assert [one["fingerprint"] for one in head["documents"]] == NAMES
        assert [one["reports"] for one in head["documents"]] == [
            sum(sent.document == document for sent in world.sent) for document in DOCUMENTS
        ]
        for key in sorted(key for key in world.keys if "s" in key.split("/")[1] and key.endswith("/base")):
            name, window, start = key.split("/")[0], key.split("/")[1], int(key.split("/")[2])
            taken, end = world.window(name, window, start), start + int(window[0]) * SECOND
            world.demand(taken, within(start, end, name.partition("@")[2]))
            if taken.window.final:
                assert finals.setdefault((name, window, start), world.topic[key][1]) == world.topic[key][1]
            else:
                assert name == "fleet"
    assert any("@" in name for name, *_ in finals)
    verdict = world.audit()
    assert (verdict.verdict, verdict.difference) == ("equal", None)


@pytest.mark.parametrize("seed", range(4))
def test_readers_list_the_published_parts_and_all_messages_follow_the_schema(seed: int) -> None:
    rng, world = random.Random(seed), Fleet(DOCUMENTS)
    parts = [snapshot.part_of("fleet", document=name) for name in NAMES]
    index, send, offset = SnapshotIndex(["fleet", *parts]), world.publish, count()
    validator = jsonschema.Draft202012Validator(SCHEMA)

    def publish(sequence: int, messages: Sequence[Message], rows: Sequence[object]) -> None:
        for message in messages:
            if message.body:
                validator.validate(json.loads(message.body))
            index.take(message.key, dict(message.headers(sequence)), message.body or None, next(offset))
        send(sequence, messages, rows)

    world.publish = publish  # type: ignore[method-assign]
    world.tick()
    for second in range(2, 9):
        fill(world, rng, second, 20)
        passed(world, second)
        world.tick()
        for name in ("fleet", *parts):
            there = [key.split("/")[1:] for key in world.keys if key.startswith(f"{name}/")]
            windows = {
                (place[0], int(place[1])) for place in there if place[-1] == "base" and len(place) == 3
            }
            listed = {key for key in index.of(name) if key != ("all", None)}
            assert listed == windows, name
            assert (("all", None) in index.of(name)) == (f"{name}/head" in world.keys)
    assert any(len(index.of(part)) > 2 for part in parts)


def test_a_part_is_published_from_a_number_of_reports_on_and_after_as_many_more() -> None:
    world, old = Fleet((OLD, NEW), windows=False), f"fleet@{NAMES[0]}"
    sizes = []
    for _ in range(12):
        world.count(0, OLD, 1, 0)
        world.count(1, NEW, 2, 0)
        world.count(1, NEW, 2, 0)
        world.tick()
        sizes.append(world.read(old).reports if f"{old}/head" in world.keys else 0)
    assert sizes == [0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12]
    world.demand(world.read(f"fleet@{NAMES[1]}"), lambda sent: sent.document == NEW)
    assert world.read(old).labels == OLD.labels
    assert [*world.read(old).bodies] == ["base"]
    assert world.read(old).estimate().frequencies.argmax() == 1
    world.restart()
    world.count(0, OLD, 1, 0)
    world.tick()
    assert world.read(old).reports == 13  # a publisher that takes over does not know the last number
    world.content["parts_fewest"] = 20
    world.restart()
    world.count(0, OLD, 1, 0)
    world.tick()
    assert not {key for key in world.keys if key.startswith(old) and not key.endswith("/domain")}
    assert world.audit().difference is None


@pytest.mark.parametrize("before", [4, 1000])
def test_the_audit_requires_parts_by_the_published_number(before: int) -> None:
    """A changed `parts_fewest` applies from the first snapshot of a publisher that has it."""
    world = Fleet(DOCUMENTS, windows=False, parts_fewest=before)
    for _ in range(8):
        world.count(0, OLD, 1, 0)
        world.count(1, NEW, 2, 0)
    world.tick()
    parts = {f"fleet@{name}/all/base" for name in NAMES[:2]}
    assert world.document["parts_fewest"] == before
    world.content["parts_fewest"] = 1004 - before
    assert world.audit().difference is None
    world.restart()
    world.tick()  # no report is new
    assert bool(parts & world.keys) == (before == 4)
    assert world.audit().difference is None
    world.count(0, OLD, 1, 0)
    world.tick()
    assert bool(parts & world.keys) == (before == 1000)
    assert world.audit().difference is None
    left = [message for message in world.compacted if message[0].split("/")[0] == "fleet"]
    found = world.audit(left).difference
    assert (found or "").endswith("which has 9 reports; 4 are enough") == (before == 1000)


def test_a_stream_of_one_document_has_no_parts() -> None:
    world = Fleet((OLD,))
    fill(world, random.Random(1), 1, 30, (OLD,))
    passed(world, 3)
    world.tick()
    world.tick()
    assert {key.partition("/")[0] for key in world.keys} == {"fleet"}
    assert {headers["schema"] for headers, _ in world.topic.values()} == {b"1"}
    assert "segments" not in world.document


def test_the_head_keeps_the_order_of_its_documents() -> None:
    """Documents that are new together are appended, the oldest of the configuration first."""
    world = Fleet((NEW,), windows=False, parts_fewest=1)
    world.count(0, NEW, 1, 0)
    world.tick()
    assert world.read().labels == NEW.labels
    world.add(OTHER, (1,))
    world.add(OLD, (0,))
    world.tick()
    assert [one["fingerprint"] for one in world.document["documents"]] == [NAMES[1], NAMES[0], NAMES[2]]
    assert [one["partitions"] for one in world.document["documents"]] == [2, 1, 1]
    world.configured = [OLD, OTHER, NEW]
    world.restart()
    world.count(0, OLD, 1, 0)
    world.tick()
    assert world.read().labels == ("blue", "grey", "red", "pink", "green", "cyan")
    world.demand(world.read())
    (part,) = world.read(f"fleet@{NAMES[0]}").documents
    assert part["partitions"] == 1


def test_the_head_has_the_newest_status_of_each_document() -> None:
    world = Fleet(DOCUMENTS, windows=False)
    world.count(0, OLD, 1, 0)
    world.record((1,), documents={NAMES[0]: Status(0, True)})
    world.tick()
    assert [(one["retired"], one["partitions"]) for one in world.document["documents"]] == [
        (True, 1),
        (False, 2),
        (False, 2),
    ]
    world.record((0, 1), documents={NAMES[0]: Status(1, False)})
    world.tick()
    assert [(one["retired"], one["partitions"]) for one in world.document["documents"]] == [(False, 2)] * 3


def test_counts_of_a_retired_document_stay() -> None:
    world = Fleet(DOCUMENTS)
    fill(world, random.Random(3), 1, 40)
    world.record(documents={NAMES[0]: Status(0, True)})
    fill(world, random.Random(4), 2, 40, (NEW, OTHER))
    world.tick()
    world.demand(world.read())


def test_a_publisher_without_a_recorded_document_waits() -> None:
    world = Fleet((OLD,), windows=False)
    world.count(0, OLD, 1, 0)
    world.configured = [OLD]
    world.restart()
    world.tick()
    world.add(NEW)
    world.count(0, NEW, 1, 0)
    for _ in range(2):
        world.tick()
    assert len(world.messages) == 1
    name = NAMES[1]
    error, remedy = (
        f"document {name} is recorded and the configuration does not name it",
        "list it in documents or retired",
    )
    failed = ("snapshot.retry", {"error": error, "remedy": remedy})
    assert world.told == [("documents.unnamed", {"documents": [name], "remedy": remedy}), failed]
    assert world.exported("documents_unnamed") == 1
    world.clock = 21.0
    world.tick()
    world.progress.heartbeat()
    assert world.progress.describe() == f"publishing has failed for 21 s: {error}. Remedy: {remedy}"
    world.configured = [NEW, OLD]
    world.restart()
    world.tick()
    world.demand(world.read())
    assert (len(world.told), world.exported("documents_unnamed")) == (2, 0)


def test_a_document_of_the_head_must_be_named_too() -> None:
    """A store that was set back lacks the document, but its windows on the topic do not."""
    world = Fleet((OLD,), windows=False)
    world.count(0, OLD, 1, 0)
    before = world.states[0].rules, dict(world.states[0].documents)
    world.add(NEW, (0,))
    world.tick()
    world.states[0].rules, world.states[0].documents = before
    world.configured = [OLD]
    world.restart()
    world.tick()
    assert world.told[0][0] == "documents.unnamed"


def test_a_window_that_expires_leaves_no_part() -> None:
    world = Fleet(DOCUMENTS, parts_fewest=1)
    for second in range(12):
        fill(world, random.Random(second), second, 12)
        passed(world, second)
        world.tick()
    starts = {
        name: {int(key.split("/")[2]) for key in world.keys if key.startswith(f"{name}/1s/")}
        for name in ["fleet", *(f"fleet@{each}" for each in NAMES)]
    }
    listed = {*world.document["windows"]["1s"]["starts"]}
    assert 0 < len(listed) < 8
    assert starts["fleet"] == listed
    for name in NAMES:
        assert starts[f"fleet@{name}"] <= listed
    assert any(starts[f"fleet@{name}"] for name in NAMES)


def test_finals_do_not_change_when_a_document_is_added() -> None:
    rng, world = random.Random(5), Fleet((OLD, NEW), parts_fewest=1)
    world.tick()
    fill(world, rng, 1, 60, (OLD, NEW))
    passed(world, 4)
    world.tick()
    world.tick()
    before = {
        key: world.topic[key]
        for key in world.keys
        if "s/" in key and world.topic[key][0].get("final") == b"true"
    }
    assert len({key.partition("/")[0] for key in before}) == 3
    world.content["retain"] = 100 * SECOND
    world.add(OTHER)
    world.restart()
    fill(world, rng, 6, 60)
    passed(world, 9)
    world.tick()
    world.tick()
    assert len(world.document["documents"]) == 3
    assert {key: world.topic[key] for key in before} == before
    for key in before:
        if key.startswith("fleet/") and key.endswith("/base"):
            _, name, start, _ = key.split("/")
            labels = world.window("fleet", name, int(start)).labels
            assert labels == (*OLD.labels, "grey", "pink")  # type: ignore[misc]


SEGMENTS = ("DE:1", "US:4.3", "US:9.9", "XX:1")
SLICED = ldp.Stream("fleet", ldp.GRR("1", 3), ["red", "green", "pink"], segment="country:app")
"""A document whose reports name a segment."""


@pytest.fixture
def sliced() -> Fleet:
    """A stream of a document without segments and one with them."""
    world = Fleet((OLD, SLICED), parts_fewest=1, parts_methods=("base", "norm-sub"))
    world.configured = [SLICED, OLD]
    world.record(segments=dict.fromkeys(("DE", "FR", "US", "US:4.3"), Status()))
    world.restart()
    return world


def slices(world: Fleet, rng: random.Random, second: int, reports: int) -> None:
    for _ in range(reports):
        document = rng.choice((OLD, SLICED))
        segment = rng.choice(SEGMENTS) if document is SLICED else ""
        time = second * SECOND + rng.randrange(SECOND // 2)
        world.count(rng.randrange(2), document, rng.randrange(3), time, segment)


def segment_of(name: str) -> Callable[[Sent], bool]:
    return lambda sent: (sent.segment + ":").startswith(name + ":")


def test_segments_are_published_as_they_are_recounted(sliced: Fleet) -> None:
    rng = random.Random(7)
    for second in range(1, 8):
        slices(sliced, rng, second, 40)
        passed(sliced, second)
        sliced.tick()
    head = sliced.document
    assert head["segments"].keys() == {"DE", "US", "US:4.3"}
    covered, in_window = 0, within(4 * SECOND, 5 * SECOND)
    for name in ("DE", "US", "US:4.3"):
        part = sliced.read(f"fleet:{name}")
        sliced.demand(part, segment_of(name))
        assert head["segments"][name] == part.reports
        assert [*part.bodies] == ["base", "norm-sub"]
        assert part.labels == sliced.read().labels == ("red", "green", "blue", "pink")
        covered += part.reports if ":" not in name else 0
        window = sliced.window(f"fleet:{name}", "1s", 4 * SECOND)
        sliced.demand(window, lambda sent, name=name: in_window(sent) and segment_of(name)(sent))  # type: ignore[misc]
    assert head["hidden"] == len(sliced.sent) - covered > 0
    assert sliced.audit().difference is None
    assert not any(key.startswith(("fleet:FR/", "fleet:~", "fleet:US:~")) for key in sliced.keys)


def test_segments_and_hidden_reports_add_up_to_the_population(sliced: Fleet) -> None:
    """For each label, the sum over segments weighted by n is the population, to 1e-12."""
    slices(sliced, random.Random(8), 1, 400)
    sliced.tick()
    whole, parts = sliced.read(), [sliced.read(f"fleet:{name}") for name in ("DE", "US")]
    n, shares, known = sliced.recount(lambda sent: sent.segment in ("", "XX:1"))
    assert sliced.document["hidden"] == n
    labels = whole.labels or ()
    total = np.array([known.get(label, 0) * shares.get(label, 0.0) for label in labels])
    for part in parts:
        own = part.known if part.known is not None else np.full(len(labels), part.reports)
        total += np.where(own > 0, own * np.nan_to_num(part.bodies["base"].frequencies), 0.0)
    weights = whole.known if whole.known is not None else np.full(len(labels), whole.reports)
    np.testing.assert_allclose(total / weights, whole.bodies["base"].frequencies, atol=1e-12)


def test_the_rest_ratio_is_the_share_of_undeclared_segments(sliced: Fleet) -> None:
    """A report of DE:1 is in DE, which has no declared app."""
    sliced.count(0, OLD, 0, 0)
    sliced.tick()
    assert sliced.exported("segment_rest_ratio") is None
    for segment, n in {"DE:1": 4, "US:4.3": 3, "US:9.9": 2, "XX:1": 1}.items():
        for _ in range(n):
            sliced.count(1, SLICED, 0, 0, segment)
    sliced.tick()
    assert sliced.exported("segment_rest_ratio") == (2 + 1) / 10


def test_expired_windows_leave_no_segment(sliced: Fleet) -> None:
    for second in range(1, 12):
        slices(sliced, random.Random(second), second, 20)
        passed(sliced, second)
        sliced.tick()
    listed = {*sliced.document["windows"]["1s"]["starts"]}
    found = {int(key.split("/")[2]) for key in sliced.keys if key.startswith("fleet:US:4.3/1s/")}
    assert found
    assert found <= listed
    assert len(listed) < 8


def test_queries_of_the_configured_documents_are_answered_by_label() -> None:
    """The configuration joins labels newest first, the stream in the order of its head."""
    configured = ldp.Fleet((OTHER, NEW, OLD))
    queries = (SetQuery("warm", (0, 4)), SetQuery("old", (5,)), TopQuery("top", 5), TopQuery("two", 2))
    assert [[(configured.labels or ())[i] for i in query.values] for query in queries[:2]] == [  # type: ignore[union-attr]
        ["pink", "red"],
        ["green"],
    ]
    world = Fleet((OLD,), windows=False, queries=queries)
    fill(world, random.Random(9), 1, 50, (OLD,))
    world.tick()
    assert [answer.query for answer in world.read().bodies["base"].sets] == [SetQuery("old", (1,))]
    assert [answer.query.name for answer in world.read().bodies["base"].tops] == ["two"]
    world.add(NEW)
    world.add(OTHER)
    fill(world, random.Random(10), 2, 50)
    world.tick()
    whole = world.read()
    assert [answer.query for answer in whole.bodies["base"].sets] == [
        SetQuery("warm", (4, 0)),
        SetQuery("old", (1,)),
    ]
    assert [answer.query.name for answer in whole.bodies["base"].tops] == ["top", "two"]
    assert whole.bodies["base"].sets[1].frequency == whole.bodies["base"].frequencies[1]
