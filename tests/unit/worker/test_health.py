import contextlib
import http.client
import json
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import structlog
from kafka import TopicPartition

from worker.config import ConfigError, parse
from worker.counting.ports import StateLost, Unavailable
from worker.http import connections
from worker.http import server as health
from worker.kafka.reports.log import KafkaLog
from worker.observe.metrics import Metrics
from worker.service.stream import StreamWorker

CONFIG = parse('[[streams]]\nname = "s"\ntopic = "t"\nprotocol = "grr"\nepsilon = "1"\ndomain_size = 3')


@pytest.fixture
def server():
    metrics = Metrics()
    metrics.reports.labels("emoji").inc(7)
    server = health.HttpServer(
        "127.0.0.1",
        0,
        metrics.registry,
        lambda: (True, {"a": 1}),
        lambda: (False, {"streams": {"emoji": "joining"}}),
    )
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def get(url):
    try:
        with urllib.request.urlopen(url, timeout=180) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_probes_and_metrics_are_served(server):
    assert get(f"{server}/healthz") == (200, '{"a": 1}\n')
    status, body = get(f"{server}/readyz")
    assert (status, json.loads(body)) == (503, {"streams": {"emoji": "joining"}})
    status, body = get(f"{server}/metrics")
    assert status == 200
    assert 'ldp_worker_reports_total{stream="emoji"} 7.0' in body
    assert get(f"{server}/")[0] == 404
    assert "/metrics" in get(f"{server}/x")[1]


# --- limits -------------------------------------------------------------------------------------------------


ALONE = """
import resource, sys, threading
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
from worker.http import server as health
from worker.observe.metrics import Metrics
ok = lambda: (True, {})
print(health.HttpServer("127.0.0.1", 0, Metrics().registry, ok, ok).server_port, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def alone():
    """A server in a process of its own that may open 1,024 files, as by default; the process and the port."""
    command = [sys.executable, "-c", ALONE]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield process, int(process.stdout.readline())
        process.stdin.close()


def descriptors(process):
    """Numbers of open files and of threads of a process."""
    facts = Path(f"/proc/{process.pid}")
    return len(list((facts / "fd").iterdir())), len(list((facts / "task").iterdir()))


def raw(port, request):
    """Sends bytes and returns the complete answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=180) as connection:
        connection.sendall(request)
        with connection.makefile("rb") as answer:
            return answer.read()


@pytest.mark.long
@pytest.mark.parametrize("said", [b"", b"GET /metrics HTTP/1.1\r\nHost: "])
def test_probes_are_answered_despite_1100_open_connections(alone, said):
    process, port = alone
    with contextlib.ExitStack() as held:
        for _ in range(1100):
            connection = held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=180))
            with contextlib.suppress(OSError):  # it may be among those that were ended already
                connection.sendall(said)
        for path in ("/healthz", "/readyz", "/metrics"):
            assert get(f"http://127.0.0.1:{port}{path}")[0] == 200
        files, threads = descriptors(process)
        assert files < 2 * connections.MOST_CONNECTIONS
        assert threads < 20
        deadline = time.monotonic() + 60
        while max(descriptors(process)) > 20:  # the server closed the connection, not the client
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert get(f"http://127.0.0.1:{port}/healthz")[0] == 200


@pytest.mark.slow
def test_a_slow_request_is_closed(alone):
    _, port = alone
    with socket.create_connection(("127.0.0.1", port), timeout=180) as connection:
        deadline = time.monotonic() + 60
        with contextlib.suppress(OSError):
            while time.monotonic() < deadline:  # never silent for long
                connection.sendall(b"G")
                connection.settimeout(0.2)
                try:
                    assert connection.recv(1) == b""
                    break
                except TimeoutError:
                    continue
        assert time.monotonic() < deadline


def test_request_headers_are_bounded(alone):
    _, port = alone
    for request in (b"GET /" + b"x" * 9000, b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 2000):
        status, _, rest = raw(port, request + b"\r\n\r\n").partition(b"\r\n")
        assert status == b"HTTP/1.1 400 Bad Request"
        assert len(rest) < 700


def test_a_head_request_has_no_body(server):
    for path, status in (("/healthz", 200), ("/readyz", 503), ("/metrics", 200), ("/x", 404)):
        connection = http.client.HTTPConnection(server.removeprefix("http://"), timeout=180)
        with contextlib.closing(connection):
            connection.request("HEAD", path)
            answer = connection.getresponse()
            assert (answer.status, answer.read()) == (status, b"")
            assert int(answer.headers["Content-Length"]) > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        ("GET /metrics", 200),
        ("GET /<b>nonsense", 404),
        ("POST /metrics", 405),
        ("OPTIONS /", 405),
        ("<b>nonsense /", 400),
        ("G", 400),
    ],
)
def test_answers_reveal_neither_software_nor_request(server, request_line, status):
    said = raw(
        int(server.rpartition(":")[2]), f"{request_line} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    ).decode()
    head, _, body = said.partition("\r\n\r\n")
    assert str(status) in head.splitlines()[0]
    assert "server:" not in head.lower()
    assert "Python" not in said
    assert "nonsense" not in said
    assert "text/plain" in head
    assert ("\r\nallow: get, head" in head.lower()) == (status == 405)
    assert "<" not in body


def log_that(partitions, heard_ms, subscribed_ms=1000.0):
    """The log of a client whose last metadata came at a time and have some partitions of the topic, or None."""
    log = KafkaLog.__new__(KafkaLog)
    cluster = SimpleNamespace(
        partitions_for_topic={"t": partitions}.get,
        unauthorized_topics=set(),
        leader_for_partition=lambda tp: 1,
        _last_successful_refresh_ms=heard_ms,
    )
    log._topic, log._subscribed_ms = "t", subscribed_ms
    log._consumer = SimpleNamespace(
        _cluster=cluster,
        end_offsets=lambda tps, timeout_ms: dict.fromkeys(tps, 0),
        assignment=set,
        group_metadata=lambda: SimpleNamespace(state=None),
    )
    log._answers = SimpleNamespace(errors=lambda: contextlib.nullcontext({}), undescribed=lambda _topic: None)
    return log


@pytest.mark.parametrize(
    ("log", "partitions"),
    [
        (log_that(None, heard_ms=900.0), None),  # received when the client only opened the connection
        (log_that(None, heard_ms=1001.0), set()),
        (log_that({0, 1}, heard_ms=900.0), {0, 1}),
        (log_that({0, 1}, heard_ms=1001.0), {0, 1}),
    ],
)
def test_a_topic_is_missing_only_after_the_metadata_arrived(log, partitions):
    assert log.partitions() == partitions


def test_an_unauthorised_topic_is_not_reported_as_missing():
    log = log_that(None, heard_ms=2000.0)
    log._consumer._cluster.unauthorized_topics = {"t"}
    with pytest.raises(Unavailable, match="topic 't' is closed to this client"):
        log.partitions()


def test_readiness_reports_no_missing_topic_before_its_metadata():
    nothing = SimpleNamespace(counted=dict, stored=dict, states=dict)
    with structlog.testing.capture_logs() as logged:
        worker = StreamWorker(CONFIG, CONFIG.streams[0], Metrics(), threading.Event())

        def state(log):
            loop = worker._loop(log, nothing, None)
            loop._look()
            return loop._state()

        assert state(log_that(None, heard_ms=900.0)) == "not known yet whether topic t exists"
        assert worker.progress.partitions is None  # so that it looks again at once
        assert logged == []
        assert state(log_that(None, heard_ms=1001.0)) == "topic t is missing"
        assert [entry["event"] for entry in logged] == ["topic.missing"]
        assert state(log_that({0, 1}, heard_ms=1002.0)) == "joining"
        assert worker.progress.partitions == {0, 1}


@pytest.mark.parametrize("partitions", [{0, 1}, {3}])
def test_an_idle_worker_queries_the_brokers(partitions):
    log, nothing = log_that(partitions, heard_ms=1001.0), SimpleNamespace(stored=dict, states=dict)
    asked = []
    log._consumer.end_offsets = lambda tps, timeout_ms: asked.append(tps) or dict.fromkeys(tps, 0)
    worker = StreamWorker(CONFIG, CONFIG.streams[0], Metrics(), threading.Event())
    worker._loop(log, nothing, None)._look()
    assert asked == [[("t", min(partitions))]]


def test_a_stopped_stream_needs_its_remedy_and_then_a_restart(monkeypatch):
    worker = StreamWorker(CONFIG, CONFIG.streams[0], Metrics(), threading.Event())
    monkeypatch.setattr(
        worker, "_serve", Mock(side_effect=StateLost("the counts are gone.", "restore Redis"))
    )
    with structlog.testing.capture_logs() as logged:
        worker._run()
    assert worker.progress.error == (
        "StateLost: Remedy: restore Redis. Then restart the worker. Cause: the counts are gone."
    )
    assert [(one["event"], one["remedy"]) for one in logged] == [
        ("stream.stopped", "restore Redis. Then restart the worker")
    ]


def test_brokers_that_do_not_return_the_log_end_do_not_delay_counting(monkeypatch):
    clock, looks, polls = [1000.0], [], []
    stopping = SimpleNamespace(is_set=lambda: len(polls) == 20, wait=lambda seconds: None)
    worker = StreamWorker(CONFIG, CONFIG.streams[0], Metrics(), stopping)
    worker.progress.partitions = frozenset({0})

    def look():
        looks.append(len(polls))
        clock[0] += 10  # its time-out
        raise Unavailable("Kafka: KafkaTimeoutError")

    log = SimpleNamespace(
        poll=lambda timeout_ms: polls.append(clock[0]) or [],
        take_revoked=set,
        take_refused=dict,
        reads_all=lambda: True,
        generation=lambda: 1,
        assigned=set,
    )
    ownership = SimpleNamespace(
        release=lambda *_: set(),
        counted=dict,
        reading=set,
        claim=lambda *_: None,
        compare=lambda *_: None,
        rewind=lambda: None,
    )
    commits = SimpleNamespace(counted=lambda seconds: None, turn=lambda: False)
    loop = worker._loop(log, ownership, commits)
    monkeypatch.setattr(loop, "_look", look)
    monkeypatch.setattr(loop, "_clock", lambda: clock[0])
    loop.run([])
    assert looks == [1]


def test_offsets_above_the_last_stable_one_are_those_of_the_last_fetch():
    log = log_that({0, 1, 2}, heard_ms=1001.0)
    stable, high = {0: 10, 1: 10, 2: 10}, {0: 25, 1: None, 2: 4}
    log._consumer.assignment = lambda: {TopicPartition("t", p) for p in high}
    log._consumer.highwater = lambda tp: high[tp.partition]
    log._consumer.end_offsets = lambda tps, timeout_ms: {tp: stable[tp.partition] for tp in tps}
    assert log.ends([0, 1, 2]) == {0: (10, 25), 1: (10, 10), 2: (10, 10)}


def test_an_occupied_port_is_a_configuration_fault():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = SimpleNamespace(http=SimpleNamespace(host="127.0.0.1", port=port, page=False, names=[]))
        with pytest.raises(ConfigError, match=rf"^http\.port: cannot listen on 127\.0\.0\.1:{port} "):
            health.listen(config, Metrics().registry, lambda: (True, {}), lambda: (True, {}), print)
