"""Reports from Kafka through workers and Redis to the snapshot topic."""

import json
import subprocess

import pytest

from deploy.local.services import program
from ldp import frames
from tests.support.harness import METHODS, Sending, World, assert_snapshot_topic, until

pytestmark = pytest.mark.integration


def test_every_report_is_counted_once_and_published(kafka, redis_url, tmp_path):
    with World(kafka, redis_url, tmp_path) as world:
        send_in_every_way(world)
        world.settle()
        world.start(2)  # to a topic that has records already, and gets more
        send_in_every_way(world)
        world.send(1)
        last = world.covered()
        world.assert_right(last)
        assert last.complete
        assert assert_snapshot_topic(world) == last.sequence
        # after a take-over, a worker may count again the other worker's uncommitted records
        assert sum(w.metric("reports_total") for w in world.workers) >= world.n
        assert sum(w.metric("records_total", outcome="rejected") for w in world.workers) == 0


def send_in_every_way(world):
    world.send(60)
    world.send(60, as_json=True)
    world.send(10, reports=25)
    world.send(10, reports=25, as_json=True)
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        world.send(200, reports=3, producer=world.open_producer(compression_type=codec, linger_ms=100))
    drawn = [world.draw(20) for _ in range(100)]  # by librdkafka, which writes raw Snappy
    command = [program("kcat", "kcat"), "-P", "-b", world.kafka, "-t", world.topic, "-z", "snappy"]
    lines = b"".join(frames.encode_json(world.stream, reports) + b"\n" for reports in drawn)
    subprocess.run([*command, "-X", "linger.ms=1000"], input=lines, check=True)
    world.sent.reports += drawn
    producer = world.open_producer(transactional_id=f"{world.name}-in", compression_type="lz4")
    producer.init_transactions()
    for committed in (True, False, True, False):
        producer.begin_transaction()
        world.send(40, reports=2, counted=committed, producer=producer)
        producer.flush()
        world.settle()
        if committed:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    producer.close()


def test_probes_and_metrics_over_http(kafka, redis_url, tmp_path):
    queries = [{"name": "first", "values": [0]}, {"name": "all", "values": list(range(5))}]
    with World(
        kafka, redis_url, tmp_path, protocol="grr", domain_size=5, queries=queries, partitions=2
    ) as world:
        (worker,) = world.start()
        world.send(50, reports=4)
        last = world.covered()

        status, kind, body = worker.get("/healthz")
        assert (status, kind) == (200, "application/json")
        assert list(json.loads(body)["seconds_since_step"]) == [world.name]
        status, kind, body = worker.get("/readyz")
        assert (status, kind) == (200, "application/json")
        assert json.loads(body) == {"streams": {world.name: "serving"}}
        status, kind, _ = worker.get("/metrics")
        assert status == 200
        assert kind.startswith("text/plain")
        status, _, body = worker.get("/nothing")
        assert status == 404
        assert "/metrics" in body

        until(lambda: worker.metric("snapshot_sequence") >= last.sequence, "the sequence is shown")
        until(lambda: sum(worker.by_label("partition_offset", "partition").values()) == 50, "offsets shown")
        assert worker.metric("partition_lag") == 0
        assert worker.metric("reports_total") == worker.metric("snapshot_reports") == world.n
        assert worker.metric("records_total", outcome="accepted") == 50
        assert worker.metric("stream_up") == worker.metric("publisher") == 1
        assert worker.metric("snapshot_complete") == 1
        for name, values in (("first", [0]), ("all", range(5))):
            for method in METHODS:
                shown = worker.metric("snapshot_query_frequency", query=name, method=method)
                (said,) = (answer for answer in last.bodies[method].sets if answer.query.name == name)
                assert (said.query.values, said.frequency) == (tuple(values), pytest.approx(shown))
            summed = last.bodies["norm"].frequencies[list(values)].sum()
            assert worker.metric("snapshot_query_frequency", query=name, method="norm") == pytest.approx(
                summed
            )


def test_sigterm_commits_and_a_restart_continues_from_there(kafka, redis_url, tmp_path):
    with World(kafka, redis_url, tmp_path) as world:
        with Sending(world) as sending:
            first, second = world.start(2)
            sending.more()
            until(lambda: first.metric("reports_total") and second.metric("reports_total"), "both count")
            assert first.terminate() == 0
            assert second.terminate() == 0
        world.settle()
        for worker in (first, second):
            assert [event["committed"] for event in worker.events("stream.finished")] == [True]
            assert not worker.events("stream.stopped")
        verdict = world.audit()
        assert verdict.difference is None
        assert 0 < verdict.reports <= world.n
        # the last tick of the publisher covers what the last commits stored
        stored = world.totals()["offsets"]

        third, fourth = world.start(2)
        world.assert_right(world.covered())
        for worker in (third, fourth):
            assert set(worker.by_label("claims_total", "start")) == {"resume"}
        claimed = {
            e["partition"]: e["offset"] for w in (fourth, third) for e in w.events("partition.claimed")
        }
        assert min(claimed[p] - stored[p] for p in stored) == 0
        counted_again = third.metric("reports_total") + fourth.metric("reports_total")
        assert counted_again >= world.n - verdict.reports
        assert_snapshot_topic(world)


def test_one_stream_stops_and_the_other_continues(kafka, redis_url, tmp_path):
    with (
        World(kafka, redis_url, tmp_path) as world,
        World(kafka, redis_url, tmp_path, protocol="grr", domain_size=5, partitions=1) as other,
    ):
        table = {
            "name": other.name,
            "topic": other.topic,
            "protocol": "grr",
            "epsilon": "1",
            "domain_size": 5,
        }
        worker = world.launch(world.configure("both", table))
        until(worker.ready, "both streams are served")
        world.send(20)
        other.send(20)
        world.covered()
        other.redis.delete(*other.redis.scan_iter(f"{{{other.name}:*"))

        status, body = until(
            lambda: "StateLost: " in (answer := worker.get("/readyz"))[2] and answer[::2], "the stream stops"
        )
        states = json.loads(body)["streams"]
        assert status == 503
        assert states[world.name] == "serving"
        assert states[other.name].startswith("StateLost: ")
        assert worker.get("/healthz")[0] == 200
        assert worker.metric("stream_up", stream=other.name) == 0
        world.send(20)
        world.assert_right(world.covered())
        assert worker.terminate() == 1
