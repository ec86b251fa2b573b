"""Each method against an independent derivation; shared promises."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import norm as gaussian

import ldp
from ldp.consistency import EXTRA, FOR_ONE_VALUE, METHODS, chosen
from ldp.consistency.normalization import project_on_simplex
from ldp.summation import BLOCK, exact_sum

pytestmark = pytest.mark.statistical

ALL = METHODS | EXTRA
SHRINK = ["power", "power-ns", "empirical-bayes"]  # towards their prior, and again when applied again


def protocol(kind, d, epsilon="1"):
    if kind == "grr":
        return ldp.oracle("grr", epsilon=epsilon, domain_size=d)
    return ldp.oracle("olh", epsilon=epsilon, domain_size=d, **({"g": 2} if kind == "blh" else {}))


def inputs(d=7):
    """Estimates of every awkward kind, under p + q < 1, = 1 and > 1."""
    rng = np.random.default_rng(d)
    for kind in ("grr", "olh", "blh"):
        for epsilon in ("1/5", "6"):
            oracle = protocol(kind, d, epsilon)
            p, q = float(oracle.p), float(oracle.q)
            most_negative = -q / (p - q)
            spread = ldp.Estimate(np.zeros(d), 300, oracle).sigma
            truth = rng.dirichlet(np.full(d, 0.5))
            shapes = {
                "random": truth + spread * rng.normal(size=d),
                "tied": np.round(4 * (truth + spread * rng.normal(size=d))) / 4,
                "all equal": np.full(d, 0.3),
                "all zero": np.zeros(d),
                "all negative": most_negative * rng.uniform(0.1, 0.9, d),
                "tiny": 1e-12 * rng.normal(size=d),
                "sum below 1": 0.2 * truth - 0.01,
                "one above 1": np.where(np.arange(d) == 2, 1.2, -0.1),
                "two above 1": np.where(np.arange(d) % 5 == 2, 1.2, 0.1),
                "an exact sum of 1": np.full(d, 1 / d),
            }
            for name, frequencies in shapes.items():
                possible = np.clip(frequencies, most_negative, (1 - q) / (p - q))
                yield f"{kind}-{epsilon}-d={d}-{name}", ldp.Estimate(possible, 300, oracle)
            yield f"{kind}-{epsilon}-d={d}-n=1", oracle.estimate((np.arange(d) == d // 2).astype(int), 1)


SMALL = [*inputs(2), *inputs(7)]


def test_base_and_its_clamps():
    for _, estimate in [*inputs(1), *SMALL]:
        f = estimate.frequencies.tolist()
        assert METHODS["base"](estimate).tolist() == f
        clamped = [x if x > 0 else 0.0 for x in f]
        assert METHODS["base-pos"](estimate).tolist() == clamped
        assert METHODS["post-pos"](estimate).tolist() == clamped


def test_base_cut():
    for what, estimate in [*inputs(1), *SMALL, *inputs(5)]:
        d = len(estimate.frequencies)
        # On average, two of d noise values exceed T; a median or less is not a threshold.
        threshold = gaussian.isf(2 / d, scale=estimate.sigma) if d > 4 else 0.0
        expected = [x if x >= max(threshold, 0.0) else 0.0 for x in estimate.frequencies]
        assert METHODS["base-cut"](estimate).tolist() == expected, what


def test_norm():
    for _, estimate in SMALL:
        exact = [Fraction(x) for x in estimate.frequencies]
        delta = (1 - sum(exact)) / len(exact)
        np.testing.assert_allclose(METHODS["norm"](estimate), [float(x + delta) for x in exact], atol=1e-14)


@pytest.mark.parametrize("method", ALL)
def test_other_types_are_refused_with_a_hint(method):
    given = (0.5, 0.5)
    says = rf"an Estimate is needed, not a {type(given).__name__}.*oracle\.estimate\(counts, n\)"
    with pytest.raises(TypeError, match=says):
        ALL[method](given)
    with pytest.raises(TypeError, match=says):
        ldp.answer(given, [0], method)
    for call in (ldp.query.std_error, ldp.query.interval, ldp.query.top, ldp.query.top_interval):
        with pytest.raises(TypeError, match=says):
            call(given, 1)


def test_norm_mul():
    for _, estimate in SMALL:
        exact = [max(Fraction(x), Fraction(0)) for x in estimate.frequencies]
        total = sum(exact)
        expected = [float(x / total) if total else 1 / len(exact) for x in exact]
        np.testing.assert_allclose(METHODS["norm-mul"](estimate), expected, rtol=1e-14)


def test_norm_cut():
    """Every threshold is tried; a sum is at most 1 if it is that up to the rounding of the estimates."""
    for _, estimate in SMALL:
        f = estimate.frequencies
        slack = Fraction(1, 10**12)
        candidates = [
            [Fraction(x) if x >= theta else Fraction(0) for x in f] for theta in sorted(x for x in f if x > 0)
        ]
        fitting = [kept for kept in candidates if sum(kept) <= 1 + slack]
        if not candidates:
            expected = np.zeros(len(f))
        elif fitting:  # ascending thresholds: the first is the smallest
            expected = np.array([float(x) for x in fitting[0]])
        else:
            largest = f == max(f)
            expected = largest / np.sum(largest)
        np.testing.assert_array_equal(METHODS["norm-cut"](estimate), expected)


def test_norm_cut_keeps_estimates_that_sum_to_one_despite_rounding():
    """GRR's estimates sum to 1; without a guard for rounding about half of these would lose their smallest."""
    rng = np.random.default_rng(5)
    for d, epsilon in itertools.product((2, 3, 1000), ("1/100", "20")):
        oracle = protocol("grr", d, epsilon)
        for _ in range(20):
            n = 10**6
            p, q = float(oracle.p), float(oracle.q)
            counts = np.floor(n * (q + (p - q) * rng.dirichlet(np.full(d, 9.0)))).astype(np.int64)
            counts[0] += n - counts.sum()
            estimate = oracle.estimate(counts, n)
            if (estimate.frequencies > 0).all():
                np.testing.assert_array_equal(METHODS["norm-cut"](estimate), estimate.frequencies)


@pytest.mark.slow
@pytest.mark.parametrize("m", [1, 9, BLOCK + 1])
@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e200])
def test_exact_sum_is_exact_in_every_order(m, scale):
    rng = np.random.default_rng(m)
    for unscaled in (
        rng.normal(size=m) * 10.0 ** rng.uniform(-12, 0, m),
        -rng.random(m),
        np.full(m, 1 / 3),
        np.append(rng.random(m - 1), 0.0) - np.append(0.0, rng.random(m - 1)),
    ):
        values = unscaled * scale
        values[: m // 2] = -values[m - m // 2 :]  # cancellation leaves the small terms
        found = exact_sum(values)
        exact = sum(Fraction(x) for x in values.tolist())
        slack = m * Fraction(float(np.abs(values).max())) / 2**75 + abs(exact) / 2**53 + Fraction(5e-324)
        assert abs(Fraction(found) - exact) <= slack
        assert exact_sum(rng.permutation(values)) == found


@pytest.mark.parametrize(
    "values",
    [
        0.5 ** np.arange(60.0),  # each round of the search drops few
        -(np.arange(3000.0) ** 2),
        np.linspace(-1, 1, 5001),
        np.full(4000, -7.0),
        np.append(np.full(3999, 1e-4), 5.0),
        np.random.default_rng(2).normal(size=20_000) * 1e-5,
    ],
    ids=["powers of two", "squares", "line", "equal", "one large", "noise"],
)
def test_projection_meets_its_conditions(values):
    """max(v + δ, 0) that sums to 1, for some δ: no other vector is the projection."""
    found = project_on_simplex(values)
    kept = found > 0
    shift = np.median((found - values)[kept])
    np.testing.assert_allclose(
        found, np.maximum(values + shift, 0), atol=1e-15 * np.abs(values).max() + 1e-15
    )
    assert abs(math.fsum(found) - 1) <= 1e-12


def quadratic(estimate):
    """MLE-Apx's objective and gradient, as the paper prints them (without n/2)."""
    f, p, q = estimate.frequencies, float(estimate.oracle.p), float(estimate.oracle.q)

    def objective(x):
        variance = q * (1 - q) * (1 - x) + p * (1 - p) * x
        return float(np.sum((x - f) ** 2 / variance))

    def gradient(x):
        variance = q * (1 - q) * (1 - x) + p * (1 - p) * x
        slope = p * (1 - p) - q * (1 - q)
        return 2 * (x - f) / variance - slope * ((x - f) / variance) ** 2

    return objective, gradient


def least_squares(estimate):
    """Norm-Sub's objective and gradient."""
    f = estimate.frequencies
    return (lambda x: float(np.sum((x - f) ** 2))), (lambda x: 2 * (x - f))


PROGRAMS = [("norm-sub", least_squares), ("mle-apx", quadratic)]


@pytest.mark.slow
@pytest.mark.parametrize(("method", "program"), PROGRAMS)
@pytest.mark.parametrize("estimate", [pytest.param(each, id=name) for name, each in inputs(5)])
def test_a_generic_optimiser_finds_nothing_better(method, program, estimate):
    objective, gradient = program(estimate)
    found = METHODS[method](estimate)
    d = len(found)
    scale = max(1.0, objective(np.full(d, 1 / d)))
    generic = minimize(
        lambda x: objective(x) / scale,
        np.full(d, 1 / d),
        jac=lambda x: gradient(x) / scale,
        method="SLSQP",
        bounds=[(0, 1)] * d,
        constraints={"type": "eq", "fun": lambda x: np.sum(x) - 1, "jac": np.ones_like},
        options={"ftol": 1e-15, "maxiter": 500},
    )
    inside = np.clip(generic.x, 0, 1) / np.sum(np.clip(generic.x, 0, 1))
    assert objective(found) <= objective(inside) + 1e-9 * scale
    np.testing.assert_allclose(found, inside, atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "program"), PROGRAMS)
@pytest.mark.parametrize(
    "estimate", [pytest.param(each, id=name) for name, each in [*inputs(2), *inputs(300)]]
)
def test_the_conditions_of_a_minimum_hold(method, program, estimate):
    """On the kept values the gradient is one number, on the others it is no smaller: enough, as it is convex."""
    _, gradient = program(estimate)
    found = METHODS[method](estimate)
    slopes = gradient(found)
    kept = found > 0
    tolerance = 1e-10 * max(1.0, float(np.abs(slopes).max()))
    assert np.ptp(slopes[kept]) <= tolerance
    assert (slopes[~kept] >= slopes[kept].max() - tolerance).all()


@pytest.mark.parametrize("epsilon", ["1/100", "1", "20", "64"])
@pytest.mark.parametrize(
    "counts",
    [[100, 100, 60, 0], [100, 0, 0, 0], [0, 0, 0, 0], [100] * 4, [100, 99, 50, 50], [62, 58, 55, 51]],
)
def test_mle_apx_with_two_buckets_at_any_epsilon(epsilon, counts):
    """p + q > 1, where the variance of a frequency of 1 vanishes: exact arithmetic over all kept sets decides."""
    oracle = protocol("blh", 4, epsilon)
    p, q = oracle.p, oracle.q
    exact = [(Fraction(c, 100) - q) / (p - q) for c in counts]
    A, B, Q = p - q, (p - q) * (1 - p - q), q * (1 - q)
    solutions = []
    for m in range(1, 5):
        kept = sorted(exact, reverse=True)[:m]
        x = A * (1 - sum(kept)) / (m * Q + B)
        solution = [(A * f + Q * x) / (A - B * x) if f >= kept[-1] else Fraction(0) for f in exact]
        if min(solution) >= 0 and sum(solution) == 1:
            solutions.append(
                (sum((s - f) ** 2 / (Q + s * B) for s, f in zip(solution, exact, strict=True)), solution)
            )
    expected = [float(s) for s in min(solutions)[1]]
    found = METHODS["mle-apx"](oracle.estimate(np.array(counts), 100))
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("method", ALL)
def test_one_value_has_only_methods_without_a_sum(method):
    """A yes/no question in one bit: its share is not 1, and no method may move it there, as five of them would."""
    oracle = ldp.Unary("3/4", "1/4", domain_size=1)
    for counts in ([2500], [4000], [2000]):  # shares 0, 0.3 and −0.1
        estimate = oracle.estimate(counts, 10_000)
        share = estimate.frequencies[0]
        assert estimate.sum_deviation == 0.0
        if method in FOR_ONE_VALUE:
            assert ALL[method](estimate).tolist() == [share if method == "base" else max(share, 0.0)]
            continue
        assert ALL[method].sums_to_one or method in ("norm-cut", "power")
        for call in (ALL[method], lambda e: ldp.answer(e, [0], method)):
            with pytest.raises(
                ValueError, match=f"{method} given for one value; allowed are base, base-pos, post-pos"
            ):
                call(estimate)


def test_the_chosen_methods_apply_to_the_domain():
    assert chosen(None, 2) == tuple(METHODS)
    assert chosen(None, 1) == FOR_ONE_VALUE
    assert chosen(["post-pos", "base"], 1) == ("post-pos", "base")
    for names, d, says in (
        ([], 2, "methods are none; allowed are base, "),
        (["guess"], 1, "methods are guess"),
        (["base", "norm", "power"], 1, "norm, power given for one value; allowed are base, "),
    ):
        with pytest.raises(ValueError, match=says):
            chosen(names, d)


def test_degenerate_cases_follow_their_rule():
    negative = ldp.Estimate(np.array([-0.1, -0.2, -0.1, -0.4, -0.3]), 100, protocol("olh", 5))
    for method in ("base-pos", "post-pos", "base-cut", "norm-cut"):
        assert METHODS[method](negative).tolist() == [0.0] * 5
    np.testing.assert_allclose(METHODS["norm-mul"](negative), 0.2, rtol=1e-15)
    too_large = ldp.Estimate(np.array([1.5, 0.2, 1.5, -0.1, 0.7]), 100, protocol("olh", 5))
    assert METHODS["norm-cut"](too_large).tolist() == [0.5, 0.0, 0.5, 0.0, 0.0]
    tied = ldp.Estimate(np.array([0.5, 0.2, 0.2, 0.2, 0.1]), 100, protocol("olh", 5))
    assert METHODS["norm-cut"](tied).tolist() == [0.5, 0.0, 0.0, 0.0, 0.0]  # two of the ties would fit


@pytest.mark.slow
@pytest.mark.parametrize("method", ALL)
def test_every_method_keeps_its_guarantees_for_awkward_estimates(method):
    """Ties, all negative, sums below 1, values above 1, one report, few values; under p + q < 1, = 1 and > 1."""
    rng = np.random.default_rng(9)
    for _, estimate in (*inputs(2), *inputs(7), *inputs(40)):
        assert_all_holds(method, estimate, rng)


def assert_all_holds(method, estimate, rng):
    before = estimate.frequencies.copy()
    found = ALL[method](estimate)
    assert found.dtype == np.float64
    assert_promises(method, estimate.frequencies, found)
    np.testing.assert_array_equal(estimate.frequencies, before)
    assert not np.shares_memory(found, estimate.frequencies)
    assert found.flags.writeable

    order = rng.permutation(len(before))
    permuted = ALL[method](ldp.Estimate(before[order], estimate.n, estimate.oracle))
    np.testing.assert_array_equal(permuted, found[order])

    if method not in SHRINK:
        again = ALL[method](ldp.Estimate(found, estimate.n, estimate.oracle))
        np.testing.assert_allclose(again, found, rtol=0, atol=1e-14 * max(1.0, float(np.abs(found).max())))


def assert_promises(method, frequencies, found):
    assert found.shape == frequencies.shape
    assert np.isfinite(found).all()
    order = np.argsort(frequencies, kind="stable")
    assert (np.diff(found[order]) >= 0).all()
    ties = np.diff(frequencies[order]) == 0
    assert (np.diff(found[order])[ties] == 0).all()
    if ALL[method].non_negative:
        assert (found >= 0).all()
    if ALL[method].sums_to_one:
        ulp = np.spacing(np.abs(found).max())
        assert abs(math.fsum(found) - 1.0) <= 4 * len(found) * max(ulp, np.finfo(float).eps / len(found))


def test_a_method_keeps_table_1_and_its_name():
    """Table I, typed from the paper: which methods are non-negative and which sum to 1; the eleventh does both."""
    non_negative = (
        "base-pos post-pos base-cut norm-mul norm-cut norm-sub mle-apx power power-ns empirical-bayes"
    )
    sums_to_one = "norm norm-mul norm-sub mle-apx power-ns empirical-bayes"
    assert [name for name, method in ALL.items() if method.non_negative] == non_negative.split()
    assert [name for name, method in ALL.items() if method.sums_to_one] == sums_to_one.split()
    assert all(name == method.name for name, method in ALL.items())
    assert [method.of_paper for method in ALL.values()] == [True] * 11 + [False]


def test_every_method_except_post_pos_sums_its_vector_for_a_set():
    estimate = ldp.Estimate([0.75, 0.5, -0.25, -0.125], 1000, ldp.oracle("grr", "1", 4))
    ask = np.array([1, 2, 3])
    given = np.array([0.0, 1.0, 2.0, 4.0])  # an impossible result: an answer by the vector is 7
    answers = {name: method.answer(estimate, ask, given) for name, method in ALL.items()}
    assert answers == dict.fromkeys(ALL, 7.0) | {"post-pos": 0.125}
