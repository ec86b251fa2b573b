"""Counts runs of reports into several states, and groups reports."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from ldp.kernels.inner import lean, pointer_to, prefetch

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

AHEAD = 128  # runs between loading the cache line of a counter and adding to it; the line may come from main memory


@njit(cache=True, nogil=True)
def address_of(state: Ints) -> int:
    """Returns the address of a contiguous state, four times as fast as numpy."""
    return int(state.ctypes.data)


@lean
def count_indices(
    addresses: Ints, owners: Ints, ends: Ints, indices: npt.NDArray[np.unsignedinteger[Any]]
) -> None:
    """Adds 1 to the counter of each index, for runs of indices.

    `addresses` contains the addresses of m contiguous int64 states, from `address_of`. `owners` contains the state of
    each run, and `ends` the position after its last index. `indices` is (n,) uint8, uint16 or uint32. Each index is
    below the length of a state.
    """
    first = 0
    for run in range(ends.size):
        if run + AHEAD < ends.size:
            prefetch(addresses[owners[run + AHEAD]] + 8 * np.int64(indices[ends[run + AHEAD] - 1]))
        counters, last = pointer_to(addresses[owners[run]]), ends[run]
        for i in range(first, last):
            counters[indices[i]] += 1
        first = last


@lean
def gather(data: Bytes, size: int, owners: Ints, run_ends: Ints, out: Bytes, ends: Ints) -> None:
    """Sorts runs of items by group, in a stable order.

    An item has `size` bytes. `owners` contains the group of each run, and `run_ends` the index after its last item.
    `out` receives the items of one group after another, as (n·size,) uint8. `ends` receives the index after the last
    item of each of m groups.
    """
    ends[:] = 0
    first = total = 0
    for run in range(run_ends.size):
        ends[owners[run]] += run_ends[run] - first
        first = run_ends[run]
    for place in range(ends.size):
        ends[place], total = total, total + ends[place]
    first = 0
    for run in range(run_ends.size):
        place, last = owners[run], run_ends[run]
        at = ends[place]
        ends[place] += last - first
        own, into = data[first * size : last * size], out[at * size : ends[place] * size]
        for k in range(own.size):  # copying with slices takes ten times as long
            into[k] = own[k]
        first = last
