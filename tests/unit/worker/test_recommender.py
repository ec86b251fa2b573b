"""Recommendations are computed while publishing continues, in time, and appear in later snapshots."""

import json
import threading
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import numpy as np
import pytest

import ldp
from ldp import frames, snapshot
from ldp.analysis.method_selection import Ranked, Ranking, choose
from ldp.query import SetQuery, TopQuery
from worker.counting import layout
from worker.counting.columns import Batch, Columns
from worker.counting.head import Head
from worker.counting.lineage import lineage_of
from worker.counting.partition_state import PartitionState
from worker.counting.ports import StoredPartition
from worker.counting.windows import ALL
from worker.observe.events import StreamEvents
from worker.observe.metrics import Metrics
from worker.observe.progress import Progress
from worker.publishing import recommender
from worker.publishing.planning import Content
from worker.publishing.publisher import Group, Publisher
from worker.publishing.recommender import Recommender

SCHEMA = json.loads((Path(snapshot.__file__).parent / "snapshot.schema.json").read_text())
STREAM = ldp.Stream("s", ldp.GRR("1", 6))
THREE = TopQuery("three", 3)
QUERIES = (SetQuery("pair", (1, 4)), SetQuery("all but one", (0, 1, 2, 3, 4)), THREE)
ONE = (TopQuery("one", 1),)
COUNTS = np.array([400, 100, 90, 80, 70, 60])
ESTIMATE = STREAM.oracle.estimate(COUNTS, 800)
MORE = STREAM.oracle.estimate(2 * COUNTS, 1600)


class Bench:
    """A recommender with a clock and an executor under the test's control."""

    def __init__(self, stream=STREAM, queries=QUERIES):
        self.now, self.work, self.told, self.metrics = 0.0, [], [], Metrics()
        log = SimpleNamespace(info=self.tell, warning=self.tell)
        self.events = StreamEvents(stream.name, self.metrics, Progress(), log)
        self.recommender = Recommender(queries, self.events, lambda: self.now, self.work.append)

    def tell(self, event, **facts):
        self.told.append((event, facts))

    def finish(self, seconds=0.0):
        (work,) = self.work
        self.work.clear()
        began = self.now
        clock = iter([began, began + seconds])
        self.recommender._clock = lambda: next(clock)
        work()
        self.now = began + seconds
        self.recommender._clock = lambda: self.now

    def failures(self):
        return self.metrics.registry.get_sample_value(
            "ldp_worker_errors_total", {"stream": "s", "step": "recommend"}
        )


def test_the_recommendation_uses_the_sequence_as_seed():
    bench = Bench()
    bench.recommender.offer(41, ESTIMATE)
    assert bench.recommender.latest == {}
    bench.finish()
    ranking = choose(ESTIMATE, THREE, np.random.default_rng(41), 50)
    found = bench.recommender.latest["three"]
    assert (found.method, found.sequence) == (ranking.best, 41)
    assert set(bench.recommender.latest) <= {"pair", "all but one", "three"}


def test_without_a_clear_winner_there_is_no_recommendation():
    bench = Bench()
    bench.recommender.offer(41, ESTIMATE)
    bench.finish()
    clear = {query.name: choose(ESTIMATE, query, np.random.default_rng(41), 50).clear for query in QUERIES}
    assert clear == {"pair": False, "all but one": False, "three": True}
    assert list(bench.recommender.latest) == ["three"]
    assert bench.recommender.methods == {"three": "norm-cut"}


def test_recommendations_run_one_at_a_time_at_intervals():
    bench = Bench()
    bench.recommender.offer(1, ESTIMATE)
    bench.now = 500.0
    bench.recommender.offer(2, ESTIMATE)  # the first still runs
    assert len(bench.work) == 1
    bench.now = 0.0
    bench.finish(seconds=2.0)
    for now, begun in ((59.9, 0), (60.0, 1)):
        bench.now = now
        bench.recommender.offer(3, MORE)
        assert len(bench.work) == begun
    bench.finish()
    assert {found.sequence for found in bench.recommender.latest.values()} == {3}


def test_the_recommender_uses_at_most_a_tenth_of_a_core():
    bench = Bench()
    bench.recommender.offer(1, ESTIMATE)
    bench.finish(seconds=10.0)
    for now, begun in ((99.9, 0), (100.0, 1)):
        bench.now = now
        bench.recommender.offer(2, MORE)
        assert len(bench.work) == begun


def of_one_value(oracle):
    return oracle.estimate([800] + [0] * (oracle.domain_size - 1), 800)


def test_large_domains_have_fewer_simulations_and_the_largest_none(monkeypatch):
    asked = []
    monkeypatch.setattr(recommender, "choose_all", lambda *arguments: asked.append(arguments[3]) or [])
    for size, repeats in ((6, 50), (209_715, 50), (209_716, 49), (1 << 20, 10)):
        bench = Bench(queries=ONE)
        bench.recommender.offer(1, of_one_value(ldp.GRR("1", size)))
        bench.work[0]()
        assert asked.pop() == repeats
    for queries, oracle in ((ONE, ldp.GRR("1", (1 << 20) + 1)), (ONE, ldp.OUE("1", 1)), ((), STREAM.oracle)):
        bench = Bench(queries=queries)
        bench.recommender.offer(1, of_one_value(oracle))
        assert not bench.work


def test_a_failure_is_counted_logged_and_retried_later(monkeypatch):
    bench = Bench()
    bench.recommender.offer(1, ESTIMATE)
    bench.finish()
    known = bench.recommender.latest

    def fail(*_):
        raise MemoryError("too large")

    bench.now = 60.0
    with monkeypatch.context() as patch:
        patch.setattr(recommender, "choose_all", fail)
        bench.recommender.offer(2, MORE)
        bench.finish()
    assert bench.failures() == 1
    assert bench.told == [("recommend.failed", {"sequence": 2, "error": "MemoryError: too large"})]
    assert bench.recommender.latest is known
    bench.now = 120.0
    bench.recommender.offer(3, MORE)
    bench.finish()
    assert bench.recommender.latest["three"].sequence == 3


def test_unchanged_reports_are_not_evaluated_again():
    bench = Bench()
    bench.recommender.offer(1, ESTIMATE)
    bench.finish()
    bench.now = 3600.0
    bench.recommender.offer(2, ESTIMATE)
    assert not bench.work
    bench.recommender.offer(2, MORE)
    assert len(bench.work) == 1


def test_a_background_run_blocks_neither_the_caller_nor_the_exit():
    going_on, seen = threading.Event(), []

    def work():
        assert going_on.wait(60)
        seen.append(threading.current_thread())

    recommender.in_background(work)
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "recommend"]
    assert thread.daemon
    going_on.set()
    thread.join(60)
    assert seen == [thread]


# in snapshots


class Counted:
    """A store whose one partition has a chosen number of reports."""

    def __init__(self):
        self.state = PartitionState.fresh(ldp.Fleet((STREAM,)), 0)
        self.metadata = layout.initial(lineage_of("group", "topic-1"), self.state)

    def count(self, values):
        reports = np.array([(value,) for value in values], STREAM.oracle.report_dtype)
        offset = self.state.offset
        columns = Columns.of([offset], [1000], [frames.encode(STREAM, reports)])
        self.state.apply(Batch(0, offset, offset + 1, columns))

    def peek(self, _):
        return self.metadata

    def cut_all(self, _):
        return {0: StoredPartition(*layout.dump(self.state, self.metadata, "ab" * 16))}


class Published:
    """A snapshot producer that keeps the bodies of each snapshot."""

    def __init__(self):
        self.snapshots = []

    def open(self):
        return Head()

    def rows(self):
        return []

    def publish(self, _, messages, rows=()):
        self.snapshots.append(
            [json.loads(m.body) for m in messages if m.key.startswith(f"s/{ALL}/")],
        )

    def close(self):
        pass


def publishing(bench, counted, snapshot_producer):
    """A publisher of a topic with one partition, which it owns."""
    return Publisher(
        ldp.Fleet((STREAM,)),
        Content(QUERIES),
        counted,
        snapshot_producer,
        Group(lambda: [0], lambda _: [], lambda: 1),
        bench.recommender,
        bench.events,
    )


def test_snapshots_carry_the_latest_recommendation_without_waiting():
    bench, counted, snapshot_producer = Bench(), Counted(), Published()
    publisher = publishing(bench, counted, snapshot_producer)
    validator = jsonschema.Draft202012Validator(SCHEMA)
    for step in range(4):
        counted.count([0, 0, 1, 5])
        publisher.tick()
        if step == 1:  # two snapshots were published during the computation
            bench.finish()
        bodies = snapshot_producer.snapshots[-1]
        assert len(snapshot_producer.snapshots) == step + 1
        assert len(bodies) == 11
        for body in bodies:
            validator.validate(body)
            asked = [*body["queries"], *body["top"]]
            assert [query["name"] for query in asked] == ["pair", "all but one", "three"]
            for query in asked:
                found = bench.recommender.latest.get(query["name"]) if step > 1 else None
                said = {"method": found.method, "sequence": 1} if found else None
                assert query["recommended"] == said


def test_a_changed_recommendation_is_published_without_new_reports(monkeypatch):
    bench, counted, snapshot_producer = Bench(), Counted(), Published()
    publisher = publishing(bench, counted, snapshot_producer)
    said = {"pair": "base", "all but one": "norm", "three": "norm-cut"}

    def ranked(*_):
        return [
            Ranking((Ranked(method, 1.0, 1.0),), 1.0 if method else 0.0, 0.0, 1.0) for method in said.values()
        ]

    def recommended():
        body = snapshot_producer.snapshots[-1][0]
        answers = [*body["queries"], *body["top"]]
        return (
            body["sequence"],
            body["reports"],
            {query["name"]: query["recommended"] and query["recommended"]["method"] for query in answers},
        )

    monkeypatch.setattr(recommender, "choose_all", ranked)
    counted.count([0, 0, 1, 5])
    publisher.tick()
    assert recommended() == (1, 4, dict.fromkeys(said))
    publisher.tick()
    assert len(snapshot_producer.snapshots) == 1  # nothing is new
    bench.finish()
    publisher.tick()
    assert recommended() == (2, 4, said)
    bench.now = 3600.0
    publisher.tick()
    assert len(snapshot_producer.snapshots) == 2
    assert not bench.work  # and no computation is needed
    counted.count([1])
    publisher.tick()
    assert recommended() == (3, 5, said)
    bench.finish()
    bench.now = 7200.0
    publisher.tick()
    assert len(snapshot_producer.snapshots) == 3  # the same methods, though newly chosen
    said["three"] = None  # no method is a clear choice now
    counted.count([2])
    publisher.tick()
    bench.finish()
    publisher.tick()
    assert recommended() == (5, 6, said)


def test_the_schema_defines_recommendations():
    stream, cut = STREAM, snapshot.Cut({0: 1}, {})
    found = snapshot.Recommended("norm-sub", 7)
    taken = snapshot.take(stream, ESTIMATE, cut, 8, QUERIES, recommended={"three": found, "gone": found})
    parts = snapshot.encode(taken)
    body = json.loads(next(part.body for part in parts if part.key == "s/all/power"))
    assert body["top"][0]["recommended"]["method"] == "norm-sub"
    assert body["queries"][0]["recommended"] is None
    validator = jsonschema.Draft202012Validator(SCHEMA)
    validator.validate(body)
    for key, wrong in (("method", None), ("sequence", 0)):
        bad = json.loads(json.dumps(body))
        bad["top"][0]["recommended"][key] = wrong
        assert not validator.is_valid(bad)


@pytest.mark.parametrize("lineage", [None, {"group": "g", "topic_id": "Xk"}])
def test_a_head_survives_a_round_trip_through_its_message(lineage):
    rules = {0: [{"offset": 0, "revision": 1, "most_reports": None, "hamming_weight": True}], 3: []}
    cut = snapshot.Cut({3: 1, 0: 7}, {0: [(2, 5)], 3: []}, [4, 2], rules)
    taken = snapshot.take(STREAM, ESTIMATE, cut, 8, QUERIES, lineage=lineage)
    parsed = Head.parse(json.loads(snapshot.encode(taken)[0].body))
    assert Head.of(taken) == parsed
    assert (parsed.offsets, parsed.uncounted, parsed.rules) == ({0: 7, 3: 1}, (2, 4), rules)
    assert parsed.behind(cut) is False
    assert parsed.contradicts(cut) == []
