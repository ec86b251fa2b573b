"""Required properties of a worker's container, and its life under load."""

import contextlib
import json
import re
import time
import urllib.error
import urllib.request

from ldp.client import Client
from ldp.upload import upload
from tests.long.containers.said import Findings, run, until
from tests.long.containers.stack import Stack, prometheus

WORKERS = ("worker-1", "worker-2")
USERS = 884_427
UPLOADS = 50
"""Further reports, over HTTP: five batches."""
PARTITIONS = 4
GRACE = 15
"""Seconds that the compose file gives a worker to end."""


def confined(stack: Stack, findings: Findings) -> None:
    """Its identity and restrictions, read inside the container."""
    for worker in WORKERS:
        took = stack.becomes(worker, "healthy", 120)
        findings.see(took is not None, f"{worker} becomes healthy", stack.health(worker))
    inside = stack.execute(WORKERS[0], "cat", "/proc/1/status").stdout
    status = dict(re.findall(r"(?m)^(\w+):\s*(.*)$", inside))
    ids = {*status["Uid"].split(), *status["Gid"].split()}
    findings.see(ids == {"10001"}, "PID 1 runs as user and group 10001", f"{ids}")
    sets = {status[f"Cap{name}"] for name in ("Inh", "Prm", "Eff", "Bnd", "Amb")}
    findings.see(sets == {"0" * 16}, "it has no capability, and can gain none", f"{sets}")
    findings.see(status["NoNewPrivs"] == "1", "no-new-privileges holds")
    command = stack.execute(WORKERS[0], "cat", "/proc/1/cmdline").stdout
    findings.see("ldp-worker" in command, "PID 1 is the worker itself, no shell before it", repr(command))

    written = writable(stack)
    findings.see(
        written - {"/dev/shm", "/dev/mqueue"} == {"/var/cache/ldp-worker"},  # the engine's own, in memory
        "of its files it can write to those below /var/cache/ldp-worker alone",
        f"{sorted(written)}",
    )
    mounts = {mount["Destination"]: mount["RW"] for mount in stack.inspect(WORKERS[0])["Mounts"]}
    configured = {place: may for place, may in mounts.items() if place.startswith("/etc/ldp-worker/")}
    findings.see(
        len(configured) == 3 and not any(configured.values()),
        "its configuration is mounted read-only",
        f"{mounts}",
    )
    limit = stack.inspect(WORKERS[0])["HostConfig"]["Memory"]
    findings.see(limit > 0, f"its memory is limited to {limit >> 20} MiB")


def writable(stack: Stack) -> set[str]:
    """Writable folders, except those of the kernel."""
    attempt = (
        "import os, tempfile\n"
        "for folder, folders, _ in os.walk('/'):\n"
        "    folders[:] = [each for each in folders if os.path.join(folder, each) not in ('/proc', '/sys')]\n"
        "    try:\n"
        "        tempfile.TemporaryFile(dir=folder).close()\n"
        "    except OSError:\n"
        "        continue\n"
        "    print(folder)\n"
        "    folders[:] = [each for each in folders if folder != '/var/cache/ldp-worker']\n"
    )
    return set(stack.execute(WORKERS[0], "python", "-c", attempt).stdout.split())


def watched(findings: Findings) -> None:
    """The stack's Prometheus reads both."""

    def both() -> bool:
        with contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError):
            return [row["value"][1] for row in prometheus('sum(up{job="ldp-worker"})')] == ["2"]
        return False

    findings.see(until(both, 60) is not None, "Prometheus scrapes both")


def uploaded(stack: Stack, findings: Findings) -> None:
    """Uploads reports to the gateway; the audit finds them among the others."""
    for service in ("gateway", "shuffler"):
        took = stack.becomes(service, "healthy", 120)
        findings.see(took is not None, f"{service} becomes healthy", stack.health(service))
    stream = "http://127.0.0.1:8080/v1/streams/emoji"
    with urllib.request.urlopen(f"{stream}/document", timeout=30) as answer:
        client = Client(json.load(answer))
    for value in range(UPLOADS):
        upload(f"{stream}/reports", client.report(value))
    findings.say(f"the gateway has {UPLOADS} uploads")


def counted(stack: Stack, findings: Findings) -> None:
    """Runs a stream; meanwhile one worker stops and comes back; every record is counted once."""
    sending = stack.begin("run", "--rm", "-T", "simulate")
    begun = until(lambda: sum(reports(stack, worker) for worker in WORKERS) > USERS / 20, 240)
    findings.see(begun is not None, "reports are counted while they come")
    stop(stack, findings)
    others = until(lambda: stack.metrics(WORKERS[1]).get("ldp_worker_partition_owned") == PARTITIONS, 10)
    took = "" if others is None else f", {others:.1f} s later"
    findings.see(others is not None, f"the other one has all {PARTITIONS} partitions{took}")
    run("docker", "start", stack.container(WORKERS[0]))
    back = stack.becomes(WORKERS[0], "healthy", 120)
    findings.see(back is not None, f"{WORKERS[0]} is started again and becomes healthy")
    findings.see(sending.wait(600) == 0, f"{USERS:,} users have sent a report each")
    audit(stack, findings)


def reports(stack: Stack, worker: str) -> float:
    """The reports that a worker counted since it started."""
    return stack.metrics(worker).get("ldp_worker_reports_total", 0.0)


def stop(stack: Stack, findings: Findings) -> None:
    """`docker stop`: SIGTERM to PID 1, which ends long before the engine would kill it."""
    worker = WORKERS[0]
    start = time.monotonic()
    run("docker", "stop", "--time", str(GRACE), stack.container(worker))
    took = time.monotonic() - start
    state = stack.inspect(worker)["State"]
    findings.see(
        took < GRACE - 5, f"told to stop under load, it has ended after {took:.1f} s", f"{took:.1f} s"
    )
    findings.see(state["ExitCode"] == 0, "its exit code is 0", f"{state['ExitCode']}")
    said = run("docker", "logs", "--tail", "20", stack.container(worker))
    findings.see("worker.stopped" in said.stdout + said.stderr, "its log ends with worker.stopped")


def audit(stack: Stack, findings: Findings) -> None:
    """Redis eventually has the counts of Kafka's records, recounted by other code."""

    def all_counted() -> bool:
        done = stack.compose("run", "--rm", "-T", "tool", "audit", "--json", must=False)
        verdict = json.loads(done.stdout) if done.stdout.startswith("{") else {}
        found.update(code=done.returncode, verdict=verdict, said=done.stdout + done.stderr)
        return done.returncode == 0 and verdict.get("reports") == USERS + UPLOADS and verdict.get("lag") == 0

    found: dict[str, object] = {}
    equal = until(all_counted, 180) is not None
    findings.see(
        equal, f"ldp-worker audit: equal, {USERS + UPLOADS:,} reports", str(found.get("said"))[-600:]
    )


def health(stack: Stack, findings: Findings) -> None:
    """A container that hangs completely turns unhealthy, and healthy when it continues."""
    worker = WORKERS[1]
    run("docker", "kill", "--signal", "STOP", stack.container(worker))
    ill = stack.becomes(worker, "unhealthy", 90)
    findings.see(
        ill is not None, f"{worker} stands still: unhealthy after {ill or 0:.0f} s", stack.health(worker)
    )
    run("docker", "kill", "--signal", "CONT", stack.container(worker))
    well = stack.becomes(worker, "healthy", 60)
    findings.see(well is not None, f"it goes on: healthy after {well or 0:.0f} s", stack.health(worker))


def logged(stack: Stack, findings: Findings) -> None:
    """Its log is what the engine keeps of its streams: a JSON object a line."""
    said = run("docker", "logs", stack.container(WORKERS[1]))
    lines = (said.stdout + said.stderr).splitlines()
    objects = 0
    for line in lines:
        with contextlib.suppress(ValueError):
            objects += isinstance(json.loads(line), dict)
    findings.see(
        0 < len(lines) == objects, f"its log is on its streams, JSON: {objects} lines", f"of {len(lines)}"
    )


def ended(stack: Stack, findings: Findings) -> None:
    """Stops everything; no process needs to be killed."""
    stack.compose("stop")
    for service in (*WORKERS, "gateway", "shuffler", "redis", "kafka"):
        code = stack.inspect(service)["State"]["ExitCode"]
        # A Java process that SIGTERM ends has 143 as its exit code, after it has closed its files.
        findings.see(code in ((0, 143) if service == "kafka" else (0,)), f"{service} ends with {code}")
