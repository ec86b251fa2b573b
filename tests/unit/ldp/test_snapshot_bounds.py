"""Anytime-valid ends and poisoning tolerance in a snapshot."""

import numpy as np
import pytest

import ldp
from ldp import snapshot
from ldp.query import SetQuery, TopQuery
from ldp.snapshot import Cut

N = 20_000
ORACLES = {
    "grr": ldp.GRR("1", 8),
    "olh": ldp.OLH("2", 8),
    "oue": ldp.OUE("1", 8),
    "subset": ldp.SubsetSelection("1", 8),
    "hadamard": ldp.oracle("hadamard", "1", 8),
    "pgr": ldp.oracle("pgr", "1", 8),
    "unary": ldp.Unary("3/4", "1/8", domain_size=8),
}


def taken(oracle, level=0.9, merged=False):
    users = np.repeat(np.arange(8), [8000, 6000, 4000, 2000, 0, 0, 0, 0])
    state = oracle.zeros()
    oracle.accumulate(state, oracle.perturb(users, rng=np.random.default_rng(3)))
    estimate = oracle.estimate(oracle.support(state), N)
    if merged:
        estimate = ldp.Estimate(estimate.frequencies, N, oracle)
    queries = [SetQuery("pair", (0, 4)), SetQuery("one", (5,)), TopQuery("most", 3)]
    stream = ldp.Stream("s", oracle)
    return estimate, snapshot.take(stream, estimate, Cut({0: N}, {}), 1, queries, level).bodies["base"]


def outside(oracle, total, m, k, low, high, least, most):
    """Whether k more reports, which all add the least or all the most, put the sum of m values out of an interval."""
    p, q = float(oracle.p), float(oracle.q)
    ends = [((total + k * each) / (N + k) - m * q) / (p - q) for each in (least, most)]
    return ends[0] < low or ends[1] > high


@pytest.mark.parametrize("name", ORACLES)
def test_exactly_the_published_tolerance_moves_an_estimate_out(name):
    oracle = ORACLES[name]
    estimate, base = taken(oracle)
    counts, values = estimate.counts, range(8)
    told = [((v,), base.low[v], base.high[v], base.poisoning_tolerance[v]) for v in values]
    (top,) = base.tops
    told += [((v,), top.low[i], top.high[i], top.poisoning_tolerance[i]) for i, v in enumerate(top.values)]
    told += [(each.query.values, each.low, each.high, each.poisoning_tolerance) for each in base.sets]
    assert sum(fewest > 0 for *_, fewest in told) >= 10
    for which, low, high, fewest in told:
        total, m = float(counts[list(which)].sum()), len(which)
        least, most = (0, 1) if m == 1 else oracle.supported_of(np.array(which))
        if fewest == -1:
            assert not outside(oracle, total, m, 10**12, low, high, least, most)
            continue
        assert fewest == int(fewest) >= 0
        assert outside(oracle, total, m, fewest, low, high, least, most), which
        assert not fewest or not outside(oracle, total, m, fewest - 1, low, high, least, most), which


@pytest.mark.parametrize("name", ORACLES)
def test_anytime_bounds_equal_those_of_the_estimate(name):
    oracle = ORACLES[name]
    estimate, base = taken(oracle)
    low, high = estimate.anytime_interval(0.9)
    assert (base.anytime_low.tolist(), base.anytime_high.tolist()) == (low.tolist(), high.tolist())
    pair, one = base.sets
    assert (pair.anytime_low, pair.anytime_high) == ldp.query.anytime_interval(estimate, (0, 4), 0.9)
    assert (one.anytime_low, one.anytime_high) == (low[5], high[5])
    (top,) = base.tops
    # each of the d candidates for the top has a d-th of the risk
    low, high = estimate.anytime_interval(1 - 0.1 / 8)
    assert (top.anytime_low.tolist(), top.anytime_high.tolist()) == (
        low[top.values].tolist(),
        high[top.values].tolist(),
    )


def test_merged_frequencies_have_score_intervals_only():
    _, base = taken(ORACLES["olh"], merged=True)
    assert base.low is not None
    assert base.anytime_low is base.anytime_high is base.poisoning_tolerance is None
    assert base.sets[0].poisoning_tolerance is base.tops[0].poisoning_tolerance is None
