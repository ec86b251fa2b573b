"""The compose file's services, under a project name of this script's own."""

import json
import re
import subprocess
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import Any

from tests.long.containers.engine import Engine
from tests.long.containers.said import ROOT, CannotError, run, until

PROJECT = "ldp-containers"


@dataclass(frozen=True)
class Stack:
    """Commands to `docker compose`, and requests to the engine about its containers."""

    engine: Engine

    def _command(self, *arguments: str) -> list[str]:
        return [*self.engine.compose, "-p", PROJECT, "-f", "deploy/compose/compose.yaml", *arguments]

    def compose(self, *arguments: str, must: bool = True) -> subprocess.CompletedProcess[str]:
        """Asks compose, and waits until it is done."""
        return run(*self._command(*arguments), must=must)

    def begin(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Starts a compose command without waiting."""
        silent = subprocess.DEVNULL
        return subprocess.Popen(
            self._command(*arguments), cwd=ROOT, stdin=silent, stdout=silent, stderr=silent
        )

    def down(self) -> None:
        """Takes everything of it away, volumes too."""
        self.compose("down", "--volumes", "--remove-orphans", "--timeout", "20", must=False)

    def container(self, service: str) -> str:
        """The id of a service's container, running or not."""
        names = run(
            *("docker", "ps", "--all", "--quiet", "--filter", f"label=com.docker.compose.project={PROJECT}"),
            *("--filter", f"label=com.docker.compose.service={service}"),
            *("--filter", "label=com.docker.compose.oneoff=False"),
        ).stdout.split()
        if len(names) != 1:
            raise CannotError(f"{service} has {len(names)} containers instead of one")
        return names[0]

    def inspect(self, service: str) -> Any:
        """The engine's description of a service's container."""
        return json.loads(run("docker", "inspect", self.container(service)).stdout)[0]

    def health(self, service: str) -> str:
        """`starting`, `healthy` or `unhealthy`."""
        return str(self.inspect(service)["State"]["Health"]["Status"])

    def becomes(self, service: str, health: str, seconds: float) -> float | None:
        """Waits for a state of health; the seconds that it took, or None."""
        return until(lambda: self.health(service) == health, seconds)

    def execute(self, service: str, *command: str, must: bool = True) -> subprocess.CompletedProcess[str]:
        """Runs a command inside a service's container, as its own user."""
        return run("docker", "exec", self.container(service), *command, must=must)

    def metrics(self, service: str) -> dict[str, float]:
        """A worker's metrics: the sum over labels, by name."""
        ask = (
            "import urllib.request as web; "
            "print(web.urlopen('http://127.0.0.1:9464/metrics', timeout=5).read().decode())"
        )
        said = self.execute(service, "python", "-c", ask).stdout
        sums: dict[str, float] = {}
        for name, value in re.findall(r"(?m)^(\w+)(?:\{.*\})? (\S+)$", said):
            sums[name] = sums.get(name, 0.0) + float(value)
        return sums


def prometheus(query: str) -> list[Any]:
    """Answer of the stack's Prometheus."""
    url = "http://127.0.0.1:9090/api/v1/query?" + urllib.parse.urlencode({"query": query})
    with urllib.request.urlopen(url, timeout=5) as answer:
        result: list[Any] = json.load(answer)["data"]["result"]
    return result
