"""Method selection: simulated errors, correction, ranking."""

import math
from fractions import Fraction
from itertools import repeat as again

import numpy as np
import pytest

import ldp
from ldp.analysis import smooth_populations
from ldp.analysis.method_selection import (
    NEAR,
    Ranked,
    Ranking,
    Sets,
    Values,
    _rank,
    all_methods,
    apportion,
    choose,
    choose_all,
    mean_squares,
)
from ldp.consistency import EXTRA, METHODS
from ldp.consistency.empirical_bayes import Fit
from ldp.consistency.together import by_method
from ldp.query import TopQuery
from tests.paper import choice
from tests.paper.figures import Row
from tests.paper.jobs import Scale, run

pytestmark = pytest.mark.statistical

NAMES = list(METHODS)


def estimate_of(protocol, weights, n, seed, epsilon="1"):
    oracle = ldp.oracle(protocol, epsilon=epsilon, domain_size=len(weights))
    histogram = np.random.default_rng(seed).multinomial(n, np.array(weights) / np.sum(weights))
    return oracle.estimate(oracle.simulate(histogram, np.random.default_rng(seed + 1)), n)


def simulated(ranking):
    return np.array([row.simulated for row in sorted(ranking.rows, key=lambda row: NAMES.index(row.method))])


def in_users_of(weights, n):
    return in_users(weights / weights.sum() * n, n)


def in_users(exact, n):
    """Whole users by giving each missing one to the largest remainder."""
    users = [math.floor(x) for x in exact]
    while sum(users) < n:
        remainders = [x - u for x, u in zip(exact, users, strict=True)]
        users[remainders.index(max(remainders))] += 1
    return np.array(users)


@pytest.mark.slow
def test_a_quarter_of_the_simulations_use_each_population():
    estimate, repeats = estimate_of("olh", 0.9 ** np.arange(100), 20_000, 9), 60
    query, rng = Sets([np.arange(40, 73)]), np.random.default_rng(10)
    populations = [
        again(EXTRA["empirical-bayes"](estimate)),
        Fit(estimate).draws(rng),
        smooth_populations.draws(estimate, rng),
        smooth_populations.significant(estimate, rng),
    ]
    errors = np.empty((4, repeats, len(NAMES)))
    for i, weights in enumerate(populations):
        for place, made_up in zip(range(repeats), weights, strict=False):
            users = in_users_of(made_up, 20_000)
            collected = estimate.oracle.estimate(estimate.oracle.simulate(users, rng), 20_000)
            errors[i, place] = mean_squares(query, all_methods(collected), users / 20_000)
    variances = errors.var(axis=1, ddof=1)
    found = simulated(choose(estimate, query, np.random.default_rng(11), 4 * repeats))
    deviation = abs(found - errors.mean(axis=(0, 1)))
    assert (deviation <= 6 * np.sqrt(2 * variances.sum(axis=0) / 16 / repeats)).all()


def test_mean_squares_equal_those_of_single_answers():
    estimate = estimate_of("olh", np.arange(1, 41), 500, 11, "2")
    truth = np.random.default_rng(12).dirichlet(np.ones(40))
    sets = [[0], [3, 2, 1], list(range(40)), [39, 5]]
    vectors = all_methods(estimate)
    found = mean_squares(Sets(sets), vectors, truth)
    for i, name in enumerate(NAMES):
        errors = [(ldp.answer(estimate, s, name) - math.fsum(truth[s])) ** 2 for s in sets]
        assert found[i] == pytest.approx(np.mean(errors), rel=1e-9, abs=1e-25)
        assert vectors[i] == pytest.approx(METHODS[name](estimate), abs=1e-12)
    # a method that differs from the truth in one value only, by 2: the average is over the k largest
    vectors = np.tile(truth, (len(NAMES), 1))
    vectors[:, int(truth.argmax())] += 2.0
    assert mean_squares(TopQuery("top", 5), vectors, truth) == pytest.approx(np.full(len(NAMES), 4 / 5))
    vectors = np.tile(truth, (len(NAMES), 1))
    vectors[:, int(truth.argmin())] += 2.0
    assert not mean_squares(TopQuery("top", 39), vectors, truth).any()
    assert mean_squares(TopQuery("top", 40), vectors, truth) == pytest.approx(
        mean_squares(Values(), vectors, truth)
    )


R = 4
ROWS = np.array([0, 1, 2, 3])


def ranked(errors, distances, seen, resamples=None, noises=ROWS, other=0.0):
    """`_rank` of a few methods (the others have huge errors) by two populations; the second adds `other`."""
    full = np.full((len(errors), len(NAMES)), 1e9)
    full[:, : errors.shape[1]] = errors
    away, real = np.zeros_like(full), np.zeros(len(NAMES))
    away[:, : errors.shape[1]], real[: errors.shape[1]] = distances, seen
    resamples = np.eye(len(errors)) if resamples is None else resamples
    return _rank(np.stack([full, full + other]), np.stack([away, away]), real, resamples, noises)


def test_the_correction_by_hand():
    errors = np.array([[9.0, 3.0], [11.0, 5.0], [9.0, 3.0], [11.0, 5.0]])  # means 10, 4
    distances = np.array([[0.0, 6.0], [0.0, 10.0], [0.0, 6.0], [0.0, 10.0]])  # mean 8, variance 16/3
    ranking = ranked(errors, distances, [0.0, 20.0])
    assert ranking.weight == pytest.approx(4 / (4 + 16 / 3))  # e = 4/2
    rows = {row.method: row for row in ranking.rows}
    assert rows["base"].mse == 10.0
    assert rows["base-pos"].mse == pytest.approx(4 + 3 / 7 * (20 - 8))
    assert rows["base-pos"].simulated == 4.0
    assert ranking.best == "base-pos"
    assert [row.method for row in ranking.rows[:2]] == ["base-pos", "base"]
    # seen ever further away, the method is no longer first
    assert ranked(errors, distances, [0.0, 23.0]).best == "base"


def test_the_correction_has_bounds():
    errors = np.array([[10.0, 4.0], [10.0, 4.0]])
    still = np.array([[0.0, 8.0], [0.0, 8.0]])
    assert ranked(errors, still, [0.0, 8.0], noises=ROWS[:2]).weight == 0.5  # without noise
    rows = {row.method: row for row in ranked(errors, still, [0.0, 1.0], noises=ROWS[:2]).rows}
    assert rows["base-pos"].mse == 2.0  # 4 − 7/2, but not below one half
    wild = np.array([[0.0, 0.0], [0.0, 1e6]])
    assert ranked(errors, wild, [0.0, 8.0], noises=ROWS[:2]).weight < 1e-10
    assert ranked(0 * errors, wild, [0.0, 8.0], noises=ROWS[:2]).weight == 0.0
    # if no method differs from Base, that is informative, except where it never does
    assert ranked(errors, still, [0.0, 0.0], noises=ROWS[:2]).weight == 0.5
    assert ranked(errors, 0 * still, [0.0, 0.0], noises=ROWS[:2]).weight == 0.0


def test_equal_errors_are_ranked_in_the_order_of_the_paper():
    errors = np.full((2, R, len(NAMES)), 2.0)
    ranking = _rank(errors, 0 * errors, 0 * errors[0, 0], np.eye(R), ROWS)
    assert [row.method for row in ranking.rows] == NAMES


@pytest.mark.parametrize("gap", [-0.2, 0.25])
def test_the_confidence_of_two_methods(gap):
    """Independent normal errors: the first's mean is near the second's with a probability that is known."""
    rng, repeats = np.random.default_rng(21), 2000
    errors = np.stack([rng.normal(1.0, 8.0, repeats), rng.normal(1.0, 12.0, repeats)], axis=1)
    errors += np.array([0.0, gap]) - errors.mean(axis=0) + 5.0
    resamples = rng.multinomial(repeats, np.full(repeats, 1 / repeats), 1000) / repeats
    ranking = ranked(errors, 0 * errors, [0.0, 0.0], resamples, np.zeros(1000, int))
    means = errors.mean(axis=0)
    first, second = (0, 1) if means[0] <= means[1] else (1, 0)
    deviations = errors.std(axis=0) / math.sqrt(repeats)
    z = (NEAR * means[second] - means[first]) / math.hypot(NEAR * deviations[second], deviations[first])
    expected = 0.5 * (1 + math.erf(z / math.sqrt(2)))
    assert 0.5 < expected < 0.99
    # five standard errors of 1,000 resamples, and what the means of 2,000 lack to a normal distribution
    assert ranking.confidence == pytest.approx(
        expected, abs=5 * math.sqrt(expected * (1 - expected) / 1000) + 0.01
    )


def test_the_confidence_is_the_minimum_over_the_populations():
    errors = np.tile([4.0, 8.0], (R, 1))
    rest = (0 * errors, np.zeros(2), np.full((R, R), 1 / R))
    assert ranked(errors, *rest).confidence == 1.0
    # 12 over 11 is less than 1.1, 4 over 3 is not
    both = np.full((2, R, len(NAMES)), 1e9)
    both[0, :, :2], both[1, :, :2] = [4.0, 8.0], [12.0, 11.0]
    of = (np.zeros_like(both), np.zeros(len(NAMES)), np.full((R, R), 1 / R), ROWS)
    assert (_rank(both, *of).best, _rank(both, *of).confidence) == ("base", 1.0)
    both[1, :, :2] = [4.0, 3.0]
    assert (_rank(both, *of).best, _rank(both, *of).confidence) == ("base", 0.0)
    assert not _rank(both, *of).clear
    both[1, :2, 1] = 9.0  # in half of the resamples
    halves = _rank(both, *of[:2], np.eye(R), ROWS)
    assert halves.confidence == 0.5
    # errors below the lowest that counts are ignored: the first population has 4, the second 12
    both[1, :, :2] = [12.0, 11.0]
    assert [_rank(both, *of, visible).confidence for visible in (4.0, 4.1)] == [1.0, 0.0]


def test_the_loss_is_the_maximum_over_the_populations():
    both = np.full((2, R, len(NAMES)), 1e9)
    both[0, :, :2], both[1, :, :2] = [4.0, 8.0], [12.0, 11.0]
    of = (np.zeros_like(both), np.zeros(len(NAMES)), np.full((R, R), 1 / R), ROWS)
    assert _rank(both, *of).loss == pytest.approx(12 / 11)
    both[1, :, :2] = [0.0, 0.0]
    assert _rank(both, *of).loss == 1.0
    both[1, :, :2] = [1.0, 0.0]
    assert _rank(both, *of).loss == math.inf


def test_a_clear_choice_has_a_confidence_and_a_bounded_loss():
    rows = (Ranked("base", 1.0, 1.0),)
    assert Ranking(rows, 0.85, 0.0, 2.0).clear
    assert not Ranking(rows, 0.84, 0.0, 1.0).clear
    assert not Ranking(rows, 1.0, 0.0, 2.01).clear


@pytest.mark.parametrize("seed", [6, 8, 9, 11])
def test_smooth_peaks_have_no_wrong_clear_choice(seed):
    """Two peaks of single values near the noise, where Norm-Sub and independent draws mislead about sets.

    Without smooth populations, PowerNS was clear between the peaks with 117 times the lowest error.
    """
    places = np.arange(256) / 256
    peaks = np.exp(-0.5 * ((places - 0.3) / 0.05) ** 2) + 0.6 * np.exp(-0.5 * ((places - 0.75) / 0.09) ** 2)
    users, oracle = in_users_of(peaks, 100_000), ldp.OUE("0.5", 256)
    queries = [
        Sets([range(115, 150)]),
        Sets([range(64, 90)]),
        Sets([range(30)]),
        TopQuery("top", 3),
        Values(),
    ]
    errors, rng = np.zeros((len(queries), len(NAMES))), np.random.default_rng(1)
    for _ in range(100):
        vectors = all_methods(oracle.estimate(oracle.simulate(users, rng), 100_000))
        errors += [mean_squares(query, vectors, users / 100_000) for query in queries]
    estimate = oracle.estimate(oracle.simulate(users, np.random.default_rng(seed)), 100_000)
    *rest, values = choose_all(estimate, queries, np.random.default_rng(seed))
    assert (values.clear, values.best) == (True, "power-ns")
    for ranking, real in zip([*rest, values], errors, strict=True):
        if ranking.clear:
            assert real[NAMES.index(ranking.best)] <= 2.0 * real.min()


def test_the_seed_decides_and_other_queries_do_not():
    estimate = estimate_of("olh", np.arange(1, 31), 3000, 31)
    queries = [TopQuery("top", 4), Sets([[0, 1], [5]]), Values()]
    together = choose_all(estimate, queries, np.random.default_rng(32), 10)
    for query, ranking in zip(queries, together, strict=True):
        assert choose(estimate, query, np.random.default_rng(32), 10) == ranking
        assert sorted(row.method for row in ranking.rows) == sorted(NAMES)
        errors = [row.mse for row in ranking.rows]
        assert errors == sorted(errors)
        assert 0.0 <= ranking.confidence <= 1.0
    assert together[0].weight == 0.0
    assert 0.0 < together[2].weight <= 0.5
    assert choose(estimate, Values(), np.random.default_rng(33), 10) != together[2]
    assert choose_all(estimate, [], np.random.default_rng(32), 10) == []


@pytest.mark.parametrize("protocol", ["grr", "olh"])
@pytest.mark.parametrize(
    ("frequencies", "n"),
    [([0.5, 0.5], 5), ([-0.5, -0.25, -0.125], 4), ([0.0, 0.0], 1), ([5.0, -3.0, 0.5, 0.5], 2)],
)
def test_degenerate_estimates(protocol, frequencies, n):
    estimate = ldp.Estimate(frequencies, n, ldp.oracle(protocol, epsilon="1", domain_size=len(frequencies)))
    for ranking in choose_all(
        estimate, [Values(), TopQuery("top", 1), TopQuery("top", 9), Sets([[0]])], np.random.default_rng(1), 8
    ):
        numbers = [x for row in ranking.rows for x in (row.mse, row.simulated)]
        assert np.isfinite(numbers).all()
        assert min(numbers) >= 0.0
        assert 0.0 <= ranking.confidence <= 1.0


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (lambda: Sets([]), ValueError, "at least one set"),
        (lambda: Sets([[0], []]), ValueError, "at least one value"),
        (lambda: Sets([[0, 0]]), ValueError, "distinct"),
        (lambda: Sets([[0, -1]]), ValueError, "got -1"),
        (lambda: Sets([[0.5]]), TypeError, r"integers from 0 to \d+, not 0\.5"),
        (lambda: Sets([[[0]]]), ValueError, r"of the shape \(1, 1\)"),
        (lambda: TopQuery("top", 0), ValueError, "top is 0"),
        (lambda: TopQuery("top", 2.0), TypeError, "top must be an integer"),
    ],
)
def test_bad_queries_are_named(make, error, said):
    with pytest.raises(error, match=said):
        make()


def test_queries_outside_the_domain_are_refused():
    estimate, rng = estimate_of("grr", [1, 1, 1], 10, 1), np.random.default_rng(1)
    with pytest.raises(ValueError, match=r"must lie in 0\.\.2, got 3"):
        choose(estimate, Sets([[0], [1, 3]]), rng)
    with pytest.raises(TypeError, match="not list"):
        choose(estimate, [0, 1], rng)
    with pytest.raises(ValueError, match="repeats is 7"):
        choose(estimate, Values(), rng, 7)
    with pytest.raises(ValueError, match="one value; a ranking needs at least 2"):
        choose(ldp.Unary("3/4", "1/4", 1).estimate([40], 100), Values(), rng)


@pytest.mark.parametrize("users", [1, 1000, 10**12])
def test_whole_users(users):
    rng = np.random.default_rng(users)
    for d in (1, 2, 50):
        weights = rng.dirichlet(np.full(d, 0.1))
        counts = apportion(weights, users)
        assert int(counts.sum()) == users
        exact = [Fraction(float(w)) / sum(map(Fraction, weights.tolist())) * users for w in weights]
        assert all(
            abs(Fraction(int(c)) - x) < 1 + Fraction(users, 10**15)
            for c, x in zip(counts, exact, strict=True)
        )
        rounded_up = [x - math.floor(x) for c, x in zip(counts, exact, strict=True) if c > x]
        down = [x - math.floor(x) for c, x in zip(counts, exact, strict=True) if c < x]
        assert not rounded_up or not down or min(rounded_up) >= max(down) - Fraction(users, 10**13)


def cells(dataset, case, chosen, clear, errors):
    """The rows of one cell."""
    for what, values in (
        ("MSE", dict.fromkeys(NAMES, 9.0) | errors),
        ("chosen", chosen),
        ("clear", clear),
    ):
        for name in NAMES:
            yield Row("choice", dataset, f"{case}: {what}", 0.5, name, values.get(name, 0.0), 0.0, 10)
    yield Row("choice", dataset, case, 0.5, "confidence", 0.875, 0.1, 10)


ERRORS = {"norm-cut": 2.0, "norm-sub": 2.4, "mle-apx": 2.1, "power-ns": 4.0}


def test_verdicts_by_hand():
    chosen, clear = {"norm-cut": 0.5, "norm-sub": 0.2, "mle-apx": 0.3}, {"norm-cut": 0.4, "norm-sub": 0.2}
    rows = list(cells("emoji", "subgroups", chosen, clear, ERRORS))
    rows += cells("zipf", "subgroups", chosen, {"norm-cut": 0.4}, ERRORS)
    over = math.exp(0.5 * math.log(2.0) + 0.2 * math.log(2.4) + 0.3 * math.log(2.1)) / 4.0
    head, (line, everything) = choice.summary(rows)
    assert head[3:5] == ("over power-ns", "over norm-sub")
    assert line == (
        "subgroups",
        "80%",
        "1.05",
        f"{over:.2f}",
        f"{over * 4.0 / 2.4:.2f}",
        "50%",
        "80%",
        "1.20",
        "67% of 6, emoji",
    )
    assert everything == ("all", *line[1:])


def test_sets_form_one_line_and_tiny_errors_count_as_zero():
    rows = list(cells("bell", "one subgroup #1", {"norm-cut": 1.0}, {}, ERRORS))
    rows += cells("bell", "one subgroup #2", {"norm-sub": 1.0}, {}, {"norm-sub": 1e-14, "base": 0.0})
    line, everything = choice.summary(rows)[1]
    assert (line[:3], everything[0]) == (("one subgroup", "100%", "1.00"), "all")
    assert line[-4:] == ("0%", "—", "—", "—")


@pytest.mark.parametrize(("oracle", "best"), [(ldp.GRR("1", 10), "base"), (ldp.OLH("1", 10), "norm")])
def test_the_first_method_without_an_error_is_best(oracle, best):
    rng = np.random.default_rng(5)
    estimate = oracle.estimate(oracle.simulate(np.arange(1, 11) * 100, rng), 5500)
    ranking = choose(estimate, Sets([range(10)]), rng, 20)
    assert (ranking.best, ranking.rows[0].mse) == (best, 0.0)


@pytest.fixture(scope="module")
def judged():
    """Choices from data of seventeen kinds at ε = 1, seeded: rows of the figure "choice"."""
    jobs = [job for job in choice.choice(Scale(12, 2, 1)) if job.key[-2] == "1"]
    return run(jobs, seed=1)


@pytest.mark.long
def test_clear_choices_are_right(judged):
    """By kind of query, and by kind of data; 4 choices of each, or 16 of single sets."""
    value = {(row.dataset, row.case, row.method): row.value for row in judged}
    stated, right = {}, {}
    for cell in (row for row in judged if row.method == "confidence"):
        errors = {name: max(value[cell.dataset, f"{cell.case}: MSE", name], choice.NONE) for name in NAMES}
        for name, error in errors.items():
            share = value[cell.dataset, f"{cell.case}: clear", name] * cell.repeats
            assert not share or error <= 2.0 * min(errors.values()), (cell.dataset, cell.case, name)
            for kind in (cell.case.partition(" #")[0], cell.dataset, "all"):
                stated[kind] = stated.get(kind, 0) + share
                right[kind] = right.get(kind, 0) + share * (error <= NEAR * min(errors.values()))
    assert stated["all"] >= 80
    for kind, said in stated.items():
        assert right[kind] >= 0.8 * said, kind
    assert right["all"] >= 0.9 * stated["all"]


@pytest.mark.long
def test_top_k_is_chosen_well_without_a_power_law(judged):
    near = {line[0]: line[1] for line in choice.summary(judged)[1]}
    assert all(int(near[f"top {k}"].rstrip("%")) >= 80 for k in choice.TOP)


def test_methods_together_equal_each_method_exactly():
    oracle = ldp.OLH("1", 300)
    estimate = oracle.estimate(np.random.default_rng(6).integers(200, 500, 300), 1000)
    for names in (NAMES, NAMES[::-1], ("power-ns",), ("power-ns", "base", "power"), ()):
        made = by_method(estimate, names)
        assert list(made) == list(names)
        for name, vector in made.items():
            assert vector.tobytes() == METHODS[name](estimate).tobytes()
    assert all_methods(estimate).tobytes() == np.stack([*by_method(estimate, NAMES).values()]).tobytes()
