"""Deviations of frequencies that reports of honest clients do not have."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ldp.summation import exact_sum

if TYPE_CHECKING:
    from ldp.oracles.oracle import Oracle

Vector = npt.NDArray[np.float64]

_HONEST = 6.0  # Standard errors that honest reports exceed with a probability below 3·10⁻⁸


def of_sum(oracle: Oracle, n: int, frequencies: Vector) -> float:
    """Returns `ldp.Estimate.sum_deviation` for Base's (d,) frequencies. O(d)."""
    variance, step = _sum_law(oracle) if oracle.domain_size > 1 else (0.0, 0.0)
    off = (exact_sum(frequencies) - 1.0) * float(n * (oracle.p - oracle.q))
    return _deviation(off, n * variance, step) if variance else 0.0


def warning(oracle: Oracle, n: int, frequencies: Vector, name_of: Callable[[np.intp], str]) -> str | None:
    """Returns `ldp.Estimate.warning` for Base's (d,) frequencies. O(d).

    `name_of` returns the name of a value.
    """
    if oracle.domain_size == 1 and not oracle.own_bits:
        return "the domain has one value, which every report has: the counts contain no information"
    subject = f"these are not counts of {n:,} honest {oracle.name} reports:"
    if abs(sigmas := of_sum(oracle, n, frequencies)) > _HONEST:
        total = exact_sum(frequencies)
        return f"{subject} the frequencies sum to {total:.3g}, {abs(sigmas):.2g} standard errors from 1"
    p, q = float(oracle.p), float(oracle.q)
    limit = math.sqrt(_HONEST**2 + 2.0 * math.log(oracle.domain_size))
    for value, nearest, sign, share in (
        (frequencies.argmax(), 1.0, 1.0, p),
        (frequencies.argmin(), 0.0, -1.0, q),
    ):
        f = float(frequencies[value])
        off = sign * (f - nearest) * n * (p - q)  # negative within [0, 1]
        sigmas = _deviation(off, n * share * (1.0 - share), 1.0)
        if sigmas > limit:
            name = name_of(value)
            return (
                f"{subject} {name} has the frequency {f:.3g}, {sigmas:.2g} standard errors from {nearest:.0f}"
            )
    return None


def _deviation(off: float, variance: float, step: float) -> float:
    """Returns a distance in standard errors, reduced as in Bernstein's bound."""
    return off / math.sqrt(variance + step * abs(off) / 3.0) if off else 0.0


@lru_cache(maxsize=64)
def _sum_law(oracle: Oracle) -> tuple[float, float]:
    return oracle.sum_law()
