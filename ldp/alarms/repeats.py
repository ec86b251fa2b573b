"""Repeated reports, which honest clients hardly ever send."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ldp.alarms.martingale import Martingale
from ldp.oracles.olh import OLH
from ldp.oracles.rappor import RAPPOR
from ldp.oracles.subset import SubsetSelection
from ldp.oracles.unary import UNLIKELY, UnaryEncoding

if TYPE_CHECKING:
    import numpy.typing as npt

    from ldp.oracles import Oracle


_TILTS = 2.0 ** (np.arange(17) / 2)
"""The tilts λ: e^λ times as many reports come again as chance lets; up to that of one where there should be none."""


class Repeats(Martingale):
    """Number of reports that repeat within a block, against the largest honest number.

    No report has a probability above π, whatever the value is: with OLH π = p/2³², with unary encoding
    max(p, 1−p)·max(q, 1−q)^(d−1), with Subset Selection p/C(d−1, k−1). So the i-th of independent reports equals one
    of the i−1 before it with probability (i−1)π at most, and the number N of repeats among n has
    E[e^(λN)] ≤ e^(b(e^λ−1)), b = π·n(n−1)/2. So e^(λN − b(e^λ−1)), with N and b summed over the blocks, is a
    supermartingale that begins at 1. The test is its mean over some λ.

    It does not apply to protocols with few different reports, nor to RAPPOR. A record that a non-idempotent producer
    sends twice raises the alarm. It misses poisoning reports that differ from each other.

    Attributes:
        log_peak: an upper bound of log π.

    Example:
        >>> import ldp
        >>> repeats = Repeats(ldp.OLH("1", domain_size=10), level=1e-7)
        >>> repeats.count(4096, again=1), repeats.count(4096, again=3)
        (False, True)
    """

    name = "repeats"

    def __init__(self, oracle: Oracle, level: float) -> None:
        super().__init__(oracle, level)
        self.log_peak = _log_peak(oracle) - math.log1p(-1 / UNLIKELY)  # unlikely ones may have been rejected

    @staticmethod
    def applies(oracle: Oracle) -> bool:
        """Whether there are many possible reports, each improbable."""
        return isinstance(oracle, OLH | UnaryEncoding | SubsetSelection) and not isinstance(oracle, RAPPOR)

    @staticmethod
    def _refusal(oracle: Oracle) -> str:
        return f"reports of {oracle.name} may repeat; those of olh, unary encoding and subset hardly do"

    def begin(self) -> None:
        """Begins anew, at the full risk."""
        super().begin()
        self._again, self._pairs = 0, 0.0

    def look(self, reports: npt.NDArray[np.void]) -> bool:
        """Adds a block of (n,) well-formed reports; returns whether it is an alarm. O(bytes)."""
        return self.count(reports.size, come_again(reports))

    def count(self, reports: int, again: int) -> bool:
        """Adds a block with a number of repeats; returns whether it raises an alarm. O(1)."""
        self._again += again
        self._pairs += reports * (reports - 1) / 2
        expected = math.exp(self.log_peak) * self._pairs
        return self._reaches(_TILTS * self._again - np.expm1(_TILTS) * expected)

    @property
    def found(self) -> str:
        """What the blocks since `begin` have, for people."""
        expected = math.exp(self.log_peak) * self._pairs
        return (
            f"{self._again:,} of them came before in their block, where at most {expected:.2g} are expected"
        )


def _log_peak(oracle: Oracle) -> float:
    """The logarithm of the probability of the likeliest report of the likeliest value."""
    p, q, d = float(oracle.p), float(oracle.q), oracle.domain_size
    if isinstance(oracle, OLH):
        return math.log(p) - 32 * math.log(2)
    if isinstance(oracle, SubsetSelection):
        k = oracle.k
        return math.log(p) - (math.lgamma(d) - math.lgamma(k) - math.lgamma(d - k + 1))
    return math.log(max(p, 1 - p)) + (d - 1) * math.log(max(q, 1 - q))


def come_again(reports: npt.NDArray[np.void]) -> int:
    """Number of (n,) reports that equal one before them; O(bytes)."""
    data, size = reports.tobytes(), reports.dtype.itemsize
    return reports.size - len({data[at : at + size] for at in range(0, len(data), size)})
