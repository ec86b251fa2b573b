"""The plan's numbers against the papers' formulas and real reports."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import norm

import ldp
from ldp.analysis.protocol_selection import plan
from ldp.client import Client
from ldp.oracles import ORACLES

GRID = [(epsilon, d) for epsilon in ("0.1", "4") for d in (2, 16, 1024)]
over_grid = pytest.mark.parametrize(("epsilon", "d"), GRID)


def by_name(planned):
    return {row.protocol: row for row in planned.rows}


def variance(document, e):
    """n·Var at f = 0 as the protocols' papers print it, with e = e^ε."""
    d = document["domain_size"]
    match document["protocol"]:
        case "grr":
            return (d - 2 + e) / (e - 1) ** 2
        case "olh":
            g = document["g"]
            return (e + g - 1) ** 2 / ((e - 1) ** 2 * (g - 1))
        case "oue":
            return 4 * e / (e - 1) ** 2
        case "sue":
            return math.sqrt(e) / (math.sqrt(e) - 1) ** 2
        case "hadamard":
            return ((e + 1) / (e - 1)) ** 2
        case "subset":
            k = document["k"]
            p = k * e / (k * e + d - k)
            q = k / d * ((k - 1) * e + d - k) / (k * e + d - k) * d / (d - 1)
        case "pgr":
            points = [sum(document["prime"] ** i for i in range(document["dimension"] - j)) for j in range(3)]
            weight = (e - 1) * points[1] + points[0]
            p, q = e * points[1] / weight, ((e - 1) * points[2] + points[1]) / weight
    return q * (1 - q) / (p - q) ** 2


@over_grid
def test_the_standard_error_matches_the_formula(epsilon, d):
    rows = by_name(plan(epsilon, d, 12_345))
    assert set(rows) == set(ORACLES)
    for row in rows.values():
        expected = math.sqrt(variance(row.document, math.exp(float(epsilon))) / 12_345)
        assert row.standard_error == pytest.approx(expected, rel=1e-9), row.protocol


@over_grid
def test_the_detectable_frequency_matches_its_definition(epsilon, d):
    for n in (100, 10**6):
        for row in plan(epsilon, d, n).rows:
            oracle = ldp.Stream.from_document("s", row.document).oracle
            p, q = float(oracle.p), float(oracle.q)

            def sigma(f, p=p, q=q, n=n):
                return math.sqrt(((1 - f) * q * (1 - q) + f * p * (1 - p)) / n) / (p - q)

            threshold = sigma(0) * norm.isf(0.05 / d)
            if row.detectable is None:
                assert threshold > 1 or norm.sf(threshold, 1, sigma(1)) < 0.95
            else:
                assert 0 < row.detectable <= 1
                assert norm.sf(threshold, row.detectable, sigma(row.detectable)) == pytest.approx(0.95)


@over_grid
def test_costs_match_real_reports(epsilon, d):
    for row in plan(epsilon, d, 1000).rows:
        stream = ldp.Stream.from_document("s", row.document)
        oracle = stream.oracle
        assert row.frame_bytes == len(Client(row.document).report(d - 1))
        state = oracle.zeros()
        assert row.state_bytes == state.nbytes
        oracle.accumulate(state, oracle.perturb([0], rng=np.random.default_rng(1)))
        if row.unit == "counter":
            assert row.cost == state.sum()
        else:
            assert row.cost == d == state.size
            assert row.unit == ("hash" if row.protocol == "olh" else "bit")
        if row.decode_steps:
            assert row.decode_steps == pytest.approx(state.size * math.log2(state.size), abs=0.5)
        else:
            assert oracle.support(state).tolist() == state.tolist()


@over_grid
def test_the_recommended_protocol_is_the_cheapest_accurate_one(epsilon, d):
    planned = plan(epsilon, d, 1000)
    first, *rest = planned.rows
    assert [row.standard_error for row in rest] == sorted(row.standard_error for row in rest)
    least = min(row.standard_error for row in planned.rows)
    accurate = [row for row in planned.rows if row.standard_error <= 1.05 * least]
    assert first in accurate
    for row in accurate:
        assert row.cost >= first.cost
    assert all(row.protocol in planned.reason for row in accurate if row is not first)


@pytest.mark.parametrize(
    ("epsilon", "d", "recommended"),
    [("1", 2, "grr"), ("1", 1024, "pgr"), ("8", 30_000, "subset")],  # for 30,000 no geometry is near
)
def test_recommendations_match_the_expected_protocols(epsilon, d, recommended):
    assert plan(epsilon, d, 10**6).rows[0].protocol == recommended


def test_unusable_protocols_are_listed_with_the_reason():
    planned = plan("1", 1 << 24, 10)
    assert set(planned.not_applicable) == {"oue", "sue", "subset"}
    assert "2,097,157 bytes" in planned.not_applicable["oue"]
    assert len(planned.rows) + 3 == len(ORACLES)


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ((1.0, 10, 10), TypeError, "epsilon is the float"),
        (("0", 10, 10), ValueError, "epsilon is 0"),
        (("65", 10, 10), ValueError, "epsilon is 65"),
        ((Fraction(1, 1 << 70), 10, 10), ValueError, "too small"),
        (("1", 1, 10), ValueError, "domain_size is 1; allowed is 2 to 16777216"),
        (("1", (1 << 24) + 1, 10), ValueError, "domain_size is 16777217"),
        (("1", 10, 0), ValueError, "reports is 0"),
        (("1", 10, 1.5), TypeError, "reports must be an integer"),
    ],
)
def test_bad_input_is_refused(arguments, error, says):
    with pytest.raises(error, match=says):
        plan(*arguments)
