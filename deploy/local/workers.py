"""Runs `ldp-worker` as a process, and queries a worker over HTTP."""

import http.client
import json
import math
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Worker:
    """An `ldp-worker` process on this machine."""

    module: ClassVar[str] = "worker"
    """Module that Python runs; tests replace it with a module that crashes at a chosen step."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    @classmethod
    def run(
        cls, name: str, log: Path, environ: Mapping[str, str], *options: str, command: str = "run"
    ) -> Self:
        """Starts a command without waiting until it is ready."""
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", cls.module, command, *options],
                cwd=ROOT,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        return cls(name, process, log)

    def alive(self) -> bool:
        """Returns whether the process runs."""
        return self.process.poll() is None

    def kill(self) -> None:
        """Sends SIGKILL and waits until the process has exited."""
        self.process.kill()
        self.process.wait()

    def events(self, name: str) -> list[dict[str, Any]]:
        """Returns the log events of one name, oldest first."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        parsed = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}\n")]
        return [event for event in parsed if event["event"] == name]

    def port(self) -> int:
        """Returns the HTTP port, or 0 before the event `worker.started`."""
        return next((int(event["port"]) for event in self.events("worker.started")), 0)

    @property
    def url(self) -> str:
        """Base URL of the worker's HTTP server."""
        port = self.port()
        if not port:
            raise ConnectionError(f"{self.name} has not logged its port yet")
        return f"http://127.0.0.1:{port}"

    def get(self, path: str) -> tuple[int, str, str]:
        """Sends a GET request; returns status, content type and body."""
        try:
            try:
                reply = urllib.request.urlopen(self.url + path, timeout=60)
            except urllib.error.HTTPError as error:
                reply = error
            with reply:
                return reply.status, reply.headers["Content-Type"], reply.read().decode()
        except http.client.HTTPException as error:
            raise ConnectionResetError(f"{self.name} ended its answer early") from error

    def ready(self) -> bool:
        """Returns whether `/readyz` returns 200."""
        try:
            return self.get("/readyz")[0] == 200
        except OSError:
            return False

    def samples(self, name: str) -> Iterator[Sample]:
        """Yields the current samples of `ldp_worker_<name>`."""
        families = text_string_to_metric_families(self.get("/metrics")[2])
        return (s for family in families for s in family.samples if s.name == f"ldp_worker_{name}")

    def metric(self, name: str, **labels: str) -> float:
        """Returns the sum of samples of `ldp_worker_<name>` with these labels."""
        found = (sample for sample in self.samples(name) if labels.items() <= sample.labels.items())
        return math.fsum(sample.value for sample in found)

    def by_label(self, name: str, label: str) -> dict[str, float]:
        """Returns non-zero samples of `ldp_worker_<name>` by a label's value."""
        return {sample.labels[label]: sample.value for sample in self.samples(name) if sample.value}

    def owned(self) -> set[int]:
        """Returns the partitions that the worker owns."""
        return {int(partition) for partition in self.by_label("partition_owned", "partition")}
