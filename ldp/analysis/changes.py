"""Changes from one window to another: tests of all values with a bound on false discoveries.

`between` tests each value. The expected share of false discoveries among the values that it names is at most the level
(false discovery rate, Benjamini and Hochberg 1995). This holds for every domain and n, with any dependence between the
counts, and for every population, fixed or drawn from one that is the same in both windows.

**The e-value.** Let C₁ of n₁ reports support a value before, and C₂ of n₂ after. Let a(λ) and b(λ) be the logarithms of
E e^(λ·contribution of a report) for a user with and without the value (`ldp.intervals.confidence_sequence`), and

    M(λ, f) = e^b(λ) + f·(e^a(λ) − e^b(λ)).

Reports are independent given the users, and log M is concave in f, so n reports of users of whom a share f has the
value have E e^(λC) ≤ M(λ, f)ⁿ. Hence, for λ₁ < 0 < λ₂,

    exp(λ₁C₁ + λ₂C₂) / (M(λ₁, f₁)^n₁ · M(λ₂, f₂)^n₂)

has a mean of at most 1 for the true f₁ and f₂, which are unknown. Under the hypothesis f₂ − f₁ ≤ δ, and for a given
frequency F in both windows together, it is least where f₂ − f₁ = δ, and its logarithm is convex in F, so over a range
of F its least value has a closed form. The range of F is cut into cells in which the contribution has nearly one
variance. Each cell has two λ that suit it and the level, with n₁λ₁ = −n₂λ₂, so that F hardly matters, and one term for
each side that grows where both windows' counts fit no F in the cell. Their mean is an e-value if F is in the cell; the
least over all cells is one for every F. The e-value of a fall exchanges the windows; the value's is the mean of both.

**The discoveries.** With e-values in descending order, the first k are named, for the largest k of which each is at
least m/(k·level), m being the number of tests: e-BH (Wang and Ramdas 2022).

**Over time.** Each comparison has its own level. For one bound over all discoveries of many comparisons, give the t-th
comparison the level α·6/(π²t²).

**Intervals.** Of k named among m, intervals of level 1 − level·k/m, made of the same e-values, cover except for a share
of at most the level in expectation (Benjamini and Yekutieli 2005; for e-values Xu, Wang and Ramdas 2022).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ldp.estimate import Estimate, Vector, check_estimate
from ldp.intervals.confidence_sequence import Laws, Moments, set_laws, value_laws
from ldp.query import SetQuery

Indices = npt.NDArray[np.intp]

_STEP = 0.05  # By how much the logarithm of the variance differs within a cell, at most
_SIDE_SHARE = 0.02  # What part of a cell's mean the two terms have that say that F is not in it
_LARGEST = 600.0  # Logarithms are cut here, so that none is infinite
_HALVINGS = 40
_TILT = 30.0


@dataclass(frozen=True)
class _Law:
    """What a report adds, for a user with the value or one of the set's, and for another."""

    laws: Laws
    inside: Moments
    outside: Moments

    def log_mean(self, lam: Vector, f: Vector) -> Vector:
        """Returns log M(λ, f)."""
        a, b = (law(lam) for law in self.laws)
        return b + np.log1p(f * np.expm1(a - b))

    def variance(self, f: Vector) -> Vector:
        """Returns the variance of what a report adds, of users of whom a share f has it."""
        (one, inside), (other, outside) = self.inside, self.outside
        return (1.0 - f) * outside + f * inside + f * (1.0 - f) * (one - other) ** 2


@dataclass(frozen=True)
class _Test:
    """What was counted in two windows: (k,) each."""

    earlier: Vector
    n_earlier: int
    later: Vector
    n_later: int
    law: _Law
    tests: int
    level: float

    def exchanged(self) -> _Test:
        """Returns the test for a fall."""
        return _Test(self.later, self.n_later, self.earlier, self.n_earlier, self.law, self.tests, self.level)

    @functools.cached_property
    def lines(self) -> Sequence[tuple[float, float, Vector, Vector]]:
        """The cells: where each begins and ends, and its λ."""
        edges = _cells(self.law)
        tilts, pairs = _tilts(self, (edges[1:] + edges[:-1]) / 2.0)
        cells = zip(edges[:-1].tolist(), edges[1:].tolist(), tilts, pairs, strict=True)
        # counts that no F makes are no change: of such reports the cells at the ends say what they do of those within
        return [(low, high, tilt, sides[[high < 1.0, low > 0.0]]) for low, high, tilt, sides in cells]

    @property
    def among(self) -> Vector:
        """The differences of the frequencies."""
        apart = self.law.inside[0] - self.law.outside[0]
        difference: Vector = (self.later / self.n_later - self.earlier / self.n_earlier) / apart
        return difference


@dataclass(frozen=True, eq=False)
class Changes:
    """Differences between two windows, with the discoveries among them.

    Attributes:
        found: (k,) indices of the discoveries, the most evident first.
        differences: (m,) later minus earlier frequency, by Base, of everything tested.
        log_e: (m,) natural logarithms of the e-values; finite.
        level: upper bound of the false discovery rate.
        at_least: the hypothesis was that a frequency differs by at most this.

    Example:
        >>> import ldp
        >>> oracle = ldp.GRR("1", domain_size=3)
        >>> before, after = oracle.estimate([4000, 3000, 3000], 10_000), oracle.estimate([4600, 3010, 2390], 10_000)
        >>> low, high = between(before, after).interval()
        >>> low.round(3), high.round(3)
        (array([-0.228,  0.099]), array([-0.107,  0.23 ]))
    """

    found: Indices
    differences: Vector
    log_e: Vector
    level: float
    at_least: float
    _tests: Sequence[_Test] = field(repr=False)

    def p_values(self) -> Vector:
        """P-values, (m,): 1/e, at most 1, of the hypothesis that a frequency differs by at most `at_least`."""
        return np.exp(-np.maximum(self.log_e, 0.0))

    def interval(self) -> tuple[Vector, Vector]:
        """Intervals for the differences of the discoveries, with a false coverage rate of at most the level.

        Returns (low, high), each (k,) float64, in [−1, 1], in the order of `found`. O(k), some ten thousand steps for
        each.
        """
        if not self.found.size:
            return np.zeros(0), np.zeros(0)
        needed = math.log(2.0 * self.log_e.size / (self.level * self.found.size))
        if len(self._tests) == 1:
            return _ends(_picked(self._tests[0], self.found), needed)
        ends = [_ends(self._tests[index], needed) for index in self.found.tolist()]
        low, high = zip(*ends, strict=True)
        return np.concatenate(low), np.concatenate(high)


def between(before: Estimate, after: Estimate, level: float = 0.01, at_least: float = 0.0) -> Changes:
    """Finds the values whose frequencies changed from one window to another.

    Args:
        before: the estimate of one window.
        after: of another window, without common reports.
        level: upper bound of the expected share of false discoveries, in (0, 1).
        at_least: differences up to this do not count as changes.

    Returns:
        The changes among all d values. O(d), some hundred steps for each.

    Raises:
        ValueError: estimates of different protocols; a level or `at_least` out of range; frequencies that are not from
            counts; reports at several rates.
        TypeError: something that is not an Estimate.

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
    counts = [estimate.support().astype(np.float64) for estimate in (before, after)]
    test = _Test(counts[0], before.n, counts[1], after.n, law, before.oracle.domain_size, level)
    return _found([test], level, at_least)


def between_sets(
    before: Estimate, after: Estimate, queries: Iterable[SetQuery], level: float = 0.01, at_least: float = 0.0
) -> Changes:
    """Finds the sets whose frequencies changed; indices are those of the queries.

    The sets are tested separately from the values: they are few, so smaller changes are detected. Parameters and
    errors are those of `between`, with a ValueError for a value outside the domain. O(m) for each, and the cost of a
    `SetVariance` for a set's first one.

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
    for query in queries:
        inside, outside, most = query.variance(before.oracle).moments()
        values = np.array(query.values, np.intp)
        if values.size == before.oracle.domain_size:  # its frequency is 1
            inside, outside = (inside[0], 0.0), (outside[0], 0.0)
        law = _Law(set_laws(inside, outside, most), inside, outside)
        totals = [
            estimate.support()[values].sum(keepdims=True).astype(np.float64) for estimate in (before, after)
        ]
        tests.append(_Test(totals[0], before.n, totals[1], after.n, law, len(queries), level))
    return _found(tests, level, at_least)


def _check(before: Estimate, after: Estimate, level: float, at_least: float) -> None:
    check_estimate(before)
    check_estimate(after)
    if before.oracle != after.oracle:
        raise ValueError(
            f"estimates of {before.oracle} and {after.oracle} do not compare: their counts differ in kind"
        )
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must lie strictly between 0 and 1, got {level}")
    if not 0.0 <= at_least < 1.0:
        raise ValueError(f"at_least must be at least 0 and below 1, got {at_least}")


def _found(tests: Sequence[_Test], level: float, at_least: float) -> Changes:
    none = np.zeros(0)
    log_e = np.concatenate([none, *(_two_sided(test, at_least) for test in tests)])
    differences = np.concatenate([none, *(test.among for test in tests)])
    return Changes(discoveries(log_e, level), differences, log_e, level, at_least, tests)


def discoveries(log_e: Vector, level: float) -> Indices:
    """e-BH: the hypotheses that e-values refute with a false discovery rate of at most the level.

    Args:
        log_e: (m,) natural logarithms of e-values, with any dependence.
        level: in (0, 1).

    Returns:
        (k,) indices, the most evident first. O(m log m).

    Example:
        >>> discoveries(np.log([1.0, 250.0, 140.0, 90.0]), 0.02)  # of 4: 200, 100, 67 and 50 are needed
        array([1, 2, 3])
    """
    order = np.argsort(-log_e, kind="stable")
    rank = np.arange(1, log_e.size + 1)
    enough = np.flatnonzero(log_e[order] >= np.log(log_e.size / (rank * level)))
    return order[: enough[-1] + 1] if enough.size else order[:0]


def _two_sided(test: _Test, at_least: float) -> Vector:
    rise, fall = (_log_e(side, np.array(at_least)) for side in (test, test.exchanged()))
    return np.asarray(np.logaddexp(rise, fall) - math.log(2.0))


def _log_e(test: _Test, gap: Vector) -> Vector:
    """The logarithm of the e-value against f₂ − f₁ ≤ gap: (k,). ``gap`` is one number, or (k,)."""
    law, sizes = test.law, (test.n_earlier, test.n_later)
    if not law.outside[1] and not law.inside[1]:
        return np.zeros_like(test.earlier)  # the whole domain, where nothing can change
    total, n = test.earlier + test.later, sum(sizes)
    least = np.full_like(test.earlier, _LARGEST)
    for low, high, tilt, sides in test.lines:
        first, last = np.maximum(low, -gap * sizes[0] / n), np.minimum(high, 1.0 + gap * sizes[1] / n)
        mean = np.zeros_like(test.earlier)
        for one in tilt:
            lam = np.array([-one / sizes[0], one / sizes[1]])
            floor = _least(law, lam, sizes, gap, first, last)
            mean += _exp(lam[0] * test.earlier + lam[1] * test.later + floor)
        mean *= (1.0 - _SIDE_SHARE) / tilt.size
        for lam in sides:
            mean += _SIDE_SHARE / 2.0 * _exp(lam * total - n * law.log_mean(lam, np.array([low, high])).max())
        # no difference of `gap` is possible with such an F: it refutes itself
        np.minimum(least, np.where(first <= last, np.log(mean), _LARGEST), out=least)
    return least


def _exp(exponent: Vector) -> Vector:
    return np.exp(np.clip(exponent, -_LARGEST, _LARGEST))


def _least(
    law: _Law, lam: Vector, sizes: tuple[int, int], gap: Vector, first: Vector, last: Vector
) -> Vector:
    """The least of −log(M(λ₁, f₁)^n₁·M(λ₂, f₂)^n₂) for F from first to last, where f₂ − f₁ is the gap."""
    a, b = (each(lam) for each in law.laws)
    (steep, steep_later), (n, n_later) = np.expm1(a - b), sizes
    if steep >= 0.0 or steep_later <= 0.0:
        return np.array(-np.inf)  # λ is too large for what is known of the law: this says nothing
    under, over = gap * n_later / (n + n_later), gap * n / (n + n_later)
    at = -(n * steep * (1.0 + over * steep_later) + n_later * steep_later * (1.0 - under * steep)) / (
        steep * steep_later * (n + n_later)
    )
    at = np.maximum(np.minimum(at, last), np.minimum(first, last))
    with np.errstate(invalid="ignore", divide="ignore"):  # where no F is possible, which the caller knows
        growth = n * np.log1p((at - under) * steep) + n_later * np.log1p((at + over) * steep_later)
    return np.asarray(-(n * b[0] + n_later * b[1]) - growth)


def _cells(law: _Law) -> Vector:
    """The edges of cells over [0, 1] in which the variance is nearly one."""
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
    """For each cell the λ₂·n₂ that suit the level and λ of both counts, for more and for less: (cells, 2) each."""
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
            # from the mean of the count: its own deviation is what is to be seen
            mean = law.outside[0] + centres[:, None] * (law.inside[0] - law.outside[0])
            return n * (law.log_mean(sign * lam, centres[:, None]) - sign * lam * mean)

        most = wanted[-1] + math.log(2.0 / _SIDE_SHARE)
        sides.append(sign * _best(moved, deviation * math.sqrt(n), most, _TILT))
    return np.stack(tilts, axis=1), np.stack(sides, axis=1)


def _best(growth: Callable[[Vector], Vector], deviation: Vector, wanted: float, most: float) -> Vector:
    """Of some λ the one for which (growth(λ) + wanted)/λ is least, in each cell: (cells,)."""
    usual = math.sqrt(2.0 * wanted) / deviation
    lam = np.minimum(usual[:, None] * np.geomspace(1.0 / 64.0, 2.0, 57), most)
    needed = (growth(lam) + wanted) / lam
    return np.asarray(lam[np.arange(lam.shape[0]), np.argmin(needed, axis=1)])


def _picked(test: _Test, found: Indices) -> _Test:
    return _Test(
        test.earlier[found], test.n_earlier, test.later[found], test.n_later, test.law, test.tests, test.level
    )


def _ends(test: _Test, needed: float) -> tuple[Vector, Vector]:
    """The differences that are not refuted, each side by so much evidence."""
    return _lowest(test, needed), -_lowest(test.exchanged(), needed)


def _lowest(test: _Test, needed: float) -> Vector:
    """The largest gap that f₂ − f₁ evidently exceeds, by bisection."""
    low, high = np.full_like(test.earlier, -1.0), np.ones_like(test.earlier)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        refuted = _log_e(test, middle) >= needed
        low, high = np.where(refuted, middle, low), np.where(refuted, high, middle)
    return low
