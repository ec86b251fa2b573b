"""Changes between windows: e-values, false discoveries, detection."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import binom

import ldp
import ldp.query
from ldp.analysis import changes
from ldp.analysis.changes import between, between_sets, discoveries

pytestmark = pytest.mark.statistical

N, M = 30, 45
LEVEL = 0.01


def of_users(n, having, p, q):
    """The law of a count, for n users with this many holders of the value: enumerated."""
    return np.convolve(
        binom(having, p).pmf(np.arange(having + 1)), binom(n - having, q).pmf(np.arange(n - having + 1))
    )


def of_draws(n, f, p, q):
    """The same where each user is drawn."""
    return binom(n, q + f * (p - q)).pmf(np.arange(n + 1))


def e_values(oracle, at_least, tests):
    """The e-value of every pair of counts: (N + 1, M + 1), for a value among this many tested ones."""
    p, q = float(oracle.p), float(oracle.q)
    law = changes._Law(changes.value_laws(p, q), (p, p * (1 - p)), (q, q * (1 - q)))
    first, second = np.meshgrid(np.arange(N + 1.0), np.arange(M + 1.0), indexing="ij")
    test = changes._Test(first.ravel(), N, second.ravel(), M, law, tests, LEVEL)
    return np.exp(changes._two_sided(test, at_least)).reshape(N + 1, M + 1)


@pytest.mark.parametrize(("name", "epsilon"), [("grr", "5"), ("oue", "0.5"), ("subset", "2")])
@pytest.mark.parametrize("at_least", [0.0, 0.2])
def test_the_mean_of_the_e_value_is_at_most_one_for_every_population(name, epsilon, at_least):
    oracle = ldp.oracle(name, epsilon, domain_size=12)
    p, q = float(oracle.p), float(oracle.q)
    largest = 0.0
    for tests in (1, 1000):
        e = e_values(oracle, at_least, tests)
        for had, has in itertools.product(range(0, N + 1, 5), range(0, M + 1, 5)):
            if abs(has / M - had / N) <= at_least + 1e-12:
                largest = max(largest, of_users(N, had, p, q) @ e @ of_users(M, has, p, q))
                largest = max(largest, of_draws(N, had / N, p, q) @ e @ of_draws(M, has / M, p, q))
    assert 0.005 < largest <= 1.0 + 1e-9


def test_the_mean_of_a_sets_e_value_is_at_most_one():
    """The contribution of a report, enumerated: for OUE the user's bit, and the other bits."""
    oracle, query = ldp.OUE("2", domain_size=6), ldp.query.SetQuery("some", [0, 1, 2])
    n, m = 8, 12
    p, q = float(oracle.p), float(oracle.q)
    others = binom(2, q).pmf(np.arange(3))
    own, other = np.convolve([1 - p, p], others), binom(3, q).pmf(np.arange(4))

    def law(users, having):
        found = np.ones(1)
        for user in range(users):
            found = np.convolve(found, own if user < having else other)
        return found

    variance = query.variance(oracle)
    first, second = np.meshgrid(np.arange(3.0 * n + 1), np.arange(3.0 * m + 1), indexing="ij")
    bounds = changes._Law(variance.laws(), *variance.moments())
    test = changes._Test(first.ravel(), n, second.ravel(), m, bounds, 1, LEVEL)
    e = np.exp(changes._two_sided(test, 0.0)).reshape(first.shape)
    means = [law(n, 2 * k) @ e @ law(m, 3 * k) for k in range(5)]
    assert max(means) <= 1.0 + 1e-9


def test_e_bh_matches_its_definition():
    rng = np.random.default_rng(30)
    for _ in range(50):
        log_e = rng.normal(2.0, 3.0, 20)
        named = []
        for k in range(1, 21):
            if (np.exp(log_e) >= 20 / (0.1 * k)).sum() >= k:
                named = sorted(range(20), key=lambda v: -log_e[v])[:k]
        assert discoveries(log_e, 0.1).tolist() == named


def collected(rng, oracle, f, n):
    """Counts of n drawn users; their values, and both answers of a report, are dependent."""
    values = rng.choice(f.size, n, p=f)
    state = oracle.zeros()
    oracle.accumulate(state, oracle.perturb(values, rng=rng))
    return oracle.estimate(oracle.support(state), n)


@pytest.mark.slow
def test_false_discoveries_are_rare():
    """One comparison of a hundred finds something at most."""
    rng = np.random.default_rng(31)
    f = rng.dirichlet(np.full(40, 0.3))
    finds = 0
    for name in ("grr", "olh", "hadamard"):
        oracle = ldp.oracle(name, "3", domain_size=40)
        for _ in range(15):
            pair = (collected(rng, oracle, f, 3000) for _ in range(2))
            finds += between(*pair).found.size > 0
    assert finds < 8
    assert binom(45, LEVEL).sf(7) < 1e-6


def test_large_changes_are_found_and_few_discoveries_are_false():
    """Ten of a thousand values move by nine standard errors or more; half a per cent of one is below six by chance."""
    rng = np.random.default_rng(32)
    oracle, n = ldp.OUE("1", domain_size=1000), 400_000
    p, q = float(oracle.p), float(oracle.q)
    f = np.full(1000, 0.001)
    shares, missed = [], 0
    for _ in range(40):
        later = f.copy()
        moved = rng.choice(1000, 10, replace=False)
        later[moved] += 12 * math.sqrt(2 * q * (1 - q) / n) / (p - q) * rng.uniform(1.0, 1.5, 10)
        counts = [rng.binomial(n, q + (p - q) * each) for each in (f, later)]
        found = between(*(oracle.estimate(each, n) for each in counts), level=0.1).found
        missed += len({*moved.tolist()} - {*found.tolist()})
        shares.append(np.isin(found, moved, invert=True).mean() if found.size else 0.0)
    assert missed == 0  # 12 σ against 6: 400 times a chance of 10⁻⁹
    # shares lie in [0, 1] and have a mean of 0.1 at most: Hoeffding
    assert np.mean(shares) < 0.1 + math.sqrt(math.log(1e6) / (2 * len(shares)))
    assert np.mean(shares) < 0.1  # and in fact far below


def test_a_shifted_population_is_detected_with_its_distance():
    rng = np.random.default_rng(33)
    oracle = ldp.OLH("1", domain_size=64)
    f = np.full(64, 1 / 64)
    later = f.copy()
    later[[3, 9]] += 0.2, -1 / 64
    later[40:] -= (later.sum() - 1) / 24
    before, after = (collected(rng, oracle, each, 60_000) for each in (f, later))
    found = between(before, after)
    assert found.found[0] == 3
    assert np.allclose(found.differences, after.frequencies - before.frequencies, atol=1e-9)
    assert between(before, after, at_least=0.19).found.size == 0


def test_sets_are_tested_too():
    rng = np.random.default_rng(34)
    f = np.full(50, 0.02)
    later = f.copy()
    later[:10] += 0.02
    later[10:] -= 0.2 / 40
    queries = [ldp.query.SetQuery("first", list(range(10))), ldp.query.SetQuery("one", [20])]
    for name in ("oue", "pgr", "subset"):
        oracle = ldp.oracle(name, "2", domain_size=50)
        before, after = (collected(rng, oracle, each, 40_000) for each in (f, later))
        found = between_sets(before, after, [*queries, ldp.query.SetQuery("all", list(range(50)))])
        assert found.found.tolist() == [0], name
    assert between_sets(before, after, []).found.size == 0


def test_a_set_of_the_only_value_changes_like_the_value():
    """The whole domain has frequency 1, except for one value, which is the share of yes."""
    oracle, yes = ldp.Unary("3/4", "1/4", domain_size=1), ldp.query.SetQuery("yes", [0])
    before, after = oracle.estimate([4000], 10_000), oracle.estimate([4600], 10_000)
    one, sets = between(before, after), between_sets(before, after, [yes])
    assert one.found.tolist() == sets.found.tolist() == [0]
    assert sets.log_e == pytest.approx(one.log_e)


def test_incomparable_estimates_are_refused():
    grr, oue = ldp.GRR("1", domain_size=2), ldp.OUE("1", domain_size=2)
    one, other = grr.estimate([50, 50], 100), oue.estimate([50, 50], 100)
    with pytest.raises(ValueError, match="cannot be compared"):
        between(one, other)
    for level in (0.0, 1.0):
        with pytest.raises(ValueError, match=f"level is {level}; allowed is a number"):
            between(one, one, level)
    with pytest.raises(ValueError, match="at_least must be"):
        between(one, one, at_least=-0.1)
    with pytest.raises(TypeError, match="an Estimate is needed"):
        between([0.5, 0.5], one)
