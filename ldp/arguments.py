"""Arguments: what is given is checked in one place, so that an error says the same everywhere.

numpy is imported where a vector is looked at, so that a client needs none.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, SupportsIndex

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MAX_DOMAIN = 1 << 24
"""d is at most this."""


def as_integer(name: str, value: SupportsIndex, low: int, high: int) -> int:
    """An int that was given as an int (or numpy integer) and lies in low..high; bool and float are refused.

    Raises:
        TypeError: something that is not an integer.
        ValueError: an integer outside low..high.

    Example:
        >>> as_integer("g", 1, 2, 65536)
        Traceback (most recent call last):
        ValueError: g is 1; allowed is 2 to 65536
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None:
        raise TypeError(f"{name} must be an integer, not {value!r} ({type(value).__name__})")
    if not low <= number <= high:
        raise ValueError(f"{name} is {number}; allowed is {low} to {high}")
    return number


def as_indices(subset: npt.ArrayLike, domain_size: int) -> npt.NDArray[np.int64]:
    """The indices of a set of values, as given: (m,), each in 0..d−1 and once; m may be 0.

    Raises:
        TypeError: indices that are not integers.
        ValueError: an index outside 0..d−1 or repeated, or not one vector.

    Example:
        >>> as_indices([3, 0, 3], 4)
        Traceback (most recent call last):
        ValueError: a set's indices must be distinct, one is repeated
    """
    import numpy as np

    given = np.asarray(subset)
    if given.ndim != 1:
        raise ValueError(f"a set is one vector of indices, got an array of shape {given.shape}")
    if given.size == 0:
        return np.empty(0, np.int64)
    if given.dtype.kind not in "iu":
        raise TypeError(f"a set's indices must be integers, got {given.dtype}")
    first, last = int(given.min()), int(given.max())
    if first < 0 or last >= domain_size:
        outside = first if first < 0 else last
        raise ValueError(f"a set's indices must lie in 0..{domain_size - 1}, got {outside}")
    if np.unique(given).size < given.size:
        raise ValueError("a set's indices must be distinct, one is repeated")
    return given.astype(np.int64)


def exact_total(counts: npt.NDArray[np.int64]) -> int:
    """Σ counts, also where it is above what int64 holds; none is below 0."""
    return (int((counts >> 32).sum()) << 32) + int((counts & 0xFFFFFFFF).sum())
