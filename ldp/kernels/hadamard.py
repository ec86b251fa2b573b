"""Fast Walsh–Hadamard transform, which decodes Hadamard Response."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

BLOCK = 4096  # counters transformed together, which fit the first-level cache


@njit(cache=True, nogil=True)
def _butterflies(counters: npt.NDArray[np.int64], half: int) -> None:
    """Runs the transform's steps at the distances `half`, 2·`half` and so on."""
    while half < counters.size:
        for start in range(0, counters.size, 2 * half):
            low = counters[start : start + half]
            high = counters[start + half : start + 2 * half]
            for j in range(half):
                total, difference = low[j] + high[j], low[j] - high[j]
                low[j], high[j] = total, difference
        half *= 2


@njit(cache=True, nogil=True)
def walsh_hadamard(counters: npt.NDArray[np.int64]) -> None:
    """Transforms (K,) int64 in place, K a power of two; O(K·log K).

    Entry r becomes Σ_j (−1)^popcount(r AND j) · counters[j]. The first steps run on one cached block after another.
    """
    for start in range(0, counters.size, BLOCK):
        _butterflies(counters[start : start + BLOCK], 1)
    _butterflies(counters, BLOCK)
