"""Client conformance: honest clients pass, each fault is found."""

import json
import math
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import stats

import ldp
from ldp.cli import cli
from ldp.conformance import channel, repeating, spending
from ldp.conformance import verdict as conformance
from ldp.conformance.running import ClientError, Command, decoded
from ldp.conformance.verdict import FAIL, PASS, assess, chosen
from ldp.oracles import ORACLES
from tests.long.clients import faults
from tests.long.clients.faults import FAULTS, MUTANT, REJECTED
from tests.support.wire_vectors import streams
from tests.unit.ldp.test_laws import reports

pytestmark = pytest.mark.statistical

ALARM = 1e-6
CHANNELS = [
    ldp.Response("1/2", 5),
    ldp.Unary("2/3", "1/3", 20),
    ldp.RAPPOR("1/2", "3/4", "1/4", 20),
    ldp.RatedResponse(["1/2", "3/4"]),
]
WEAK = ("float threshold", "other epsilon", "slow by value")
"""The faults that only very many reports show."""
ROOT = Path(__file__).parents[3]


def assessed(oracle, fault, number):
    with Command(faults.command(fault), ldp.Stream("s", oracle), 300) as command:
        return assess(command, number, ALARM)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("oracle", "fault", "says"),
    [
        pytest.param(o, fault, says, marks=pytest.mark.long if fault in WEAK else ())
        for o, fault, says in FAULTS
    ],
)
def test_a_fault_is_found_and_named(oracle, fault, says):
    found = assessed(oracle, fault, faults.reports(fault))
    assert found.verdict == FAIL
    assert any(part in " ".join(found.findings) for part in says.split("|")), found.findings[:5]


@pytest.mark.parametrize(
    ("oracle", "fault", "says"),
    [*REJECTED, (ldp.GRR("1", 5), "none such", "the client exited with 1: no fault")],
)
def test_rejected_frames_are_reported(oracle, fault, says):
    with pytest.raises(ClientError) as caught:
        assessed(oracle, fault, 2_000)
    assert says in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    "oracle",
    [
        ldp.OLH("1", 20),
        ldp.RatedResponse(["1/2", "3/4"]),
        *(
            pytest.param(oracle, marks=pytest.mark.long)
            for oracle in (
                *(ldp.oracle(name, "1", 6 if name == "grr" else 20) for name in ORACLES),
                *CHANNELS[:3],
            )
            if oracle.name != "olh"
        ),
    ],
    ids=repr,
)
def test_the_client_of_the_project_passes(oracle, monkeypatch):
    monkeypatch.setattr("ldp.conformance.timing.WAIT_SECONDS", 60.0)  # a stalled machine is not a slow client
    # the excess of these two shows last: with this many reports the bound is six standard deviations above the limit
    found = assessed(oracle, "honest", 120_000 if oracle.name in ("hadamard", "pgr") else 60_000)
    assert found.verdict == PASS, found.findings
    assert found.findings == []
    if not isinstance(oracle, ldp.RatedResponse):  # the client is at the highest rate
        assert 0.75 * float(oracle.epsilon) < found.spent.epsilon <= float(oracle.epsilon)
    assert found.times is not None


def test_one_value_passes_and_spends_nothing():
    found = assessed(ldp.GRR("1", 1), "honest", 200)
    assert (found.verdict, found.spent) == (PASS, None)


def of_one(oracle, value, n, seed=1):
    return oracle.perturb(np.full(n, value), rng=np.random.default_rng(seed))


@pytest.mark.parametrize("name", ORACLES)
def test_supports_of_each_report_sum_to_the_support(name):
    for oracle in (ldp.oracle(name, "1", 20), ldp.oracle(name, "4", 60)):
        reports = of_one(oracle, 3, 500)
        counts = oracle.estimate_reports(reports).counts
        for u in (0, 3, 19):
            assert channel.supports(oracle, reports, u).sum() == counts[u]


@pytest.mark.parametrize("oracle", [*(ldp.oracle(name, "1", 12) for name in ORACLES), *CHANNELS], ids=repr)
def test_honest_reports_have_the_expected_false_alarm_rate(oracle):
    """80 simulated audits: the least p-value of m comparisons is below α/m for about α of them."""
    alarm, alarms, d = 0.2, 0, oracle.domain_size
    for seed in range(80):
        reports = of_one(oracle, min(5, d - 1), 2000, seed)
        values = [one.p_value for one in channel.evidence(oracle, min(5, d - 1), reports, range(d))]
        alarms += min(values) < alarm / len(values)
    # exact tails are discrete, so fewer alarms are fine; more only once in 10⁶
    assert alarms <= stats.binom.isf(1e-6, 80, alarm)


@pytest.mark.parametrize(("n", "p"), [(40, 0.3), (1000, 0.9)])
@pytest.mark.parametrize("level", [0.5, 0.01])
def test_p_values_follow_the_exact_law(n, p, level):
    """It is at most the level with at most that probability, and not far less often; by all outcomes."""
    law = stats.binom.pmf(np.arange(n + 1), n, p)
    found = np.array([channel.Rate("", k, n, p).p_value for k in range(n + 1)])
    assert 0.4 * level < law[found <= level].sum() <= level * (1 + 1e-9)


@pytest.mark.parametrize(
    ("p_value", "share", "verdict"),
    [
        (ALARM / 9, 1.0, PASS),  # five comparisons have half of the risk
        (ALARM / 11, 1.0, FAIL),
        (1.0, ALARM / 3, PASS),  # the times have a quarter
        (1.0, ALARM / 5, FAIL),
    ],
)
def test_all_comparisons_share_the_risk(monkeypatch, p_value, share, verdict):
    oracle, given = ldp.GRR("1", 5), []
    command = SimpleNamespace(
        stream=ldp.Stream("s", oracle), report=lambda order: of_one(oracle, 0, order.size)
    )
    found = SimpleNamespace(p_value=p_value, summary="a value")
    monkeypatch.setattr(conformance, "spent", lambda *risk: given.append(risk[-1]))
    monkeypatch.setattr(channel, "evidence", lambda *_: [found])
    monkeypatch.setattr(repeating, "repeated", lambda *_: [])
    took = SimpleNamespace(p_value=share, ratio=conformance.APART + 1, summary="slow")
    monkeypatch.setattr(conformance, "times", lambda *_: took)
    assert assess(command, 100, ALARM).verdict == verdict
    assert given == [ALARM / 4]  # the last quarter spends more


def test_honest_coins_repeat_at_the_expected_rate():
    """One report is far likelier than the others, and its matches would be dependent."""
    oracle, alarm, alarms = ldp.GRR("4", 5), 0.05, 0
    for seed in range(150):
        first, second = (of_one(oracle, 2, 1000, 2 * seed + run) for run in range(2))
        values = [one.p_value for one in repeating.repeated(oracle, 2, first, second)]
        alarms += min(values) < alarm / len(values)
    assert alarms <= stats.binom.isf(1e-6, 150, alarm)


def test_a_rate_that_depends_on_the_value_is_a_leak():
    """Each rate's reports have its law, but the rate reveals the value."""
    oracle, rng = ldp.RatedResponse(["1/2", "3/4"]), np.random.default_rng(1)
    made = {v: of_one(oracle, v, 20_000, v) for v in (0, 1)}
    made[1]["rate"] = 0
    made[1]["value"] ^= (rng.random(20_000) < 0.25) ^ (made[1]["value"] == 0)
    values = [one.p_value for v in (0, 1) for one in channel.evidence(oracle, v, made[v], [])]
    assert min(values) > 1e-6
    assert spending.spent(oracle, made, ALARM).epsilon > float(oracle.epsilon)
    made[1] = of_one(oracle, 1, 20_000, 3)
    assert spending.spent(oracle, made, ALARM).epsilon < float(oracle.epsilon)


@pytest.mark.parametrize("name", [name for name in ORACLES if name != "olh"])
def test_collisions_and_pairs_by_enumeration(name):
    oracle = ldp.oracle(name, "1", 6)
    supports, probabilities = reports(oracle)
    law = probabilities[2]
    assert repeating.collision(oracle) == pytest.approx((law**2).sum(), rel=1e-9)
    own, others = channel.pair_probabilities(oracle)
    if own is not None:
        both = [law @ supports[:, pair].all(axis=1) for pair in ([2, 4], [1, 4])]
        assert [float(own), float(others)] == pytest.approx(both, rel=1e-9)


def test_collisions_of_olh():
    oracle = ldp.OLH("1", 6, g=3)
    E = float(oracle.E)
    assert repeating.collision(oracle) == pytest.approx((E * E + 2) / (E + 2) ** 2 / 2**32, rel=1e-9)


@pytest.mark.parametrize("name", ORACLES)
def test_the_spent_epsilon_is_bounded_from_below(name):
    """At each ε the bound stays below it, and comes near: at most once in 10⁶ it would not."""
    for epsilon in ("1/2", "2"):
        oracle = ldp.oracle(name, epsilon, 4)
        made = {v: of_one(oracle, v, 40_000, v) for v in range(4)}
        least = spending.spent(oracle, made, ALARM).epsilon
        assert 0.6 * float(oracle.epsilon) < least <= float(oracle.epsilon)


def test_both_bounds_of_every_event_share_the_risk():
    oracle = ldp.GRR("1", 2)  # two ordered pairs of values, four events each
    made = {v: np.array([(v,)] * 80 + [(1 - v,)] * 20, oracle.report_dtype) for v in (0, 1)}
    level = 1 - 2 * ALARM / (2 * 8)
    low = stats.binomtest(80, 100).proportion_ci(level, "exact").low
    high = stats.binomtest(20, 100).proportion_ci(level, "exact").high
    assert spending.spent(oracle, made, ALARM).epsilon == pytest.approx(math.log(low / high), rel=1e-6)


def test_tested_values_are_the_ends_the_requested_and_some_between():
    values, watched = chosen(1000, [17, 500])
    assert {0, 999, 17, 500} <= set(values)
    assert len(values) == 8 and len(watched) == 16 and not set(values) & set(watched)
    assert chosen(1 << 24)[0][-1] == (1 << 24) - 1


def test_frames_are_json_or_hexadecimal():
    stream = ldp.Stream("s", ldp.GRR("1", 5))
    header = "01" + stream.fingerprint.hex()
    text = json.dumps(
        {"fingerprint": stream.fingerprint.hex(), "reports": [3]}, separators=(",", ":")
    ).encode()
    assert decoded(stream, [f"{header}02".encode(), text])["index"].tolist() == [2, 3]
    for lines, says in (
        ([f"{header}0203".encode()], "line 1 has 2 reports; each line needs 1"),
        ([f"{header}09".encode()], r"line 1 \(range\)"),
        ([b"red"], "line 1 is neither a JSON frame nor a binary one"),
        ([f"{header}09".encode()] * 5, "and 2 more"),
    ):
        with pytest.raises(ClientError, match=says):
            decoded(stream, lines)


def run(tmp_path, stream, *arguments):
    document = tmp_path / "document.json"
    document.write_text(json.dumps(stream.document()))
    return CliRunner().invoke(cli, ["audit-client", "--document", str(document), *arguments])


def test_the_command_prints_its_verdict_and_sets_the_exit_code(tmp_path):
    stream = ldp.Stream("s", ldp.GRR("1", 5))
    few = run(tmp_path, stream, "--reports", "200", "--", sys.executable, MUTANT, "honest", "{}")
    assert few.exit_code == 3 and "increase --reports" in few.output
    bad = run(tmp_path, stream, "--reports", "2000", "--", sys.executable, MUTANT, "old document", "{}")
    assert bad.exit_code == 1 and "fail: a worker would reject frames" in bad.output
    fails = run(
        tmp_path, stream, "--reports", "9000", "--json", "--", sys.executable, MUTANT, "predictable", "{}"
    )
    assert fails.exit_code == 1 and json.loads(fails.output)["verdict"] == "fail"
    missing = run(tmp_path, stream, "--", "/nowhere/client")
    assert missing.exit_code == 1 and "cannot be run" in missing.output


@pytest.mark.long
def test_the_command_accepts_chosen_labels_and_values(tmp_path):
    stream = ldp.Stream("s", ldp.GRR("1", 3), labels=["red", "green", "blue"])
    own = [sys.executable, "-m", "ldp", "perturb", "--document", "{}"]
    good = run(tmp_path, stream, "--value", "green", "--reports", "60000", "--", *own)
    assert good.exit_code == 0, good.output
    assert good.output.startswith("pass: 60,000 reports")
    bad = run(tmp_path, stream, "--value", "pink", "--", *own)
    assert bad.exit_code == 2 and "'pink' is not a value of the stream" in bad.output


def test_each_fault_of_the_file_is_detected():
    known = set(re.findall(r'case "(.+?)":', Path(MUTANT).read_text(encoding="utf-8")))
    assert known == {fault for _, fault, _ in [*FAULTS, *REJECTED]} | {"honest"}


def some(names):
    return [stream for stream in streams("reports") if stream["name"] in names]


def vectors(tmp_path, names):
    """A file of several streams, from before each stream had its own file."""
    (tmp_path / "reports.json").write_text(json.dumps({"streams": some(names)}), encoding="utf-8")
    return str(tmp_path / "reports.json")


def test_scripted_coins_are_compared_with_vectors(tmp_path):
    file = vectors(
        tmp_path, ["grr-10", "olh-10", "oue-10", "subset-10", "hadamard-10", "pgr-10", "grr-3-labels"]
    )
    scripted = [sys.executable, str(ROOT / "tests" / "long" / "clients" / "scripted.py"), "{}"]
    good = CliRunner().invoke(cli, ["audit-client", "--vectors", file, "--", *scripted])
    assert good.exit_code == 0, good.output
    assert good.output == "pass: 0 of 7 streams differ\n"
    bad = CliRunner().invoke(cli, ["audit-client", "--vectors", file, "--json", "--", *scripted, "fault"])
    assert bad.exit_code == 1
    found = json.loads(bad.output)["findings"]
    assert len(found) == 7
    assert re.match(r"grr-10: case \d of 6 is 01\w+; expected 01\w+", found[0])


def test_a_label_with_a_line_break_is_reported():
    stream = ldp.Stream("s", ldp.GRR("1", 2), labels=["one", "two\u2028lines"])
    with (
        Command(faults.command("honest"), stream, 60) as command,
        pytest.raises(ClientError, match="label 1 has a line"),
    ):
        assess(command, 10, ALARM)
