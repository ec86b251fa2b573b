"""Explicit channels: exact laws, privacy loss, documents."""

import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from click.testing import CliRunner

import ldp
from ldp import frames
from ldp.cli import cli
from ldp.client import Client
from ldp.sampling import epsilon_above, exp_below
from tests.unit.ldp.test_oracles import law

FINITE = [
    ldp.Response("3/4", 2),
    ldp.Response("1/3", 4),
    ldp.Response("0.7502601", 2),
    ldp.Unary("3/4", "1/4", 3),
    ldp.Unary("0.99", "0.01", 2),
    ldp.Unary("1/2", "1/3", 4),
    ldp.Unary("2/3", "1/2", 1),
    ldp.RAPPOR("1/2", "3/4", "1/2", 3),
    ldp.RAPPOR("1/4", "1", "0", 2),
]
INFINITE = [
    ldp.Unary("1", "1/3", 2, epsilon="infinite"),
    ldp.Unary("1", "1/4", 3, epsilon="infinite"),
]
every_channel = pytest.mark.parametrize("oracle", [*FINITE, *INFINITE], ids=repr)


def by_definition(oracle):
    """Law of each value, computed only from the document."""
    document, d = oracle.parameters(), oracle.domain_size
    one, zero = (Fraction(document.get(key, "0")) for key in ("p", "q"))
    if document["protocol"] == "response":
        return [{(v,): one if v == value else (1 - one) / (d - 1) for v in range(d)} for value in range(d)]

    def bit(truth):
        """The probability of a 1, over the permanent response's two outcomes."""
        f = Fraction(document.get("f", "0"))
        permanent = f / 2 + (1 - f) * truth
        return permanent * one + (1 - permanent) * zero

    laws = []
    for value in range(d):
        chance_of = {}
        for bits in itertools.product([0, 1], repeat=d):
            chances = [bit(v == value) if bits[v] else 1 - bit(v == value) for v in range(d)]
            chance_of[(sum(one << v for v, one in enumerate(bits)),)] = math.prod(chances)
        laws.append(chance_of)
    return laws


@every_channel
def test_every_outcome_has_the_probability_of_the_document(oracle, monkeypatch):
    for value, due in enumerate(by_definition(oracle)):
        found = law(monkeypatch, oracle, value)
        assert sum(found.values()) == 1
        assert {key: chance for key, chance in found.items() if chance} == {
            key: chance for key, chance in due.items() if chance
        }


@every_channel
def test_epsilon_is_that_of_the_worst_report(oracle):
    laws = by_definition(oracle)
    ratios = [
        (one[report], other[report]) for one, other in itertools.permutations(laws, 2) for report in one
    ]
    if oracle in INFINITE:
        assert any(more and not less for more, less in ratios)
        assert oracle.epsilon == math.inf
        assert oracle.promise == "ε is infinite: no privacy"
        assert not hasattr(oracle, "E")
    elif ratios:
        assert max(more / less for more, less in ratios) == oracle.E


@pytest.mark.parametrize("oracle", FINITE, ids=repr)
def test_epsilon_is_rounded_up_and_by_a_millionth_at_most(oracle):
    step = Fraction(1, 10**6)
    assert exp_below(oracle.epsilon) >= oracle.E
    assert oracle.epsilon == step or exp_below(oracle.epsilon - step) < oracle.E
    assert oracle.epsilon % step == 0
    assert oracle.promise.startswith(f"ε ≤ {float(oracle.epsilon)}")


def test_epsilon_of_ratios_next_to_one_and_far_from_it():
    assert epsilon_above(1 + Fraction(1, 10**36)) == Fraction(1, 10**6)
    assert epsilon_above(Fraction(10**72)) == Fraction(165786127, 10**6)  # 72·ln 10 = 165.786126…


def test_epsilon_of_browser_settings():
    """The rate that Chromium's own ε of 1.1 comes to, and Cobalt's levels."""
    rate = Fraction("0.4994798")
    assert ldp.Response(1 - rate / 2, 2).epsilon == Fraction("1.1")
    assert (2 - rate) / rate == ldp.Response(1 - rate / 2, 2).E
    levels = [("0.99", "0.01"), ("0.9", "0.1"), ("0.75", "0.25")]
    assert [float(ldp.Unary(p, q, 10).epsilon) for p, q in levels] == [9.19024, 4.39445, 2.197225]


def test_a_permanent_response_bounds_all_reports_of_it():
    """The ratio of the permanent response's laws, two bits apart, before the later step."""
    for f in ("1/2", "1/4", "0.9"):
        permanent = ldp.Unary(1 - Fraction(f) / 2, Fraction(f) / 2, 2)
        assert ldp.RAPPOR(f, "3/4", "1/4", 2).lifetime == permanent.epsilon
        assert ldp.RAPPOR(f, "1", "0", 2).E == permanent.E


@every_channel
def test_documents_and_frames(oracle):
    document = json.loads(json.dumps(ldp.Stream("s", oracle).document()))
    stream = ldp.Stream.from_document("s", document)
    assert stream.oracle == oracle
    assert hash(stream.oracle) == hash(oracle)
    again = {key: value for key, value in document.items() if key != "protocol"}
    assert ldp.oracle(document["protocol"], **again) == oracle
    frame = Client(document).report(0)
    decoded = frames.decode(stream, frame, np.array([0]), np.array([len(frame)]))
    assert decoded.counts.tolist() == [1]
    assert oracle.estimate_reports(decoded.reports).n == 1


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"protocol": "response", "p": "1/2", "domain_size": 2}, "p is 1/2; it must be above 1/2"),
        ({"protocol": "response", "p": "2/8", "domain_size": 5}, "in lowest terms it is '1/4'"),
        ({"protocol": "response", "p": 0.75, "domain_size": 5}, "must be a string 'num/den'"),
        ({"protocol": "response", "p": "3/2", "domain_size": 5}, "allowed is 0 to 1"),
        ({"protocol": "response", "p": "1/0", "domain_size": 5}, "divides by zero"),
        ({"protocol": "response", "p": "1/1", "domain_size": 2}, "q is 0; it must be above 0"),
        ({"protocol": "unary", "p": "1/1", "q": "0/1", "domain_size": 2, "epsilon": "infinite"}, "q is 0"),
        ({"protocol": "response", "p": "3/4", "domain_size": 1}, "domain_size is 1; allowed is 2"),
        ({"protocol": "response", "p": "3/4", "domain_size": 2, "epsilon": "infinite"}, "give ε ≤ 1.098613"),
        ({"protocol": "response", "p": "3/4", "domain_size": 2, "epsilon": "1/1"}, "response needs exactly"),
        ({"protocol": "unary", "p": "1/4", "q": "3/4", "domain_size": 2}, "the RAPPOR paper"),
        ({"protocol": "unary", "p": "1/1", "q": "1/4", "domain_size": 2}, "make epsilon infinite"),
        ({"protocol": "unary", "p": "1/4", "q": "0/1", "domain_size": 2}, "q is 0"),
        ({"protocol": "unary", "f": "0/1", "p": "3/4", "q": "1/4", "domain_size": 2}, "f is 0"),
        ({"protocol": "grr", "epsilon": "infinite", "domain_size": 2}, "epsilon is 'infinite'"),
        ({"protocol": "rr", "p": "3/4", "domain_size": 2}, "allowed are grr, "),
    ],
)
def test_invalid_documents_are_refused(document, said):
    with pytest.raises((TypeError, ValueError)) as caught:
        Client(document)
    assert said in str(caught.value)


def test_a_channel_is_created_by_name():
    with pytest.raises(TypeError, match="unary needs p and q, or f and p and q"):
        ldp.oracle("unary", domain_size=3, p="3/4")
    with pytest.raises(TypeError, match="grr needs epsilon"):
        ldp.oracle("grr", domain_size=3)
    with pytest.raises(ValueError, match="omit it"):
        ldp.oracle("unary", "1", domain_size=3, p="3/4", q="1/4")


def test_the_document_command_prints_the_epsilon_of_a_report():
    asked = ["document", "--protocol", "unary", "--parameter", "q=1/4", "--domain-size", "9", "--parameter"]
    made, refused, infinite = (
        CliRunner().invoke(cli, [*asked, *more])
        for more in (["p=0.75"], ["p=1"], ["p=1", "--epsilon", "infinite"])
    )
    assert json.loads(made.stdout) == {"protocol": "unary", "p": "3/4", "q": "1/4", "domain_size": 9}
    assert made.stderr == "ldp: privacy loss of one report: ε ≤ 2.197225\n"
    assert (refused.exit_code, "epsilon = 'infinite'" in refused.stderr) == (2, True)
    assert infinite.stderr == "ldp: privacy loss of one report: ε is infinite: no privacy\n"
