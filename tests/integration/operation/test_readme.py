"""The configuration, commands and code of README.md run as written."""

import json
import re
import secrets
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support.docs import blocks, page
from worker.cli import cli

README = page("README.md")
TUTORIAL = page("tutorials/first-stream")
WORKER = Path(sys.executable).with_name("ldp-worker")
PLAIN = "import sys; sys.modules.update(dict.fromkeys(['lz4', 'lz4f', 'lz4framed', 'snappy', 'zstandard']))\n"
"""Hides the codecs that kafka-python does not install."""


@pytest.mark.integration
def test_the_instructions_of_the_readme_work(tmp_path, kafka, redis_url, monkeypatch):
    codecs = "from kafka.codec import has_lz4, has_snappy, has_zstd; sys.exit(has_lz4() or has_snappy() or has_zstd())"
    subprocess.run([sys.executable, "-c", PLAIN + codecs], check=True, timeout=180)
    own = secrets.token_hex(4)
    toml, (producer, consumer) = blocks(README, "toml")[0], blocks(README, "python")

    def here(text):
        for name in ("colour-reports", "ldp-snapshots"):
            text = text.replace(name, f"{name}-{own}")
        return text.replace('"colours', f'"colours-{own}')

    (tmp_path / "worker.toml").write_text(here(toml), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for name, value in {
        "LDP_WORKER_KAFKA__BOOTSTRAP_SERVERS": kafka,
        "LDP_WORKER_REDIS__URL": redis_url,
        "LDP_WORKER_HTTP__PORT": "0",
        "LDP_WORKER_SNAPSHOTS__TOPIC": f"ldp-snapshots-{own}",
        "LDP_WORKER_SNAPSHOTS__EVERY_SECONDS": "0.5",
        "LDP_WORKER_DEAD_LETTERS__TOPIC": f"ldp-dead-letters-{own}",
    }.items():
        monkeypatch.setenv(name, value)

    def run(*command):
        done = CliRunner().invoke(cli, command)
        assert done.exit_code == 0, done.output
        return done.stdout

    subprocess.run([WORKER, "create-topics"], check=True, timeout=180)
    run("check")
    log = (tmp_path / "log").open("w")
    worker = subprocess.Popen([WORKER, "run"], stdout=log, stderr=log)
    try:
        (tmp_path / f"colours-{own}.json").write_text(run("document"), encoding="utf-8")
        subprocess.run([sys.executable, "-c", here(producer)], check=True, timeout=180)
        reader = subprocess.Popen(
            [sys.executable, "-u", "-c", PLAIN + here(consumer)], stdout=subprocess.PIPE, text=True
        )
        watchdog = threading.Timer(180, reader.kill)
        watchdog.start()
        try:
            sequence, reports, frequencies = reader.stdout.readline().split(" ", 2)
        finally:
            watchdog.cancel()
            reader.kill()
            reader.communicate()
        assert (sequence, reports) == ("1", "1")
        assert sum(json.loads(frequencies)) == pytest.approx(1)
        assert "green" in run("watch", "--once")
        run("audit")
    finally:
        worker.send_signal(signal.SIGTERM)
        code = worker.wait(timeout=180)
        log.close()
    assert code == 0, (tmp_path / "log").read_text()


def test_every_target_and_command_exists():
    makefile = (Path(__file__).parents[3] / "Makefile").read_text()
    targets = set(re.findall(r"`make ([a-z]+)", README + page("internals/benchmarks"))) | {"demo", "test"}
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    said = set(re.findall(r"(?m)(?:^|`)ldp-worker ([a-z][a-z-]+)", README + TUTORIAL)) - {"collects"}
    known = subprocess.run([WORKER, "--help"], capture_output=True, text=True, timeout=180, check=True).stdout
    for command in said:
        assert re.search(rf"^  {command} ", known, re.MULTILINE), command
