"""Projective Geometry Response against the geometry written out."""

import itertools
from fractions import Fraction
from math import isqrt

import numpy as np
import pytest

from ldp import sampling
from ldp.estimate import Estimate
from ldp.oracles import projective
from ldp.oracles.projective import PGR, best_geometry, number, orthogonal, orthogonals, points, word

pytestmark = pytest.mark.statistical

SMALL = [(2, 2), (2, 7), (3, 2), (3, 5), (7, 3), (13, 2)]
LARGE = [(2, 14), (3, 9), (97, 3), (10007, 2)]
ORACLES = [PGR("0.1", 300), PGR("1", 1), PGR("1", 100), PGR("4", 7), PGR("5", 60), PGR("64", 3)]


def geometry(prime, dimension):
    """The points in their order, (K, t): points that begin with 0, then 1 and every vector."""
    if dimension == 0:
        return np.empty((0, 0), np.int64)
    below = geometry(prime, dimension - 1)
    vectors = np.indices((prime,) * (dimension - 1)).reshape(dimension - 1, prime ** (dimension - 1)).T
    return np.concatenate([np.insert(below, 0, 0, axis=1), np.insert(vectors, 0, 1, axis=1)])


def supports(oracle, values=None):
    """(values, messages) bool: which message supports which value, by the definition."""
    every = geometry(oracle.prime, oracle.dimension)
    own = every[: oracle.domain_size] if values is None else every[values]
    return own @ every.T % oracle.prime == 0


@pytest.mark.parametrize(("prime", "dimension"), SMALL)
def test_points_are_the_ordered_vectors_with_leading_one(prime, dimension):
    vectors = [
        vector
        for vector in itertools.product(range(prime), repeat=dimension)
        if any(vector) and next(filter(None, vector)) == 1
    ]
    assert points(prime, dimension) == len(vectors)
    assert geometry(prime, dimension).tolist() == [list(vector) for vector in vectors]
    for index, vector in enumerate(vectors):
        digits = sum(x * prime ** (dimension - 1 - k) for k, x in enumerate(vector))
        assert word(index, prime, dimension) == digits
        assert number(digits, prime, dimension) == index


@pytest.mark.parametrize(("prime", "dimension"), SMALL)
def test_hyperplane_indices_match_its_points(prime, dimension):
    oracle = PGR("1", points(prime, dimension), prime=prime, dimension=dimension)
    for value, row in enumerate(supports(oracle)):
        places = np.arange(oracle.hyperplane)
        found = [orthogonal(value, int(place), prime, dimension) for place in places]
        assert sorted(found) == np.flatnonzero(row).tolist()
        values = np.full(oracle.hyperplane, value)
        assert orthogonals(values, places, prime, dimension).tolist() == found


@pytest.mark.parametrize(("prime", "dimension"), LARGE)
def test_arrays_find_the_same_points_as_single_values(prime, dimension):
    rng = np.random.default_rng(1)
    values = rng.integers(points(prime, dimension), size=300)
    values[:40] = np.arange(40)
    places = rng.integers(points(prime, dimension - 1), size=300)
    found = orthogonals(values, places, prime, dimension)
    for value, place, point in zip(values.tolist(), places.tolist(), found.tolist(), strict=True):
        assert point == orthogonal(value, place, prime, dimension)
        a, b = (
            [word(index, prime, dimension) // prime**k % prime for k in range(dimension)]
            for index in (value, point)
        )
        assert sum(x * y for x, y in zip(a, b, strict=True)) % prime == 0


@pytest.mark.parametrize("oracle", ORACLES, ids=repr)
def test_support_is_the_sum_over_all_pairs(oracle):
    matrix = supports(oracle).astype(object)  # python's integers: nothing is rounded
    rng = np.random.default_rng(2)
    K = oracle.state_size
    states = [
        rng.integers(5, size=K),
        rng.multinomial(10**9, np.full(K, 1 / K)),
        rng.integers((1 << 62) // K, size=K),
        np.where(np.arange(K) == K // 2, (1 << 63) - 1, 0),
        np.zeros(K, np.int64),
    ]
    for state in states:
        before = state.copy()
        counts = oracle.support(state)
        assert counts.dtype == np.int64
        assert counts.tolist() == (matrix @ state.astype(object)).tolist()
        assert (state == before).all()


@pytest.mark.parametrize(("prime", "dimension"), [*SMALL, *LARGE])
@pytest.mark.parametrize("total", [projective.EXACT, (1 << 63) - 1], ids=hex)
def test_few_large_counters_are_decoded_exactly(prime, dimension, total):
    """The worst for rounding: all reports are one, or few, points, and sum to the most of one pass or more."""
    oracle = PGR("1", points(prime, dimension), prime=prime, dimension=dimension)
    K = oracle.state_size
    rng = np.random.default_rng(3)
    for chosen in ([K - 1], [0, K // 2], np.unique(rng.integers(K, size=9)).tolist()):
        state = oracle.zeros()
        state[chosen] = total // len(chosen)
        supported = supports(oracle, chosen) if K < 20_000 else supports_of_many(oracle, chosen)
        expected = supported.T.astype(np.int64) @ state[chosen]
        assert (oracle.support(state) == expected).all()


def supports_of_many(oracle, chosen):
    """`supports` of a few points for a geometry whose vectors are better not all in memory as int64."""
    every = geometry(oracle.prime, oracle.dimension).astype(np.int32)
    return np.array([(every @ every[point]) % oracle.prime == 0 for point in chosen])


@pytest.mark.parametrize(("prime", "dimension"), [(3, 9), (5, 7), (97, 3)])
def test_rounding_stays_far_from_a_half(monkeypatch, prime, dimension):
    errors = []
    rint = np.rint

    def measured(x, out):
        errors.append(np.abs(x - rint(x)).max())
        return rint(x, out=out)

    monkeypatch.setattr(np, "rint", measured)
    K = points(prime, dimension)
    for chosen in ([K - 1], [0, K // 3, K // 2]):
        counters = np.zeros(K, np.int64)
        counters[chosen] = projective.EXACT // len(chosen)
        projective.hyperplane_sums(counters, prime, dimension)
    assert len(errors) == 2 * (dimension - 2)
    assert max(errors) < 2**-13


@pytest.mark.parametrize(
    ("epsilon", "prime", "dimension", "variance"), [("1", 3, 7, 3.761e-6), ("4", 53, 3, 7.53e-8)]
)
def test_published_variances(epsilon, prime, dimension, variance):
    oracle = PGR(epsilon, 1024, prime=prime, dimension=dimension)
    assert Estimate(np.zeros(1024), 10**6, oracle).sigma ** 2 == pytest.approx(variance, rel=1e-3)


@pytest.mark.parametrize("d", [1, 2, 3, 7, 13, 32, 200, 845])
def test_the_best_geometry_has_the_fewest_sufficient_points(d):
    """Against every prime and dimension with d to max(4d, 2¹⁶) points, by p and q as defined."""

    def variance(E, K, c, i):
        p, q = E * c / ((E - 1) * c + K), ((E - 1) * i + c) / ((E - 1) * c + K)
        return q * (1 - q) / (p - q) ** 2

    geometries = {
        (prime, dimension): [sum(prime**k for k in range(dimension - less)) for less in range(3)]
        for dimension in range(2, 18)
        for prime in (range(2, 300) if dimension > 2 else range(max(2, d - 1), 2 * d + 3))
        if all(prime % k for k in range(2, isqrt(prime) + 1))
        if d <= sum(prime**k for k in range(dimension)) <= max(4 * d, 1 << 16)
    }
    for epsilon in (Fraction(1, 10), Fraction(1), Fraction(4), Fraction(20)):
        E = sampling.exp_below(epsilon)
        variances = {each: variance(E, *sizes) for each, sizes in geometries.items()}
        least = min(variances.values())
        chosen = best_geometry(E, d)
        assert variances[chosen] <= least * Fraction(102, 100)
        fewer = [each for each, sizes in geometries.items() if sizes[0] < geometries[chosen][0]]
        assert all(variances[each] > least * Fraction(102, 100) for each in fewer)


@pytest.mark.parametrize(
    ("own", "error", "says"),
    [
        ({"prime": 3}, TypeError, "pass both or neither"),
        ({"dimension": 3}, TypeError, "pass both or neither"),
        ({"prime": 4, "dimension": 3}, ValueError, "prime is 4"),
        ({"prime": 3.0, "dimension": 3}, TypeError, "prime must be"),
        ({"prime": 3, "dimension": True}, TypeError, "dimension must be"),
        ({"prime": 3, "dimension": 1}, ValueError, "dimension is 1; allowed"),
        ({"prime": 3, "dimension": 2}, ValueError, "make 4 points; allowed is domain_size = 5 to"),
        ({"prime": 3, "dimension": 18}, ValueError, "make 193710244 points"),
    ],
)
def test_bad_geometries_are_refused(own, error, says):
    with pytest.raises(error, match=says):
        PGR("1", 5, **own)


def test_a_negative_counter_is_refused():
    oracle = PGR("1", 10)
    state = oracle.zeros()
    state[3] = -2
    with pytest.raises(ValueError, match="counter -2"):
        oracle.support(state)
