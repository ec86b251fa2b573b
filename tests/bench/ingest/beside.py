"""Peers as processes: on the worker's core, and measured as the worker is, from their reported start."""

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.local.workers import ROOT
from tests.bench.environment import environment
from tests.bench.ingest import jars
from tests.bench.ingest.filled import Topic
from tests.bench.ingest.usage import Cores, Usage, on

PROGRAMS = Path(__file__).parent / "peers"
COMMIT_SECONDS = 1.0
"""Commit interval of peers with a state; the worker has the same."""
SECONDS = 900.0
"""Until one that is not through is killed."""


class FailedError(RuntimeError):
    """A peer is missing, or failed its task."""


@dataclass(frozen=True)
class Measured:
    """Resources that a peer used."""

    records: int
    cpu_seconds: float
    seconds: float
    peak_bytes: int
    wrong: int | None  # wrong counts; None if the peer counts nothing


@dataclass(frozen=True)
class Peer:
    """A peer, and how it is run."""

    title: str
    command: Callable[[Topic, int, int, str], list[str]]  # first and last record to measure, folder
    warm: int = 0  # records before measuring starts, while the JVM compiles
    most: int = 1 << 62  # enough records of a slow peer

    def measure(self, topic: Topic, cores: Cores) -> Measured:
        """Runs it once."""
        records = min(self.most, topic.records)
        warm = min(self.warm, records // 2)
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as errors:
            try:
                command = self.command(topic, warm, records, folder)
            except (subprocess.CalledProcessError, jars.MissingError) as error:
                raise FailedError(f"it cannot be had: {error}") from error
            with on(cores.measured):
                process = subprocess.Popen(
                    command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
                )
            late = threading.Timer(SECONDS, process.kill)
            late.start()
            with process:
                try:
                    began, before, _ = _said(process, "begin")
                    ended, after, facts = _said(process, "end")
                except EOFError:
                    errors.seek(0)
                    tail = errors.read().strip().splitlines()[-5:]
                    raise FailedError(f"it ended before it was through: {tail}") from None
                finally:
                    late.cancel()
                    process.kill()
        wrong = None
        if "counts" in facts:
            _, state = topic.pool.truth(records)
            wrong = int((state != facts["counts"]).sum())
        cpu = after.cpu_seconds - before.cpu_seconds
        return Measured(records - warm, cpu, ended - began, after.peak_bytes, wrong)


def _said(process: "subprocess.Popen[str]", what: str) -> tuple[float, Usage, Mapping[str, Any]]:
    """Waits for a line of a peer; returns the time, its usage so far, and the facts."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("{") and what in (facts := json.loads(line)):
            return time.monotonic(), Usage.of(process.pid), facts
    raise EOFError


def _reader(
    name: str, python: Callable[[], str], **settings: int
) -> Callable[[Topic, int, int, str], list[str]]:
    def command(topic: Topic, _begin: int, records: int, _folder: str) -> list[str]:
        task = {"reader": name, "topic": topic.name, "partitions": topic.partitions, "records": records}
        return [
            python(),
            str(PROGRAMS / "readers.py"),
            json.dumps(task | {"address": topic.address} | settings),
        ]

    return command


def _bare(topic: Topic, _begin: int, _records: int, _folder: str) -> list[str]:
    batches = [(len(batch), topic.pool.batch) for batch in topic.pool.batches]
    task = {"topic": topic.name, "partitions": topic.partitions, "batches": batches, "turns": topic.turns}
    Path(_folder, "task").write_text(json.dumps(task | {"address": topic.address}))
    return [sys.executable, str(PROGRAMS / "bare.py"), str(Path(_folder, "task"))]


def _packages() -> str:
    return environment(PROGRAMS / "packages.txt")


def _quix(topic: Topic, begin: int, records: int, folder: str) -> list[str]:
    task = {
        "address": topic.address,
        "topic": topic.name,
        "begin": begin,
        "records": records,
        "folder": folder,
    }
    task |= {"commit_seconds": COMMIT_SECONDS, "size": topic.pool.stream.oracle.domain_size}
    return [_packages(), str(PROGRAMS / "quix.py"), json.dumps(task)]


def _java(pom: str, name: str, *options: str) -> Callable[[Topic, int, int, str], list[str]]:
    def command(topic: Topic, begin: int, records: int, folder: str) -> list[str]:
        classes = jars.classpath(PROGRAMS / pom, PROGRAMS / f"{name}.java")
        task = [topic.address, topic.name, begin, records, round(1000 * COMMIT_SECONDS), folder]
        task.append(topic.pool.stream.oracle.domain_size)
        java = ["java", "-Xmx1g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", *options]
        return [*java, "-cp", classes, name, *map(str, task)]

    return command


PEERS = {
    "bare": Peer("a bare socket that drops everything", _bare),
    # it pauses for a second whenever it is 100,000 records ahead: this number takes half a minute, and little CPU
    "confluent": Peer(
        "confluent-kafka 2.12.2, consume(), counts bytes", _reader("confluent", _packages), most=2_000_000
    ),
    "confluent-awake": Peer(
        "confluent-kafka 2.12.2, consume(), counts bytes, rests for 10 ms only",
        _reader("confluent", _packages, **{"fetch.queue.backoff.ms": 10}),
    ),
    "kafka-python": Peer(
        "kafka-python 3.0.12, poll(), counts bytes",
        _reader("kafka-python", lambda: sys.executable),
        most=2_000_000,
    ),
    "quix": Peer("Quix Streams 3.28.1, state store, exactly once", _quix, warm=10_000, most=500_000),
    "kafka-streams": Peer(
        "Kafka Streams 4.3.1, state store, exactly_once_v2",
        _java("streams.pom.xml", "KafkaStreamsPeer"),
        warm=2_000_000,
        most=10_000_000,
    ),
    "flink": Peer(
        "Flink 2.2.1 MiniCluster, keyed state, checkpoints of 1 s",
        _java("flink.pom.xml", "FlinkPeer", "--add-opens=java.base/java.util=ALL-UNNAMED"),
        warm=2_000_000,
        most=10_000_000,
    ),
}
"""By the names that cases give them."""
