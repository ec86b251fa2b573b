"""The answers of the newest snapshot as metrics: ten values, bounded in number and in length, and the queries."""

from pathlib import Path

import numpy as np
import pytest

import ldp
from ldp.query import SetQuery, TopQuery
from ldp.snapshot import Cut, Recommended, take
from worker.observe.answers import LONGEST_LABEL, MOST_VALUES, Answers, Shown
from worker.observe.metrics import Metrics

D, N = 15, 3000
METHODS = ("base", "norm-sub", "base-cut")
ENDS = ("low", "high", "anytime_low", "anytime_high")
PAGE = Path(__file__).parents[3] / "docs/reference/metrics.md"
LABELS = [f"{'long ' * 20}{v}" for v in range(D)]


def snapshot(counts, labels=None, queries=(), recommended=None):
    stream = ldp.Stream("s", ldp.GRR("1", D), labels=labels)
    estimate = stream.oracle.estimate(np.array(counts), sum(counts))
    return take(stream, estimate, Cut({}, {}), 1, queries, recommended=recommended or {}, methods=METHODS)


def rising():
    """A number of reports of each value: the last value has most, and value 3 as many as value 13."""
    counts = np.arange(D) * 20 + 50
    counts[3] = counts[13]
    return counts.tolist()


def shown(metrics, name):
    return {
        frozenset(sample.labels.items() - {("stream", "s")}): sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == f"ldp_worker_snapshot_{name}"
    }


def values_shown(metrics, name="value_frequency"):
    return {int(dict(labels)["value"]) for labels in shown(metrics, name)}


def test_ten_values_have_every_method_and_both_intervals_of_base():
    metrics, taken = Metrics(), snapshot(rising())
    Answers(metrics).show(Shown.of(taken, 0.0).answers)
    ten = {14, 3, 13, 12, 11, 10, 9, 8, 7, 6}
    assert len(ten) == MOST_VALUES
    assert shown(metrics, "value_frequency") == {
        frozenset({"value": str(v), "label": str(v), "method": method}.items()): taken.bodies[
            method
        ].frequencies[v]
        for v in ten
        for method in METHODS
    }
    estimate = ldp.GRR("1", D).estimate(rising(), sum(rising()))
    expected = dict(zip(ENDS, (*estimate.interval(), *estimate.anytime_interval()), strict=True))
    for end in ENDS:
        assert shown(metrics, f"value_{end}") == {
            frozenset({"value": str(v), "label": str(v)}.items()): pytest.approx(expected[end][v])
            for v in ten
        }


def test_a_stream_has_at_most_150_series_of_values():
    stream, metrics = ldp.Stream("s", ldp.GRR("1", D)), Metrics()
    Answers(metrics).show(
        Shown.of(take(stream, stream.oracle.estimate(rising(), sum(rising())), Cut({}, {}), 1), 0.0).answers
    )
    assert sum(len(shown(metrics, f"value_{name}")) for name in ("frequency", *ENDS)) == 150
    assert "A stream has at most 150 series of values." in PAGE.read_text(encoding="utf-8")


def test_a_value_outside_the_top_ten_disappears():
    metrics = Metrics()
    answers = Answers(metrics)
    answers.show(Shown.of(snapshot(rising()), 0.0).answers)
    answers.show(Shown.of(snapshot(rising()[::-1]), 0.0).answers)
    mirrored = {0, 11, 1, 2, 3, 4, 5, 6, 7, 8}
    for name in ("frequency", *ENDS):
        assert values_shown(metrics, f"value_{name}") == mirrored


def test_a_small_domain_is_shown_whole():
    stream = ldp.Stream("s", ldp.GRR("1", 2))
    metrics = Metrics()
    Answers(metrics).show(
        Shown.of(take(stream, stream.oracle.estimate([3, 7], 10), Cut({}, {}), 1), 0.0).answers
    )
    assert values_shown(metrics) == {0, 1}


def test_truncated_labels_stay_distinct():
    metrics = Metrics()
    Answers(metrics).show(Shown.of(snapshot(rising(), LABELS), 0.0).answers)
    labels = {dict(labels)["label"] for labels in shown(metrics, "value_low")}
    assert labels == {("long " * 20)[:LONGEST_LABEL]}
    assert len(shown(metrics, "value_low")) == MOST_VALUES


def test_sets_show_every_method_two_intervals_and_the_new_recommendation():
    queries = [SetQuery("few", (1, 2)), TopQuery("top", 3)]
    metrics = Metrics()
    answers = Answers(metrics)
    taken = snapshot(rising(), queries=queries, recommended={"few": Recommended("norm-sub", 1)})
    answers.show(Shown.of(taken, 0.0).answers)
    (base,) = taken.bodies["base"].sets
    for end in ENDS:
        assert shown(metrics, f"query_{end}") == {frozenset({"query": "few"}.items()): getattr(base, end)}
    assert shown(metrics, "query_frequency") == {
        frozenset({"query": "few", "method": method}.items()): taken.bodies[method].sets[0].frequency
        for method in METHODS
    }
    assert shown(metrics, "query_recommended") == {
        frozenset({"query": "few", "method": "norm-sub"}.items()): 1
    }
    now = {"few": Recommended("base", 2), "top": Recommended("base-cut", 2)}
    answers.show(Shown.of(snapshot(rising(), queries=queries, recommended=now), 0.0).answers)
    assert {
        dict(labels)["query"]: dict(labels)["method"] for labels in shown(metrics, "query_recommended")
    } == {
        "few": "base",
        "top": "base-cut",
    }


EVERY = [
    *(ldp.oracle(protocol, "1", D) for protocol in ("grr", "olh", "oue", "sue", "subset", "hadamard", "pgr")),
    ldp.Response("1/3", D),
    ldp.Unary("3/4", "1/4", D),
    ldp.Unary("1", "1/4", D, epsilon="infinite"),
    ldp.RAPPOR("1/2", "3/4", "1/2", D),
]


@pytest.mark.parametrize("oracle", EVERY, ids=lambda oracle: type(oracle).__name__)
def test_snapshots_of_every_protocol_are_shown(oracle):
    """A failure here would stop a stream once its snapshot is published."""
    stream, rng = ldp.Stream("s", oracle), np.random.default_rng(5)
    state = oracle.zeros()
    oracle.accumulate(state, oracle.perturb(rng.integers(0, oracle.domain_size, 300), rng=rng))
    taken = take(stream, oracle.estimate(oracle.support(state), 300), Cut({}, {}), 1)
    metrics = Metrics()
    Answers(metrics).show(Shown.of(taken, 0.0).answers)
    base = taken.bodies["base"].frequencies
    most = np.sort(base)[::-1][:MOST_VALUES]
    said = shown(metrics, "value_frequency")
    ours = [value for labels, value in said.items() if ("method", "base") in labels]
    assert sorted(ours, reverse=True) == most.tolist()
