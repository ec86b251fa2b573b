"""Tests report parts that are uniform for any value, such as OLH's seeds."""

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
"""Parameters a of Pólya's urn. Small a detect large shares of poisoning reports, and large a detect small shares."""


class Uniform(Martingale):
    """Tests that reports fall uniformly into bins, as honest reports do.

    OLH: the seed is uniform below 2³². Therefore, its product with an odd number modulo 2³² is uniform, and the upper 6
    bits of the product give 64 bins.
    Hadamard: the parity of index AND r is a fair coin for each row r that belongs to no value and is not 0. The parity
    gives 2 bins, if such a row exists (K > d + 1).
    Each call of `begin` draws a secret odd number or row, so an attacker cannot fill the bins evenly with few seeds.

    Let n be the number of reports, m the number of bins, c_b the number of reports in bin b, and a > 0. Then
    m^n·Γ(ma)/Γ(ma+n)·∏_b Γ(a+c_b)/Γ(a) is the likelihood ratio of Pólya's urn to uniform bins, a martingale of mean 1.
    The test uses the mean of this ratio over several a. It misses poisoning reports with new random seeds.

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
        """Returns whether one field of each report is uniform for any value."""
        if isinstance(oracle, HadamardResponse):
            return oracle.state_size > oracle.domain_size + 1
        return isinstance(oracle, OLH)

    @staticmethod
    def _refusal(oracle: Oracle) -> str:
        return f"the protocol is {oracle.name}; the test applies to olh, and to hadamard with K > d + 1"

    def begin(self) -> None:
        """Restarts the test with new secrets and the full false-alarm risk."""
        super().begin()
        self._counts = np.zeros(self.bins, np.int64)
        if isinstance(self._oracle, OLH):
            self._secret = int(self._rng.integers(1 << 31)) * 2 + 1
        else:
            self._secret = int(self._rng.integers(self._oracle.domain_size + 1, self._oracle.state_size))

    def look(self, reports: npt.NDArray[np.void]) -> bool:
        """Adds n valid reports; returns whether to raise an alarm. O(n)."""
        if isinstance(self._oracle, OLH):
            bins = reports["seed"].astype(np.uint32) * np.uint32(self._secret) >> np.uint32(32 - _BITS)
        else:
            bins = np.bitwise_count(reports["index"].astype(np.int64) & self._secret) & 1
        return self.count(np.bincount(bins, minlength=self.bins))

    def count(self, counts: npt.NDArray[np.int64]) -> bool:
        """Adds the number of reports per bin; returns whether to raise an alarm."""
        self._counts += counts
        n, m, a = int(self._counts.sum()), self.bins, _WEIGHTS
        each = (gammaln(a[:, None] + self._counts) - gammaln(a)[:, None]).sum(axis=1)
        return self._reaches(n * np.log(m) + gammaln(m * a) - gammaln(m * a + n) + each)

    @property
    def found(self) -> str:
        """The evidence since `begin` as text."""
        n = max(int(self._counts.sum()), 1)
        return f"{self._counts.max() / n:.2%} of reports are in one of {self.bins} equally likely bins"
