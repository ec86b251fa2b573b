"""The paper's methods (Section IV), recomputed from Base and compared.

Numbers must be equal within rounding. For Power, they may differ by a millionth of a standard error. If an estimate is
within rounding of a threshold, both results are accepted.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from worker.audit import power
from worker.audit.errors import Difference
from worker.audit.vectors import Read, Vector

ROUNDING = 1e-9
_OF_SIGMA = 1e-6
_SHORT = 0.01  # Maximum rounding of a number, in standard errors
_MOST = 4096  # Maximum number of different estimates with exact Power; others are interpolated


@dataclass(frozen=True)
class Estimate:
    """Base's estimate: frequencies, number of reports, p and q."""

    base: Vector  # (d,)
    reports: int
    p: Fraction
    q: Fraction

    @cached_property
    def sigma(self) -> float:
        """Standard deviation of the estimate of a value without users."""
        return math.sqrt(self.q * (1 - self.q) / (self.reports * (self.p - self.q) ** 2))

    @cached_property
    def rounding(self) -> float:
        """Maximum difference between two correct computations of a number."""
        return ROUNDING * max(1.0, float(np.abs(self.base).max()))

    @cached_property
    def users(self) -> Vector:
        """Frequencies by Norm-Sub."""
        return _on_simplex(self.base)

    @cached_property
    def _nodes(self) -> Vector:
        found = np.unique(self.base)
        if len(found) > _MOST:
            found = found[np.linspace(0, len(found) - 1, _MOST).round().astype(int)]
        return found

    @cached_property
    def powers(self) -> Vector:
        """Frequencies by Power."""
        n, alpha = self.reports, power.exponent(self.reports, len(self.base))
        due = power.means(n * self._nodes, n, n * self.sigma, alpha) / n
        between: Vector = np.interp(self.base, self._nodes, due)
        return between

    @cached_property
    def computed(self) -> npt.NDArray[np.bool_]:
        """Whether each number in `powers` is exact and not interpolated."""
        return np.isin(self.base, self._nodes)


def _base_cut(of: Estimate, found: Vector) -> Vector:
    """Keeps estimates above the threshold for 2 false positives on average."""
    d = len(of.base)
    above = -NormalDist().inv_cdf(2 / d) * of.sigma if d > 4 else 0.0
    due = np.where(of.base >= above, of.base, 0.0)
    on_it = np.abs(of.base - above) <= of.rounding
    nearer = np.where(np.abs(found) < np.abs(found - of.base), 0.0, of.base)
    return np.where(on_it, nearer, due)


def _norm_mul(of: Estimate, _found: Vector) -> Vector:
    positive: Vector = np.maximum(of.base, 0.0)
    total = float(positive.sum())
    return positive / total if total else np.full(len(positive), 1.0 / len(positive))


def _norm_cut(of: Estimate, found: Vector) -> Vector:
    """Returns the nearer of both results that rounding allows."""
    return min(_norm_cuts(of), key=lambda due: float(np.abs(found - due).max()))


def _norm_cuts(of: Estimate) -> tuple[Vector, Vector]:
    """Keeps the largest estimates whose sum is at most 1; ties stay together."""
    positive = np.maximum(of.base, 0.0)
    levels, sizes = np.unique(positive[positive > 0], return_counts=True)
    sums = np.cumsum((levels * sizes)[::-1])
    off = 1e-12 * (1 + len(positive) * float(of.q / (of.p - of.q)))

    def cut(most: float) -> Vector:
        fits = int((sums <= most).sum())
        if fits == len(sums):
            return positive
        if not fits:
            return np.where(of.base == levels[-1], 1.0 / sizes[-1], 0.0)
        return np.where(positive >= levels[-fits], positive, 0.0)

    return cut(1.0 - off), cut(1.0 + off)


def _on_simplex(values: Vector) -> Vector:
    """Returns max(value + δ, 0) for the δ that makes the sum 1."""
    ordered = np.sort(values)[::-1]
    shifts = (1.0 - np.cumsum(ordered)) / np.arange(1, len(ordered) + 1)
    kept = int((ordered + shifts > 0).sum())
    due: Vector = np.maximum(values + float(shifts[kept - 1]), 0.0)
    return due


def _mle_apx(of: Estimate, _found: Vector) -> Vector:
    """Minimizes Σ (f − f̃)²/(Q + f·B) on the simplex."""
    # (f − f̃)/(Q + f·B) is one number x wherever f > 0, so f = (f̃ + x·Q)/(1 − x·B); Σ f = 1 determines x
    p, q = of.p, of.q
    if p == 1 and len(on_top := np.flatnonzero(of.base >= 1.0 - of.rounding)):
        # a value that all reports support has no error
        sure = np.zeros(len(of.base))
        sure[on_top] = 1.0 / len(on_top)
        return sure
    variance, more = float(q * (1 - q)), float((p - q) * (1 - p - q))
    possible = np.clip(of.base, float(-q / (p - q)), float((1 - q) / (p - q)))
    ordered = np.sort(possible)[::-1]
    with np.errstate(divide="ignore"):  # if p is 1, the first division is by 0
        x = (1.0 - np.cumsum(ordered)) / (np.arange(1, len(ordered) + 1) * variance + more)
    kept = max(1, int((ordered + x * variance > 0).sum()))
    own = float(x[kept - 1])
    due: Vector = np.maximum(possible + own * variance, 0.0) / (1.0 - own * more)
    return due


_DUE: Mapping[str, Callable[[Estimate, Vector], Vector]] = {
    "base": lambda of, _: of.base,
    "base-pos": lambda of, _: np.maximum(of.base, 0.0),
    "post-pos": lambda of, _: np.maximum(of.base, 0.0),
    "base-cut": _base_cut,
    "norm": lambda of, _: of.base + (1.0 - float(of.base.sum())) / len(of.base),
    "norm-mul": _norm_mul,
    "norm-cut": _norm_cut,
    "norm-sub": lambda of, _: of.users,
    "mle-apx": _mle_apx,
    "power": lambda of, _: of.powers,
    "power-ns": lambda of, _: of.powers,
}
METHODS = frozenset(_DUE)


def expect_method(method: str, body: Mapping[str, Any], of: Estimate, vectors: Mapping[str, Read]) -> None:
    """Raises `Difference` unless a method's body and vectors follow from Base."""
    if method not in METHODS:
        raise Difference(f"{method} is not a method")
    found, short = vectors["frequencies"].values, rounded_by(vectors["frequencies"], of)
    if found.shape != of.base.shape:
        raise Difference(f"{method}: {len(found)} frequencies published, expected {len(of.base)}")
    if method in ("power", "power-ns"):
        _expect_power(method, found, short, of)
    else:
        expect_vector(f"{method}: frequency", found, _DUE[method](of, found), of.rounding + short)
    total = max(float(of.base.sum()), 0.0) if method == "post-pos" else float(found.sum())
    _expect_answers(method, body, of, found, total, float(short.sum()))
    expect_number(f"{method}: standard_error", body["standard_error"], of.sigma, ROUNDING * of.sigma)


def bounds_of(method: str, of: Estimate) -> tuple[Vector, Vector, Vector, float]:
    """Returns the least and largest results that rounding allows.

    Also returns which numbers are not computed exactly (1, else 0), and the maximum rounding error of the others.
    """
    exact = np.zeros(len(of.base))
    if method in ("power", "power-ns"):
        due = of.powers if method == "power" else _on_simplex(of.powers)
        all_or_none = method == "power" or bool(of.computed.all())
        unsure = ~of.computed if all_or_none else np.ones(len(exact))
        return due, due, unsure.astype(np.float64), 3 * max(of.rounding, _OF_SIGMA * of.sigma)
    if method == "norm-cut":
        both = _norm_cuts(of)
    elif method == "base-cut":
        both = _base_cut(of, of.base), _base_cut(of, exact)
    else:
        both = (_DUE[method](of, of.base),) * 2
    return np.minimum(*both), np.maximum(*both), exact, 0.0


def rounded_by(vector: Read, of: Estimate) -> Vector:
    """Returns the maximum rounding error of each number of a vector."""
    return np.minimum(vector.off, _SHORT * of.sigma)


def _expect_power(method: str, found: Vector, short: Vector, of: Estimate) -> None:
    off = max(of.rounding, _OF_SIGMA * of.sigma)
    order = np.argsort(of.base, kind="stable")
    if (np.diff(found[order]) < -of.rounding).any():
        raise Difference(f"{method}: a larger estimate has a smaller frequency")
    if method == "power":
        expect_vector(
            "power: frequency", found[of.computed], of.powers[of.computed], off + short[of.computed]
        )
        return
    # PowerNS adds a constant to Power's frequencies and replaces negative results by 0
    some = np.flatnonzero(of.computed)
    kept = some[found[some] > off]
    if not of.computed.all():
        shift = float(np.median(found[kept] - of.powers[kept])) if len(kept) else 0.0
        due = np.where(found[some] > 0, of.powers[some] + shift, found[some])
    else:
        due = _on_simplex(of.powers)
    expect_vector("power-ns: frequency", found[some], due, 3 * off + short[some])
    off = len(found) * of.rounding + float(short.sum())
    expect_number("power-ns: sum of the frequencies", float(found.sum()), 1.0, off)


def _expect_answers(
    method: str, body: Mapping[str, Any], of: Estimate, found: Vector, total: float, short: float
) -> None:
    off = len(found) * of.rounding + short
    expect_number(f"{method}: sum", body["sum"], total, off)
    summed = of.base if method == "post-pos" else found  # Post-Pos clips the sum, not its terms
    for answer in body["queries"]:
        due = float(summed[np.array(answer["values"], np.intp)].sum())
        due = max(due, 0.0) if method == "post-pos" else due
        expect_number(f"{method}: query {answer['name']!r}", answer["frequency"], due, off)
    for answer in body["top"]:
        values = np.array(answer["values"], np.intp)
        if values.tolist() != np.argsort(-of.base, kind="stable")[: len(values)].tolist():
            raise Difference(
                f"{method}: query {answer['name']!r}: {answer['values']} are not the most frequent values"
            )
        expect_vector(
            f"{method}: query {answer['name']!r}: frequency",
            np.array(answer["frequencies"]),
            found[values],
            0,
        )


def expect_vector(what: str, found: Vector, due: Vector, off: Vector | float) -> None:
    """Raises `Difference` unless all numbers are within `off` of `due`."""
    if found.shape != due.shape:
        raise Difference(f"{what}: {len(found)} published, expected {len(due)}")
    differing = np.flatnonzero(~(np.abs(found - due) <= off))
    if len(differing):
        v = int(differing[0])
        raise Difference(
            f"{what}[{v}] is {float(found[v])} as published, {float(due[v])} by the method; {len(differing)} differ"
        )


def expect_number(what: str, found: float, due: float, off: float) -> None:
    """Raises `Difference` unless a number is within `off` of `due`."""
    if not abs(found - due) <= off:
        raise Difference(f"{what} is {found} as published, {due} by the method")
