"""simulate and set_variances against the enumerated reports."""

import itertools
from collections import Counter
from math import comb, prod

import numpy as np
import pytest

import ldp
from ldp.oracles import ORACLES, preferred, subset
from tests.support.channels import product, reports

pytestmark = pytest.mark.statistical


SMALL = [
    *(
        ldp.oracle(name, epsilon, d)
        for name in ORACLES
        if name != "olh"
        for epsilon in ("0.5", "4")
        for d in (2, 5)
    ),
    *(ldp.oracle(name, "1", 1) for name in ORACLES if name != "subset"),
    *(ldp.OLH("0.5", 4, g=g) for g in (2, 3, 5)),
    *(ldp.SubsetSelection("1", 6, k=k) for k in (1, 3, 5)),
    ldp.HadamardResponse("1", 7),
    *(ldp.PGR("1", d, prime=2, dimension=3) for d in (4, 7)),
    ldp.PGR("3", 8, prime=3, dimension=3),
    ldp.PGR("2", 6, prime=5, dimension=2),
]
MIDDLE = [
    ldp.PGR("1", 121, prime=3, dimension=5),
    ldp.PGR("2", 100, prime=2, dimension=7),
    ldp.HadamardResponse("1", 127),
    ldp.HadamardResponse("4", 130),
]


def test_enumerated_reports_have_the_probabilities_of_the_protocol():
    for oracle in SMALL:
        supports, probabilities = reports(oracle)
        assert probabilities.sum(axis=1) == pytest.approx(1, rel=1e-12)
        expected = np.where(np.eye(oracle.domain_size), float(oracle.p), float(oracle.q))
        assert probabilities @ supports == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("oracle", SMALL, ids=repr)
def test_the_variance_of_every_set(oracle):
    supports, probabilities = reports(oracle)
    for row in product(*[2] * oracle.domain_size)[1:]:
        members = np.flatnonzero(row)
        supported = supports[:, members].sum(axis=1)
        mean = probabilities @ supported
        expected = (probabilities * (supported - mean[:, None]) ** 2).sum(axis=1)
        assert oracle.set_variances(members[::-1]) == pytest.approx(expected, rel=1e-9, abs=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize(("prime", "dimension", "within"), [(3, 9, 4), (3, 13, 12)])
def test_the_variance_of_a_subspace(prime, dimension, within):
    """The first points are the subspace of most variance; (3, 13, 12) is not decoded in one pass."""
    points = [(prime**m - 1) // (prime - 1) for m in range(dimension + 1)]
    oracle = ldp.PGR("1", points[dimension], prime=prime, dimension=dimension)
    E, c, K = oracle.E, points[dimension - 1], points[dimension]
    variances = oracle.set_variances(np.arange(points[within]))
    all_of_them, near = points[dimension - within], points[dimension - within - 1]
    weights = [
        (E * all_of_them, slice(0, points[within])),
        (E * near + all_of_them - near, slice(points[within], None)),
    ]
    for weight, users in weights:
        probability = weight / ((E - 1) * c + K)
        expected = float(probability * (1 - probability)) * (points[within] - points[within - 1]) ** 2
        assert variances[users] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("members", "error", "says"),
    [
        ([], ValueError, "at least one"),
        ([1, 1], ValueError, "repeated"),
        ([0, 9], ValueError, "0..8, got 9"),
        ([-1], ValueError, "-1"),
        ([[0]], ValueError, "a vector of integers"),
        ([0.0], TypeError, "integers"),
        ([True], TypeError, "integers"),
    ],
)
def test_invalid_sets_are_refused(members, error, says):
    with pytest.raises(error, match=says):
        ldp.PGR("1", 9).set_variances(members)


class UndecidedError(Exception):
    """A draw that the script does not decide."""


class Scripted(np.random.Generator):
    """A generator whose every draw of an integer is decided by a script, and the draw after its end is described."""

    def __init__(self, script):
        super().__init__(np.random.PCG64(0))
        self.script = iter(script)
        self.weight = 1.0

    def draw(self, outcomes):
        """One of the outcomes: pairs of what is drawn and its probability."""
        possible = [outcome for outcome in outcomes if outcome[1] > 0]
        if len(possible) == 1:
            return possible[0][0]
        if (number := next(self.script, None)) is None:
            raise UndecidedError(len(possible))
        drawn, probability = possible[number]
        self.weight *= probability
        return drawn

    def binomial(self, n, p):
        n, p = np.broadcast_arrays(n, p)
        assert (n >= 0).all()
        assert ((p >= 0) & (p <= 1)).all()
        drawn = [
            self.draw([(k, comb(users, k) * x**k * (1 - x) ** (users - k)) for k in range(users + 1)])
            for users, x in zip(n.ravel().tolist(), p.ravel().tolist(), strict=True)
        ]
        return np.array(drawn, np.int64).reshape(n.shape)

    def multinomial(self, n, pvals):
        pvals = np.asarray(pvals).tolist()
        assert sum(pvals) == pytest.approx(1, rel=1e-12)
        ways = [self.draw(multinomial_law(int(users), pvals)) for users in np.atleast_1d(n)]
        return np.array(ways, np.int64).reshape(*np.shape(n), len(pvals))

    def multivariate_hypergeometric(self, colors, nsample, method):
        colors, everyone = colors.tolist(), comb(int(colors.sum()), nsample)
        ways = itertools.product(*(range(min(c, nsample) + 1) for c in colors))
        law = [(way, prod(map(comb, colors, way)) / everyone) for way in ways if sum(way) == nsample]
        return np.array(self.draw(law), np.int64)

    def integers(self, high, size):
        return np.array([self.draw([(k, 1 / high) for k in range(high)]) for _ in range(size)], np.int64)


def multinomial_law(n, pvals):
    law = Counter()
    for chosen in itertools.combinations_with_replacement(range(len(pvals)), n):
        way = tuple(chosen.count(k) for k in range(len(pvals)))
        ways = prod(comb(sum(way[k:]), way[k]) for k in range(len(way)))
        law[way] += ways * prod(p**k for p, k in zip(pvals, way, strict=True))
    return list(law.items())


def simulated_law(oracle, histogram):
    """The exact law of simulate: every way its draws can turn out."""
    law = Counter()
    scripts = [()]
    while scripts:
        script = scripts.pop()
        rng = Scripted(script)
        try:
            counts = oracle.simulate(histogram, rng)
        except UndecidedError as draw:
            scripts.extend((*script, number) for number in range(draw.args[0]))
        else:
            law[tuple(counts.tolist())] += rng.weight
    return law


def convolved_law(oracle, histogram):
    """The exact law of the counts: the sum of the reports, one user after the other."""
    supports, probabilities = reports(oracle)
    law = {(0,) * oracle.domain_size: 1.0}
    for value in np.repeat(np.arange(oracle.domain_size), histogram):
        one = Counter()
        for vector, probability in zip(supports, probabilities[value], strict=True):
            one[tuple(vector.tolist())] += probability
        further = Counter()
        for (counts, weight), (vector, probability) in itertools.product(law.items(), one.items()):
            further[tuple(map(sum, zip(counts, vector, strict=True)))] += weight * probability
        law = further
    return law


EXACT = [
    (ldp.GRR("1", 1), [3]),
    (ldp.GRR("4", 3), [2, 0, 1]),
    (ldp.OLH("1", 3, g=3), [1, 0, 1]),
    (ldp.OLH("1", 1, g=3), [2]),
    *((unary("1", 3), [2, 0, 1]) for unary in (ldp.OUE, ldp.SUE)),
    (ldp.SubsetSelection("1", 2), [2, 2]),
    (ldp.SubsetSelection("1", 3, k=2), [1, 1, 1]),
    *((ldp.SubsetSelection("2", 4, k=k), [0, 1, 1, 0]) for k in (1, 2, 3)),
    (ldp.SubsetSelection("0.5", 4, k=2), [1, 0, 0, 2]),
    (ldp.SubsetSelection("64", 3, k=2), [1, 0, 1]),
    (ldp.HadamardResponse("1", 1), [3]),
    (ldp.HadamardResponse("1", 2), [3, 1]),
    (ldp.HadamardResponse("2", 7), [1, 0, 0, 0, 0, 1, 0]),
    (ldp.HadamardResponse("2", 4), [0, 0, 0, 1]),
    (ldp.PGR("1", 1), [3]),
    (ldp.PGR("1", 4, prime=3, dimension=2), [2, 1, 0, 0]),
    (ldp.PGR("2", 6, prime=2, dimension=3), [0, 1, 0, 0, 1, 0]),
    (ldp.PGR("64", 7, prime=2, dimension=3), [0, 4, 0, 0, 0, 0, 0]),
    (ldp.PGR("3", 13, prime=3, dimension=3), [0] * 11 + [1, 1]),
]


@pytest.mark.parametrize(("oracle", "histogram"), EXACT, ids=str)
def test_the_whole_law_of_a_few_users_counts(oracle, histogram):
    check_the_whole_law(oracle, histogram)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("oracle", "histogram"),
    [case for case in EXACT if case[0].name in ("subset", "hadamard", "pgr")],
    ids=str,
)
def test_the_whole_law_in_the_smallest_parts(monkeypatch, oracle, histogram):
    """Batched work for many users or messages, split into parts of two."""
    monkeypatch.setattr(preferred, "_TOGETHER", 2)
    monkeypatch.setattr(subset, "_CROWD", 2)
    check_the_whole_law(oracle, histogram)


def check_the_whole_law(oracle, histogram):
    simulated, convolved = simulated_law(oracle, histogram), convolved_law(oracle, histogram)
    for counts in simulated.keys() | convolved.keys():
        assert simulated.get(counts, 0) == pytest.approx(convolved.get(counts, 0), rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("name", ORACLES)
def test_the_counts_of_a_large_population(name):
    """10⁹ users; a value has none, a few, or many of them: within 6 standard deviations of the law of each count."""
    oracle = ldp.oracle(name, "1", 100)
    histogram = np.zeros(100, np.int64)
    histogram[:4] = 10**9 - 10_050, 10_000, 49, 1
    counts = oracle.simulate(histogram, np.random.default_rng(4))
    p, q = float(oracle.p), float(oracle.q)
    mean = histogram * p + (10**9 - histogram) * q
    spread = np.sqrt(histogram * p * (1 - p) + (10**9 - histogram) * q * (1 - q))
    assert (np.abs(counts - mean) < 6.5 * spread).all()
    assert counts.dtype == np.int64
    if name == "subset":
        assert counts.sum() == oracle.k * 10**9
    assert (counts == oracle.simulate(histogram, np.random.default_rng(4))).all()


def test_invalid_populations_are_refused():
    oracle, rng = ldp.GRR("1", 3), np.random.default_rng(5)
    for histogram, error in [
        ([1.0, 2.0, 3.0], TypeError),
        ([True, False, True], TypeError),
        ([1, 2], ValueError),
        ([1, -1, 3], ValueError),
        ([0, 0, 0], ValueError),
    ]:
        with pytest.raises(error, match="histogram"):
            oracle.simulate(histogram, rng)
    for wrong in (None, 42, np.random):
        with pytest.raises(TypeError, match="rng must be a numpy Generator"):
            oracle.simulate([1, 2, 3], wrong)
