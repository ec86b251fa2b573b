"""Alarms: evidence against enumerated laws, false alarms, detection."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

import ldp
from ldp.alarms import HammingWeight, Repeats, Uniform, Watch, watch
from ldp.oracles.unary import UNLIKELY
from tests.unit.ldp.test_laws import reports

pytestmark = pytest.mark.statistical

OUE, OLH = ldp.OUE("1", domain_size=64), ldp.OLH("1", domain_size=10)
HADAMARD, SUBSET = ldp.HadamardResponse("1", domain_size=5), ldp.SubsetSelection("1", domain_size=6, k=3)
RAPPOR = ldp.Stream.from_document(
    "s",
    {"protocol": "unary", "f": "1/2", "p": "3/4", "q": "1/4", "domain_size": 8},
).oracle


def law_of_ones(oracle):
    d, p, q = oracle.domain_size, float(oracle.p), float(oracle.q)
    return np.convolve(stats.binom.pmf(np.arange(2), 1, p), stats.binom.pmf(np.arange(d), d - 1, q))


@pytest.mark.parametrize("oracle", [ldp.OUE("1", 6), ldp.SUE("2", 4), ldp.OUE("1/2", 2)])
def test_the_evidence_of_ones_is_a_martingale_of_mean_1(oracle):
    law = law_of_ones(oracle)
    for n in (1, 2, 3):
        mean = 0.0
        for path in itertools.product(range(law.size), repeat=n):
            ones = HammingWeight(oracle, 0.5)
            for drawn in path:
                ones.count(1, drawn)
            mean += math.prod(law[drawn] for drawn in path) * math.exp(ones.evidence)
        assert mean == pytest.approx((1 - 1 / UNLIKELY) ** n, rel=1e-11)


@pytest.mark.parametrize(("oracle", "n"), [(HADAMARD, 5), (OLH, 1), (OLH, 2)])
def test_the_evidence_of_bins_is_a_martingale_of_mean_1(oracle, n):
    mean, bins = 0.0, Uniform(oracle, 0.5).bins
    for drawn in itertools.product(range(bins), repeat=n):
        uniform = Uniform(oracle, 0.5)
        for place in drawn:
            uniform.count(np.bincount([place], minlength=bins))
        mean += math.exp(uniform.evidence) / bins**n
    assert mean == pytest.approx(1, rel=1e-6)  # logarithms of factorials of millions, in floats


@pytest.mark.parametrize("d", [1, 2, 5, 9])
def test_the_parity_of_an_unused_row_is_a_fair_coin_for_every_value(d):
    oracle = ldp.HadamardResponse("1", domain_size=d)
    columns = np.arange(oracle.state_size)
    assert Uniform.applies(oracle) == (oracle.state_size > d + 1)
    secrets = {Uniform(oracle, 0.5)._secret for _ in range(200)} if Uniform.applies(oracle) else set()
    assert all(d < row < oracle.state_size for row in secrets)
    for row, value in itertools.product(secrets, range(d)):
        supports = np.bitwise_count(columns & (value + 1)) % 2 == 0
        law = np.where(supports, float(oracle.p), float(1 - oracle.p)) / (oracle.state_size / 2)
        assert law @ (np.bitwise_count(columns & row) % 2) == pytest.approx(0.5)


def frames(oracle):
    """Every report of unary encoding or Subset Selection, and its probability for each value: (R,) and (d, R)."""
    supports, law = reports(oracle)
    made = np.zeros(len(supports), oracle.report_dtype)
    if "bits" in oracle.fields:
        made["bits"] = np.packbits(supports, axis=1, bitorder="little")
    else:
        made["indices"] = [np.flatnonzero(row) for row in supports]
    return made, law


SMALL = [SUBSET, ldp.SubsetSelection("4", domain_size=12, k=2), ldp.OUE("2", 4), ldp.SUE("1", 4)]
"""Subsets as bits and as indices, and unary encoding."""


@pytest.mark.parametrize("oracle", [*SMALL[:1], *SMALL[2:]], ids=repr)
@pytest.mark.parametrize("sizes", [(2,), (3,), (2, 2)])
@pytest.mark.parametrize("values", [(0, 0, 0, 0), (0, 1, 2, 3)])
def test_the_evidence_of_repeats_has_a_mean_of_1_at_most(oracle, sizes, values):
    """All draws of the reports of one or two blocks."""
    made, law = frames(oracle)
    blocks = []
    for size in sizes:
        drawn = np.array([*itertools.product(range(made.size), repeat=size)])
        chances = np.prod([law[values[i], drawn[:, i]] for i in range(size)], axis=0)
        tests = [Repeats(oracle, 0.5) for _ in drawn]
        for test, rows in zip(tests, drawn, strict=True):
            test.look(made[rows])
        blocks.append((chances, np.exp([test._logs for test in tests])))
    mean = np.prod([chances @ grown for chances, grown in blocks], axis=0).mean()
    assert 0.05 < mean <= 1


@pytest.mark.parametrize("oracle", SMALL, ids=repr)
def test_the_expected_pairs_are_those_of_the_worst_value(oracle):
    made, law = frames(oracle)
    assert math.exp(Repeats(oracle, 0.5).log_peak) == pytest.approx(law.max())
    at = np.random.default_rng(3).integers(made.size, size=40)
    expected = sum(law[:, at[:i]].sum(axis=1).max() for i in range(at.size))
    repeats = Repeats(oracle, 0.5)
    repeats.look(made[at])
    assert repeats._expected == pytest.approx(expected)
    assert repeats._pairs == sum(math.comb(number, 2) for number in np.bincount(at))


def test_one_copy_is_an_alarm_if_copies_are_impossible():
    repeats, none = Repeats(ldp.OUE("1", 1024), 1e-7), np.zeros(0, np.int64)
    expected = 4096**2 * math.exp(repeats.log_peak)
    assert not any(repeats.count(4096, none, expected) for _ in range(250))
    assert repeats.count(4096, np.array([1]), expected)
    assert "pairs of equal reports in a block: 1; at most" in repeats.found


@pytest.mark.parametrize(
    "oracle", [ldp.SubsetSelection("1", 20), ldp.OUE("1", 20), ldp.SUE("1", 14)], ids=repr
)
@pytest.mark.parametrize("times", [2, 10, 200])
def test_copies_are_detected_in_small_domains(oracle, times):
    """A twentieth of the reports are copies, of few or many others: within 8 blocks, all three protocols."""
    rng, repeats = np.random.default_rng(4), Repeats(oracle, 2.5e-7)
    for _ in range(8):
        made = oracle.perturb(rng.integers(oracle.domain_size, size=4096), rng=rng)
        places = rng.permutation(4096)[:204]
        made[places] = np.repeat(made[places[::times]], times)[:204]
        if repeats.look(made):
            return
    pytest.fail(repeats.found)


@pytest.mark.parametrize(
    ("oracle", "tests"),
    [
        (OUE, [True, False, True]),
        (
            ldp.Stream.from_document(
                "s", {"protocol": "unary", "p": "3/4", "q": "1/4", "domain_size": 8}
            ).oracle,
            [True, False, True],
        ),
        (RAPPOR, [False, False, False]),
        (OLH, [False, True, True]),
        (HADAMARD, [False, True, False]),
        (SUBSET, [False, False, True]),
        (ldp.Unary("3/4", "1/4", 1), [False, False, False]),
        (ldp.GRR("1", 4), [False, False, False]),
        (ldp.PGR("1", 4), [False, False, False]),
    ],
)
def test_which_tests_apply(oracle, tests):
    assert [kind.applies(oracle) for kind in (HammingWeight, Uniform, Repeats)] == tests
    for kind, applies in zip((HammingWeight, Uniform, Repeats), tests, strict=True):
        if not applies:
            with pytest.raises(ValueError, match=f"the protocol is {oracle.name}; the "):
                kind(oracle, 0.5)
    assert Watch(oracle, lambda: 0.0).look(oracle.perturb([0] * 10)) == []


@pytest.mark.parametrize("yes", [0.0, 0.5, 1.0])
def test_answers_to_a_yes_no_question_raise_no_alarm(yes):
    """One bit is 1 with probability q under no: fewer ones and more equal reports than any value of ldp's clients."""
    oracle, rng = ldp.Unary("3/4", "1/100", 1), np.random.default_rng(8)
    watch, seconds = Watch(oracle, itertools.count().__next__, rng, 1e-3), 8
    bits = rng.random(seconds * 4096) < np.where(rng.random(seconds * 4096) < yes, 0.75, 0.01)
    made = np.zeros(bits.size, oracle.report_dtype)
    made["bits"][:, 0] = bits
    assert not any(watch.look(block) for block in np.split(made, seconds))


@pytest.mark.parametrize("oracle", [OUE, OLH, HADAMARD, SUBSET])
def test_honest_streams_raise_no_more_alarms_than_the_level(oracle):
    """At a level of 10 %, so that it can be seen: 60 streams of 10 blocks of 64 reports, each of one value."""
    level, rng, streams = 0.1, np.random.default_rng(6), 60
    for kind in (HammingWeight, Uniform, Repeats):
        if kind.applies(oracle):
            raised = 0
            for stream in range(streams):
                test = kind(oracle, level)
                values = np.full(64, stream % oracle.domain_size)
                raised += any(test.look(oracle.perturb(values, rng=rng)) for _ in range(10))
            assert stats.binom.sf(raised - 1, streams, level) > 1e-7


@pytest.mark.parametrize("oracle", [OUE, OLH, HADAMARD, SUBSET])
def test_all_tests_of_a_watch_share_its_risk(oracle):
    """A test alarms at odds of one over its share, which a martingale of mean 1 has as often as that at most."""
    assert watch.RISK == 5e-7  # an hour is in two periods at most: that is 10⁻⁶
    watching = Watch(oracle, Clock(), risk=1e-6)
    assert sum(math.exp(-test._bound) for test in watching._tests) == pytest.approx(1e-6)


class Clock:
    def __init__(self):
        self.seconds = 0.0

    def __call__(self):
        return self.seconds


def feed(watching, reports, blocks):
    """Has a watch look at so many blocks of reports that are drawn from these, a second for each."""
    rng, raised = np.random.default_rng(7), []
    for _ in range(blocks):
        watching._then -= 1  # a second ago
        raised += watching.look(reports[rng.integers(reports.size, size=watch.BLOCK)])
    return [alarm.test for alarm in raised]


def reports_of(oracle, fakes, n=1 << 16):
    """Honest reports, with this share replaced by one of them."""
    rng = np.random.default_rng(8)
    reports = oracle.perturb(rng.integers(oracle.domain_size, size=n), rng=rng)
    reports[: int(fakes * n)] = reports[0]
    return reports


@pytest.mark.parametrize(("oracle", "expected"), [(OLH, ["repeats", "uniform"]), (HADAMARD, ["uniform"])])
def test_identical_poisoning_reports_are_detected(oracle, expected):
    watching = Watch(oracle, Clock(), np.random.default_rng(1))
    assert sorted(feed(watching, reports_of(oracle, 0.2), 3)) == expected


def test_an_alarm_is_raised_once_per_period_and_again_after_an_hour():
    clock, poisoned = Clock(), reports_of(OLH, 0.2)
    watching = Watch(OLH, clock, np.random.default_rng(1))
    for seconds, raised in ((0, 2), (watch.HOUR - 1, 0), (watch.HOUR, 2), (2 * watch.HOUR - 1, 0)):
        clock.seconds = seconds
        assert len(feed(watching, poisoned, 3)) == raised


def test_a_period_without_an_alarm_ends_after_enough_reports(monkeypatch):
    monkeypatch.setattr(watch, "ENOUGH", 3 * watch.BLOCK)
    begun = []
    monkeypatch.setattr(Repeats, "begin", lambda self: begun.append(clock.seconds))
    monkeypatch.setattr(Repeats, "look", lambda *_: False)
    clock = Clock()
    watching = Watch(SUBSET, clock, np.random.default_rng(1))
    begun.clear()
    honest = reports_of(SUBSET, 0)
    feed(watching, honest, 4)
    assert begun == []
    clock.seconds = watch.HOUR
    feed(watching, honest, 4)
    assert begun == [watch.HOUR]
    clock.seconds *= 2
    feed(watching, honest, 2)  # 6 blocks in this period so far: it ends at the first of them
    assert begun == [watch.HOUR, 2 * watch.HOUR]
    clock.seconds *= 2
    feed(watching, honest, 1)
    assert len(begun) == 2


@pytest.mark.parametrize("size", [1, 4096, 4097, 100_000])
def test_at_most_one_block_a_second_is_examined(size):
    clock, looked = Clock(), []
    watching = Watch(OLH, clock, np.random.default_rng(1))
    reports = np.zeros(size, OLH.report_dtype)
    reports["seed"] = np.arange(size)

    def test_block():
        looked.extend(watching._block["seed"].tolist())
        watching._filled = 0
        return []

    def look():
        looked.clear()
        watching.look(reports)
        looked.extend(watching._block["seed"][: watching._filled].tolist())
        watching._filled = 0
        return looked

    watching._test_block = test_block
    due = 4096
    for seconds in (0, 0, 0.5, 2):
        clock.seconds += seconds
        due = min(4096, due + int(4096 * seconds))
        assert len(look()) == min(size, due)
        assert not looked or looked == [*range(looked[0], looked[0] + len(looked))]
        due -= len(looked)


def test_the_block_of_a_large_batch_is_random():
    reports = np.zeros(100_000, OLH.report_dtype)
    reports["seed"] = np.arange(reports.size)
    firsts = set()
    for seed in range(20):
        watching = Watch(OLH, Clock(), np.random.default_rng(seed))
        watching._test_block = lambda own=watching: firsts.add(int(own._block["seed"][0])) or []
        watching.look(reports)
    assert len(firsts) == 20
    assert min(firsts) < 30_000
    assert max(firsts) > 60_000


def test_excessive_and_missing_ones_are_detected():
    for sign in (1, -1):
        ones = HammingWeight(OUE, 1e-7)
        each = round(4096 * ones.mean + sign * 3 * math.sqrt(4096 * ones.variance))
        raised = [ones.count(4096, each) for _ in range(8)]
        assert (raised[0], raised[-1]) == (False, True)
        assert f"{ones.mean:.2f} expected" in ones.found
