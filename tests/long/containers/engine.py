"""A container engine: the one that answers, else one of this script's own, gone without a trace when it ends.

A private engine is Debian's `dockerd` on a private socket and folders, in new process and mount namespaces: when its
first process ends, the kernel ends all others and removes every mount. The cleanup then removes its folder, firewall
rules, bridge and control groups. Installed packages stay.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.long.containers.said import CannotError, Findings, run, until

PACKAGES = {
    "dockerd": "docker.io",
    "docker-compose": "docker-compose",
    "mmdebstrap": "mmdebstrap",
    "iptables": "iptables",
    "ip": "iproute2",
}
"""Debian's packages by a program of each."""
FORWARD = Path("/proc/sys/net/ipv4/ip_forward")
CONTROL = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Engine:
    """An engine that answers to `docker`."""

    ours: bool
    folder: Path
    """Folder for temporary data of a run."""
    compose: tuple[str, ...]
    """The command: `docker compose`, or `docker-compose` if the plugin is missing."""


@contextlib.contextmanager
def engine(findings: Findings) -> Iterator[Engine]:
    """The engine, as long as it is needed."""
    with tempfile.TemporaryDirectory(prefix="ldp-containers-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        ours = not answers()
        if ours:
            install(findings)
            stack.enter_context(started(folder, findings))
        version = run("docker", "version", "--format", "{{.Server.Version}}").stdout.strip()
        findings.say(f"engine: Docker {version}, {'of our own' if ours else 'which was there'}")
        plugin = run("docker", "compose", "version", must=False).returncode == 0
        compose = ("docker", "compose") if plugin else ("docker-compose",)
        if run(*compose, "version", must=False).returncode != 0:
            raise CannotError("the engine answers, but neither docker compose nor docker-compose is there")
        if run("docker", "buildx", "version", must=False).returncode != 0:
            os.environ["DOCKER_BUILDKIT"] = "0"  # the builder inside the engine
        yield Engine(ours, folder, compose)


def answers() -> bool:
    """Whether an engine answers, at DOCKER_HOST or its usual place."""
    return shutil.which("docker") is not None and run("docker", "version", must=False).returncode == 0


def install(findings: Findings) -> None:
    """Installs missing packages that a private engine needs."""
    absent = [package for program, package in PACKAGES.items() if shutil.which(program) is None]
    if absent and (os.geteuid() != 0 or shutil.which("apt-get") is None):
        raise CannotError(
            f"no engine answers, and {', '.join(absent)} can only be installed as root on Debian"
        )
    if os.geteuid() != 0:
        raise CannotError("no engine answers, and only root can start one")
    if absent:
        findings.say(f"no engine answers: installing Debian's {', '.join(absent)}")
        calm = {"DEBIAN_FRONTEND": "noninteractive"}
        run("apt-get", "-qq", "update", more=calm)
        run("apt-get", "-qq", "install", "-y", "--no-install-recommends", *absent, more=calm)


@contextlib.contextmanager
def started(folder: Path, findings: Findings) -> Iterator[None]:
    """Starts an engine of our own, and undoes all of it at the end."""
    socket, log, group = folder / "docker.sock", folder / "dockerd.log", f"/{folder.name}"
    forward = FORWARD.read_text()
    links = bridges()
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                # Whatever ends this script ends the engine's first process, and with it all others.
                *("setpriv", "--pdeathsig", "KILL"),
                *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
                *("dockerd", "--host", f"unix://{socket}", "--pidfile", str(folder / "pid")),
                *("--data-root", str(folder / "data"), "--exec-root", str(folder / "exec")),
                *("--cgroup-parent", group),
            ],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    before = os.environ.get("DOCKER_HOST")
    os.environ["DOCKER_HOST"] = f"unix://{socket}"
    try:
        if until(lambda: process.poll() is not None or answers(), 60) is None or process.poll() is not None:
            said = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
            raise CannotError(f"dockerd did not start; it said:\n{said}")
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.environ.pop("DOCKER_HOST")
        if before is not None:
            os.environ["DOCKER_HOST"] = before
        undo(forward, links, group)
        findings.see(
            not traces(links, group), "nothing of the engine is left", ", ".join(traces(links, group))
        )


def bridges() -> set[str]:
    """The engine's network devices."""
    return {path.name for path in Path("/sys/class/net").iterdir() if path.name.startswith(("docker", "br-"))}


def groups(group: str) -> list[Path]:
    """The engine's control groups, the innermost first."""
    found = [*CONTROL.glob(f"*{group}"), *CONTROL.glob(group.lstrip("/"))]
    inner = [path for top in found for path in top.rglob("*") if path.is_dir()]
    return sorted({*found, *inner}, key=lambda path: -len(path.parts))


def undo(forward: str, links: set[str], group: str) -> None:
    """Takes away what outlives the engine's processes: rules of the firewall, bridges, control groups."""
    for table in ("iptables", "ip6tables"):
        rules = run(f"{table}-save", must=False).stdout.splitlines()
        if any("DOCKER" in rule for rule in rules):
            # The engine's chains, jumps to them and the rules of its bridges; FORWARD drops only by its default.
            kept = [rule for rule in rules if "DOCKER" not in rule and not of_engine(rule, links)]
            text = "\n".join(rule.replace(":FORWARD DROP", ":FORWARD ACCEPT") for rule in kept)
            run(f"{table}-restore", typed=text + "\n", must=False)
    FORWARD.write_text(forward)
    for link in bridges() - links:
        run("ip", "link", "delete", link, must=False)
    until(lambda: not any(empty(path) for path in groups(group)), 10)


def of_engine(rule: str, links: set[str]) -> bool:
    """Whether a firewall rule belongs to one of the engine's networks."""
    parts = rule.split()
    return any(link in parts for link in bridges() - links)


def empty(path: Path) -> bool:
    """Removes a control group; whether it is still there."""
    with contextlib.suppress(OSError):
        path.rmdir()
    return path.exists()


def traces(links: set[str], group: str) -> list[str]:
    """Remains of the engine."""
    rules = run("iptables-save", must=False).stdout
    mounts = Path("/proc/self/mounts").read_text()
    return [
        *(f"bridge {link}" for link in sorted(bridges() - links)),
        *(["rules of the firewall"] if "DOCKER" in rules else []),
        *(["mounts"] if group in mounts else []),
        *(str(path) for path in groups(group)),
    ]
