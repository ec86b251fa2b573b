"""Simulated users: their counts, records and times."""

import csv
from pathlib import Path

import numpy as np
import pytest

import ldp
from ldp import frames
from ldp.oracles import ORACLES
from worker.cli.simulate import refused
from worker.kafka.client.topics import Topic
from worker.simulation import crowd, times
from worker.simulation.records import records

STREAM = ldp.Stream("colours", ldp.GRR("1", 3), labels=["red", "green", "blue"])
DEMO = Path(__file__).parents[3] / "deploy" / "demo"


def decode(values, stream=STREAM):
    bounds = np.cumsum([0, *map(len, values)])
    return frames.decode(stream, b"".join(values), bounds[:-1], bounds[1:])


def test_counts_are_assigned_to_their_labels(tmp_path):
    path = tmp_path / "counts.csv"
    path.write_text("\ufeffcolour,n\nblue,5\nred,2\n", encoding="utf-8")
    assert crowd.read_counts(path, "n", "colour", STREAM.labels).tolist() == [2, 0, 5]
    assert crowd.read_counts(path, "n", "unused", None).tolist() == [5, 2]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("colour,n\nred,-1\n", "line 2: '-1'"),
        ("colour,n\nred,1\npink,1\n", "line 3: 'pink'"),
        ("colour,n\n", "no rows"),
    ],
)
def test_bad_counts_are_named(tmp_path, text, said):
    path = tmp_path / "counts.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(crowd.SimulationError, match=said):
        crowd.read_counts(path, "n", "colour", STREAM.labels)


def test_the_draw_is_reproducible_and_fits_the_counts():
    counts = np.array([6, 0, 3, 1])
    drawn = crowd.draw(counts, 100_000, seed=5)
    again = crowd.draw(counts, 100_000, seed=5)
    assert (drawn.values == again.values).all()
    assert np.bincount(drawn.values, minlength=4).tolist() == drawn.histogram.tolist()
    assert drawn.histogram[1] == 0
    with pytest.raises(crowd.SimulationError, match="all counts are 0"):
        crowd.draw(np.zeros(3, np.int64), 10, seed=1)
    # six standard deviations of a binomial
    assert (abs(drawn.histogram - 100_000 * counts / 10) <= 6 * np.sqrt(100_000 * 0.25)).all()


@pytest.mark.parametrize("protocol", ORACLES)
def test_records_of_every_protocol_are_valid(protocol):
    stream = ldp.Stream("s", ldp.oracle(protocol, epsilon="1", domain_size=50))
    made = list(records(stream, np.full(700, 49), seed=4, batch=3, malformed_share=0.5))
    decoded = decode([value for value, _ in made], stream)
    assert decoded.counts.tolist() == [reports for _, reports in made]
    assert decoded.counts.sum() == 700
    reasons = {decoded.reasons[i] for i, (_, reports) in enumerate(made) if not reports}
    assert reasons >= {"empty", "version", "json"}


def test_large_reports_are_generated_in_parts(monkeypatch):
    stream = ldp.Stream("s", ldp.OUE("1", domain_size=1 << 20))
    made = []

    def perturb(values, rng=None):
        made.append(len(values))
        return np.zeros(len(values), stream.oracle.report_dtype)

    monkeypatch.setattr(stream.oracle, "perturb", perturb)
    sizes = [len(value) for value, _ in records(stream, np.zeros(150, int), seed=1)]
    assert sizes == [5 + 131_072] * 150
    assert made == [64, 64, 22]  # 8 MiB at a time


def test_labels_of_the_demo_match_the_csv():
    with (DEMO / "emoji.csv").open(encoding="utf-8", newline="") as file:
        emoji = [row["emoji"] for row in csv.DictReader(file)]
    assert (DEMO / "emoji.txt").read_text(encoding="utf-8").splitlines() == emoji
    assert len(emoji) == 845


def test_times_are_spread_in_order():
    at = times.spread(3000, 5_000, 65_000)
    assert [at(before) for before in range(3000)] == list(range(5_000, 65_000, 20))
    assert at(3007) == 65_000  # a malformed record after the last one


TOPIC = {"message.timestamp.type": "CreateTime", "message.timestamp.before.max.ms": str((1 << 63) - 1)}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, None),
        ({"retention.ms": "-1"}, None),
        ({"retention.ms": "7200000"}, None),
        ({"message.timestamp.type": "LogAppendTime"}, "create-topics --event-time"),
        ({"message.timestamp.before.max.ms": "7199999"}, "reject older records"),
        ({"retention.ms": "7199999"}, "delete older records"),
    ],
)
def test_a_topic_with_a_short_retention_is_refused(changed, said):
    why = refused(Topic("id", 1, 1, TOPIC | changed), 7_200_000)
    assert (why is None) == (said is None)
    assert said is None or said in why
