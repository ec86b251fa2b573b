"""The command line: exit codes, and errors that say what to do, without a broker."""

import subprocess
import sys

import pytest
from click.testing import CliRunner

from worker.cli import cli

GOOD = '[[streams]]\nname = "s"\ntopic = "t"\nprotocol = "grr"\nepsilon = "1"\ndomain_size = 3\n'


@pytest.fixture
def run(tmp_path):
    def run(text, *args):
        path = tmp_path / "worker.toml"
        path.write_text(text, encoding="utf-8")
        return CliRunner().invoke(cli, [args[0], "--config", str(path), *args[1:]])

    return run


@pytest.mark.parametrize("command", ["run", "check", "create-topics", "watch", "audit"])
def test_configuration_errors_are_lines_and_exit_2(run, command):
    result = run('group = "a b"\nnonsense = 1\n' + GOOD, command)
    assert result.exit_code == 2
    lines = result.stderr.splitlines()
    assert any("group: 'a b'" in line for line in lines)
    assert any("nonsense" in line for line in lines)
    assert all(line.startswith("ldp-worker: ") for line in lines)
    assert "Traceback" not in result.output


def test_a_missing_file_exits_2(tmp_path):
    result = CliRunner().invoke(cli, ["check", "--config", str(tmp_path / "none.toml")])
    assert result.exit_code == 2
    assert "cannot be read" in result.stderr


def test_the_variable_that_names_the_file_overrides_nothing_in_it(tmp_path):
    path = tmp_path / "worker.toml"
    path.write_text(GOOD, encoding="utf-8")
    result = CliRunner(env={"LDP_WORKER_CONFIG": str(path)}).invoke(cli, ["audit", "--stream", "other"])
    assert result.exit_code == 2
    assert "'other' given; the configuration has s" in result.stderr


@pytest.mark.parametrize(
    "args", [("watch", "--method", "best"), ("create-topics", "--partitions", "0"), ("nothing",)]
)
def test_usage_errors_exit_2(run, args):
    assert run(GOOD, *args).exit_code == 2


def test_bad_counts_exit_1(run, tmp_path):
    counts = tmp_path / "c.csv"
    counts.write_text("n\nmany\n", encoding="utf-8")
    result = run(GOOD, "simulate", "--counts", str(counts), "--column", "n", "--users", "5")
    assert result.exit_code == 1
    assert "line 2: 'many'" in result.stderr


def test_help_loads_nothing_heavy():
    code = (
        "import sys, click.testing, worker.cli as c\n"
        "r = click.testing.CliRunner().invoke(c.cli, ['simulate', '--help'])\n"
        "print(r.exit_code, sorted({'numpy', 'numba', 'kafka', 'redis', 'pydantic', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0 []"


def test_version():
    assert CliRunner().invoke(cli, ["--version"]).output.startswith("ldp-worker, version ")
