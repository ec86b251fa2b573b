"""The JavaScript client's example in Chromium, with its bridge."""

import contextlib
import http.client
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from kafka import KafkaConsumer, TopicPartition
from playwright.sync_api import expect

from ldp import wire
from tests.support.chromium import page_of
from tests.support.harness import World

pytestmark = [pytest.mark.integration, pytest.mark.long]

EXAMPLE = Path(__file__).parents[3] / "ldp" / "clients" / "javascript" / "example"
LABELS = ["red", "green", "blue"]
KIND = "application/octet-stream"


@contextlib.contextmanager
def bridge(world, name="bridge"):
    """Runs the bridge; yields its address; asserts an empty log."""
    document, log = world.folder / "document.json", world.folder / f"{name}.log"
    document.write_text(json.dumps(world.stream.document()), encoding="utf-8")
    command = [sys.executable, EXAMPLE / "bridge.py", document, world.topic, "0"]
    environ = os.environ | {"LDP_WORKER_KAFKA__BOOTSTRAP_SERVERS": world.kafka}
    with (
        log.open("w") as out,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=out, text=True, env=environ) as process,
    ):
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()
    assert [line for line in log.read_text().splitlines() if "blocking the event loop" not in line] == []


def records_of(world):
    """Returns all records of the stream's topic."""
    consumer = KafkaConsumer(bootstrap_servers=world.kafka, group_id=None, enable_auto_commit=False)
    partitions = [TopicPartition(world.topic, p) for p in range(world.partitions)]
    consumer.assign(partitions)
    consumer.seek_to_beginning(*partitions)
    wanted, found = sum(world.ends().values()), []
    while len(found) < wanted:
        found += [record for some in consumer.poll(1000).values() for record in some]
    consumer.close(autocommit=False)
    return found


def test_reports_of_the_example_page_are_counted(kafka, redis_url, tmp_path, chromium):
    with World(kafka, redis_url, tmp_path, protocol="olh", domain_size=3, labels=LABELS) as world:
        world.start()
        with bridge(world) as address, page_of(chromium) as page:
            page.goto(address)
            page.get_by_role("button").click()
            expect(page.locator("output")).to_have_text("10000 of 10000 reports sent", timeout=90_000)
        snapshot = world.covered()
        assert snapshot.reports == 10_000
        low, high = snapshot.estimate().interval(1 - 1e-7 / 3)
        truth = np.array([0.6, 0.3, 0.1])
        assert ((low < truth) & (truth < high)).all(), (low, high)
        assert (high - low).max() < 0.3  # so a value more or less would be seen
        totals = world.totals()
        assert (totals["accepted"], totals["rejected"]) == (100, {})
        verdict = world.audit()
        assert (verdict.difference, verdict.lag, verdict.reports) == (None, 0, 10_000)
        records = records_of(world)
        size = wire.HEADER_BYTES + 100 * world.stream.oracle.report_dtype.itemsize
        assert [(record.key, list(record.headers), len(record.value)) for record in records] == [
            (None, [], size)
        ] * 100
        assert len({record.value for record in records}) == 100


def posted(address, body, path="/reports", method="POST", **headers):
    """Returns the status of a request; header names have underscores."""
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=30)
    with contextlib.closing(connection):
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, {"Content-Type": KIND} | named)
        return connection.getresponse().status


def test_the_bridge_accepts_short_requests_of_its_own_page_only(kafka, redis_url, tmp_path, chromium):
    with World(kafka, redis_url, tmp_path, partitions=1) as world, bridge(world) as address:
        assert posted(address, b"a worker judges this") == 204
        assert posted(address, b"x", Content_Type="text/plain") == 415  # a page elsewhere may post this
        assert posted(address, b"", Content_Length="1000001") == 413
        assert posted(address, b"", Content_Length=b"-1") == 411
        assert posted(address, None, method="GET", path="/../README.md") == 404
        with bridge(world, "another") as site, page_of(chromium) as page:
            page.goto(site)
            fetch = """async ([url, headers]) => {
                try { return (await fetch(url, { method: "POST", headers, body: "x", mode: "cors" })).type; }
                catch (error) { return error.name; }
            }"""
            assert page.evaluate(fetch, [f"{address}/reports", {"Content-Type": KIND}]) == "TypeError"
        assert [record.value for record in records_of(world)] == [b"a worker judges this"]
