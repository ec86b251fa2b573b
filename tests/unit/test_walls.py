"""The walls stand: each contract of pyproject.toml is broken once, on a copy, and seen to fail."""

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
    ("core", "worker/counting/layout.py", "import rich"),
    ("core", "worker/counting/partition_state.py", "import prometheus_client"),
    ("core", "worker/counting/ownership.py", "from worker.kafka.reports import log"),
    ("core", "worker/publishing/publisher.py", "import redis"),
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
    ("circles", "ldp/arguments.py", "from ldp import estimate"),
    ("circles", "worker/counting/layout.py", "from worker.counting import ownership"),
    ("rooms", "worker/store/redis.py", "from worker.service import stream"),
    ("rooms", "worker/config/schema.py", "from worker.cli import command"),
]


def test_every_contract_is_broken_once():
    assert {contract for contract, _, _ in BREACHES} == set(CONTRACTS)


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A copy of the packages with the contracts, to break walls in."""
    folder = tmp_path_factory.mktemp("house")
    for package in ("ldp", "worker"):
        shutil.copytree(
            ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__", "*.csv")
        )
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def lint(folder, contract):
    """What import-linter says of one contract."""
    code = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    command = [sys.executable, "-c", code, "--config", "pyproject.toml", "--contract", contract]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.slow
@pytest.mark.parametrize(("contract", "path", "line"), BREACHES)
def test_a_wall_that_is_broken_is_seen(house, contract, path, line):
    file = house / path
    whole = file.read_text(encoding="utf-8")
    file.write_text(f"{whole}\n{line}\n", encoding="utf-8")
    try:
        said = lint(house, contract)
    finally:
        file.write_text(whole, encoding="utf-8")
    assert said.returncode == 1, said.stdout + said.stderr
    assert f"{CONTRACTS[contract]} BROKEN" in said.stdout
    assert path.removesuffix(".py").replace("/", ".") in said.stdout or contract == "circles"


@pytest.mark.slow
def test_the_copy_is_what_is_judged_and_unbroken_it_holds(house):
    for contract in CONTRACTS:
        said = lint(house, contract)
        assert said.returncode == 0, said.stdout + said.stderr
        assert "1 kept, 0 broken" in said.stdout
