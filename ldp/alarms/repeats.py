"""Detects repeated reports, which are rare among honest clients."""

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
"""The tilts λ. A tilt detects e^λ times the honest number of repeats. The largest detects one unexpected repeat."""


class Repeats(Martingale):
    """Tests the number of repeated reports in a block against an upper bound.

    For any value, no report has a probability above π. This bound is p/2³² for OLH, max(p, 1−p)·max(q, 1−q)^(d−1) for
    unary encoding, and p/C(d−1, k−1) for Subset Selection. Therefore, the i-th report equals an earlier report with a
    probability of at most (i−1)π. The number N of repeats among n reports satisfies E[e^(λN)] ≤ e^(b(e^λ−1)), with
    b = π·n(n−1)/2. If N and b are summed over blocks, e^(λN − b(e^λ−1)) is a supermartingale that starts at 1. The test
    uses the mean of this supermartingale over several λ.

    The test does not apply to RAPPOR or to protocols with few possible reports. A record that a non-idempotent
    producer sends twice also raises the alarm. The test misses poisoning reports that differ from each other.

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
        # workers may reject unlikely reports before the test, which makes the others likelier
        self.log_peak = _log_peak(oracle) - math.log1p(-1 / UNLIKELY)

    @staticmethod
    def applies(oracle: Oracle) -> bool:
        """Returns whether every possible report of the oracle is improbable."""
        return isinstance(oracle, OLH | UnaryEncoding | SubsetSelection) and not isinstance(oracle, RAPPOR)

    @staticmethod
    def _refusal(oracle: Oracle) -> str:
        return f"the protocol is {oracle.name}; the test applies to olh, subset and unary encoding, not to RAPPOR"

    def begin(self) -> None:
        """Restarts the test with the full false-alarm risk."""
        super().begin()
        self._again, self._pairs = 0, 0.0

    def look(self, reports: npt.NDArray[np.void]) -> bool:
        """Adds a block of n valid reports; returns whether to raise an alarm."""
        return self.count(reports.size, repeats_in(reports))

    def count(self, reports: int, again: int) -> bool:
        """Adds counts of reports and repeats; returns whether to raise an alarm."""
        self._again += again
        self._pairs += reports * (reports - 1) / 2
        expected = math.exp(self.log_peak) * self._pairs
        return self._reaches(_TILTS * self._again - np.expm1(_TILTS) * expected)

    @property
    def found(self) -> str:
        """The evidence since `begin` as text."""
        expected = math.exp(self.log_peak) * self._pairs
        return f"{self._again:,} repeat an earlier report of their block; at most {expected:.2g} expected"


def _log_peak(oracle: Oracle) -> float:
    p, q, d = float(oracle.p), float(oracle.q), oracle.domain_size
    if isinstance(oracle, OLH):
        return math.log(p) - 32 * math.log(2)
    if isinstance(oracle, SubsetSelection):
        k = oracle.k
        return math.log(p) - (math.lgamma(d) - math.lgamma(k) - math.lgamma(d - k + 1))
    return math.log(max(p, 1 - p)) + (d - 1) * math.log(max(q, 1 - q))


def repeats_in(reports: npt.NDArray[np.void]) -> int:
    """Returns the number of reports that equal an earlier report. O(bytes)."""
    data, size = reports.tobytes(), reports.dtype.itemsize
    return reports.size - len({data[at : at + size] for at in range(0, len(data), size)})
