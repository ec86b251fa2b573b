"""Cost of page readers that read nothing, for a counting worker: memory, delay of probes, counting rate.

``python -m tests.bench.readers [READERS [DOMAIN [METHODS]]]`` has the defaults 500, 1,000,000 and base,norm-sub. The
worker counts a backlog, in turns of 20 s without readers and with readers; a closed connection is opened again. Each
line has the added resident memory in MB, the slowest answer of ``/healthz`` and the ratio of the counting rates. The
load generator, Kafka and Redis use the same cores.
"""

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import numpy as np
from kafka import KafkaProducer

import ldp
from deploy.local.services import Services
from deploy.local.workers import ROOT, Worker
from ldp import frames
from tests.bench.measure import Line

TURNS, TURN_SECONDS = 3, 20.0
_WARM_SECONDS = 30.0
_REPORTS, _RECORDS = 1_000, 16
_PARTITIONS = 2
_MOST_SECONDS = 1.0
_MOST_MB = 200
_LEAST_RATIO = 0.9


def lines(readers: int = 500, d: int = 1_000_000, methods: str = "base,norm-sub") -> Iterator[Line]:
    """Measures it; on all cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, range(os.cpu_count() or 1))
    try:
        with Services.start() as services, tempfile.TemporaryDirectory() as folder:
            yield from _measured(services, Path(folder), readers, d, methods.split(","))
    finally:
        os.sched_setaffinity(0, before)


def _measured(services: Services, folder: Path, readers: int, d: int, methods: list[str]) -> Iterator[Line]:
    stream = ldp.Stream("readers", ldp.OLH("1", domain_size=d))
    toml = folder / "worker.toml"
    toml.write_text(
        f'kafka.bootstrap_servers = "{services.kafka.address}"\nredis.url = "{services.redis.address}"\n'
        "kafka.max_batch_bytes = 1048576\nkafka.memory_bytes = 16777216\n"  # it fills slowly, and is none of readers
        f"http.port = 0\nsnapshots.methods = {json.dumps(methods)}\n"
        '[[streams]]\nname = "readers"\ntopic = "readers"\nprotocol = "olh"\nepsilon = "1"\n'
        f"domain_size = {d}\n",
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "worker", "create-topics", "--config", str(toml)]
    subprocess.run([*command, "--partitions", str(_PARTITIONS)], cwd=ROOT, check=True, stdout=sys.stderr)
    rng = np.random.default_rng(20_200_616)
    reports = stream.oracle.perturb(rng.zipf(1.5, _REPORTS * _RECORDS) % d, rng=rng)
    values = [frames.encode(stream, part) for part in np.split(reports, _RECORDS)]
    producer = KafkaProducer(bootstrap_servers=services.kafka.address, linger_ms=20, batch_size=1 << 18)
    worker = Worker.run("worker", folder / "worker.log", os.environ, "--config", str(toml))
    try:
        with _fed(producer, values, worker):
            until = time.monotonic() + _WARM_SECONDS
            while time.monotonic() < until or not worker.metric("snapshots_total"):
                time.sleep(0.5)
            seen = _Seen(worker)
            for _ in range(TURNS):
                seen.turn(0)
                seen.turn(readers)
    finally:
        worker.kill()
    setup = f"d = {d:,}, {', '.join(methods)}, {readers} readers that read nothing, {TURNS} turns of {TURN_SECONDS:g} s"
    ratio = median(seen.beside) / median(seen.alone)
    yield _line("readers: memory above that of none", seen.most_mb, _MOST_MB, "MB", setup)
    yield _line("readers: longest /healthz", seen.longest, _MOST_SECONDS, "s", setup)
    yield _line("readers: counting, of counting alone", ratio, _LEAST_RATIO, "", setup)


def _line(bench: str, ours: float, bar: float, unit: str, setup: str) -> Line:
    return {"bench": bench, "ours": round(ours, 3), "bar": bar, "unit": unit, "setup": setup}


@contextlib.contextmanager
def _fed(producer: KafkaProducer, values: list[bytes], worker: Worker) -> Iterator[None]:
    """Keeps more on the topic than is counted, on a thread."""
    ended = threading.Event()

    def feed() -> None:
        sent = 0
        while not ended.is_set():
            if sent - worker.metric("reports_total") / _REPORTS < 40_000:
                for turn in range(500):
                    producer.send("readers", value=values[turn % len(values)], partition=turn % _PARTITIONS)
                sent += 500
            else:
                ended.wait(0.2)

    while not worker.ready():
        time.sleep(0.2)
    feeding = threading.Thread(target=feed)
    feeding.start()
    try:
        yield
    finally:
        ended.set()
        feeding.join()


class _Seen:
    """Measurements of a worker."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._before = self._resident()
        self.most_mb = self.longest = 0.0
        self.alone: list[float] = []
        self.beside: list[float] = []

    def _resident(self) -> float:
        status = Path(f"/proc/{self._worker.process.pid}/status").read_text(encoding="ascii")
        return int(status.split("VmRSS:")[1].split()[0]) * 1024 / 1e6

    def turn(self, readers: int) -> None:
        """Measures the reports counted per second with this many readers."""
        most, longest = 0.0, 0.0
        with _held(self._worker.port(), readers) as keep:
            began, counted = time.monotonic(), self._worker.metric("reports_total")
            while time.monotonic() < began + TURN_SECONDS:
                keep()
                asked = time.monotonic()
                status, _, _ = self._worker.get("/healthz")
                longest = max(longest, time.monotonic() - asked)
                most = max(most, self._resident() - self._before)
                assert status == 200, status
                time.sleep(0.05)
            rate = (self._worker.metric("reports_total") - counted) / (time.monotonic() - began)
        print(f"{readers} readers: {rate:,.0f} reports/s, + {most:.0f} MB, {longest:.2f} s", file=sys.stderr)
        if not readers:
            self.alone.append(rate)
            return
        self.beside.append(rate)
        self.most_mb, self.longest = max(self.most_mb, most), max(self.longest, longest)


@contextlib.contextmanager
def _held(port: int, readers: int) -> Iterator[Callable[[], None]]:
    """Connections that send requests and read nothing; yields a function that reopens closed ones."""
    watched, open_ones = select.poll(), dict[int, socket.socket]()

    def keep() -> None:
        for descriptor, _ in watched.poll(0):
            watched.unregister(descriptor)
            open_ones.pop(descriptor).close()
        while len(open_ones) < readers:
            reader = socket.socket()
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            reader.settimeout(30)
            reader.connect(("127.0.0.1", port))
            reader.sendall(
                b"GET /streams/readers/snapshot HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n\r\n"
            )
            open_ones[reader.fileno()] = reader
            watched.register(reader, select.POLLRDHUP)  # also what always counts: errors, and the end

    try:
        yield keep
    finally:
        for reader in open_ones.values():
            reader.close()


if __name__ == "__main__":
    given = dict(zip(("readers", "d", "methods"), sys.argv[1:], strict=False))
    numbers = {name: int(number) for name, number in given.items() if name != "methods"}
    for found in lines(**numbers, methods=given.get("methods", "base,norm-sub")):
        print(json.dumps(found), flush=True)
