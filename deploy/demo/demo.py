"""Demonstrates uploads and two workers, one killed, on local services.

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
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.request import Request, urlopen

from rich.text import Text

from deploy.demo.story import Story, by_hours, console, print_failure, report, say, step
from deploy.local.services import Services, UnavailableError, free_ports
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
UPLOADS, CLIENTS = 10_000, 16  # the last users, who upload over HTTP, and how many of them at a time
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
        self._front: list[Worker] = []
        self._started = 0

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.alive + self._front:
            worker.process.terminate()
        for worker in self.alive + self._front:
            try:
                worker.process.wait(20)
            except subprocess.TimeoutExpired:
                worker.kill()

    def start(self) -> Worker:
        """Starts another worker with `ldp-worker run`."""
        self._started += 1
        log = self._folder / f"worker-{self._started}.log"
        self.alive.append(Worker.run(f"worker {self._started}", log, self._environ))
        return self.alive[-1]

    def start_front(self) -> None:
        """Starts a gateway and a shuffler."""
        for name in ("gateway", "shuffle"):
            log = self._folder / f"{name}.log"
            self._front.append(Worker.run(name, log, self._environ, command=name))

    def kill(self, worker: Worker) -> None:
        """Kills a worker with SIGKILL."""
        self.alive.remove(worker)
        worker.kill()

    def require_counting(self) -> None:
        """Raises DemoError if a worker exited or stopped counting."""
        for worker in self.alive + self._front:
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
    workers.start_front()
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


def upload(conf: config.Config, crowd: Crowd, workers: Workers) -> int:
    """Uploads the reports of the last users over HTTP; returns the time in ms."""
    step("5. Uploads over HTTP")
    gateway, served = conf.gateway, conf.served(STREAM)
    until(
        lambda: answers(f"http://127.0.0.1:{gateway.metrics_port}/readyz"), READY_SECONDS, "gateway", workers
    )
    url = f"http://127.0.0.1:{gateway.port}/v1/streams/{STREAM}/reports"
    say(f"The last {UPLOADS:,} users upload over HTTP. The gateway removes addresses.")
    say(f"The shuffler moves batches of {served.shuffle_batch_size:,} uploads to the topic, in random order.")
    requests = [
        Request(url, frame, {"Content-Type": "application/octet-stream"})
        for frame, _ in records(served.stream, crowd.values[-UPLOADS:], seed=SEED)
    ]
    with ThreadPoolExecutor(CLIENTS) as pool, bar("  uploading", "uploads") as move:
        for done, good in enumerate(pool.map(answers, requests), 1):
            if not good:
                raise DemoError(f"the gateway did not accept upload {done:,}")
            move(done, UPLOADS)
    return time.time_ns() // 1_000_000


def answers(request: Request | str) -> bool:
    """Sends a request; returns False without a connection or after an error."""
    try:
        with urlopen(request, timeout=30):
            return True
    except OSError:
        return False


def covers(snapshot: Snapshot | None) -> bool:
    """Returns whether a snapshot covers every sent report."""
    return snapshot is not None and snapshot.reports == USERS and snapshot.complete


def follow(
    conf: config.Config, crowd: Crowd, day: int, workers: Workers, story: Story, snapshots: SnapshotReader
) -> tuple[Snapshot, int]:
    """Sends all reports; returns the last snapshot and the uploads' time."""
    latest, acknowledged, killed, stopping = None, 0, False, False

    def send() -> sender.Sent:
        served, users = conf.served(STREAM), crowd.values[:-UPLOADS]
        made, at = records(served.stream, users, seed=SEED), spread(users.size, day, day + HOURS * HOUR_MS)
        return sender.send(conf, served, made, rate=RATE, at=at, on_acknowledged=on_acknowledged)

    def on_acknowledged(reports: int) -> None:
        nonlocal acknowledged
        acknowledged = reports
        if stopping:
            raise DemoError("stopped")

    with ThreadPoolExecutor(1) as pool, bar("  sending", "reports") as move:
        sending = pool.submit(send)
        try:
            while not sending.done():
                if (fresh := snapshots.latest(0.25)) is not None:
                    story.add(latest := fresh)
                move(acknowledged, USERS)
                workers.require_counting()
                if not killed and acknowledged >= KILL_AT * USERS:
                    replace_one(workers)
                    killed = True
        finally:
            stopping = True  # ends the thread while the broker still runs
    sent = sending.result()
    say(f"{sent.reports:,} reports sent and acknowledged in {sent.seconds:.0f} s, one per record", "green")
    uploaded = upload(conf, crowd, workers)
    deadline = time.monotonic() + COVER_SECONDS
    while latest is None or not covers(latest):
        workers.require_counting()
        if time.monotonic() > deadline:
            last = "none" if latest is None else json.dumps(head_document(latest))
            raise DemoError(
                f"no snapshot covered all {USERS:,} reports within {COVER_SECONDS} s; last snapshot: {last}"
            )
        if (fresh := snapshots.latest(0.5)) is not None:
            story.add(latest := fresh)
    say(f"snapshot {latest.sequence} covers every report", "green")
    return latest, uploaded


def windows(conf: config.Config, day: int, uploaded: int) -> list[Snapshot]:
    """Returns the newest snapshots of the day's and the uploads' windows."""
    found, size = [], milliseconds(WINDOW)
    for start in (*range(day, day + HOURS * HOUR_MS, size), uploaded - uploaded % size):
        with SnapshotReader(conf, STREAM, WINDOW, start) as reader:
            if (snapshot := reader.latest(READER_SECONDS)) is None:
                raise DemoError(f"the snapshot topic has no window {WINDOW!r} that starts at {start}")
        found.append(snapshot)
    return found


def demo(services: Services, folder: Path, keep: bool) -> int:
    """Runs the demo on running services; returns the exit code."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(config.PREFIX)}
    gateway_port, metrics_port = map(str, free_ports(2))
    ours = {
        "LDP_WORKER_CONFIG": str(HERE / "worker.toml"),
        "LDP_WORKER_KAFKA__BOOTSTRAP_SERVERS": services.kafka.address,
        "LDP_WORKER_REDIS__URL": services.redis.address,
        "LDP_WORKER_HTTP__HOST": "127.0.0.1",
        "LDP_WORKER_HTTP__PORT": "0",
        "LDP_WORKER_GATEWAY__HOST": "127.0.0.1",
        "LDP_WORKER_GATEWAY__PORT": gateway_port,
        "LDP_WORKER_GATEWAY__METRICS_PORT": metrics_port,
    }
    conf = config.load(HERE / "worker.toml", {name: value for name, value in ours.items() if "__" in name})
    served = conf.served(STREAM)
    oracle, labels = served.stream.oracle, served.stream.labels or ()

    step("2. Topics", "create-topics --event-time, check")
    prepare(conf)
    step("3. Two workers, a gateway and a shuffler", "ldp-worker run, gateway, shuffle")
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
            last, uploaded = follow(conf, crowd, day, workers, story, snapshots)
        step(f"6. The ten most used emoji in snapshot {last.sequence}")
        report(labels, crowd, last)
        step("7. Estimates by hours of the day", f"ldp-worker watch --window {WINDOW}")
        by_hours(labels, crowd, windows(conf, day, uploaded))
        step("8. Audit: a recount of the log", "ldp-worker audit")
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
    say(f"gateway   http://127.0.0.1:{ours['LDP_WORKER_GATEWAY__PORT']}/v1/streams/{STREAM}/document")
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


def main() -> int:
    """Runs the demo; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--keep", action="store_true", help="leave everything running after the report, until Ctrl-C"
    )
    keep = parser.parse_args().keep
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
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
