"""Interface of post-processing methods."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ldp.estimate import Estimate, Vector, check_estimate
from ldp.fleet import FleetEstimate
from ldp.summation import exact_sum

Indices = npt.NDArray[np.intp]

FOR_ONE_VALUE = ("base", "base-pos", "post-pos", "base-cut")
"""Methods of Section IV.A. The others use that the frequencies of all values sum to 1. The frequency of one value, such
as the bit of a yes/no question, does not."""


def summed(_estimate: Estimate | FleetEstimate, indices: Indices, frequencies: Vector) -> float:
    """Returns the sum over a set: the answer of all methods except Post-Pos."""
    return exact_sum(frequencies[indices])


class Methods(dict[str, "Method"]):
    """Name -> method. Raises KeyError with the allowed names.

    Example:
        >>> Methods()["normsub"]
        Traceback (most recent call last):
        KeyError: "method is 'normsub'; allowed are none"
    """

    def __missing__(self, name: object) -> Method:
        raise KeyError(f"method is {name!r}; allowed are {', '.join(self) or 'none'}")


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
    function: Callable[[Estimate], Vector] = field(repr=False)
    non_negative: bool
    sums_to_one: bool
    of_paper: bool = True
    answer: Callable[[Estimate | FleetEstimate, Indices, Vector], float] = field(default=summed, repr=False)

    def __call__(self, estimate: Estimate | FleetEstimate) -> Vector:
        """Applies the method to an estimate, or to each document's estimate.

        Returns the (d,) estimated shares among the n reports. For a fleet, it is the mixture of the results for
        each document. Raises ValueError for one value and a method that is not in `FOR_ONE_VALUE`.
        """
        if isinstance(estimate, FleetEstimate):
            return estimate.mixture(map(self, estimate.counted))
        check_estimate(estimate)
        if estimate.oracle.domain_size == 1 and self.name not in FOR_ONE_VALUE:
            raise ValueError(one_value([self.name]))
        return self.function(estimate)


def one_value(names: Iterable[str]) -> str:
    """Returns the error for methods that do not apply to one value."""
    return (
        f"{', '.join(names)} given for one value; allowed are {', '.join(FOR_ONE_VALUE)}: other methods use that the"
        " frequencies of all values sum to 1"
    )
