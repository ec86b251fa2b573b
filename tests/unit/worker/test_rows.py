"""The topic of rows, as the worker's own publishers leave it: whatever the configurations were that wrote it."""

import json
import random
from dataclasses import replace

import pytest

from ldp.snapshot import Closed, Period, Row, RowKey, Rows, Slots, slots
from tests.unit.ldp.test_rows import flat
from tests.unit.worker.audit.publishing import STREAM, World
from tests.unit.worker.audit.test_windows import HOPS, PLAIN, START, TENS
from worker.counting.head import Head
from worker.publishing import rows as planning
from worker.publishing.rows import RowTopic

RETAIN = 30_000


def world(seed, retain=RETAIN):
    return World(seed, (TENS, HOPS)[seed % 2], retain=retain, queries=True)


def topic(world, methods, top, name="rows"):
    return RowTopic(name, slots(methods, top, world.queries, STREAM.oracle.domain_size))


def bodies(world):
    """The bodies that are on the topic of snapshots now: window and start -> method -> document."""
    newest = {each.key: each.value for each in world.topic}
    found = {}
    for key, value in newest.items():
        if value and key.count("/") > 1:
            _, *which, method = key.split("/")
            where = (which[0], int(which[1]) if len(which) > 1 else 0)
            found.setdefault(where, {})[method] = json.loads(value)
    return found


def expected(said, where, places):
    """The rows of a window by its bodies' JSON: method, query, rank -> estimate, number, whether it is final."""
    found = {}
    base = said["base"]["frequencies"]
    order = sorted(range(len(base)), key=lambda v: (-base[v], v))
    for method in places.methods:
        body = said[method]
        answers = {("", i + 1): body["frequencies"][v] for i, v in enumerate(order[: places.ranks[""]])}
        answers |= {(one["name"], 1): one["frequency"] for one in body["queries"]}
        answers |= {
            (one["name"], i + 1): estimate
            for one in body["top"]
            for i, estimate in enumerate(one["frequencies"])
        }
        for (query, rank), estimate in answers.items():
            found["s", *where, method, query, rank] = (estimate, body["sequence"], body["window"]["final"])
    return found


def held(world):
    rows = flat([Row(key, value) for key, value in world.rows_there.items()])
    return {key: (row["estimate"], row["sequence"], row["final"]) for key, row in rows.items()}


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(n, marks=pytest.mark.long) for n in range(4, 12))]
)
def test_rows_match_their_windows_after_any_change_of_configuration(seed):
    """Publishers with other configurations, and some without rows, take turns."""
    rng, there = random.Random(seed), world(seed)
    choices = [(["base"], 2), (["norm-sub", "base"], 3), (["norm"], 1), (["base", "power"], 1), None]
    written = {}
    """Window -> positions of its rows from its last publisher; None if that one had no rows."""
    there.tick()
    gone = shrunk = 0
    for end in range(15, 121, 15):
        for each in there.partitions:
            each.counting.to(START + min(120, end + rng.randrange(5)), droppings=False)
        choice = rng.choice(choices)
        there.publisher = there.publisher_of(RETAIN, None if choice is None else topic(there, *choice))
        before = {where: body["base"]["sequence"] for where, body in bodies(there).items()}
        there.tick(rng.choice([1, 2]))
        after = bodies(there)
        places = None if choice is None else topic(there, *choice).slots
        for where, body in after.items():
            if before.get(where) != body["base"]["sequence"]:
                shrunk += None not in (places, written.get(where)) and places != written[where]
                written[where] = places
        gone += len(before.keys() - after.keys())
        if choice is None:
            continue
        due = {}
        for where, body in after.items():
            if written[where] is not None:
                due |= expected(body, where, written[where])
        found = held(there)
        known = {where for where in after if written[where] is not None}
        assert {key: row for key, row in found.items() if key[1:3] in known} == due
        assert {key[1:3] for key in found} <= after.keys(), "a window that is gone has rows"
    assert gone
    assert shrunk or seed % 3


def test_without_windows_the_rows_of_all_time_follow_the_configuration():
    there = World(3, PLAIN, queries=False)
    for choice in [(["base", "norm"], 3), (["base"], 1), (["norm"], 2)]:
        there.publisher = there.publisher_of(None, topic(there, *choice))
        there.run(
            to=there.partitions[0].counting.state.offset - START + 30,
            since=there.partitions[0].counting.state.offset - START,
        )
        places = topic(there, *choice).slots
        assert held(there) == expected(bodies(there)["all", 0], ("all", 0), places)


def test_newly_configured_rows_are_published_without_new_reports():
    there = World(3, PLAIN).run(to=60)
    number = there.open().sequence
    for choice in [(["base"], 2), (["norm"], 2), None]:
        there.publisher = there.publisher_of(None, None if choice is None else topic(there, *choice))
        there.tick(3)
        assert there.open().sequence == (number := number + 1)
        if choice is not None:
            assert held(there) == expected(bodies(there)["all", 0], ("all", 0), topic(there, *choice).slots)
    assert there.open().rows is None


def test_the_topic_is_read_only_if_the_head_omits_it():
    there, reads = world(1), []
    keys = there.rows
    there.rows = lambda: reads.append(1) or keys()
    for name, expected_reads in [("rows", 1), ("rows", 1), ("other", 2), (None, 2), ("other", 3)]:
        end = there.partitions[0].counting.state.offset - START
        choice = None if name is None else topic(there, ["base"], 2, name)
        there.publisher = there.publisher_of(RETAIN, choice)
        there.run(to=end + 20, since=end, step=10)
        assert len(reads) == expected_reads, name


def test_records_of_other_programs_are_kept():
    place = {"stream": "s", "window_name": "all", "window_start": 0, "method": "base", "query": "", "rank": 1}
    changes = [
        {"query": ["a"]},
        {"query": {}},
        {"rank": 1 << 40},
        {"rank": "1"},
        {"rank": True},
        {"method": "bass"},
    ]
    changes += [{"method": ["base"]}, {"window_name": 5}, {"window_name": "1x"}, {"window_start": "0"}]
    changes += [{"window_name": "10s", "window_start": 10**400}, {"window_name": "9" * 5000 + "s"}]
    foreign = {
        b'{"stream":"s","other":1}': b"x",
        b'{"stream":"s",': b"x",
        b'{"stream":"s",' + b"[" * 9999: b"x",
    }
    foreign |= {json.dumps(place | change, separators=(",", ":")).encode(): b"x" for change in changes}
    there = world(1)
    there.rows_there |= foreign
    there.publisher = there.publisher_of(RETAIN, topic(there, ["base"], 2))
    there.run(to=60)
    assert foreign.items() <= there.rows_there.items()


def test_forged_keys_delete_no_more_rows_than_a_snapshot_may_have():
    """A key of a billionth rank made the publisher write a billion tombstones, again and again."""
    there = world(1)
    for i in range(30):
        there.rows_there[RowKey("s", "all", 0, "base", f"q{i}", 100_000).encode()] = b"x"
        there.rows_there[RowKey("s", "10s", 10**13, "norm", f"q{i}", 100_000).encode()] = b"x"
    plan = topic(there, ["base"], 2).plan("s", Head(5), CLOSED, (), RETAIN, 100_000, lambda: there.rows_there)
    assert sum(plan.leaving.ranks.values()) <= 100_000
    assert sum(plan.older.ranks.values()) <= 100_000


def test_many_rows_of_deleted_windows_are_deleted_in_parts(monkeypatch):
    monkeypatch.setattr(planning, "MOST_DELETED", 4)
    there = world(1)
    there.publisher = there.publisher_of(RETAIN, topic(there, ["base"], 3))
    there.run(to=60)
    old = bodies(there).keys() - {("all", 0)}
    there.publisher = there.publisher_of(RETAIN)
    there.run(to=100, since=60)
    gone = {key for key in there.rows_there if (RowKey.parse(key)[1:3]) in old - bodies(there).keys()}
    assert len(gone) > 4
    there.publisher = there.publisher_of(RETAIN, topic(there, ["base"], 3))
    left, number = len(gone), there.open().sequence
    while there.open().rows is None:
        there.tick()
        assert there.open().sequence == (number := number + 1)
        before, left = left, len(gone & there.rows_there.keys())
        assert left == max(0, before - 4)
    assert left == 0


CLOSED = {"10s": Closed(100_000, starts=(50_000, 90_000))}
A, B = Slots(("base",), {"": 3}), Slots(("norm",), {"": 1})


@pytest.mark.parametrize(
    ("head", "progress", "older"),
    [
        (Rows("rows", B), CLOSED, (None, 0)),
        (Rows("rows", A), CLOSED, (A, 100_000)),
        (Rows("rows", A, B, 60_000), CLOSED, (A | B, 100_000)),
        (Rows("rows", B, A, 60_000), CLOSED, (A, 60_000)),
        # no existing or open window ends by then
        (Rows("rows", B, A, 50_000), CLOSED, (None, 0)),
        (Rows("rows", B, A, 110_000), {"10s": Closed(100_000)}, (A, 110_000)),
        (Rows("rows", B, A, 100_000), {"10s": Closed(100_000)}, (None, 0)),
    ],
)
def test_a_head_keeps_rows_of_an_earlier_configuration(head, progress, older):
    plan = RowTopic("rows", B).plan("s", Head(5, rows=head), progress, (), RETAIN, 100_000, lambda: 1 / 0)
    assert plan.rows == Rows("rows", B, *older)


def test_a_deleted_window_deletes_rows_of_earlier_configurations():
    plan = RowTopic("rows", B).plan(
        "s", Head(5, rows=Rows("rows", B, A, 60_000)), CLOSED, (), RETAIN, 100_000, lambda: 1 / 0
    )

    def gone(start):
        deleted = plan.deleted(Period("10s", start, start + 10_000))
        return sorted((key.method, key.rank) for key in (RowKey.parse(row.key) for row in deleted))

    assert {("base", 1), ("base", 2), ("base", 3), ("norm", 1)} <= {*gone(50_000)}
    assert gone(51_000) == [("norm", 1)]
    assert plan.deleted(Period("10s", 51_000, 61_000))[0].value == b""


def test_without_a_topic_no_rows_are_planned_or_deleted():
    none = RowTopic()
    head = Head(5, rows=Rows("rows", A))
    plan = none.plan("s", head, CLOSED, (), RETAIN, 100_000, lambda: 1 / 0)
    assert (plan.rows, plan.stale, plan.deleted(Period("10s", 0, 10_000))) == (None, (), [])
    assert none.carried(head) is None
    assert not none.is_recorded(head)
    assert none.is_recorded(replace(head, rows=None))
