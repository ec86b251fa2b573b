"""States on the command line: aggregate, merge, estimate."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import ldp
from ldp.cli import cli
from ldp.files import Aggregator, perturbed
from ldp.offset_range import OffsetRange
from ldp.oracles import ORACLES
from ldp.state import State

COLOURS = ldp.Stream("file", ldp.OLH("1", 3), labels=("red", "green", "blue"))


def run(*args, stdin=b""):
    return CliRunner().invoke(cli, [*map(str, args)], input=stdin)


def said(done):
    return " ".join(done.output.split())


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with two files of reports, and their document."""
    monkeypatch.chdir(tmp_path)
    Path("colours.json").write_text(json.dumps(COLOURS.document()), encoding="utf-8")
    for seed, name in enumerate(("monday", "tuesday")):
        values = [np.arange(200 + seed) % 3]
        parts = perturbed(COLOURS, values, binary=False, rng=np.random.default_rng(seed))
        lines = b"".join(part for part, _ in parts) + b"noise\n{}\n"[: 6 + 3 * seed]
        Path(f"{name}.jsonl").write_bytes(lines)
    return tmp_path


def aggregate(*names):
    return run("aggregate", "--document", "colours.json", *names)


@pytest.mark.usefixtures("folder")
def test_the_sum_of_two_states_equals_the_state_of_all():
    for name in ("monday", "tuesday"):
        done = aggregate(f"{name}.jsonl", "--state", f"{name}.ldp")
        assert (done.exit_code, done.stdout) == (0, "")
        assert "malformed" in done.stderr
    assert aggregate("monday.jsonl", "tuesday.jsonl", "--state", "whole.ldp").exit_code == 0
    for given in (("monday.ldp", "tuesday.ldp"), ("tuesday.ldp", "monday.ldp")):
        done = run("merge", *given, "-o", "both.ldp")
        assert (done.exit_code, done.output) == (0, "")
        assert Path("both.ldp").read_bytes() == Path("whole.ldp").read_bytes()
    state = State.read(Path("both.ldp"))
    assert (state.reports, state.records, state.rejected) == (401, 401, {"json": 1, "version": 2})
    for options in ((), ("--name", "colours", "--method", "base"), ("--top", "2")):
        expected = aggregate("monday.jsonl", "tuesday.jsonl", *options)
        found = run("estimate", "both.ldp", *options)
        assert found.exit_code == 0, found.output
        assert found.stdout == expected.stdout


@pytest.mark.usefixtures("folder")
def test_incompatible_states_are_refused_with_the_file_name():
    other = ldp.Stream("s", ldp.GRR("1", 3))
    State(other, 1, [1, 0, 0], 1).write(Path("other.ldp"))
    for name in ("a", "b"):
        State(other, 1, [1, 0, 0], 1, log=(OffsetRange("r", 0, 0, 5),)).write(Path(f"{name}.ldp"))
    aggregate("monday.jsonl", "--state", "monday.ldp")
    Path("link.ldp").symlink_to("monday.ldp")
    Path("short.ldp").write_bytes(Path("monday.ldp").read_bytes()[:-1])
    for given, expected in (
        (("monday.ldp", "other.ldp"), "other.ldp cannot be added to the states before it: the states have"),
        (("a.ldp", "b.ldp"), "b.ldp cannot be added to the states before it: r, partition 0, offsets 0 to 4"),
        (("monday.ldp", "link.ldp"), "link.ldp is given twice"),
        (("monday.ldp", "short.ldp"), "short.ldp: the state file is truncated or damaged"),
        (("monday.jsonl",), "monday.jsonl: not a state file"),
        (("gone.ldp",), "'gone.ldp' does not exist"),
        ((), "Missing argument 'STATE...'"),
    ):
        done = run("merge", *given, "-o", "sum.ldp")
        assert done.exit_code == 2, done.output
        assert expected in said(done)
        assert not Path("sum.ldp").exists()


@pytest.mark.usefixtures("folder")
def test_estimate_reads_states_and_counts():
    aggregate("monday.jsonl", "--state", "monday.ldp")
    assert run("estimate", "--document", "colours.json", "monday.ldp").exit_code == 0
    Path("other.json").write_text(json.dumps(ldp.GRR("1", 3).parameters()))
    done = run("estimate", "--document", "other.json", "monday.ldp")
    assert (done.exit_code, "the state has the document" in said(done)) == (2, True)
    Path("counts.json").write_text('{"reports": 9, "supports": {"green": 5, "red": 4}}')
    assert run("estimate", "--document", "colours.json", "counts.json").exit_code == 0
    done = run("estimate", "counts.json")
    assert (done.exit_code, "counts need --document" in said(done)) == (2, True)


def test_impossible_counts_are_estimated_with_a_warning(folder):
    Path("d.json").write_text(json.dumps(ldp.Stream("s", ldp.OUE("4", 3)).document()))
    Path("counts.json").write_text('{"reports": 1000, "supports": [1000, 1000, 1000]}')
    done = run("estimate", "--document", "d.json", "counts.json", "--top", 3)
    assert done.exit_code == 0
    assert "203.73" in done.stdout
    assert (
        "Warning: these are not counts of 1,000 honest oue reports: the frequencies sum to 6.11"
        in done.stderr
    )


def test_a_table_has_intervals_of_the_reports_or_of_the_population(folder):
    Path("d.json").write_text(json.dumps(ldp.Stream("s", ldp.GRR("4", 3)).document()))
    Path("counts.json").write_text('{"reports": 20000, "supports": [10000, 5000, 5000]}')
    counts = ("estimate", "--document", "d.json", "counts.json")
    assert "share among the reports" in run(*counts, "--top", 1).stdout
    assert "50.70 … 51.17" in run(*counts, "--top", 1).stdout
    assert "share in the population" in run(*counts, "--top", 1, "--of", "population").stdout
    assert "50.20 … 51.66" in run(*counts, "--top", 1, "--of", "population").stdout
    assert "--of population needs --top" in run(*counts, "--of", "population").stderr


def test_commands_leave_out_methods_of_a_sum_for_one_value(folder):
    bit = ldp.Stream("s", ldp.Unary("3/4", "1/4", 1))
    done = run(
        "document", "--protocol", "unary", "--parameter", "p=3/4", "--parameter", "q=1/4", "--domain-size", 1
    )
    assert json.loads(done.stdout) == bit.document()
    assert f"ldp: warning: {bit.warnings[0]}" in done.stderr
    Path("d.json").write_text(done.stdout)
    Path("counts.json").write_text('{"reports": 10000, "supports": [4000]}')
    counts = ("estimate", "--document", "d.json", "counts.json")
    bodies = [json.loads(line) for line in run(*counts).stdout.splitlines()][1:]
    assert [body["method"] for body in bodies] == ["base", "base-pos", "post-pos", "base-cut"]
    assert all(body["frequencies"] == pytest.approx([0.3]) for body in bodies)
    table = run(*counts, "--top", 1).stdout
    assert "cut" in table
    assert "sub" not in table
    for options in ((), ("--top", 1)):
        done = run(*counts, *options, "--method", "base", "--method", "norm-sub")
        assert done.exit_code == 2
        assert (
            "Invalid value for --method: norm-sub given for one value; allowed are base, base-pos,"
            in said(done)
        )
        done = run(*counts, *options, "--method", "guess")
        assert "Invalid value for --method: methods are guess; allowed are base," in said(done)


@pytest.mark.parametrize("name", ORACLES)
def test_records_in_columns_count_like_lines(name):
    stream = ldp.Stream("s", ldp.oracle(name, "1", 12))
    parts = perturbed(stream, [np.arange(300) % 12], binary=False, rng=np.random.default_rng(3))
    lines = b"".join(part for part, _ in parts)
    records = [*lines.splitlines(), b"noise", b"", b"{}", b"\x00"]
    bounds = np.cumsum([0, *map(len, records)])
    columns, files = Aggregator(stream), Aggregator(stream)
    decoded = columns.count(b"".join(records), bounds[:-1], bounds[1:])
    assert decoded.verdicts[:300].tolist() == [0] * 300
    files.read(io.BytesIO(lines + b"noise\n{}\n\x00\n"), "lines")
    assert (columns.reports, columns.records) == (files.reports, files.records + 1) == (300, 304)
    assert columns.state.tolist() == files.state.tolist()
    assert columns.rejected == {**files.rejected, "empty": 1}
