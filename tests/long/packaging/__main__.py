"""Tests of the built wheel in three fresh environments: ``python -m tests.long.packaging``.

- ``alone``: the device client makes reports of every protocol with the standard library;
- ``mathematics``: the commands of docs/tutorials/files-only.md run; ldp-worker names the missing extra;
- ``worker``: ldp-worker checks a configuration and reports that no service answers.

The locked build backend builds the wheel. Dependencies have the lock's versions and hashes. Exits with 1 at the first
failure. Takes about a minute, most of it for compiling kernels.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import ldp
from ldp.oracles import ORACLES

ROOT = Path(__file__).parents[3]
BIN = Path(sys.executable).parent
LOCK = ROOT / "requirements.lock"

CLIENT = """
import json, sys
from ldp.client import Client
for document in json.load(sys.stdin):
    print(Client(document).report(1).hex())
"""
NOBODY = """
[kafka]
bootstrap_servers = ["127.0.0.1:1"]
[redis]
url = "redis://127.0.0.1:1/0"
[[streams]]
name = "colours"
topic = "colour-reports"
protocol = "olh"
epsilon = "1"
labels = ["red", "green", "blue"]
"""


@dataclass(frozen=True)
class Done:
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str


def run(*command: str | Path, folder: Path = ROOT, path: str | None = None, typed: str = "") -> Done:
    """Runs a command without this tree on its path, and waits for it."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "LDP_"))}
    if path is not None:
        environ["PATH"] = path + os.pathsep + environ["PATH"]
    done = subprocess.run(
        command,
        cwd=folder,
        env=environ,
        input=typed,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def must(holds: bool, what: str, done: Done) -> None:
    """Ends the check with a command's output if a condition fails."""
    if not holds:
        sys.exit(f"packaging: not so: {what}\nexit code {done.code}\n{done.out}{done.err}")


def environment(folder: Path, *packages: str) -> Path:
    """Makes an environment with these packages, in the lock's versions; returns where its commands are."""
    made = run(sys.executable, "-m", "venv", "--without-pip", folder)
    must(made.code == 0, "python -m venv makes an environment", made)
    python = folder / "bin" / "python"
    made = run(BIN / "uv", "pip", "install", "--python", python, "--constraint", LOCK, *packages)
    must(made.code == 0, f"{' '.join(packages)} installs", made)
    return folder / "bin"


def build(folder: Path) -> Path:
    """Builds the wheel."""
    made = run(BIN / "python", "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", folder, ".")
    must(made.code == 0, "the wheel is built", made)
    (wheel,) = folder.glob("*.whl")
    return wheel


def client_alone(wheel: Path, folder: Path) -> None:
    """Makes a report of every protocol with only the standard library."""
    commands = environment(folder, "--no-deps", str(wheel))
    oracles = [ldp.oracle(protocol, epsilon="1", domain_size=11) for protocol in ORACLES]
    documents = json.dumps([oracle.parameters() for oracle in oracles])
    done = run(commands / "python", "-c", CLIENT, folder=folder, typed=documents)
    must(done.code == 0, "the client runs without any package", done)
    frames = [bytes.fromhex(line) for line in done.out.split()]
    for oracle, frame in zip(oracles, frames, strict=True):
        reports = np.frombuffer(frame[5:], oracle.report_dtype)
        must(oracle.check(reports).tolist() == [True], "a report is well-formed", done)
    done = run(commands / "python", "-c", "import ldp; print(ldp.__version__)", folder=folder)
    must(done.out == f"{ldp.__version__}\n", "the version is the wheel's", done)
    for command in ("ldp", "ldp-worker"):
        done = run(commands / command, "--version", folder=folder)
        must((done.code, done.out, done.err.count("\n")) == (2, "", 1), f"{command} says what it lacks", done)


def mathematics(wheel: Path, folder: Path) -> None:
    """Runs the tutorial's commands on files, and a missing worker."""
    commands = environment(folder, str(wheel))
    tutorial = (ROOT / "docs/tutorials/files-only.md").read_text(encoding="utf-8")
    (typed,) = re.findall(r"^```sh\n([^`]*ldp perturb[^`]*)^```$", tutorial, re.MULTILINE)
    done = run("bash", "-eu", "-c", typed, folder=folder, path=str(commands))
    must(done.code == 0 and "file: 10,000 reports" in done.out, "the tutorial's commands on files run", done)
    done = run("bash", "-eu", "-c", typed.replace(" --top 3", ""), folder=folder, path=str(commands))
    must(done.code == 0 and len(done.out.splitlines()) == 13, "a snapshot is written", done)
    done = run(commands / "ldp", "reproduce", folder=folder)
    must(
        done.code == 2 and "run the command in the source tree" in done.err,
        "the evaluation is in the source",
        done,
    )
    for options in (("--version",), ("--help",), ("run", "--help")):
        done = run(commands / "ldp-worker", *options, folder=folder)
        must((done.code, done.err) == (0, ""), f"ldp-worker {' '.join(options)} answers", done)
    done = run(commands / "ldp-worker", "run", folder=folder)
    said = "pip install 'ldp-worker[worker]'\n"
    must((done.code, done.out) == (2, ""), "without the extra exit code 2", done)
    must(done.err.count("\n") == 1 and done.err.endswith(said), "one line names the extra", done)


def worker(wheel: Path, folder: Path) -> None:
    """Checks a configuration with absent brokers and an absent Redis."""
    commands = environment(folder, f"{wheel}[worker]")
    done = run(commands / "ldp-worker", "--version", folder=folder)
    must(done.out == f"ldp-worker, version {ldp.__version__}\n", "ldp-worker tells its version", done)
    (folder / "worker.toml").write_text(NOBODY, encoding="utf-8")
    done = run(commands / "ldp-worker", "check", folder=folder)
    said = " ".join(done.out.split())
    must(done.code == 1 and "ok configuration" in said, "check reads the configuration", done)
    must("brokers: no answer from 127.0.0.1:1" in said, "check names the brokers", done)
    must("redis: no answer from redis://127.0.0.1:1" in said, "check names Redis", done)


def main() -> None:
    """Builds the wheel, and tries it."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="ldp-packaging-") as name:
        folder = Path(name)
        wheel = build(folder)
        for attempt in (client_alone, mathematics, worker):
            attempt(wheel, folder / attempt.__name__)
            print(
                f"{time.perf_counter() - start:5.1f} s  {attempt.__name__.replace('_', ' ')}: all is so",
                flush=True,
            )


if __name__ == "__main__":
    main()
