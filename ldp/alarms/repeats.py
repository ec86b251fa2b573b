"""Detects repeated reports, which are rare among honest clients."""

from __future__ import annotations

import math
from collections import Counter
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


_BETS = 4.0 ** np.arange(-5, 17)
"""The bets θ. Small bets detect a few more pairs than honest ones over many blocks. The largest detects one impossible
pair."""
_RARE = 0.01  # Expected pairs of a block below which the most probable report is a sufficient bound


class Repeats(Martingale):
    """Tests the number of equal reports in a block against an upper bound.

    Let m be the number of earlier reports of the block that equal the i-th. Its mean is Σ P(X) over the earlier
    reports X, where P is the distribution of a report of the i-th user's value. Let b be the largest such sum for any
    value. Therefore, (1 + θm)/(1 + θb) has a mean of at most 1 for any bet θ > 0, given the earlier reports. The
    product over all reports is a supermartingale that starts at 1. The test uses the mean of this supermartingale over
    several θ. With B the sum of b over n reports, the product of 1 + θb is at most (1 + θB/n)ⁿ.

    For Subset Selection, P of a report is p/C(d−1, k−1) if the report supports the value, and (1−p)/C(d−1, k) if not.
    For unary encoding with w 1 bits, it is p·q^(w−1)·(1−q)^(d−w) or (1−p)·q^w·(1−q)^(d−1−w). If even the most probable
    report leads to few pairs, its probability replaces P. This is always so for OLH, where P ≤ p/2³².

    The test does not apply to RAPPOR or to protocols with few possible reports. A record that a non-idempotent
    producer sends twice also raises the alarm. The test misses poisoning reports that differ from each other.

    Attributes:
        log_peak: an upper bound of the logarithm of any report's probability.

    Example:
        >>> import ldp
        >>> subset = ldp.SubsetSelection("1", domain_size=20)
        >>> repeats, reports = Repeats(subset, level=1e-7), subset.perturb([3] * 4096)
        >>> repeats.look(reports)
        False
        >>> reports[::20] = reports[0]
        >>> repeats.look(reports)
        True
    """

    name = "repeats"

    def __init__(self, oracle: Oracle, level: float) -> None:
        super().__init__(oracle, level)
        # workers may reject unlikely reports before the test, which makes the others likelier
        self._accepted = 1 - 1 / UNLIKELY
        self.log_peak = _log_peak(oracle) - math.log(self._accepted)

    @staticmethod
    def applies(oracle: Oracle) -> bool:
        """Returns whether the oracle has many different reports."""
        if oracle.domain_size == 1 or isinstance(oracle, RAPPOR):
            return False
        return isinstance(oracle, OLH | UnaryEncoding | SubsetSelection)

    @staticmethod
    def _refusal(oracle: Oracle) -> str:
        allowed = "olh, subset and unary encoding of 2 or more values, not to RAPPOR"
        return f"the protocol is {oracle.name}; the test applies to {allowed}"

    def begin(self) -> None:
        """Restarts the test with the full false-alarm risk."""
        super().begin()
        self._pairs, self._expected, self._logs = 0, 0.0, np.zeros(_BETS.size)

    def look(self, reports: npt.NDArray[np.void]) -> bool:
        """Adds a block of n valid reports; returns whether to raise an alarm."""
        expected = math.exp(self.log_peak) * reports.size * (reports.size - 1) / 2
        if expected > _RARE:
            expected = _most_expected(self._oracle, reports) / self._accepted
        return self.count(reports.size, copies_in(reports), expected)

    def count(self, reports: int, copies: npt.NDArray[np.int64], expected: float) -> bool:
        """Adds a block's equal reports; returns whether to raise an alarm.

        `copies` are (k,) numbers of earlier equal reports, of the k reports that have one. `expected` bounds their sum.
        """
        self._pairs += int(copies.sum())
        self._expected += expected
        self._logs += np.log1p(np.multiply.outer(_BETS, copies)).sum(axis=1)
        self._logs -= reports * np.log1p(_BETS * expected / reports)
        return self._reaches(self._logs)

    @property
    def found(self) -> str:
        """The evidence since `begin` as text."""
        return f"pairs of equal reports in a block: {self._pairs:,}; at most {self._expected:.2g} expected"


def _log_peak(oracle: Oracle) -> float:
    p, q, d = float(oracle.p), float(oracle.q), oracle.domain_size
    if isinstance(oracle, OLH):
        return math.log(p) - 32 * math.log(2)
    if isinstance(oracle, SubsetSelection):
        k = oracle.k
        return math.log(p) - (math.lgamma(d) - math.lgamma(k) - math.lgamma(d - k + 1))
    return math.log(max(p, 1 - p)) + (d - 1) * math.log(max(q, 1 - q))


def _most_expected(oracle: Oracle, reports: npt.NDArray[np.void]) -> float:
    """Returns Σ b over (n,) reports of unary encoding or subsets. O(bytes)."""
    p, q, d, n = float(oracle.p), float(oracle.q), oracle.domain_size, reports.size
    rows, values = _supports(reports)
    if isinstance(oracle, SubsetSelection):
        own, other = (
            np.full(n, each)
            for each in (p / math.comb(d - 1, oracle.k - 1), (1 - p) / math.comb(d - 1, oracle.k))
        )
    else:
        ones = np.bincount(rows, minlength=n)
        own = p * q ** np.maximum(ones - 1, 0) * (1 - q) ** (d - ones)
        other = (1 - p) * q**ones * (1 - q) ** np.maximum(d - 1 - ones, 0)
    # a value's sum is that of `other`, plus own − other ≥ 0 for each report that supports it
    order = np.lexsort((rows, values))
    sums = np.cumsum((own - other)[rows[order]])
    firsts = np.flatnonzero(np.diff(values[order], prepend=-1))
    before = np.where(firsts > 0, sums[firsts - 1], 0.0)
    gains = np.zeros(n)
    np.maximum.at(gains, rows[order], sums - np.repeat(before, np.diff(firsts, append=order.size)))
    most = np.cumsum(other) + np.maximum.accumulate(gains)
    return float(most[:-1].sum())


def _supports(reports: npt.NDArray[np.void]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Returns the report and the value of each support."""
    if "indices" in (reports.dtype.names or ()):
        values = reports["indices"].astype(np.int64)
        return np.repeat(np.arange(reports.size), values.shape[1]), values.ravel()
    rows, places = np.nonzero(reports["bits"])
    at, bits = np.nonzero(np.unpackbits(reports["bits"][rows, places][:, None], axis=1, bitorder="little"))
    return rows[at], places[at] * 8 + bits


def copies_in(reports: npt.NDArray[np.void]) -> npt.NDArray[np.int64]:
    """Returns how many earlier reports each repeated report equals. O(bytes)."""
    data, size = reports.tobytes(), reports.dtype.itemsize
    equal = Counter(data[at : at + size] for at in range(0, len(data), size))
    return np.array([m for number in equal.values() if number > 1 for m in range(1, number)], np.int64)
