"""Selects the method for a query by simulation (Section V-D).

The error of a method depends on the data and on the query, and the truth is unknown. Therefore, `choose` simulates
populations similar to the real one, and many collections of reports from each. It compares the answers of all methods
with the simulated truth. The paper simulates only the population that Norm-Sub estimates, whose peaks are often only
noise. This module differs in three points.

**Four populations**, each of which provides a quarter of the collections:

- the posterior means of empirical Bayes;
- draws of every frequency from its posterior under the prior that fits the estimates best (`Fit.draws`);
- draws of smooth populations, such as several wide peaks (`smooth_populations.draws`);
- the significant structure of the estimates without the rest (`smooth_populations.significant`).

**Correction** by the real estimate. A simulated population has less structure than the real population, which favours
methods that shrink small values to 0. For a fixed query with true answer f, Base's answer b and a method's answer m,

    E(m − f)² = E(m − b)² + 2·Cov(m, b) − Var(b)   (b is unbiased).

Mainly the first term depends on the truth. The real estimate gives one observation of this term. The difference between
the observation and the mean of the simulations corrects the simulated error (a covariance penalty, Efron 2004). The
weight of the correction is e²/(e² + v), at most ½. For the method with the lowest simulated error, v is the variance of
(m − b)² over the simulations, and e is half of the simulated error.

**Confidence** is the lowest of the four populations' confidences. Each is computed from means of only `RESAMPLED`
collections, because means of many collections would hide how much the real population differs from a simulated one.
For fewer than `MANY` sets, a mean only counts if it is at least `RESOLUTION` times Base's error, because lower errors
depend on rare collections. A choice is not clear if its loss exceeds `MOST_LOSS` in any population.

docs/guides/choose-a-method.md has the measured quality of the selection.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import InitVar, dataclass, field
from itertools import islice, repeat

import numpy as np
import numpy.typing as npt

from ldp.analysis import smooth_populations
from ldp.arguments import MAX_DOMAIN, as_indices, as_integer, check_generator
from ldp.consistency import METHODS, chosen
from ldp.consistency.empirical_bayes import Fit
from ldp.consistency.together import by_method
from ldp.estimate import Estimate, Vector, check_estimate
from ldp.query import Query, SetQuery, TopQuery

NEAR = 1.1  # A method whose error is at most this many times the lowest counts as equal to the best

DOUBT = 0.5  # standard deviation of the real error, relative to the lowest simulated error
MOST = 0.5  # largest weight of the correction
ROUNDING = 1e-13  # largest rounding error of a sum; the error of a single user is larger
LEAST = 0.5  # smallest corrected error, relative to the simulated error
RESAMPLES = 1000
RESAMPLED = 3  # collections per resample
MANY = 10  # number of sets whose mean error is as predictable as the error of single values
RESOLUTION = 0.04  # lowest error for fewer than MANY sets that collections can show, relative to Base's error
CLEAR = 0.85  # lowest confidence of a clear choice
MOST_LOSS = 2.0  # largest loss of a clear choice in any population

POPULATIONS = 4
NAMES = tuple(METHODS)
POST_POS = NAMES.index("post-pos")

Indices = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Values:
    """Queries for all single values. The error is the mean over the domain."""


@dataclass(frozen=True, eq=False)
class Sets:
    """Queries for sets of values. The error is the mean over the sets.

    Each set is a non-empty sequence of distinct indices. Raises TypeError or ValueError for other sets.
    """

    sets: InitVar[Iterable[npt.ArrayLike]]
    members: Indices = field(init=False, repr=False)
    starts: Indices = field(init=False, repr=False)

    def __post_init__(self, sets: Iterable[npt.ArrayLike]) -> None:
        checked = [as_indices(subset, MAX_DOMAIN) for subset in sets]
        if not checked:
            raise ValueError("no set given; a query for sets needs at least one set")
        if not all(members.size for members in checked):
            raise ValueError("a set is empty; it must have at least one value")
        starts = np.cumsum([0, *(len(members) for members in checked[:-1])], dtype=np.intp)
        object.__setattr__(self, "members", np.concatenate(checked))
        object.__setattr__(self, "starts", starts)

    def sums(self, vector: Vector) -> Vector:
        """Sums a vector over each set."""
        sums: Vector = np.add.reduceat(vector[self.members], self.starts)
        return sums


Queries = Values | Sets | Query
"""Queries for which methods are ranked. The error of several queries is the mean. For a `TopQuery`, the error is the
mean over the k values that are most frequent in the simulated truth."""


@dataclass(frozen=True)
class Ranked:
    """A method's estimated mean squared error.

    `simulated` is the error in the simulations, without the correction.
    """

    method: str
    mse: float
    simulated: float


@dataclass(frozen=True)
class Ranking:
    """Ranking of the methods for a query.

    Attributes:
        rows: methods by ascending error. Methods with equal errors are in the paper's order.
        confidence: estimated probability that the first method's error is at most `NEAR` times the lowest error. Each
            population gives the share of resamples in which this condition is true. The confidence is the lowest share.
            For fewer than `MANY` sets, the error must also be at least `RESOLUTION` times Base's error.
        weight: weight of the correction, 0 to ½; 0 for a `TopQuery`.
        loss: the first method's simulated error, relative to the lowest, in the population where this ratio is largest.
    """

    rows: tuple[Ranked, ...]
    confidence: float
    weight: float
    loss: float

    @property
    def clear(self) -> bool:
        """Whether confidence and loss are within `CLEAR` and `MOST_LOSS`."""
        return self.confidence >= CLEAR and self.loss <= MOST_LOSS

    @property
    def best(self) -> str:
        """The recommended method."""
        return self.rows[0].method


def choose(estimate: Estimate, query: Queries, rng: np.random.Generator, repeats: int = 50) -> Ranking:
    """Ranks the methods by their errors on a query.

    Args:
        estimate: Base over the whole domain.
        query: a `SetQuery` or `TopQuery`, or several queries as `Values` or `Sets`.
        rng: a numpy generator for the simulation; the same state gives the same ranking.
        repeats: number of simulated collections, at least 8. A quarter of them are from each population.

    Returns:
        All methods, ranked. O(repeats · (d log d + the sizes of the sets)): 0.3 s for d = 1,024.

    Raises:
        TypeError: an estimate, query, number of repeats or generator of the wrong type.
        ValueError: a domain of one value, a set's index outside the domain, or fewer than 8 repeats.

    Example:
        >>> import ldp, numpy as np
        >>> oracle = ldp.oracle("olh", epsilon="1", domain_size=200)
        >>> rng = np.random.default_rng(1)
        >>> counts = oracle.simulate(np.full(200, 500), rng)
        >>> choose(oracle.estimate(counts, 100_000), Sets([range(100)]), rng).best
        'power-ns'
    """
    return choose_all(estimate, [query], rng, repeats)[0]


def choose_all(
    estimate: Estimate,
    queries: Sequence[Queries],
    rng: np.random.Generator,
    repeats: int = 50,
    methods: Sequence[str] = NAMES,
) -> list[Ranking]:
    """Ranks the methods for many queries by one simulation; see `choose`.

    A query's ranking does not depend on the other queries. Only the given `methods` are compared and ranked. Raises
    ValueError if there is no method or an unknown method.
    """
    check_estimate(estimate)
    check_generator(rng, "a numpy Generator")
    if estimate.oracle.domain_size == 1:
        raise ValueError(
            "the domain has one value; a ranking needs at least 2, because it simulates distributions"
        )
    methods = chosen(methods, estimate.oracle.domain_size)
    places = [i for i, name in enumerate(NAMES) if name in methods]
    each = as_integer("repeats", repeats, 8, 1 << 20) // POPULATIONS
    queries = [_as_sets(query) for query in queries]
    for query in queries:
        _check(query, estimate.oracle.domain_size)
    *coins, again = (np.random.default_rng(int(seed)) for seed in rng.integers(1 << 63, size=POPULATIONS + 1))
    resamples = again.multinomial(RESAMPLED, np.full(each, 1.0 / each), RESAMPLES) / RESAMPLED
    noises = again.integers(each, size=RESAMPLES)

    fit = Fit(estimate)
    populations = (
        repeat(fit.means()),
        fit.draws(coins[1]),
        smooth_populations.draws(estimate, coins[2]),
        smooth_populations.significant(estimate, coins[3]),
    )
    simulated = [
        _simulate(estimate, islice(weights, each), queries, own)
        for weights, own in zip(populations, coins, strict=True)
    ]
    vectors = all_methods(estimate)
    rankings = []
    for query, *numbers in zip(queries, *simulated, strict=True):
        errors, distances = np.stack(numbers, axis=1)
        visible = RESOLUTION * float(errors[:, :, 0].mean()) if _few(query) else 0.0
        own = (errors[..., places], distances[..., places], _distances(query, vectors)[places])
        rankings.append(_rank(*own, resamples, noises, visible, [NAMES[i] for i in places]))
    return rankings


def _as_sets(query: Queries) -> Queries:
    return Sets([query.values]) if isinstance(query, SetQuery) else query


def _few(query: Queries) -> bool:
    return isinstance(query, Sets) and len(query.starts) < MANY


def _simulate(
    estimate: Estimate, weights: Iterable[Vector], queries: Sequence[Queries], rng: np.random.Generator
) -> list[Vector]:
    """Returns a (2, R, 11) array of errors and distances for each query."""
    oracle, made = estimate.oracle, []
    for one in weights:
        population = apportion(one, estimate.n)
        n = int(population.sum())
        vectors = all_methods(oracle.estimate(oracle.simulate(population, rng), n))
        truth = population / n
        made.append([(mean_squares(query, vectors, truth), _distances(query, vectors)) for query in queries])
    return [np.array(numbers).transpose(1, 0, 2) for numbers in zip(*made, strict=True)]


def all_methods(estimate: Estimate) -> Vector:
    """Returns the (11, d) results of all methods, in the order of `METHODS`."""
    return np.stack([*by_method(estimate, NAMES).values()])


def mean_squares(query: Queries, vectors: Vector, truth: Vector) -> Vector:
    """Returns the (11,) mean squared errors of the methods for a query.

    `vectors` are from `all_methods`, and `truth` is (d,). A `TopQuery` uses the k values with the largest `truth`.
    """
    query = _as_sets(query)
    if isinstance(query, Sets):
        wanted = query.sums(truth)
        answers = [query.sums(vector) for vector in vectors]
        answers[POST_POS] = np.maximum(answers[0], 0.0)
        off = np.array([np.abs(answer - wanted) for answer in answers])
        squares: Vector = np.where(off > ROUNDING, off, 0.0) ** 2
        mean: Vector = squares.mean(axis=1)
        return mean
    if isinstance(query, TopQuery):
        top = np.argsort(-truth, kind="stable")[: query.k]
        vectors, truth = vectors[:, top], truth[top]
    return np.array([np.mean((vector - truth) ** 2) for vector in vectors])


def _distances(query: Queries, vectors: Vector) -> Vector:
    """Returns the (11,) mean squared distances of the methods to Base."""
    # 0 for a TopQuery, because Base is biased for the values at the top
    return np.zeros(len(vectors)) if isinstance(query, TopQuery) else mean_squares(query, vectors, vectors[0])


def _rank(
    errors: Vector,
    distances: Vector,
    seen: Vector,
    resamples: Vector,
    noises: Indices,
    visible: float = 0.0,
    names: Sequence[str] = NAMES,
) -> Ranking:
    """Ranks m methods by the errors and distances of R simulated collections.

    `errors` and `distances` are (populations, R, m). `seen` are the (m,) distances in the real estimate. For each
    resample, `resamples` has the weights of the collections, and `noises` has the collection that gives the noise.
    `visible` is the lowest error that counts.
    """
    means, usual = errors.mean(axis=1), distances.mean(axis=1)
    simulated = means.mean(axis=0)
    first = int(simulated.argmin())
    doubt = (DOUBT * float(simulated[first])) ** 2
    spread = float(distances[:, :, first].var(axis=1, ddof=1).mean())
    share = doubt / (doubt + spread) if doubt > 0.0 and distances.any() else 0.0
    weight = min(MOST, share)
    # scaled to the standard deviation of the posterior after one observation
    noise = share**0.5 * (distances - usual[:, None])

    least = LEAST * means[:, None]
    corrected = errors - weight * distances
    scores = np.maximum(simulated + weight * (seen - usual.mean(axis=0)), LEAST * simulated)
    again = np.maximum(resamples @ corrected + weight * seen + noise[:, noises], least)
    order = np.argsort(scores, kind="stable")
    again_first = again[:, :, order[0]]
    near = (again_first <= NEAR * again.min(axis=2)) & (again_first >= visible)
    rows = tuple(Ranked(names[i], float(scores[i]), float(simulated[i])) for i in order)
    ours, lowest = means[:, order[0]], means.min(axis=1)
    losses = np.divide(ours, lowest, out=np.where(ours > 0.0, np.inf, 1.0), where=lowest > 0.0)
    return Ranking(rows, float(near.mean(axis=1).min()), weight, float(losses.max()))


def _check(query: Queries, domain_size: int) -> None:
    if not isinstance(query, Values | Sets | TopQuery):
        raise TypeError(f"a query must be a SetQuery, a TopQuery, Values or Sets, not {type(query).__name__}")
    if isinstance(query, Sets) and (highest := int(query.members.max())) >= domain_size:
        raise ValueError(f"a set's indices must lie in 0..{domain_size - 1}, got {highest}")


def apportion(weights: Vector, users: int) -> npt.NDArray[np.int64]:
    """Apportions users by (d,) weights with the largest-remainder method.

    The (d,) int64 result sums to `users`, which must be below 2⁵³. Each number is within 1 of the exact share.
    O(d log d).

    Example:
        >>> apportion(np.array([2.0, 1.0, 0.0]), 4).tolist()
        [3, 1, 0]
    """
    exact = weights / weights.sum() * users
    counts: npt.NDArray[np.int64] = np.floor(exact).astype(np.int64)
    missing = users - int(counts.sum())
    counts[np.argsort(counts - exact, kind="stable")[:missing]] += 1
    return counts
