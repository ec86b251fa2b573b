"""The command line without a broker: exit codes, errors, help."""

import gc
import logging
import socket
import subprocess
import sys

import pytest
from click.testing import CliRunner

import ldp
from ldp.cli import cli as ldp_cli
from worker.cli import cli
from worker.config import parse
from worker.kafka.client import brokers

GOOD = '[[streams]]\nname = "s"\ntopic = "t"\nprotocol = "grr"\nepsilon = "1"\ndomain_size = 3\n'


@pytest.fixture
def run(tmp_path):
    def run(text, *args):
        path = tmp_path / "worker.toml"
        path.write_text(text, encoding="utf-8")
        return CliRunner().invoke(cli, [args[0], "--config", str(path), *args[1:]])

    return run


@pytest.mark.parametrize("command", [None, *cli.commands])
def test_a_page_of_help_fits_in_80_columns(command):
    page = CliRunner().invoke(cli, [*filter(None, [command]), "--help"]).stdout
    assert page.startswith("Usage: ")
    assert max(map(len, page.splitlines())) <= 80


COMMANDS = ["run", "check", "create-topics", "watch", "audit", "dead-letters", "document"]


@pytest.mark.parametrize("command", COMMANDS)
def test_configuration_errors_are_lines_and_exit_2(run, command):
    result = run('group = "a b"\nnonsense = 1\n' + GOOD, command)
    assert result.exit_code == 2
    lines = result.stderr.splitlines()
    assert any("group: a text given" in line for line in lines)
    assert any("nonsense" in line for line in lines)
    assert all(line.startswith("ldp-worker: ") for line in lines)
    assert "Traceback" not in result.output


def test_a_missing_file_exits_2(tmp_path):
    result = CliRunner().invoke(cli, ["check", "--config", str(tmp_path / "none.toml")])
    assert result.exit_code == 2
    assert result.stderr.startswith(f"ldp-worker: {tmp_path}/none.toml: there is no such file; name one with")


def test_the_variable_of_the_file_name_overrides_no_setting(tmp_path):
    path = tmp_path / "worker.toml"
    path.write_text(GOOD, encoding="utf-8")
    result = CliRunner(env={"LDP_WORKER_CONFIG": str(path)}).invoke(cli, ["audit", "--stream", "other"])
    assert result.exit_code == 2
    assert "'other' given; the configuration has s" in result.stderr


@pytest.mark.parametrize(
    "args",
    [
        ("watch", "--method", "best"),
        ("create-topics", "--replication-factor", "0"),
        ("audit", "--stream", "other"),
        ("dead-letters", "--last", "0"),
        ("nothing",),
    ],
)
def test_usage_errors_exit_2(run, args):
    assert run(GOOD, *args).exit_code == 2


@pytest.fixture
def simulate(run, tmp_path):
    """Runs `simulate` with a file of counts and options; returns exit code and stderr."""

    def simulate(*options, config=GOOD, counts="n\n1\n", column="n"):
        path = tmp_path / "c.csv"
        path.write_text(counts, encoding="utf-8")
        given = ("--counts", str(path), "--column", column, "--users", "5")
        result = run(config, "simulate", *given, *options)
        return result.exit_code, result.stderr

    return simulate


LABELLED = GOOD.replace("domain_size = 3", 'labels = ["red"]')
COLUMNS = "\ufefflabel,n\nred,1,more than the header has\n"


@pytest.mark.parametrize(
    ("options", "changed", "message"),
    [
        (("--batch", "3"), {"config": GOOD + "most_reports = 2\n"}, "3 given; streams.most_reports allows 2"),
        (("--hours", "0"), {}, "--hours"),
        ((), {"counts": COLUMNS, "column": "none"}, "no column 'none'; the columns are label, n"),
        (
            ("--label-column", "none"),
            {"config": LABELLED, "counts": COLUMNS},
            "no column 'none'; the columns are label, n",
        ),
    ],
)
def test_conflicting_options_of_simulate_are_usage_errors(simulate, options, changed, message):
    code, stderr = simulate(*options, **changed)
    assert (code, message in stderr) == (2, True)


def test_bad_counts_exit_1(simulate):
    code, stderr = simulate(counts="n\nmany\n")
    assert (code, "line 2: 'many'" in stderr) == (1, True)


@pytest.fixture
def closed():
    """An address without a listener."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # and does not listen
        yield f"127.0.0.1:{held.getsockname()[1]}"
    gc.collect()  # collect the client's refused sockets here


leaves_sockets = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


def test_watch_refuses_a_method_that_one_value_does_not_have(run):
    bit = GOOD.replace('"grr"\nepsilon = "1"', '"unary"\np = "3/4"\nq = "1/4"').replace("= 3", "= 1")
    result = run(bit, "watch", "--method", "norm-sub")
    assert result.exit_code == 2
    assert "'norm-sub' given; published are base, base-pos, post-pos, base-cut" in " ".join(
        result.stderr.split()
    )


@pytest.mark.slow
@leaves_sockets
@pytest.mark.parametrize("command", ["audit", "watch", "simulate", "create-topics", "check", "dead-letters"])
def test_silent_brokers_are_named_while_waiting_and_after(run, tmp_path, monkeypatch, closed, command):
    monkeypatch.setattr(brokers, "_NOTICE_SECONDS", 1.0)
    monkeypatch.setattr(brokers, "TIMEOUT_SECONDS", 3.0)
    counts = tmp_path / "c.csv"
    counts.write_text("n\n1\n", encoding="utf-8")
    options = {"simulate": ("--counts", str(counts), "--column", "n", "--users", "5")}
    addresses = f'[kafka]\nbootstrap_servers = ["{closed}"]\n[redis]\nurl = "redis://{closed}"\n'
    result = run(addresses + GOOD, command, *options.get(command, ()))
    assert result.exit_code == 1
    said = result.stderr.splitlines()
    assert said[0].startswith(f"ldp-worker: no answer from {closed} yet (")
    assert said[0].endswith("ECONNREFUSED); trying for 3 s")
    if command == "check":
        said = [" ".join(result.stdout.split())]
    assert f"no answer from {closed} in 3 s (111 ECONNREFUSED)" in " ".join(said[-2:])
    assert "kafka.bootstrap_servers" in said[-1]
    assert "Traceback" not in result.output


@pytest.mark.slow
@leaves_sockets
def test_waiting_for_brokers_restores_the_log_of_the_client(monkeypatch, closed):
    monkeypatch.setattr(brokers, "TIMEOUT_SECONDS", 0.3)
    config = parse(f'[kafka]\nbootstrap_servers = ["{closed}"]\n{GOOD}')
    logger = logging.getLogger("kafka.net.manager")
    before = (logger.level, logger.propagate, list(logger.handlers))
    with pytest.raises(brokers.Unreachable, match=f"no answer from {closed} in 0.3 s"):
        brokers.connect(config)
    assert (logger.level, logger.propagate, list(logger.handlers)) == before


def test_the_document_equals_the_output_of_ldp_document(run):
    labelled = GOOD.replace("domain_size = 3", 'labels = ["röd", "grön"]')
    result = run(labelled, "document")
    args = ["document", "--protocol", "grr", "--epsilon", "1", "--labels", "röd,grön"]
    assert result.stdout == CliRunner().invoke(ldp_cli, args).stdout
    fingerprint = ldp.Stream("s", ldp.GRR("1", 2), labels=["röd", "grön"]).fingerprint.hex()
    assert result.stderr == f"ldp-worker: stream s, fingerprint {fingerprint}\n"


@pytest.mark.slow
def test_run_without_a_kernel_cache_names_the_variable(tmp_path):
    path = tmp_path / "worker.toml"
    path.write_text(GOOD, encoding="utf-8")
    code = (
        "from numba.core import caching\n"
        "caching.CacheImpl._locator_classes = caching.CompileResultCacheImpl._locator_classes = []\n"
        "from worker.cli import main\n"
        "main()"
    )
    command = [sys.executable, "-c", code, "run", "--config", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines()[-1] == "ldp-worker: set NUMBA_CACHE_DIR to a writable folder"
    assert "Traceback" not in done.stderr


def test_help_loads_nothing_heavy():
    code = (
        "import sys, click.testing, worker.cli as c\n"
        "r = click.testing.CliRunner().invoke(c.cli, ['simulate', '--help'])\n"
        "print(r.exit_code, sorted({'numpy', 'numba', 'kafka', 'redis', 'pydantic', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0 []"
