"""The paper's experiments (Section V).

The protocol is OLH. Each repeat draws the support counts of a whole population, and measures the errors of all methods
on the same draw.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache, partial
from itertools import product

import numpy as np
import numpy.typing as npt

import ldp
from ldp.analysis.method_selection import Sets, all_methods, apportion, mean_squares
from ldp.consistency import METHODS
from ldp.consistency.normalization import norm_sub
from ldp.consistency.power import power_ns
from ldp.estimate import Estimate, Vector
from tests.paper.datasets import Dataset, emoji, zipf
from tests.paper.figures import Row
from tests.paper.jobs import Job, Sample, Scale, once

EPSILONS = tuple(f"{tenths / 10}" for tenths in range(2, 41, 2))
USERS = tuple(range(200_000, 2_000_001, 200_000))
LARGE, SMALL = tuple(range(10, 91, 10)), tuple(range(1, 11))  # ρ
TOP = tuple(range(2, 33, 2))
DATASETS: dict[str, Callable[[], Dataset]] = {"zipf": zipf, "emoji": emoji}
SETS = 200  # Random sets of each size per repeat
SIMULATIONS = 10  # Simulations of each synthetic population per repeat
BATCH = 50  # Runs of Figures 1 to 3 per job

FITS: Mapping[str, Callable[[Estimate], Vector]] = {"norm-sub": norm_sub, "power-ns": power_ns}
"""The methods that make synthetic populations: non-negative, with sum 1."""


@cache
def olh(epsilon: str, domain_size: int) -> ldp.OLH:
    """Returns the protocol that all experiments use."""
    return ldp.OLH(epsilon, domain_size)


def draw(data: Dataset, epsilon: str, rng: np.random.Generator) -> Estimate:
    """Returns Base from simulated reports of the whole population."""
    oracle = olh(epsilon, len(data.histogram))
    return oracle.estimate(oracle.simulate(data.histogram, rng), data.users)


def _jobs(
    experiment: tuple[str, ...], scale: Scale, work: Callable[..., list[Sample]], **axes: Iterable[str | int]
) -> list[Job]:
    """Returns a job for each repeat of each combination of the axes' values."""
    return [
        Job((*experiment, *setting, repeat), partial(work, **dict(zip(axes, setting, strict=True))))
        for setting in product(*axes.values())
        for repeat in range(scale.repeats)
    ]


# Figures 1 to 3


def bias(scale: Scale) -> list[Job]:
    """Returns jobs for the mean, bias and variance of counts (Zipf, ε = 1)."""
    starts = range(0, scale.runs, BATCH)
    return [
        Job(("bias", "zipf", start), partial(_counts, runs=min(BATCH, scale.runs - start)))
        for start in starts
    ]


def _counts(rng: np.random.Generator, runs: int) -> list[Sample]:
    data = zipf()
    truth = data.histogram.astype(np.float64)
    ranks = np.arange(1.0, len(truth) + 1.0)
    counts = np.stack([data.users * all_methods(draw(data, "1", rng)) for _ in range(runs)])
    means = counts.mean(axis=0)
    squares = ((counts - means) ** 2).sum(axis=0)
    sums = counts.sum(axis=2) - data.users
    zeros = (counts[:, :, len(truth) // 2 :] == 0.0).mean(axis=2)
    samples = [Sample("distribution", data.name, "", "truth", ranks, truth, np.zeros(len(truth)), runs)]
    for row, method in enumerate(METHODS):
        of = ("zipf", "", method, ranks)
        samples += [
            Sample("distribution", *of, means[row], squares[row], runs),
            Sample("bias", *of, means[row] - truth, squares[row], runs),
            once("variance", "zipf", method, ranks, squares[row] / max(runs - 1, 1)),
            _over_runs("bias", "sum", method, ranks[-1:], sums[:, row]),
            _over_runs("distribution", "zeros", method, ranks[-1:], zeros[:, row]),
        ]
    return samples


def _over_runs(figure: str, case: str, method: str, x: Vector, values: Vector) -> Sample:
    mean = values.mean(keepdims=True)
    squares = ((values - mean) ** 2).sum(keepdims=True)
    return Sample(figure, "zipf", case, method, x, mean, squares, len(values))


# Figures 4 and 5


def full_domain(scale: Scale) -> list[Job]:
    """Returns jobs for the error of single values (ε from 0.2 to 4)."""
    return _jobs(("full-domain",), scale, _full_domain, name=DATASETS, epsilon=scale.thin(EPSILONS))


def _full_domain(rng: np.random.Generator, name: str, epsilon: str) -> list[Sample]:
    data, x = DATASETS[name](), float(epsilon)
    vectors = all_methods(draw(data, epsilon, rng))
    samples = each("full-domain", name, x, ((vectors - data.frequencies) ** 2).mean(axis=1))
    for method in ("base-cut", "norm-cut"):
        kept = vectors[list(METHODS).index(method)]
        lowest = np.min(kept, where=kept > 0.0, initial=1.0)
        samples.append(once("full-domain", name, method, x, float(lowest), "threshold"))
    return samples


def users(scale: Scale) -> list[Job]:
    """Returns jobs for the error of single values (n ≤ 2,000,000, ε = 1)."""
    return _jobs(("users", "zipf"), scale, _users, n=scale.thin(USERS))


def _users(rng: np.random.Generator, n: int) -> list[Sample]:
    data = zipf(n)
    errors = (all_methods(draw(data, "1", rng)) - data.frequencies) ** 2
    return each("users", "zipf", float(n), errors.mean(axis=1))


def worth(rows: list[Row]) -> list[Row]:
    """Converts each MSE to n', the number of users that Base needs for it.

    n' follows from Equation 3, averaged over the domain. The deviation of n' is a first-order approximation.
    """
    oracle = olh("1", len(zipf().histogram))
    p, q, d = oracle.p, oracle.q, oracle.domain_size
    of_one = float(q * (1 - q) / (p - q) ** 2 + (1 - p - q) / (d * (p - q)))
    return [
        replace(
            row,
            value=of_one / row.value,
            deviation=of_one / row.value**2 * row.deviation,
            low=of_one / row.high if row.high else None,
            high=of_one / row.low if row.low else None,
        )
        for row in rows
    ]


# Figures 6 to 9


def set_value(scale: Scale) -> list[Job]:
    """Returns jobs for the error of random sets by size (ε = 1)."""
    work = partial(_set_value, large=scale.thin(LARGE), small=scale.thin(SMALL))
    return _jobs(("set-value",), scale, work, name=DATASETS)


def _set_value(rng: np.random.Generator, name: str, large: list[int], small: list[int]) -> list[Sample]:
    data = DATASETS[name]()
    d = len(data.histogram)
    vectors = all_methods(draw(data, "1", rng))
    places = rng.permuted(np.tile(np.arange(d), (SETS, 1)), axis=1)
    samples = []
    for figure, sizes in (("set-value", large), ("set-value-small", small)):
        for rho in sizes:
            query = Sets(places[:, : round(rho / 100 * d)])
            samples += each(figure, name, float(rho), mean_squares(query, vectors, data.frequencies))
    return samples


def set_case(scale: Scale) -> list[Job]:
    """Returns jobs for the error of the subgroups of emoji (ε from 0.2 to 4)."""
    return _jobs(("set-case", "emoji"), scale, _set_case, epsilon=scale.thin(EPSILONS))


def _set_case(rng: np.random.Generator, epsilon: str) -> list[Sample]:
    data = emoji()
    vectors = all_methods(draw(data, epsilon, rng))
    query = Sets(data.subgroups.values())
    return each("set-case", "emoji", float(epsilon), mean_squares(query, vectors, data.frequencies))


def synthetic(scale: Scale) -> list[Job]:
    """Returns jobs for the error of subgroups of emoji on synthetic data."""
    return _jobs(("synthetic", "emoji"), scale, _synthetic, epsilon=scale.thin(EPSILONS))


def _synthetic(rng: np.random.Generator, epsilon: str) -> list[Sample]:
    data, x = emoji(), float(epsilon)
    query = Sets(data.subgroups.values())
    estimate = draw(data, epsilon, rng)
    real = mean_squares(query, all_methods(estimate), data.frequencies)
    samples = each("synthetic", "emoji", x, real, "real")
    for case, fit in FITS.items():
        made = Dataset(case, apportion(fit(estimate), data.users), None, {})
        errors = np.mean(
            [
                mean_squares(query, all_methods(draw(made, epsilon, rng)), made.frequencies)
                for _ in range(SIMULATIONS)
            ],
            axis=0,
        )
        samples += each("synthetic", "emoji", x, errors, case)
        picked = np.arange(len(errors)) == errors.argmin()
        samples += each("synthetic", "emoji", x, picked.astype(np.float64), f"picked on {case}")
    return samples


# Figure 10


def top_k(scale: Scale) -> list[Job]:
    """Returns jobs for the error of the k most frequent values (ε = 1)."""
    return _jobs(("top-k",), scale, partial(_top_k, ks=scale.thin(TOP)), name=DATASETS)


def _top_k(rng: np.random.Generator, name: str, ks: list[int]) -> list[Sample]:
    data = DATASETS[name]()  # most frequent first
    errors = (all_methods(draw(data, "1", rng)) - data.frequencies) ** 2
    of_top = np.cumsum(errors, axis=1)[:, np.array(ks) - 1] / ks
    return [
        once("top-k", name, method, [float(k) for k in ks], values)
        for method, values in zip(METHODS, of_top, strict=True)
    ]


def each(
    figure: str, dataset: str, x: float, values: npt.NDArray[np.float64], case: str = ""
) -> list[Sample]:
    """Returns one sample per method, from the values of one repeat."""
    return [
        once(figure, dataset, method, x, value, case) for method, value in zip(METHODS, values, strict=True)
    ]
