"""The command `ldp`: plan as a table and as JSON, errors, help."""

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

import ldp
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


def test_json_output_equals_the_plan():
    result = run(*ASKED, "--json")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert document == json.loads(json.dumps(plan("1", 1024, 10**6).document()))
    assert document["recommended"] == document["protocols"][0]["protocol"] == "pgr"
    assert {row["protocol"] for row in document["protocols"]} == set(ORACLES)


def test_the_table_has_one_line_per_protocol_and_the_reason():
    result = run(*ASKED)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].split()[:3] == ["protocol", "std", "error"]
    assert [line.split()[0] for line in lines[1:8]] == [row.protocol for row in plan("1", 1024, 10**6).rows]
    assert " ".join(result.stdout.split()).count(f"pgr: {plan('1', 1024, 10**6).reason}") == 1


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


def test_a_declaration_is_written_as_pairs():
    asked = ("document", "--protocol", "grr", "--epsilon", "1", "--domain-size", "3", "--privacy")
    written = "unit=device, reports=1,period=24h,noise=fresh,horizon=365d"
    assert json.loads(run(*asked, written).stdout)["privacy"] == {
        "unit": "device", "reports": 1, "period": "24h", "noise": "fresh", "horizon": "365d"
    }  # fmt: skip
    for wrong, says in (
        (written.replace("24h", "soon"), "privacy.period is 'soon'; allowed"),
        (written.replace("device", ""), "privacy.unit is empty"),
        (written.replace("=1", "=one"), "privacy.reports must be an integer, not 'one'"),
        ("", "privacy has the keys ['']; it needs exactly"),
        (f"{written},reports=9", "--privacy has the key 'reports' twice; give it once"),
    ):
        refused = run(*asked, wrong)
        assert (refused.exit_code, says in refused.stderr, refused.stdout) == (2, True, ""), refused.stderr


def test_a_document_has_the_names_of_the_levels_of_a_segment():
    asked = ("document", "--protocol", "grr", "--epsilon", "1", "--domain-size", "3")
    document = json.loads(run(*asked, "--segment", "country:app").stdout)
    assert document["segment"] == ldp.Stream.from_document("s", document).segment == "country:app"
    assert "segment" not in json.loads(run(*asked).stdout)
    refused = run(*asked, "--segment", "country:")
    assert (refused.exit_code, "segment" in refused.stderr, refused.stdout) == (2, True, ""), refused.stderr


def test_labels_are_csv_and_count_for_a_plan(tmp_path):
    named = ("document", "--protocol", "grr", "--epsilon", "1", "--labels")
    for labels, found in (
        ("red,green", ["red", "green"]),
        (' red , "a,b","say ""no"""', ["red", "a,b", 'say "no"']),
    ):
        assert json.loads(run(*named, labels).stdout)["labels"] == found
    refused = run(*named, '"a"b,c')
    assert (refused.exit_code, "which is not a line of CSV" in refused.stderr) == (2, True)
    refused = run(*named, "a,b,a,b")
    assert "labels 0 and 2 are both 'a'; labels 1 and 3 are both 'b'" in refused.stderr
    alike = run(*named, "caf\u00e9,cafe\u0301")
    assert alike.exit_code == 0
    assert "ldp: warning: labels differ only by Unicode form or spaces at an end: 0" in alike.stderr
    (tmp_path / "labels").write_text("red\na,b\ngreen\n")
    plans = [
        run("plan", "--epsilon", "1", "--reports", "100", "--json", *values)
        for values in (
            ("--labels-file", str(tmp_path / "labels")),
            ("--labels", 'red,"a,b",green'),
            ("--domain-size", "3"),
        )
    ]
    assert plans[0].stdout == plans[1].stdout == plans[2].stdout
    assert json.loads(plans[0].stdout)["domain_size"] == 3
    assert plans[0].stderr == ""
    for labels, code, says in (
        ("a,b,a,b", 2, "labels 0 and 2 are both 'a'; labels 1 and 3"),
        ("a,ａ", 0, "differ only"),
    ):
        told = run("plan", "--epsilon", "1", "--reports", "100", "--labels", labels)
        assert (told.exit_code, says in told.stderr) == (code, True)
    refused = run("plan", "--epsilon", "1", "--reports", "100")
    assert (refused.exit_code, "exactly one of --labels, --labels-file" in refused.stderr) == (2, True)


DEEP, HUGE = "[" * 100_000, f'{{"reports":{"9" * 5000}}}'
GRR = '{"protocol":"grr","epsilon":"1/1","domain_size":3}'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (DEEP, "not JSON: nested too deeply"),
        (HUGE, "not JSON: Exceeds the limit"),
        (GRR.replace("3", "9" * 4000), "more characters)"),
        (GRR.replace("}", f',"{"x" * 9000}":1}}'), "more characters)"),
    ],
    ids=["list", "number", "parameter", "key"],
)
@pytest.mark.parametrize(
    "args", [("perturb", "--document", "{file}"), ("estimate", "--document", "{good}", "{file}")]
)
def test_deep_or_huge_json_is_refused_in_one_line(args, text, says, tmp_path):
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


def test_ldp_runs_as_a_module():
    command = [sys.executable, "-m", "ldp", "--version"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=180)
    assert done.stdout.startswith("ldp, version ")
