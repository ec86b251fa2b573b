"""Reports that are the same: of many possible ones hardly any comes twice, even from users of one value."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ldp.alarms.ones import log_bound
from ldp.oracles.olh import OLH
from ldp.oracles.rappor import RAPPOR
from ldp.oracles.subset import SubsetSelection
from ldp.oracles.unary import UNLIKELY, UnaryEncoding

if TYPE_CHECKING:
    import numpy.typing as npt

    from ldp.oracles import Oracle


class Repeats:
    """How often one report comes in a block, against the most that chance allows, at one risk for all blocks together.

    No report has a probability above π, whatever the value is: with OLH π = p/2³², with unary encoding
    max(p, 1−p)·max(q, 1−q)^(d−1), with Subset Selection p/C(d−1, k−1). So k independent reports are the same with
    probability Σ_y ∏_i P_i(y) ≤ π^(k−1), and some k of n with C(n, k)·π^(k−1) at most. Block t is an alarm where a
    report comes k times, for the least k at which that is at most level/(t(t+1)): these add up to the level.

    Other protocols have so few reports that they must repeat; of RAPPOR those of one device share a permanent response,
    so that they may. Reports are independent when each is perturbed afresh: a record that a producer sends twice,
    because it is not idempotent, is an alarm, too, and counts twice.

    What it misses: forged reports that differ from each other, in whatever.

    Args:
        oracle: whose reports, see `applies`.
        level: the probability of a false alarm from one `begin` to the next, above 0 and below 1.

    Raises:
        ValueError: an oracle that it does not apply to, or a level outside (0, 1).

    Example:
        >>> import ldp
        >>> olh = ldp.OLH("1", domain_size=10)
        >>> repeats = Repeats(olh, level=1e-7)
        >>> repeats.count(4096, 2), repeats.count(4096, 4)
        (False, True)
        >>> repeats.look(np.repeat(olh.perturb([3]), 4))
        True
    """

    name: ClassVar[str] = "repeats"

    def __init__(self, oracle: Oracle, level: float) -> None:
        if not self.applies(oracle):
            raise ValueError(
                f"reports of {oracle.name} may repeat; those of olh, unary encoding and subset hardly do"
            )
        self._bound = log_bound(level)
        self.log_peak = _log_peak(oracle) - math.log1p(-1 / UNLIKELY)  # unlikely ones may have been rejected
        self.begin()

    @staticmethod
    def applies(oracle: Oracle) -> bool:
        """Whether there are many possible reports, each improbable."""
        return isinstance(oracle, OLH | UnaryEncoding | SubsetSelection) and not isinstance(oracle, RAPPOR)

    def begin(self) -> None:
        """Begins anew, at the full risk."""
        self._blocks = self._copies = self._reports = 0

    def look(self, reports: npt.NDArray[np.void]) -> bool:
        """Adds a block of (n,) well-formed reports; returns whether it is an alarm. O(bytes + n log n)."""
        return self.count(reports.size, most_copies(reports))

    def count(self, reports: int, copies: int) -> bool:
        """Adds a block of so many reports, one of which comes so often; returns whether it is an alarm. O(copies)."""
        self._blocks += 1
        self._copies, self._reports = max(self._copies, copies), reports
        return copies >= self.allowed(reports, self._blocks)

    def allowed(self, reports: int, block: int) -> int:
        """The least number of copies that is an alarm in block `block` = 1, 2, …; above n where none is.

        Example:
            >>> import ldp
            >>> [Repeats(ldp.OLH("1", domain_size=10), level=1e-7).allowed(4096, t) for t in (1, 100, 10**6)]
            [3, 4, 5]
        """
        most = -self._bound - math.log(block) - math.log(block + 1)
        log_choose = 0.0  # ln C(n, k)
        for k in range(1, reports + 1):
            log_choose += math.log((reports - k + 1) / k)
            if k > 1 and log_choose + (k - 1) * self.log_peak <= most:
                return k
        return reports + 1

    @property
    def found(self) -> str:
        """What the blocks since `begin` have, for people."""
        return f"one report comes {self._copies} times in {self._reports:,}"


def _log_peak(oracle: Oracle) -> float:
    """The logarithm of the probability of the likeliest report of the likeliest value."""
    p, q, d = float(oracle.p), float(oracle.q), oracle.domain_size
    if isinstance(oracle, OLH):
        return math.log(p) - 32 * math.log(2)
    if isinstance(oracle, SubsetSelection):
        k = oracle.k
        return math.log(p) - (math.lgamma(d) - math.lgamma(k) - math.lgamma(d - k + 1))
    return math.log(max(p, 1 - p)) + (d - 1) * math.log(max(q, 1 - q))


def most_copies(reports: npt.NDArray[np.void]) -> int:
    """How often the report that comes most often does; O(bytes + n log n).

    Equal reports have equal sums of their words by odd weights, so that only those are compared whole.

    Example:
        >>> import ldp
        >>> most_copies(np.array([(7, 1), (9, 1), (7, 1)], ldp.OLH("1", domain_size=10).report_dtype))
        2
    """
    if not reports.size:
        return 0
    size = reports.dtype.itemsize
    words = np.zeros((reports.size, -(-size // 8)), np.uint64)
    words.view(np.uint8)[:, :size] = np.ascontiguousarray(reports).view(np.uint8).reshape(-1, size)
    weights = np.random.default_rng().integers(1 << 63, size=words.shape[1], dtype=np.uint64) * 2 + 1
    sums = words @ weights
    if np.all(np.diff(np.sort(sums)) > 0):  # most often
        return 1
    _, found, times = np.unique(sums, return_inverse=True, return_counts=True)
    most = 1
    for same in np.argsort(-times):
        if times[same] <= most:
            break
        most = max(most, int(np.unique(words[found == same], axis=0, return_counts=True)[1].max()))
    return most
