"""A Prometheus for the tests: from PATH, else Debian's package if the user is root, else a failure."""

import contextlib
import json
import math
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from deploy.local.services import free_ports, program

JOB = "ldp-worker"


def installed(name: str) -> str:
    """Returns the path of prometheus or promtool."""
    path = program(name, "prometheus")
    if path is None:
        pytest.fail(
            f"there is no {name} on PATH: install Prometheus (Debian: apt-get install prometheus)",
            pytrace=False,
        )
    return path


class Prometheus:
    """A running server."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def get(self, path: str, **parameters: str) -> Any:
        """Returns the data of a request below /api/v1; an error fails the test."""
        try:
            query = urllib.parse.urlencode(
                {name.replace("match", "match[]"): value for name, value in parameters.items()}
            )
            with urllib.request.urlopen(f"{self._url}/api/v1/{path}?{query}", timeout=60) as reply:
                return json.load(reply)["data"]
        except urllib.error.HTTPError as error:
            with error:
                pytest.fail(f"{path} {parameters}: {error.read().decode()}")

    def values(self, expression: str) -> list[float]:
        """Returns the finite values of an expression."""
        values = [float(series["value"][1]) for series in self.get("query", query=expression)["result"]]
        return [value for value in values if math.isfinite(value)]

    def ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._url}/-/ready", timeout=5) as reply:
                return reply.status == 200
        except OSError:
            return False


@contextlib.contextmanager
def running(
    folder: Path,
    targets: Sequence[str],
    rules: Path,
    scrape: str = "1s",
    evaluate: str = "1s",
    jobs: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> Iterator[Prometheus]:
    """Runs a Prometheus that scrapes targets as the workers' job, and targets of more jobs."""
    (port,) = free_ports(1)
    config = {
        "global": {"scrape_interval": scrape, "evaluation_interval": evaluate},
        "rule_files": [str(rules)],
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": list(own)}]}
            for job, own in {JOB: targets, **jobs}.items()
        ],
    }
    file, log = folder / "prometheus.json", folder / "prometheus.log"
    file.write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML
    command = [
        installed("prometheus"),
        f"--config.file={file}",
        f"--storage.tsdb.path={folder / 'prometheus'}",
    ]
    with (
        log.open("wb") as out,
        subprocess.Popen(
            [*command, f"--web.listen-address=127.0.0.1:{port}"], stdout=out, stderr=out
        ) as process,
    ):
        try:
            prometheus = Prometheus(port)
            deadline = time.monotonic() + 45
            while not prometheus.ready():
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.05)
            yield prometheus
        finally:
            process.kill()
