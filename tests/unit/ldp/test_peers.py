"""Estimates against those of other packages from the same counts."""

import json
from pathlib import Path

import numpy as np
import pytest

import ldp
from ldp.consistency import METHODS

CASES = json.loads((Path(__file__).parents[2] / "vectors" / "estimates.json").read_text(encoding="utf-8"))[
    "cases"
]


@pytest.mark.parametrize(
    "case",
    CASES,
    ids=lambda case: "-".join([case["package"], case["protocol"], *map(str, case["parameters"].values())]),
)
def test_estimates_equal_those_of_another_package(case):
    more = dict(case["parameters"])
    oracle = ldp.oracle(case["protocol"], more.pop("epsilon", None), len(case["counts"]), **more)
    found = METHODS[case["method"]](oracle.estimate(case["counts"], case["n"]))
    np.testing.assert_allclose(found, case["estimate"], rtol=0, atol=1e-12)
    # a report more for the last value moves the estimate visibly
    counts = [*case["counts"][:-2], case["counts"][-2] - 1, case["counts"][-1] + 1]
    moved = METHODS[case["method"]](oracle.estimate(counts, case["n"]))
    assert np.abs(moved - case["estimate"]).max() > 1e-4


def test_each_package_has_its_protocols():
    found = {}
    for case in CASES:
        found.setdefault(case["package"], set()).add(case["protocol"])
    assert found == {
        "multi-freq-ldpy": {"grr", "oue", "sue", "olh", "subset", "unary"},
        "opendp": {"unary"},
        "pure-ldp": {"grr", "oue", "sue", "olh", "hadamard"},
    }
