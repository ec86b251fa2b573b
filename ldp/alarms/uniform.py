"""Report parts whose law does not depend on the value: OLH's seeds, parities of Hadamard indices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import gammaln

from ldp.alarms.martingale import Martingale
from ldp.oracles.hadamard import HadamardResponse
from ldp.oracles.olh import OLH

if TYPE_CHECKING:
    import numpy.typing as npt

    from ldp.oracles import Oracle

_BITS = 6
_WEIGHTS = 10.0 ** np.arange(7)
"""Parameters a of the urn, larger ones nearer to uniform; each detects other shares of poisoning reports."""


class Uniform(Martingale):
    """Bins into which honest reports fall uniformly, whatever their values are; a `Martingale`.

    OLH: the seed is uniform below 2³², so the upper 6 bits of its product with an odd number modulo 2³² are too; 64
    bins.
    Hadamard: the parity of index AND r is a fair coin for each row r that is neither 0 nor a value's; 2 bins, where
    such a row exists (K > d + 1). The odd number and the row are drawn in secret at each `begin`, so an attacker
    cannot fill the bins evenly with few seeds.

    With c_b of n reports in bin b of m, and a > 0, m^n·Γ(ma)/Γ(ma+n)·∏_b Γ(a+c_b)/Γ(a) is the likelihood under Pólya's
    urn over the one under the law: a martingale of mean 1. The test is its mean over some a. It misses poisoning
    reports with fresh seeds.

    Example:
        >>> import ldp
        >>> olh = ldp.OLH("1", domain_size=10)
        >>> uniform = Uniform(olh, level=1e-7)
        >>> uniform.look(olh.perturb([3] * 4096)), uniform.look(np.repeat(olh.perturb([3]), 256))
        (False, True)
    """

    name = "uniform"

    def __init__(self, oracle: Oracle, level: float, rng: np.random.Generator | None = None) -> None:
        self._rng = np.random.default_rng() if rng is None else rng
        self.bins = 1 << _BITS if isinstance(oracle, OLH) else 2
        super().__init__(oracle, level)

    @staticmethod
    def applies(oracle: Oracle) -> bool:
        """Whether a part of the oracle's reports is uniform whatever the value is."""
        if isinstance(oracle, HadamardResponse):
            return oracle.state_size > oracle.domain_size + 1
        return isinstance(oracle, OLH)

    @staticmethod
    def _refusal(oracle: Oracle) -> str:
        return f"no part of a report of {oracle.name} here is uniform whatever the value is"

    def begin(self) -> None:
        """Begins anew, with other secrets, at the full risk."""
        super().begin()
        self._counts = np.zeros(self.bins, np.int64)
        if isinstance(self._oracle, OLH):
            self._secret = int(self._rng.integers(1 << 31)) * 2 + 1
        else:
            self._secret = int(self._rng.integers(self._oracle.domain_size + 1, self._oracle.state_size))

    def look(self, reports: npt.NDArray[np.void]) -> bool:
        """Adds (n,) well-formed reports; returns whether it is an alarm. O(n)."""
        if isinstance(self._oracle, OLH):
            bins = reports["seed"].astype(np.uint32) * np.uint32(self._secret) >> np.uint32(32 - _BITS)
        else:
            bins = np.bitwise_count(reports["index"].astype(np.int64) & self._secret) & 1
        return self.count(np.bincount(bins, minlength=self.bins))

    def count(self, counts: npt.NDArray[np.int64]) -> bool:
        """Adds reports, so many in each of the (m,) bins; returns whether it is an alarm. O(m)."""
        self._counts += counts
        n, m, a = int(self._counts.sum()), self.bins, _WEIGHTS
        each = (gammaln(a[:, None] + self._counts) - gammaln(a)[:, None]).sum(axis=1)
        return self._reaches(n * np.log(m) + gammaln(m * a) - gammaln(m * a + n) + each)

    @property
    def found(self) -> str:
        """What the reports since `begin` have, for people."""
        n = max(int(self._counts.sum()), 1)
        return f"{self._counts.max() / n:.2%} of them in one of {self.bins} bins that are equally likely"
