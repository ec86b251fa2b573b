"""`ldp-worker run` as a process: started with a log file, asked over HTTP, ended."""

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
    """One `ldp-worker run` process of this machine."""

    module: ClassVar[str] = "worker"
    """What Python runs; tests have a module that is this one and dies on the way."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    @classmethod
    def run(cls, name: str, log: Path, environ: Mapping[str, str], *options: str) -> Self:
        """Starts one, and does not wait."""
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", cls.module, "run", *options],
                cwd=ROOT,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        return cls(name, process, log)

    def alive(self) -> bool:
        """Whether the process is there."""
        return self.process.poll() is None

    def kill(self) -> None:
        """SIGKILL: no goodbye; returns when it is gone."""
        self.process.kill()
        self.process.wait()

    def events(self, name: str) -> list[dict[str, Any]]:
        """The events of a name in its log, the oldest first."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        parsed = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}\n")]
        return [event for event in parsed if event["event"] == name]

    def port(self) -> int:
        """Where it listens, 0 as long as it has not said so."""
        return next((int(event["port"]) for event in self.events("worker.started")), 0)

    @property
    def url(self) -> str:
        """Where its metrics and its health are."""
        port = self.port()
        if not port:
            raise ConnectionError(f"{self.name} has not said where it listens")
        return f"http://127.0.0.1:{port}"

    def get(self, path: str) -> tuple[int, str, str]:
        """Asks it: status, content type, body."""
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
        """Whether it serves."""
        try:
            return self.get("/readyz")[0] == 200
        except OSError:
            return False

    def samples(self, name: str) -> Iterator[Sample]:
        """The samples of `ldp_worker_<name>` at this moment."""
        families = text_string_to_metric_families(self.get("/metrics")[2])
        return (s for family in families for s in family.samples if s.name == f"ldp_worker_{name}")

    def metric(self, name: str, **labels: str) -> float:
        """The sum of the samples of `ldp_worker_<name>` that carry these labels; 0 if there is none."""
        found = (sample for sample in self.samples(name) if labels.items() <= sample.labels.items())
        return math.fsum(sample.value for sample in found)

    def by_label(self, name: str, label: str) -> dict[str, float]:
        """The samples of `ldp_worker_<name>` that are not 0, by one of their labels."""
        return {sample.labels[label]: sample.value for sample in self.samples(name) if sample.value}

    def owned(self) -> set[int]:
        """The partitions that it counts."""
        return {int(partition) for partition in self.by_label("partition_owned", "partition")}
