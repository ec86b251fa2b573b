"""Cost of readers of the page: bytes, connections and requests are bounded, and probes are answered
meanwhile."""

import asyncio
import contextlib
import gzip
import http.client
import re
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

WAIT = 60
READERS = 150

LARGE = """
import sys
from types import SimpleNamespace
import numpy as np
import ldp
from ldp.snapshot import Cut, take
from worker.http import server
from worker.http.page import Page
from worker.observe.metrics import Metrics
d = 100_000
stream = ldp.Stream("s", ldp.GRR("1", domain_size=d))
counts = np.random.default_rng(1).integers(0, 100, d)
taken = take(stream, stream.oracle.estimate(counts, int(counts.sum())), Cut({0: 1}, {}), 1, methods=["base"])
there = SimpleNamespace(identity=taken.identity)
snapshots = SimpleNamespace(find=lambda *a: there, read=lambda *a: taken, newest=lambda s: {}, wait=lambda s: True)
page = Page(SimpleNamespace(document=list), snapshots, ["s"])
ok = lambda: (True, {})
print(server.HttpServer("127.0.0.1", 0, Metrics().registry, ok, ok, page).server_port, flush=True)
sys.stdin.read()
"""
"""A worker's server with a snapshot of ten megabytes."""

FOLLOWED = """
import re
from pathlib import Path
import numpy as np
from ldp import snapshot
from ldp.snapshot import Cut
from tests.unit.worker.test_page_served import Consumer, Log
from worker.config import parse
from worker.kafka.snapshots.follower import Follower, trim_memory

def resident():
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(re.search(r"VmRSS:\\s+(\\d+)", status)[1]) / 1024

class Copying(Consumer):
    def poll(self, *given, **named):
        polled = super().poll(*given, **named)
        return {tp: [one._replace(value=bytes(bytearray(one.value))) for one in many] for tp, many in polled.items()}

config = parse('[[streams]]\\nname = "s"\\ntopic = "t"\\nprotocol = "grr"\\nepsilon = "1"\\ndomain_size = 1000000')
(stream,) = [served.stream for served in config.streams]
log = Log()
counts = np.random.default_rng(1).integers(0, 9, 1_000_000)
estimate = stream.oracle.estimate(counts, int(counts.sum()))
log.publish(snapshot.take(stream, estimate, Cut({0: 1}, {}), 1, methods=["base"]))
follower = Follower(config, lambda: Copying(log))
whole = follower.find("s", seconds=60)
trim_memory()
before = resident()
follower.read("s", whole, 60)
print(resident() - before, flush=True)
"""
"""A follower that reads a snapshot of a million values, 48 MB; prints the growth of its memory in MiB."""


@contextlib.contextmanager
def process(code):
    """A process that serves; gives it and its port."""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as running:
        try:
            yield running, int(running.stdout.readline())
        finally:
            running.kill()


def run_apart(answer):
    """Runs a coroutine on its own thread: a browser of another test may have a loop in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, answer).result()


def resident(running):
    """Memory of a process in MiB."""
    status = Path(f"/proc/{running.pid}/status").read_text(encoding="ascii")
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024


def asking(port, path="/streams/s/snapshot", more=""):
    """A connection that asks and reads nothing."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(WAIT)
    connection.connect(("127.0.0.1", port))
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{more}\r\n".encode())
    return connection


def get(port, path="/healthz", **headers):
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT)) as connection:
        connection.request("GET", path, headers={n.replace("_", "-"): said for n, said in headers.items()})
        reply = connection.getresponse()
        return reply.status, reply.read()


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [pytest.param("", marks=pytest.mark.long), "Accept-Encoding: gzip\r\n"],
    ids=["plain", "gzip"],
)
def test_stalled_readers_use_little_memory_and_block_no_probe(more):
    with process(LARGE) as (running, port), contextlib.ExitStack() as held:
        assert get(port, "/streams/s/snapshot")[0] == 200  # the server accepts requests below the limit
        before, most = resident(running), 0.0
        for _ in range(READERS):
            held.enter_context(asking(port, more=more))
            assert get(port)[0] == 200
            most = max(most, resident(running) - before)
        deadline = time.monotonic() + 2.0  # for those that are only accepted yet
        while time.monotonic() < deadline:
            most = max(most, resident(running) - before)
        assert get(port, "/metrics")[0] == 200
        assert most < 100, f"{READERS} readers take {most:.0f} MiB"


@pytest.mark.slow
def test_a_served_snapshot_keeps_no_other_memory():
    said = subprocess.run([sys.executable, "-c", FOLLOWED], capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    assert float(said.stdout) < 75, "its messages are kept as well"


def test_an_answer_is_built_once_and_shared_by_all_readers(served_whole):
    port, made = served_whole
    with ThreadPoolExecutor(20) as pool:
        answers = list(
            pool.map(lambda _: get(port, "/streams/s/snapshot", Accept_Encoding="gzip"), range(20))
        )
    assert {status for status, _ in answers} == {200}
    assert len({gzip.decompress(body) for _, body in answers}) == 1
    assert len(made) == 1


@pytest.fixture
def served_whole(monkeypatch):
    """A server whose one snapshot takes a while to write; the port, and how often it was written."""
    from types import SimpleNamespace

    from worker.http import server
    from worker.http.page import Page
    from worker.observe.metrics import Metrics

    made = []

    def whole(snapshot, methods):
        made.append(methods)
        time.sleep(0.2)
        return [b'{"digits":"', np.random.default_rng(1).bytes(4 << 20).hex().encode(), b'"}']

    monkeypatch.setattr("worker.http.page.documents.whole", whole)
    snapshots = SimpleNamespace(
        find=lambda *_: SimpleNamespace(identity="1"),
        read=lambda *_: SimpleNamespace(bodies={"base": None}),
        newest=lambda _: {},
        wait=lambda _: True,
    )
    page = Page(SimpleNamespace(document=list), snapshots, ["s"])
    running = server.HttpServer(
        "127.0.0.1", 0, Metrics().registry, lambda: (True, {}), lambda: (True, {}), page
    )
    yield running.server_port, made
    running.shutdown()


def test_a_request_without_its_body_is_closed(served_whole, monkeypatch):
    """Waits for a body, as a gateway does: the connection has a deadline."""
    from worker.http import connections

    monkeypatch.setattr(connections, "REQUEST_SECONDS", 0.2)
    bodies = []

    async def application(scope, receive, send):
        while (message := await receive())["type"] == "http.request":
            bodies.append(message["body"])

    server = connections.Server("127.0.0.1", 0, application, {})
    try:
        with socket.create_connection(("127.0.0.1", server.server_port), timeout=WAIT) as connection:
            connection.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhal")
            assert connection.recv(1) == b""
        assert bodies == [b"hal"]
    finally:
        server.shutdown()


@pytest.mark.parametrize("size", [1 << 20, 200], ids=["a long answer", "a short one"])
def test_a_stalled_reader_is_dropped(monkeypatch, size):
    from worker.http import connections

    monkeypatch.setattr(connections, "STALLED_SECONDS", 0.2)
    monkeypatch.setattr(connections, "_KERNEL_BYTES", 4096)
    lost = threading.Event()

    async def application(scope, receive, send):
        headers = [(b"content-length", b"%d" % (size * 100))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for _ in range(100):
            await send({"type": "http.response.body", "body": b"x" * size, "more_body": True})
        if size == 200:
            await send({"type": "http.response.body", "body": b""})
        await scope["state"]["connection"].lost.wait()
        lost.set()

    server = connections.Server("127.0.0.1", 0, application, {})
    try:
        with asking(server.server_port):
            assert lost.wait(WAIT)
    finally:
        server.shutdown()


def made(answers, sizes, key="answer"):
    """Makes answers of such sizes, one after the other."""

    async def make():
        return [
            await answers.get((key, at), lambda size=size: [np.random.default_rng(1).bytes(size)])
            for at, size in enumerate(sizes)
        ]

    return run_apart(make())


@pytest.fixture
def answers(monkeypatch):
    from worker.http import answers

    monkeypatch.setattr(answers, "_PAUSES", 0)
    return answers


def test_answers_are_bounded_in_bytes_including_pending_ones(answers, monkeypatch):
    monkeypatch.setattr(answers, "MOST_BYTES", 1_000_000)
    kept = answers.Answers()
    first, *_, last = made(kept, [300_000] * 10)
    assert kept.bytes <= 1_000_000
    assert 2 <= len(kept) <= 3
    with pytest.raises(answers.Dropped):
        next(first.gzipped())
    assert len(b"".join(last.plain())) == 300_000
    with pytest.raises(answers.TooLarge):
        made(kept, [1_100_000], "another")
    assert kept.bytes == len(kept) == 0  # it made the server close all others, and is closed itself
    assert len(made(kept, [300_000], "third")) == 1


def test_answers_are_bounded_in_number(answers, monkeypatch):
    monkeypatch.setattr(answers, "MOST_ANSWERS", 5)
    kept = answers.Answers()
    made(kept, [10] * 20)
    assert len(kept) == 5


def test_waiting_requests_are_bounded(answers, monkeypatch):
    monkeypatch.setattr(answers, "MOST_WAITING", 3)
    kept, go = answers.Answers(), threading.Event()

    def parts():
        go.wait(WAIT)
        return [b"x"]

    async def ask():
        waiting = [asyncio.create_task(kept.get(key, parts)) for key in (1, 2, 3, 3, 3)]
        await asyncio.sleep(0)
        with pytest.raises(answers.Busy, match="3 requests are queued"):
            await kept.get(4, parts)
        go.set()
        return await asyncio.gather(*waiting)

    assert len({*run_apart(ask())}) == 3


def test_an_excerpt_does_not_wait_for_paused_snapshots(answers, monkeypatch):
    monkeypatch.setattr(answers, "_PAUSES", 1e9)
    monkeypatch.setattr(answers, "_LONGEST_PAUSE_SECONDS", 10.0 * WAIT)
    kept = answers.Answers()

    async def ask():
        await kept.get(1, lambda: [b"x"], "snapshot")
        next_one = asyncio.create_task(kept.get(2, lambda: [b"x"], "snapshot"))
        await kept.get(3, lambda: [b"x"], "excerpt")
        return next_one.done()

    assert not run_apart(ask())


def test_a_failed_answer_frees_its_bytes_and_is_retried(answers):
    kept = answers.Answers()

    def failing():
        yield b"x" * 100_000
        raise ValueError

    async def ask(parts):
        return await kept.get("key", parts)

    with pytest.raises(ValueError):
        run_apart(ask(failing))
    assert kept.bytes == 0
    assert run_apart(ask(lambda: [b"y"])).length == 1


@pytest.mark.slow
def test_an_oversized_answer_names_a_smaller_request(served_whole, monkeypatch):
    port, _ = served_whole
    monkeypatch.setattr("worker.http.answers.MOST_BYTES", 1 << 20)
    status, body = get(port, "/streams/s/snapshot")
    assert status == 400
    assert b"?method=base" in body
