"""A worker as a process of its own, and servers that fall silent."""

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
from tests.integration.harness.waiting import TIMEOUT_SECONDS, until
from tests.nursery import Nursery


@contextlib.contextmanager
def frozen(server: services.Server) -> Iterator[None]:
    """Lets a server hold its connections and answer nothing: SIGSTOP, until the end of the block."""
    assert server.process is not None
    group = server.process.pid
    os.killpg(group, signal.SIGSTOP)
    try:
        yield
    finally:
        os.killpg(group, signal.SIGCONT)


@dataclass
class Worker(workers.Worker):
    """One ``ldp-worker run`` process of a test, which knows its configuration and nothing of the environment."""

    member: str | None = None
    """Its name in the group, where a test noted it."""

    @classmethod
    def launch(cls, toml: Path, log: Path, *options: str, environ: Mapping[str, str] | None = None) -> Self:
        """Starts one, by options of ``ldp-worker run``, and does not wait."""
        others = {key: value for key, value in os.environ.items() if not key.startswith("LDP_WORKER_")}
        return cls.run(log.name, log, others | dict(environ or {}), "--config", str(toml), *options)

    def port(self) -> int:
        """Waits until the worker says where it listens."""
        return until(super().port, f"{self.name} starts")

    def get(self, path: str) -> tuple[int, str, str]:
        """Asks it, again where it was cut off: on a machine that stalls its own five seconds may be over."""
        for _ in range(3):
            with contextlib.suppress(ConnectionResetError):
                return super().get(path)
        return super().get(path)

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def terminate(self) -> int:
        """SIGTERM; returns the exit code."""
        self.process.terminate()
        return self.ended()

    def ended(self) -> int:
        """Waits for the end; returns the exit code."""
        return self.process.wait(TIMEOUT_SECONDS)

    def says(self) -> str:
        """What readiness says of its one stream."""
        (state,) = json.loads(self.get("/readyz")[2])["streams"].values()
        return str(state)

    def stopped_for(self) -> str:
        """Waits until its one stream stopped, and sees that it shows it; then ends it, and returns why it stopped."""
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
    """A worker that is forked, and so starts at once."""

    nursery: ClassVar[Nursery]
    """Where; whoever launches one has set it."""

    @classmethod
    def run(cls, name: str, log: Path, environ: Mapping[str, str], *options: str) -> Self:
        """Starts one, and does not wait."""
        born = cls.nursery.bear(cls.module, list(options), environ, log)
        return cls(name, cast(subprocess.Popen[bytes], born), log)
