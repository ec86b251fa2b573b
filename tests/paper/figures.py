"""Axes of the figures, and the rows that contain their data."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields
from pathlib import Path

BAR = (0.16, 0.84)  # Quantiles of the repeats: mean ± 1 standard deviation of a normal distribution


@dataclass(frozen=True)
class Row:
    """One point of a figure: mean and deviation of `repeats` values at x.

    `case` is "" for plotted curves. Only the figure "synthetic" also plots other cases: "real" has the errors on the
    real data, and "norm-sub" and "power-ns" have the errors on data made by these methods. Cases for the report:

    - "sum" of the figure "bias": sum over the domain, at x = d
    - "zeros" of "distribution": share of zeros in the less frequent half of the values
    - "threshold" of "full-domain": smallest estimate above 0
    - "picked on …" of "synthetic": share of repeats in which the method is best on the synthetic data

    `low` and `high` are the quantiles `BAR` of the repeats, or None if only a mean is known.
    """

    figure: str
    dataset: str
    case: str
    x: float
    method: str
    value: float
    deviation: float
    repeats: int
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Figure:
    """A figure's axes and experiment. `paper` is "" for additional figures."""

    name: str
    paper: str
    title: str
    x: str
    value: str
    experiment: str
    log_x: bool = False
    log_value: bool = False


RANK, RHO, SUBGROUPS = "rank of the value", "ρ: size of the set, % of the domain", "Subgroups of emoji"
# fmt: off
FIGURES: dict[str, Figure] = {
    figure.name: figure
    for figure in (
        Figure("distribution", "Figure 1", "Mean of the estimated counts", RANK, "mean count", "bias", True, True),
        Figure("bias", "Figure 2", "Bias of the estimated counts", RANK, "mean count minus true count", "bias", True),
        Figure("variance", "Figure 3", "Variance of the estimated counts", RANK, "variance", "bias", True, True),
        Figure("full-domain", "Figure 4", "Single values", "ε", "MSE", "full-domain", False, True),
        Figure("users", "Figure 5", "Users that Base needs for the same MSE, ε = 1", "users n", "users n'", "users"),
        Figure("set-value", "Figure 6", "Random sets, ε = 1", RHO, "MSE", "set-value", False, True),
        Figure("set-value-small", "Figure 7", "Small random sets, ε = 1", RHO, "MSE", "set-value", False, True),
        Figure("set-case", "Figure 8", SUBGROUPS, "ε", "MSE", "set-case", False, True),
        Figure("synthetic", "Figure 9", f"{SUBGROUPS}, errors on synthetic data", "ε", "MSE", "synthetic", False, True),
        Figure("top-k", "Figure 10", "The k most frequent values, ε = 1", "k", "MSE", "top-k", True, True),
        Figure("choice", "", "Quality of choosing a method", "ε", "", "choice"),
        Figure("eleventh", "", "Empirical Bayes against PowerNS and Norm-Sub", "ε", "RMSE", "eleventh", False, True),
    )
}
# fmt: on
"""Name -> figure, in the paper's order, followed by two figures that are not in the paper."""


def write_rows(rows: Iterable[Row], path: Path) -> None:
    """Writes rows as CSV in UTF-8 with a header; None becomes an empty cell."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(field.name for field in fields(Row))
        for row in rows:
            writer.writerow(
                format(cell, ".10g") if isinstance(cell, float) else cell for cell in astuple(row)
            )
