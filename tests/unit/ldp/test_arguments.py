"""Errors of the Python API, and labels in place of indices."""

import re

import numpy as np
import pandas
import pytest

import ldp
from ldp import poisoning, query
from ldp.analysis import changes
from ldp.analysis.method_selection import Values, choose
from ldp.consistency import EXTRA, METHODS
from ldp.consistency.together import by_method

LABELS = ["red", "green", "blue", "grey"]
ORACLE = ldp.GRR("1", 4)
PLAIN = ORACLE.estimate([400, 250, 200, 150], 1000)
LABELLED = PLAIN.labelled(LABELS)
CONVERT = "labels.index(label) is the index of a label"


@pytest.mark.parametrize(
    ("call", "given"),
    [
        (lambda: ORACLE.perturb(1), "values must be a vector of integers from 0 to 3, not 1 (int)"),
        (lambda: ORACLE.perturb("red"), f"a vector of integers from 0 to 3, not 'red' (str); {CONVERT}"),
        (lambda: ORACLE.perturb(["red", "blue"]), f"integers from 0 to 3, not 'red' (str); {CONVERT}"),
        (lambda: ORACLE.perturb(pandas.Series(LABELS)), f"not 'red' (str); {CONVERT}"),
        (lambda: ORACLE.perturb([1, None]), "integers from 0 to 3, not None (NoneType)"),
        (lambda: ORACLE.perturb({1, 2}), "a vector of integers from 0 to 3, not {1, 2} (set)"),
        (lambda: ORACLE.perturb_one("red"), f"must be an integer, not 'red' (str); {CONVERT}"),
        (lambda: ORACLE.estimate({"red": 9}, 9), "from 0 to n = 9, not {'red': 9} (dict)"),
        (lambda: ldp.answer(PLAIN, ["red"], "base"), f"integers from 0 to 3, not 'red' (str); {CONVERT}"),
        (lambda: ldp.answer(LABELLED, "red", "base"), "a vector of integers from 0 to 3, not 'red' (str)"),
        (lambda: query.interval(PLAIN, "norm-sub"), "a vector of integers from 0 to 3, not 'norm-sub' (str)"),
        (lambda: query.SetQuery("warm", ["red"]), f"must be an integer, not 'red' (str); {CONVERT}"),
        (lambda: PLAIN.to_frame(["norm-sub"]), "more is ['norm-sub']; allowed is a mapping"),
        (lambda: choose(PLAIN, "norm-sub", np.random.default_rng(1)), "a query must be a SetQuery"),
        (lambda: choose(PLAIN, Values(), 7), "rng must be a numpy Generator, not int"),
        (lambda: choose([0.5, 0.5], Values(), np.random.default_rng(1)), "an Estimate is needed, not a list"),
        (lambda: changes.between_sets(PLAIN, PLAIN, [[0, 1]]), "query 0 is [0, 1]; allowed is a SetQuery"),
        (lambda: ldp.Estimate([1.0], 9, "grr"), "oracle is 'grr'; allowed is an Oracle"),
        (lambda: ldp.oracle("grr", "1", d=4), "grr has no parameter 'd'; allowed are epsilon, domain_size"),
        (lambda: ldp.oracle("olh", "1", 4, k=2), "'k'; allowed are epsilon, domain_size, g, hash"),
        (lambda: ldp.oracle("unary", domain_size=4, p="3/4", q="1/4", g=2), "'g'; allowed are"),
        (lambda: ldp.oracle("grr", "1"), "'domain_size'"),
    ],
)
def test_an_error_names_the_argument_and_the_allowed_ones(call, given):
    with pytest.raises(TypeError, match=re.escape(given)):
        call()


@pytest.mark.parametrize(
    "call",
    [
        PLAIN.interval,
        PLAIN.anytime_interval,
        lambda level: PLAIN.to_frame(level=level),
        lambda level: query.interval(PLAIN, [1], level),
        lambda level: query.anytime_interval(PLAIN, [1, 2], level),
        lambda level: query.top_interval(PLAIN, 1, level),
        lambda level: changes.between(PLAIN, PLAIN, level),
    ],
)
def test_a_level_is_a_number_between_0_and_1(call):
    for level, error in (("norm-sub", TypeError), (None, TypeError), (95, ValueError), (True, ValueError)):
        with pytest.raises(error, match=f"level is {level!r}; allowed is a number strictly between 0 and 1"):
            call(level)
    call(np.float32(0.5))


@pytest.mark.parametrize("methods", [METHODS, EXTRA])
def test_an_unknown_method_gets_the_names_of_the_methods(methods):
    for name in ("normsub", "Norm-Sub", 3):
        with pytest.raises(KeyError, match=f"method is {name!r}; allowed are .*{[*methods][-1]}"):
            methods[name]
        assert name not in methods
    with pytest.raises(KeyError, match="method is 'normsub'; allowed are"):
        by_method(PLAIN, ["normsub"])


def test_a_labelled_estimate_takes_labels_in_place_of_indices():
    for labels, indices in (
        (["blue", "red"], [2, 0]),
        (np.array(["grey"]), [3]),
        (pandas.Series(LABELS), range(4)),
    ):
        assert LABELLED.indices(labels).tolist() == list(indices)
        assert LABELLED.indices(indices).tolist() == list(indices)
        assert ldp.answer(LABELLED, labels, "power-ns") == ldp.answer(PLAIN, indices, "power-ns")
        for of_set in (query.std_error, query.interval, query.anytime_interval):
            assert of_set(LABELLED, labels) == of_set(PLAIN, indices)
        assert poisoning.set_tolerance(LABELLED, labels, 0.0, 0.9) == poisoning.set_tolerance(
            PLAIN, indices, 0.0, 0.9
        )
        named, plain = LABELLED.anytime_interval(0.9, labels), PLAIN.anytime_interval(0.9, indices)
        assert np.array_equal(named, plain)
    assert LABELLED.indices([]).tolist() == []
    for labels, said in (
        (["rde"], "'rde'; allowed are the estimate's 4 labels"),
        (["red", "red"], "distinct"),
    ):
        with pytest.raises(ValueError, match=said):
            LABELLED.indices(labels)
    with pytest.raises(ValueError, match="a set contains 0; allowed"):
        LABELLED.indices(np.array([0, "red"], object))


def test_labels_of_an_estimate_are_distinct():
    with pytest.raises(ValueError, match="labels 'red' given more than once; allowed is each label once"):
        PLAIN.labelled(["red", "blue", "red", "grey"])


def test_a_line_shows_no_long_vectors_or_addresses():
    stream = ldp.Stream("s", ldp.GRR("1", 1000), labels=[f"value {v}" for v in range(1000)])
    estimate = stream.oracle.estimate([1] * 1000, 1000)
    for shown in (stream, estimate, estimate.labelled(stream.labels), METHODS["norm-sub"]):
        assert len(repr(shown)) < 150
    assert (
        repr(changes.between(PLAIN, PLAIN))
        == "Changes(found=array([], dtype=int64), level=0.01, at_least=0.0)"
    )
