"""Figures 1 to 3, as the claims about them need them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from scipy.special import ndtri

from ldp.consistency.baseline import FALSE_POSITIVES
from ldp.estimate import Vector
from ldp.experiments.datasets import zipf
from ldp.experiments.evaluation import olh
from ldp.experiments.evidence import Evidence


class Bias:
    """Figures 1 to 3 for one method, in counts: Zipf, ε = 1."""

    def __init__(self, rows: Evidence, method: str) -> None:
        curve = rows.curve("bias", "zipf", method)
        self.bias = np.array([row.value for row in curve])
        self.error = np.array([row.deviation for row in curve]) / curve[0].repeats ** 0.5
        self.variance = rows.values("variance", method, "zipf")
        self.truth = zipf().histogram.astype(np.float64)
        oracle = olh("1", len(self.truth))
        n, p, q = zipf().users, oracle.p, oracle.q
        self.sigma = float(n * q * (1 - q) / (p - q) ** 2) ** 0.5
        self.threshold = -float(ndtri(FALSE_POSITIVES / len(self.truth))) * self.sigma
        self.top = int(np.count_nonzero(self.truth > self.threshold + 4.0 * self.sigma))

    def z(self) -> Vector:
        """The bias in standard errors; 0 where nothing varies."""
        z: Vector = np.divide(self.bias, self.error, out=np.zeros_like(self.bias), where=self.error > 0.0)
        return z

    def octaves(self, values: Vector) -> Vector:
        """Means over the ranks 1, 2 and 3, 4 to 7, … up to 512 and more: (10,)."""
        edges = [*(1 << np.arange(10)) - 1, len(values)]
        return np.array([values[low:high].mean() for low, high in pairwise(edges)])
