"""Snapshots: chunks, one value, labels and queries, the first report."""

import io
import json
import os
import re
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas
import pytest

from ldp.consistency import FOR_ONE_VALUE
from ldp.snapshot.documents import BASE_ONLY
from tests.support.harness import METHODS, TIMEOUT_SECONDS, World, assert_snapshot_topic, foreign, until

pytestmark = pytest.mark.integration

EXAMPLE = Path(__file__).parents[3] / "ldp/examples/snapshots.py"


def numbers_of(content_type, data):
    """Decodes a chunk by its content type."""
    kind = content_type.removeprefix("application/vnd.ldp.")
    number = {"float64": "<f8", "float32": "<f4"}[kind.removeprefix("sparse.")]
    if not kind.startswith("sparse."):
        return np.frombuffer(data, number)
    (size,) = struct.unpack_from("<I", data)
    stored = (len(data) - 4) // (2 + np.dtype(number).itemsize)
    values = np.zeros(size)
    values[np.frombuffer(data, "<u2", stored, 4)] = np.frombuffer(data, number, stored, 4 + 2 * stored)
    return values


def test_a_large_domain_comes_in_chunks(kafka, redis_url, tmp_path):
    d = 70_000  # more than one chunk of 65,536 values
    with World(kafka, redis_url, tmp_path, partitions=2, protocol="grr", epsilon="8", domain_size=d) as world:
        world.send(300, reports=10)
        world.start()
        last = world.covered()
        world.assert_right(last)
        sequence = assert_snapshot_topic(world)

        # as another program sees it: no vector in the documents, all of them beside, whole
        received = {
            message.key: message
            for message in foreign(kafka, world.config.snapshots.topic)
            if message.headers["sequence"] == str(sequence)
        }
        vectors = [(method, "frequencies") for method in METHODS] + [("base", name) for name in BASE_ONLY]
        for method, vector in vectors:
            key = f"{world.name}/all/{method}"
            body = json.loads(received[key].value)
            assert vector not in body
            assert vector in body["vectors"]
            assert body["chunks"] == 2
            chunks = [received[f"{key}/{vector}/{i}"] for i in range(2)]
            read = [numbers_of(chunk.headers["content-type"], chunk.value) for chunk in chunks]
            assert [len(numbers) for numbers in read] == [65_536, d - 65_536]
            np.testing.assert_array_equal(np.concatenate(read), getattr(last.bodies[method], vector))
        assert len(received) == 1 + len(METHODS) + 2 * len(vectors)


def test_a_domain_of_one_value(kafka, redis_url, tmp_path):
    with World(kafka, redis_url, tmp_path, partitions=1, domain_size=1, hash="xxh32") as world:
        world.send(50, reports=4)
        world.start()
        last = world.covered()
        world.assert_right(last)
        assert last.bodies.keys() == {*FOR_ONE_VALUE}
        assert_snapshot_topic(world)


def test_labels_and_queries(kafka, redis_url, tmp_path):
    labels = ["rot", "grün", "blau", 'mit "Zeichen", 🟣']
    queries = [{"name": "warm", "values": ["rot", 3]}, {"name": "alles", "values": labels}]
    with World(
        kafka, redis_url, tmp_path, partitions=1, domain_size=4, labels=labels, queries=queries
    ) as world:
        world.send(20, reports=10)
        world.start()
        last = world.covered()
        world.assert_right(last)
        assert list(last.labels) == labels
        for method in METHODS:
            body = last.bodies[method]
            asked = {answer.query.name: list(answer.query.values) for answer in body.sets}
            assert asked == {"warm": [0, 3], "alles": [0, 1, 2, 3]}
            answers = {answer.query.name: answer.frequency for answer in body.sets}
            frequencies = body.frequencies
            if method == "post-pos":  # it acts on the answer, not on the vector
                frequencies = last.bodies["base"].frequencies
            for name, values in asked.items():
                summed = frequencies[values].sum()
                assert answers[name] == pytest.approx(max(0, summed) if method == "post-pos" else summed)
        as_data_frame(world, last)
        assert_snapshot_topic(world)


def as_data_frame(world, newest):
    """Runs the example that reads the snapshot topic."""
    command = [sys.executable, EXAMPLE, world.config.snapshots.topic, world.name]
    environ = os.environ | {"LDP_WORKER_KAFKA__BOOTSTRAP_SERVERS": world.kafka}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    head, _, rest = done.stdout.partition("\n")
    # a recommendation may have been published meanwhile, as a snapshot of the same counts
    assert re.fullmatch(rf"snapshot \d+ of {world.name}: {world.n} reports", head)
    frame = pandas.read_csv(io.StringIO(rest))
    named = ("value", "label", "frequency", "std_error", "low", "high")
    assert list(frame.columns) == [*named, *newest.bodies]
    assert list(frame["label"]) == list(newest.labels)
    for method, body in newest.bodies.items():
        assert frame[method].to_numpy() == pytest.approx(body.frequencies, abs=1e-12)
    assert frame["low"].to_numpy() == pytest.approx(newest.bodies["base"].low, abs=1e-9)


def test_nothing_is_published_before_the_first_report(kafka, redis_url, tmp_path):
    with World(kafka, redis_url, tmp_path, partitions=2) as world:
        (worker,) = world.start()
        world.put(b"malformed").get(TIMEOUT_SECONDS)  # counted as rejected, but no report
        ends = world.ends()

        until(lambda: world.totals()["offsets"] == ends, "it is counted")
        for _ in range(2):  # the first look may have begun before
            began = time.monotonic()
            until(
                lambda began=began: worker.metric("snapshot_age_seconds") < time.monotonic() - began,
                "the publisher looks at it",
            )
        assert foreign(kafka, world.config.snapshots.topic) == []
        world.send(1)
        last = world.covered()
        world.assert_right(last)
        assert assert_snapshot_topic(world) == 1
