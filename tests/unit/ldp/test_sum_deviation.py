"""The deviation of Base's sum from 1: law, honest and poisoning reports."""

import math

import numpy as np
import pytest

import ldp
from ldp.oracles import ORACLES
from tests.unit.ldp.test_laws import SMALL, reports
from tests.unit.worker import test_recommender

pytestmark = pytest.mark.statistical

ALARM = 6.0
RUNS = 200
HONEST = [
    *(ldp.oracle(name, epsilon, d) for name in ORACLES for epsilon in ("1", "4") for d in (20,)),
    ldp.OLH("0.5", 2),
    ldp.HadamardResponse("1", 127),  # the message that every value prefers makes a large step
    ldp.PGR("1", 64, prime=3, dimension=5),
    ldp.PGR("1", 121, prime=3, dimension=5),  # as many points as values: constant
]


@pytest.mark.parametrize("oracle", SMALL, ids=repr)
def test_sum_has_the_largest_variance_of_any_user(oracle):
    supports, probabilities = reports(oracle)
    size = supports.sum(axis=1)
    variances = probabilities @ size**2 - (probabilities @ size) ** 2
    variance, step = oracle.sum_law()
    assert variance == pytest.approx(variances.max(), rel=1e-9, abs=1e-12)
    assert (variance == 0.0) == (step == 0.0) == (np.ptp(size) == 0)
    if oracle.name in ("hadamard", "pgr") and step:
        assert step == pytest.approx(np.abs(size - probabilities[0] @ size).max())


@pytest.mark.slow
@pytest.mark.parametrize("n", [1000, *(pytest.param(n, marks=pytest.mark.long) for n in (10, 10**6))])
@pytest.mark.parametrize("oracle", HONEST, ids=repr)
def test_sum_of_honest_reports_is_within_its_law(oracle, n):
    """Bernstein's bound for all runs of all cases together: a false alarm below 1e-6. And the law is not too wide."""
    rng = np.random.default_rng(1919)
    d = oracle.domain_size
    runs = RUNS if d < 100 or oracle.name != "subset" else 3
    populations = [np.eye(d, dtype=np.int64)[0] * n, rng.multinomial(n, np.full(d, 1 / d))]
    bound = math.sqrt(2 * math.log(2 * 3 * 2 * RUNS * len(HONEST) / 1e-6))
    for users in populations:
        found = np.array([oracle.estimate(oracle.simulate(users, rng), n).sum_deviation for _ in range(runs)])
        assert np.abs(found).max() < bound
        warning = oracle.estimate(oracle.simulate(users, rng), n).warning
        assert (warning is None) == (d > 1)  # the reports of one value contain no information
        if d == 1 or oracle.sum_law() == (0.0, 0.0):
            assert not found.any()
        elif n == 10**6:
            assert 0.3 < found.std() < 1.3


def poisoned(oracle, count):
    """Reports that support as many values as one can find."""
    made = np.zeros(count, oracle.report_dtype)
    match oracle.name:
        case "oue" | "sue":
            made["bits"] = np.packbits(np.ones(oracle.domain_size, bool), bitorder="little")
        case "olh":
            some = np.zeros(4000, oracle.report_dtype)
            some["seed"] = np.arange(4000) // oracle.g
            some["bucket"] = np.arange(4000) % oracle.g
            sizes = []
            for report in some:
                state = oracle.zeros()
                oracle.accumulate(state, np.array([report]))
                sizes.append(state.sum())
            made[:] = some[int(np.argmax(sizes))]
        case "pgr":
            made["index"] = oracle.preferred  # the point 1, 0, ..., 0: orthogonal to the first ones
    return made  # Hadamard's column 0 supports all


@pytest.mark.parametrize(
    "oracle",
    [
        ldp.OUE("1", 60),
        ldp.SUE("1", 60),
        ldp.OLH("1", 60),
        ldp.OLH("1", 60, hash="xxh32"),
        ldp.HadamardResponse("1", 60),
        ldp.PGR("1", 60, prime=3, dimension=5),
    ],
    ids=repr,
)
def test_the_sum_of_poisoning_reports_deviates(oracle):
    rng = np.random.default_rng(21)
    honest = oracle.perturb(rng.integers(60, size=20_000), rng=rng)
    assert abs(oracle.estimate_reports(honest).sum_deviation) < ALARM
    assert oracle.estimate_reports(np.concatenate([honest, poisoned(oracle, 600)])).sum_deviation > ALARM
    if oracle.name in ("oue", "sue"):
        none = np.zeros(600, oracle.report_dtype)
        assert oracle.estimate_reports(np.concatenate([honest, none])).sum_deviation < -ALARM


@pytest.mark.parametrize(
    ("oracle", "supports", "reason"),
    [
        (ldp.OUE("4", 3), [10_000, 10_000, 10_000], "the frequencies sum to 6.11, "),
        (ldp.OUE("4", 3), [0, 0, 0], "the frequencies sum to -0.11"),
        (ldp.OLH("1", 4), [9000, 0, 3500, 0], "0 has the frequency 2.88, "),
        (ldp.GRR("4", 3), [10_000, 0, 0], "0 has the frequency 1.04, "),
        (ldp.GRR("4", 3), [0, 5000, 5000], "0 has the frequency -0.0187, "),
    ],
    ids=str,
)
def test_impossible_counts_have_a_warning(oracle, supports, reason):
    estimate = oracle.estimate(supports, 10_000)
    assert f"not counts of 10,000 honest {oracle.name} reports: {reason}" in str(estimate.warning)
    assert f"Warning: {estimate.warning}" in estimate._repr_html_()


def test_one_value_is_a_bit_or_has_a_warning():
    """The bits of unary encoding have any share of yes; another protocol's only value has all reports."""
    for count, has_warning in ((0, True), (2400, False), (5000, False), (7600, False), (10_000, True)):
        estimate = ldp.Unary("3/4", "1/4", 1).estimate([count], 10_000)
        assert (estimate.sum_deviation, estimate.warning is not None) == (0.0, has_warning)
    for name in ("grr", "olh", "hadamard", "pgr"):
        oracle = ldp.oracle(name, "1", 1)
        estimate = oracle.estimate_reports(oracle.perturb(np.zeros(50, int), rng=np.random.default_rng(3)))
        assert estimate.warning == (
            "the domain has one value, which every report has: the counts contain no information"
        )


@pytest.mark.parametrize(
    ("p", "q", "mean"), [("1/2", "1/1000000000", 500_000), ("999999999/1000000000", "1/2", 500_000)]
)
def test_one_bit_is_compared_with_the_nearer_end_by_the_law_of_that_end(p, q, mean):
    """All users say yes, or all say no: the count has the standard error 500. The other law hardly varies."""
    for errors, has_warning in ((-5, False), (5, False), (7, p == "1/2"), (-7, q == "1/2")):
        estimate = ldp.Unary(p, q, 1).estimate([mean + 500 * errors], 10**6)
        assert (estimate.warning is not None) == has_warning, errors


def test_sum_is_set_by_the_publisher_with_each_snapshot(monkeypatch):
    """A stream of Hadamard Response with reports of the column that supports every value."""
    monkeypatch.setattr(test_recommender, "STREAM", ldp.Stream("s", ldp.HadamardResponse("1", 6)))
    bench, counted = test_recommender.Bench(), test_recommender.Counted()
    publisher = test_recommender.publishing(bench, counted, test_recommender.Published())
    for index, low, high in ((np.arange(400) % 8, -ALARM, ALARM), (np.zeros(400, int), ALARM, 100)):
        counted.count(index.tolist())
        publisher.tick()
        said = bench.metrics.registry.get_sample_value("ldp_worker_snapshot_sum_deviation", {"stream": "s"})
        assert low < said < high
