"""Interface of post-processing methods."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ldp.consistency.summation import exact_sum
from ldp.estimate import Estimate, Vector

Indices = npt.NDArray[np.intp]


def summed(_estimate: Estimate, indices: Indices, frequencies: Vector) -> float:
    """Returns the sum over a set: the answer of all methods except Post-Pos."""
    return exact_sum(frequencies[indices])


@dataclass(frozen=True)
class Method:
    """A post-processing method, called with an `Estimate`.

    Attributes:
        name: name in snapshots and commands.
        function: maps an Estimate to a new (d,) float64 vector that keeps the weak order of the estimates.
        non_negative: whether all frequencies of the vector are at least 0 (Table I).
        sums_to_one: whether the sum of the vector is 1 (Table I).
        of_paper: whether the method is Base or one of the paper's ten methods.
        answer: maps the estimate, a set's indices and the method's vector to the set's frequency.
    """

    name: str
    function: Callable[[Estimate], Vector]
    non_negative: bool
    sums_to_one: bool
    of_paper: bool = True
    answer: Callable[[Estimate, Indices, Vector], float] = summed

    def __call__(self, estimate: Estimate) -> Vector:
        """Applies the method to an estimate."""
        return self.function(estimate)
