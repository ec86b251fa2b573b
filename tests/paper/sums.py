"""Compares Figure 2's errors, summed over the domain, with published sums."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from ldp.consistency import METHODS
from ldp.consistency.baseline import FALSE_POSITIVES
from tests.paper.datasets import zipf
from tests.paper.evaluation import olh
from tests.paper.figures import Row

PUBLISHED: Mapping[str, int] = {
    "base": -1405,
    "base-pos": 711932,
    "base-cut": -137449,
    "norm": 0,
    "norm-mul": 0,
    "norm-cut": 0,
    "norm-sub": 0,
    "power": -96332,
    "power-ns": 0,
}
"""The mean error in counts, summed over the domain, that the paper's Figure 2 states for each method."""

PUBLISHED_RUNS = 5000
ROUNDING = 1e-6  # counts
RESCALED = "differs: by definition the sum is at most n; the published 0 comes from rescaling to n"


@dataclass(frozen=True)
class Sum:
    """A method's sums; `published` and `calculated` can be None."""

    method: str
    published: int | None
    calculated: float | None
    measured: float
    error: float
    verdict: str


def sums(rows: Sequence[Row]) -> list[Sum]:
    """Compares the sums of the figure "bias" with the published sums.

    Two sums agree if they differ by at most 4 standard errors of the difference. Power's sums may differ by 2 %,
    because its prior differs slightly from the paper's prior.
    """
    found = {row.method: row for row in rows if row.figure == "bias" and row.case == "sum"}
    return [_compare(found[method]) for method in METHODS if method in found]


def calculated(method: str) -> float | None:
    """Returns the expected sum of errors for counts X ~ N(k, s²).

    k is a true count, and s² is Base's variance. Base-Pos, Post-Pos (both with T = 0) and Base-Cut keep X ≥ T:
    E X·1{X ≥ T} = k·Φ(z) + s·φ(z) with z = (k − T)/s. Returns None for Power and Norm-Cut.

    Example:
        >>> round(calculated("base-cut"))
        -137919
    """
    if method == "base" or METHODS[method].sums_to_one:
        return 0.0
    if method not in ("base-pos", "post-pos", "base-cut"):
        return None
    data = zipf()
    n, d = data.users, len(data.histogram)
    p, q = (float(of) for of in (olh("1", d).p, olh("1", d).q))
    k, f = data.histogram.astype(np.float64), data.frequencies
    s = np.sqrt(n * (f * p * (1.0 - p) + (1.0 - f) * q * (1.0 - q))) / (p - q)
    sigma = math.sqrt(n * q * (1.0 - q)) / (p - q)
    threshold = -float(ndtri(FALSE_POSITIVES / d)) * sigma if method == "base-cut" else 0.0
    z = (k - threshold) / s
    kept = k * ndtr(z) + s * np.exp(-(z**2) / 2.0) / math.sqrt(2.0 * math.pi)
    return float((kept - k).sum())


def _compare(row: Row) -> Sum:
    published = PUBLISHED.get(row.method)
    error = row.deviation / math.sqrt(row.repeats)
    measured = row.value
    if METHODS[row.method].sums_to_one:
        # rounding differs between machines
        agrees = abs(measured) < ROUNDING
        measured, error = (0.0, 0.0) if agrees else (measured, error)
        result = "differs" if not agrees else "not in the figure" if published is None else "agrees"
        verdict = f"{result}: the sum is n by definition"
    elif published is None:
        verdict = "not in the figure; equals Base-Pos on single values" if row.method == "post-pos" else ""
    elif row.method == "norm-cut":
        verdict = RESCALED
    elif row.method == "power":
        apart = measured / published - 1.0
        verdict = f"{'agrees' if abs(apart) <= 0.02 else 'differs'}: {100 * apart:+.1f} %, 2 % allowed"
    else:
        both = row.deviation * math.sqrt(1.0 / row.repeats + 1.0 / PUBLISHED_RUNS)
        apart = abs(measured - published) / both
        verdict = f"{'agrees' if apart <= 4.0 else 'differs'}: {apart:.1f} standard errors apart, 4 allowed"
    return Sum(row.method, published, calculated(row.method), measured, error, verdict)
