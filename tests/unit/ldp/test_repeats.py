"""Errors of estimates from several reports of each device."""

from fractions import Fraction

import numpy as np
import pytest

import ldp
from ldp import query
from ldp.alarms import Watch
from ldp.analysis import changes
from ldp.intervals.binomial_tail import top_bounds
from ldp.intervals.repeats import Repeats
from ldp.privacy.declaration import Declaration
from ldp.query import SetQuery
from ldp.set_variance import SetVariance
from ldp.snapshot import Cut, Period, take

RAPPOR = ldp.RAPPOR("1/2", "3/4", "1/2", domain_size=4)
DAY = 86_400_000
F = np.array([0.55, 0.25, 0.15, 0.05])
SHARED = {"rappor": RAPPOR, "grr": ldp.GRR("1", 4), "oue": ldp.OUE("2", 4)}


def daily(noise="memoised"):
    return Declaration("device", 1, "24h", noise, "365d")


def section_3(f, devices, k, permanent, a, b):
    """Var f̂ of U users with k reports each of one permanent response, written independently of the product."""
    h = float(permanent) / 2
    one = ((1 - h) * a * (1 - a) + h * b * (1 - b)) / k
    zero = (h * a * (1 - a) + (1 - h) * b * (1 - b)) / k
    return (h * (1 - h) + (f * one + (1 - f) * zero) / (a - b) ** 2) / (devices * (1 - 2 * h) ** 2)


def of_days(oracle, counts, n, days, privacy):
    """The estimate of `days` days, in which each device sends one report a day."""
    return oracle.estimate(counts, n).within(0, days * DAY).declared(privacy)


def repeated(oracle, users, k, rng):
    """Support counts of k reports per device, drawn as the client makes them."""
    d, values = len(users), np.repeat(np.arange(len(users)), users)
    own = np.arange(d) == values[:, None]
    if isinstance(oracle, ldp.RAPPOR):
        permanent = rng.random((values.size, d)) < np.where(own, 0.75, 0.25)
        return rng.binomial(k, np.where(permanent, 0.75, 0.5)).sum(axis=0)
    reports = oracle.perturb(values, rng=rng)
    return k * oracle.support(_state(oracle, reports))


def _state(oracle, reports):
    state = oracle.zeros()
    oracle.accumulate(state, reports)
    return state


@pytest.mark.parametrize("k", [1, 5, 30])
def test_the_variance_of_repeats_is_that_of_simulated_devices(k):
    """The mean over 4 values and 4,000 runs is within 5 %, 4 standard deviations; the seed is fixed."""
    devices, runs = 300, 4000
    users, rng = np.array([165, 75, 45, 15]), np.random.default_rng(33)
    counts = np.array([repeated(RAPPOR, users, k, rng) for _ in range(runs)])
    found = np.array([RAPPOR.estimate(each, k * devices).frequencies for each in counts])
    formula = np.array([section_3(f, devices, k, Fraction(1, 2), 0.75, 0.5) for f in users / devices])
    assert ((found - users / devices) ** 2).mean() / formula.mean() == pytest.approx(1, abs=0.05)
    for run in (0, 1):
        estimate = of_days(RAPPOR, counts[run], k * devices, k, daily())
        at = np.clip(estimate.frequencies, 0, 1)
        due = [section_3(f, devices, k, Fraction(1, 2), 0.75, 0.5) for f in at]
        np.testing.assert_allclose(estimate.std_error() ** 2, due, rtol=1e-12)


@pytest.mark.parametrize("name", SHARED)
@pytest.mark.parametrize("of", ["reports", "population"])
def test_intervals_of_thirty_reports_a_device_cover(name, of):
    """2,000 runs of 4 values: values and a set at .95 ± .01; the two largest together at least that."""
    oracle, k, devices, runs = SHARED[name], 30, 2000, 2000
    variance = SetVariance(oracle, [0, 2])
    rng = np.random.default_rng(7)
    fixed, hits, naive, together, of_set = (F * devices).astype(int), [], [], 0, 0
    for run in range(runs):
        users = fixed if of == "reports" else rng.multinomial(devices, F)
        counts = _quick(oracle, users, k, rng)
        estimate = of_days(oracle, counts, k * devices, k, daily())
        hits.append(_inside(estimate.interval(of=of), F))
        naive.append(_inside(estimate.declared(None).interval(of=of), F))
        low, high = variance.interval(estimate, 0.95, of)
        of_set += low <= F[0] + F[2] <= high
        together += (
            run < 200 and _inside(query.top_interval(estimate, 2, of=of), F[query.top(estimate, 2)]).all()
        )
    assert np.mean(hits) == pytest.approx(0.95, abs=0.01)
    assert of_set / runs == pytest.approx(0.95, abs=0.015)
    assert together > 180
    assert np.mean(naive) < 0.85  # one report per device, assumed wrongly


def _quick(oracle, users, k, rng):
    """`repeated` from its sufficient numbers."""
    if isinstance(oracle, ldp.RAPPOR):
        ones = rng.binomial(users, 0.75) + rng.binomial(users.sum() - users, 0.25)
        return rng.binomial(k * ones, 0.75) + rng.binomial(k * (users.sum() - ones), 0.5)
    return k * oracle.simulate(users, rng)


def _inside(ends, f):
    return (ends[0] <= f) & (f <= ends[1])


def test_fresh_reports_repeat_the_device_and_not_its_noise():
    """The share among reports as ever; the population has n/k users (3,000 runs at .95 ± .01)."""
    oracle, k, devices, runs = ldp.GRR("3", 4), 30, 500, 3000
    rng, hits = np.random.default_rng(3), []
    for _ in range(runs):
        users = rng.multinomial(devices, F)
        plain = oracle.estimate(oracle.simulate(k * users, rng), k * devices)
        estimate = plain.within(0, k * DAY).declared(daily("fresh"))
        assert not estimate.memoised
        hits.append(_inside(estimate.interval(of="population"), F))
    np.testing.assert_array_equal(estimate.interval(), plain.interval())
    np.testing.assert_array_equal(query.top_interval(estimate, 2), query.top_interval(plain, 2))
    np.testing.assert_array_equal(estimate.anytime_interval(), plain.anytime_interval())
    assert np.mean(hits) == pytest.approx(0.95, abs=0.01)
    own, alone = (each.interval(of="population") for each in (estimate, plain))
    assert ((own[1] - own[0]) > 3 * (alone[1] - alone[0])).all()


@pytest.mark.parametrize("of", ["reports", "population"])
def test_bounds_of_one_report_a_device_are_the_binomial_ones(of):
    for oracle in (ldp.GRR("1", 8), ldp.OLH("2", 8), RAPPOR):
        n = 5000
        counts = np.rint(n * float(oracle.q + (oracle.p - oracle.q) * Fraction(1, 4))) + np.array(
            [0.0, 90.0, 200.0]
        )
        due = top_bounds(counts, n, oracle.p, oracle.q, 8, 0.95, of)
        for stages in (oracle.memoised_stages, ((Fraction(1), Fraction(0)), (oracle.p, oracle.q))):
            np.testing.assert_allclose(
                Repeats(1, *stages).top_bounds(counts / n, n, 8, 0.95, of), due, atol=5e-4
            )


def test_equal_reports_of_a_device_are_one_report():
    oracle = ldp.GRR("1", 8)
    counts = np.array([1900.0, 900.0, 600.0])
    due = top_bounds(counts, 5000, oracle.p, oracle.q, 8, 0.95, "reports")
    found = Repeats(30, *oracle.memoised_stages).top_bounds(counts / 5000, 30 * 5000, 8, 0.95, "reports")
    np.testing.assert_allclose(found, due, atol=5e-4)
    one, all_of_them = (
        oracle.estimate([20, 30, 25, 25, 0, 0, 0, 0], 100),
        of_days(oracle, [600, 900, 750, 750, 0, 0, 0, 0], 3000, 30, daily()),
    )
    np.testing.assert_allclose(all_of_them.interval(), one.interval(), atol=1e-12)
    np.testing.assert_allclose(query.interval(all_of_them, [0, 2]), query.interval(one, [0, 2]), atol=1e-12)


@pytest.mark.parametrize("oracle", SHARED.values(), ids=SHARED)
def test_methods_for_independent_reports_are_refused(oracle):
    estimate = of_days(oracle, [200, 100, 100, 100] if oracle.name == "grr" else [250] * 4, 500, 30, daily())
    with pytest.raises(ValueError, match="up to 30 reports of a device with memoised noise; anytime-valid"):
        estimate.anytime_interval()
    with pytest.raises(ValueError, match="anytime-valid intervals need independent reports"):
        query.anytime_interval(estimate, [0, 1])
    for test in (changes.between, lambda a, b: changes.between_sets(a, b, [SetQuery("s", (0, 1))])):
        with pytest.raises(ValueError, match="changes need independent reports"):
            test(estimate, estimate)
    alone = estimate.within(0, DAY)
    np.testing.assert_array_equal(alone.anytime_interval(), estimate.declared(None).anytime_interval())


def test_a_snapshot_of_repeats_has_wide_intervals_and_no_anytime_valid_ones():
    stream = ldp.Stream("s", RAPPOR, privacy=daily())
    estimate = of_days(RAPPOR, [1900, 1800, 1750, 1700], 3000, 30, daily())
    queries = [SetQuery("s", (0, 1)), query.TopQuery("t", 2)]
    window = Period("30d", 0, 30 * DAY, final=True)
    found = take(stream, estimate, Cut({0: 3000}, {}), 1, queries, window=window)
    base = found.bodies["base"]
    np.testing.assert_array_equal([base.low, base.high], estimate.interval())
    assert base.anytime_low is base.sets[0].anytime_low is base.tops[0].anytime_low is None
    assert base.poisoning_tolerance is not None
    np.testing.assert_array_equal(found.estimate().interval(), estimate.interval())


def test_merged_windows_share_the_reports_of_a_period():
    first, second = (
        RAPPOR.estimate([60, 60, 60, 60], 100).within(start, start + DAY // 2).declared(daily())
        for start in (0, DAY // 2)
    )
    assert (first.per_device, first.merge(second).per_device) == (1, 1)
    later = first.within(5 * DAY - 1, 7 * DAY)
    assert (later.per_device, first.merge(later).per_device) == (3, 4)
    with pytest.raises(ValueError, match="different privacy declarations"):
        first.merge(second.declared(None))
    assert first.within(-DAY - 1, 1).per_device == 3
    assert RAPPOR.estimate([60, 60, 60, 60], 100).declared(daily()).per_device == 100  # at most n


def test_watch_does_not_apply_to_rappor():
    assert not Watch(RAPPOR, lambda: 0.0)._tests
