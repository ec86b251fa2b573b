"""Checks the order of indices, and draws subsets."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit, uint32


@njit(cache=True, nogil=True)
def ascends(indices: npt.NDArray[np.unsignedinteger[Any]]) -> npt.NDArray[np.bool_]:
    """Returns an (n,) mask of the rows that are strictly ascending."""
    good = np.empty(len(indices), np.bool_)
    for i in range(len(indices)):
        row = indices[i]
        wrong = uint32(0)
        for j in range(1, row.size):
            wrong = uint32(wrong | uint32(row[j] <= row[j - 1]))
        good[i] = wrong == 0
    return good


@njit(cache=True, nogil=True)
def choose_subsets(
    draws: npt.NDArray[np.int64], symbols: npt.NDArray[np.int64], own: npt.NDArray[np.bool_], m: int
) -> None:
    """Turns each row of random draws into a subset of 0..m−1, in place.

    The kernel uses Floyd's algorithm, like `ldp.sampling.subset`. `draws` is (n, k) int64. Draw j of each row is
    uniform below m−k+j. Subset i contains symbols[i] if and only if own[i] is true. Members are unordered.
    """
    k = draws.shape[1]
    taken = np.zeros(m, np.bool_)
    for i in range(len(draws)):
        row = draws[i]
        first = 1 if own[i] else 0  # the symbol replaces the first draw
        for j in range(first, k):
            if taken[row[j]]:
                row[j] = m - 1 - k + j
            taken[row[j]] = True
        for j in range(first, k):
            taken[row[j]] = False
            row[j] += row[j] >= symbols[i]  # the other members are 0..m−1 without the symbol
        if own[i]:
            row[0] = symbols[i]
