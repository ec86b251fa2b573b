"""Finds changes between two windows at a bounded false discovery rate.

`between` tests each value. The expected share of false discoveries among the reported values is at most the level
(false discovery rate, Benjamini and Hochberg 1995). This holds for every domain size and n, and for any dependence
between the counts. The users may be fixed, or drawn at random from a population that is the same in both windows.

**E-value.** In the earlier window, C₁ of n₁ reports support a value. In the later window, C₂ of n₂ reports do. Let X be
a report's contribution to the count. Let a(λ) be log E e^(λX) for a user with the value, and b(λ) for a user without it
(`ldp.intervals.confidence_sequence`). Let

    M(λ, f) = e^b(λ) + f·(e^a(λ) − e^b(λ)).

Reports are independent given the users, and log M is concave in f. If a share f of the users has the value, the count C
of n reports has E e^(λC) ≤ M(λ, f)ⁿ. Therefore, for λ₁ < 0 < λ₂,

    exp(λ₁C₁ + λ₂C₂) / (M(λ₁, f₁)^n₁ · M(λ₂, f₂)^n₂)

has a mean of at most 1 for the true f₁ and f₂, which are unknown. Let F be the frequency in the two windows combined.
Under the hypothesis f₂ − f₁ ≤ δ the ratio is lowest at f₂ − f₁ = δ, for a given F. Its logarithm is convex in F, so its
minimum over a range of F has a closed form. The range of F is divided into cells in which the variance of a
contribution is nearly constant. Each cell has two main terms, which are the ratio for two choices of λ₁ and λ₂. Each
choice is optimal for the cell and the level, with n₁λ₁ = −n₂λ₂, so that F has little influence. Two side terms grow if
the counts indicate an F below or above the cell. If F is in the cell, the weighted mean of the cell's terms is an
e-value. The minimum over all cells is an e-value for every F. A high e-value is evidence of an increase by more than δ.
For a decrease, the windows are exchanged. The e-value of a change is the mean of the two e-values.

**Discoveries** (e-BH, Wang and Ramdas 2022). The e-values of the m tests are sorted in descending order. The first k
are discoveries, where k is the largest number such that the k-th e-value is at least m/(k·level).

**Estimand.** f₁ and f₂ are the shares among the reports of the windows. If the users of the windows are independent
samples of populations, the bounds also hold for the shares in the populations, because E e^(λC) ≤ M(λ, f)ⁿ for these f,
too.

**Over time.** The level bounds the false discovery rate of one comparison. To bound the rate over all discoveries of
many comparisons by α, give the t-th comparison the level α·6/(π²t²).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ldp.arguments import check_level
from ldp.estimate import Estimate, Vector, check_estimate
from ldp.intervals.confidence_sequence import Laws, Moments, value_laws
from ldp.query import SetQuery

Indices = npt.NDArray[np.intp]

_STEP = 0.05  # Largest variation of the logarithm of the variance within a cell
_SIDE_SHARE = 0.02  # Weight of the two side terms in a cell's mean
_LARGEST = 600.0  # Largest magnitude of a logarithm, which keeps e-values finite
_TILT = 30.0


@dataclass(frozen=True)
class _Law:
    """Laws and moments of a report's contribution to the count of a set."""

    laws: Laws
    inside: Moments
    outside: Moments

    def log_mean(self, lam: Vector, f: Vector) -> Vector:
        """Returns log M(λ, f)."""
        a, b = (law(lam) for law in self.laws)
        return b + np.log1p(f * np.expm1(a - b))

    def variance(self, f: Vector) -> Vector:
        """Returns a contribution's variance if a share f of users is in the set."""
        (one, inside), (other, outside) = self.inside, self.outside
        return (1.0 - f) * outside + f * inside + f * (1.0 - f) * (one - other) ** 2


@dataclass(frozen=True)
class _Test:
    """The (k,) counts of k tests in two windows, and the tests' parameters."""

    earlier: Vector
    n_earlier: int
    later: Vector
    n_later: int
    law: _Law
    tests: int
    level: float

    def exchanged(self) -> _Test:
        """Returns the test for a decrease, with the windows exchanged."""
        return _Test(self.later, self.n_later, self.earlier, self.n_earlier, self.law, self.tests, self.level)

    @functools.cached_property
    def cells(self) -> Sequence[tuple[float, float, Vector, Vector]]:
        """Start, end, λ₂·n₂ of main terms and λ of side terms, for each cell of F."""
        edges = _cells(self.law)
        tilts, pairs = _tilts(self, (edges[1:] + edges[:-1]) / 2.0)
        cells = zip(edges[:-1].tolist(), edges[1:].tolist(), tilts, pairs, strict=True)
        # impossible counts are not a change, so the cells at the ends have no side term for F < 0 or F > 1
        return [(low, high, tilt, sides[[high < 1.0, low > 0.0]]) for low, high, tilt, sides in cells]

    @property
    def differences(self) -> Vector:
        apart = self.law.inside[0] - self.law.outside[0]
        difference: Vector = (self.later / self.n_later - self.earlier / self.n_earlier) / apart
        return difference


@dataclass(frozen=True, eq=False)
class Changes:
    """Differences between two windows, and the discoveries among them.

    Attributes:
        found: (k,) indices of the discoveries, by descending evidence.
        differences: (m,) differences of Base's frequencies in all tests, later minus earlier. They are
            frequencies among the reports of a window.
        log_e: (m,) natural logarithms of the e-values e, all finite; min(1, 1/e) is a p-value.
        level: upper bound of the false discovery rate.
        at_least: largest difference that does not count as a change.

    Example:
        >>> import ldp
        >>> oracle = ldp.GRR("1", domain_size=3)
        >>> before, after = oracle.estimate([4000, 3000, 3000], 10_000), oracle.estimate([4600, 3010, 2390], 10_000)
        >>> between(before, after)
        Changes(found=array([2, 0]), level=0.01, at_least=0.0)
    """

    found: Indices
    differences: Vector = field(repr=False)
    log_e: Vector = field(repr=False)
    level: float
    at_least: float


def between(before: Estimate, after: Estimate, level: float = 0.01, at_least: float = 0.0) -> Changes:
    """Finds the values whose frequencies changed from one window to another.

    Args:
        before: the estimate of one window.
        after: the estimate of another window; the two windows have no reports in common.
        level: upper bound of the expected share of false discoveries, in (0, 1).
        at_least: largest difference that does not count as a change.

    Returns:
        The changes among all d values. O(d), with several hundred steps per value.

    Raises:
        ValueError: estimates of different protocols; a level or `at_least` out of range; frequencies that are not from
            counts.
        TypeError: `before` or `after` is not an Estimate.

    Example:
        >>> import ldp
        >>> olh = ldp.OLH("1", domain_size=4)
        >>> before = olh.estimate([4000, 3000, 3000, 2500], n=10_000)
        >>> after = olh.estimate([4100, 3900, 3000, 2450], n=10_000)
        >>> between(before, after).found, between(before, after, at_least=0.3).found
        (array([1]), array([], dtype=int64))
    """
    _check(before, after, level, at_least)
    p, q = float(before.oracle.p), float(before.oracle.q)
    law = _Law(value_laws(p, q), (p, p * (1.0 - p)), (q, q * (1.0 - q)))
    counts = [estimate.known_counts() for estimate in (before, after)]
    test = _Test(counts[0], before.n, counts[1], after.n, law, before.oracle.domain_size, level)
    return _found([test], level, at_least)


def between_sets(
    before: Estimate, after: Estimate, queries: Iterable[SetQuery], level: float = 0.01, at_least: float = 0.0
) -> Changes:
    """Finds the sets whose frequencies changed from one window to another.

    Indices in the result refer to `queries`. Sets are tested separately from values. There are fewer sets than values,
    so smaller changes are detected. Parameters and errors are those of `between`. A value outside the domain also
    raises ValueError. O(m) for a set of m values, plus the cost of the first `SetQuery.variance`.

    Example:
        >>> import ldp, ldp.query
        >>> grr, warm = ldp.GRR("1", domain_size=3), ldp.query.SetQuery("warm", [0, 1])
        >>> before, after = grr.estimate([4000, 3000, 3000], 10_000), grr.estimate([4600, 3010, 2390], 10_000)
        >>> between_sets(before, after, [warm]).found
        array([0])
    """
    _check(before, after, level, at_least)
    queries = tuple(queries)
    tests = []
    for i, query in enumerate(queries):
        if not isinstance(query, SetQuery):
            raise TypeError(f"query {i} is {query!r}; allowed is a SetQuery")
        variance = query.variance(before.oracle)
        inside, outside = variance.moments()
        values = np.array(query.values, np.intp)
        if values.size == before.oracle.domain_size > 1:  # its frequency is 1
            inside, outside = (inside[0], 0.0), (outside[0], 0.0)
        law = _Law(variance.laws(), inside, outside)
        totals = [estimate.known_counts(values).sum(keepdims=True) for estimate in (before, after)]
        tests.append(_Test(totals[0], before.n, totals[1], after.n, law, len(queries), level))
    return _found(tests, level, at_least)


def _check(before: Estimate, after: Estimate, level: float, at_least: float) -> None:
    for each in (before, after):
        check_estimate(each)
        each.refuse_memoised("changes")
    if before.oracle != after.oracle:
        raise ValueError(
            f"estimates of {before.oracle} and {after.oracle} cannot be compared: their counts are not comparable"
        )
    check_level(level)
    if not 0.0 <= at_least < 1.0:
        raise ValueError(f"at_least must be at least 0 and below 1, got {at_least}")


def _found(tests: Sequence[_Test], level: float, at_least: float) -> Changes:
    none = np.zeros(0)
    log_e = np.concatenate([none, *(_two_sided(test, at_least) for test in tests)])
    differences = np.concatenate([none, *(test.differences for test in tests)])
    return Changes(discoveries(log_e, level), differences, log_e, level, at_least)


def discoveries(log_e: Vector, level: float) -> Indices:
    """Selects hypotheses to reject at a false discovery rate (e-BH).

    Args:
        log_e: (m,) natural logarithms of e-values, with any dependence.
        level: upper bound of the false discovery rate, in (0, 1).

    Returns:
        (k,) indices, by descending evidence. O(m log m).

    Example:
        >>> discoveries(np.log([1.0, 250.0, 140.0, 90.0]), 0.02)  # thresholds: 200, 100, 67 and 50
        array([1, 2, 3])
    """
    order = np.argsort(-log_e, kind="stable")
    rank = np.arange(1, log_e.size + 1)
    enough = np.flatnonzero(log_e[order] >= np.log(log_e.size / (rank * level)))
    return order[: enough[-1] + 1] if enough.size else order[:0]


def _two_sided(test: _Test, at_least: float) -> Vector:
    rise, fall = (_log_e(side, at_least) for side in (test, test.exchanged()))
    return np.asarray(np.logaddexp(rise, fall) - math.log(2.0))


def _log_e(test: _Test, gap: float) -> Vector:
    """Returns the (k,) logarithms of the e-values against f₂ − f₁ ≤ gap."""
    law, sizes = test.law, (test.n_earlier, test.n_later)
    if not law.outside[1] and not law.inside[1]:
        return np.zeros_like(test.earlier)  # the frequency of the whole domain is constant
    total = test.earlier + test.later
    least = np.full_like(test.earlier, _LARGEST)
    for low, high, tilt, sides in test.cells:
        mean = np.zeros_like(test.earlier)
        for one in tilt:
            lam = np.array([-one / sizes[0], one / sizes[1]])
            floor = _least(law, lam, sizes, gap, low, high)
            mean += _exp(lam[0] * test.earlier + lam[1] * test.later + floor)
        mean *= (1.0 - _SIDE_SHARE) / tilt.size
        for lam in sides:
            mean += (
                _SIDE_SHARE
                / 2.0
                * _exp(lam * total - sum(sizes) * law.log_mean(lam, np.array([low, high])).max())
            )
        np.minimum(least, np.log(mean), out=least)
    return least


def _exp(exponent: Vector) -> Vector:
    return np.exp(np.clip(exponent, -_LARGEST, _LARGEST))


def _least(law: _Law, lam: Vector, sizes: tuple[int, int], gap: float, low: float, high: float) -> float:
    """Minimizes −log(M(λ₁, f₁)^n₁·M(λ₂, f₂)^n₂) over a cell, at f₂ − f₁ = gap."""
    a, b = (each(lam) for each in law.laws)
    (steep, steep_later), (n, n_later) = np.expm1(a - b), sizes
    if steep >= 0.0 or steep_later <= 0.0:
        return -math.inf  # λ is too large for the bounds of the law, which then give no evidence
    under, over = gap * n_later / (n + n_later), gap * n / (n + n_later)
    at = -(n * steep * (1.0 + over * steep_later) + n_later * steep_later * (1.0 - under * steep)) / (
        steep * steep_later * (n + n_later)
    )
    at = max(min(at, high), low)
    growth = n * math.log1p((at - under) * steep) + n_later * math.log1p((at + over) * steep_later)
    return float(-(n * b[0] + n_later * b[1]) - growth)


def _cells(law: _Law) -> Vector:
    """Returns the edges of cells with nearly constant variance."""
    near = np.concatenate([[0.0], np.geomspace(1e-9, 0.5, 600)])
    f = np.concatenate([near, 1.0 - near[-2::-1]])
    variance = np.log(np.maximum(law.variance(f), 1e-12))
    way = np.concatenate([[0.0], np.cumsum(np.abs(np.diff(variance)))])
    cells = max(1, math.ceil(way[-1] / _STEP))
    edges: Vector = (
        np.interp(np.linspace(0.0, way[-1], cells + 1), way, f) if way[-1] else np.array([0.0, 1.0])
    )
    edges[[0, -1]] = 0.0, 1.0
    return edges


def _tilts(test: _Test, centres: Vector) -> tuple[Vector, Vector]:
    """Returns each cell's λ₂·n₂ of the main terms, and λ of the side terms."""
    law, sizes, n = test.law, (test.n_earlier, test.n_later), test.n_earlier + test.n_later
    counts = np.unique([1, test.tests])
    wanted = [math.log(2.0 * counts.size * found / (test.level * (1.0 - _SIDE_SHARE))) for found in counts]
    deviation = np.sqrt(law.variance(centres))
    scale = math.sqrt(1.0 / sizes[0] + 1.0 / sizes[1])

    def differing(tilt: Vector) -> Vector:
        return sizes[0] * law.log_mean(-tilt / sizes[0], centres[:, None]) + sizes[1] * law.log_mean(
            tilt / sizes[1], centres[:, None]
        )

    tilts = [_best(differing, deviation * scale, each, _TILT * min(sizes)) for each in wanted]
    sides = []
    for sign in (1.0, -1.0):

        def moved(lam: Vector, sign: float = sign) -> Vector:
            # relative to the mean of the count, so that the term measures the distance from the cell
            mean = law.outside[0] + centres[:, None] * (law.inside[0] - law.outside[0])
            return n * (law.log_mean(sign * lam, centres[:, None]) - sign * lam * mean)

        most = wanted[-1] + math.log(2.0 / _SIDE_SHARE)
        sides.append(sign * _best(moved, deviation * math.sqrt(n), most, _TILT))
    return np.stack(tilts, axis=1), np.stack(sides, axis=1)


def _best(growth: Callable[[Vector], Vector], deviation: Vector, wanted: float, most: float) -> Vector:
    """Returns each cell's λ with the lowest (growth(λ) + wanted)/λ."""
    usual = math.sqrt(2.0 * wanted) / deviation
    lam = np.minimum(usual[:, None] * np.geomspace(1.0 / 64.0, 2.0, 57), most)
    needed = (growth(lam) + wanted) / lam
    return np.asarray(lam[np.arange(lam.shape[0]), np.argmin(needed, axis=1)])
