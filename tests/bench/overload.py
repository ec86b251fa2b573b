"""Ten times more than a worker can count: its memory, its membership and its readiness, and that it catches up.

Run as ``python -m tests.bench.overload [MINUTES]``; 10 where nothing is said. For a tenth of the time a producer sends
what the worker needs all of it to count: OLH reports over a domain of 65,536 values, a thousand a record, two
partitions, drawn once and sent again and again, so that the truth is a multiple of few counts. One JSON line says what
was seen, asked each second: the peak of its memory, how often it was not ready, how often it claimed, and how many of
its counts are wrong.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from kafka import KafkaProducer

import ldp
from deploy.local.services import Services
from deploy.local.workers import ROOT, Worker
from ldp import frames
from tests.integration.harness.reader import Snapshots
from worker.audit.protocols import protocol_of

STREAM = ldp.Stream("overload", ldp.OLH("1", domain_size=65_536))
PARTITIONS = 2
REPORTS, RECORDS = 1_000, 8
"""Reports of a record, and records that are drawn."""
MOST_MIB = 512


@dataclass
class Seen:
    """What a worker was seen to do."""

    peak_mib: float = 0.0
    looks: int = 0
    not_ready: int = 0
    claims: float = 0.0
    states: set[str] = field(default_factory=set)

    def look(self, worker: Worker) -> float:
        """Looks at it once; returns how many reports it has counted."""
        status = Path(f"/proc/{worker.process.pid}/status").read_text(encoding="ascii")
        self.peak_mib = int(status.split("VmHWM:")[1].split()[0]) / 1024
        code, _, body = worker.get("/readyz")
        self.looks += 1
        if code != 200:
            self.not_ready += 1
            self.states.add(body)
        self.claims = worker.metric("claims_total")
        return worker.metric("reports_total")


def configure(services: Services, folder: Path) -> Path:
    """Writes the worker's configuration."""
    path = folder / "worker.toml"
    path.write_text(
        f'kafka.bootstrap_servers = "{services.kafka.address}"\nredis.url = "{services.redis.address}"\n'
        'http.port = 0\n[[streams]]\nname = "overload"\ntopic = "overload"\nprotocol = "olh"\nepsilon = "1"\n'
        "domain_size = 65536\n",
        encoding="utf-8",
    )
    return path


def wait(worker: Worker, seen: Seen, reports: float, seconds: float) -> None:
    """Looks each second until so many reports are counted."""
    deadline = time.monotonic() + seconds
    while seen.look(worker) < reports:
        assert time.monotonic() < deadline, f"not {reports} reports counted in {seconds:.0f} s"
        time.sleep(1)


def main() -> None:
    """Measures it."""
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    rng = np.random.default_rng(20_200_616)
    reports = STREAM.oracle.perturb(rng.zipf(1.5, REPORTS * RECORDS) % 65_536, rng=rng)
    values = [frames.encode(STREAM, part) for part in np.split(reports, RECORDS)]
    with Services.start(print_to_stderr) as services, tempfile.TemporaryDirectory() as name:
        print(json.dumps(measured(services, Path(name), values, reports, 60 * minutes)), flush=True)


def print_to_stderr(text: str) -> None:
    """Says how far it is."""
    print(text, file=sys.stderr, flush=True)


def measured(
    services: Services, folder: Path, values: list[bytes], reports: Any, seconds: float
) -> dict[str, Any]:
    """Overloads a worker; returns what was seen, ready for JSON."""
    toml = configure(services, folder)
    command = [sys.executable, "-m", "worker", "create-topics", "--config", str(toml)]
    subprocess.run([*command, "--partitions", str(PARTITIONS)], cwd=ROOT, check=True, stdout=sys.stderr)
    producer = KafkaProducer(bootstrap_servers=services.kafka.address, linger_ms=20, batch_size=1 << 18)
    worker, seen = Worker.run("worker", folder / "worker.log", os.environ, "--config", str(toml)), Seen()
    try:
        while not worker.ready():
            time.sleep(0.2)
        sent = send(producer, values, 40)  # until it counts at its full speed
        wait(worker, seen, sent * REPORTS, 120)
        began = time.monotonic()
        sent += send(producer, values, 200)
        wait(worker, seen, sent * REPORTS, 240)
        rate = 200 * RECORDS / (time.monotonic() - began)
        began, turns = time.monotonic(), int(seconds * rate / RECORDS)
        print_to_stderr(
            f"{rate * REPORTS:,.0f} reports a second can be counted; {turns * RECORDS:,} records are sent"
        )
        for part in range(100):  # in a tenth of the time, looked at meanwhile
            sent += send(producer, values, turns * (part + 1) // 100 - turns * part // 100)
            seen.look(worker)
            time.sleep(max(0.0, began + seconds / 10 * (part + 1) / 100 - time.monotonic()))
        sending = time.monotonic() - began
        wait(worker, seen, sent * REPORTS, 3 * seconds)
        took = time.monotonic() - began
        wrong = differences(services, reports, sent)
    finally:
        worker.kill()
    return {
        "bench": "overload",
        "sent_over_counted": round(took / sending, 1),
        "seconds": round(took),
        "peak_mib": round(seen.peak_mib),
        "most_mib": MOST_MIB,
        "looks": seen.looks,
        "not_ready": seen.not_ready,
        "claims": seen.claims,
        "wrong": wrong,
        "setup": f"OLH, d = 65,536, {PARTITIONS} partitions, {REPORTS} reports a record, {sent} records",
    }


def send(producer: KafkaProducer, values: list[bytes], turns: int) -> int:
    """Sends all values so often, to the partitions in turn; returns how many records that was."""
    for turn in range(turns):
        for value in values:
            producer.send("overload", value=value, partition=turn % PARTITIONS)
    producer.flush(300)
    return turns * len(values)


def differences(services: Services, reports: Any, sent: int) -> int:
    """Compares the snapshot of all that was sent with a recount by the audit's arithmetic; returns what differs."""
    document = STREAM.document()
    protocol = protocol_of(document)
    state = np.zeros(protocol.entries, np.int64)
    protocol.count(state, *(reports[name] for name in reports.dtype.names))
    turns = sent // RECORDS
    deadline = time.monotonic() + 60
    snapshots = Snapshots(services.kafka.address, "ldp-snapshots", STREAM.name)
    while time.monotonic() < deadline:
        snapshot = snapshots.newest()
        if snapshot is not None and snapshot.reports == sent * REPORTS:
            expected = STREAM.oracle.estimate(STREAM.oracle.support(state * turns), sent * REPORTS)
            found = snapshot.bodies["base"].frequencies
            return int((~np.isclose(found, expected.frequencies, rtol=1e-9, atol=1e-12)).sum())
        time.sleep(0.5)
    raise AssertionError(f"no snapshot of all {sent * REPORTS} reports")


if __name__ == "__main__":
    main()
