"""Demonstrates two workers, one killed midway, on a local Kafka and Redis.

    python -m deploy.demo.demo [--keep]

Exits with 0 only if the audit finds no difference and the last snapshot covers every report. With --keep, everything
keeps running until Ctrl-C.
"""

import argparse
import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import NoReturn

from rich.text import Text

from deploy.demo.story import Story, by_hours, console, print_failure, report, say, step
from deploy.local.services import Services, UnavailableError
from deploy.local.workers import Worker
from ldp.snapshot import Snapshot, head_document
from worker import audit, check, config
from worker.cli.audit import render as render_verdict
from worker.cli.command import bar
from worker.counting.windows import milliseconds
from worker.kafka.client import brokers, topics
from worker.kafka.client.errors import BrokerError
from worker.kafka.reports import sender
from worker.kafka.snapshots.reader import SnapshotReader
from worker.observe import logs
from worker.redis.errors import ERRORS
from worker.simulation.crowd import Crowd, SimulationError, draw, read_counts
from worker.simulation.records import records
from worker.simulation.times import spread

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
COUNTS = HERE / "emoji.csv"

USERS = 884_427  # as many as in the paper's emoji data
SEED = 20_200_616
COLUMN = "count_2020_06_16"
PARTITIONS = 4
RATE = 25_000  # maximum reports per second, slow enough to watch
KILL_AT = 0.35  # share of acknowledged reports
READY_SECONDS = 600  # the first start compiles kernels, which takes minutes on busy cores
COVER_SECONDS, READER_SECONDS = 120, 30
STREAM = "emoji"
WINDOW, HOURS = "6h", 24
HOUR_MS = 3_600_000


class DemoError(RuntimeError):
    """The demo cannot continue, or its result is wrong."""


EXPECTED = (
    DemoError,
    UnavailableError,
    brokers.Unreachable,
    topics.TopicError,
    SimulationError,
    sender.SendError,
    audit.AuditError,
    BrokerError,
    *ERRORS,
)


class Workers:
    """The running workers; a context manager that stops them."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self._folder, self._environ = folder, environ
        self.alive: list[Worker] = []
        self.logs: list[Path] = []

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.alive:
            worker.process.terminate()
        for worker in self.alive:
            try:
                worker.process.wait(20)
            except subprocess.TimeoutExpired:
                worker.kill()

    def start(self) -> Worker:
        """Starts another worker with `ldp-worker run`."""
        name = f"worker {len(self.logs) + 1}"
        log = self._folder / f"{name.replace(' ', '-')}.log"
        self.logs.append(log)
        self.alive.append(Worker.run(name, log, self._environ))
        return self.alive[-1]

    def kill(self, worker: Worker) -> None:
        """Kills a worker with SIGKILL."""
        self.alive.remove(worker)
        worker.kill()

    def require_counting(self) -> None:
        """Raises DemoError if a worker exited or stopped counting."""
        for worker in self.alive:
            if (code := worker.process.poll()) is not None:
                raise DemoError(f"{worker.name} exited with code {code}")
            if worker.events("stream.stopped"):
                raise DemoError(f"{worker.name} stopped counting")

    def pop_exited(self) -> list[Worker]:
        """Removes the workers that exited, and returns them."""
        exited = [worker for worker in self.alive if not worker.alive()]
        self.alive = [worker for worker in self.alive if worker not in exited]
        return exited


def until(condition: Callable[[], bool], seconds: float, what: str, workers: Workers) -> None:
    """Waits for a condition; raises DemoError after a failure or a time-out."""
    deadline = time.monotonic() + seconds
    while not condition():
        workers.require_counting()
        if time.monotonic() > deadline:
            raise DemoError(f"{what}: not within {seconds} s")
        time.sleep(0.1)


class Sending(threading.Thread):
    """Thread that sends all reports, with timestamps of the previous day."""

    def __init__(self, conf: config.Config, crowd: Crowd, day: int) -> None:
        super().__init__(name="sending", daemon=True)
        self._conf, self._crowd = conf, crowd
        self._at = spread(USERS, day, day + HOURS * HOUR_MS)
        self.acknowledged = 0
        self.sent: sender.Sent | None = None
        self.error: Exception | None = None
        self._stopping = threading.Event()

    def __enter__(self) -> "Sending":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stops the thread and closes the producer while the broker still runs."""
        self._stopping.set()
        self.join(15)

    def run(self) -> None:
        """Sends the reports; keeps an error for the main thread."""
        try:
            served = self._conf.served(STREAM)
            made = records(served.stream, self._crowd.values, seed=SEED)
            self.sent = sender.send(
                self._conf, served, made, rate=RATE, at=self._at, on_acknowledged=self._on_acknowledged
            )
        except Exception as error:
            self.error = error

    def _on_acknowledged(self, acknowledged: int) -> None:
        self.acknowledged = acknowledged
        if self._stopping.is_set():
            raise DemoError("stopped")


def prepare(conf: config.Config) -> None:
    """Creates the topics, and checks configuration and services."""
    with brokers.connect(conf) as admin:
        created = topics.create(admin, conf, PARTITIONS, event_time=True)
    for one in created:
        say(f"created {one.spec.name}, {one.topic.partitions} partition(s), for {one.spec.role}")
    findings = check.findings(conf)
    if bad := [finding for finding in findings if finding.level is check.Level.ERROR]:
        raise DemoError(
            "\n".join(f"check: {finding.subject}: {finding.text} -> {finding.hint}" for finding in bad)
        )
    say(f"check: {len(findings)} findings, no error")
    for text in sorted({finding.text for finding in findings if finding.level is check.Level.WARNING}):
        say(f"warning: {text}", "yellow")


def begin(workers: Workers) -> None:
    """Starts two workers and waits until both are ready."""
    say("the first start compiles kernels, for about 5 s of a free core")
    for _ in range(2):
        workers.start()
    for worker in list(workers.alive):
        until(worker.ready, READY_SECONDS, f"{worker.name} ready", workers)
        say(f"{worker.name}: process {worker.process.pid}, metrics at {worker.url}/metrics")


def replace_one(workers: Workers) -> None:
    """Kills the worker that publishes, and starts another one."""
    victim, owned = workers.alive[0], set[int]()
    with contextlib.suppress(OSError):  # a worker that is too busy to answer is killed anyway
        victim = next((worker for worker in workers.alive if worker.metric("publisher")), victim)
        owned = victim.owned()
    workers.kill(victim)
    new = workers.start()
    counted = ", ".join(map(str, sorted(owned)))
    say(
        f"SIGKILL to {victim.name}, publisher, partitions {counted}; {new.name} starts",
        "bold red",
    )
    say("Kafka reassigns its partitions after 10 s; Redis has their counts.", "red")


def end_offsets(conf: config.Config) -> dict[int, int]:
    """Returns the end offsets of the report topic."""
    with brokers.connect(conf) as admin:
        bounds = topics.bounds(admin, conf.served(STREAM).topic, range(PARTITIONS))
    return {partition: end for partition, (_, end) in bounds.items()}


def covers(snapshot: Snapshot | None, ends: Mapping[int, int]) -> bool:
    """Returns whether a snapshot covers every sent report."""
    if snapshot is None:
        return False
    passed = all(snapshot.cut.offsets.get(partition, -1) >= end for partition, end in ends.items())
    return passed and snapshot.reports == USERS and snapshot.complete


def follow(
    conf: config.Config, crowd: Crowd, day: int, workers: Workers, story: Story, snapshots: SnapshotReader
) -> Snapshot:
    """Sends all reports and replaces a worker; returns the last snapshot."""
    latest = None
    killed = False
    with Sending(conf, crowd, day) as sending, bar("  sending", "reports") as move:
        while sending.is_alive():
            if (fresh := snapshots.latest(0.25)) is not None:
                story.add(latest := fresh)
            move(sending.acknowledged, USERS)
            workers.require_counting()
            if not killed and sending.acknowledged >= KILL_AT * USERS:
                replace_one(workers)
                killed = True
    if sending.sent is None:
        raise DemoError(f"sending: {sending.error}")
    sent = sending.sent
    say(f"{sent.reports:,} reports sent and acknowledged in {sent.seconds:.0f} s, one per record", "green")
    ends = end_offsets(conf)
    deadline = time.monotonic() + COVER_SECONDS
    while latest is None or not covers(latest, ends):
        workers.require_counting()
        if time.monotonic() > deadline:
            last = "none" if latest is None else json.dumps(head_document(latest))
            raise DemoError(
                f"no snapshot covered all of {ends} within {COVER_SECONDS} s; last snapshot: {last}"
            )
        if (fresh := snapshots.latest(0.5)) is not None:
            story.add(latest := fresh)
    say(f"snapshot {latest.sequence} covers every report", "green")
    return latest


def windows(conf: config.Config, day: int) -> list[Snapshot]:
    """Returns the newest snapshot of each window of the day."""
    found = []
    for start in range(day, day + HOURS * HOUR_MS, milliseconds(WINDOW)):
        with SnapshotReader(conf, STREAM, WINDOW, start) as reader:
            if (snapshot := reader.latest(READER_SECONDS)) is None:
                raise DemoError(f"the snapshot topic has no window {WINDOW!r} that starts at {start}")
        found.append(snapshot)
    return found


def demo(services: Services, folder: Path, keep: bool) -> int:
    """Runs the demo on running services; returns the exit code."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(config.PREFIX)}
    ours = {
        "LDP_WORKER_CONFIG": str(HERE / "worker.toml"),
        "LDP_WORKER_KAFKA__BOOTSTRAP_SERVERS": services.kafka.address,
        "LDP_WORKER_REDIS__URL": services.redis.address,
        "LDP_WORKER_HTTP__HOST": "127.0.0.1",
        "LDP_WORKER_HTTP__PORT": "0",
    }
    conf = config.load(HERE / "worker.toml", {name: value for name, value in ours.items() if "__" in name})
    served = conf.served(STREAM)
    oracle, labels = served.stream.oracle, served.stream.labels or ()

    step("2. Topics", "create-topics --event-time, check")
    prepare(conf)
    step("3. Two workers", "ldp-worker run")
    with Workers(folder, environ | ours) as workers:
        begin(workers)
        step("4. Reports in, snapshots out", "ldp-worker simulate --hours, watch")
        crowd = draw(read_counts(COUNTS, COLUMN, "emoji", labels), USERS, SEED)
        say(f"{USERS:,} simulated users have one of {oracle.domain_size} emoji each, drawn from real counts.")
        day = time.time_ns() // 1_000_000 // (HOURS * HOUR_MS) * HOURS * HOUR_MS - HOURS * HOUR_MS
        protocol = f"{oracle.name.upper()} with ε = {oracle.epsilon}"
        say(f"They report by {protocol}; the server never sees an emoji of a user.")
        say(f"The timestamps cover the {HOURS} hours of yesterday; sending takes half a minute.")
        story = Story(labels, crowd)
        with SnapshotReader(conf, STREAM) as snapshots:
            last = follow(conf, crowd, day, workers, story, snapshots)
        step(f"5. The ten most used emoji in snapshot {last.sequence}")
        report(labels, crowd, last)
        step("6. Estimates by hours of the day", f"ldp-worker watch --window {WINDOW}")
        by_hours(labels, crowd, windows(conf, day))
        step("7. Audit: a recount of the log", "ldp-worker audit")
        verdict = audit.verify(served, conf)
        console.print(render_verdict(verdict))
        if not verdict.equal:
            raise DemoError(f"the audit found a difference: {verdict.difference}")
        if verdict.reports != USERS:
            raise DemoError(f"the audit counted {verdict.reports:,} reports; {USERS:,} were sent")
        say("Every report is counted exactly once, although a worker was killed.", "bold green")
        if keep:
            stay(ours, services, workers, folder)
        else:
            step("Next")
            say("make demo KEEP=1           run the demo again, and leave everything running")
            say("deploy/demo/worker.toml    the stream's configuration; see docs/reference/configuration.md")
            say(".venv/bin/ldp-worker -h    run, check, create-topics, simulate, watch, audit")
    return 0


def stay(ours: Mapping[str, str], services: Services, workers: Workers, folder: Path) -> None:
    """Prints addresses, and reports workers that exit, until Ctrl-C."""
    env = folder / "env"
    env.write_text("".join(f"export {name}={shlex.quote(value)}\n" for name, value in ours.items()))
    command = Path(sys.executable).parent / "ldp-worker"
    step("Everything runs until Ctrl-C")
    say(f"Kafka     {services.kafka.address}")
    say(f"Redis     {services.redis.address}")
    deadline = time.monotonic() + READY_SECONDS
    for worker in workers.alive:
        while worker.alive() and not worker.ready() and time.monotonic() < deadline:
            time.sleep(0.1)
        if worker.alive():
            say(f"page      {worker.url}/ ({worker.name}, process {worker.process.pid})")
            say(f"metrics   {worker.url}/metrics")
    say(f"logs      {folder}")
    say("In another shell:")
    say(f"  . {env}")
    csv = shlex.quote(str(COUNTS))
    for rest in (
        "watch --all",
        f"watch --window {WINDOW}",
        "audit",
        "check",
        f"simulate --counts {csv} --column {COLUMN} --label-column emoji --users 100000 --malformed-share 0.01",
    ):
        console.print(Text(f"    {command} {rest}"), soft_wrap=True)
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            for worker in workers.pop_exited():
                code = worker.process.returncode
                say(
                    f"{worker.name} (process {worker.process.pid}) exited with code {code}; the others keep running",
                    "red",
                )
                say(f"  to start another: {command} run", "red")
            time.sleep(0.5)
    say("stopping")


def interrupt(_signal: int, _frame: FrameType | None) -> NoReturn:
    """Handles a signal like Ctrl-C."""
    raise KeyboardInterrupt


def main() -> int:
    """Runs the demo; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--keep", action="store_true", help="leave everything running after the report, until Ctrl-C"
    )
    keep = parser.parse_args().keep
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
    logs.silence()
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="ldp-demo-"))
    try:
        step("1. Kafka and Redis on this machine, without containers")
        with Services.start(say) as services:
            code = demo(services, folder, keep)
    except KeyboardInterrupt:
        say("stopped; everything is cleaned up", "yellow")
        code = 1
    except Exception as error:
        if not isinstance(error, EXPECTED):
            raise
        print_failure(error, folder)
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    if code == 0 and not keep:
        console.print(f"\n{time.monotonic() - began:.0f} s", style="dim")
    return code


if __name__ == "__main__":
    sys.exit(main())
