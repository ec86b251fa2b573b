"""Estimate: input, standard errors, score interval, merging."""

import dataclasses
from fractions import Fraction
from math import sqrt

import numpy as np
import pytest
from scipy.stats import norm as gaussian

import ldp
from tests.support.estimates import estimated

ORACLES = [
    ldp.oracle("grr", epsilon="1", domain_size=5),
    ldp.oracle("grr", epsilon="3", domain_size=2),  # p + q = 1
    ldp.oracle("grr", epsilon="1/100", domain_size=5),
    ldp.oracle("grr", epsilon="20", domain_size=1000),
    ldp.oracle("olh", epsilon="1", domain_size=7),
    ldp.oracle("olh", epsilon="4", domain_size=7, g=2),  # p + q > 1
    ldp.oracle("olh", epsilon="40", domain_size=7, g=2),  # the variance all but vanishes at f = 1
    ldp.oracle("olh", epsilon="30", domain_size=7),
]


def spread(oracle, n):
    """An estimate whose counts run over all of 0..n."""
    return estimated(oracle, np.linspace(0, n, oracle.domain_size).astype(np.int64), n)


@pytest.mark.parametrize(
    ("frequencies", "n", "error", "said"),
    [
        ([0.5, np.nan, 0.5], 10, ValueError, "value 1 has nan"),
        ([0.5, 0.5, -np.inf], 10, ValueError, "value 2 has -inf"),
        ([0.5, 0.5], 10, ValueError, r"\(2,\).*\(3,\)"),
        ([[0.5, 0.5, 0.0]], 10, ValueError, r"\(1, 3\)"),
        ([0.5, 0.5, 0.0], 0, ValueError, "got 0"),
        ([0.5, 0.5, 0.0], -3, ValueError, "got -3"),
        ([0.5, 0.5, 0.0], 10.0, TypeError, "float"),
        ([0.5, 0.5, 0.0], True, TypeError, "bool"),
    ],
)
def test_bad_input_is_named(frequencies, n, error, said):
    with pytest.raises(error, match=said):
        ldp.Estimate(np.array(frequencies), n, ldp.oracle("grr", epsilon="1", domain_size=3))


def test_an_estimate_copies_its_data_and_is_immutable():
    given = np.array([0.5, 0.25, 0.25])
    estimate = ldp.Estimate(given, np.int64(4), ldp.oracle("grr", epsilon="1", domain_size=3))
    given[0] = 9.0
    assert estimate.frequencies.tolist() == [0.5, 0.25, 0.25]
    assert estimate.n == 4
    assert type(estimate.n) is int
    with pytest.raises(ValueError, match="read-only"):
        estimate.frequencies[0] = 1.0
    with pytest.raises(AttributeError):
        estimate.n = 5


@pytest.mark.parametrize("oracle", ORACLES, ids=repr)
@pytest.mark.parametrize("n", [1, 10**15])
def test_standard_errors_match_the_binomial(oracle, n):
    estimate = spread(oracle, n)
    p, q = oracle.p, oracle.q

    def of_two_binomials(f):  # n·f users with the value, the others without
        return sqrt((f * p * (1 - p) + (1 - f) * q * (1 - q)) / n / (p - q) ** 2)

    assert estimate.sigma == pytest.approx(of_two_binomials(Fraction(0)), rel=1e-14)
    clipped = [min(max(Fraction(f), Fraction(0)), Fraction(1)) for f in estimate.frequencies]
    np.testing.assert_allclose(estimate.std_error(), [of_two_binomials(f) for f in clipped], rtol=1e-12)


@pytest.mark.parametrize("oracle", ORACLES, ids=repr)
@pytest.mark.parametrize("n", [1, 30, 10**15])
@pytest.mark.parametrize("level", [0.5, 0.999999])
@pytest.mark.parametrize("of", ["reports", "population"])
def test_an_interval_matches_its_definition(oracle, n, level, of):
    """Just inside each end the definition holds, just outside it does not: decided in exact arithmetic."""
    estimate = spread(oracle, n)
    p, q = oracle.p, oracle.q
    z = Fraction(float(gaussian.isf((1 - level) / 2)))

    def belongs(f, estimated):
        variance = (1 - f) * q * (1 - q) + f * p * (1 - p)
        if of == "population":
            variance += max(f * (1 - f), 0) * (p - q) ** 2
        return n * ((estimated - f) * (p - q)) ** 2 <= z * z * variance

    low, high = estimate.interval(level, of)
    for v in range(0, oracle.domain_size, max(1, oracle.domain_size // 7)):
        f, below, above = (Fraction(x) for x in (estimate.frequencies[v], low[v], high[v]))
        assert below <= f <= above
        nudge = (above - below) / 10**9 + Fraction(4 * np.spacing(max(abs(low[v]), abs(high[v]))))
        assert not belongs(below - nudge, f)
        assert not belongs(above + nudge, f)
        if above - below > 2 * nudge:
            assert belongs(below + nudge, f)
            assert belongs(above - nudge, f)


@pytest.mark.parametrize("level", [0.0, 1.0, -0.5, 95, float("nan")])
def test_an_invalid_level_is_refused(level):
    with pytest.raises(ValueError, match=f"level is {level}; allowed"):
        spread(ORACLES[0], 10).interval(level)


def test_an_interval_of_anything_else_is_refused():
    with pytest.raises(ValueError, match="`of` is 'users'; allowed are 'reports' and 'population'"):
        spread(ORACLES[0], 10).interval(of="users")


DAY = 86_400_000


def test_windows_are_kept_in_order_and_joined():
    oracle = ldp.GRR("1", 2)
    windows = ((5 * DAY, 6 * DAY), (0, DAY), (DAY, 3 * DAY))
    estimate = ldp.Estimate([0.5, 0.5], 10, oracle, windows)
    assert estimate.windows == ((0, 3 * DAY), (5 * DAY, 6 * DAY))
    assert estimate.within(-DAY, 0).windows == ((-DAY, 0),)
    assert ldp.Estimate([0.5, 0.5], 10, oracle).windows == ()


@pytest.mark.parametrize(
    ("windows", "error", "said"),
    [
        (
            ((0, 10), (9, 20)),
            ValueError,
            r"\(0, 10\) and \(9, 20\) overlap: reports in both would be counted",
        ),
        (((0, 100), (20, 30), (50, 60)), ValueError, r"\(0, 100\) and \(20, 30\) overlap"),
        (((5, 5),), ValueError, "end is 5; allowed is 6"),
        (((0.0, 1),), TypeError, "start must be an integer"),
        (((0, True),), TypeError, "end must be an integer"),
        (((1,),), TypeError, "start, end"),
        ((5, 6), TypeError, "start, end"),
    ],
)
def test_invalid_windows_are_refused(windows, error, said):
    with pytest.raises(error, match=said):
        ldp.Estimate([0.5, 0.5], 10, ldp.GRR("1", 2), windows)


@pytest.mark.parametrize("oracle", [*ORACLES, ldp.PGR("1", 13), ldp.GRR("1/1000", 50)], ids=repr)
@pytest.mark.parametrize("n", [1, 1000, 1 << 42])
def test_a_merged_estimate_equals_that_of_summed_counts_exactly(oracle, n):
    rng = np.random.default_rng(11)
    users = rng.multinomial(n, np.full(oracle.domain_size, 1 / oracle.domain_size), 3)
    counts = np.array([oracle.simulate(some, rng) for some in users])
    parts = [
        oracle.estimate(some, n).within(start, start + 1)
        for some, start in zip(counts, (2, 0, 7), strict=True)
    ]
    both = parts[0].merge(parts[1])
    assert both.frequencies.tolist() == oracle.estimate(counts[0] + counts[1], 2 * n).frequencies.tolist()
    assert (both.n, both.windows, both.oracle) == (2 * n, ((0, 1), (2, 3)), oracle)
    if n < 1 << 42:
        everything = oracle.estimate(counts.sum(axis=0), 3 * n)
        for merged in (parts[0].merge(*parts[1:]), both.merge(parts[2])):
            assert merged.frequencies.tolist() == everything.frequencies.tolist()
            assert merged.windows == ((0, 1), (2, 3), (7, 8))


@pytest.mark.parametrize(
    ("other", "error", "said"),
    [
        (ldp.GRR("1", 3).estimate([5, 3, 2], 10).within(0, 2), ValueError, r"\(0, 2\) and \(1, 2\) overlap"),
        (ldp.GRR("1", 3).estimate([5, 3, 2], 10), ValueError, "whole stream cannot be merged"),
        (ldp.GRR("2", 3).estimate([5, 3, 2], 10).within(0, 1), ValueError, "GRR.*and GRR.*cannot be merged"),
        (ldp.OLH("1", 3).estimate([5, 3, 2], 10).within(0, 1), ValueError, "GRR.*and OLH.*cannot be merged"),
        (ldp.GRR("1", 2).estimate([5, 5], 10).within(0, 1), ValueError, "domain_size=3.*domain_size=2"),
        (
            ldp.Estimate([0.5, 0.5, 0.0], 10, ldp.GRR("1", 3)).within(0, 1),
            ValueError,
            "is not from a count",
        ),
        (
            ldp.GRR("1", 3).estimate([1 << 43, 1, 0], (1 << 43) + 1).within(0, 1),
            ValueError,
            "at most 8796093022208",
        ),
        (np.array([0.5, 0.5, 0.0]), TypeError, "not ndarray: a method's vector is not linear in the counts"),
    ],
)
def test_unsound_merges_are_refused(other, error, said):
    own = ldp.GRR("1", 3).estimate([6, 3, 1], 10).within(1, 2)
    with pytest.raises(error, match=said):
        own.merge(other)
    if isinstance(other, ldp.Estimate):
        with pytest.raises(error):
            other.merge(own)


def test_an_estimate_keeps_its_counts():
    oracle, given = ldp.OLH("1", 3), np.array([7, 0, 2], np.int32)
    estimate = oracle.estimate(given, 9)
    given[0] = 1
    assert (estimate.counts.tolist(), estimate.counts.dtype) == ([7, 0, 2], np.int64)
    assert not estimate.counts.flags.writeable
    both = estimate.within(0, 1).merge(oracle.estimate([1, 1, 1], 3).within(1, 2))
    assert both.counts.tolist() == [8, 1, 3]
    assert ldp.Estimate(estimate.frequencies, 9, oracle).counts is None


def test_counts_that_contradict_the_frequencies_are_not_merged():
    oracle = ldp.GRR("1", 3)
    own, other = (oracle.estimate([5, 3, 2], 10).within(i, i + 1) for i in range(2))
    made = dataclasses.replace(other, frequencies=ldp.consistency.METHODS["norm-sub"](other) / 2)
    with pytest.raises(ValueError, match="not from a count"):
        own.merge(made)
