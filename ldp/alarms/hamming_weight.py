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
"""The tilts λ in units of one over a report's standard deviation: n reports tell a mean that is off by 1/√n of it, and
a period has from hundreds of reports to millions."""


class HammingWeight(Martingale):
    """Hamming weight check: the number of ones of unary reports against its law.

    A report has X = Bin(1, p) + Bin(d−1, q) ones whatever its value is, independent of others, so the sum S over n
    reports has the moment generating function M(λ)ⁿ, M(λ) = (1−p+pe^λ)·(1−q+qe^λ)^(d−1), and e^(λS)/M(λ)ⁿ is a
    martingale of mean 1. The test is its mean over some λ of both signs (Howard, Ramdas, McAuliffe and Sekhon, 2020).
    Unlikely reports (`Oracle.likely`) may have been rejected before: M is multiplied by 1/(1 − 10⁻¹²).

    It does not apply to RAPPOR, whose reports of one device share a permanent response, nor to other protocols, whose
    reports support a fixed number of values or have no law in closed form. It misses poisoning reports that have as
    many ones as honest ones on average.

    Attributes:
        mean: of the ones of a report.
        variance: of the ones of a report.

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
        """Whether the oracle's reports have a number of ones with a known law."""
        if not isinstance(oracle, UnaryEncoding) or isinstance(oracle, RAPPOR):
            return False
        return oracle.p < 1 or oracle.domain_size > 1

    @staticmethod
    def _refusal(oracle: Oracle) -> str:
        return f"the number of ones of {oracle.name} has no law that is known; unary ones have"

    def begin(self) -> None:
        """Begins anew, at the full risk."""
        super().begin()
        self._reports = self._total = 0

    def look(self, reports: npt.NDArray[np.void]) -> bool:
        """Adds (n,) well-formed reports; returns whether it is an alarm. O(bytes)."""
        from ldp import kernels

        return self.count(reports.size, int(kernels.count_ones(self._oracle.column(reports, "bits")).sum()))

    def count(self, reports: int, ones: int) -> bool:
        """Adds so many reports with so many ones together; returns whether it is an alarm. O(1)."""
        self._reports += reports
        self._total += ones
        return self._reaches(self._tilts * self._total - self._reports * self._logs)

    @property
    def found(self) -> str:
        """What the reports since `begin` have, for people."""
        mean = self._total / max(self._reports, 1)
        return f"{mean:.2f} ones a report, where {self.mean:.2f} are expected"
