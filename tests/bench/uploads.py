"""Uploads per CPU second of the gateway and of the shuffler, which move them from HTTP to the topic of reports.

python -m tests.bench.uploads

The peer of the gateway is granian with a Starlette handler that reads the body and answers 202, without Kafka. Both get
the same requests in turns: 64 keep-alive connections, each with one upload in flight. Then the gateway gets
encapsulated uploads (oblivious HTTP), which are encrypted before each turn. Then 10,000 connections send one upload
each and stay open. The shuffler's rate is from its first batch to its last. The memory of its ids is that of Python's
objects. CPU seconds are those of the measured process (see `usage`).
"""

import asyncio
import contextlib
import http.client
import json
import resource
import secrets
import selectors
import socket
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from statistics import median

from granian.constants import HTTPModes, Interfaces
from granian.server.embed import Server
from kafka import KafkaProducer
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import ldp
from deploy.local.services import Services, free_ports
from deploy.local.workers import ROOT
from ldp import frames
from tests.bench.ingest.usage import Cores, Usage, on
from tests.bench.measure import Line
from tests.support.ohttp import Sealed, dated, write_request
from worker.shuffling.uploads import RecentIds

TURNS, TURN_SECONDS, CONNECTIONS, MANY = 5, 3.0, 64, 10_000
BATCH, UPLOADS, SEALED, HOURLY = 1_000, 200_000, 6_000, 360_000
_WORKER = [sys.executable, "-m", "worker"]
_PATH = "/v1/streams/uploads/reports"


def lines() -> Iterator[Line]:
    """Measures the gateway, then the shuffler."""
    cores, (_, most_files) = Cores.here(), resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    ports = dict(zip(("gateway", "metrics", "shuffle", "bare"), free_ports(4), strict=True))
    with on(cores.others), Services.start() as services, tempfile.TemporaryDirectory() as folder:
        toml = Path(folder) / "worker.toml"
        toml.write_text(
            f'kafka.bootstrap_servers = "{services.kafka.address}"\nhttp.port = {ports["shuffle"]}\n'
            f"log_level = 'warning'\ngateway.ohttp.key_files = ['key']\n"
            f"gateway.port = {ports['gateway']}\ngateway.metrics_port = {ports['metrics']}\n"
            '[[streams]]\nname = "uploads"\ntopic = "reports"\nintake = "intake"\nprotocol = "olh"\nepsilon = "1"\n'
            f"domain_size = 1024\nshuffle_batch_size = {BATCH}\n",
            encoding="utf-8",
        )
        subprocess.run([*_WORKER, "ohttp-key", "new", toml.with_name("key")], check=True, stdout=sys.stderr)
        subprocess.run(_command("create-topics", toml), cwd=ROOT, check=True, stdout=sys.stderr)
        stream = ldp.Stream("uploads", ldp.OLH("1", domain_size=1024))
        frame = frames.encode(stream, stream.oracle.perturb([7]))
        with _running(_command("gateway", toml), cores) as gateway, _running(_bare(ports), cores) as bare:
            _await(lambda: _get(ports["metrics"], "/readyz"))
            _await(lambda: _load(ports["bare"], _requests(frame, 0.5)))
            _load(ports["gateway"], _requests(frame, TURN_SECONDS))
            sides = (gateway, ports["gateway"]), (bare, ports["bare"])
            turns = [
                [_rate(pid, port, _requests(frame, TURN_SECONDS)) for pid, port in sides]
                for _ in range(TURNS)
            ]
            before = _total(ports["metrics"], "ldp_gateway_uploads_total", "accepted")
            sealed = [
                _rate(gateway, ports["gateway"], iter(_sealed(ports["gateway"], frame))) for _ in range(TURNS)
            ]
            after = _total(ports["metrics"], "ldp_gateway_uploads_total", "accepted")
            if after - before != TURNS * SEALED:
                raise ValueError(
                    f"{after - before:g} encapsulated uploads are accepted, not {TURNS * SEALED}"
                )
            peak = Usage.of(gateway).peak_bytes
            accepted = _load(ports["gateway"], islice(_requests(frame, 60), MANY), MANY)
            most = Usage.of(gateway).peak_bytes
        ours, peer = (median(side) for side in zip(*turns, strict=True))
        yield {
            "bench": "uploads: gateway",
            "ours": round(ours),
            "peer": round(peer),
            "peer_name": "granian with a Starlette handler that answers 202",
            "unit": "uploads/CPU s",
            "ratio": round(ours / peer, 2),
            "peak_bytes": peak,
            "setup": f"one OLH report, {CONNECTIONS} connections, {TURNS} turns of {TURN_SECONDS:g} s",
        }
        yield {
            "bench": "uploads: gateway with oblivious HTTP",
            "ours": round(median(sealed)),
            "unit": "uploads/CPU s",
            "setup": f"one OLH report, {CONNECTIONS} connections, {TURNS} turns of {SEALED:,} uploads",
        }
        yield {
            "bench": f"uploads: gateway with {MANY:,} connections",
            "ours": round((most - peak) / MANY),
            "unit": "bytes per connection",
            "peak_bytes": most,
            "setup": f"one upload each at once; {accepted:,} answers 202, else 503",
        }
        yield from _shuffled(services.kafka.address, toml, ports["shuffle"], frame, cores)
        yield _remembered()


def _command(name: str, toml: Path) -> list[str]:
    return [*_WORKER, name, "--config", str(toml)]


def _bare(ports: dict[str, int]) -> list[str]:
    return [sys.executable, "-m", "tests.bench.uploads", str(ports["bare"])]


@contextlib.contextmanager
def _running(command: list[str], cores: Cores) -> Iterator[int]:
    """Runs a process on the measured core; yields its id."""
    with on(cores.measured):
        process = subprocess.Popen(command, cwd=ROOT, stdout=sys.stderr)
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def _await(ready: Callable[[], object]) -> None:
    for _ in range(600):
        with contextlib.suppress(OSError):
            if ready():
                return
        time.sleep(0.1)
    raise TimeoutError("a process did not start within 60 s")


def _get(port: int, path: str) -> bytes:
    """Returns the body of an answer 200, else an empty body."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
    return body if answer.status == 200 else b""


def _rate(pid: int, port: int, requests: Iterator[bytes]) -> float:
    """Uploads per CPU second of a process."""
    before = Usage.of(pid).cpu_seconds
    uploads = _load(port, requests)
    return uploads / (Usage.of(pid).cpu_seconds - before)


def _load(port: int, requests: Iterator[bytes], connections: int = CONNECTIONS) -> int:
    """Sends all requests over all connections; returns the number of answers 202 (or 200, with oblivious HTTP)."""
    accepted = 0
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as stack:
        for _ in range(connections):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            selector.register(connection, selectors.EVENT_READ, connection)
            connection.sendall(next(requests))
        while selector.get_map():
            for key, _ in selector.select():
                connection = key.data
                answer = connection.recv(4096)
                if not answer.startswith((b"HTTP/1.1 20", b"HTTP/1.1 503")):
                    raise ConnectionError(f"the answer is {answer[:100]!r}")
                accepted += answer[9:11] == b"20"
                if (request := next(requests, None)) is not None:
                    connection.sendall(request)
                else:
                    selector.unregister(connection)
    return accepted


def _requests(frame: bytes, seconds: float) -> Iterator[bytes]:
    """Yields uploads for some time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        yield (
            f"POST {_PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\n"
            f"Idempotency-Key: {secrets.token_hex(16)}\r\nContent-Length: {len(frame)}\r\n\r\n"
        ).encode() + frame


def _sealed(port: int, frame: bytes) -> list[bytes]:
    """Returns encapsulated uploads."""
    keys = _get(port, "/ohttp-keys")
    found = []
    for _ in range(SEALED):
        fields = [
            (b"content-type", b"application/octet-stream"),
            (b"idempotency-key", secrets.token_hex(16).encode()),
        ]
        body = Sealed(keys, write_request(b"POST", _PATH.encode(), dated(fields), frame)).request
        head = "POST /ohttp HTTP/1.1\r\nHost: localhost\r\nContent-Type: message/ohttp-req\r\n"
        found.append(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return found


def _shuffled(kafka: str, toml: Path, port: int, frame: bytes, cores: Cores) -> Iterator[Line]:
    """Measures the shuffler with a full intake."""
    with contextlib.closing(KafkaProducer(bootstrap_servers=kafka, linger_ms=20)) as producer:
        for _ in range(UPLOADS):
            producer.send("intake", frame, secrets.token_bytes(16))
        producer.flush()
    with _running(_command("shuffle", toml), cores) as pid:
        _await(lambda: _moved(port))
        first, before, began = _moved(port), Usage.of(pid).cpu_seconds, time.monotonic()
        _await(lambda: _moved(port) >= UPLOADS // BATCH * BATCH)
        last, after, seconds = _moved(port), Usage.of(pid), time.monotonic() - began
    yield {
        "bench": "uploads: shuffler",
        "ours": round((last - first) / (after.cpu_seconds - before)),
        "unit": "uploads/CPU s",
        "seconds": round(seconds, 1),
        "peak_bytes": after.peak_bytes,
        "setup": f"one OLH report, {last - first:.0f} uploads, B = {BATCH:,}",
    }


def _remembered() -> Line:
    """Measures the most memory of the ids of three hours, for each upload of an hour."""
    hour, step = 3_600_000, 3_600_000 // HOURLY
    ids, at = RecentIds(hour), 0
    tracemalloc.start()
    while at < 3 * hour:
        timestamps = [at + step * i for i in range(BATCH)]
        ids.add([secrets.token_bytes(16) for _ in timestamps], timestamps)
        at = timestamps[-1] + step
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return {
        "bench": "uploads: ids that the shuffler remembers",
        "ours": round(most / HOURLY),
        "unit": "bytes per upload of deduplicate_for",
        "setup": f"{HOURLY:,} uploads/h for 3 h, deduplicate_for = 1h",
    }


def _moved(port: int) -> float:
    """Number of uploads that the shuffler has moved."""
    return _total(port, "ldp_shuffle_uploads_total", "shuffled")


def _total(port: int, name: str, outcome: str) -> float:
    """Sum of a metric over all streams."""
    families = text_string_to_metric_families(_get(port, "/metrics").decode())
    samples = (sample for family in families for sample in family.samples)
    return sum(
        sample.value for sample in samples if sample.name == name and sample.labels["outcome"] == outcome
    )


def _serve(port: int) -> None:
    """The peer."""

    async def accept(request: Request) -> Response:
        await request.body()
        return Response(None, 202)

    app = Starlette(routes=[Route("/v1/streams/{stream}/reports", accept, methods=["POST"])])
    server = Server(
        app,
        "127.0.0.1",
        port,
        interface=Interfaces.ASGINL,
        http=HTTPModes.http1,
        websockets=False,
        log_enabled=False,
    )
    asyncio.run(server.serve())


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _serve(int(sys.argv[1]))
    else:
        for line in lines():
            print(json.dumps(line, ensure_ascii=False), flush=True)
