"""Compares the method that `choose` picks with the best one (Section V-D).

The comparison has a cell for each data set, ε and query. A method's real error in a cell is its mean squared error
over many simulated collections of the data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial

import numpy as np

from ldp.analysis.method_selection import NEAR, Queries, Sets, Values, all_methods, choose_all, mean_squares
from ldp.consistency import METHODS
from ldp.estimate import Vector
from ldp.experiments import eleventh
from ldp.experiments.datasets import ZIPF_DOMAIN, ZIPF_USERS, Dataset, emoji, shaped, zipf
from ldp.experiments.evaluation import draw, each
from ldp.experiments.figures import Row
from ldp.experiments.jobs import Job, Sample, Scale, once
from ldp.query import TopQuery

EPSILONS = ("0.5", "1", "2")
RANKS = np.arange(float(ZIPF_DOMAIN))
DATASETS: Mapping[str, Callable[[], Dataset]] = {
    "zipf": zipf,
    "emoji": emoji,
    "uniform": eleventh.DATASETS["uniform"],
    "bell": partial(shaped, "bell", np.exp(-0.5 * (RANKS / 256) ** 2)),
    "steps": partial(shaped, "steps", 2.0 ** -(RANKS // 256)),
    "spiked": partial(shaped, "spiked", np.where(RANKS < 16, 0.02, 0.68 / (ZIPF_DOMAIN - 16))),
    "mixed": partial(shaped, "mixed", (RANKS + 1) ** -1.5 / 2.6 + 1 / ZIPF_DOMAIN),
    "geometric": eleventh.DATASETS["geometric"],
    "steep geometric": eleventh.DATASETS["steep geometric"],
}
PAPER = ("zipf", "emoji")  # Data with every ε; the other data have ε = 1

SHARE, SETS = 10, 100  # Size of a random set as 1/SHARE of the domain, and number of random sets
SINGLE = 4  # Number of queries with one set
TOP = (3, 16)
NONE = 1.0 / ZIPF_USERS**2  # Smallest squared error: an error of one user
TRUTHS = 16  # Collections per repeat for the truth
REPEATS = 50  # Simulations per choice
SURE = (0.8, 0.9)  # Thresholds of the confidence
BY_NAME = ("power-ns", "norm-sub")  # Methods to compare a choice with


@cache
def queries(name: str) -> Mapping[str, Queries]:
    """Returns the queries of a data set, by name."""
    d = len(DATASETS[name]().histogram)
    rng = np.random.default_rng(SETS)  # fixed, so that every seed has the same sets
    random = [rng.choice(d, d // SHARE, replace=False) for _ in range(SETS)]
    groups = list(emoji().subgroups.values())  # the same sets for every data set
    return {
        "single values": Values(),
        "random sets": Sets(random),
        "subgroups": Sets(groups),
        **{f"top {k}": TopQuery(f"top {k}", k) for k in TOP},
        **{f"one random set #{i + 1}": Sets([random[i]]) for i in range(SINGLE)},
        **{f"one subgroup #{i + 1}": Sets([groups[len(groups) * i // SINGLE]]) for i in range(SINGLE)},
    }


def choice(scale: Scale) -> list[Job]:
    """Returns jobs that measure errors, and fewer jobs that choose a method."""
    cells = [(name, epsilon) for name in DATASETS for epsilon in EPSILONS if name in PAPER or epsilon == "1"]
    truths = [
        Job(("choice", "truth", name, epsilon, repeat), partial(_truth, name=name, epsilon=epsilon))
        for name, epsilon in cells
        for repeat in range(scale.repeats)
    ]
    choices = [
        Job(("choice", name, epsilon, repeat), partial(_choice, name=name, epsilon=epsilon))
        for name, epsilon in cells
        for repeat in range((scale.repeats + 2) // 3)
    ]
    return truths + choices


def _truth(rng: np.random.Generator, name: str, epsilon: str) -> list[Sample]:
    data, asked = DATASETS[name](), queries(name)
    errors = np.zeros((len(asked), len(METHODS)))
    for _ in range(TRUTHS):
        vectors = all_methods(draw(data, epsilon, rng))
        errors += [mean_squares(query, vectors, data.frequencies) for query in asked.values()]
    samples = []
    for case, mean in zip(asked, errors / TRUTHS, strict=True):
        samples += each("choice", name, float(epsilon), mean, f"{case}: MSE")
    return samples


def _choice(rng: np.random.Generator, name: str, epsilon: str) -> list[Sample]:
    asked, x = queries(name), float(epsilon)
    rankings = choose_all(draw(DATASETS[name](), epsilon, rng), [*asked.values()], rng, REPEATS)
    samples = []
    for case, ranking in zip(asked, rankings, strict=True):
        chosen = _only(ranking.best)
        samples += each("choice", name, x, chosen, f"{case}: chosen")
        for least in SURE:
            samples += each(
                "choice", name, x, chosen * (ranking.confidence >= least), f"{case}: {_sure(least)}"
            )
        samples.append(once("choice", name, "confidence", x, ranking.confidence, case))
    return samples


def summary(rows: Sequence[Row]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Returns a table by kind of query; `report.CHOICE` explains its columns."""
    values = _values(rows)
    lines: list[tuple[str, ...]] = []
    groups: dict[str, list[Row]] = {}
    for cell in _cells(rows):
        groups.setdefault(cell.case.partition(" #")[0], []).append(cell)
    groups["all"] = _cells(rows)
    for kind, cells in groups.items():
        ratios = np.array([_ratios(values, cell) for cell in cells])
        shares = np.array([_methods(values, cell, "chosen") for cell in cells])
        line = [
            kind,
            f"{(shares * (ratios <= NEAR)).sum() / len(cells):.0%}",
            f"{(shares * ratios).sum() / len(cells):.2f}",
        ]
        for name in BY_NAME:
            over = np.log(ratios) - np.log(ratios[:, [list(METHODS).index(name)]])
            line.append(f"{np.exp((shares * over).sum() / len(cells)):.2f}")
        for least in SURE:
            sure = np.array([_methods(values, cell, _sure(least)) for cell in cells])
            right = f"{(sure * (ratios <= NEAR)).sum() / sure.sum():.0%} right" if sure.any() else "—"
            line.append(f"{sure.sum() / len(cells):.0%}, {right}")
        lines.append(tuple(line))
    names = tuple(f"over {name}" for name in BY_NAME)
    return ("query", "within 10 %", "regret", *names, *(f"{least:.0%} sure" for least in SURE)), lines


def _values(rows: Sequence[Row]) -> dict[tuple[str, str, float, str], float]:
    return {(row.dataset, row.case, row.x, row.method): row.value for row in rows if row.figure == "choice"}


def _cells(rows: Sequence[Row]) -> list[Row]:
    cells = [row for row in rows if row.figure == "choice" and row.method == "confidence"]
    if not cells:
        raise ValueError("figure 'choice' has no rows; run its experiment first")
    return cells


def _sure(least: float) -> str:
    return f"chosen, {least:.0%} sure"


def _ratios(values: Mapping[tuple[str, str, float, str], float], cell: Row) -> Vector:
    """Returns each method's real error divided by the lowest real error."""
    errors = np.maximum(_methods(values, cell, "MSE"), NONE)
    ratios: Vector = errors / errors.min()
    return ratios


def _methods(values: Mapping[tuple[str, str, float, str], float], cell: Row, what: str) -> Vector:
    return np.array([values[cell.dataset, f"{cell.case}: {what}", cell.x, method] for method in METHODS])


def _only(method: str) -> Vector:
    return np.array([float(name == method) for name in METHODS])
