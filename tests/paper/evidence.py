"""Selects the rows of an evaluation by curve, and grades claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ldp.consistency import METHODS
from ldp.estimate import Vector
from tests.paper.figures import Row

NAMES = {
    "base": "Base",
    "base-pos": "Base-Pos",
    "post-pos": "Post-Pos",
    "base-cut": "Base-Cut",
    "norm": "Norm",
    "norm-mul": "Norm-Mul",
    "norm-cut": "Norm-Cut",
    "norm-sub": "Norm-Sub",
    "mle-apx": "MLE-Apx",
    "power": "Power",
    "power-ns": "PowerNS",
}
"""The paper's names of the methods."""

HOLDS, IN_PART, FAILS = "holds", "holds in part", "does not hold"
OTHER = "not on other emoji"
"""Verdict on a claim that fails only on these emoji, which are not the paper's emoji."""
NEARLY_ALL, HALF = 0.95, 0.5


@dataclass(frozen=True)
class Finding:
    """A measurement in words, the overall verdict and one per data set."""

    measured: str
    verdict: str
    by_data: Mapping[str, str] = field(default_factory=dict)


def graded(cases: npt.ArrayLike, measured: str) -> Finding:
    """Grades a claim: it holds if 95 % of cases are true, in part if half are."""
    true = np.asarray(cases, np.bool_)
    share = float(true.mean())
    verdict = HOLDS if share >= NEARLY_ALL else IN_PART if share >= HALF else FAILS
    if true.size > 1:
        measured += f"; true in {np.count_nonzero(true):,} of {true.size:,} cases"
    return Finding(measured, verdict)


def overall(by_data: Mapping[str, str]) -> str:
    """Combines the verdicts on each data set into the verdict on a claim.

    Zipf decides, because the paper used the same data. The paper has other emoji, so results on emoji refute no claim.

    Example:
        >>> overall({"zipf": HOLDS, "emoji": FAILS}), overall({"zipf": IN_PART, "emoji": FAILS})
        ('not on other emoji', 'holds in part')
    """
    paper = by_data.get("zipf", HOLDS)
    if paper != HOLDS:
        return paper
    return HOLDS if by_data.get("emoji", HOLDS) == HOLDS else OTHER


def span(values: npt.ArrayLike, unit: str = "") -> str:
    """Returns the range of some numbers as text, with at most three digits."""
    low, high = number(float(np.min(values))), number(float(np.max(values)))
    return (low if low == high else f"{low} to {high}") + unit


def number(value: float) -> str:
    """Returns a number as text with three digits."""
    short = f"{value:.3g}"
    return f"{float(short):,.0f}" if 1000.0 <= abs(value) < 1e9 else short


class Evidence:
    """The rows of an evaluation by curve. `figures` has the figure names."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows
        self._curves: dict[tuple[str, str, str, str], list[Row]] = {}
        for row in rows:
            self._curves.setdefault((row.figure, row.dataset, row.method, row.case), []).append(row)
        self.figures = frozenset(row.figure for row in rows)

    def of(self, dataset: str) -> Evidence:
        """Returns the evidence of one data set."""
        return Evidence([row for row in self._rows if row.dataset == dataset])

    def common(self, figures: Sequence[str]) -> tuple[str, ...]:
        """Returns the data sets that have rows in all of the figures."""
        has = {(figure, dataset) for figure, dataset, _, _ in self._curves}
        names = dict.fromkeys(row.dataset for row in self._rows)
        return tuple(name for name in names if all((figure, name) in has for figure in figures))

    def curve(self, figure: str, dataset: str, method: str, case: str = "") -> list[Row]:
        """Returns the rows of one curve, in the order of x."""
        return self._curves[figure, dataset, method, case]

    def datasets(self, figure: str) -> list[str]:
        """Returns the data sets for which a figure has rows without a case."""
        return list(dict.fromkeys(of for name, of, _, case in self._curves if name == figure and not case))

    def x(self, figure: str, dataset: str, case: str = "", method: str = "base") -> Vector:
        """Returns the (m,) x values of one curve."""
        return np.array([row.x for row in self.curve(figure, dataset, method, case)])

    def values(self, figure: str, method: str, dataset: str | None = None, case: str = "") -> Vector:
        """Returns a method's (m,) values, on all data sets if `dataset` is None."""
        datasets = self.datasets(figure) if dataset is None else [dataset]
        return np.array([row.value for name in datasets for row in self.curve(figure, name, method, case)])

    def table(self, figure: str, dataset: str | None = None, case: str = "") -> Vector:
        """Returns the (11, m) `values` of all methods, in the order of `METHODS`."""
        return np.stack([self.values(figure, method, dataset, case) for method in METHODS])

    def at(self, figure: str, dataset: str, x: float, case: str = "") -> dict[str, Row]:
        """Returns each method's row at one x."""
        return {
            method: row
            for method in METHODS
            for row in self.curve(figure, dataset, method, case)
            if row.x == x
        }
