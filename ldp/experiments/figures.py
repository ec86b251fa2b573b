"""The figures: what each one shows, and the rows that it is drawn and judged from.

A figure is a tidy table. Every row has the mean and the standard deviation, over independent repeats, of one
number. What x and that number are is the figure's own.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path

BAR = (0.16, 0.84)
"""The quantiles between which the middle 68 % of the repeats lie: of normal ones, one deviation down and up."""


@dataclass(frozen=True)
class Row:
    """One point of a figure.

    Attributes:
        figure: a key of `FIGURES`.
        dataset: "zipf", "emoji", …
        case: "" for the figure's own curves; else what is told apart. "synthetic" has the curves "real", "norm-sub" and
            "power-ns", by the data that errors are measured on. Not curves but numbers for the report are: "sum" of
            "bias", summed over the domain, at x = d; "zeros" of "distribution", the share of zeros among the less
            frequent half of the values, at x = d; "threshold" of "full-domain", the least frequency that is kept;
            "picked on …" of "synthetic", the share of repeats in which the data make one pick the method; and of
            "eleventh" and "choice", what these modules say.
        x: the figure's x: ε, n, ρ, k, a rank.
        method: a method's name; "truth" in "distribution"; or what a figure that is not the paper's measures.
        value: the figure's value, the mean over the repeats.
        deviation: its standard deviation over the repeats (of a sample, divisor repeats − 1); 0 if there is one.
        repeats: how many independent repeats. For "variance", a repeat is a batch of runs.
        low: the lower of the quantiles `BAR` of the repeats; None where only their mean was kept.
        high: the upper one.
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
    """What a figure shows.

    Attributes:
        name: its name on the command line, of its CSV and of its picture.
        paper: its number in the paper, or "" if it is not the paper's.
        title: what it shows, in a few words.
        x: the axis: what x is, with its unit.
        value: the axis: what the value is, with its unit.
        experiment: the work that gives its rows; figures of one experiment share one computation.
        log_x: x goes over orders of magnitude.
        log_value: so does the value, which is positive.
    """

    name: str
    paper: str
    title: str
    x: str
    value: str
    experiment: str
    log_x: bool = False
    log_value: bool = False


FIGURES: dict[str, Figure] = {
    figure.name: figure
    for figure in (
        Figure(
            "distribution",
            "Figure 1",
            "Mean of the estimated counts",
            "rank of the value",
            "mean count",
            "bias",
            log_x=True,
            log_value=True,
        ),
        Figure(
            "bias",
            "Figure 2",
            "Bias of the estimated counts",
            "rank of the value",
            "mean count minus true count",
            "bias",
            log_x=True,
        ),
        Figure(
            "variance",
            "Figure 3",
            "Variance of the estimated counts",
            "rank of the value",
            "variance of the count",
            "bias",
            log_x=True,
            log_value=True,
        ),
        Figure(
            "full-domain",
            "Figure 4",
            "Single values over the whole domain",
            "ε",
            "MSE",
            "full-domain",
            log_value=True,
        ),
        Figure(
            "users", "Figure 5", "Users that post-processing is worth, ε = 1", "users n", "users n'", "users"
        ),
        Figure(
            "set-value",
            "Figure 6",
            "Random sets, ε = 1",
            "ρ: size of the set, % of the domain",
            "MSE",
            "set-value",
            log_value=True,
        ),
        Figure(
            "set-value-small",
            "Figure 7",
            "Small random sets, ε = 1",
            "ρ: size of the set, % of the domain",
            "MSE",
            "set-value",
            log_value=True,
        ),
        Figure("set-case", "Figure 8", "Subgroups of emoji", "ε", "MSE", "set-case", log_value=True),
        Figure(
            "synthetic",
            "Figure 9",
            "Subgroups of emoji, errors on synthetic data",
            "ε",
            "MSE",
            "synthetic",
            log_value=True,
        ),
        Figure(
            "top-k",
            "Figure 10",
            "The k most frequent values, ε = 1",
            "k",
            "MSE",
            "top-k",
            log_x=True,
            log_value=True,
        ),
        Figure("choice", "", "How well a method is chosen", "ε", "", "choice"),
        Figure(
            "eleventh",
            "",
            "Empirical Bayes against PowerNS and Norm-Sub",
            "ε",
            "RMSE",
            "eleventh",
            log_value=True,
        ),
    )
}
"""Name -> figure, in the paper's order, then two that are not the paper's."""

COLUMNS = tuple(field.name for field in fields(Row))


def write_rows(rows: Iterable[Row], path: Path) -> None:
    """Writes rows as CSV: UTF-8, a header, numbers with ten significant digits, nothing for what a row lacks."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for row in rows:
            writer.writerow(
                format(cell, ".10g") if isinstance(cell, float) else cell for cell in astuple(row)
            )


def read_rows(path: Path) -> list[Row]:
    """Reads what `write_rows` wrote.

    Raises:
        ValueError: other columns, or a cell that is not a number where one belongs.
    """
    with path.open(encoding="utf-8", newline="") as file:
        header, *lines = csv.reader(file)
    if tuple(header) != COLUMNS:
        raise ValueError(f"{path} has the columns {', '.join(header)}; these rows have {', '.join(COLUMNS)}")
    return [
        Row(
            figure,
            dataset,
            case,
            float(x),
            method,
            float(value),
            float(deviation),
            int(repeats),
            *(float(end) if end else None for end in bar),
        )
        for figure, dataset, case, x, method, value, deviation, repeats, *bar in lines
    ]


def pick(rows: Sequence[Row], figure: str, dataset: str, method: str, case: str = "") -> dict[float, Row]:
    """One curve: x -> row."""
    wanted = (figure, dataset, method, case)
    return {row.x: row for row in rows if (row.figure, row.dataset, row.method, row.case) == wanted}
