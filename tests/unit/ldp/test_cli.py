"""The command ``ldp``: its table and its JSON say what the plan says."""

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from ldp.analysis.protocol_selection import plan
from ldp.cli import cli
from ldp.oracles import ORACLES


def run(*args):
    return CliRunner().invoke(cli, [*args])


ASKED = ("plan", "--epsilon", "1", "--domain-size", "1024", "--reports", "1000000")


@pytest.mark.parametrize("command", [None, *cli.commands])
def test_a_page_of_help_fits_in_80_columns(command):
    page = run(*filter(None, [command]), "--help").stdout
    assert page.startswith("Usage: ")
    assert max(map(len, page.splitlines())) <= 80


def test_json_is_the_plan():
    result = run(*ASKED, "--json")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert document == json.loads(json.dumps(plan("1", 1024, 10**6).document()))
    assert document["recommended"] == document["protocols"][0]["protocol"] == "pgr"
    assert {row["protocol"] for row in document["protocols"]} == set(ORACLES)
    assert document["protocols"][0]["document"] == {
        "protocol": "pgr",
        "epsilon": "1/1",
        "domain_size": 1024,
        "dimension": 7,
        "prime": 3,
    }


def test_the_table_has_a_line_a_protocol_and_the_reason():
    result = run(*ASKED)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].split()[:3] == ["protocol", "std", "error"]
    assert [line.split()[0] for line in lines[1:8]] == [row.protocol for row in plan("1", 1024, 10**6).rows]
    grr = next(line for line in lines if line.startswith("grr"))
    assert grr.split() == ["grr", "0.0186", "0.106", "7", "B", "1", "counter", "8,192", "B", "none"]
    olh = next(line for line in lines if line.startswith("olh"))
    assert olh.endswith("10 B   1,024 hashes  8,192 B   none")
    assert lines[8] == ""
    assert " ".join(result.stdout.split()).count(f"pgr: {plan('1', 1024, 10**6).reason}") == 1
    assert lines[-3:] == [
        "pgr, best with dimension = 7, prime = 3",
        "subset, best with k = 275",
        "olh, best with g = 4, hash = mul32",
    ]


@pytest.mark.parametrize("epsilon", ["0.001", "1", "4", "12"])
@pytest.mark.parametrize("d", [1, 1024, 99_999, 1_000_000, 1 << 24])
@pytest.mark.parametrize("n", [1, 10**12])
def test_the_table_fits_in_80_columns(epsilon, d, n):
    lines = run(
        "plan", "--epsilon", epsilon, "--domain-size", str(d), "--reports", str(n)
    ).stdout.splitlines()
    assert max(map(len, lines)) <= 80
    rows = lines[: lines.index("")]
    assert len(rows) == 1 + len(plan(epsilon, d, n).rows)


def test_large_numbers_are_rounded_and_small_ones_are_not():
    result = run("plan", "--epsilon", "1", "--domain-size", str(1 << 24), "--reports", "1000")
    row = next(line for line in result.stdout.splitlines() if line.startswith("hadamard"))
    # 2^25 counters of 8 bytes; 2^25·25 steps
    assert row.split()[3:] == ["9", "B", "1", "counter", "268.4", "MB", "838.9", "M"]
    row = next(line for line in result.stdout.splitlines() if line.startswith("olh"))
    assert row.split()[3:] == ["10", "B", "16.8", "M", "hashes", "134.2", "MB", "none"]
    result = run("plan", "--epsilon", "1", "--domain-size", "12499", "--reports", "1000")
    row = next(line for line in result.stdout.splitlines() if line.startswith("grr"))
    assert row.split()[-4:] == ["counter", "99,992", "B", "none"]
    result = run("plan", "--epsilon", "1", "--domain-size", "12500", "--reports", "1000")
    row = next(line for line in result.stdout.splitlines() if line.startswith("grr"))
    assert row.split()[-4:] == ["counter", "100.0", "kB", "none"]


def test_the_table_says_what_is_not_applicable_and_not_detectable():
    result = run("plan", "--epsilon", "0.1", "--domain-size", "1", "--reports", "1")
    assert result.exit_code == 0
    assert "subset is not applicable: domain_size is 1" in " ".join(result.stdout.split())
    assert result.stdout.splitlines()[1].split()[:3] == ["grr", "3.08", "none"]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--epsilon", "one"), "epsilon is 'one'"),
        (("--epsilon", "0"), "epsilon is 0"),
        (("--domain-size", "0"), "domain_size is 0"),
        (("--reports", "0"), "reports is 0"),
        (("--reports", "many"), "'many' is not a valid integer"),
        (("--best",), "No such option"),
    ],
)
def test_usage_errors_exit_2(args, says):
    result = run(*ASKED, *args)
    assert result.exit_code == 2
    assert says in result.stderr
    assert result.stdout == ""


DEEP, HUGE = "[" * 100_000, "9" * 5000
GRR = '{"protocol":"grr","epsilon":"1/1","domain_size":3}'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (DEEP, "not JSON: nested too deeply"),
        ('{"a":' * 100_000, "not JSON: nested too deeply"),
        (HUGE, "not JSON: Exceeds the limit"),
        (f'{{"domain_size":{HUGE}}}', "not JSON: Exceeds the limit"),
        ("\0", "not JSON: "),
        (GRR.replace("3", "9" * 4000), "more characters)"),
        (GRR.replace("}", f',"{"x" * 9000}":1}}'), "more characters)"),
    ],
    ids=["list", "object", "number", "integer", "NUL", "parameter", "key"],
)
@pytest.mark.parametrize(
    "args",
    [
        ("perturb", "--document", "{file}"),
        ("estimate", "--document", "{good}", "{file}"),
        ("audit-client", "--vectors", "{file}", "--", "cat"),
    ],
)
def test_a_file_of_deep_or_huge_json_is_refused_in_a_line(args, text, says, tmp_path):
    """A RecursionError was a traceback."""
    file, good = tmp_path / "file.json", tmp_path / "good.json"
    file.write_text(text)
    good.write_text(GRR)
    result = run(*(arg.format(file=file, good=good) for arg in args))
    assert isinstance(result.exception, SystemExit)
    assert result.exit_code == 2
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert len(line) < 1100
    assert says in line or (says.startswith("more") and args[0] != "perturb")


@pytest.mark.parametrize("args", [("plan",), ("nothing",)])
def test_what_is_missing_exits_2(args):
    assert run(*args).exit_code == 2


def test_as_a_module():
    command = [sys.executable, "-m", "ldp", "--version"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=180)
    assert done.stdout.startswith("ldp, version ")
