"""Answers for sets under each method; the error of Base's for sets and for the most frequent values."""

from math import sqrt

import numpy as np
import pytest
from scipy import stats
from scipy.stats import norm as gaussian

import ldp
from ldp import query
from ldp.consistency import EXTRA, METHODS
from ldp.oracles import ORACLES
from ldp.set_variance import SetVariance
from tests.estimates import estimated
from tests.unit.ldp.test_laws import reports

ORACLE = ldp.oracle("olh", epsilon="1", domain_size=6)
ESTIMATE = ldp.Estimate(np.array([0.75, 0.375, 0.0625, -0.125, -0.25, -0.5]), 1000, ORACLE)


@pytest.mark.parametrize("method", [name for name in METHODS | EXTRA if name != "post-pos"])
def test_a_set_is_the_sum_of_the_methods_vector(method):
    vector = (METHODS | EXTRA)[method](ESTIMATE)
    for subset in ([0], [4, 1], [5, 4, 3], range(6)):
        assert ldp.answer(ESTIMATE, subset, method) == pytest.approx(
            sum(vector[v] for v in subset), abs=1e-15
        )


def test_post_pos_clamps_the_query_not_the_values():
    assert ldp.answer(ESTIMATE, [0, 3], "post-pos") == 0.625  # base-pos would answer 0.75
    assert ldp.answer(ESTIMATE, [2, 3, 4], "post-pos") == 0.0
    assert ldp.answer(ESTIMATE, [2, 3, 4], "base") == -0.3125
    assert ldp.answer(ESTIMATE, [2, 3, 4], "base-pos") == 0.0625
    for v in range(6):
        assert ldp.answer(ESTIMATE, [v], "post-pos") == METHODS["post-pos"](ESTIMATE)[v]


@pytest.mark.parametrize("method", METHODS)
def test_the_empty_set_and_the_whole(method):
    assert ldp.answer(ESTIMATE, [], method) == 0.0
    assert isinstance(ldp.answer(ESTIMATE, np.arange(6, dtype=np.uint8), method), float)


@pytest.mark.parametrize(
    ("subset", "method", "error", "said"),
    [
        ([0], "norm-subs", ValueError, "'norm-subs'.*norm-sub, mle-apx.*empirical-bayes"),
        ([0, 6], "base", ValueError, r"0\.\.5, got 6"),
        ([-1, 2], "base", ValueError, r"0\.\.5, got -1"),
        ([1, 2, 1], "base", ValueError, "distinct"),
        ([0.0, 1.0], "base", TypeError, "float64"),
        ([True, False], "base", TypeError, "bool"),
        ([[0, 1]], "base", ValueError, r"\(1, 2\)"),
        (3, "base", ValueError, r"shape \(\)"),
    ],
)
def test_bad_queries_are_named(subset, method, error, said):
    with pytest.raises(error, match=said):
        ldp.answer(ESTIMATE, subset, method)


# the error of a set


def two_reports_laws():
    """A few protocols of each kind, small enough that `reports` writes out all of their reports."""
    return [
        *(ldp.oracle(name, "1", 6) for name in ("grr", "oue", "sue", "subset", "hadamard", "pgr")),
        ldp.OLH("1", 4, g=3),
        ldp.SubsetSelection("2", 6, k=3),
        ldp.HadamardResponse("3", 7),
        ldp.PGR("2", 7, prime=2, dimension=3),
    ]


def set_variances(oracle, subset):
    """V_u from every report with its probability: (d,)."""
    supports, probabilities = reports(oracle)
    supported = supports[:, list(subset)].sum(axis=1)
    means = probabilities @ supported
    return probabilities @ supported**2 - means**2


@pytest.mark.parametrize("oracle", two_reports_laws(), ids=repr)
def test_the_standard_error_of_every_set(oracle):
    """Where Base says the truth: the root of Σ_u n_u·V_u/(n(p−q))², from every report with its probability."""
    d, n = oracle.domain_size, 10_000
    users = np.array([5000, 0, 2500, 1500, 700, 300, 0][:d])
    users[0] += n - users.sum()
    estimate = ldp.Estimate(users / n, n, oracle)
    for members in range(1, 1 << d):
        subset = [v for v in range(d) if members >> v & 1]
        variance = users @ set_variances(oracle, subset) / (n * float(oracle.p - oracle.q)) ** 2
        assert query.std_error(estimate, subset) == pytest.approx(sqrt(max(variance, 0)), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("oracle", two_reports_laws(), ids=repr)
@pytest.mark.parametrize("level", [0.5, 0.95])
def test_the_interval_of_every_set_is_that_of_its_definition(oracle, level):
    """At its ends F̃ is z standard errors off, with the variance of the truth that is there."""
    d, n = oracle.domain_size, 3000
    users = np.array([1500, 600, 0, 600, 200, 100, 0][:d])
    users[0] += n - users.sum()
    estimate = ldp.Estimate(users / n, n, oracle)
    z = gaussian.ppf(0.5 + level / 2)
    for members in range(1, (1 << d) - 1):
        subset = [v for v in range(d) if members >> v & 1]
        others = [v for v in range(d) if v not in subset]
        variances = set_variances(oracle, subset)
        inside, outside = (
            np.average(variances[group], weights=users[group] if users[group].any() else None)
            for group in (subset, others)
        )
        answer = users[subset].sum() / n
        ends = query.interval(estimate, subset, level)
        assert ends[0] < answer < ends[1]
        for f in ends:
            variance = ((1 - f) * outside + f * inside) / (n * float(oracle.p - oracle.q) ** 2)
            assert abs(answer - f) == pytest.approx(z * sqrt(variance), rel=1e-6)


@pytest.mark.parametrize("name", ORACLES)
def test_of_one_value_they_are_the_estimates(name):
    oracle = ldp.oracle(name, "2", 50)
    estimate = estimated(oracle, np.random.default_rng(4).integers(0, 900, 50), 1000)
    low, high = estimate.interval(0.9)
    for v in (0, 17, 49):
        assert query.interval(estimate, [v], 0.9) == (low[v], high[v])
        assert query.std_error(estimate, [v]) == pytest.approx(estimate.std_error()[v], rel=1e-14)


def test_of_the_whole_domain():
    counts = np.array([700, 200, 50, 50])
    for oracle in (ldp.GRR("1", 4), ldp.SubsetSelection("1", 4, k=1)):
        estimate = oracle.estimate(counts, 1000)
        assert query.interval(estimate, range(4)) == (1.0, 1.0)
        assert query.std_error(estimate, range(4)) == 0.0
    oue = ldp.OUE("1", 4)  # four bits, each with its own error
    estimate = oue.estimate(counts, 1000)
    low, high = query.interval(estimate, range(4))
    q = float(oue.q)
    error = sqrt((0.25 + 3 * q * (1 - q)) / 1000) / (0.5 - q)
    assert (low + high) / 2 == pytest.approx(ldp.answer(estimate, range(4), "base"))
    assert (high - low) / 2 == pytest.approx(gaussian.ppf(0.975) * error)


@pytest.mark.slow
@pytest.mark.parametrize("oracle", [ldp.GRR("1", 100_000), ldp.SubsetSelection("1", 100_000)], ids=repr)
@pytest.mark.parametrize("m", [2, 50_000, 99_998])
def test_a_set_and_its_complement_are_as_uncertain(oracle, m):
    """Their answers sum to 1, whatever the reports are: no digit may be lost in large sets."""
    rng = np.random.default_rng(6)
    order, n = rng.permutation(oracle.domain_size), 10**9
    frequencies = rng.dirichlet(np.full(oracle.domain_size, 0.1))
    estimate = ldp.Estimate(frequencies, n, oracle)
    subset, others = order[:m], order[m:]
    assert query.std_error(estimate, subset) == pytest.approx(query.std_error(estimate, others), rel=1e-9)
    low, high = query.interval(estimate, subset)
    assert (1 - high, 1 - low) == pytest.approx(query.interval(estimate, others), rel=1e-9, abs=1e-12)


def test_a_set_s_variance_is_of_its_protocol():
    variance = SetVariance(ldp.GRR("1", 6), [1, 2])
    with pytest.raises(ValueError, match=r"OLH.*GRR"):
        variance.interval(ESTIMATE, 0.95)


@pytest.mark.parametrize(
    ("subset", "error", "said"),
    [
        ([], ValueError, "at least one value"),
        ([0, 6], ValueError, r"0\.\.5, got 6"),
        ([1, 1], ValueError, "distinct"),
        ([1.0], TypeError, "float64"),
    ],
)
def test_what_is_no_set_has_no_error(subset, error, said):
    with pytest.raises(error, match=said):
        query.std_error(ESTIMATE, subset)
    with pytest.raises(error, match=said):
        query.interval(ESTIMATE, subset)


@pytest.mark.parametrize("level", [0.0, 1.0, 95, float("nan")])
def test_a_level_that_is_none(level):
    with pytest.raises(ValueError, match=f"got {level}"):
        query.interval(ESTIMATE, [1, 2], level)
    with pytest.raises(ValueError, match=f"got {level}"):
        query.top_interval(ESTIMATE, 2, level)


# coverage of sets: 95 % ± 1 % of 20,000 runs, which is 6.5 standard deviations of how many they are

RUNS = 20_000


def counts_of_ten(oracle, rng):
    """The count of ten of a hundred values, 4,000 users inside and 6,000 outside: (RUNS,)."""
    p, q = float(oracle.p), float(oracle.q)
    sums = np.zeros(RUNS, np.int64)
    for users, own in ((4000, 1), (6000, 0)):
        match oracle.name:
            case "grr":
                laws = stats.bernoulli.pmf(np.arange(2), p + 9 * q if own else 10 * q)
            case "subset":
                rest = stats.hypergeom(99, 10 - own, np.array([[oracle.k - 1], [oracle.k]]))
                with_own, without = rest.pmf(np.arange(-own, 11 - own))[0], rest.pmf(np.arange(11))[1]
                laws = p * with_own + (1 - p) * without
            case _:  # each value by itself
                laws = np.convolve(
                    stats.bernoulli.pmf([0, 1], p if own else 0),
                    stats.binom.pmf(range(11 - own), 10 - own, q),
                )
        sums += rng.multinomial(users, laws / laws.sum(), RUNS) @ np.arange(len(laws))
    return sums


@pytest.mark.parametrize("epsilon", ["1", "4"])
@pytest.mark.parametrize("name", ["grr", "olh", "oue", "sue", "subset"])
def test_95_per_cent_of_the_intervals_of_a_set_cover(name, epsilon):
    oracle, n = ldp.oracle(name, epsilon, 100), 10_000
    counts = counts_of_ten(oracle, np.random.default_rng(20200223))
    variance = SetVariance(oracle, range(10, 20))
    covered = 0
    for count, runs in zip(*np.unique(counts, return_counts=True), strict=True):
        frequencies = np.zeros(100)
        frequencies[10:20] = (count / n / 10 - float(oracle.q)) / float(oracle.p - oracle.q)
        low, high = variance.interval(ldp.Estimate(frequencies, n, oracle), 0.95)
        covered += runs * (low <= 0.4 <= high)
    assert 0.94 <= covered / RUNS <= 0.96


@pytest.mark.long
@pytest.mark.parametrize(
    ("oracle", "members", "users"),
    [
        # the last of a subgroup or a line, but for which the set would be one: V_u is 1.5 or 2.2 times the others'
        (ldp.HadamardResponse("1", 15), range(6), {0: 15_000, 6: 50_000, 9: 5000}),
        (ldp.PGR("1", 13, prime=3, dimension=3), range(3), {0: 15_000, 3: 40_000, 9: 5000}),
    ],
    ids=repr,
)
def test_95_per_cent_cover_where_it_matters_which_values_the_users_have(oracle, members, users):
    rng = np.random.default_rng(20200223)
    supports, probabilities = reports(oracle)
    n = sum(users.values())
    drawn = sum(rng.multinomial(count, probabilities[v], RUNS) for v, count in users.items())
    truth = sum(count for v, count in users.items() if v in members) / n
    variance = SetVariance(oracle, members)
    covered = 0
    for counts in drawn @ supports:
        low, high = variance.interval(oracle.estimate(counts, n), 0.95)
        covered += low <= truth <= high
    assert 0.94 <= covered / RUNS <= 0.96


# the most frequent values


def test_the_top_is_in_the_order_of_base():
    frequencies = [0.1, 0.3, 0.1, -0.2, 0.3, 0.1]
    estimate = ldp.Estimate(frequencies, 1000, ORACLE)
    assert query.top(estimate, 6).tolist() == [1, 4, 0, 2, 5, 3]
    assert query.top(estimate, 1).tolist() == [1]
    for method in (METHODS | EXTRA).values():
        answers = method(estimate)[query.top(estimate, 6)]
        assert (np.diff(answers) <= 0).all()
    for k in (0, 7):
        with pytest.raises(ValueError, match="allowed is 1 to 6"):
            query.top(estimate, k)
        with pytest.raises(ValueError, match="allowed is 1 to 6"):
            query.top_interval(estimate, k)
    with pytest.raises(TypeError, match="integer"):
        query.top(estimate, 2.0)


def covered(oracle, n, k, truth, runs, interval=query.top_interval):
    """In how many runs all k intervals cover; (runs, d) are the counts.

    An interval depends on the value's count alone, so those of k counts are made at a time, as if they were the top.
    """
    order = np.argsort(-runs, axis=1, kind="stable")[:, :k]
    chosen = np.take_along_axis(runs, order, axis=1)
    there, place = np.unique(chosen, return_inverse=True)
    low, high = np.empty(len(there)), np.empty(len(there))
    for start in range(0, len(there), k):
        some = there[max(0, min(start, len(there) - k)) :][:k]
        counts = np.zeros(oracle.domain_size, np.int64)
        counts[: len(some)] = some[::-1]
        ends = interval(estimated(oracle, counts, n), k)
        at = np.searchsorted(there, some)
        low[at], high[at] = (end[: len(some)][::-1] for end in ends)
    place = place.reshape(chosen.shape)
    return ((low[place] <= truth[order]) & (truth[order] <= high[place])).all(axis=1).mean()


def score_intervals(estimate, k):
    """What would be natural: the score intervals of the level 1 − 0.05/d."""
    values = query.top(estimate, k)
    low, high = estimate.interval(1 - 0.05 / estimate.oracle.domain_size)
    return low[values], high[values]


@pytest.mark.slow
@pytest.mark.parametrize("name", ORACLES)
def test_all_of_the_top_are_covered(name):
    """In 97.5 % of 1,500 runs or so; 95 % is 5 standard deviations of how many they are below."""
    oracle, n, k = ldp.oracle(name, "1", 16), 1000, 8
    rng = np.random.default_rng(8)
    users = np.array([200, 150, 120, 90, *[40] * 10, 20, 20])
    assert users.sum() == n
    runs = np.array([oracle.simulate(users, rng) for _ in range(1500)])
    assert covered(oracle, n, k, users / n, runs) >= 0.95


@pytest.mark.slow
def test_all_of_the_top_are_covered_where_that_is_hardest_and_not_much_more():
    """Some that are surely on top, where underestimates hurt; one that is there for being overestimated."""
    oracle, n, d, k, runs = ldp.OUE("1", 30), 30_000, 30, 4, 20_000
    users = np.array([6000] * (k - 1) + [12_000 // (d - k + 1)] * (d - k + 1))
    users[-1] += n - users.sum()
    rng = np.random.default_rng(9)
    counts = rng.binomial(users, 0.5, (runs, d)) + rng.binomial(n - users, float(oracle.q), (runs, d))
    share = covered(oracle, n, k, users / n, counts)
    assert 0.95 - 5 * sqrt(0.05 * 0.95 / runs) <= share <= 0.97


@pytest.mark.parametrize("name", ["grr", "olh", "oue"])
def test_all_of_the_top_are_covered_where_the_counts_are_small(name):
    """Counts of one or a few reports are far from normal: score intervals would cover in 90 % or less."""
    oracle, n, k = ldp.oracle(name, "7" if name != "grr" else "1", 1000), 1000, 5
    users = np.array([40, 30, 20, 10, *[1] * 900, *[0] * 96])
    rng = np.random.default_rng(10)
    runs = np.array([oracle.simulate(users, rng) for _ in range(1500)])
    assert covered(oracle, n, k, users / n, runs) >= 0.95
    assert covered(oracle, n, k, users / n, runs, score_intervals) < 0.9


# the queries themselves


def test_a_query_is_frozen_and_compares_by_what_it_asks():
    warm = query.SetQuery("warm", [2, np.int64(0)])
    assert (warm.values, warm) == ((2, 0), query.SetQuery("warm", (2, 0)))
    assert hash(warm) == hash(query.SetQuery("warm", (2, 0)))
    assert warm != query.SetQuery("warm", (0, 2))
    assert query.TopQuery("warm", np.int64(2)) == query.TopQuery("warm", 2)


@pytest.mark.parametrize(
    ("name", "values", "error", "said"),
    [
        ("q", 0, TypeError, "query 'q': 0 given; a list or tuple of value indices is needed"),
        ("q", "01", TypeError, "query 'q': '01' given"),
        ("q", {1: 2}, TypeError, "query 'q': "),
        ("q", (0.0,), TypeError, "query 'q': a value must be an integer"),
        ("q", (True,), TypeError, "query 'q': a value must be an integer"),
        ("q", (-1,), ValueError, "query 'q': a value is -1"),
        ("q", (), ValueError, "query 'q' must list at least one value, each once"),
        ("q", (1, 1), ValueError, "query 'q' must list at least one value, each once"),
        ("", (1,), ValueError, "a query's name is empty"),
        (1, (1,), TypeError, "a query's name is 1"),
        ("\udfff", (1,), ValueError, "which UTF-8 cannot write"),
        ("a\0", (1,), ValueError, "control characters are not allowed"),
        ("x" * 201, (1,), ValueError, "201 characters; allowed are 200"),
    ],
)
def test_bad_queries_for_sets(name, values, error, said):
    with pytest.raises(error, match=said):
        query.SetQuery(name, values)


@pytest.mark.parametrize(
    ("name", "k", "error", "said"),
    [
        ("q", [1], TypeError, "query 'q': top must be an integer"),
        ("q", True, TypeError, "query 'q': top must be an integer"),
        ("q", 0, ValueError, "query 'q': top is 0"),
        ("", 1, ValueError, "a query's name is empty"),
    ],
)
def test_bad_queries_for_the_top(name, k, error, said):
    with pytest.raises(error, match=said):
        query.TopQuery(name, k)


def test_the_queries_of_a_domain():
    sets = query.SetQuery("a", (2,)), query.SetQuery("b", (0, 1))
    most = query.TopQuery("most", 3)
    assert query.of_domain([sets[0], most, sets[1]], 3) == (sets, (most,))
    assert query.of_domain((), 3) == ((), ())
    for given, error, said in [
        ([sets[0]], ValueError, "query 'a': a value is 2; allowed is 0 to 1"),
        ([most], ValueError, "query 'most': top is 3; allowed is 1 to 2"),
        ([sets[1], query.SetQuery("b", (0,))], ValueError, "two queries are named 'b'"),
        ([sets[1], query.TopQuery("b", 1)], ValueError, "two queries are named 'b'"),
        ([("b", (0,))], TypeError, "a SetQuery or a TopQuery, not tuple"),
    ]:
        with pytest.raises(error, match=said):
            query.of_domain(given, 2)


def test_a_set_s_variance_is_made_once_a_protocol():
    two, pgr, grr = query.SetQuery("two", (5, 1)), ldp.PGR("1", 13), ldp.GRR("1", 6)
    assert two.variance(pgr).indices.tolist() == [5, 1]
    assert two.variance(ldp.PGR("1", 13)) is two.variance(pgr)
    assert two.variance(grr) is not two.variance(pgr)
    with pytest.raises(ValueError, match=r"0\.\.4, got 5"):
        two.variance(ldp.GRR("1", 5))
