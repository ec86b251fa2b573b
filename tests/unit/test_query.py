"""Answers for sets under each method."""

import numpy as np
import pytest

import ldp
from ldp.consistency import METHODS

ORACLE = ldp.oracle("olh", epsilon="1", domain_size=6)
ESTIMATE = ldp.Estimate(np.array([0.75, 0.375, 0.0625, -0.125, -0.25, -0.5]), 1000, ORACLE)


@pytest.mark.parametrize("method", [name for name in METHODS if name != "post-pos"])
def test_a_set_is_the_sum_of_the_methods_vector(method):
    vector = METHODS[method](ESTIMATE)
    for subset in ([0], [4, 1], [5, 4, 3], range(6)):
        assert ldp.answer(ESTIMATE, subset, method) == pytest.approx(
            sum(vector[v] for v in subset), abs=1e-15
        )


def test_post_pos_clamps_the_query_not_the_values():
    assert ldp.answer(ESTIMATE, [0, 3], "post-pos") == 0.625  # base-pos would answer 0.75
    assert ldp.answer(ESTIMATE, [2, 3, 4], "post-pos") == 0.0
    assert ldp.answer(ESTIMATE, [2, 3, 4], "base") == -0.3125
    assert ldp.answer(ESTIMATE, [2, 3, 4], "base-pos") == 0.0625
    for v in range(6):
        assert ldp.answer(ESTIMATE, [v], "post-pos") == METHODS["post-pos"](ESTIMATE)[v]


@pytest.mark.parametrize("method", METHODS)
def test_the_empty_set_and_the_whole(method):
    assert ldp.answer(ESTIMATE, [], method) == 0.0
    assert isinstance(ldp.answer(ESTIMATE, np.arange(6, dtype=np.uint8), method), float)


@pytest.mark.parametrize(
    ("subset", "method", "error", "said"),
    [
        ([0], "norm-subs", ValueError, "'norm-subs'.*norm-sub, mle-apx"),
        ([0, 6], "base", ValueError, r"0\.\.5, got 6"),
        ([-1, 2], "base", ValueError, r"0\.\.5, got -1"),
        ([1, 2, 1], "base", ValueError, "distinct"),
        ([0.0, 1.0], "base", TypeError, "float64"),
        ([True, False], "base", TypeError, "bool"),
        ([[0, 1]], "base", ValueError, r"\(1, 2\)"),
        (3, "base", ValueError, r"shape \(\)"),
    ],
)
def test_bad_queries_are_named(subset, method, error, said):
    with pytest.raises(error, match=said):
        ldp.answer(ESTIMATE, subset, method)
