"""How well a method is chosen (Section V-D): the choice from one collection against what is best over many.

The truth of a cell (data, ε, query) is each method's mean squared error over many collections of the real data. The
choice is made from one collection at a time, which knows nothing of the real data, and is judged by that truth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial

import numpy as np

from ldp.consistency import METHODS
from ldp.estimate import Vector
from ldp.experiments.datasets import emoji
from ldp.experiments.evaluation import DATASETS, draw, each
from ldp.experiments.figures import Row
from ldp.experiments.jobs import Job, Sample, Scale, once
from ldp.selection import NEAR, Query, Sets, Top, Values, choose_all, consistent, mean_squares

EPSILONS = ("0.5", "1", "2")
SHARE, SETS = 10, 100  # random sets: so many of one tenth of the domain
TOP = 16
TRUTHS = 8  # collections for the truth for each one that is chosen from
REPEATS = 50  # simulations for a choice
PLAIN = " without correction"  # by the simulated errors alone


@cache
def queries(name: str) -> Mapping[str, Query]:
    """The four queries of a data set. Zipf's subgroups are those of emoji, by rank."""
    d = len(DATASETS[name]().histogram)
    rng = np.random.default_rng(SETS)  # the same sets for every seed
    return {
        "single values": Values(),
        "random sets": Sets([rng.choice(d, d // SHARE, replace=False) for _ in range(SETS)]),
        "subgroups": Sets(emoji().subgroups.values()),
        f"top {TOP}": Top(TOP),
    }


def choice(scale: Scale) -> list[Job]:
    """For each cell the methods' real errors, and how often each of them is chosen."""
    cells = [(name, epsilon) for name in DATASETS for epsilon in EPSILONS]
    truths = [
        Job(("choice", "truth", name, epsilon, repeat), partial(_truth, name=name, epsilon=epsilon))
        for name, epsilon in cells
        for repeat in range(scale.repeats)
    ]
    choices = [
        Job(("choice", name, epsilon, repeat), partial(_choice, name=name, epsilon=epsilon))
        for name, epsilon in cells
        for repeat in range(scale.repeats)
    ]
    return truths + choices


def _truth(rng: np.random.Generator, name: str, epsilon: str) -> list[Sample]:
    data = DATASETS[name]()
    samples = []
    for _ in range(TRUTHS):
        vectors = consistent(draw(data, epsilon, rng))
        for case, query in queries(name).items():
            errors = mean_squares(query, vectors, data.frequencies)
            samples += each("choice", name, float(epsilon), errors, f"{case}: MSE")
    return samples


def _choice(rng: np.random.Generator, name: str, epsilon: str) -> list[Sample]:
    asked, x = queries(name), float(epsilon)
    rankings = choose_all(draw(DATASETS[name](), epsilon, rng), [*asked.values()], rng, REPEATS)
    samples = []
    for case, ranking in zip(asked, rankings, strict=True):
        plain = min(ranking.rows, key=lambda row: (row.simulated, list(METHODS).index(row.method)))
        samples += each("choice", name, x, _only(ranking.best), f"{case}: chosen")
        samples += each("choice", name, x, _only(plain.method), f"{case}: chosen{PLAIN}")
        samples.append(once("choice", name, "confidence", x, ranking.confidence, case))
    return samples


def verdicts(rows: Sequence[Row]) -> list[Row]:
    """The rows, and for each cell in how many collections the choice is right and what it costs.

    Beside a cell's "confidence" come "within 10 %", the share of the collections in which the chosen method's real
    error is at most `NEAR` times the lowest, and "regret", the mean over the collections of the chosen method's real
    error over the lowest; and the same of the choice by the simulated errors alone, "… without correction".
    """
    values = {(row.dataset, row.case, row.x, row.method): row.value for row in rows}
    made = []
    for cell in [row for row in rows if row.method == "confidence"]:
        ratios = _ratios(values, cell)
        for which in ("", PLAIN):
            shares = _methods(values, cell, f"chosen{which}")
            for measure, of_method in (("within 10 %", ratios <= NEAR), ("regret", ratios)):
                mean = float(shares @ of_method)
                variance = float(shares @ (of_method - mean) ** 2) * cell.repeats / max(cell.repeats - 1, 1)
                deviation = variance**0.5
                made.append(replace(cell, method=measure + which, value=mean, deviation=deviation))
    return [*rows, *made]


def table(rows: Sequence[Row]) -> str:
    """The cells of `verdicts` as lines of text, for people.

    A cell's line has its best method, the share of the collections in which the chosen one is within 10 % of it and
    the mean regret, the chosen methods with their real error over the lowest and how often they are chosen; the share
    and the regret without correction, and the mean confidence. The last lines count the cells.
    """
    values = {(row.dataset, row.case, row.x, row.method): row.value for row in rows}
    cells = [row for row in rows if row.method == "confidence"]
    if not cells:
        raise ValueError("there are no rows of the figure 'choice'")
    lines = [
        (
            "data",
            "ε",
            "query",
            "best",
            "within",
            "regret",
            "without",
            "regret",
            "sure",
            "chosen: error × times",
        )
    ]
    within, regret = {}, {}
    for cell in cells:
        of = (cell.dataset, cell.case, cell.x)
        ratios, shares = _ratios(values, cell), _methods(values, cell, "chosen")
        chosen = [
            f"{method}: {ratio:.2f} × {round(share * cell.repeats)}"
            for method, ratio, share in zip(METHODS, ratios, shares, strict=True)
            if share > 0.0
        ]
        for which in ("", PLAIN):
            within[which, of] = values[(*of, f"within 10 %{which}")]
            regret[which, of] = values[(*of, f"regret{which}")]
        lines.append(
            (
                cell.dataset,
                f"{cell.x:g}",
                cell.case,
                list(METHODS)[int(ratios.argmin())],
                f"{within['', of]:.0%}",
                f"{regret['', of]:.3f}",
                f"{within[PLAIN, of]:.0%}",
                f"{regret[PLAIN, of]:.3f}",
                f"{cell.value:.0%}",
                ", ".join(chosen),
            )
        )
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = [
        "  ".join(f"{word:{width}}" for word, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    for which, name in (("", "corrected"), (PLAIN, "without correction")):
        ours = [of for kind, of in within if kind == which]
        text.append(
            f"{name}: a mean regret of at most {NEAR} in {sum(regret[which, of] <= NEAR for of in ours)}, "
            f"within 10 % in 9 of 10 collections or more in {sum(within[which, of] >= 0.9 - 1e-9 for of in ours)}, "
            f"in more than half in {sum(within[which, of] > 0.5 for of in ours)} of {len(ours)} cells; "
            f"{sum(within[which, of] for of in ours) / len(ours):.1%} of all choices are within 10 %"
        )
    return "\n".join(text)


def _ratios(values: Mapping[tuple[str, str, float, str], float], cell: Row) -> Vector:
    """Each method's real error over the lowest."""
    errors = _methods(values, cell, "MSE")
    ratios: Vector = errors / errors.min()
    return ratios


def _methods(values: Mapping[tuple[str, str, float, str], float], cell: Row, what: str) -> Vector:
    return np.array([values[cell.dataset, f"{cell.case}: {what}", cell.x, method] for method in METHODS])


def _only(method: str) -> Vector:
    return np.array([float(name == method) for name in METHODS])
