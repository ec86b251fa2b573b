"""The sum of many numbers, free of rounding and of their order."""

from __future__ import annotations

import math

import numpy as np

from ldp.estimate import Vector

BLOCK = 8192  # numbers summed together: they stay in the first-level cache, and leave room for 2¹³ carries


def exact_sum(values: Vector) -> float:
    """Σ of (m,) finite numbers below 2^1000, the same in every order, rounded once. O(m).

    Adding and subtracting a power of two that is large against a block rounds each value to a multiple of one unit.
    These multiples, and those of a unit 2^−38 as large in the rest, add up without rounding; what remains, below 2^−75
    of the largest a value, is dropped. Blocks are added by `math.fsum`.

    Example:
        >>> exact_sum(np.array([1.0, 2.0**-60, -1.0])) == 2.0**-60
        True
    """
    if len(values) == 0:
        return 0.0
    largest = max(float(values.max()), -float(values.min()))
    if largest == 0.0:
        return 0.0
    # Above the sum of a block of magnitudes, with two bits to spare.
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
