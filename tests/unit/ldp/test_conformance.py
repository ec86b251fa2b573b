"""Client conformance: honest clients pass, each fault is found."""

import json
import math
import re
import sys
from dataclasses import astuple
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import stats
from scipy.special import expit, logit

import ldp
from ldp.cli import cli
from ldp.conformance import channel, repeating, spending
from ldp.conformance import verdict as conformance
from ldp.conformance.excess import found
from ldp.conformance.running import ClientError, Command, decoded
from ldp.conformance.verdict import FAIL, PASS, TOO_FEW, assess, chosen
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
        *(
            pytest.param(oracle, marks=pytest.mark.long)
            for oracle in (
                *(ldp.oracle(name, "1", 6 if name == "grr" else 20) for name in ORACLES),
                *CHANNELS,
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
        compared = [
            one
            for value in {0, min(5, d - 1)}
            for one in channel.evidence(
                oracle, value, of_one(oracle, value, 2000, 100 * value + seed), range(d)
            )
        ]
        values = [one.p_value for one in (*compared, *channel.pooled(compared))]
        alarms += min(values) < alarm / len(values)
    # exact tails are discrete, so fewer alarms are fine; more only once in 10⁶
    assert alarms <= stats.binom.isf(1e-6, 80, alarm)


@pytest.mark.parametrize(("n", "p"), [(40, 0.3), (1000, 0.9)])
@pytest.mark.parametrize("level", [0.5, 0.01])
def test_p_values_follow_the_exact_law(n, p, level):
    """It is at most the level with at most that probability, and not far less often; by all outcomes."""
    law = stats.binom.pmf(np.arange(n + 1), n, p)
    found = np.array([channel.Rate(0, "", k, n, p).p_value for k in range(n + 1)])
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
    monkeypatch.setattr(channel, "pooled", lambda _: [])
    monkeypatch.setattr(repeating, "repeated", lambda *_: [])
    took = SimpleNamespace(p_value=share, ratio=conformance.APART + 1, summary="slow")
    monkeypatch.setattr(conformance, "times", lambda *_: took)
    assert assess(command, 100, ALARM).verdict == verdict
    assert given == [ALARM / 4]  # the last quarter spends more


def audited(oracle, client, number, seed):
    """The verdict on a client that perturbs by another oracle."""
    rng = np.random.default_rng(seed)
    stream = ldp.Stream("s", oracle)
    return assess(
        SimpleNamespace(stream=stream, report=lambda order: client.perturb(order, rng=rng)), number, ALARM
    )


@pytest.fixture
def untimed(monkeypatch):
    monkeypatch.setattr(conformance, "times", lambda *_: None)


UNARY = ldp.Unary("3/4", "1/10", 8)


@pytest.mark.parametrize(
    ("oracle", "client", "event"),
    [
        (UNARY, ldp.Unary("0.76", "1/10", 8), "all values, reports that support it: 7"),
        (UNARY, ldp.Unary("3/4", "0.095", 8), "all values, 1 bits of other values: 9."),
        (
            ldp.RAPPOR("1/2", "3/4", "1/4", 8),
            ldp.RAPPOR("1/2", "0.765", "1/4", 8),
            "all values, 1 bits of other values",
        ),
        (ldp.GRR("1", 16), ldp.GRR("1.05", 16), "all values, reports that support it"),
        (ldp.OLH("1", 64, g=3), ldp.OLH("1.05", 64, g=3), "all values, reports that support it"),
    ],
    ids=repr,
)
def test_a_small_deviation_of_all_values_is_found(untimed, oracle, client, event):
    """Each value has too few reports to show it."""
    found = audited(oracle, client, 200_000, 1)
    assert found.verdict == FAIL
    assert any(finding.startswith(event) for finding in found.findings), found.findings
    assert audited(oracle, oracle, 200_000, 2).verdict == PASS


@pytest.mark.parametrize(("n", "p"), [(300, 0.75), (5000, 0.02), (40_000, 0.9)])
def test_the_excess_of_a_rate_is_where_it_fails_with_99_percent(n, p):
    """By the p-values of all counts: just below the excess the client fails less often."""
    risk, counts = 1e-6, np.arange(n + 1)
    fails = np.array([channel.Rate(None, channel.OWN, k, n, p).p_value < risk for k in counts])
    for sign, event in ((1, channel.OWN), (-1, channel.OTHER_BITS)):
        both = [channel.Rate(value, event, 0, n, p) for value in (3, None)]
        (excess,) = {*astuple(found(both, risk))}
        above, below = (
            stats.binom.pmf(counts[fails], n, expit(logit(p) + sign * share * excess)).sum()
            for share in (1, 0.99)
        )
        assert below < 0.99 <= above + 1e-9


def test_the_excess_adds_own_and_other_bits_and_is_the_largest_of_the_values():
    own, other = (
        [channel.Rate(value, event, 0, n, p) for value, n in ((0, 4000), (1, 2000), (None, 6000))]
        for event, p in ((channel.OWN, 0.75), (channel.OTHER_BITS, 0.1))
    )
    parts = [found(rates, 1e-6) for rates in (own, other)]
    assert found([*own, *other], 1e-6).all_values == sum(part.all_values for part in parts)
    assert found([*own, *other], 1e-6).one_value == sum(part.one_value for part in parts)
    assert parts[0].one_value == found([own[1], own[2]], 1e-6).one_value > parts[0].all_values
    pair = channel.Rate(
        None, f"{channel.OWN} and 5", 0, 6000, 0.075
    )  # a small probability has a larger excess
    assert found([*own, pair], 1e-6) == parts[0]
    assert found([channel.Rate(v, channel.OWN, 0, 10, 0.75) for v in (0, None)], 1e-6) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("oracle", "spending_more"),
    [
        (UNARY, lambda x: ldp.Unary(shifted("3/4", x), "1/10", 8)),
        (UNARY, lambda x: ldp.Unary("3/4", shifted("1/10", -x), 8)),
        (UNARY, lambda x: ldp.Unary(shifted("3/4", x / 2), shifted("1/10", -x / 2), 8)),
        (ldp.GRR("1", 6), lambda x: ldp.GRR(str(1 + x), 6)),
        (ldp.OLH("1", 20, g=3), lambda x: ldp.OLH(str(1 + x), 20, g=3)),
        (ldp.SubsetSelection("1", 12, k=3), lambda x: ldp.SubsetSelection(str(1 + x), 12, k=3)),
        (ldp.HadamardResponse("1", 7), lambda x: ldp.HadamardResponse(str(1 + x), 7)),
    ],
)
def test_the_excess_of_a_verdict_is_found(untimed, oracle, spending_more):
    """A client that spends as much more fails in 99 %, one that spends a tenth of it hardly ever."""
    excess = round(audited(oracle, oracle, 8_000, 0).excess.all_values + 5e-7, 6)
    for share, fewest, most in ((1, 15, 20), (0.1, 0, 3)):
        clients = [audited(oracle, spending_more(share * excess), 8_000, seed) for seed in range(20)]
        # more than 5 misses are rarer than 10⁻⁷; a tenth is below 3 of the 6 standard deviations of a finding
        assert fewest <= sum(client.verdict == FAIL for client in clients) <= most


def test_the_page_has_the_excess_of_its_example(untimed):
    page = (ROOT / "docs" / "guides" / "client-conformance.md").read_text(encoding="utf-8")
    excess = astuple(audited(UNARY, UNARY, 200_000, 1).excess)
    everywhere, once = (math.ceil(1000 * each) / 1000 for each in excess)
    assert f"of {everywhere} if all values have it, and of {once} if only" in page
    again = astuple(audited(UNARY, UNARY, 800_000, 1).excess)
    assert [two / one for one, two in zip(excess, again, strict=True)] == pytest.approx([0.5, 0.5], abs=0.02)


@pytest.mark.parametrize(
    "oracle",
    [ldp.GRR("1/2", 6), ldp.OLH("1", 3), ldp.OUE("1", 20), ldp.PGR("1", 100), ldp.Response("3/4", 4)],
    ids=repr,
)
def test_too_few_reports_name_a_number_that_suffices(untimed, oracle):
    few = audited(oracle, oracle, 200, 0)
    assert (few.verdict, audited(oracle, oracle, few.enough // 4, 0).verdict) == (TOO_FEW, TOO_FEW)
    found = audited(oracle, oracle, few.enough, 0)
    assert (found.verdict, found.enough) == (PASS, None)


def shifted(probability, x):
    """A probability whose log-odds are larger by x."""
    return Fraction(float(expit(logit(float(Fraction(probability))) + x))).limit_denominator(10**9)


def test_honest_coins_repeat_at_the_expected_rate():
    """One report is far likelier than the others, and its matches would be dependent."""
    oracle, alarm, alarms = ldp.GRR("4", 5), 0.05, 0
    for seed in range(150):
        first, second = (of_one(oracle, 2, 1000, 2 * seed + run) for run in range(2))
        values = [one.p_value for one in repeating.repeated(oracle, 2, first, second)]
        alarms += min(values) < alarm / len(values)
    assert alarms <= stats.binom.isf(1e-6, 150, alarm)


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
    assert few.exit_code == 3 and few.output.endswith("for a verdict, set --reports to about 53,000\n")
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
    assert re.search(
        r"^an excess of more than 0\.\d+ in all values, or 0\.\d+ in one tested value, would have been found with"
        r" probability 99%$",
        good.output,
        re.MULTILINE,
    )
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
