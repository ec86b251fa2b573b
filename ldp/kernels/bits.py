"""Counts the bits of reports, for unary encoding and Subset Selection."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import carray, njit, uint8, uint32  # type: ignore[attr-defined]

from ldp.kernels.inner import pointer_to

_FEW = 16  # runs, unless there are fewer reports; the sums of a run are cleared and added once
RUN = 2048  # bytes counted together; their eight 1-byte sums each fit the first-level cache


def count_bits(state: npt.NDArray[np.int64], bits: npt.NDArray[np.uint8]) -> None:
    """Adds to each state[v] the number of reports whose bit v is set.

    Counters of 1 byte add at most 255 runs of bytes, and are then added to the state. A run is a part of a long report,
    or several short reports. `state` is (d,) int64. `bits` is (n, ⌈d/8⌉) uint8 and contiguous. Value v is bit v mod 8
    of byte v div 8, and padding is 0.
    """
    _count_bits(state, bits.reshape(-1), bits.shape[1])


@njit(cache=True, nogil=True)
def _count_bits(state: npt.NDArray[np.int64], wire: npt.NDArray[np.uint8], size: int) -> None:
    n = wire.size // size
    sums = np.empty((8, RUN), np.uint8)
    together = max(1, min(RUN // size, n // _FEW))  # reports in a run
    for left in range(0, size, RUN):
        width = RUN if size - left > RUN else size - left
        for start in range(0, n, 255 * together):
            used = (together if together < n - start else n - start) * width
            stop = start + 255 * together if start + 255 * together < n else n
            for b in range(8):
                for j in range(used):
                    sums[b, j] = 0
            for i in range(start, stop, together):
                first = i * size + left
                run = wire[first : first + (together if together < n - i else n - i) * width]
                for b in range(8):
                    total = sums[b]
                    for j in range(run.size):
                        total[j] = uint8(total[j] + uint8(uint8(run[j] >> uint8(b)) & uint8(1)))
            for j in range(used):
                v = 8 * (left + j % width)
                for b in range(8 if state.size - v > 8 else state.size - v):
                    state[v + b] += sums[b, j]


@njit(cache=True, nogil=True)
def count_bits_sorted(
    addresses: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], bits: npt.NDArray[np.uint8], d: int
) -> None:
    """Counts reports into several states, as `count_bits`.

    The state at `addresses[k]` receives the reports from the end before to `ends[k]`.
    """
    wire, size, first = bits.reshape(-1), bits.shape[1], 0
    for k in range(ends.size):
        state = carray(pointer_to(addresses[k]), (d,))
        _count_bits(state, wire[first * size : ends[k] * size], size)
        first = ends[k]


@njit(cache=True, nogil=True)
def count_ones(bits: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """Returns the number of set bits in each row of `bits`, as (n,) int64."""
    ones = np.empty(len(bits), np.int64)
    for i in range(len(bits)):
        row = bits[i]
        total = uint32(0)
        for j in range(row.size):
            x = row[j]  # sums of two, then four, then eight adjacent bits
            x = uint8(x - uint8(uint8(x >> uint8(1)) & uint8(0x55)))
            x = uint8(uint8(x & uint8(0x33)) + uint8(uint8(x >> uint8(2)) & uint8(0x33)))
            total = uint32(total + uint32(uint8(x + uint8(x >> uint8(4))) & uint8(0x0F)))
        ones[i] = total
    return ones
