"""Estimates from sums that other systems computed."""

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator

import ldp
from ldp.cli import cli
from ldp.counts import parse_counts, read_counts
from ldp.files import Aggregator, perturbed
from ldp.oracles import ORACLES
from tests.support.docs import page

SCHEMA = Draft202012Validator(
    json.loads((Path(ldp.__file__).parent / "snapshot" / "snapshot.schema.json").read_text(encoding="utf-8"))
)
D = 10
LABELS = [f"value {v}" for v in range(D)]
over_protocols = pytest.mark.parametrize("name", ORACLES)


def reports_of(oracle, n=500):
    return oracle.perturb(np.arange(n) ** 2 % oracle.domain_size, rng=np.random.default_rng(5))


def state_of(oracle, reports):
    state = oracle.zeros()
    oracle.accumulate(state, reports)
    return state


@over_protocols
def test_counters_and_supports_yield_the_estimate_of_the_reports(name):
    oracle = ldp.oracle(name, "1", D)
    reports = reports_of(oracle)
    expected = oracle.estimate_reports(reports)
    state = state_of(oracle, reports)
    stream = ldp.Stream("s", oracle)
    for given in ({"counters": state.tolist()}, {"supports": oracle.support(state).tolist()}):
        found = read_counts(stream, {"reports": reports.size} | given)
        assert found.n == expected.n
        assert np.array_equal(found.counts, expected.counts)
        assert np.array_equal(found.frequencies, expected.frequencies)


@over_protocols
def test_a_document_has_lists_or_objects_by_label_or_index(name):
    oracle = ldp.oracle(name, "1", D)
    reports = reports_of(oracle, 3)
    expected, state = oracle.estimate_reports(reports).counts, state_of(oracle, reports)
    plain, labelled = ldp.Stream("s", oracle), ldp.Stream("s", oracle, labels=LABELS)
    counters = {str(i): int(one) for i, one in enumerate(state) if one}
    for stream, sums in (
        (plain, {"supports": expected.tolist()}),
        (plain, {"supports": {str(v): int(one) for v, one in enumerate(expected) if one}}),
        (labelled, {"supports": {LABELS[v]: int(one) for v, one in enumerate(expected) if one}}),
        (plain, {"counters": counters}),
        (labelled, {"counters": counters}),
    ):
        document = json.loads(json.dumps({"reports": 3} | sums))
        assert np.array_equal(read_counts(stream, document).counts, expected)


@pytest.mark.parametrize("name", ["grr", "olh"])
def test_the_counts_command_prints_the_output_of_aggregate(name, tmp_path):
    stream = ldp.Stream("s", ldp.oracle(name, "1", D), labels=LABELS)
    files = {each: tmp_path / f"{each}.json" for each in ("document", "counts", "frames")}
    files["document"].write_text(json.dumps(stream.document()))
    made = b"".join(part for part, _ in perturbed(stream, iter([[v % D for v in range(200)]]), binary=True))
    files["frames"].write_bytes(made)
    reports = np.frombuffer(made[5:], stream.oracle.report_dtype)
    sums = {"reports": 200, "counters": state_of(stream.oracle, reports).tolist()}
    files["counts"].write_text(json.dumps(sums))

    def snapshot(command, file):
        done = CliRunner().invoke(cli, [command, "--document", str(files["document"]), str(files[file])])
        assert done.exit_code == 0, done.output
        parts = [json.loads(line) for line in done.stdout.splitlines()]
        for part in parts:
            SCHEMA.validate(part)
        # for plain counts the number of records is unknown
        return [
            {key: value for key, value in part.items() if key not in ("snapshot", "offsets")}
            for part in parts
        ]

    assert snapshot("estimate", "counts") == snapshot("aggregate", "frames")


GRR = ldp.Stream("s", ldp.GRR("1", 3), labels=["a", "b", "c"])
PGR = ldp.Stream("s", ldp.PGR("1", 10, prime=3, dimension=3))


@pytest.mark.parametrize(
    ("stream", "document", "error", "says"),
    [
        (GRR, 600, TypeError, "of type int; allowed are a JSON object or list, and CSV"),
        (GRR, [], ValueError, "reports is 0"),
        (GRR, {}, ValueError, "reports is 0"),
        (GRR, {"reports": 3}, ValueError, "allowed are reports, and either supports or counters"),
        (GRR, {"reports": 3, "supports": [3, 0, 0], "counters": [3, 0, 0]}, ValueError, "either"),
        (GRR, {"reports": 3, "supports": [3, 0, 0], "n": 3}, ValueError, "the keys reports, supports, n"),
        (GRR, {"reports": 3, "supports": "3"}, TypeError, "a list of whole numbers or an object, not str"),
        (
            GRR,
            {"reports": 3, "supports": [3, 0.5, 0]},
            ValueError,
            "supports, number 1, is 0.5; allowed are whole",
        ),
        (GRR, {"reports": 3, "supports": [4, -1, 0]}, ValueError, "supports, number 1, is -1; "),
        (GRR, {"reports": 3, "supports": [3, True, 0]}, ValueError, "supports, number 1, is True; "),
        (GRR, {"reports": 3, "supports": [3, None, 0]}, ValueError, "supports, number 1, is None; "),
        (GRR, {"a": "1,600"}, ValueError, "supports of 'a' is '1,600'; allowed are whole numbers"),
        (GRR, {"a": "6e2"}, ValueError, "supports of 'a' is '6e2'; "),
        (GRR, {"a": float("nan")}, ValueError, "supports of 'a' is nan; "),
        (GRR, {"a": 1e300}, ValueError, "supports of 'a' is 1e[+]300; "),
        (GRR, {"a": "9" * 19}, ValueError, "allowed are whole numbers from 0 to 2⁶³ − 1"),
        (
            GRR,
            {"a": 600, "d": 1, "e ": 2},
            ValueError,
            "supports has 'd', 'e '; allowed are the stream's 3 labels",
        ),
        (GRR, {"reports": 3, "a": 600}, ValueError, "the keys reports, a; allowed are reports, and either"),
        (GRR, {"reports": 3, "supports": [3, 0]}, ValueError, r"one per value is \(3,\)"),
        (GRR, {"reports": 3, "supports": {"d": 3}}, ValueError, "'d'; allowed are the stream's 3 labels"),
        (GRR, {"reports": 3, "supports": {"0": 3}}, ValueError, "allowed are the stream's 3 labels"),
        (GRR, {"reports": 3, "counters": {"3": 3}}, ValueError, "'3'; allowed are indices 0 to 2"),
        (GRR, {"reports": 3, "counters": {"00": 3}}, ValueError, "'00'; allowed are indices 0 to 2"),
        (GRR, {"reports": 3, "counters": {"²": 3}}, ValueError, "allowed are indices 0 to 2"),
        (GRR, {"reports": 3, "counters": {"1": 1.5}}, ValueError, "counters of '1' is 1.5"),
        (GRR, {"reports": 0, "supports": [0, 0, 0]}, ValueError, "reports is 0"),
        (GRR, {"reports": "three", "supports": [3, 0, 0]}, ValueError, "reports is 'three'"),
        (GRR, {"reports": 4, "supports": [3, 0, 0]}, ValueError, "must be n = 4"),
        (GRR, {"reports": 2, "supports": [3, 0, 0]}, ValueError, "allowed is 0 to n = 2"),
        (PGR, {"reports": 3, "counters": {"0": 2}}, ValueError, "sum to 2; each report counts once"),
        (PGR, {"reports": 3, "counters": [3]}, ValueError, r"is \(13,\)"),
        (PGR, {"reports": 3, "counters": {"12": 4}}, ValueError, "allowed is 0 to n = 3"),
    ],
)
def test_invalid_counts_are_refused(stream, document, error, says):
    with pytest.raises(error, match=says):
        read_counts(stream, document)


EXPORTS = {
    "object": b'{"a": 600, "c": 300.0}',
    "text": b'{"a": "600", "c": " 300.00 "}',
    "supports": b'{"supports": {"a": 600, "c": 300}}',
    "counters": b'{"counters": ["600", 0, 300]}',
    "list": b"[600, 0.0, 300]",
    "rows": b'[{"label": "a", "count": 600}, {"label": "c", "count": "300"}]',
    "row per line": b'{"label": "a", "n": 600}\r\n{"label": "c", "n": 300}\r\n',
    "csv": b"label,count\na,600\nc,300\n",
    "csv of Excel": b'\xef\xbb\xbfLabel;Count\r\n"a";600\r\n\r\nc;300\r\n',
    "csv of PostgreSQL": b"value,count\nc,300\na,600",
    "csv of MySQL": b"count(*)\tlabel\n600\ta\n300\tc\n",
    "csv of a data frame": b"value,label,count,frequency\n0,a,600.0,0.9\n1,b,0.0,-0.2\n2,c,300.0,0.3\n",
}


@pytest.mark.parametrize("export", EXPORTS)
def test_exports_of_databases_are_counts(export):
    """Each export has only one meaning. n is the sum, because a report of grr supports one value."""
    found = parse_counts(GRR, EXPORTS[export])
    assert (found.n, found.counts.tolist(), found.labels) == (900, [600, 0, 300], GRR.labels)
    assert parse_counts(GRR, EXPORTS[export], 900).n == 900
    with pytest.raises(ValueError, match="must be n = 901"):
        parse_counts(GRR, EXPORTS[export], 901)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "neither JSON nor CSV with a header and rows"),
        (b"600", "neither JSON nor CSV with a header and rows"),
        (b"label,count\n", "neither JSON nor CSV with a header and rows"),
        (b"a,600\nc,300\n", "the columns are 'a', '600'; needed are label or value, and count, in a header"),
        (b"colour,count\na,600\n", "the columns are 'colour', 'count'; needed"),
        (b"label,n,share\na,600,1\n", "the columns are 'label', 'n', 'share'; needed"),
        (b"label,count\na,1,600\n", "row 2 has more columns than the header; quote"),
        (b'label,count\na,"1,600"\n', "supports of 'a' is '1,600'"),
        (b"label,count\na\n", "supports of 'a' is None"),
        (b"label,count\na,\n", "supports of 'a' is ''"),
        (b"label,count\na,600\nTotal,600\n", "supports has 'Total'; allowed are the stream's 3 labels"),
        (b"label,count\na,600\nb,1\na,2\nb,3\n", "'a', 'b' given more than once; sum the counts of a value"),
        (b'label,count\n"a,600\n', "neither JSON nor CSV: "),
        ("läbel,count\na,600\n".encode("latin-1"), "the counts are not UTF-8 .*; save them as UTF-8"),
        ('{"a": 600}'.encode("utf-16"), "the counts are not UTF-8"),
        (b'{"a": 600', "not JSON: "),
        (b'{"a": 600, "b": 1, "a": 3, "b": 2}', "'a', 'b' given more than once"),
        (b'[{"label": "a", "count": 600}, 3]', "supports, number 0, is {'label': 'a'"),
    ],
)
def test_other_files_are_refused_by_what_is_wrong(data, says):
    with pytest.raises(ValueError, match=says):
        parse_counts(GRR, data)


@over_protocols
def test_the_sum_determines_the_number_of_reports_if_each_supports_as_many(name):
    oracle = ldp.oracle(name, "1", D)
    reports = reports_of(oracle)
    state = state_of(oracle, reports)
    sizes = {int(oracle.support(state_of(oracle, reports[i : i + 1])).sum()) for i in range(reports.size)}
    stream = ldp.Stream("s", oracle)
    for which, sums in (("supports", oracle.support(state)), ("counters", state)):
        document = {which: sums.tolist()}
        if len(sizes) == 1 or (which == "counters" and name in ("hadamard", "pgr")):
            assert read_counts(stream, document).n == reports.size
        else:
            with pytest.raises(ValueError, match=f"number of reports is missing; {name} needs it, .* to "):
                read_counts(stream, document)
        assert read_counts(stream, document, reports.size).n == reports.size
        with pytest.raises(
            ValueError, match="reports is 500 in the counts and 400 otherwise; give one number"
        ):
            read_counts(stream, {"reports": 500} | document, 400)


def test_counts_without_a_number_of_reports_pass_it_as_an_option(tmp_path):
    (tmp_path / "d.json").write_text(json.dumps(ldp.Stream("s", ldp.OUE("1", 2), ["a", "b"]).document()))
    (tmp_path / "c.csv").write_text("label,count\na,60\nb,40\n")
    run = ["estimate", "--document", str(tmp_path / "d.json"), str(tmp_path / "c.csv"), "--top", "1"]
    refused = CliRunner().invoke(cli, run)
    assert (refused.exit_code, "pass reports (--reports N)" in refused.output) == (2, True)
    assert "file: 100 reports" in CliRunner().invoke(cli, [*run, "--reports", "100"]).stdout


# Queries of docs/tutorials/files-only.md, on JSON frames as clients and `ldp perturb` write them

TABLE, INDICES, BITS = re.findall(r"```sql\n(.*?)```", page("tutorials/files-only"), re.DOTALL)


@pytest.mark.parametrize("name", ["grr", "pgr", "oue", "subset"])
def test_a_database_sums_bits_and_indices(name, tmp_path):
    d = 1000 if name == "oue" else 20
    stream = ldp.Stream("s", ldp.oracle(name, "1", d))
    lines = b"".join(part for part, _ in perturbed(stream, iter([[v % d for v in range(300)]]), binary=False))
    (tmp_path / "frames.jsonl").write_bytes(lines)
    sql = INDICES if stream.oracle.length is None else BITS.replace("1000", str(d))
    # run separately, as it prints much at its end
    script = f"import duckdb; duckdb.execute({TABLE!r}); print(duckdb.execute({sql!r}).fetchone()[0])"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = read_counts(stream, json.loads(done.stdout))
    aggregator = Aggregator(stream)
    aggregator.read(io.BytesIO(lines), "frames")
    assert found.n == aggregator.reports == 300
    assert np.array_equal(found.counts, aggregator.estimate().counts)
