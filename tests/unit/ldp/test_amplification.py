"""Amplification by shuffling against brute force over all other users, and the published figures."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

import ldp
from ldp.oracles import ORACLES
from ldp.privacy.amplification import Blanket, blanket, of_group
from ldp.sampling import exp_below
from tests.support.channels import reports

DELTA = 1e-8


def any_protocol(epsilon):
    return Blanket.of_ratio(exp_below(Fraction(epsilon)))


def shuffled(channel, values):
    """The distribution of the multiset of reports of users with these values."""
    law = {(0,) * channel.shape[1]: 1.0}
    for value in values:
        following = {}
        for counts, chance in law.items():
            for report in np.flatnonzero(channel[value]):
                more = (*counts[:report], counts[report] + 1, *counts[report + 1 :])
                following[more] = following.get(more, 0.0) + chance * channel[value, report]
        law = following
    return law


def exact_deltas(channel, n, epsilons):
    """δ for each ε, the largest over all pairs of values and all values of n − 1 other users."""
    d, worst = len(channel), np.zeros(len(epsilons))
    for others in itertools.combinations_with_replacement(range(d), n - 1):
        laws = [shuffled(channel, (*others, value)) for value in range(d)]
        for one, other in itertools.permutations(laws, 2):
            outcomes = one.keys() | other.keys()
            p, q = (np.array([law.get(outcome, 0.0) for outcome in outcomes]) for law in (one, other))
            deltas = [np.clip(p - math.exp(epsilon) * q, 0, None).sum() for epsilon in epsilons]
            worst = np.maximum(worst, deltas)
    return worst


SMALL = [
    (ldp.GRR("1", 2), 6), (ldp.GRR("3", 2), 6), (ldp.GRR("1", 3), 6), (ldp.GRR("3", 4), 4),
    (ldp.OLH("1", 2, g=2), 4), (ldp.OLH("2", 2, g=3), 3), (ldp.OUE("1", 2), 6), (ldp.OUE("3", 3), 3),
    (ldp.SUE("1", 2), 6), (ldp.SUE("2", 3), 3), (ldp.SubsetSelection("1", 3, k=1), 6),
    (ldp.SubsetSelection("2", 4, k=2), 4), (ldp.HadamardResponse("1", 3), 5),
    (ldp.HadamardResponse("3", 2), 5), (ldp.PGR("1", 3, prime=2, dimension=2), 5),
    (ldp.PGR("2", 4, prime=2, dimension=3), 3),
]  # fmt: skip
CASES = [(oracle, n) for oracle, most in SMALL for n in range(1, most + 1)]


def name_of(case):
    return f"{case.name}-{case.domain_size}" if isinstance(case, ldp.Oracle) else str(case)


@pytest.mark.parametrize(("oracle", "n"), CASES, ids=name_of)
def test_no_pair_of_values_and_no_other_users_exceed_the_bound(oracle, n):
    channel = reports(oracle)[1]
    epsilons = [share * float(oracle.epsilon) for share in (0, 0.2, 0.8)]
    exact = exact_deltas(channel, n, epsilons)
    own = np.array([blanket(oracle).delta(n, epsilon) for epsilon in epsilons])
    general = np.array([Blanket.of_ratio(oracle.E).delta(n, epsilon) for epsilon in epsilons])
    assert (exact <= own * (1 + 1e-9)).all(), exact / own
    assert (own <= general * (1 + 1e-3)).all(), own / general
    if n == 1 and oracle.name != "olh":  # the bound of olh holds for every hash
        np.testing.assert_allclose(own, exact, rtol=1e-3)
    assert blanket(oracle).delta(n, float(oracle.epsilon)) <= 1e-15


def increments(channel, sent, *, memoised):
    """The distribution of the multisets of increments, each a list of (user, value)."""
    drawn = [
        ((user, value) if memoised else (at, place), value)
        for at, one in enumerate(sent)
        for place, (user, value) in enumerate(one)
    ]
    values, law = dict(drawn), {}
    for answers in itertools.product(range(channel.shape[1]), repeat=len(values)):
        answer = dict(zip(values, answers, strict=True))
        reports = iter([answer[noise] for noise, _ in drawn])
        seen = tuple(tuple(sorted(itertools.islice(reports, len(one)))) for one in sent)
        chance = math.prod(channel[value, answer[noise]] for noise, value in values.items())
        law[seen] = law.get(seen, 0.0) + chance
    return law


@pytest.mark.parametrize("d", [2, 3])
def test_memoised_noise_of_other_users_reveals_a_report(d):
    """Two increments of two reports: one of user a and three of user b, at all values of b."""
    oracle = ldp.GRR("1", d)
    channel, share = reports(oracle)[1], math.exp(0.5)
    worst = {}
    for memoised in (False, True):
        deltas = []
        for first, second, third in itertools.product(range(d), repeat=3):
            one, other = (
                increments(
                    channel, [[("a", x), ("b", first)], [("b", second), ("b", third)]], memoised=memoised
                )
                for x in (0, 1)
            )
            deltas.append(
                sum(max(0.0, chance - share * other.get(seen, 0.0)) for seen, chance in one.items())
            )
        worst[memoised] = max(deltas)
    bound = blanket(oracle).delta(2, 0.5)
    assert worst[False] <= bound * (1 + 1e-9)
    # the second increment shows the report of b in the first one, so that nothing hides that of a
    assert worst[True] == pytest.approx(exact_deltas(channel, 1, [0.5])[0])
    assert worst[True] > 1.2 * bound


@pytest.mark.parametrize("oracle", [oracle for oracle, _ in SMALL], ids=name_of)
def test_a_blanket_is_the_part_of_the_channel_without_the_value(oracle):
    supports, channel = reports(oracle)
    lows = np.where(supports.T, channel / float(oracle.E), channel)
    np.testing.assert_allclose(lows, lows[:1].repeat(len(lows), axis=0), rtol=1e-9)
    low, found = lows[0], blanket(oracle)
    assert float(found.gamma) == pytest.approx(low.sum())
    for u, v in itertools.permutations(range(oracle.domain_size), 2):
        alone = low[supports[:, u] & ~supports[:, v]].sum() / low.sum()
        both = low[supports[:, u] & supports[:, v]].sum() / low.sum()
        if oracle.name == "olh":  # the bound holds for hashes without collisions
            alone, both = alone + both, 0
        assert (float(found.a), float(found.c)) == (pytest.approx(alone), pytest.approx(both, abs=1e-12))


CHANNELS = [
    ldp.Response("3/4", 10),
    ldp.Unary("3/4", "1/4", 10),
    ldp.RAPPOR("1/2", "3/4", "1/2", 10),
]


@pytest.mark.parametrize("oracle", [*(ldp.oracle(name, "2", 100) for name in ORACLES), *CHANNELS])
def test_the_chances_of_a_report_sum_to_1(oracle):
    found = blanket(oracle)
    E, gamma, a, c = found.E, found.gamma, found.a, found.c
    assert gamma * (a * (1 + E) + (1 - 2 * a - c) + c * E) == 1
    assert 0 < gamma < 1
    assert 0 < a <= Fraction(1, 2)


@pytest.mark.parametrize(
    ("epsilon", "n", "figures"),
    [
        ("1", 10**4, {"any": 0.057, "olh": 0.046, "oue": 0.040, "grr": 0.004}),
        ("4", 10**5, {"any": 0.151, "olh": 0.106, "pgr": 0.113, "grr": 0.032}),
        ("8", 10**6, {"any": 0.382, "oue": 0.262}),
    ],
)
def test_the_published_figures(epsilon, n, figures):
    for name, figure in figures.items():
        found = any_protocol(epsilon) if name == "any" else blanket(ldp.oracle(name, epsilon, 1024))
        assert found.epsilon(n, DELTA) == figure, name


def test_the_published_deltas():
    figures = {"oue": 1.424e-6, "pgr": 2.096e-6, "olh": 8.579e-6}
    for name, figure in figures.items():
        assert blanket(ldp.oracle(name, "1", 1024)).delta(1000, 0.1) == pytest.approx(figure, rel=1e-3)
    assert any_protocol("1").delta(1000, 0.1) == pytest.approx(8.2013e-5, rel=1e-5)


@pytest.mark.parametrize(("epsilon", "n", "e"), [("1", 1000, 0.1), ("4", 10**5, 0.15), ("9.68", 10**6, 1)])
def test_the_grid_against_the_exact_sum(epsilon, n, e):
    """Without c, and with a = 1/2, S is a linear function of two counts."""
    found = any_protocol(epsilon)
    E, chance = float(found.E), float(found.gamma) / 2
    most = int(n * chance + 12 * math.sqrt(n * chance) + 60)
    log = np.cumsum(np.log(np.maximum(1, np.arange(n + 1))))
    ups, downs = np.arange(min(n, most) + 1)[:, None], np.arange(min(n, most) + 1)
    rest = np.maximum(0, n - ups - downs)
    laws = np.exp(
        log[n] - log[ups] - log[downs] - log[rest] + (ups + downs) * math.log(chance)
        + rest * math.log1p(-2 * chance)
    )  # fmt: skip
    sums = ups * (E - math.exp(e)) + downs * (1 - E * math.exp(e))
    exact = float((laws * (ups + downs <= n) * np.clip(sums, 0, None)).sum()) / n
    assert exact * (1 - 1e-9) <= found.delta(n, e) <= exact * (1 + 1e-3)


@pytest.mark.parametrize("name", ["any", "oue"])
def test_the_bound_is_monotone(name):
    def made(epsilon):
        return any_protocol(epsilon) if name == "any" else blanket(ldp.oracle(name, epsilon, 64))

    ns, epsilons = (1, 2, 20, 1000, 10**5, 10**7), (0.0, 0.01, 0.1, 1, 3)
    bound = np.array([[[made(e0).delta(n, e) for e in epsilons] for n in ns] for e0 in ("1/2", "1", "4")])
    slack = 1 + 1e-3
    assert (bound[1:] * slack >= bound[:-1]).all()
    assert (bound[:, 1:] <= bound[:, :-1] * slack).all()
    assert (bound[:, :, 1:] <= bound[:, :, :-1] * slack).all()
    found = [made("1").epsilon(1000, delta) for delta in (1e-12, 1e-8, 1e-4, 0.1)]
    assert found == sorted(found, reverse=True)


def test_few_reports_hide_nothing():
    for oracle in (ldp.GRR("1", 10), ldp.OUE("4", 10)):
        assert blanket(oracle).epsilon(1, DELTA) == pytest.approx(float(oracle.epsilon), abs=1e-6)
    one_bit = ldp.Unary("3/4", "1/4", 1)
    assert blanket(one_bit) == Blanket.of_ratio(Fraction(9))
    assert blanket(ldp.Unary("1", "1/4", 10, epsilon="infinite")) is None


def test_a_user_with_several_reports():
    assert of_group(0.1, 1e-8, 1) == (0.1, 1e-8)
    for k in (2, 5):
        epsilon, delta = of_group(0.1, 1e-8, k)
        assert epsilon == pytest.approx(0.1 * k)
        assert delta == pytest.approx(1e-8 * sum(math.exp(0.1 * i) for i in range(k)))
    assert of_group(0.0, 1e-8, 3) == (0.0, pytest.approx(3e-8))

    assert of_group(0.1, 1e-8, 10**9) == (1e8, 1.0)
    assert of_group(math.inf, 1e-8, 2) == (math.inf, 1.0)


@pytest.mark.parametrize("epsilon", ["1/100000", "20", "64"])
@pytest.mark.parametrize("n", [1, 100, 10**12])
def test_extreme_arguments_have_a_bound(epsilon, n):
    for oracle in (ldp.GRR(epsilon, 2), ldp.OUE(epsilon, 1000), ldp.PGR(epsilon, 100)):
        found = blanket(oracle).epsilon(n, 1e-15)
        assert 0 <= found <= float(Fraction(epsilon)) * (1 + 1e-12)


def test_invalid_arguments_are_refused():
    with pytest.raises(ValueError, match="n is 0; allowed is at least 1"):
        any_protocol("1").delta(0, 0.1)
    for delta in (0, 1, math.nan):
        with pytest.raises(ValueError, match=r"delta is .*; allowed is a number above 0 and below 1"):
            any_protocol("1").epsilon(10, delta)
