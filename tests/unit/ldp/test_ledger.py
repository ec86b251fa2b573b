"""The ledger against every transcript of two and three rounds, and its command."""

import itertools
import json
import math
import shlex
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import yaml
from click.testing import CliRunner

import ldp
from ldp.cli import cli
from ldp.privacy.amplification import blanket
from ldp.privacy.declaration import Declaration
from ldp.privacy.ledger import ledger, mixture
from tests.support.channels import product, reports
from tests.support.docs import block
from worker.config import load

SCHEMA = Path(__file__).parents[2] / "vectors/deployments-schema.yaml"
EPSILON = [
    ldp.GRR("1", 2), ldp.GRR("2", 4), ldp.OLH("1", 2, g=2), ldp.OUE("1", 2), ldp.OUE("2", 3), ldp.SUE("1", 3),
    ldp.SubsetSelection("1", 4, k=2), ldp.HadamardResponse("1", 3), ldp.PGR("1", 4, prime=2, dimension=3),
]  # fmt: skip
RAPPORS = [
    ldp.RAPPOR("1/2", "3/4", "1/2", 2), ldp.RAPPOR("1/4", "3/4", "1/4", 3), ldp.RAPPOR("1/2", "3/4", "1/4", 4),
]  # fmt: skip
EXPLICIT = [ldp.Response("3/5", 3), ldp.Unary("3/4", "1/4", 3), *RAPPORS]


def declaration(noise, k, unit="device"):
    """Declares k ≥ 2 reports in any horizon."""
    return Declaration(unit, 1, "24h", noise, f"{k - 1}d")


def bits(d, chances):
    """The (values, reports) channel of independent bits with a chance of 1 per value and bit."""
    supports = product(*[2] * d) == 1
    ones = np.where(np.eye(d, dtype=bool)[:, None], *chances)
    return np.where(supports, ones, 1 - ones).prod(axis=2)


def channel(oracle):
    """The probability of each report for each value: (d, R)."""
    match oracle:
        case ldp.Response():
            p, d = float(oracle.p), oracle.domain_size
            return np.where(np.eye(d), p, (1 - p) / (d - 1))
        case ldp.Unary():
            return bits(oracle.domain_size, (0.75, 0.25))
        case ldp.RAPPOR():
            first, second = stages(oracle)
            return first @ second
    return reports(oracle)[1]


def stages(oracle):
    """RAPPOR: the permanent bits of each value (d, 2^d), and the report of permanent bits (2^d, 2^d)."""
    f, p, q = (float(Fraction(text)) for text in list(oracle.parameters().values())[1:4])
    first = bits(oracle.domain_size, (1 - f / 2, f / 2))
    each = np.array([[1 - q, q], [1 - p, p]])
    second = np.ones((1, 1))
    for _ in range(oracle.domain_size):
        second = np.kron(second, each)
    return first, second


def fresh(channel, history):
    """The distribution of transcripts with fresh noise."""
    law = np.ones(1)
    for value in history:
        law = np.outer(law, channel[value]).ravel()
    return law


def memoised(first, second, history):
    """The distribution of transcripts with one stored answer per value: rounds are axes."""
    law = np.ones([second.shape[1]] * len(history))
    for value in {*history}:
        rounds = [t for t, each in enumerate(history) if each == value]
        own = sum(
            chance * np.prod(np.stack(np.meshgrid(*[answer] * len(rounds), indexing="ij")), axis=0)
            for chance, answer in zip(first[value], second, strict=True)
        )
        shape = [second.shape[1] if t in rounds else 1 for t in range(len(history))]
        law = law * own.reshape(shape)
    return law.ravel()


def worst(laws):
    """The largest log-ratio over all transcripts and pairs of distributions."""
    laws = np.array(laws)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(laws)
        gaps = [np.nanmax(np.where(laws[i] > 0, logs[i] - logs, -np.inf)) for i in range(len(laws))]
    return max(gaps)


def histories(d, k):
    return list(itertools.product(range(d), repeat=k))


def constant(d, k):
    return [(value,) * k for value in range(d)]


def check_printed(loss, exact):
    """A loss is the exact one, rounded up to six decimal places."""
    assert -1e-9 <= float(loss) - exact <= 1.001e-6


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("oracle", [*EPSILON, *EXPLICIT], ids=repr)
def test_fresh_noise_against_every_transcript(oracle, k):
    law, d = channel(oracle), oracle.domain_size
    found = ledger(oracle, declaration("fresh", k))
    check_printed(found.one_report, worst(law))
    check_printed(found.same_value, worst([fresh(law, history) for history in constant(d, k)]))
    if law.shape[1] ** k * d**k <= 1 << 18:
        check_printed(found.any_history, worst([fresh(law, history) for history in histories(d, k)]))


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("oracle", RAPPORS, ids=repr)
def test_a_permanent_response_against_every_transcript(oracle, k):
    (first, second), d = stages(oracle), oracle.domain_size
    found = ledger(oracle, declaration("memoised", k))
    check_printed(found.one_report, worst(first @ second))
    check_printed(found.same_value, worst([memoised(first, second, each) for each in constant(d, k)]))
    if d < 4:
        exact = worst([memoised(first, second, each) for each in histories(d, k)])
        assert exact <= float(found.any_history)
        assert exact > float(found.same_value)  # a stored answer does not hide a change of value
    assert float(found.same_value) < float(oracle.lifetime)


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("oracle", EPSILON, ids=repr)
def test_a_stored_report_against_every_transcript(oracle, k):
    law, d = channel(oracle), oracle.domain_size
    again = np.eye(law.shape[1])
    found = ledger(oracle, declaration("memoised", k))
    check_printed(found.same_value, worst([memoised(law, again, each) for each in constant(d, k)]))
    if law.shape[1] ** k * d**k <= 1 << 18:
        assert (
            worst([memoised(law, again, each) for each in histories(d, k)]) == found.any_history == math.inf
        )


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("g", [2, 3, 4])
def test_two_responses_against_every_transcript(g, k):
    """A stored answer among g, and a fresh response of it: also the buckets of LOLOHA."""
    E1, limit = Fraction(3, 2), Fraction(3)
    p1, q1 = limit / (limit + g - 1), 1 / (limit + g - 1)
    B, D = (1 - p1) / (g - 1), (1 - q1) / (g - 1)
    A, C = p1 - B, q1 - D
    p2 = (E1 * D - B) / (A - E1 * C)
    q2 = (1 - p2) / (g - 1)
    first, second = (np.where(np.eye(g), float(p), float(q)) for p, q in ((p1, q1), (p2, q2)))
    odds = k * (Decimal(p2.numerator) / p2.denominator / (Decimal(q2.numerator) / q2.denominator)).ln()
    exact = worst([memoised(first, second, each) for each in constant(g, k)])
    assert float(mixture(p1, q1, odds)) == pytest.approx(exact)
    assert worst(first @ second) == pytest.approx(math.log(1.5))
    assert exact < float(mixture(p1, q1, None)) == pytest.approx(math.log(3))
    if k == 3:  # with a public change after one round, the losses of the values are added
        before, after = (
            worst([memoised(first, second, each) for each in constant(g, rounds)]) for rounds in (1, 2)
        )
        changed = [memoised(first, second, (u, v, v)) for u, v in itertools.permutations(range(g), 2)]
        assert worst(changed) <= before + after + 1e-9
        if g > 3:
            assert worst(changed) == pytest.approx(before + after)


def test_a_repeated_bit_approaches_its_limit():
    oracle = ldp.RAPPOR("1/2", "3/4", "1/2", 128)
    found = [ledger(oracle, declaration("memoised", k)) for k in (2, 10, 100, 10**5)]
    losses = [each.same_value for each in found]
    assert losses == sorted(losses)
    assert losses[-1] == oracle.lifetime
    certain = ledger(ldp.RAPPOR("1/2", "1", "0", 128), declaration("memoised", 2))
    assert (certain.one_report, certain.same_value, certain.any_history) == (
        oracle.lifetime,
        oracle.lifetime,
        math.inf,
    )


def test_one_report_and_no_declaration():
    oracle = ldp.GRR("1/3", 10)
    assert ledger(oracle, None) == ldp.privacy.ledger.Ledger(Fraction(1, 3))
    many = ledger(oracle, Declaration("user", 10**6, "1s", "fresh", "999999d"))
    assert many.any_history == Fraction(10**6, 3) * (999_999 * 86_400 + 1)
    infinite = ledger(ldp.Unary("1", "1/2", 10, epsilon="infinite"), declaration("fresh", 2))
    assert infinite.one_report == infinite.same_value == math.inf


@pytest.fixture
def documents(tmp_path):
    def write(name, oracle, declared=None, labels=None):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(ldp.Stream("any", oracle, labels, declared).document()))
        return str(path)

    return write


def run(*args):
    return CliRunner().invoke(cli, ["ledger", *args])


def test_the_command_prints_three_lines_and_the_sum(documents):
    one = documents("one", ldp.GRR("1/3", 10), declaration("fresh", 366))
    two = documents("two", ldp.RAPPOR("1/2", "3/4", "1/2", 128), declaration("memoised", 30))
    three = documents("three", ldp.OLH("4", 1024))
    result = run(one, two, three, "--fewest-new", "10000")
    assert result.exit_code == 0, result.output
    lines = [line.strip() for line in result.output.splitlines()]
    assert lines[1:5] == [
        "one report              ε ≤ 0.333334",
        "a value that stays      ε ≤ 122",
        "any history             ε ≤ 122",
        f"a reader of snapshots   ε ≤ {blanket(ldp.GRR('1/3', 10)).epsilon(10_000, 1e-8)}, δ = 1e-08",
    ]
    assert "reports: at most 366 of a device in any 365d, fresh noise" in lines[0]
    at = lines.index("device: sum of 2 streams")
    assert lines[at + 1 : at + 3] == [
        "a value that stays      ε ≤ 124.197211",
        "any history             ε ≤ 154.958369",
    ]
    assert sum(line.startswith("A reader of snapshots sees every snapshot") for line in lines) == 1
    assert f"{three}: reports: the document declares no limit" in lines
    assert lines.count("any history             not declared") == 1
    repeated = "a reader of snapshots   as against the operator, because memoised noise repeats"
    assert lines.count(repeated) == 1


def test_the_command_prints_the_loss_to_a_reader_of_shuffled_reports(documents):
    one = documents("one", ldp.OLH("1", 1024), declaration("fresh", 2))
    two = documents("two", ldp.OLH("1", 1024), declaration("memoised", 2))
    epsilon = blanket(ldp.OLH("1", 1024)).epsilon(1_000, 1e-6)
    options = "--shuffle-batch-size", "1000", "--delta", "1e-6"
    lines = run(one, two, *options).output.splitlines()
    assert (
        f"  a reader of reports     ε ≤ {epsilon}, δ = 1e-06; ε ≤ 1 if the reader sees the intake topic"
        in lines
    )
    assert f"    all, one a batch      ε ≤ {2 * epsilon}, δ = 2e-06" in lines
    assert (
        lines.count("  a reader of reports     as against the operator, because memoised noise repeats") == 1
    )
    assert sum(line.startswith("A reader of reports sees all shuffled reports") for line in lines) == 1
    found = json.loads(run(one, "--json", *options).output)["streams"][one]
    assert found["snapshots"] is None
    assert (found["batches"]["shuffle_batch_size"], found["batches"]["epsilon"]) == (1000, epsilon)
    assert found["batches"]["all_reports_in_one_batch"]["delta"] > 2e-6


def test_the_command_accepts_any_number_of_new_reports(documents):
    result = run(documents("one", ldp.OLH("1", 3)), "--fewest-new", str(10**18))
    assert result.exit_code == 0, result.output
    assert "a reader of snapshots   ε ≤ 0.001" in result.output


def test_the_command_prints_json(documents):
    one = documents("one", ldp.GRR("1", 10), declaration("fresh", 2))
    two = documents("two", ldp.GRR("1", 10), declaration("memoised", 2))
    three = documents("three", ldp.GRR("1", 10), declaration("fresh", 3, "user"))
    found = json.loads(run(one, two, three, "--json", "--fewest-new", "100", "--delta", "1e-6").output)
    assert found["units"] == [
        {"unit": "device", "streams": 2, "same_value": 3.0, "any_history": "infinite"},
        {"unit": "user", "streams": 1, "same_value": 3.0, "any_history": 3.0},
    ]
    assert [each["reports"] for each in found["streams"].values()] == [2, 2, 3]
    reader = found["streams"][one]["snapshots"]
    assert reader["all_reports"] == {"epsilon": pytest.approx(2 * reader["epsilon"]), "delta": 2e-6}
    assert reader["all_reports_in_one_increment"]["delta"] > 2e-6
    assert "all_reports" not in found["streams"][two]["snapshots"]
    assert found["streams"][two]["snapshots"]["epsilon"] is None
    certain = documents("certain", ldp.Unary("1", "1/2", 3, epsilon="infinite"), declaration("fresh", 2))
    known = json.loads(run(certain, "--json", "--fewest-new", "100").output)["streams"][certain]["snapshots"]
    assert known["epsilon"] == known["all_reports"]["epsilon"] == "infinite"
    assert known["all_reports_in_one_increment"] == {"epsilon": "infinite", "delta": 1.0}
    assert json.loads(run(one, "--json").output)["streams"][one]["snapshots"] is None


def faults_of(entry):
    schema = yaml.safe_load(SCHEMA.read_text(encoding="utf-8"))
    checker = jsonschema.Draft7Validator(schema, format_checker=jsonschema.Draft7Validator.FORMAT_CHECKER)
    return [error.message for error in checker.iter_errors(entry)]


@pytest.mark.parametrize("declared", [None, declaration("fresh", 366), declaration("memoised", 30)])
def test_an_entry_for_the_registry_is_valid(documents, declared):
    path = documents("two words", ldp.OLH("4", 3), declared, ["a", 'b"', "c: #"])
    result = run(path, "--registry", "--fewest-new", "1000")
    assert result.exit_code == 0, result.output
    entry = yaml.safe_load(result.output)
    assert faults_of(entry) == []
    del entry["deployment"]["basic"]["data_curators"]
    assert faults_of(entry) == ["'data_curators' is a required property"]
    assert entry["deployment"]["basic"]["name"] == "two words"
    loss = entry["deployment"]["privacy_loss"]
    assert (
        loss["privacy_parameters"]
        == {None: {"epsilon": 4.0}, "fresh": {"epsilon": 1464.0}, "memoised": {}}[declared and declared.noise]
    )
    assert result.output.count("TODO") == 8 + 2 * (declared is None)
    readers = "Against a reader of snapshots" in loss["privacy_parameters_details"]
    assert readers == (declared is None or declared.noise == "fresh")


def test_the_page_has_the_output_of_its_commands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name, printed = "explanation/privacy-and-trust", ""
    for line in block(name, "ldp document").replace("\\\n", "").splitlines():
        command, _, target = line.partition(" > ")
        result = CliRunner().invoke(cli, shlex.split(command)[1:])
        assert result.exit_code == 0, result.output
        if target:
            Path(target).write_text(result.stdout, encoding="utf-8")
        printed = result.stdout
    assert printed == block(name, "topics.json")


def test_the_entry_of_the_demo_is_valid(tmp_path):
    stream = load(SCHEMA.parents[2] / "deploy/demo/worker.toml", {}).streams[0].stream
    path = tmp_path / f"{stream.name}.json"
    path.write_text(json.dumps(stream.document()), encoding="utf-8")
    entry = yaml.safe_load(run(str(path), "--registry").output)
    assert faults_of(entry) == []
    assert entry["deployment"]["basic"]["name"] == "emoji"
    assert entry["deployment"]["privacy_loss"]["privacy_parameters"] == {"epsilon": 1.0}


def test_the_registry_takes_one_document(documents):
    one, two = (documents(name, ldp.GRR("1", 10)) for name in ("one", "two"))
    for args in ((one, two, "--registry"), (one, "--registry", "--json")):
        result = run(*args)
        assert (result.exit_code, "takes one DOCUMENT" in result.output) == (2, True)
    broken = run(str(SCHEMA))
    assert (broken.exit_code, "not JSON" in broken.output) == (2, True)
