"""Answers to queries: the frequency of a set of values under a method."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from ldp.consistency import METHODS
from ldp.estimate import Estimate


def answer(estimate: Estimate, subset: npt.ArrayLike, method: str) -> float:
    """The frequency of a set of values under a method.

    Every method answers with the sum of its own vector over the set, but for Post-Pos, which post-processes
    the query and not the vector (Section IV.A): the sum of Base over the set, or 0 if that is negative.

    Args:
        estimate: f̃ over the domain.
        subset: indices of the set's values in 0..d-1, each once, in any order; may be empty (answer 0).
        method: a key of `ldp.consistency.METHODS`.

    Returns:
        A fraction of the reports. O(d log d): the method runs over the whole domain.

    Raises:
        ValueError: an unknown method; an index outside the domain or repeated; not one vector.
        TypeError: indices that are not integers.

    Example:
        >>> import ldp
        >>> oracle = ldp.oracle("grr", epsilon="1", domain_size=4)
        >>> estimate = ldp.Estimate([0.9, 0.25, -0.25, -0.125], 1000, oracle)
        >>> answer(estimate, [1, 2, 3], "post-pos"), answer(estimate, [1, 2, 3], "base-pos")
        (0.0, 0.25)
    """
    if method not in METHODS:
        raise ValueError(f"unknown method {method!r}; the methods are {', '.join(METHODS)}")
    indices = _indices(subset, estimate.oracle.domain_size)
    if method == "post-pos":
        return max(math.fsum(estimate.frequencies[indices]), 0.0)
    return math.fsum(METHODS[method](estimate)[indices])


def _indices(subset: npt.ArrayLike, d: int) -> npt.NDArray[np.intp]:
    given = np.asarray(subset)
    if given.ndim != 1:
        raise ValueError(f"a set is one vector of indices, got an array of shape {given.shape}")
    if given.size == 0:
        return np.empty(0, dtype=np.intp)
    if not np.issubdtype(given.dtype, np.integer):
        raise TypeError(f"a set's indices must be integers, got {given.dtype}")
    lowest, highest = int(given.min()), int(given.max())
    if lowest < 0 or highest >= d:
        raise ValueError(f"a set's indices must lie in 0..{d - 1}, got {lowest if lowest < 0 else highest}")
    if len(np.unique(given)) < given.size:
        raise ValueError("a set's indices must be distinct, one is repeated")
    return given.astype(np.intp)
