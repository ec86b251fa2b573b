"""Our side: `ldp-worker run` as its users start it, with its usual commits and snapshots, on a topic that is full.

Each run has a new stream, group and snapshot topics, so that it starts at the topic's beginning.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import numpy as np
import redis

from deploy.local.services import Services
from deploy.local.workers import ROOT, Worker
from ldp.consistency import METHODS
from ldp.snapshot import Snapshot
from tests.bench.ingest.cases import Case
from tests.bench.ingest.filled import Topic
from tests.bench.ingest.usage import Cores, Usage, on
from tests.support.cells import cells_of
from tests.support.harness.reader import Snapshots
from tests.support.stores import Singly
from worker import config
from worker.config import Config, Served
from worker.counting import layout

SECONDS = 900.0
"""Until a run that is not through has failed."""
LOOKS_SECONDS = 0.02
_T = TypeVar("_T")


class WrongError(AssertionError):
    """The counts differ from the sent records, so the run has no result."""


@dataclass(frozen=True)
class Counted:
    """A run from the claim to the last count, which is stored when it counts as such."""

    cpu_seconds: float  # CPU of the worker, without its start
    seconds: float
    peak_bytes: int
    state_bytes: int  # appended to Redis' file meanwhile
    wrong: int
    audit: str | None  # the verdict of `ldp-worker audit`


@dataclass
class Run:
    """One stream of a case's topic, with its configuration and its workers."""

    case: Case
    topic: Topic
    services: Services
    store: "redis.Redis"
    folder: Path
    cores: Cores

    def __post_init__(self) -> None:
        self.name = f"s{uuid4().hex[:10]}"
        self.toml = write(self.folder, self.name, self.topic.name, self.services, self.case.stream)
        self.config, self.served = load(self.toml)
        self.command("create-topics", "--partitions", str(self.topic.partitions))

    # the two measures

    def count(self) -> Counted:
        """Counts the whole topic, and looks whether all of it is right."""
        worker = self.start()
        try:
            wait(lambda: self.claimed(worker), worker, "the claim")
            usage, began, written = Usage.of(worker.process.pid), time.monotonic(), self.written()
            wait(lambda: min(self.offsets()) == self.topic.end, worker, "the last count")
            after, ended = Usage.of(worker.process.pid), time.monotonic()
            written = self.written() - written
            wrong = self.wrong()
            self.published(worker, [self.topic.end] * self.topic.partitions)
        finally:
            worker.kill()
        audit = None
        if self.case.audited:
            audit = str(json.loads(self.command("audit", "--json"))["verdict"])
            if audit != "equal":
                raise WrongError(f"{self.case.name}: the audit says {audit}")
        return Counted(
            after.cpu_seconds - usage.cpu_seconds, ended - began, after.peak_bytes, written, wrong, audit
        )

    def recover(self) -> float:
        """Kills a worker while it counts; returns the seconds from then to another's first snapshot, which is right."""
        worker = self.start()
        wait(lambda: min(self.offsets()) >= self.topic.end // 3, worker, "a third of the counts")
        worker.kill()
        killed, before = time.monotonic(), self.offsets()
        worker = self.start()
        try:
            return self.published(worker, before) - killed
        finally:
            worker.kill()

    # state and processes

    def start(self, *options: str) -> Worker:
        """Starts a worker on its core, and does not wait."""
        with on(self.cores.measured):
            log = self.folder / f"{self.name}-{uuid4().hex[:4]}.log"
            return Worker.run(self.name, log, environment(), "--config", str(self.toml), *options)

    def command(self, *words: str) -> str:
        """Runs a command of `ldp-worker` to its end; returns its output."""
        command = [sys.executable, "-m", "worker", *words, "--config", str(self.toml)]
        done = subprocess.run(
            command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise WrongError(
                f"{words}: exit code {done.returncode}: {done.stderr.strip() or done.stdout.strip()}"
            )
        return done.stdout

    def claimed(self, worker: Worker) -> bool:
        """Whether it has all partitions."""
        return len(worker.events("partition.claimed")) >= self.topic.partitions

    def offsets(self) -> list[int]:
        """Stored offset of each partition."""
        keys = [layout.meta_key(self.name, partition) for partition in range(self.topic.partitions)]
        return [int(self.store.hget(key, "offset") or 0) for key in keys]

    def written(self) -> int:
        """The bytes that Redis has appended to its file."""
        return int(self.store.info("persistence")["aof_current_size"])

    def wrong(self) -> int:
        """Number of wrong stored numbers, which is 0; otherwise raises."""
        wrong, store = 0, Singly(self.store, self.name)
        for partition in range(self.topic.partitions):
            cut = store.cut(partition)
            assert cut is not None
            stored = layout.load(self.served.fleet, cut.metadata, cut.blobs)
            reports, state = self.topic.pool.truth(stored.offset)
            window = cells_of(stored)["all"]
            wrong += int((window.state != state).sum()) + (window.reports != reports)
            wrong += (stored.accepted != stored.offset) + bool(stored.rejected)
        if wrong:
            raise WrongError(f"{self.case.name}: {wrong} numbers are wrong")
        return wrong

    def published(self, worker: Worker, least: list[int]) -> float:
        """Waits for the first snapshot that is not behind some offsets; returns when it came, once it is seen right."""
        snapshots = Snapshots(self.services.kafka.address, self.config.snapshots.topic, self.name)

        def found() -> Snapshot | None:
            newest = snapshots.newest()
            if newest is None:
                return None
            offsets = newest.cut.offsets
            return newest if all(offsets.get(p, 0) >= at for p, at in enumerate(least)) else None

        try:
            snapshot, came = wait(found, worker, f"a snapshot of {least}"), time.monotonic()
        finally:
            snapshots.close()
        truths = [self.topic.pool.truth(offset) for offset in snapshot.cut.offsets.values()]
        reports = sum(n for n, _ in truths)
        oracle = self.served.stream.oracle
        estimate = oracle.estimate(oracle.support(np.sum([state for _, state in truths], axis=0)), reports)
        right = np.allclose(
            snapshot.bodies["base"].frequencies, METHODS["base"](estimate), rtol=1e-9, atol=1e-12
        )
        if snapshot.reports != reports or not right:
            raise WrongError(f"{self.case.name}: snapshot {snapshot.sequence} is wrong")
        return came


def write(folder: Path, name: str, topic: str, services: Services, stream: Mapping[str, Any]) -> Path:
    """Writes a configuration with one stream and defaults."""
    table = {"name": name, "topic": topic} | dict(stream)
    lines = [
        f'group = "{name}"',
        f'kafka.bootstrap_servers = "{services.kafka.address}"',
        f'redis.url = "{services.redis.address}"',
        "http.port = 0",
        f'snapshots.topic = "{name}-snapshots"',
        f'dead_letters.topic = "{name}-dead-letters"',
        "[[streams]]",
        *(f"{key} = {json.dumps(value)}" for key, value in table.items()),
    ]
    path = folder / f"{name}.toml"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def load(toml: Path) -> tuple[Config, Served]:
    """Reads a configuration with one stream."""
    loaded = config.load(toml, {})
    (served,) = loaded.streams
    return loaded, served


def environment() -> dict[str, str]:
    """Environment of this process, without settings for another worker."""
    return {key: value for key, value in os.environ.items() if not key.startswith("LDP_WORKER_")}


def wait(condition: Callable[[], _T | None], worker: Worker, what: str) -> _T:
    """Waits until a condition gives something true, and returns that."""
    deadline = time.monotonic() + SECONDS
    while not (found := condition()):
        if not worker.alive() or time.monotonic() > deadline:
            tail = "\n".join(worker.log.read_text(errors="replace").splitlines()[-10:])
            raise WrongError(f"{what} did not come; the worker's log ends:\n{tail}")
        time.sleep(LOOKS_SECONDS)
    return found
