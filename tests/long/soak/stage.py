"""Services behind proxies, a stream, its two workers, and its load."""

import contextlib
import dataclasses
import random
import re
import shutil
import signal
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from kafka.admin import ConfigResource, ConfigResourceType

from deploy.local.services import Server, Services, free_ports
from ldp import frames
from tests.long.soak import recount
from tests.support.harness import EVENT_TIME, TIMEOUT_SECONDS, Published, World, event_time, until
from tests.support.harness.processes import Worker
from tests.support.harness.proxy import Proxy
from tests.support.harness.reader import Snapshots
from tests.support.harness.truth import Reports
from worker.audit import StreamVerdict

PARTITIONS, MOST_PARTITIONS = 6, 9
"""At the beginning, and at most."""
WINDOWED: dict[str, Any] = {
    "windows": ["all", "10s", "30s every 10s"],
    "grace": "2s",
    "max_out_of_orderness": "1s",
    "retain": "30s",
}
"""The stream's windows: their pane is long enough for every record that arrives after a fault."""
PANE_MS, HOLD_MS = 10_000, 3000
LENGTHS_MS = {"10s": 10_000, "30s every 10s": 30_000}
"""A pane's length, grace and out of order together, and the windows' lengths."""
_CLOSING_MS = 60_000
"""Distance of the last records from all others, so that all windows become final."""
FAILED = Path("build/soak-failed")
"""Folder for the workers' logs after a failure."""
SESSION_SECONDS = 10.0
"""Seconds after which the group takes a silent member's partitions away."""
LAG_SECONDS = 120.0
"""Until when, after a fault, everything that was sent until its end has to be counted and published."""
SLOW_SECONDS = 25.0
"""Longer than any expected time-out: then the workers print their stacks repeatedly."""
_MALFORMED = 0.02
"""Share of malformed records in the load."""


class Load:
    """Sends records at a steady rate a second, some malformed, on its own thread.

    The log has all records of `reports` and `malformed`, and possibly some of the `failed`, unacknowledged ones.
    """

    def __init__(self, world: World, rate: float, seed: int) -> None:
        self._world, self._rate, self._seed = world, rate, seed
        self.reports: list[Reports] = []
        self.malformed = self.failed = self._keys = 0
        self._futures: deque[Any] = deque()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def stop(self) -> None:
        """Stops sending, and waits until all records are acknowledged."""
        self._stop.set()
        self._thread.join(TIMEOUT_SECONDS)
        while self._futures:
            self._acknowledged(self._futures.popleft())

    def _run(self) -> None:
        turn, rng = random.Random(self._seed), np.random.default_rng(self._seed)
        # a client that soon notices added partitions
        producer = self._world.open_producer(metadata_max_age_ms=3000)
        began, sent = time.monotonic(), 0
        while not self._stop.wait(0.05):
            due = int((time.monotonic() - began) * self._rate)
            if (
                len(self._futures) > 20 * self._rate
            ):  # the broker is away: records of this time are not sent later
                began, sent, due = time.monotonic(), 0, 0
            for _ in range(due - sent):
                partition = turn.choice(sorted(producer.partitions_for(self._world.topic)))
                if turn.random() < _MALFORMED:
                    self.malformed += 1
                    value = b"malformed"
                else:
                    self.reports.append(self._world.draw(turn.randint(1, 3), rng))
                    value = frames.encode(self._world.stream, self.reports[-1])
                self._keys += 1  # names a record that the log has twice
                self._futures.append(
                    producer.send(
                        self._world.topic,
                        value,
                        str(self._keys).encode(),
                        partition=partition,
                        timestamp_ms=event_time(turn),
                    )
                )
            sent = max(sent, due)
            while self._futures and self._futures[0].is_done:
                self._acknowledged(self._futures.popleft())

    def _acknowledged(self, future: Any) -> None:
        try:
            future.get(TIMEOUT_SECONDS)
        except Exception:
            self.failed += 1


class _Traced(Worker):
    module = "tests.long.soak.traced"

    @classmethod
    def launch(cls, toml: Path, log: Path, *options: str, environ: Mapping[str, str] | None = None) -> Self:
        """Starts one, and does not wait."""
        return super().launch(toml, log, *options, "--clock", str(log.with_suffix(".clock")), environ=environ)


class _Stream(World):
    worker = _Traced


class Stage:
    """Services, stream and two workers; a context manager.

    `steady` is stopped only for a while, so that its memory can be followed. `mortal` is killed and replaced.
    """

    steady: Worker
    mortal: Worker

    def __init__(self, seed: int, rate: float, say: Callable[[str], None]) -> None:
        self.rng, self._seed, self._rate, self.say = random.Random(seed), seed, rate, say
        self._stack = contextlib.ExitStack()
        self.ended: list[Worker] = []

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self.services = stack.enter_context(Services.start(self.say))
            self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ldp-soak.")))
            self.redis = self.services.redis
            stack.callback(self._end_redis)
            self.redis_proxy = stack.enter_context(Proxy(("127.0.0.1", self.redis.port)))
            self.kafka_proxy = stack.enter_context(before(self.services.kafka))
            self.world = stack.enter_context(
                _Stream(
                    self.services.kafka.address,
                    f"redis://127.0.0.1:{self.redis_proxy.port}/0",
                    self.folder,
                    partitions=PARTITIONS,
                    reports=EVENT_TIME,
                    **WINDOWED,
                    brokers=f"127.0.0.1:{self.kafka_proxy.port}",
                )
            )
            # compacted only after everything was read, between two faults
            topic = ConfigResource(ConfigResourceType.TOPIC, self.world.config.snapshots.topic)
            topic.configs = {
                "cleanup.policy": "compact",
                "segment.ms": "300000",
                "min.compaction.lag.ms": "600000",
            }
            self.world.admin.alter_configs([topic])
            self.published = Published(
                self.services.kafka.address, self.world.config.snapshots.topic, self.world.name
            )
            stack.callback(self.published.close)
            self.steady, self.mortal = self.world.start(2)
            self.load = Load(self.world, self._rate, self._seed)
            self.load.start()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *raised: object) -> None:
        self.load.stop()
        if any(raised):
            shutil.rmtree(FAILED, ignore_errors=True)
            shutil.copytree(self.folder, FAILED, ignore=shutil.ignore_patterns("older"))
            self.say(f"the workers' logs are in {FAILED}")
        # the workers' logs are shown after a failure
        with contextlib.nullcontext() if any(raised) else contextlib.redirect_stdout(None):
            self._stack.__exit__(*raised)  # type: ignore[arg-type]

    def _end_redis(self) -> None:
        """Stops the current Redis, which the services may not know."""
        self.redis.kill()

    @property
    def workers(self) -> tuple[Worker, Worker]:
        """Workers that must count now."""
        return self.steady, self.mortal

    def pids(self) -> list[int]:
        """Metrics of the workers that must count now, the steady one first."""
        return [worker.process.pid for worker in self.workers]

    def replace(self) -> None:
        """Starts a worker in the place of the mortal one, which has ended."""
        self.ended.append(self.mortal)
        self.mortal = self.world.launch()

    def jump(self, worker: Worker, seconds: float) -> None:
        """Shifts the wall clock of a worker by a number of seconds from now on."""
        jumps = len(worker.events("clock.jumped"))
        worker.log.with_suffix(".clock").write_text(str(seconds))
        worker.process.send_signal(signal.SIGUSR1)
        until(lambda: len(worker.events("clock.jumped")) > jumps, f"the clock of {worker.log.name} jumps")

    def recovered(self) -> float:
        """Waits for the publication of all records; returns the seconds, at most `LAG_SECONDS`."""
        began, ends = time.monotonic(), self.world.ends()
        ask = began + SLOW_SECONDS

        def covered() -> bool:
            nonlocal ask
            if time.monotonic() > ask:
                ask += SLOW_SECONDS
                self._say_where()
            newest = self.world.snapshots.newest()
            return newest is not None and all(newest.cut.offsets.get(p, 0) >= end for p, end in ends.items())

        until(covered, f"a snapshot of all of {ends}", LAG_SECONDS)
        return time.monotonic() - began

    def _say_where(self) -> None:
        """Prints the stacks of the workers' threads after a long wait."""
        for worker in self.workers:
            if worker.alive() and worker.port():
                worker.process.send_signal(signal.SIGUSR2)
        time.sleep(1)
        for worker in self.workers:
            tail = worker.log.read_text(errors="replace").splitlines()[-120:]
            self.say("\n".join([f"slow: the end of {worker.log.name}", *tail]))

    def assert_right(self) -> StreamVerdict:
        """Asserts an equal audit, ordered snapshots, and keys that stay."""
        verdict = self.world.audit()
        assert verdict.difference is None, verdict.difference
        self.published.read(self.world.snapshots.sequence())
        self.world.assert_keys()
        return verdict

    def assert_serving(self) -> None:
        """Asserts that both workers serve, now or soon."""
        for worker in self.workers:
            until(worker.ready, f"{worker.log.name} ready", LAG_SECONDS)
            assert not worker.events("stream.stopped")

    def finish(self) -> Mapping[str, int]:
        """Ends the load; returns the totals of final windows, each final once and equal to a recount."""
        self.load.stop()
        self.world.sent.reports += self.load.reports
        self._close_windows()
        last = self.world.covered()
        totals = self.world.totals()
        plain = recount.read(self.world, self.published.floors, PANE_MS, HOLD_MS)
        due = {key: n for name, length in LENGTHS_MS.items() for key, n in plain.finals(name, length).items()}

        def final() -> bool:
            self.published.read(self.world.snapshots.sequence())
            return self.published.finals.keys() >= due.keys()

        until(final, "all windows that are over are final")
        assert self.published.finals == due
        verdict = self.assert_right()
        assert verdict.late == plain.late, (
            f"{verdict.late} late by the audit, {plain.late} by a plain recount"
        )
        self._assert_remaining()
        return {
            "reports_sent": self.world.n,
            "reports_counted": last.reports,
            "records_accepted": totals["accepted"],
            "malformed_sent": self.load.malformed,
            "records_rejected": sum(totals["rejected"].values()),
            "unacknowledged": self.load.failed,
            "reports_repeated": plain.repeated["reports"],
            "malformed_repeated": plain.repeated["malformed"],
            "snapshots": last.sequence,
            "partitions": self.world.partitions,
            "windows_final": len(self.published.finals),
            "windows_deleted": len(self.published.deleted),
            "windows_provisional": self.published.provisional,
            "records_late": plain.late,
            "records_undated": plain.undated,
        }

    def _close_windows(self) -> None:
        """Sends a record to each partition that is newer than all others by far."""
        for partition in range(self.world.partitions):
            drawn, at = self.world.draw(1), int(1000 * time.time()) + _CLOSING_MS
            value = frames.encode(self.world.stream, drawn)
            self.world.sent.futures.append(self.world.put(value, partition, timestamp=at))
            self.world.sent.reports.append(drawn)

    def _assert_remaining(self) -> None:
        """Asserts that a new reader finds all windows except deleted ones."""
        world = self.world
        late = Snapshots(world.kafka, world.config.snapshots.topic, world.name)
        try:
            until(lambda: late.sequence() >= self.published.sequence, "another reader has all")
            found = {(window.name, window.start) for window in late.windows() if window.final}
        finally:
            late.close()
        assert found == self.published.finals.keys() - self.published.deleted


@contextlib.contextmanager
def before(kafka: Server) -> Iterator[Proxy]:
    """Restarts a broker with a listener behind a proxy."""
    (inner,) = free_ports(1)
    with Proxy(("127.0.0.1", inner)) as proxy:
        path = kafka.folder / "kafka.properties"
        text = path.read_text()
        text = re.sub(r"^(listeners=.*)$", rf"\1,PROXIED://127.0.0.1:{inner}", text, flags=re.MULTILINE)
        text = text.replace("CONTROLLER:PLAINTEXT", "CONTROLLER:PLAINTEXT,PROXIED:PLAINTEXT")
        outer = f"PLAINTEXT://{kafka.address},PROXIED://127.0.0.1:{proxy.port}"
        path.write_text(f"{text}advertised.listeners={outer}\n")
        kafka.restart()
        yield proxy


def another(server: Server) -> Server:
    """Starts an empty Redis like another one."""
    (port,) = free_ports(1)
    name = f"{server.name}-next"
    data = server.folder / name
    data.mkdir()
    command = list(server.command)
    for option, value in {"--port": str(port), "--dir": str(data)}.items():
        command[command.index(option) + 1] = value
    started = dataclasses.replace(
        server, name=name, address=f"redis://127.0.0.1:{port}/0", port=port, command=command, process=None
    )
    started.start()
    return started
