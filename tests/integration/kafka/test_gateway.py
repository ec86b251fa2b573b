"""``ldp-worker gateway`` and ``shuffle`` on a real Kafka: from an HTTP request to the topic of reports, once."""

import contextlib
import http.client
import itertools
import json
import os
import random
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4

import numpy as np
import pytest
from kafka import KafkaProducer

from deploy.demo import demo
from deploy.local.services import free_ports
from ldp import frames
from tests.long.kills.dying import Aim
from tests.long.kills.steps import UPLOADING
from tests.support.docs import every_block
from tests.support.harness import frozen, until
from tests.support.harness.front import BATCH, TIMEOUT, Front
from tests.support.ohttp import Sealed, dated, read_response, write_request
from worker import audit
from worker.gateway import ohttp
from worker.kafka.intake import sender
from worker.service import gateway

pytestmark = pytest.mark.integration
MANY = 20
INTEROP = Path(__file__).parents[2] / "long" / "interop"


def test_uploads_reach_the_topic_of_reports_once_and_without_metadata(kafka, tmp_path):
    canary = "canary-7f3a"
    with Front(kafka, tmp_path) as front:
        front.client = "127.77.9.213"
        front.start("shuffle")
        for report in range(2 * BATCH):
            key = secrets.token_hex(16)
            tries = 2 if report % 3 == 0 else 1
            for _ in range(tries):
                answer = front.upload(
                    report, key, f"?user={canary}", **{"User-Agent": canary, "X-User": canary}
                )
                assert answer == 202
        assert front.ask(front.port, "POST", f"/v1/streams/{front.name}/reports", canary)[0] == 415
        wrong = {"Content-Type": "application/json"}
        refused = front.ask(front.port, "POST", f"/v1/streams/{front.name}/reports", canary, wrong)
        assert refused == (400, b'{"reason":"version"}')
        until(lambda: sum(front.shuffled().values()) >= 2 * BATCH, "all uploads are shuffled")
        assert front.shuffled() == Counter(range(2 * BATCH))
        for record in front.records(front.served.topic):
            assert (record.key, record.headers) == (None, [])
        metrics = front.probe("/metrics")[1].decode()
        assert f'ldp_gateway_uploads_total{{outcome="accepted",stream="{front.name}"}} 14.0' in metrics
        places = [metrics, *(front.log(name).read_text() for name in front.processes)]
        for topic in (front.served.topic, front.served.intake):
            places += [repr(record) for record in front.records(topic)]
        assert [place for place in places if canary in place or front.client in place] == []
        process = front.processes["gateway"]
        process.terminate()
        assert process.wait(20) == 0


@pytest.fixture
def sealed_front(kafka, tmp_path):
    """A front whose gateway has two keys, and the contents of `/ohttp-keys` for each."""
    files = [tmp_path / "second", tmp_path / "first"]
    keys = {}
    while len(keys) < 2:
        for file in files:
            file.unlink(missing_ok=True)
            ohttp.new_key(file)
        keys = {key.id: key for file in files for key in ohttp.read_keys([file]).values()}
    settings = {"gateway.ohttp.key_files": [str(file) for file in files]}
    with Front(kafka, tmp_path, settings=settings) as front:
        yield front, [key.published for key in ohttp.read_keys(files).values()]


def frame_of(front, report):
    reports = np.array([(report,)], front.served.stream.oracle.report_dtype)
    return frames.encode(front.served.stream, reports)


def fields_of(key):
    return dated([(b"content-type", b"application/octet-stream"), (b"idempotency-key", key.encode())])


def test_encapsulated_uploads_reach_the_topic_of_reports_once_and_without_metadata(sealed_front):
    canary = "canary-9c51"
    front, keys = sealed_front
    front.client = "127.77.9.214"
    front.start("shuffle")
    assert front.ask(front.port, "GET", "/ohttp-keys") == (200, keys[0])
    path = f"/v1/streams/{front.name}/reports?user={canary}".encode()
    outside = {"Content-Type": "message/ohttp-req", "User-Agent": canary, "X-User": canary}

    def ask(message, published):
        sealed = Sealed(published, message)
        status, answer = front.ask(front.port, "POST", f"/ohttp?user={canary}", sealed.request, outside)
        assert status == 200
        return read_response(sealed.open(answer))

    for report in range(2 * BATCH):
        fields = [*fields_of(secrets.token_hex(16)), (b"x-user", canary.encode())]
        message = write_request(b"POST", path, fields, frame_of(front, report), report % 2 == 0)
        for _ in range(2 if report % 3 == 0 else 1):  # a retry, or a relay that repeats it
            assert ask(message, keys[report % 2])[0] == 202
    fields = fields_of("0" * 32)
    assert ask(write_request(b"POST", path, fields, canary.encode()), keys[0])[0] == 400
    assert ask(canary.encode() * 99, keys[0])[0] == 400
    assert front.ask(front.port, "POST", "/ohttp", canary, outside)[0] == 400
    until(lambda: sum(front.shuffled().values()) >= 2 * BATCH, "all uploads are shuffled")
    assert front.shuffled() == Counter(range(2 * BATCH))
    metrics = front.probe("/metrics")[1].decode()
    assert f'ldp_gateway_uploads_total{{outcome="accepted",stream="{front.name}"}} 14.0' in metrics
    for outcome, key, count in [
        ("answered", keys[0][2], 8),
        ("answered", keys[1][2], 7),
        ("key", "unknown", 1),
    ]:
        line = f'ldp_gateway_ohttp_requests_total{{key="{key}",outcome="{outcome}"}} {count}.0'
        assert line in metrics
    places = [metrics, *(front.log(name).read_text() for name in front.processes)]
    for topic in (front.served.topic, front.served.intake):
        places += [repr(record) for record in front.records(topic)]
    assert [place for place in places if canary in place or front.client in place] == []


@pytest.mark.long
def test_the_crates_ohttp_and_bhttp_upload_reports(sealed_front, tmp_path):
    """Builds a client with them."""
    front, _ = sealed_front
    for name in ("Cargo.toml", "main.rs"):
        shutil.copy(INTEROP / name, tmp_path)
    command = ["cargo", "build", "--quiet", "--release", "--manifest-path", tmp_path / "Cargo.toml"]
    subprocess.run(command, check=True, timeout=600)
    path, requests = f"/v1/streams/{front.name}".encode(), []
    for report, mode in enumerate(["known", "indeterminate"] * 2):
        upload = [b"POST", path + b"/reports", frame_of(front, report)]
        fields = [part for field in fields_of(f"{report:032x}") for part in field]
        requests.append([mode, *upload, *fields])
        requests.append([mode, *upload, *fields[:-2]])  # without a Date
        requests.append([mode, b"GET", path + b"/document", b"", *fields[-2:]])
    text = "".join(" ".join([mode, *(part.hex() for part in parts)]) + "\n" for mode, *parts in requests)
    client = [tmp_path / "target/release/interop", f"127.0.0.1:{front.port}"]
    said = subprocess.run(client, input=text, capture_output=True, text=True, check=True, timeout=60).stdout
    answers = [line.split(" ") for line in said.splitlines()]
    assert [status for status, _ in answers] == ["202", "400", "200"] * 4
    for (_, accepted), (_, problem), (_, document) in zip(*[iter(answers)] * 3, strict=True):
        assert accepted == ""
        assert json.loads(bytes.fromhex(problem))["type"].endswith("#date")
        assert json.loads(bytes.fromhex(document)) == front.served.stream.document()
    stored = {(record.key.hex(), record.value) for record in front.records(front.served.intake)}
    assert stored == {(f"{report:032x}", frame_of(front, report)) for report in range(4)}


def test_the_guide_uploads_and_shuffles_reports(kafka, tmp_path):
    found = [text for _, text in every_block("guides/receive-reports")]
    table, _, curl, python, _, new_key, keys = found
    topic = f"s{uuid4().hex[:10]}"
    table = table.replace("colour-", f"{topic}-").replace(
        "shuffle_batch_size = 1000", "shuffle_batch_size = 2"
    )
    new_key = new_key.replace("ldp-worker", f"{sys.executable} -m worker")
    subprocess.run(["bash", "-ec", new_key], check=True, timeout=60, cwd=tmp_path)
    settings = {"gateway.timeout_seconds": 20.0}
    with Front(kafka, tmp_path, table=table + keys, settings=settings) as front:
        front.start("shuffle")
        assert front.ask(front.port, "GET", "/ohttp-keys")[0] == 200
        curl, python = (text.replace("127.0.0.1:8080", f"127.0.0.1:{front.port}") for text in (curl, python))
        environ = os.environ | {"PATH": f"{sys.prefix}/bin:{os.environ['PATH']}"}
        script = ["bash", "-euc", f"cd {tmp_path}\n{curl}"]
        assert subprocess.run(script, check=True, timeout=30, env=environ, stdout=-1).stdout == b"202\n"
        subprocess.run([sys.executable, "-c", python], check=True, timeout=30)
        until(lambda: len(front.records(front.served.topic)) == 2, "a frame for each partition")
        first, second = (record.value for record in front.records(front.served.topic))
        assert first[:5] == second[:5] == bytes.fromhex("019e54f8ba")


def test_a_gateway_with_a_certificate_uses_tls(secure, tmp_path):
    files = {"ssl_certfile": "broker.pem", "ssl_keyfile": "broker.key"}
    settings = {f"gateway.{key}": str(secure.certificates.path(name)) for key, name in files.items()}
    with Front(secure.running.kafka.address, tmp_path, settings=settings) as front:
        trusting = ssl.create_default_context(cafile=secure.certificates.path("ca.pem"))
        url = f"https://127.0.0.1:{front.port}/v1/streams/{front.name}/document"
        with urllib.request.urlopen(url, context=trusting, timeout=10) as answer:
            assert json.load(answer) == front.served.stream.document()


def test_a_silent_client_is_disconnected_in_time(kafka, tmp_path):
    with Front(kafka, tmp_path) as front:
        began = time.monotonic()
        silent = [socket.create_connection(("127.0.0.1", front.port)) for _ in range(100)]
        for i, client in enumerate(silent):
            client.sendall(b"" if i % 2 else b"POST /v1/streams/x/reports HTTP/1.1\r\nHost: x\r\n")
            client.settimeout(10)
        assert front.upload(1) == 202
        for client in silent[0::2]:  # after the beginning of a request
            with contextlib.suppress(ConnectionError):
                while client.recv(4096):
                    pass
        assert time.monotonic() - began < 3 * TIMEOUT
        for client in silent:
            client.close()


def test_a_client_that_disconnects_leaves_nothing_reserved(own_services, tmp_path):
    kafka = own_services.kafka
    with Front(kafka.address, tmp_path, settings={"gateway.timeout_seconds": 60.0}) as front:
        body = frames.encode(front.served.stream, front.served.stream.oracle.perturb([7]))
        head = (
            f"POST /v1/streams/{front.name}/reports HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
            "Content-Type: application/octet-stream\r\n\r\n"
        ).encode()

        def counted():
            metrics = front.probe("/metrics")[1].decode()
            lines = dict(line.rsplit(" ", 1) for line in metrics.splitlines() if line[0] != "#")
            found = {
                outcome: float(
                    lines[f'ldp_gateway_uploads_total{{outcome="{outcome}",stream="{front.name}"}}']
                )
                for outcome in ("accepted", "disconnected")
            }
            return found | {"inflight": float(lines["ldp_gateway_inflight_bytes"])}

        reserved = 60 * front.config.gateway.max_body_bytes
        with frozen(kafka), contextlib.ExitStack() as clients:
            for sent in (head, head + body[:3], head + body) * 20:
                client = socket.create_connection(("127.0.0.1", front.port))
                clients.enter_context(client).sendall(sent)
            until(lambda: counted()["inflight"] == reserved, "all uploads wait for a body or for Kafka")
        expected = {"accepted": 20, "disconnected": 40, "inflight": 0}
        until(lambda: counted() == expected, "all uploads have an outcome")
        assert len({record.key for record in front.records(front.served.intake)}) == 20


def test_a_frozen_kafka_is_refused_in_time_and_recovers(own_services, tmp_path):
    with Front(own_services.kafka.address, tmp_path) as front:
        front.start("shuffle")
        assert front.upload(0, secrets.token_hex(16)) == 202
        keys = [secrets.token_hex(16) for _ in range(300)]

        def refused(number):
            began = time.monotonic()
            status = front.upload(number + 1, keys[number])
            return status, time.monotonic() - began < TIMEOUT + 3

        with frozen(own_services.kafka), ThreadPoolExecutor(300) as pool:
            answers = Counter(pool.map(refused, range(300)))
            assert set(answers) == {(503, True)}
            until(lambda: front.probe("/readyz")[0] == 503, "the gateway is not ready")
        for number, key in enumerate(keys[:40]):

            def accepted(number=number, key=key):
                return front.upload(number + 1, key) == 202

            until(accepted, f"upload {number} is accepted")
        front.upload(41), front.upload(42), front.upload(43), front.upload(44)
        until(lambda: sum(front.shuffled().values()) >= 45, "all uploads are shuffled")
        assert front.shuffled() == Counter(range(45))


@pytest.mark.long
def test_outages_of_kafka_under_load_cost_no_upload_and_no_memory(own_services, tmp_path):
    """32 clients repeat each upload until it is accepted, while Kafka is frozen for 12 s and for 60 s."""
    stop, numbers = threading.Event(), itertools.count()
    with Front(own_services.kafka.address, tmp_path, 32, settings={"gateway.timeout_seconds": 10.0}) as front:
        front.start("shuffle")

        def client(_):
            answers = []
            while not stop.is_set():
                number, key, status = next(numbers), secrets.token_hex(16), 503
                while status == 503:
                    began = time.monotonic()
                    status = front.upload(number, key)
                    answers.append((number, status, time.monotonic() - began))
            return answers

        def memory():
            text = Path(f"/proc/{front.processes['gateway'].pid}/status").read_text(encoding="ascii")
            return int(text.split("VmRSS:")[1].split()[0]) / 1024

        with ThreadPoolExecutor(32) as pool:
            clients = [pool.submit(client, each) for each in range(32)]
            used = []
            try:
                for seconds in (12, 60):
                    time.sleep(3)
                    used.append(memory())
                    with frozen(own_services.kafka):
                        time.sleep(seconds)
                        used.append(memory())
                time.sleep(3)
            finally:
                stop.set()
        answers = [answer for each in clients for answer in each.result()]
        print(Counter(status for _, status, _ in answers), max(took for _, _, took in answers), used)
        assert {status for _, status, _ in answers} == {202, 503}
        assert max(took for _, status, took in answers if status == 503) < 12
        assert max(used) < used[0] + 50
        sent = {number for number, status, _ in answers if status == 202}
        for number in range(len(sent), -(-len(sent) // 32) * 32):  # no upload waits for others
            assert front.upload(number, secrets.token_hex(16)) == 202
            sent.add(number)
        until(lambda: sum(front.shuffled().values()) >= len(sent), "all uploads are shuffled")
        assert front.shuffled() == Counter(sent)


def test_a_stuck_producer_is_replaced(kafka, tmp_path, monkeypatch):
    made = []

    class Stuck(KafkaProducer):
        """The first one sends nothing, expires nothing and reports nothing."""

        def __init__(self, **settings):
            super().__init__(**settings)
            made.append(self)
            if len(made) == 1:
                self._sender._send_producer_data = lambda *_: time.sleep(0.05) or 50

    monkeypatch.setattr(sender, "KafkaProducer", Stuck)
    with Front(kafka, tmp_path) as front:
        port, metrics_port = free_ports(2)
        table = {"port": port, "metrics_port": metrics_port, "timeout_seconds": 1.0}
        settings = replace(front.config, gateway=front.config.gateway.model_copy(update=table))
        front.port, front.metrics_port = port, metrics_port

        def ready():
            with contextlib.suppress(ConnectionRefusedError):
                return front.probe("/readyz")[0] == 200

        def client():
            try:
                until(ready, "the gateway is ready")
                statuses = [front.upload(0, secrets.token_hex(16))]
                until(
                    lambda: statuses.append(front.upload(1, "0" * 32)) or statuses[-1] == 202,
                    "the gateway accepts an upload again",
                )
                return statuses, front.probe("/metrics")[1].decode()
            finally:
                os.kill(os.getpid(), signal.SIGTERM)

        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # until the gateway handles it
        with ThreadPoolExecutor(1) as pool:
            answers = pool.submit(client)
            assert gateway.run(settings) == 0
        statuses, metrics = answers.result()
        assert set(statuses[:-1]) == {503}
        assert len(made) == 2
        assert "\nldp_gateway_inflight_bytes 0.0\n" in metrics


def test_a_gateway_killed_at_any_step_loses_and_doubles_nothing(kafka, tmp_path):
    aims = [Aim("upload", step.number, side) for step in UPLOADING for side in ("before", "after")]
    with Front(kafka, tmp_path) as front, ThreadPoolExecutor(1) as pool:
        front.start("shuffle")
        for number, aim in enumerate(aims):
            front.processes["gateway"].kill()
            front.processes["gateway"].wait()
            dying, key = front.start("gateway", aim), secrets.token_hex(16)

            def accepted(number=number, key=key):
                with contextlib.suppress(OSError, http.client.HTTPException):
                    return front.upload(number, key) == 202

            client = pool.submit(until, accepted, f"the upload of {aim} is accepted")
            assert dying.wait(30) == -signal.SIGKILL, aim
            front.start("gateway")
            client.result()
        for number in range(len(aims), 3 * BATCH):
            assert front.upload(number, secrets.token_hex(16)) == 202
        until(lambda: sum(front.shuffled().values()) >= 3 * BATCH, "all uploads are shuffled")
        assert front.shuffled() == Counter(range(3 * BATCH))


def test_random_kills_lose_and_double_nothing(kafka, redis_url, tmp_path):
    kills(kafka, redis_url, tmp_path, 6)


@pytest.mark.long
def test_many_random_kills_lose_and_double_nothing(kafka, redis_url, tmp_path):
    kills(kafka, redis_url, tmp_path, 200)


def test_kills_with_a_new_id_for_each_try_double_uploads(kafka, redis_url, tmp_path):
    """Otherwise the tests above prove nothing."""
    with pytest.raises(AssertionError, match="shuffled twice"):
        kills(kafka, redis_url, tmp_path, 2, fresh=True)


def kills(kafka, redis_url, folder, count, *, fresh=False):
    """Kills the gateway or the shuffler at random times under load; clients lose 3 % of the answers.

    Asserts that each accepted upload is shuffled once, and that a worker counts it once. `fresh`: whether each try has
    a new id.
    """
    rng, stop = random.Random(0), threading.Event()
    with Front(kafka, folder, MANY, redis_url) as front, ThreadPoolExecutor(4) as pool:
        for command in ("shuffle", "run"):
            front.start(command)
        numbers = itertools.count()

        def client(seed):
            mine, sent = random.Random(seed), []
            while not stop.is_set():
                number, key = next(numbers), secrets.token_hex(16)
                accepted = False
                while not accepted:
                    with contextlib.suppress(OSError, http.client.HTTPException):
                        accepted = front.upload(number, secrets.token_hex(16) if fresh else key) == 202
                    lost = mine.random() < 0.03
                    accepted = accepted and not lost
                    time.sleep(0 if accepted or lost else 0.05)
                sent.append(number)
            return sent

        clients = [pool.submit(client, seed) for seed in range(4)]
        try:
            for _ in range(count):
                time.sleep(rng.uniform(0.2, 1.0))
                victim = rng.choice(["gateway", "shuffle"])
                front.processes[victim].kill()
                front.processes[victim].wait()
                if victim == "shuffle":
                    front.expel()
                front.start(victim)
            time.sleep(0.5)
        finally:
            stop.set()
        sent = [number for one in clients for number in one.result()]
        while len(sent) % MANY:  # no upload waits for others
            sent.append(next(numbers))
            until(
                lambda: front.upload(sent[-1], secrets.token_hex(16)) == 202, "the last uploads are accepted"
            )
        found = Counter[int]()

        def shuffled():
            found.clear()
            found.update(front.shuffled())
            return len(found) >= len(sent) - MANY * fresh

        until(shuffled, f"{len(sent)} uploads are shuffled")
        assert max(found.values()) == 1, (
            f"{sum(n > 1 for n in found.values())} of {len(sent)} are shuffled twice"
        )
        assert found.keys() == set(sent)

        def counted():
            verdict = audit.verify(front.served, front.config)
            assert verdict.difference is None
            return verdict.lag == 0 and verdict.reports == len(sent)

        until(counted, "the audit is equal")
        print(f"{len(sent)} uploads, {count} kills, none lost, none shuffled twice")


def test_the_demo_uploads_its_last_users(kafka, tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "UPLOADS", 2 * BATCH)
    crowd = SimpleNamespace(values=np.arange(3 * BATCH))
    with Front(kafka, tmp_path, stream=demo.STREAM) as front, demo.Workers(tmp_path, {}) as workers:
        front.start("shuffle")
        demo.upload(front.config, crowd, workers)
        until(lambda: front.shuffled().total() == 2 * BATCH, "the uploads reach the topic of reports")


def test_a_port_that_is_taken_ends_the_gateway(tmp_path):
    toml = tmp_path / "worker.toml"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port, (metrics_port,) = taken.getsockname()[1], free_ports(1)
        toml.write_text(
            f'kafka.bootstrap_servers = "127.0.0.1:1"\ngateway = {{ host = "127.0.0.1", port = {port}, '
            f"metrics_port = {metrics_port} }}\n[[streams]]\n"
            'name = "s"\ntopic = "r"\nintake = "i"\nprotocol = "grr"\nepsilon = "1"\ndomain_size = 4\n'
        )
        command = [sys.executable, "-m", "worker", "gateway", "--config", str(toml)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert ended.returncode == 2
    assert f"gateway.port: cannot listen on {port} (" in " ".join(ended.stderr.split())
