"""A claim, and the tests of the most common kinds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ldp.consistency import METHODS
from ldp.experiments.evidence import NAMES, Evidence, Finding, judged, number, overall, span

FULL, SETS, SMALL, CASE, TOP = "full-domain", "set-value", "set-value-small", "set-case", "top-k"
COUNTS = ("bias", "variance", "distribution")
RANDOM = (SETS, SMALL)
ERRORS = (FULL, SETS, SMALL, CASE, TOP)
"""The figures whose value is an MSE."""

SUM_TO_ONE = ("norm", "norm-mul", "norm-sub", "mle-apx", "norm-cut", "power-ns")
"""The methods that the paper counts among those that sum to 1."""

OTHERS = tuple(method for method in METHODS if method not in SUM_TO_ONE)
ALIKE = 1.02  # "the same", "very close": within 2 %
SIMILAR = 1.25  # "similar": within 25 %
TIE = 1.01  # methods within 1 % of the best are best too


@dataclass(frozen=True)
class Claim:
    """A statement of Section V.

    Attributes:
        section: its subsection.
        quote: its words, shortened.
        needs: the figures it is judged by.
        test: when it is true, in words.
        judge: what rows say, of one data set or of several.
        data: the data that it is about; none for all that each of its figures is of.
    """

    section: str
    quote: str
    needs: tuple[str, ...]
    test: str
    judge: Callable[[Evidence], Finding]
    data: tuple[str, ...] = ()

    def found(self, rows: Evidence) -> Finding:
        """What was measured, and the verdict on each of its data and on the whole."""
        by_data = {name: self.judge(rows.of(name)).verdict for name in self.data or rows.common(self.needs)}
        return Finding(self.judge(rows).measured, overall(by_data), by_data)


def best(
    figures: Sequence[str], method: str, among: Sequence[str] = tuple(METHODS), worst: bool = False
) -> Callable[[Evidence], Finding]:
    """The method has the least error of some methods (or the largest) at every point."""

    def finding(rows: Evidence) -> Finding:
        errors = {name: np.concatenate([rows.values(figure, name) for figure in figures]) for name in among}
        table = np.stack([*errors.values()])
        if worst:
            excess = table.max(axis=0) / errors[method]
            return judged(
                excess <= TIE, f"the largest is up to {number(float(excess.max()))} × {NAMES[method]}'s"
            )
        excess = errors[method] / table.min(axis=0)
        measured = f"{NAMES[method]} / best: {span(excess)}"
        if not (excess <= TIE).all():
            winner = [*errors][int(table[:, int(excess.argmax())].argmin())]
            measured += f", there {NAMES[winner]}"
        return judged(excess <= TIE, measured)

    return finding


def ratio(
    figures: Sequence[str], method: str, to: str, low: float, high: float
) -> Callable[[Evidence], Finding]:
    """The error of a method over that of another lies between two numbers."""

    def finding(rows: Evidence) -> Finding:
        parts = []
        for dataset in dict.fromkeys(name for figure in figures for name in rows.datasets(figure)):
            of = [figure for figure in figures if dataset in rows.datasets(figure)]
            quotients = [
                rows.values(figure, method, dataset) / rows.values(figure, to, dataset) for figure in of
            ]
            parts.append((dataset, np.concatenate(quotients)))
        measured = "; ".join(f"{dataset.capitalize()} {span(quotients)}" for dataset, quotients in parts)
        together = np.concatenate([quotients for _, quotients in parts])
        return judged((together >= low) & (together <= high), f"{NAMES[method]} / {NAMES[to]}: {measured}")

    return finding


def lower(figures: Sequence[str], method: str, than: str) -> Callable[[Evidence], Finding]:
    """The error of a method is below that of another."""
    return ratio(figures, method, than, 0.0, np.nextafter(1.0, 0.0))
