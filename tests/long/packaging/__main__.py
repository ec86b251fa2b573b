"""Tests of the built packages in fresh environments: ``python -m tests.long.packaging``.

- ``source_distribution``: the wheel that is built from it has the same files;
- ``client_alone``: the device client makes reports of every protocol with the standard library;
- ``mathematics``: the commands of docs/tutorials/files-only.md run; ldp-worker names the missing extra;
- ``worker``: ldp-worker checks a configuration and reports that no service answers;
- ``without_installing``: uvx runs the same commands from the wheel, and ``uv run`` the examples of ``ldp/examples``;
- ``javascript``: a TypeScript program that imports JSON compiles and runs with the package of ``npm pack``.

The locked build backend builds the wheel. Dependencies have the lock's versions and hashes. Exits with 1 at the first
failure. Takes about two minutes, most of it for compiling kernels.
"""

import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
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


def run(
    *command: str | Path, folder: Path = ROOT, path: str | None = None, typed: str = "", **more: str
) -> Done:
    """Runs a command without this tree on its path, with `more` in its environment, and waits for it."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "LDP_"))}
    environ |= more
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


def build(folder: Path, source: Path = ROOT) -> Path:
    """Builds the wheel."""
    made = run(
        BIN / "python", "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", folder, source
    )
    must(made.code == 0, "the wheel is built", made)
    (wheel,) = folder.glob("*.whl")
    return wheel


def source_distribution(wheel: Path, folder: Path) -> None:
    """Builds a wheel from the source distribution, and compares the files of both wheels."""
    done = run(BIN / "hatchling", "build", "--target", "sdist", "--directory", folder)
    must(done.code == 0, "the source distribution is built", done)
    (source,) = folder.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(folder, filter="data")
    again = build(folder, folder / source.name.removesuffix(".tar.gz"))
    files = [sorted(zipfile.ZipFile(one).namelist()) for one in (wheel, again)]
    must(files[0] == files[1], "the source distribution makes the same wheel", done)


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


def tutorial() -> str:
    """Returns the commands on files of the tutorial."""
    page = (ROOT / "docs/tutorials/files-only.md").read_text(encoding="utf-8")
    (typed,) = re.findall(r"^```sh\n([^`]*ldp perturb[^`]*)^```$", page, re.MULTILINE)
    return str(typed)


def mathematics(wheel: Path, folder: Path) -> None:
    """Runs the tutorial's commands on files, and a missing worker."""
    commands = environment(folder, str(wheel))
    typed = tutorial()
    done = run("bash", "-eu", "-c", typed, folder=folder, path=str(commands))
    must(done.code == 0 and "file: 10,000 reports" in done.out, "the tutorial's commands on files run", done)
    done = run("bash", "-eu", "-c", typed.replace(" --top 3", ""), folder=folder, path=str(commands))
    must(done.code == 0 and len(done.out.splitlines()) == 13, "a snapshot is written", done)
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


def without_installing(wheel: Path, folder: Path) -> None:
    """Runs the tutorial by uvx with an empty cache, within 500 MB, and the examples by uv run."""
    folder.mkdir()
    cache = {"UV_CACHE_DIR": str(folder / "cache"), "UV_CONSTRAINT": str(LOCK)}
    uvx = folder / "ldp"
    uvx.write_text(f'#!/bin/sh\nexec {BIN / "uv"} tool run --from {wheel} ldp "$@"\n', encoding="utf-8")
    uvx.chmod(0o755)
    start = time.perf_counter()
    done = run("bash", "-eu", "-c", tutorial(), folder=folder, path=str(folder), **cache)
    must(done.code == 0 and "file: 10,000 reports" in done.out, "uvx runs the tutorial's commands", done)
    # uv links the files of an environment to its cache
    size = sum({one.stat().st_ino: one.stat().st_size for one in folder.rglob("*") if one.is_file()}.values())
    print(
        f"        uvx: {time.perf_counter() - start:.0f} s and {size >> 20} MiB until the first table",
        flush=True,
    )
    must(size < 500 << 20, "uvx needs less than 500 MB", done)
    for name in ("counts", "device", "estimate", "protocols", "queries"):
        script = ROOT / "ldp" / "examples" / f"{name}.py"
        done = run(BIN / "uv", "run", "--find-links", wheel.parent, script, folder=folder, **cache)
        must(done.code == 0, f"uv run {name}.py runs", done)


TYPESCRIPT = """
import { Client, fingerprintOf } from "ldp-client";
import { unaryFrame } from "ldp-client/browsers";
import { oblivious } from "ldp-client/ohttp";
import { upload } from "ldp-client/upload";
import colours from "./colours.json" with { type: "json" };
import topics from "./topics.json" with { type: "json" };

const client = new Client(colours);
const frames: Uint8Array[] = client.pack([client.report("red"), client.report(1)], 2);
const fingerprint: Uint8Array = fingerprintOf(colours);
const send = (keys: Uint8Array) => oblivious("https://relay.example/", keys);
const uploaded = (keys: Uint8Array): Promise<void> => upload("https://a.example/", keys, send(keys));
console.log(uploaded.length + frames[0].length + fingerprint.length + unaryFrame(topics, "0100").length);
"""


def javascript(_wheel: Path, folder: Path) -> None:
    """Installs the tarball of npm pack, and compiles and runs a TypeScript program."""
    folder.mkdir()
    done = run("npm", "pack", "--pack-destination", folder, folder=ROOT / "ldp/clients/javascript")
    must(done.code == 0, "npm pack makes a tarball", done)
    (packed,) = folder.glob("*.tgz")
    documents = {
        "colours": ldp.Stream("s", ldp.GRR("1", 3), labels=("red", "green", "blue")).document(),
        "topics": ldp.Stream("t", ldp.Unary("3/4", "1/10", 4)).document(),
    }
    for name, document in documents.items():
        (folder / f"{name}.json").write_text(json.dumps(document), encoding="utf-8")
    (folder / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    (folder / "program.ts").write_text(TYPESCRIPT, encoding="utf-8")
    done = run(
        "npm",
        "install",
        "--no-audit",
        "--no-fund",
        packed,
        "typescript@5.9.3",
        "@hpke/core@1.9.0",
        folder=folder,
    )
    must(done.code == 0, "npm installs the tarball, its optional peer and TypeScript", done)
    options = (
        "--strict",
        "--module",
        "nodenext",
        "--target",
        "es2022",
        "--lib",
        "es2022,dom",
        "--resolveJsonModule",
    )
    done = run("npx", "tsc", *options, "program.ts", folder=folder)
    must(done.code == 0, "the program compiles", done)
    done = run("node", "program.js", folder=folder)
    must((done.code, done.out) == (0, "18\n"), "the program runs", done)


def main() -> None:
    """Builds the wheel, and tries it."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="ldp-packaging-") as name:
        folder = Path(name)
        wheel = build(folder)
        for attempt in (
            source_distribution,
            client_alone,
            mathematics,
            worker,
            without_installing,
            javascript,
        ):
            attempt(wheel, folder / attempt.__name__)
            print(
                f"{time.perf_counter() - start:5.1f} s  {attempt.__name__.replace('_', ' ')}: all is so",
                flush=True,
            )


if __name__ == "__main__":
    main()
