import json
import urllib.error
import urllib.request

import pytest

from worker import health
from worker.metrics import Metrics


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
