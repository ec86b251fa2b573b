"""Workers as processes, and frozen servers."""

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self, cast

from deploy.local import services, workers
from tests.support.fork_server import ForkServer
from tests.support.harness.waiting import TIMEOUT_SECONDS, until


@contextlib.contextmanager
def frozen(server: services.Server) -> Iterator[None]:
    """Stops a server with SIGSTOP until the block ends."""
    assert server.process is not None
    group = server.process.pid
    os.killpg(group, signal.SIGSTOP)
    try:
        yield
    finally:
        os.killpg(group, signal.SIGCONT)


@dataclass
class Worker(workers.Worker):
    """An `ldp-worker run` process without the environment's configuration."""

    member: str | None = None
    """Its member id, if a test noted it."""

    @classmethod
    def launch(cls, toml: Path, log: Path, *options: str, environ: Mapping[str, str] | None = None) -> Self:
        """Starts a worker without waiting."""
        others = {key: value for key, value in os.environ.items() if not key.startswith("LDP_WORKER_")}
        return cls.run(log.name, log, others | dict(environ or {}), "--config", str(toml), *options)

    def port(self) -> int:
        """Waits for the port of the HTTP server."""
        return until(super().port, f"{self.name} starts")

    def get(self, path: str) -> tuple[int, str, str]:
        """Sends a request, again after a reset."""
        for _ in range(3):
            with contextlib.suppress(ConnectionResetError):
                return super().get(path)
        return super().get(path)

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def terminate(self) -> int:
        """Sends SIGTERM; returns the exit code."""
        self.process.terminate()
        return self.ended()

    def ended(self) -> int:
        """Waits for the exit code."""
        return self.process.wait(TIMEOUT_SECONDS)

    def says(self) -> str:
        """Returns the readiness state of its one stream."""
        (state,) = json.loads(self.get("/readyz")[2])["streams"].values()
        return str(state)

    def stopped_for(self) -> str:
        """Waits until the stream stopped, asserts probes; returns the cause."""
        until(lambda: self.events("stream.stopped"), f"{self.log.name}: its stream stops")
        assert self.alive()
        assert self.get("/healthz")[0] == 200
        assert self.get("/readyz")[0] == 503
        assert self.metric("stream_up") == 0
        why = self.says()
        assert self.terminate() == 1
        assert list(self.events("worker.stopped")[0]["failed"].values()) == [why]
        return why


class Forked(Worker):
    """A worker of the fork server."""

    fork_server: ClassVar[ForkServer]
    """The fork server, set before the first launch."""

    @classmethod
    def run(
        cls, name: str, log: Path, environ: Mapping[str, str], *options: str, command: str = "run"
    ) -> Self:
        """Starts a command without waiting."""
        forked = cls.fork_server.fork(cls.module, list(options), environ, log, command)
        return cls(name, cast(subprocess.Popen[bytes], forked), log)
