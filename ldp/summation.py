"""Summation that is independent of the order and rounded once."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]

BLOCK = 8192  # numbers summed together: they fit the first-level cache and need 13 bits for carries


def exact_sum(values: Vector) -> float:
    """Sums (m,) finite numbers below 2^1000, exactly alike in any order. O(m).

    Adding and subtracting a power of two that is large compared with a block rounds each value to a multiple of one
    unit. These multiples add up without rounding, as do multiples of a unit 2^−38 times as large in the rests. The
    remainder of each value, below 2^−75 of the largest value, is dropped. `math.fsum` adds the blocks.

    Example:
        >>> exact_sum(np.array([1.0, 2.0**-60, -1.0])) == 2.0**-60
        True
    """
    if len(values) == 0:
        return 0.0
    largest = max(float(values.max()), -float(values.min()))
    if largest == 0.0:
        return 0.0
    # Exceeds the sum of a block's magnitudes by two bits.
    coarse = math.ldexp(1.0, math.frexp(largest)[1] + BLOCK.bit_length() + 1)
    fine = coarse * 2.0**-38
    parts: list[float] = []
    for start in range(0, len(values), BLOCK):
        block = values[start : start + BLOCK]
        multiples = block + coarse
        multiples -= coarse
        parts.append(float(multiples.sum()))
        rest = np.subtract(block, multiples, out=multiples)
        rest += fine
        rest -= fine
        parts.append(float(rest.sum()))
    return math.fsum(parts)
