"""Hamming weight check: the number of values that unary reports support."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ldp.alarms.martingale import Martingale
from ldp.oracles.rappor import RAPPOR
from ldp.oracles.unary import UNLIKELY, UnaryEncoding

if TYPE_CHECKING:
    import numpy.typing as npt

    from ldp.oracles import Oracle

_STEPS = 2.0 ** -np.arange(9)
"""The tilts λ in units of 1/σ, where σ is the standard deviation of a report's weight. A test of n reports detects a
mean that is off by about σ/√n. The tilts suit n from hundreds to millions."""


class HammingWeight(Martingale):
    """Hamming weight check: tests the number of 1 bits in unary reports.

    For any value, the number of 1 bits in a report is X = Bin(1, p) + Bin(d−1, q), independent of other reports. The
    sum S over n reports has the moment generating function M(λ)ⁿ, with M(λ) = (1−p+pe^λ)·(1−q+qe^λ)^(d−1). Therefore,
    e^(λS)/M(λ)ⁿ is a martingale of mean 1. The test uses the mean of this martingale over several λ of both signs
    (Howard, Ramdas, McAuliffe and Sekhon 2020). Workers may reject unlikely reports (`Oracle.likely`) before the test,
    so M is multiplied by 1/(1 − 10⁻¹²).

    The test does not apply to RAPPOR, because all reports of a device share a permanent response. It does not apply to
    non-unary protocols, because the number of values that a report supports is fixed or has no closed-form
    distribution. The test misses poisoning reports whose mean number of 1 bits equals that of honest reports.

    Attributes:
        mean: mean number of 1 bits in a report.
        variance: variance of the number of 1 bits in a report.

    Example:
        >>> import ldp
        >>> ones = HammingWeight(ldp.OUE("1", domain_size=1024), level=1e-7)
        >>> [ones.count(4096, 1_132_000) for _ in range(4)]  # each 3.3 standard deviations too many
        [False, False, False, True]
    """

    name = "ones"

    def __init__(self, oracle: Oracle, level: float) -> None:
        super().__init__(oracle, level)
        p, q, others = float(oracle.p), float(oracle.q), oracle.domain_size - 1
        self.mean, self.variance = p + others * q, p * (1 - p) + others * q * (1 - q)
        self._tilts = np.concatenate([_STEPS, -_STEPS]) / math.sqrt(self.variance)
        grown = np.expm1(self._tilts)
        self._logs = np.log1p(p * grown) + others * np.log1p(q * grown) - math.log1p(-1 / UNLIKELY)

    @staticmethod
    def applies(oracle: Oracle) -> bool:
        """Returns whether a report's number of 1 bits has a known distribution."""
        several = oracle.domain_size > 1  # the distribution of a single bit depends on the value
        return several and isinstance(oracle, UnaryEncoding) and not isinstance(oracle, RAPPOR)

    @staticmethod
    def _refusal(oracle: Oracle) -> str:
        return f"the protocol is {oracle.name}; the test applies to unary encoding of 2 or more values, not to RAPPOR"

    def begin(self) -> None:
        """Restarts the test with the full false-alarm risk."""
        super().begin()
        self._reports = self._total = 0

    def look(self, reports: npt.NDArray[np.void]) -> bool:
        """Adds n valid reports; returns whether to raise an alarm. O(bytes)."""
        from ldp import kernels

        return self.count(reports.size, int(kernels.count_ones(self._oracle.column(reports, "bits")).sum()))

    def count(self, reports: int, ones: int) -> bool:
        """Adds counts of reports and 1 bits; returns whether to raise an alarm."""
        self._reports += reports
        self._total += ones
        return self._reaches(self._tilts * self._total - self._reports * self._logs)

    @property
    def found(self) -> str:
        """The evidence since `begin` as text."""
        mean = self._total / max(self._reports, 1)
        return f"{mean:.2f} 1 bits per report; {self.mean:.2f} expected"
