"""Compares empirical Bayes with PowerNS and Norm-Sub (not in the paper).

The data are Emoji, Zipf, and three populations of 10⁶ users with 1,024 values: one is uniform, and two are geometric
with the ratios 0.99 and 0.95.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from ldp.consistency import EXTRA, METHODS
from ldp.estimate import Estimate, Vector
from tests.paper.datasets import ZIPF_DOMAIN, Dataset, emoji, shaped, zipf
from tests.paper.evaluation import draw
from tests.paper.figures import Row
from tests.paper.jobs import Job, Sample, Scale, once

EPSILONS = ("0.5", "1", "2", "4")
TOP = 16
NAME = "empirical-bayes"
COMPARED: Mapping[str, Callable[[Estimate], Vector]] = {
    "norm-sub": METHODS["norm-sub"],
    "power-ns": METHODS["power-ns"],
    NAME: EXTRA[NAME],
}
PEERS = ("power-ns", "norm-sub")


def geometric(name: str, ratio: float) -> Dataset:
    """Returns 10⁶ users with frequencies ∝ ratio^v over 1,024 values."""
    return shaped(name, ratio ** np.arange(float(ZIPF_DOMAIN)))


DATASETS: Mapping[str, Callable[[], Dataset]] = {
    "emoji": emoji,
    "zipf": zipf,
    "uniform": partial(geometric, "uniform", 1.0),
    "geometric": partial(geometric, "geometric", 0.99),
    "steep geometric": partial(geometric, "steep geometric", 0.95),
}


def eleventh(scale: Scale) -> list[Job]:
    """Returns jobs for the root mean square errors of three methods.

    The case "" has the errors of all values, and "top 16" has the errors of the 16 most frequent values. "top 16: mean
    error" is the mean of estimate minus truth for these 16 values. The cases "over power-ns", "over norm-sub" and "top
    16 over …" are the relative difference between empirical Bayes's error and the other method's error on a draw.
    """
    return [
        Job(("eleventh", name, epsilon, repeat), partial(_errors, name=name, epsilon=epsilon))
        for name in DATASETS
        for epsilon in EPSILONS
        for repeat in range(scale.repeats)
    ]


def _errors(rng: np.random.Generator, name: str, epsilon: str) -> list[Sample]:
    data, x = DATASETS[name](), float(epsilon)
    estimate = draw(data, epsilon, rng)
    errors = {method: answer(estimate) - data.frequencies for method, answer in COMPARED.items()}
    samples = []
    for case, values in (("", slice(None)), (f"top {TOP}", slice(TOP))):
        sizes = {method: float(np.sqrt(np.mean(error[values] ** 2))) for method, error in errors.items()}
        samples += [once("eleventh", name, method, x, size, case) for method, size in sizes.items()]
        samples += [
            once("eleventh", name, NAME, x, sizes[NAME] / sizes[peer] - 1.0, f"{case} over {peer}".lstrip())
            for peer in PEERS
        ]
    samples += [
        once("eleventh", name, method, x, float(np.mean(error[:TOP])), f"top {TOP}: mean error")
        for method, error in errors.items()
    ]
    return samples


ABOUT = f"""\
Root mean square errors, mean over the draws; then the error of empirical Bayes relative to the other methods' errors on
the same draws, ± 1 standard error. The first table has all values. The second has the {TOP} most frequent values, and
the mean of estimate minus truth, which is below 0 if a method shrinks them."""


def table(rows: Sequence[Row], case: str = "") -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Returns a table's header and rows. `case` is "" or "top 16"."""
    of = {(row.case, row.dataset, row.x, row.method): row for row in rows if row.figure == "eleventh"}
    cells = [(dataset, x) for other, dataset, x, method in of if other == case and method == NAME]
    head = ["data", "ε", *COMPARED, *(f"over {peer}" for peer in PEERS)]
    if case:
        head += [f"mean error {method}" for method in COMPARED]
    lines = []
    for dataset, x in cells:
        line = [dataset, f"{x:g}"]
        line += [f"{of[case, dataset, x, method].value:.3e}" for method in COMPARED]
        for peer in PEERS:
            over = of[f"{case} over {peer}".lstrip(), dataset, x, NAME]
            line.append(f"{100 * over.value:+.1f} ± {100 * over.deviation / over.repeats**0.5:.1f} %")
        if case:
            line += [f"{of[f'{case}: mean error', dataset, x, method].value:+.1e}" for method in COMPARED]
        lines.append(tuple(line))
    return tuple(head), lines
