"""How well a method is chosen (Section V-D): the choice from one collection against what is best over many.

The truth of a cell (data, ε, query) is each method's mean squared error over many collections of the real data. The
choice is made from one collection at a time, which knows nothing of the real data, and is judged by that truth. Most of
the methods are made for data with few frequent values and many rare ones, so there are data that are not like that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import TypeVar

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

Group = TypeVar("Group")

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
"""Name -> data. Bell is half of a normal density, its deviation 1/4 of the domain; steps are four, each half as high as
the one before; spiked has 16 values of 2 % each and mixed a Zipf's half, and what remains is spread evenly."""

PAPER = ("zipf", "emoji")
"""The data of the paper's kind, at every ε."""

SHARE, SETS = 10, 100  # random sets: so many of one tenth of the domain
ALONE = 4  # sets that are asked for alone
TOP = (3, 16)
NONE = 1.0 / ZIPF_USERS**2  # an error of less than one user: where nobody is, some methods have none at all
TRUTHS = 16  # collections for the truth, of each repeat
REPEATS = 50  # simulations for a choice
SURE = (0.8, 0.9)  # what a confidence is at least
BY_NAME = ("power-ns", "norm-sub")  # what one could always take


@cache
def queries(name: str) -> Mapping[str, Queries]:
    """The queries of a data set. Subgroups are those of emoji, elsewhere by rank."""
    d = len(DATASETS[name]().histogram)
    rng = np.random.default_rng(SETS)  # the same sets for every seed
    random = [rng.choice(d, d // SHARE, replace=False) for _ in range(SETS)]
    groups = list(emoji().subgroups.values())
    return {
        "single values": Values(),
        "random sets": Sets(random),
        "subgroups": Sets(groups),
        **{f"top {k}": TopQuery(f"top {k}", k) for k in TOP},
        **{f"one random set #{i + 1}": Sets([random[i]]) for i in range(ALONE)},
        **{f"one subgroup #{i + 1}": Sets([groups[len(groups) * i // ALONE]]) for i in range(ALONE)},
    }


def choice(scale: Scale) -> list[Job]:
    """For each cell the methods' real errors, and how often each of them is chosen.

    The paper's data at three ε, the others at ε = 1. A choice takes long: of every three repeats one is a choice.
    """
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


def verdicts(rows: Sequence[Row]) -> list[Row]:
    """The rows, and for each cell in how many collections the choice is right and what it costs.

    Beside a cell's "confidence" come "within 10 %", the share of the collections in which the chosen method's real
    error is at most `NEAR` times the lowest, and "regret", the mean over the collections of the chosen method's real
    error over the lowest.
    """
    values = _values(rows)
    made = []
    for cell in _cells(rows):
        ratios, shares = _ratios(values, cell), _methods(values, cell, "chosen")
        for measure, of_method in (("within 10 %", ratios <= NEAR), ("regret", ratios)):
            mean = float(shares @ of_method)
            variance = float(shares @ (of_method - mean) ** 2) * cell.repeats / max(cell.repeats - 1, 1)
            made.append(
                replace(cell, method=measure, value=mean, deviation=variance**0.5, low=None, high=None)
            )
    return [*rows, *made]


def table(rows: Sequence[Row]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The head and the lines of a table of the cells, those of sets alone together.

    Per cell: the share of the collections in which the chosen method is within 10 % of the best and the mean regret,
    the mean confidence, the best method, and the chosen ones with their real error over the lowest and how often they
    are chosen.
    """
    values = _values(rows)
    lines: list[tuple[str, ...]] = []
    for (dataset, x, kind), cells in _grouped(rows, lambda cell: (cell.dataset, cell.x, _kind(cell))).items():
        ratios = np.array([_ratios(values, cell) for cell in cells])
        shares = np.array([_methods(values, cell, "chosen") for cell in cells])
        chosen = ""
        if len(cells) == 1:
            chosen = ", ".join(
                f"{method}: {ratio:.2f} × {round(share * cells[0].repeats)}"
                for method, ratio, share in zip(METHODS, ratios[0], shares[0], strict=True)
                if share > 0.0
            )
        lines.append(
            (
                dataset,
                f"{x:g}",
                kind,
                f"{(shares * (ratios <= NEAR)).sum() / len(cells):.0%}",
                f"{(shares * ratios).sum() / len(cells):.2f}",
                f"{np.mean([cell.value for cell in cells]):.0%}",
                list(METHODS)[int(ratios[0].argmin())] if len(cells) == 1 else "",
                chosen,
            )
        )
    return ("data", "ε", "query", "within 10 %", "regret", "sure", "best", "chosen: error × times"), lines


def summary(rows: Sequence[Row]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The head and the lines of a table by kind of query, over all data: what a choice is worth, and its confidence.

    "Over" a method is the geometric mean of the chosen method's real error over that of this one, which could always be
    taken. "80 % sure" is the share of the choices that are said to be right by 80 % or more, then how many of them are.
    """
    values = _values(rows)
    lines: list[tuple[str, ...]] = []
    groups = _grouped(rows, _kind) | _grouped(rows, lambda _: "all")
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
        raise ValueError("there are no rows of the figure 'choice'")
    return cells


def _grouped(rows: Sequence[Row], of: Callable[[Row], Group]) -> dict[Group, list[Row]]:
    groups: dict[Group, list[Row]] = {}
    for cell in _cells(rows):
        groups.setdefault(of(cell), []).append(cell)
    return groups


def _kind(cell: Row) -> str:
    return cell.case.partition(" #")[0]


def _sure(least: float) -> str:
    return f"chosen, {least:.0%} sure"


def _ratios(values: Mapping[tuple[str, str, float, str], float], cell: Row) -> Vector:
    """Each method's real error over the lowest."""
    errors = np.maximum(_methods(values, cell, "MSE"), NONE)
    ratios: Vector = errors / errors.min()
    return ratios


def _methods(values: Mapping[tuple[str, str, float, str], float], cell: Row, what: str) -> Vector:
    return np.array([values[cell.dataset, f"{cell.case}: {what}", cell.x, method] for method in METHODS])


def _only(method: str) -> Vector:
    return np.array([float(name == method) for name in METHODS])
