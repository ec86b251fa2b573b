"""Empirical Bayes against PowerNS and Norm-Sub: the figure, the winners."""

import math

import numpy as np
import pytest

import ldp
from ldp.consistency import EXTRA, METHODS
from tests.paper import eleventh
from tests.paper.figures import FIGURES
from tests.paper.jobs import FULL, QUICK, run

pytestmark = pytest.mark.statistical

THREE = ("norm-sub", "power-ns", "empirical-bayes")
EPSILONS = (0.5, 1.0, 2.0, 4.0)


@pytest.fixture(scope="module")
def rows():
    """All of it, 30 draws of each setting."""
    return run(eleventh.eleventh(FULL), seed=1)


def one(rows, case, dataset, x, method="empirical-bayes"):
    (row,) = [row for row in rows if (row.case, row.dataset, row.x, row.method) == (case, dataset, x, method)]
    return row


def test_a_row_is_the_mean_over_the_same_draws():
    """Two draws, each with the seed of its job, and the errors written down another way."""
    jobs = [
        job for job in eleventh.eleventh(QUICK) if job.key[1:3] == ("steep geometric", "2") and job.key[3] < 2
    ]
    rows = run(jobs, seed=5)
    assert {row.figure for row in rows} == {"eleventh"}
    assert "eleventh" in FIGURES
    histogram = eleventh.DATASETS["steep geometric"]().histogram
    oracle = ldp.OLH("2", 1024)
    errors = []
    for job in jobs:
        drawn = []
        type(job)(job.key, lambda rng, drawn=drawn: drawn.append(oracle.simulate(histogram, rng)) or []).run(
            5
        )
        estimate = oracle.estimate(drawn[0], 10**6)
        found = [method(estimate) for method in ((METHODS | EXTRA)[name] for name in THREE)]
        errors.append(np.array(found) - histogram / 10**6)
    for case, end in (("", 1024), ("top 16", 16)):
        sizes = [[math.sqrt(sum(x * x for x in error[:end]) / end) for error in draw] for draw in errors]
        for place, method in enumerate(THREE):
            row = one(rows, case, "steep geometric", 2.0, method)
            assert row.value == pytest.approx((sizes[0][place] + sizes[1][place]) / 2, rel=1e-9)
            assert row.deviation == pytest.approx(abs(sizes[0][place] - sizes[1][place]) / math.sqrt(2))
            assert row.repeats == 2
        for place, peer in enumerate(THREE[:2]):
            over = [size[2] / size[place] - 1 for size in sizes]
            row = one(rows, f"{case} over {peer}".strip(), "steep geometric", 2.0)
            assert row.value == pytest.approx(sum(over) / 2, rel=1e-9)
            assert row.deviation == pytest.approx(abs(over[0] - over[1]) / math.sqrt(2))
    for place, method in enumerate(THREE):
        row = one(rows, "top 16: mean error", "steep geometric", 2.0, method)
        assert row.value == pytest.approx(np.mean([draw[place][:16].sum() / 16 for draw in errors]))


@pytest.mark.long
@pytest.mark.parametrize("x", EPSILONS)
def test_results_on_other_data_match_the_description(rows, x):
    assert -0.02 < one(rows, "over power-ns", "zipf", x).value < 0.1
    assert one(rows, "over power-ns", "uniform", x).value < -0.3
    assert -0.2 < one(rows, "over power-ns", "geometric", x).value < 0
    assert abs(one(rows, "over power-ns", "steep geometric", x).value) < 0.06
    assert one(rows, "over power-ns", "emoji", x).value < 0
    for dataset in eleventh.DATASETS:
        assert one(rows, "over norm-sub", dataset, x).value < 0
