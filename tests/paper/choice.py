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
from ldp.query import TopQuery
from tests.paper import eleventh
from tests.paper.datasets import ZIPF_DOMAIN, ZIPF_USERS, Dataset, emoji, shaped, zipf
from tests.paper.evaluation import draw, each
from tests.paper.figures import Row
from tests.paper.jobs import Job, Sample, Scale, once

EPSILONS = ("0.5", "1", "2")
RANKS = np.arange(float(ZIPF_DOMAIN))


def _peaks(*peaks: tuple[float, float, float]) -> Vector:
    """Returns weights with peaks of a place, width and height.

    Places and widths are relative to the domain.
    """
    places = RANKS / ZIPF_DOMAIN
    weights: Vector = np.sum([h / np.cosh((places - at) / width) ** 2 for at, width, h in peaks], axis=0)
    return weights


BIMODAL = _peaks((0.2, 0.05, 1.0), (0.65, 0.1, 0.6))
TRIMODAL = _peaks((0.15, 0.04, 0.8), (0.5, 0.06, 1.0), (0.85, 0.08, 0.5)) + 0.05
ORDER = np.random.default_rng(16).permutation(ZIPF_DOMAIN)  # an order of values without meaning
CALIBRATION: Mapping[str, Callable[[], Dataset]] = {
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
HELD_OUT: Mapping[str, Callable[[], Dataset]] = {
    "bimodal": partial(shaped, "bimodal", BIMODAL),
    "trimodal": partial(shaped, "trimodal", TRIMODAL),
    "shuffled bimodal": partial(shaped, "shuffled bimodal", BIMODAL[ORDER]),
    "shuffled trimodal": partial(shaped, "shuffled trimodal", TRIMODAL[ORDER]),
    "shuffled zipf": partial(shaped, "shuffled zipf", ((RANKS + 1) ** -1.1)[ORDER]),
    "one step": partial(shaped, "one step", np.where(RANKS < ZIPF_DOMAIN / 3, 4.0, 1.0)),
    "sparse": partial(shaped, "sparse", np.where(ORDER < 40, 1.0, 0.0)),
    "geometric with gaps": partial(shaped, "geometric with gaps", 0.99**RANKS * (ORDER % 3 > 0)),
}
"""Data on which no parameter of the selection was calibrated."""
DATASETS = {**CALIBRATION, **HELD_OUT}
PAPER = ("zipf", "emoji")  # Data with every ε; the other data have ε = 1

SHARE, SETS = 10, 100  # Size of a random set as 1/SHARE of the domain, and number of random sets
SINGLE = 4  # Number of queries with one set
BINS = 16  # Number of intervals
FEWEST = 3  # Fewest clear choices on some data for a share of right choices
TOP = (3, 16)
NONE = 1.0 / ZIPF_USERS**2  # Smallest squared error: an error of one user
TRUTHS = 16  # Collections per repeat for the truth
REPEATS = 50  # Simulations per choice
BY_NAME = ("power-ns", "norm-sub")  # Methods to compare a choice with


@cache
def queries(name: str) -> Mapping[str, Queries]:
    """Returns the queries of a data set, by name."""
    d = len(DATASETS[name]().histogram)
    rng = np.random.default_rng(SETS)  # fixed, so that every seed has the same sets
    random = [rng.choice(d, d // SHARE, replace=False) for _ in range(SETS)]
    groups = list(emoji().subgroups.values())  # the same sets for every data set
    bins = np.array_split(np.arange(d), BINS)
    return {
        "single values": Values(),
        "random sets": Sets(random),
        "subgroups": Sets(groups),
        "intervals": Sets(bins),
        **{f"top {k}": TopQuery(f"top {k}", k) for k in TOP},
        **{f"one set #random {i + 1}": Sets([random[i]]) for i in range(SINGLE)},
        **{f"one set #subgroup {i + 1}": Sets([groups[len(groups) * i // SINGLE]]) for i in range(SINGLE)},
        **{f"one set #interval {i + 1}": Sets([bins[BINS * i // SINGLE]]) for i in range(SINGLE)},
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
        samples += each("choice", name, x, chosen * ranking.clear, f"{case}: clear")
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
        clear = np.array([_methods(values, cell, "clear") for cell in cells])
        right, loss = (clear * (ratios <= NEAR)).sum(), ratios.max(where=clear > 0.0, initial=1.0)
        line.append(f"{clear.sum() / len(cells):.0%}")
        line += [f"{right / clear.sum():.0%}", f"{loss:.2f}"] if clear.any() else ["—", "—"]
        lines.append((*line, _worst(values, cells)))
    names = tuple(f"over {name}" for name in BY_NAME)
    return ("query", "within 10 %", "regret", *names, "clear", "right", "loss", "worst data"), lines


def _worst(values: Mapping[tuple[str, str, float, str], float], cells: Sequence[Row]) -> str:
    """Returns the lowest share of right clear choices on any data."""
    counts: dict[str, Vector] = {}
    for cell in cells:
        clear = _methods(values, cell, "clear") * cell.repeats
        right = clear * (_ratios(values, cell) <= NEAR)
        counts.setdefault(cell.dataset, np.zeros(2))
        counts[cell.dataset] += [right.sum(), clear.sum()]
    shares = [
        (right / clear, clear, name) for name, (right, clear) in counts.items() if round(clear) >= FEWEST
    ]
    if not shares:
        return "—"
    share, clear, name = min(shares)
    return f"{share:.0%} of {clear:.0f}, {name}"


def _values(rows: Sequence[Row]) -> dict[tuple[str, str, float, str], float]:
    return {(row.dataset, row.case, row.x, row.method): row.value for row in rows if row.figure == "choice"}


def _cells(rows: Sequence[Row]) -> list[Row]:
    cells = [row for row in rows if row.figure == "choice" and row.method == "confidence"]
    if not cells:
        raise ValueError("figure 'choice' has no rows; run its experiment first")
    return cells


def _ratios(values: Mapping[tuple[str, str, float, str], float], cell: Row) -> Vector:
    """Returns each method's real error divided by the lowest real error."""
    errors = np.maximum(_methods(values, cell, "MSE"), NONE)
    ratios: Vector = errors / errors.min()
    return ratios


def _methods(values: Mapping[tuple[str, str, float, str], float], cell: Row, what: str) -> Vector:
    return np.array([values[cell.dataset, f"{cell.case}: {what}", cell.x, method] for method in METHODS])


def _only(method: str) -> Vector:
    return np.array([float(name == method) for name in METHODS])
