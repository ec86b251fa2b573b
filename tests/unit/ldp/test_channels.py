"""Given channels: their laws by all outcomes of their coins, what they spend, and their documents."""

import itertools
import json
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import stats

import ldp
from ldp import frames, sampling
from ldp.cli import cli
from ldp.client import Client
from ldp.oracles import CHANNELS
from ldp.sampling import epsilon_above, exp_below

HALF = Fraction(1, 2)
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
    ldp.RatedResponse(["1/3", "0.4994798"]),
]
INFINITE = [
    ldp.Unary("1", "1/3", 2, epsilon="infinite"),
    ldp.Unary("1", "1/4", 3, epsilon="infinite"),
]
every_channel = pytest.mark.parametrize("oracle", [*FINITE, *INFINITE], ids=repr)


class Tree:
    """Coins that take every way in turn: the runs of a function, each with its probability."""

    def __init__(self, monkeypatch):
        self.path = []
        monkeypatch.setattr(sampling, "coin", lambda p: self.take([1 - p, p]) == 1)
        monkeypatch.setattr(sampling, "integer", lambda m: self.take([Fraction(1, m)] * m))
        monkeypatch.setattr(
            sampling, "mask", lambda p, n: sum(self.take([1 - p, p]) << bit for bit in range(n))
        )

    def take(self, probabilities):
        if self.at == len(self.path):
            self.path.append((0, len(probabilities)))
        way, _ = self.path[self.at]
        self.at += 1
        self.chance *= probabilities[way]
        return way

    def law(self, run):
        found = Counter()
        while True:
            self.at, self.chance = 0, Fraction(1)
            found[run()] += self.chance
            while self.path and self.path[-1][0] + 1 == self.path[-1][1]:
                self.path.pop()
            if not self.path:
                return found
            way, ways = self.path.pop()
            self.path.append((way + 1, ways))


def by_definition(oracle):
    """What each value's law is, by the document alone."""
    document, d = oracle.parameters(), oracle.domain_size
    if "rates" in document:  # the own client is at the highest
        rate, at = Fraction(document["rates"][-1]), len(document["rates"]) - 1
        return [{(at, v): 1 - rate / 2 if v == value else rate / 2 for v in (0, 1)} for value in (0, 1)]
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
        law = {}
        for bits in itertools.product([0, 1], repeat=d):
            chances = [bit(v == value) if bits[v] else 1 - bit(v == value) for v in range(d)]
            law[(sum(one << v for v, one in enumerate(bits)),)] = math.prod(chances)
        laws.append(law)
    return laws


@every_channel
def test_every_outcome_has_the_documents_probability(oracle, monkeypatch):
    tree = Tree(monkeypatch)
    for value, due in enumerate(by_definition(oracle)):
        law = tree.law(lambda value=value: oracle.perturb_one(value))
        assert sum(law.values()) == 1
        assert {key: chance for key, chance in law.items() if chance} == {
            key: chance for key, chance in due.items() if chance
        }


@every_channel
def test_epsilon_is_that_of_the_worst_report(oracle):
    # the worst of several rates is the lowest
    lowest = ldp.RatedResponse(oracle.rates[:1]) if isinstance(oracle, ldp.RatedResponse) else oracle
    laws = by_definition(lowest)
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


def test_epsilon_of_what_browsers_are_set_to():
    """The rate that Chromium's own ε of 1.1 comes to, and Cobalt's levels."""
    rate = Fraction("0.4994798")
    assert ldp.Response(1 - rate / 2, 2).epsilon == Fraction("1.1")
    assert (2 - rate) / rate == ldp.Response(1 - rate / 2, 2).E
    levels = [("0.99", "0.01"), ("0.9", "0.1"), ("0.75", "0.25")]
    assert [float(ldp.Unary(p, q, 10).epsilon) for p, q in levels] == [9.19024, 4.39445, 2.197225]


def test_a_permanent_response_bounds_all_reports_of_it():
    """The ratio of the permanent response's own laws, two bits apart, whatever comes after it."""
    for f in ("1/2", "1/4", "0.9"):
        permanent = ldp.Unary(1 - Fraction(f) / 2, Fraction(f) / 2, 2)
        assert ldp.RAPPOR(f, "3/4", "1/4", 2).lifetime == permanent.epsilon
        assert ldp.RAPPOR(f, "1", "0", 2).E == permanent.E


@every_channel
def test_simulated_reports_have_the_law(oracle):
    n, value, alarm = 40_000, oracle.domain_size - 1, 1e-8
    state = oracle.zeros()
    oracle.accumulate(state, oracle.perturb(np.full(n, value), rng=np.random.default_rng(1)))
    drawn = oracle.simulate(np.bincount([value] * n), np.random.default_rng(2))
    for counts in (oracle.support(state), drawn):
        for v in range(oracle.domain_size):
            chance = float(oracle.p if v == value else oracle.q)
            low, high = stats.binom.ppf(alarm, n, chance), stats.binom.isf(alarm, n, chance)
            assert low <= counts[v] <= high


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


def test_every_channel_is_tested():
    assert {type(oracle) for oracle in FINITE} == {one for each in CHANNELS.values() for one in each}


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"protocol": "response", "p": "1/2", "domain_size": 2}, "p is 1/2; it must be above 1/2"),
        ({"protocol": "response", "p": "1/4", "domain_size": 2}, "swap the two values"),
        ({"protocol": "response", "p": "2/8", "domain_size": 5}, "in lowest terms it is '1/4'"),
        ({"protocol": "response", "p": "0.75", "domain_size": 5}, "in lowest terms it is '3/4'"),
        ({"protocol": "response", "p": 0.75, "domain_size": 5}, "must be a string 'num/den'"),
        ({"protocol": "response", "p": "3/2", "domain_size": 5}, "a probability is 0 to 1"),
        ({"protocol": "response", "p": "1/0", "domain_size": 5}, "divides by zero"),
        ({"protocol": "response", "p": "x", "domain_size": 5}, "write it as '3/4'"),
        ({"protocol": "response", "p": "1/1", "domain_size": 2}, "q is 0: a report never supports"),
        ({"protocol": "unary", "p": "1/1", "q": "0/1", "domain_size": 2, "epsilon": "infinite"}, "q is 0"),
        ({"protocol": "response", "p": "3/4", "domain_size": 1}, "domain_size is 1; allowed is 2"),
        ({"protocol": "response", "p": "3/4", "domain_size": 2, "epsilon": "infinite"}, "give ε ≤ 1.098613"),
        ({"protocol": "response", "p": "3/4", "domain_size": 2, "epsilon": "1/1"}, "response has exactly"),
        ({"protocol": "unary", "p": "3/4", "domain_size": 2}, "unary has exactly"),
        ({"protocol": "unary", "p": "1/4", "q": "1/4", "domain_size": 2}, "p is 1/4 and q is 1/4"),
        ({"protocol": "unary", "p": "1/4", "q": "3/4", "domain_size": 2}, "RAPPOR's paper"),
        ({"protocol": "unary", "p": "1/1", "q": "1/4", "domain_size": 2}, "make epsilon infinite"),
        ({"protocol": "unary", "p": "1/4", "q": "0/1", "domain_size": 2}, "q is 0"),
        ({"protocol": "unary", "f": "0/1", "p": "3/4", "q": "1/4", "domain_size": 2}, "f is 0"),
        ({"protocol": "unary", "f": "1/1", "p": "3/4", "q": "1/4", "domain_size": 2}, "f is 1"),
        ({"protocol": "unary", "f": None, "p": "3/4", "q": "1/4", "domain_size": 2}, "f is None"),
        ({"protocol": "grr", "epsilon": "infinite", "domain_size": 2}, "epsilon is 'infinite'"),
        ({"protocol": "rr", "p": "3/4", "domain_size": 2}, "there are grr, "),
    ],
)
def test_what_is_refused(document, said):
    with pytest.raises((TypeError, ValueError)) as caught:
        Client(document)
    assert said in str(caught.value)


def test_a_channel_is_asked_for_by_its_name():
    with pytest.raises(TypeError, match="unary needs p and q, or f and p and q"):
        ldp.oracle("unary", domain_size=3, p="3/4")
    with pytest.raises(TypeError, match="grr needs epsilon"):
        ldp.oracle("grr", domain_size=3)
    with pytest.raises(ValueError, match="leave it out"):
        ldp.oracle("unary", "1", domain_size=3, p="3/4", q="1/4")


def test_the_document_command_says_what_a_report_spends(tmp_path):
    def run(*arguments):
        return CliRunner().invoke(cli, ["document", *arguments])

    made = run("--protocol", "unary", "--parameter", "p=0.75", "--parameter", "q=1/4", "--domain-size", "9")
    assert made.exit_code == 0
    assert json.loads(made.stdout) == {"protocol": "unary", "p": "3/4", "q": "1/4", "domain_size": 9}
    assert made.stderr == "ldp: of one report ε ≤ 2.197225\n"
    refused = run("--protocol", "unary", "--parameter", "p=1", "--parameter", "q=1/4", "--domain-size", "9")
    assert refused.exit_code == 2
    assert "epsilon = 'infinite'" in refused.stderr
    ends = ("--epsilon", "infinite", "--labels", "a,b")
    told = run("--protocol", "unary", "--parameter", "p=1", "--parameter", "q=1/4", *ends)
    assert told.stderr == "ldp: of one report ε is infinite: no privacy\n"
    assert json.loads(told.stdout)["epsilon"] == "infinite"
    rated = run("--protocol", "response", "--parameter", "rates=0.2,3/4", "--labels", "low,high")
    assert json.loads(rated.stdout)["rates"] == ["1/5", "3/4"]
    assert rated.stderr == "ldp: of one report ε ≤ 2.197225\n"
