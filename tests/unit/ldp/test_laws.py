"""simulate and set_variances against every report with its probability, written out from the definitions."""

import itertools
from collections import Counter
from fractions import Fraction
from math import comb, prod

import numpy as np
import pytest
from scipy import stats

import ldp
from ldp.oracles import ORACLES, preferred, subset

pytestmark = pytest.mark.statistical


def product(*ranges):
    """All tuples of some ranges, one a row."""
    return np.array(list(itertools.product(*map(range, ranges))), np.int64).reshape(-1, len(ranges))


def projective_points(prime, dimension):
    """The vectors whose first non-zero coordinate is 1, as numbers in ascending order: (K, t)."""
    vectors = product(*[prime] * dimension)[1:]
    first = (vectors != 0).argmax(axis=1)
    return vectors[vectors[np.arange(len(vectors)), first] == 1]


def signs(K):
    """The Hadamard matrix, built by doubling."""
    matrix = np.ones((1, 1), np.int64)
    while len(matrix) < K:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix


def reports(oracle):
    """Every report: which values it supports, (R, d) bool, and how likely it is for each value, (d, R).

    OLH's hash is ideal: all functions from the domain to the buckets are as likely.
    """
    d, E = oracle.domain_size, float(oracle.E)
    match oracle.name:
        case "grr":
            supports = np.eye(d, dtype=bool)
        case "olh":
            buckets = product(oracle.g, *[oracle.g] * d)
            supports = buckets[:, 1:] == buckets[:, :1]
        case "oue" | "sue":
            supports = product(*[2] * d) == 1
            p, q = (0.5, 1 / (E + 1)) if oracle.name == "oue" else (E**0.5 / (E**0.5 + 1), 1 / (E**0.5 + 1))
            ones = np.where(
                np.eye(d, dtype=bool)[:, None], p, q
            )  # each bit's probability of a 1, for each value
            return supports, np.where(supports, ones, 1 - ones).prod(axis=2)
        case "subset":
            supports = np.array([row for row in product(*[2] * d) if row.sum() == oracle.k]) == 1
        case "hadamard":
            supports = signs(oracle.state_size)[:, 1 : d + 1] == 1
        case "pgr":
            points = projective_points(oracle.prime, oracle.dimension)
            supports = points @ points[:d].T % oracle.prime == 0
    weights = np.where(
        supports.T, E, 1.0
    )  # one that supports the own value is E times as likely as one that does not
    return supports, weights / weights.sum(axis=1, keepdims=True)


def moments(oracle):
    """The mean of the support vector for a user with each value, (d, d), and its covariances, (d, d, d)."""
    supports, probabilities = reports(oracle)
    means = probabilities @ supports
    around = supports - means[:, None]
    return means, np.einsum("ur,uri,urj->uij", probabilities, around, around)


SMALL = [
    *(
        ldp.oracle(name, epsilon, d)
        for name in ORACLES
        if name != "olh"
        for epsilon in ("0.5", "1", "4")
        for d in (2, 5, 6)
    ),
    *(ldp.oracle(name, "1", 1) for name in ORACLES if name != "subset"),
    *(ldp.OLH(epsilon, d, g=g) for epsilon in ("0.5", "4") for d in (2, 4) for g in (2, 3, 5)),
    *(ldp.SubsetSelection("1", 6, k=k) for k in range(1, 6)),
    ldp.SubsetSelection("2", 4, k=3),
    ldp.HadamardResponse("1", 7),
    ldp.HadamardResponse("2", 3),
    *(ldp.PGR("1", d, prime=2, dimension=3) for d in (4, 7)),
    *(ldp.PGR("3", d, prime=3, dimension=3) for d in (3, 8)),
    ldp.PGR("2", 6, prime=5, dimension=2),
]
MIDDLE = [
    ldp.PGR("1", 121, prime=3, dimension=5),
    ldp.PGR("2", 100, prime=2, dimension=7),
    ldp.PGR("4", 300, prime=17, dimension=3),
    ldp.HadamardResponse("1", 127),
    ldp.HadamardResponse("4", 130),
]


def test_the_reports_written_out_have_the_protocols_probabilities():
    for oracle in SMALL:
        supports, probabilities = reports(oracle)
        assert probabilities.sum(axis=1) == pytest.approx(1, rel=1e-12)
        expected = np.where(np.eye(oracle.domain_size), float(oracle.p), float(oracle.q))
        assert probabilities @ supports == pytest.approx(expected, rel=1e-12)


# set_variances


@pytest.mark.parametrize("oracle", SMALL, ids=repr)
def test_the_variance_of_every_set(oracle):
    supports, probabilities = reports(oracle)
    for row in product(*[2] * oracle.domain_size)[1:]:
        members = np.flatnonzero(row)
        supported = supports[:, members].sum(axis=1)
        mean = probabilities @ supported
        expected = (probabilities * (supported - mean[:, None]) ** 2).sum(axis=1)
        assert oracle.set_variances(members[::-1]) == pytest.approx(expected, rel=1e-9, abs=1e-14)


@pytest.mark.parametrize("oracle", MIDDLE, ids=repr)
def test_the_variance_of_larger_sets(oracle):
    rng = np.random.default_rng(1)
    supports, probabilities = reports(oracle)
    d = oracle.domain_size
    for m in (1, 2, 3, d // 3, d - 1, d):
        for members in (np.arange(m), rng.permutation(d)[:m]):
            supported = supports[:, members].sum(axis=1)
            mean = probabilities @ supported
            expected = (probabilities * (supported - mean[:, None]) ** 2).sum(axis=1)
            assert oracle.set_variances(members) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_the_variance_is_not_the_sum_of_the_variances():
    """For a user without a value of the set, over m·q(1−q); two points with one on their line have most in common."""

    def ratio(oracle, members, user):
        return oracle.set_variances(members)[user] / (len(members) * float(oracle.q * (1 - oracle.q)))

    pgr = ldp.PGR("1", 121, prime=3, dimension=5)
    assert ratio(pgr, [0, 1], 2) == pytest.approx(1.36, abs=0.006)  # 00001, 00010 and 00011
    assert ratio(pgr, range(120), 120) == pytest.approx(0.009, abs=0.0005)
    hadamard = ldp.HadamardResponse("1", 127)
    assert ratio(hadamard, range(126), 126) == pytest.approx(1.46, abs=0.006)
    olh = ldp.OLH("1", 127)
    assert ratio(olh, range(126), 126) == pytest.approx(1, rel=1e-12)


def test_the_variance_of_the_whole_domain():
    """A report of GRR, Subset Selection and PGR with d = K supports the same number of values whatever it is."""
    for epsilon in ("0.5", "1", "4", "64"):
        for oracle in (
            ldp.GRR(epsilon, 7),
            ldp.GRR(epsilon, 1),
            ldp.SubsetSelection(epsilon, 2),
            ldp.SubsetSelection(epsilon, 9),
            ldp.SubsetSelection(epsilon, 9, k=8),
        ):
            assert oracle.set_variances(range(oracle.domain_size)).tolist() == [0.0] * oracle.domain_size
        for prime, dimension in [(2, 3), (3, 5), (13, 3)]:
            K = (prime**dimension - 1) // (prime - 1)
            pgr = ldp.PGR(epsilon, K, prime=prime, dimension=dimension)
            assert pgr.set_variances(range(K)) == pytest.approx(0, abs=1e-14)
            assert (pgr.set_variances(range(K)) >= 0).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("prime", "dimension", "within"), [(3, 11, 10), (3, 11, 4), (3, 13, 12), (2, 17, 16)]
)
def test_the_variance_of_a_subspace(prime, dimension, within):
    """The first points are the subspace where the other coordinates are 0, the set of most variance.

    A message whose coordinates there are all 0 supports all of them, any other those of one dimension less. (3, 13,
    12) has squares of such a sum that they are not decoded in one pass.
    """
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


@pytest.mark.parametrize(("d", "within"), [(1 << 16, 12), ((1 << 16) - 1, 15)])
def test_the_variance_of_a_subgroup(d, within):
    """The first 2^s − 1 values are the rows of a subgroup: a column that ends in s zeros supports all, others half."""
    oracle = ldp.HadamardResponse("2", d)
    size = 1 << within
    variances = oracle.set_variances(np.arange(size - 1))
    inside, outside = Fraction(2, size) * oracle.p, Fraction(1, size)
    for probability, users in [(inside, slice(0, size - 1)), (outside, slice(size - 1, None))]:
        expected = float(probability * (1 - probability)) * (size // 2) ** 2
        assert variances[users] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    "oracle", [ldp.PGR("1", 100_000), ldp.PGR("4", 100_000), ldp.HadamardResponse("1", 100_000)], ids=repr
)
def test_the_variances_of_a_large_random_set_are_about_the_sum(oracle):
    m = 10_000
    members = np.random.default_rng(2).permutation(oracle.domain_size)[:m]
    variances = oracle.set_variances(members)
    summed = m * float(oracle.q * (1 - oracle.q))
    assert variances.mean() == pytest.approx(summed, rel=0.15)
    assert (variances > 0.5 * summed).all()
    assert (variances < 2 * summed).all()


@pytest.mark.parametrize("name", ORACLES)
@pytest.mark.parametrize(
    ("members", "error", "says"),
    [
        ([], ValueError, "at least one"),
        ([1, 1], ValueError, "repeated"),
        ([0, 9], ValueError, "0..8, got 9"),
        ([-1], ValueError, "-1"),
        ([[0]], ValueError, "one vector"),
        ([0.0], TypeError, "integers"),
        ([True], TypeError, "integers"),
    ],
)
def test_what_is_not_a_set_is_refused(name, members, error, says):
    with pytest.raises(error, match=says):
        ldp.oracle(name, "1", 9).set_variances(members)


# simulate, exactly


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
    *((ldp.GRR(epsilon, 3), [2, 0, 1]) for epsilon in ("0.5", "4")),
    (ldp.GRR("1", 1), [3]),
    (ldp.OLH("1", 3, g=3), [1, 0, 1]),
    (ldp.OLH("4", 2, g=2), [0, 2]),
    (ldp.OLH("1", 1, g=3), [2]),
    *(
        (unary("1", d), histogram)
        for unary in (ldp.OUE, ldp.SUE)
        for d, histogram in [(1, [2]), (3, [2, 0, 1])]
    ),
    *((ldp.SubsetSelection("1", 2), histogram) for histogram in ([1, 0], [0, 1], [2, 2])),
    *(
        (ldp.SubsetSelection("1", 3, k=k), histogram)
        for k in (1, 2)
        for histogram in ([0, 0, 1], [3, 0, 0], [1, 1, 1])
    ),
    *(
        (ldp.SubsetSelection("2", 4, k=k), histogram)
        for k in (1, 2, 3)
        for histogram in ([0, 1, 0, 0], [0, 1, 1, 0])
    ),
    (ldp.SubsetSelection("0.5", 4, k=2), [1, 0, 0, 2]),
    (ldp.SubsetSelection("0.5", 5, k=3), [0, 1, 0, 1, 0]),
    (ldp.SubsetSelection("64", 3, k=2), [1, 0, 1]),
    (ldp.HadamardResponse("1", 1), [3]),
    *((ldp.HadamardResponse("1", 2), histogram) for histogram in ([2, 0], [3, 1])),
    (ldp.HadamardResponse("1", 3), [1, 0, 2]),
    (ldp.HadamardResponse("2", 7), [1, 0, 0, 0, 0, 1, 0]),
    (ldp.HadamardResponse("2", 4), [0, 0, 0, 1]),
    *((ldp.PGR("1", 1), histogram) for histogram in ([1], [3])),
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
    """What is done together for many users or messages, and in parts for more, in parts of two."""
    monkeypatch.setattr(preferred, "_TOGETHER", 2)
    monkeypatch.setattr(subset, "_CROWD", 2)
    check_the_whole_law(oracle, histogram)


def check_the_whole_law(oracle, histogram):
    simulated, convolved = simulated_law(oracle, histogram), convolved_law(oracle, histogram)
    for counts in simulated.keys() | convolved.keys():
        assert simulated.get(counts, 0) == pytest.approx(convolved.get(counts, 0), rel=1e-9, abs=1e-15)


# simulate, with numpy's generator


REPEATS = 1500
MANY = [
    *(
        (oracle, [5000, 0, 40, 3, 1, 0, 900][: oracle.domain_size])
        for oracle in (
            ldp.GRR("1", 7),
            ldp.OLH("1", 4, g=3),
            ldp.OUE("1", 7),
            ldp.SUE("4", 7),
            ldp.SubsetSelection("1", 7),
            ldp.SubsetSelection("1", 7, k=5),
            ldp.HadamardResponse("1", 7),
            ldp.PGR("1", 7),
            ldp.PGR("2", 7, prime=2, dimension=3),
        )
    ),
    (ldp.SubsetSelection("1", 12), [100_000] * 6 + [1] * 6),
    (ldp.PGR("1", 13, prime=3, dimension=3), [10_000, 4, *[0] * 10, 500]),
    (ldp.HadamardResponse("4", 11), [10_000, 7, *[0] * 8, 500]),
]


@pytest.mark.slow
@pytest.mark.parametrize(("oracle", "histogram"), MANY, ids=str)
def test_the_mean_and_the_covariance_of_the_counts(oracle, histogram):
    """In the eigenvectors of the exact covariance all is independent, and nearly normal; compared by their chi-squares.

    The false alarm is below 1e-6 over all tests: Bonferroni over all means, variances and pairs of all oracles.
    """
    means, covariances = moments(oracle)
    mean, covariance = histogram @ means, np.tensordot(histogram, covariances, 1)
    variances, vectors = np.linalg.eigh(covariance)
    constant = variances < 1e-9 * variances.max()
    rng = np.random.default_rng(3)
    draws = np.array([oracle.simulate(histogram, rng) for _ in range(REPEATS)]) - mean
    assert (np.abs(draws @ vectors[:, constant]) < 1e-6).all()  # where every report supports the same number
    scores = draws @ vectors[:, ~constant] / np.sqrt(variances[~constant])
    size = scores.shape[1]
    alarm = 1e-6 / (len(MANY) * (size + size**2))
    assert (np.abs(scores.mean(axis=0)) <= stats.norm.isf(alarm / 2) / REPEATS**0.5).all()
    low, high = stats.chi2.ppf(alarm / 2, REPEATS), stats.chi2.isf(alarm / 2, REPEATS)
    squares = (scores**2).sum(axis=0)
    products = scores.T @ scores
    for sign in (1, -1):
        sums = (squares[:, None] + squares) / 2 + sign * products  # of the squares of (a ± b)/√2
        np.fill_diagonal(sums, squares)
        assert ((sums > low) & (sums < high)).all()


@pytest.mark.parametrize("name", ORACLES)
def test_the_counts_of_a_large_population(name):
    """10⁹ users, of whom a value has none, a few, many: within 6 standard deviations of the law of each count."""
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


@pytest.mark.parametrize("name", ORACLES)
def test_one_user(name):
    for d in (1, 2, 9):
        if d == 1 and name == "subset":
            continue
        oracle = ldp.oracle(name, "1", d)
        for value in (0, d - 1):
            histogram = np.eye(d, dtype=np.uint8)[value]
            counts = [oracle.simulate(histogram, np.random.default_rng(seed)) for seed in range(20)]
            assert all(count.shape == (d,) for count in counts)
            assert set(np.concatenate(counts).tolist()) <= {0, 1}
            oracle.estimate(counts[0], 1)


@pytest.mark.parametrize("name", ORACLES)
def test_what_is_not_a_population_is_refused(name):
    oracle, rng = ldp.oracle(name, "1", 3), np.random.default_rng(5)
    for histogram, error in [
        ([1.0, 2.0, 3.0], TypeError),
        ([True, False, True], TypeError),
        ([1, 2], ValueError),
        ([[1, 2, 3]], ValueError),
        ([1, -1, 3], ValueError),
        ([0, 0, 0], ValueError),
    ]:
        with pytest.raises(error, match="histogram"):
            oracle.simulate(histogram, rng)
    for wrong in (None, 42, np.random):
        with pytest.raises(TypeError, match="rng must be a numpy Generator"):
            oracle.simulate([1, 2, 3], wrong)
