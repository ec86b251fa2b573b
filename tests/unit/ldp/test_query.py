"""Answers to queries under each method, and their errors."""

from math import sqrt

import numpy as np
import pytest
from scipy.stats import norm as gaussian

import ldp
from ldp import query
from ldp.consistency import EXTRA, METHODS
from ldp.oracles import ORACLES
from tests.support.estimates import estimated
from tests.unit.ldp.test_laws import reports

ORACLE = ldp.oracle("olh", epsilon="1", domain_size=6)
ESTIMATE = ldp.Estimate(np.array([0.75, 0.375, 0.0625, -0.125, -0.25, -0.5]), 1000, ORACLE)


@pytest.mark.parametrize("method", [name for name in METHODS | EXTRA if name != "post-pos"])
def test_a_set_is_the_sum_over_the_vector_of_a_method(method):
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


@pytest.mark.parametrize(
    ("subset", "method", "error", "said"),
    [
        ([0], "norm-subs", ValueError, "'norm-subs'.*norm-sub, mle-apx.*empirical-bayes"),
        ([0, 6], "base", ValueError, r"0\.\.5, got 6"),
        ([-1, 2], "base", ValueError, r"0\.\.5, got -1"),
        ([1, 2, 1], "base", ValueError, "distinct"),
        ([0.0, 1.0], "base", TypeError, r"not 0\.0 \(float\)"),
        ([True, False], "base", TypeError, "bool"),
        ([[0, 1]], "base", ValueError, r"\(1, 2\)"),
        (3, "base", TypeError, r"a vector of integers from 0 to 5, not 3 \(int\)"),
    ],
)
def test_bad_queries_are_named(subset, method, error, said):
    with pytest.raises(error, match=said):
        ldp.answer(ESTIMATE, subset, method)


def two_reports_laws():
    """A few protocols of each kind, small enough that `reports` writes out all of their reports."""
    return [
        *(ldp.oracle(name, "1", 5) for name in ("grr", "oue", "subset", "hadamard", "pgr")),
        ldp.OLH("1", 4, g=3),
        ldp.HadamardResponse("3", 7),
    ]


def set_variances(oracle, subset):
    """V_u from every report with its probability: (d,)."""
    supports, probabilities = reports(oracle)
    supported = supports[:, list(subset)].sum(axis=1)
    means = probabilities @ supported
    return probabilities @ supported**2 - means**2


@pytest.mark.parametrize("oracle", two_reports_laws(), ids=repr)
def test_the_standard_error_of_every_set(oracle):
    """If Base is exact: the root of Σ_u n_u·V_u/(n(p−q))², from every report with its probability."""
    d, n = oracle.domain_size, 10_000
    users = np.array([5000, 0, 2500, 1500, 700, 300, 0][:d])
    users[0] += n - users.sum()
    estimate = ldp.Estimate(users / n, n, oracle)
    for members in range(1, 1 << d):
        subset = [v for v in range(d) if members >> v & 1]
        variance = users @ set_variances(oracle, subset) / (n * float(oracle.p - oracle.q)) ** 2
        assert query.std_error(estimate, subset) == pytest.approx(sqrt(max(variance, 0)), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("oracle", two_reports_laws(), ids=repr)
def test_the_interval_of_every_set_matches_its_definition(oracle):
    """At the interval's ends F̃ is z standard errors off, with the variance at that end."""
    d, n = oracle.domain_size, 3000
    users = np.array([1500, 600, 0, 600, 200, 100, 0][:d])
    users[0] += n - users.sum()
    estimate = ldp.Estimate(users / n, n, oracle)
    z = gaussian.ppf(0.975)
    for members in range(1, (1 << d) - 1):
        subset = [v for v in range(d) if members >> v & 1]
        others = [v for v in range(d) if v not in subset]
        variances = set_variances(oracle, subset)
        inside, outside = (
            np.average(variances[group], weights=users[group] if users[group].any() else None)
            for group in (subset, others)
        )
        answer = users[subset].sum() / n
        ends = query.interval(estimate, subset, 0.95)
        assert ends[0] < answer < ends[1]
        for f in ends:
            variance = ((1 - f) * outside + f * inside) / (n * float(oracle.p - oracle.q) ** 2)
            assert abs(answer - f) == pytest.approx(z * sqrt(variance), rel=1e-6)


@pytest.mark.parametrize("name", ORACLES)
def test_sets_of_one_value_equal_the_estimates(name):
    oracle = ldp.oracle(name, "2", 50)
    estimate = estimated(oracle, np.random.default_rng(4).integers(0, 900, 50), 1000)
    low, high = estimate.interval(0.9)
    for v in (0, 17, 49):
        assert query.interval(estimate, [v], 0.9) == (low[v], high[v])
        assert query.std_error(estimate, [v]) == pytest.approx(estimate.std_error()[v], rel=1e-14)


def test_the_whole_domain_has_an_exact_interval():
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


@pytest.mark.parametrize(
    ("subset", "error", "said"),
    [
        ([], ValueError, "at least one value"),
        ([0, 6], ValueError, r"0\.\.5, got 6"),
        ([1, 1], ValueError, "distinct"),
        ([1.0], TypeError, "float"),
    ],
)
def test_invalid_sets_are_refused(subset, error, said):
    with pytest.raises(error, match=said):
        query.std_error(ESTIMATE, subset)
    with pytest.raises(error, match=said):
        query.interval(ESTIMATE, subset)
    for level in (0.0, 1.0, float("nan")):
        with pytest.raises(ValueError, match=f"level is {level}; allowed"):
            query.top_interval(ESTIMATE, 2, level)


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


def covered(oracle, n, k, truth, runs):
    """The share of runs in which all k intervals cover; k different counts are passed at a time, as if the top."""
    order = np.argsort(-runs, axis=1, kind="stable")[:, :k]
    chosen = np.take_along_axis(runs, order, axis=1)
    there, place = np.unique(chosen, return_inverse=True)
    low, high = np.empty(len(there)), np.empty(len(there))
    for start in range(0, len(there), k):
        some = there[max(0, min(start, len(there) - k)) :][:k]
        counts = np.zeros(oracle.domain_size, np.int64)
        counts[: len(some)] = some[::-1]
        ends = query.top_interval(estimated(oracle, counts, n), k)
        at = np.searchsorted(there, some)
        low[at], high[at] = (end[: len(some)][::-1] for end in ends)
    place = place.reshape(chosen.shape)
    return ((low[place] <= truth[order]) & (truth[order] <= high[place])).all(axis=1).mean()


@pytest.mark.slow
@pytest.mark.parametrize("name", ORACLES)
def test_intervals_of_all_top_values_cover_together(name):
    """97.5 % of 600 runs are expected; 93.5 % is 6 standard deviations below."""
    oracle, n, k = ldp.oracle(name, "1", 16), 1000, 8
    rng = np.random.default_rng(8)
    users = np.array([200, 150, 120, 90, *[40] * 10, 20, 20])
    runs = np.array([oracle.simulate(users, rng) for _ in range(600)])
    assert covered(oracle, n, k, users / n, runs) >= 0.935


@pytest.mark.slow
def test_intervals_of_top_values_cover_tightly_in_the_hardest_case():
    """Some values are surely on top, where underestimates hurt; one is there only by overestimation."""
    oracle, n, d, k, runs = ldp.OUE("1", 30), 30_000, 30, 4, 5_000
    users = np.array([6000] * (k - 1) + [12_000 // (d - k + 1)] * (d - k + 1))
    users[-1] += n - users.sum()
    rng = np.random.default_rng(9)
    counts = rng.binomial(users, 0.5, (runs, d)) + rng.binomial(n - users, float(oracle.q), (runs, d))
    share = covered(oracle, n, k, users / n, counts)
    assert 0.95 - 5 * sqrt(0.05 * 0.95 / runs) <= share <= 0.97


@pytest.mark.parametrize(
    ("name", "values", "error", "said"),
    [
        ("q", 0, TypeError, "query 'q': values are 0; they must be a list or tuple of value indices"),
        ("q", (0.0,), TypeError, "query 'q': a value must be an integer"),
        ("q", (-1,), ValueError, "query 'q': a value is -1"),
        ("q", (1, 1), ValueError, "query 'q' must list at least one value, and no value twice"),
        ("", (1,), ValueError, "a query's name is empty"),
        ("\udfff", (1,), ValueError, "surrogates are not allowed"),
        ("a\0", (1,), ValueError, "control characters are not allowed"),
        ("x" * 201, (1,), ValueError, "201 characters; allowed are 200"),
    ],
)
def test_bad_set_queries_are_refused(name, values, error, said):
    with pytest.raises(error, match=said):
        query.SetQuery(name, values)
    if isinstance(values, tuple) and values == (1,):
        with pytest.raises(error, match=said):
            query.TopQuery(name, 1)


def test_the_queries_of_a_domain():
    sets = query.SetQuery("a", (2,)), query.SetQuery("b", (0, 1))
    most = query.TopQuery("most", 3)
    assert query.of_domain([sets[0], most, sets[1]], 3) == (sets, (most,))
    assert query.of_domain((), 3) == ((), ())
    for k, error in (([1], TypeError), (True, TypeError), (0, ValueError)):
        with pytest.raises(error, match="query 'q': top "):
            query.TopQuery("q", k)
    for given, error, said in [
        ([sets[0]], ValueError, "query 'a': a value is 2; allowed is 0 to 1"),
        ([most], ValueError, "query 'most': top is 3; allowed is 1 to 2"),
        ([sets[1], query.SetQuery("b", (0,))], ValueError, "two queries are named 'b'"),
        ([sets[1], query.TopQuery("b", 1)], ValueError, "two queries are named 'b'"),
        ([("b", (0,))], TypeError, "a SetQuery or a TopQuery, not tuple"),
    ]:
        with pytest.raises(error, match=said):
            query.of_domain(given, 2)
