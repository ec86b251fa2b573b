import json
import threading
import urllib.error
import urllib.request
from types import SimpleNamespace

import pytest
import structlog

from worker import health
from worker.config import parse
from worker.consumer import KafkaLog
from worker.metrics import Metrics
from worker.service import StreamWorker

CONFIG = parse('[[streams]]\nname = "s"\ntopic = "t"\nprotocol = "grr"\nepsilon = "1"\ndomain_size = 3')


@pytest.fixture
def server():
    metrics = Metrics()
    metrics.reports.labels("emoji").inc(7)
    server = health.serve(
        "127.0.0.1",
        0,
        metrics.registry,
        lambda: (True, {"a": 1}),
        lambda: (False, {"streams": {"emoji": "joining"}}),
    )
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def get(url):
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_probes_and_metrics(server):
    assert get(f"{server}/healthz") == (200, '{"a": 1}\n')
    status, body = get(f"{server}/readyz")
    assert (status, json.loads(body)) == (503, {"streams": {"emoji": "joining"}})
    status, body = get(f"{server}/metrics")
    assert status == 200
    assert 'ldp_worker_reports_total{stream="emoji"} 7.0' in body
    assert get(f"{server}/")[0] == 404
    assert "/metrics" in get(f"{server}/x")[1]


def test_forgetting_a_partition():
    metrics = Metrics()
    metrics.owned.labels("s", "0").set(1)
    metrics.lag.labels("s", "0").set(1)
    metrics.owned.labels("s", "1").set(1)
    metrics.forget_partition("s", 0)
    assert (
        metrics.registry.get_sample_value("ldp_worker_partition_owned", {"stream": "s", "partition": "0"})
        is None
    )
    assert (
        metrics.registry.get_sample_value("ldp_worker_partition_owned", {"stream": "s", "partition": "1"})
        == 1
    )


def log_that(partitions, heard_ms, subscribed_ms=1000.0):
    """The log of a client whose last metadata came at a time and have some partitions of the topic, or None."""
    log = KafkaLog.__new__(KafkaLog)
    cluster = SimpleNamespace(
        partitions_for_topic={"t": partitions}.get, _last_successful_refresh_ms=heard_ms
    )
    log._topic, log._subscribed_ms = "t", subscribed_ms
    log._consumer = SimpleNamespace(
        _cluster=cluster,
        end_offsets=None,  # never asked of no partition
        group_metadata=lambda: SimpleNamespace(state=None),
    )
    return log


@pytest.mark.parametrize(
    ("log", "partitions"),
    [
        (log_that(None, heard_ms=900.0), None),  # heard when the client only knocked
        (log_that(None, heard_ms=1001.0), set()),
        (log_that({0, 1}, heard_ms=900.0), {0, 1}),
        (log_that({0, 1}, heard_ms=1001.0), {0, 1}),
    ],
)
def test_a_topic_is_missing_only_once_the_client_was_told_about_it(log, partitions):
    assert log.partitions() == partitions


def test_readiness_does_not_call_a_topic_missing_that_it_has_not_heard_of():
    nothing = SimpleNamespace(counted=dict, stored=dict, watermarks=dict)
    with structlog.testing.capture_logs() as logged:
        worker = StreamWorker(CONFIG, CONFIG.streams[0], Metrics(), threading.Event())

        def state(log):
            worker._look(log, nothing)
            return worker._state(log, nothing)

        assert state(log_that(None, heard_ms=900.0)) == "not known yet whether topic t exists"
        assert worker.progress.partitions is None  # so that it looks again at once
        assert logged == []
        assert state(log_that(None, heard_ms=1001.0)) == "topic t is missing"
        assert [entry["event"] for entry in logged] == ["topic.missing"]
        assert state(log_that({0, 1}, heard_ms=1002.0)) == "joining"
        assert worker.progress.partitions == {0, 1}
