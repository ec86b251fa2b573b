"""`snapshots.methods`: fewer published methods, and deleted messages of the former ones."""

import json
import random
from types import SimpleNamespace

import numpy as np
import pytest

import ldp
from ldp import snapshot
from ldp.analysis import method_selection
from ldp.consistency import FOR_ONE_VALUE, METHODS
from ldp.query import SetQuery, TopQuery
from ldp.snapshot import encoding
from tests.unit.worker.audit.publishing import World
from tests.unit.worker.audit.test_windows import HOPS, PLAIN, START, TENS
from worker import check
from worker.config import ConfigError, parse
from worker.service import publishing

RETAIN = 40_000
CHOICES = [("base",), ("base", "norm-sub"), ("base", "norm", "power-ns"), tuple(METHODS)]
STREAM = '[[streams]]\nname = "s"\ntopic = "t"\nprotocol = "grr"\nepsilon = "1"\ndomain_size = 4\n'


def there(world):
    """The keys that are on the topic now, by what they are of: window and start -> methods with all their messages."""
    newest = {each.key: each.value for each in world.topic}
    found = {}
    for key in (
        key for key, value in newest.items() if value and key.count("/") > 1 and "/domain/" not in key
    ):
        _, *which = key.split("/")
        where = which[:1] if which[0] == "all" else which[:2]
        method, *_ = which[len(where) :]
        found.setdefault("/".join(where), set()).add(method)
    return found


def received(world):
    return {each.key: (each.headers, each.value) for each in world.topic if each.value}


@pytest.mark.parametrize(("seed", "chunked"), [(0, False), (2, True), (3, True)])
def test_the_topic_keeps_only_the_methods_of_the_last_publisher(seed, chunked, monkeypatch):
    """Publishers with other methods take turns, while windows open, become final and are deleted."""
    if chunked:
        for name, value in (("INLINE", 2), ("CHUNK", 2)):
            monkeypatch.setattr(encoding, name, value)
        monkeypatch.setattr(encoding.encode, "__defaults__", (2, 2))
        monkeypatch.setattr(encoding.encode_window, "__defaults__", (2, 2))
    rng, world = random.Random(seed), World(seed, (TENS, HOPS)[seed % 2], retain=RETAIN, queries=True)
    written, gone, fewer = {}, 0, 0
    for end in range(15, 121, 15):
        for each in world.partitions:
            each.counting.to(START + min(120, end + rng.randrange(5)), droppings=False)
        methods = rng.choice(CHOICES)
        world.publisher = world.publisher_of(RETAIN, methods=methods)
        at, before = len(world.topic), there(world)
        world.tick(rng.choice([1, 2]))
        for each in world.topic[at:]:
            if each.value and each.key.count("/") > 1 and each.key.split("/")[-1] == "base":
                where = each.key[len("s/") : -len("/base")]
                fewer += len(written.get(where, ())) > len(methods)
                written[where] = set(methods)
        after = there(world)
        assert after == {where: written[where] for where in after}
        assert after["all"] == set(methods)
        assert set(snapshot.assemble("s", received(world)).bodies) == set(methods)
        for period in snapshot.windows("s", received(world)):
            whole = snapshot.assemble_window("s", received(world), period.name, period.start)
            assert set(whole.bodies) == written[f"{period.name}/{period.start}"]
        gone += len(before.keys() - after.keys())
    assert gone
    assert fewer
    assert world.audit().difference is None
    assert world.audit(topic=world.compacted()).difference is None


def test_new_methods_are_published_once_without_new_reports():
    world = World(3, PLAIN).run(to=60)
    number = world.open().sequence
    for methods in (("base",), ("base", "norm"), tuple(METHODS)):
        world.publisher = world.publisher_of(None, methods=methods)
        world.tick(3)
        assert (world.open().sequence, world.open().methods) == (number := number + 1, methods)


def test_after_a_head_without_methods_all_old_methods_are_deleted():
    world = World(3, PLAIN).run(to=60)
    assert "methods" not in world.head()
    assert world.open().methods == tuple(METHODS)
    world.publisher = world.publisher_of(None, methods=("base",))
    world.tick()
    assert there(world) == {"all": {"base"}}


def test_leftover_methods_and_a_head_with_other_methods_are_detected():
    world = World(3, PLAIN).run(to=60)
    at = len(world.topic)
    world.publisher = world.publisher_of(None, methods=("base", "norm"))
    world.tick()
    assert world.audit().difference is None
    kept = [each for each in world.topic[at:] if each.value or not each.key.endswith("/power")]
    assert "all/power of an earlier snapshot" in world.audit(
        topic=[*world.topic[:at], *kept]
    ).difference.replace("power of", "all/power of")
    (head,) = [each for each in world.topic[at:] if each.key == "s/head"]
    said = json.loads(head.value)
    head.value = json.dumps(said | {"methods": ["base", "norm-sub"]}).encode()
    assert "the head has methods" in world.audit().difference


def test_only_published_methods_are_recommended():
    stream = ldp.Stream("s", ldp.GRR("1", 30))
    rng = np.random.default_rng(4)
    population = np.arange(30) ** 2
    estimate = stream.oracle.estimate(stream.oracle.simulate(population, rng), int(population.sum()))
    queries = [SetQuery("low", list(range(15))), TopQuery("most", 3), method_selection.Values()]
    every = method_selection.choose_all(estimate, queries, np.random.default_rng(1))
    some = method_selection.choose_all(
        estimate, queries, np.random.default_rng(1), methods=("norm", "base", "power")
    )
    alone = method_selection.choose_all(estimate, queries, np.random.default_rng(1), methods=["base"])
    for ranking, few, one in zip(every, some, alone, strict=True):
        assert {row.method for row in few.rows} == {"base", "norm", "power"}
        assert {row.method: row.simulated for row in few.rows}.items() <= {
            row.method: row.simulated for row in ranking.rows
        }.items()
        assert ([row.method for row in one.rows], one.confidence >= 0.8) == (["base"], True)
    with pytest.raises(ValueError, match="methods are none"):
        method_selection.choose_all(estimate, queries, rng, methods=())


def test_configured_methods_follow_the_order_of_the_paper():
    assert parse(STREAM).snapshots.methods == list(METHODS)
    assert parse('[snapshots]\nmethods = ["norm-sub", "base"]\n' + STREAM).snapshots.methods == [
        "base",
        "norm-sub",
    ]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ('[snapshots]\nmethods = ["norm-sub"]\n', "snapshots.methods: "),
        ("[snapshots]\nmethods = []\n", "allowed is a list with base and any others"),
        ('[snapshots]\nmethods = ["base", "base"]\n', "each once"),
        ('[snapshots]\nmethods = ["base", "median"]\n', "snapshots.methods: "),
        (
            '[snapshots]\nmethods = ["base"]\n[rows]\ntopic = "r"\n',
            "rows.methods: norm-sub given; allowed are those of snapshots.methods, base",
        ),
    ],
)
def test_invalid_methods_are_refused(given, said):
    with pytest.raises(ConfigError, match=said):
        parse(given + STREAM)


def test_rows_may_name_published_methods():
    parse('[snapshots]\nmethods = ["base", "norm"]\n[rows]\ntopic = "r"\nmethods = ["norm"]\n' + STREAM)
    parse('[snapshots]\nmethods = ["base"]\n' + STREAM)


BIT = '[[streams]]\nname = "bit"\ntopic = "b"\nprotocol = "unary"\np = "3/4"\nq = "1/4"\ndomain_size = 1\n'


def test_a_stream_of_one_value_has_only_methods_without_a_sum():
    """All streams share `snapshots.methods`; one value leaves out those that do not apply to it."""
    config = parse('[rows]\ntopic = "r"\n' + STREAM + BIT)
    methods = []
    for served in config.streams:
        made = publishing.publisher(config, served, None, None, SimpleNamespace(uncounted=None), *[None] * 3)
        methods.append(tuple(made._content.methods))
    assert methods == [tuple(METHODS), FOR_ONE_VALUE]
    assert [config.slots(served).methods for served in config.streams] == [("base", "norm-sub"), ("base",)]
    with pytest.raises(ConfigError, match=r"norm-sub given for one value; .* stream bit has one"):
        parse('[rows]\ntopic = "r"\nmethods = ["norm-sub"]\n' + STREAM + BIT)
    (found,) = check.assess_streams(config)
    assert (found.level, found.subject) == (check.Level.WARNING, "stream bit")
    assert "two values, such as the labels no,yes" in found.text
