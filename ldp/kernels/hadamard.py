"""Fast Walsh–Hadamard transform, which decodes Hadamard Response."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from ldp.kernels.inner import inner

BLOCK = 4096  # counters transformed together, which fit the first-level cache


@inner
def _butterflies(counters: npt.NDArray[np.int64], half: int) -> None:
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
    """Applies the Walsh–Hadamard transform in place. O(K·log K).

    The number K of counters is a power of two. Entry r becomes Σ_j (−1)^popcount(r AND j) · counters[j]. The first
    steps run on blocks that fit the cache.
    """
    for start in range(0, counters.size, BLOCK):
        _butterflies(counters[start : start + BLOCK], 1)
    _butterflies(counters, BLOCK)
