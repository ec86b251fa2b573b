"""The release rule for several documents: published counts of each change by at least m reports."""

import json
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import ldp
from ldp.snapshot import LATE, Incomplete, Message, chunks
from tests.unit.worker.fleets import SECOND, Fleet
from tests.unit.worker.test_release_rule import smallest_class
from worker.counting.ports import StateLost, Unavailable
from worker.counting.rules import Status

REPORTS = 160
LABELS = [f"report {i}" for i in range(REPORTS)]
DOCUMENTS = tuple(
    ldp.Stream("fleet", ldp.GRR(epsilon, REPORTS), LABELS, segment=segment)
    for epsilon, segment in (
        ("1", None),
        ("2", None),
        ("3", None),
        ("2", "country:app"),
        ("3", "country:app"),
    )
)
NAMES = [document.fingerprint.hex() for document in DOCUMENTS]
SEGMENTS = ("US:1", "DE:1", "US:9", "DE:1", "DE:1", "FR:1")  # the cells US:1, DE:~, US:~ and ~


class Marked(Fleet):
    """A fleet in which each report has another label, so that a vector shows which reports it covers."""

    def __init__(
        self,
        fewest_new: int,
        documents: int = 2,
        windows: bool = True,
        of: Sequence[ldp.Stream] = DOCUMENTS,
        **content: Any,
    ) -> None:
        self.documents = of[:documents]
        super().__init__(self.documents, fewest_new, windows, methods=("base",), **content)
        self.content |= {"parts_methods": ("base",)}
        self.record(segments={"US:1": Status(), "DE": Status()})
        self.configured = [*reversed(DOCUMENTS)]
        self.restart()

    def mark(self, document: ldp.Stream, time: int, partition: int = 0) -> None:
        if (at := len(self.sent)) < REPORTS:
            segment = "" if document.segment is None else SEGMENTS[at * at % 31 % len(SEGMENTS)]
            self.count(partition, document, at, time, segment)

    def covered(self, name: str = "fleet", window: tuple[str, int | None] | None = None) -> Any:
        """Returns the reports that a published vector covers, or None."""
        try:
            taken = self.read(name) if window is None else self.window(name, *window)  # type: ignore[arg-type]
        except Incomplete:
            return None
        of = {f"fleet@{each.fingerprint.hex()}": [each] for each in DOCUMENTS}.get(name, DOCUMENTS)
        reports = {one["fingerprint"]: one["reports"] for one in taken.documents}
        reports = reports or {taken.fingerprint: taken.reports}
        scaled = taken.reports * taken.bodies["base"].frequencies
        for document in of:
            p, q = float(document.oracle.p), float(document.oracle.q)
            scaled = scaled + reports.get(document.fingerprint.hex(), 0) * q / (p - q)
        shown = np.array(scaled > 1e-6, int)
        assert shown.sum() == taken.reports
        return shown

    def vectors(self) -> list[Any]:
        """Returns all vectors that are on the topic now."""
        segments = [f"fleet:{segment}" for segment in ("US", "US:1", "DE")]
        names = ["fleet", *(f"fleet@{name}" for name in NAMES), *segments]
        windows = {tuple(key.split("/")[1:3]) for key in self.keys if "s/" in key and "1s" in key}
        places: list[Any] = [None, (LATE.name, None), *((name, int(start)) for name, start in windows)]
        found = [shown for n in names for w in places if (shown := self.covered(n, w)) is not None]
        counts = [key for key in self.keys if "/released/" in key]  # for the next publisher
        types = {key: self.topic[key][0]["content-type"].decode() for key in counts}
        return found + [chunks.read(types[key], self.topic[key][1]).astype(int) for key in counts]


def turn(world: Marked, rng: random.Random, second: int) -> None:
    for _ in range(rng.choice((0, 3, 12))):
        document = rng.choices(world.documents, [8, 2, 1][: len(world.documents)])[0]
        time = max(0, second - rng.choice((0, 0, 0, 0, 3))) * SECOND + rng.randrange(1000)
        world.mark(document, time, rng.randrange(2))
    world.tick()
    if rng.random() < 0.2:
        world.restart()


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("windows", [True, False])
@pytest.mark.parametrize("of", [DOCUMENTS, DOCUMENTS[3:2:-1] + DOCUMENTS[:1] + DOCUMENTS[4:]])
def test_every_combination_of_published_vectors_covers_m_reports(
    seed: int, windows: bool, of: Sequence[ldp.Stream]
) -> None:
    rng = random.Random(seed)
    m, documents = rng.choice((2, 3, 5)), rng.choice((1, 2))
    world, vectors = Marked(m, documents, windows, of, parts_fewest=rng.choice((1, 7))), list[Any]()
    world.tick()
    for second in range(1, 24):
        if second == 12:  # a document is added while the limit is in force
            world.add(of[documents])
            world.documents = of[: documents + 1]
        turn(world, rng, second)
        vectors += world.vectors()
        assert second % 6 or not world.document["reports"] or world.audit().difference is None
    if vectors:
        assert smallest_class(np.unique(np.array(vectors), axis=0)) >= m
    cells = {"US:1": "US:1", "US:9": "US:~", "DE:1": "DE:~", "FR:1": "~", "": ""}
    waiting = Counter[tuple[str, str]]()
    for one in world.sent:
        waiting[one.document.fingerprint.hex(), cells[one.segment]] += 1
    closed = world.document.get("released", {"closed": 0})["closed"]
    assert closed >= min(state.windows.closed for state in world.states) // SECOND * SECOND - SECOND * windows
    for one in world.sent:
        waits = one.pane is not None and one.pane >= closed
        waiting[one.document.fingerprint.hex(), cells[one.segment]] -= waits
    records = {key: value for key, (_, value) in world.topic.items() if key.endswith("/released") and value}
    shown = {key: json.loads(value)["reports"]["all"] for key, value in records.items()}
    left = {key: n - shown.get(f"fleet@{':'.join(key)}/released", 0) for key, n in waiting.items()}
    assert max(left.values()) < m
    assert world.audit().difference is None


def test_a_segment_without_released_reports_has_no_message() -> None:
    world = Marked(10, 1, windows=False, of=DOCUMENTS[3:])
    for i in range(14):
        world.count(0, DOCUMENTS[3], i, SECOND, "US:1" if i < 12 else "DE:1")
    world.tick()
    name = f"fleet@{DOCUMENTS[3].fingerprint.hex()}:US:1/released"
    assert world.document["reports"] == 12
    assert {key for key in world.topic if "/released" in key} == {name, f"{name}/all/0", f"{name}/late/0"}


def test_a_publisher_that_takes_over_reads_the_counts_of_each_document() -> None:
    world = Marked(3, parts_fewest=1)
    world.tick()
    for second in range(1, 9):
        for partition in range(2):
            for document in DOCUMENTS[:2]:
                for i in range(3):
                    world.mark(document, second * SECOND + i, partition)
        world.tick()
    reports = [one["reports"] for one in world.document["documents"]]
    for _ in range(3):
        for document in DOCUMENTS[:2]:
            world.mark(document, 0)
    world.tick()
    places = [(f"fleet@{name}", ("late", None)) for name in NAMES[:2]]
    late = [world.covered(*place).sum() for place in places]
    assert late == [3, 3]
    reports = [n + 3 for n in reports]
    world.restart()
    world.tick()
    assert [one["reports"] for one in world.document["documents"]] == reports
    assert min(reports) > 20
    for _ in range(3):
        world.mark(DOCUMENTS[0], 0)
    world.tick()
    assert [one["reports"] for one in world.document["documents"]] == [reports[0] + 3, reports[1]]
    assert [world.covered(*place).sum() for place in places] == [6, 3]
    world.add(DOCUMENTS[2])
    world.mark(DOCUMENTS[2], 0)
    world.tick()
    assert len(world.document["documents"]) == 3
    assert world.audit().difference is None


def test_an_aborted_snapshot_can_differ_from_the_next_one_by_a_single_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The rule covers committed snapshots: a consumer of uncommitted messages reads the aborted one, too."""
    world, aborted = Marked(3, windows=False), list[Message]()

    def abort(sequence: int, messages: Sequence[Message], rows: Sequence[object]) -> None:
        aborted.extend(messages)
        raise Unavailable("the transaction is aborted")

    for _ in range(3):
        world.mark(DOCUMENTS[0], 0)
    with monkeypatch.context() as patch:
        patch.setattr(world, "publish", abort)
        world.tick()
    assert "fleet/head" not in world.topic
    world.mark(DOCUMENTS[0], 0)
    world.tick()
    bodies = [json.loads(one.body) for one in aborted if one.key == "fleet/all/base"]
    assert world.document["reports"] - bodies[0]["reports"] == 1


def test_late_reports_of_a_part_are_published_by_the_new_configuration() -> None:
    """A publisher that takes over deletes `late` of parts with too few reports, and former methods of the others."""
    world = Marked(3, 1, of=DOCUMENTS[3:], parts_fewest=1)
    world.content["parts_methods"] = ("base", "norm-sub")
    world.restart()
    world.tick()
    late = [f"fleet:{segment}/late/{method}" for segment in ("DE", "US") for method in ("base", "norm-sub")]

    def tick(*reports: str) -> list[str]:
        for segment in reports:
            world.count(0, DOCUMENTS[3], len(world.sent), 0, segment)
        world.tick()
        assert world.audit().difference is None
        return [key for key in late if key in world.keys]

    for second in range(1, 5):
        for partition in range(2):
            world.count(partition, DOCUMENTS[3], len(world.sent), second * SECOND, "FR:1")
    assert tick() == []
    assert tick(*["DE:1"] * 9, *["US:1"] * 3) == late
    world.content |= {"parts_fewest": 5, "parts_methods": ("base",)}
    world.restart()
    assert tick(*["FR:1"] * 3) == late[:1]
    assert tick(*["DE:1"] * 2) == late[:1]
    assert tick(*["DE:1", "US:1", "US:1", "US:1"]) == [late[0], late[2]]


def test_late_reports_of_a_part_are_published_again_with_the_next_limit() -> None:
    world = Marked(0, 2, parts_fewest=1)
    late = [f"fleet@{name}/late/base" for name in NAMES[:2]]
    for i in range(12):
        world.mark(DOCUMENTS[i % 2], 0)
    for limit in (0, 3, 0, 3):  # no report is new
        world.limit(limit)
        world.tick()
        assert [key for key in late if key in world.keys] == late * (limit > 0)
        assert world.audit().difference is None


def test_a_limit_begins_when_no_document_has_a_few_new_reports() -> None:
    """The messages of former snapshots do not show the counts of each document."""
    world = Marked(0, windows=False)
    for _ in range(4):
        world.mark(DOCUMENTS[0], 0)
        world.mark(DOCUMENTS[1], 0)
    world.tick()
    world.mark(DOCUMENTS[0], 0)
    world.tick()
    assert world.document["reports"] == 9
    world.limit(3)
    world.mark(DOCUMENTS[1], 0)
    world.tick()
    assert world.document["reports"] == 9
    assert "document " + NAMES[1] + " has 1 new reports since snapshot 2" in world.told[-1][1]["error"]
    world.restart()
    world.mark(DOCUMENTS[1], 0)
    world.tick()
    assert world.document["reports"] == 9
    world.mark(DOCUMENTS[1], 0)
    world.tick()
    assert world.document["reports"] == 12
    assert "released" in world.document
    before = world.covered(f"fleet@{NAMES[0]}")
    assert before.sum() == 5
    world.mark(DOCUMENTS[0], 0)
    world.restart()
    world.tick()
    assert (world.covered(f"fleet@{NAMES[0]}") == before).all()
    assert world.audit().difference is None


def test_a_head_has_the_largest_privacy_loss_of_its_documents() -> None:
    world = Marked(20, windows=False)
    for _ in range(40):
        for document in DOCUMENTS[:2]:
            world.mark(document, 0)
    world.tick()
    loss = world.document["privacy_loss"]
    assert (loss["fewest_new"], loss["operator"]) == (20, 2.0)
    single = Fleet(DOCUMENTS[1:2], 20, windows=False)
    single.configured = [DOCUMENTS[1]]
    single.restart()
    for i in range(20):
        single.count(0, DOCUMENTS[1], i, 0)
    single.tick()
    assert loss == single.document["privacy_loss"]


def test_a_document_that_the_messages_lack_stops_the_stream() -> None:
    world = Marked(3, windows=False)
    for _ in range(3):
        for document in DOCUMENTS[:2]:
            world.mark(document, 0)
    world.tick()
    for key in world.keys:
        if key.startswith(f"fleet@{NAMES[1]}:/"):
            world.topic[key] = {}, b""
    world.restart()
    with pytest.raises(StateLost, match="the messages of snapshot 1 are missing"):
        world.tick()


@pytest.mark.parametrize("named", [True, False])
def test_a_limit_of_segments_begins_without_new_reports(named: bool) -> None:
    """The messages of former snapshots do not show the counts of each segment."""
    world = Marked(0, 1, False, DOCUMENTS[4:]) if named else Marked(0, 1, False)
    for _ in range(4):
        world.mark(world.documents[0], 0)
    world.tick()
    world.limit(3)
    for _ in range(3):
        world.mark(world.documents[0], 0)
    world.restart()
    world.tick()
    assert world.document["reports"] == (4 if named else 7)
    assert ("none new reports that name a segment" in str(world.told)) == named


@pytest.mark.parametrize("listed", [True, False])
def test_a_limit_begins_with_the_first_reports_of_segments(listed: bool) -> None:
    world = Marked(0, 1, False)
    if listed:
        world.add(DOCUMENTS[3])
    for _ in range(4):
        world.mark(DOCUMENTS[0], 0)
    world.tick()
    if not listed:
        world.add(DOCUMENTS[3])
    world.documents = [DOCUMENTS[0], DOCUMENTS[3]]
    world.limit(3)
    for _ in range(40):
        world.mark(DOCUMENTS[3], 0)
    world.restart()
    world.tick()
    assert world.document["reports"] > 4
    assert world.audit().difference is None


@pytest.mark.parametrize("seed", range(6))
def test_limits_begin_and_end_while_a_stream_has_several_documents(seed: int) -> None:
    """After the last snapshot without a limit, counts of all time change by at least m reports of a document."""
    rng, vectors = random.Random(seed), list[Any]()
    world = Marked(0, 2, parts_fewest=1)
    world.tick()
    for second in range(1, 8):
        turn(world, rng, second)
    later = world.covered() == 0  # without a limit, a document can have a single report
    world.limit(3)
    for second in range(8, 24):
        turn(world, rng, second)
        assert "released" not in world.document or world.audit().difference is None
        vectors += [
            shown for name in ("fleet", *places_of(world)) if (shown := world.covered(name)) is not None
        ]
    assert "released" in world.document
    assert smallest_class(np.unique(np.array(vectors)[:, later], axis=0)) >= 3
    world.limit(0)
    turn(world, rng, 24)
    assert not any("/late/" in key for key in world.keys)
    assert world.document["reports"] == len(world.sent)
    assert world.audit().difference is None


def places_of(world: Marked) -> list[str]:
    """Returns the documents that are published under the limit."""
    return [f"fleet@{name}" for name in NAMES] if "released" in world.document else []
