"""Each import contract of pyproject.toml fails when a copy of the packages breaks it."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONTRACTS = {
    contract["id"]: contract["name"]
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
        "importlinter"
    ]["contracts"]
}
BREACHES = [
    ("mathematics", "ldp/intervals/binomial_tail.py", "import worker"),
    ("clean-mathematics", "ldp/estimate.py", "import kafka"),
    ("clean-mathematics", "ldp/client.py", "import redis"),
    ("engines", "ldp/files.py", "import pyarrow"),
    ("engines", "worker/cli/simulate.py", "from pyspark.sql import DataFrame"),
    ("optional", "worker/service/stream.py", "from ldp.conformance import verdict"),
    ("core", "worker/counting/layout.py", "import rich"),
    ("core", "worker/importing.py", "import kafka"),
    ("core", "worker/counting/partition_state.py", "import prometheus_client"),
    ("core", "worker/counting/ownership.py", "from worker.kafka.reports import log"),
    ("core", "worker/publishing/publisher.py", "import redis"),
    ("core", "worker/shuffling/partition.py", "import kafka"),
    ("kafka", "worker/check/counts.py", "import kafka"),
    ("kafka", "worker/cli/watch.py", "from kafka import KafkaConsumer"),
    ("redis", "worker/kafka/reports/group.py", "import redis"),
    ("redis", "worker/cli/command.py", "from redis import RedisError"),
    ("screens", "worker/check/finding.py", "from rich.table import Table"),
    ("screens", "worker/counting/claim.py", "if TYPE_CHECKING:\n    from rich.table import Table"),
    ("prometheus", "worker/service/stream.py", "from prometheus_client import Counter"),
    ("audit", "worker/audit/recount.py", "from ldp import frames"),
    ("audit", "worker/audit/stored.py", "from worker.counting import layout"),
    ("decoding", "worker/kafka/decoding/records.py", "from worker.kafka.client import topics"),
    ("audit", "worker/audit/reading.py", "from worker.store import redis"),
    ("audit", "worker/audit/reading.py", "from worker.kafka.client import topics"),
    ("cycles", "ldp/arguments.py", "from ldp import estimate"),
    ("cycles", "worker/counting/layout.py", "from worker.counting import ownership"),
    ("layers", "worker/store/redis.py", "from worker.service import stream"),
    ("layers", "worker/config/schema.py", "from worker.cli import command"),
]


def test_every_contract_is_broken_once():
    assert {contract for contract, _, _ in BREACHES} == set(CONTRACTS)


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """A copy of the packages with the contracts."""
    folder = tmp_path_factory.mktemp("packages")
    for package in ("ldp", "worker"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def lint(folder, contract):
    """Runs import-linter for one contract."""
    code = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    command = [sys.executable, "-c", code, "--config", "pyproject.toml", "--contract", contract]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.slow
@pytest.mark.parametrize(("contract", "path", "line"), BREACHES)
def test_a_broken_contract_fails(packages, contract, path, line):
    file = packages / path
    whole = file.read_text(encoding="utf-8")
    file.write_text(f"{whole}\n{line}\n", encoding="utf-8")
    try:
        done = lint(packages, contract)
    finally:
        file.write_text(whole, encoding="utf-8")
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"{CONTRACTS[contract]} BROKEN" in done.stdout
    assert path.removesuffix(".py").replace("/", ".") in done.stdout or contract == "cycles"


@pytest.mark.slow
def test_every_contract_of_the_unbroken_copy_holds(packages):
    for contract in CONTRACTS:
        done = lint(packages, contract)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "1 kept, 0 broken" in done.stdout
