"""Sums numbers accurately and independently of their order."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]

BLOCK = 8192  # numbers summed together: they fit the first-level cache and need 13 bits for carries


def exact_sum(values: Vector) -> float:
    """Sums m finite numbers, with exactly the same result in any order.

    Magnitudes must be below 2^1000. O(m). In each block, adding and then subtracting a large power of two rounds each
    value to a multiple of a common unit. These multiples add up without rounding. The rounding errors are rounded
    likewise, to a unit 2^38 times smaller. Each value's remainder, below 2^−75 of the largest value, is dropped.

    Example:
        >>> exact_sum(np.array([1.0, 2.0**-60, -1.0])) == 2.0**-60
        True
    """
    if len(values) == 0:
        return 0.0
    largest = max(float(values.max()), -float(values.min()))
    if largest == 0.0:
        return 0.0
    # At least 4 times the sum of a block's magnitudes.
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
