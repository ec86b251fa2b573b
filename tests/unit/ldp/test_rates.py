"""Reports at several rates: both estimates, their coverage."""

import json
import math
from fractions import Fraction

import jsonschema
import numpy as np
import pytest
from scipy import stats

import ldp
from ldp import poisoning, query, snapshot
from ldp.consistency import METHODS
from ldp.intervals.confidence_sequence import of_documents
from ldp.oracles.rated_estimate import RatedEstimate
from tests.unit.ldp.test_snapshot import SCHEMA, topic

RATES = ["1/10", "0.4994798", "4/5"]
RATED = ldp.RatedResponse(RATES)
STREAM = ldp.Stream("confidence", RATED, labels=["low", "high"])


def state_of(users, rng):
    """The counters of a population: for each rate how many users have each value."""
    state = []
    for rate, (low, high) in zip(map(Fraction, RATES), users, strict=True):
        told = rng.binomial(high, float(1 - rate / 2)) + rng.binomial(low, float(rate / 2))
        state += [low + high - told, told]
    return np.array(state)


def by_the_specification(state):
    """The mean weight for each value, as in the W3C's Navigation Timing debiasing, report by report."""
    weights = []
    for rate, pair in zip(map(float, map(Fraction, RATES)), state.reshape(-1, 2), strict=True):
        for r, count in enumerate(pair):
            high = (r - rate / 2) / (1 - rate)
            weights += [(1 - high, high)] * int(count)
    return [math.fsum(w) / len(weights) for w in zip(*weights, strict=True)]


def test_the_pooled_estimate_matches_the_specification():
    state = state_of([(300, 700), (900, 100), (50, 450)], np.random.default_rng(1))
    found = RATED.estimate(state, int(state.sum()))
    assert found.frequencies == pytest.approx(by_the_specification(state), abs=1e-12)
    for name, method in METHODS.items():
        assert method(found).shape == (2,), name


def test_a_single_rate_equals_a_response_with_its_p():
    state = np.array([0, 0, 700, 300, 0, 0])
    found, alone = RATED.estimate(state, 1000), ldp.Response(1 - Fraction("0.4994798") / 2, 2)
    due = alone.estimate([700, 300], 1000)
    assert found.frequencies == pytest.approx(due.frequencies, rel=1e-12)
    assert found.sigma == pytest.approx(due.sigma, rel=1e-12)
    assert found.combined().frequencies == pytest.approx(due.frequencies, rel=1e-9)
    assert found.combined().alike == 1
    ((rate, one),) = found.each()
    assert (rate, one.frequencies.tolist()) == (Fraction("0.4994798"), due.frequencies.tolist())


LOT = [(1800, 600), (3000, 1000), (2700, 900)]  # a quarter high at each rate
TIED = [(2280, 120), (3000, 1000), (900, 2700)]  # the higher the rate, the more of them


@pytest.mark.parametrize("users", [LOT, TIED], ids=["by lot", "tied"])
def test_the_pooled_estimate_is_unbiased_for_any_choice_of_rates(users):
    repeats, rng = 500, np.random.default_rng(20_201)
    n = int(np.sum(users))
    truth = sum(high for _, high in users) / n
    errors, covered = [], 0
    for _ in range(repeats):
        found = RATED.estimate(state_of(users, rng), n)
        errors.append(found.frequencies[1] - truth)
        low, high = found.interval(0.9)
        covered += low[1] <= truth <= high[1]
    exact = math.sqrt(
        sum(
            float((low + high) * (1 - rate / 2) * (rate / 2) / (1 - rate) ** 2)
            for rate, (low, high) in zip(map(Fraction, RATES), users, strict=True)
        )
    )
    assert found.sigma == pytest.approx(exact / n, rel=1e-12)  # the same for each draw
    assert abs(np.mean(errors)) < 5.5 * found.sigma / math.sqrt(repeats)
    assert np.var(errors) / found.sigma**2 == pytest.approx(1, abs=5.5 * math.sqrt(2 / repeats))
    assert covered == pytest.approx(0.9 * repeats, abs=5.5 * math.sqrt(0.09 * repeats) + 10)


def test_inverse_variance_is_right_for_random_rates():
    """A fixed population whose users draw a rate each: less error, at the stated level."""
    repeats, rng, n, truth = 500, np.random.default_rng(20_202), 10_000, 0.25
    errors, covered, alarms, ratios = [], 0, 0, []
    for _ in range(repeats):
        sizes = rng.multinomial(n, [0.24, 0.4, 0.36])
        highs = rng.multivariate_hypergeometric(sizes, int(truth * n))
        found = RATED.estimate(state_of(np.stack([sizes - highs, highs], axis=1), rng), n)
        said = found.combined(0.9)
        errors.append(said.frequencies[1] - truth)
        covered += said.low[1] <= truth <= said.high[1]
        alarms += said.alike < 0.05
        ratios.append(said.std_error / found.sigma)
    error = np.mean(ratios) * found.sigma
    assert max(ratios) < 0.5
    assert abs(np.mean(errors)) < 5.5 * error / math.sqrt(repeats) + 1e-4
    assert np.std(errors) / error == pytest.approx(1, abs=0.2)
    assert covered == pytest.approx(0.9 * repeats, abs=5.5 * math.sqrt(0.09 * repeats) + 20)
    assert alarms == pytest.approx(0.05 * repeats, abs=5.5 * math.sqrt(0.0475 * repeats) + 20)


def test_inverse_variance_fails_and_warns_if_rates_depend_on_values():
    rng, n = np.random.default_rng(20_203), int(np.sum(TIED))
    truth = sum(high for _, high in TIED) / n
    for _ in range(20):
        found = RATED.estimate(state_of(TIED, rng), n)
        said = found.combined(0.999999)
        assert not said.low[1] <= truth <= said.high[1]
        assert said.alike < 1e-9
        low, high = found.interval(0.999999)
        assert low[1] <= truth <= high[1]


def test_windows_merge_and_snapshots_preserve_the_estimate():
    rng, parts = np.random.default_rng(3), []
    states = [state_of([(30, 70), (90, 10), (5, 45)], rng) for _ in range(2)]
    for start, state in enumerate(states):
        made = RATED.estimate(state, int(state.sum()))
        window = snapshot.Period("1h", start * 3_600_000, (start + 1) * 3_600_000)
        taken = snapshot.take(STREAM, made, snapshot.Cut({0: 9}, {}), 1, window=window)
        encoded = snapshot.encode_window(taken)
        for part in encoded:
            jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(part.body))
        base = json.loads(encoded[0].body)
        assert base["epsilon"] == "2944439/1000000"  # ln 19, of the lowest rate
        assert [each["rate"] for each in base["rates"]] == ["1/10", "2497399/5000000", "4/5"]
        assert [each["counts"] for each in base["rates"]] == state.reshape(-1, 2).tolist()
        assert "rates" not in json.loads(encoded[1].body)
        received = topic(encoded, 1) | topic(
            snapshot.encode(snapshot.take(STREAM, made, snapshot.Cut({}, {}), 1)), 1
        )
        again = snapshot.assemble_window("confidence", received, "1h", start * 3_600_000)
        assert again == taken
        parts.append(again.estimate())
    both, due = parts[0].merge(parts[1]), RATED.estimate(sum(states), int(np.sum(states)))
    assert isinstance(both, RatedEstimate)
    assert (both.frequencies == due.frequencies).all()
    assert both.windows == ((0, 7_200_000),)
    with pytest.raises(TypeError, match="merge needs estimates from"):
        both.merge(ldp.Response("3/4", 2).estimate([1, 1], 2).within(0, 1))
    with pytest.raises(TypeError, match="merge needs estimates from"):
        both.merge(ldp.RatedResponse(["1/2"]).estimate([1, 1], 2).within(0, 1))


def test_a_state_refuses_an_undeclared_rate():
    with pytest.raises(ValueError, match="not one of the 3 declared rates"):
        RATED.accumulate(RATED.zeros(), np.array([(3, 0)], RATED.report_dtype))


def test_reports_of_our_client_have_the_highest_rate():
    assert {RATED.perturb_one(1)[0] for _ in range(20)} == {2}
    reports = RATED.perturb(np.ones(20_000, int), rng=np.random.default_rng(1))
    assert set(reports["rate"].tolist()) == {2}
    assert stats.binomtest(int(reports["value"].sum()), 20_000, 0.6).pvalue > 1e-6


@pytest.mark.parametrize(
    ("rates", "said"),
    [
        ([], "there are 0 rates; allowed are 1 to 16"),
        (["1/2", "1/4"], "rates[1] is 1/4, after 1/2; they must ascend"),
        (["1/2", "1/2"], "they must ascend"),
        (["0", "1/2"], "rates[0] is 0; it must be above 0 and below 1"),
        ([0.5], "rates[0] is the float 0.5"),
        ("1/2", "rates must be a list of strings, not str"),
    ],
)
def test_invalid_rates_are_refused(rates, said):
    with pytest.raises((TypeError, ValueError)) as caught:
        ldp.oracle("response", rates=rates, domain_size=2)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "users", [[(20, 0), (0, 10), (9, 1)], [(0, 60), (0, 0), (0, 0)], [(7, 3), (10, 5), (8, 0)]]
)
def test_the_process_of_several_rates_has_a_mean_of_at_most_one(users):
    """Each end is refuted with at most its risk: enumerated over all counts, at one n."""
    channels = [(float(1 - rate / 2), float(rate / 2)) for rate in map(Fraction, RATES)]
    laws = []
    for (low, high), (p, q) in zip(users, channels, strict=True):
        laws.append(
            np.convolve(
                stats.binom(high, p).pmf(np.arange(high + 1)), stats.binom(low, q).pmf(np.arange(low + 1))
            )
        )
    n = sum(map(sum, users))
    truth, missed = sum(high for _, high in users) / n, 0.0
    for told in np.ndindex(*(law.size for law in laws)):
        chance = math.prod(law[t] for law, t in zip(laws, told, strict=True))
        if chance > 1e-9:
            counts = np.array([(sum(pair) - t, t) for pair, t in zip(users, told, strict=True)])
            low, high = of_documents(counts, np.tile(counts.sum(1)[:, None], 2), channels, 0.5)
            missed += chance * (not low[1] <= truth <= high[1])
    assert missed <= 0.5


def test_exactly_the_stated_poisoning_reports_move_the_estimate_out():
    state = np.array([300, 700, 200, 250, 90, 60])
    estimate = RATED.estimate(state, 1600)
    low, high = estimate.anytime_interval()
    needed = poisoning.tolerance(estimate, low, high)

    def moved(value, number):
        out = []
        for place in range(6):  # every report there is, each so often
            poisoned = state.copy()
            poisoned[place] += number
            found = RATED.estimate(poisoned, 1600 + number).frequencies[value]
            out.append(not low[value] <= found <= high[value])
        return any(out)

    for value in (0, 1):
        assert moved(value, int(needed[value]))
        assert not moved(value, int(needed[value]) - 1)
        assert poisoning.set_tolerance(estimate, [value], low[value], high[value]) == needed[value]
        assert query.anytime_interval(estimate, [value]) == (low[value], high[value])
    assert poisoning.set_tolerance(estimate, [0, 1], 1.0, 1.0) == math.inf
    assert query.anytime_interval(estimate, [0, 1]) == (1.0, 1.0)
