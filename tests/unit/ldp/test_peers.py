"""Estimates against those of other packages from the same counts."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

import ldp
from ldp.consistency import METHODS

VECTORS = Path(__file__).parents[2] / "vectors"
CASES = [
    case
    for name in ("estimates.json", "inventors.json")
    for case in json.loads((VECTORS / name).read_text(encoding="utf-8"))["cases"]
]


def name_of(case):
    return "-".join(map(str, [case["package"], case["protocol"], *case["parameters"].values(), case["n"]]))


def read(case):
    """Oracle and support counts of a case, which may have counters of messages instead."""
    more, size = dict(case["parameters"]), len(case["estimate"])
    oracle = ldp.oracle(case["protocol"], more.pop("epsilon", None), size, **more)
    counters = case.get("counters")
    return oracle, case["counts"] if counters is None else oracle.support(np.array(counters)).tolist()


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_estimates_equal_those_of_another_package(case):
    oracle, counts = read(case)
    method = METHODS[case.get("method", "base")]
    np.testing.assert_allclose(
        method(oracle.estimate(counts, case["n"])), case["estimate"], rtol=0, atol=1e-12
    )
    # a report more for the last value moves the estimate visibly
    if "counters" not in case:
        moved = [*counts[:-2], counts[-2] - 1, counts[-1] + 1]
        assert np.abs(method(oracle.estimate(moved, case["n"])) - case["estimate"]).max() > 1e-4


@pytest.mark.parametrize("case", [case for case in CASES if "std_error" in case], ids=name_of)
def test_standard_errors_of_the_population_equal_those_of_rappor(case):
    """For a small z, an interval of the population is z standard errors wide on each side."""
    oracle, counts = read(case)
    estimate, z = oracle.estimate(counts, case["n"]), 1e-4
    level = math.erf(z / math.sqrt(2))
    inside = (estimate.frequencies > 0.01) & (estimate.frequencies < 0.99)
    low, high = estimate.interval(level, of="population")
    errors = (high - low)[inside] / (2 * z)
    np.testing.assert_allclose(errors, np.array(case["std_error"])[inside], rtol=1e-6)
    assert inside.any()


def test_each_package_has_its_protocols():
    found = {}
    for case in CASES:
        found.setdefault(case["package"], set()).add(case["protocol"])
    assert found == {
        "multi-freq-ldpy": {"grr", "oue", "sue", "olh", "subset", "unary"},
        "opendp": {"unary"},
        "private_frequency_oracles": {"pgr"},
        "pure-ldp": {"grr", "oue", "sue", "olh", "hadamard"},
        "rappor": {"unary"},
    }
