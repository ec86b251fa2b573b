"""Unary encoding: the report is a vector of bits, one for each value, each perturbed by itself.

`OUE` (paper, Section III-B) and `SUE`, basic RAPPOR; they differ only in how a bit is perturbed, and so do those of
`ldp.oracles.rappor`, where that is given.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, ClassVar

from ldp import sampling
from ldp.arguments import check_reports
from ldp.oracles.oracle import Oracle

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


UNLIKELY = 10**12
"""One honest report in so many is rejected: half of them for too few ones, half for too many."""

_UNIT = 1 << 256


class UnaryEncoding(Oracle):
    """The bit of the own value is 1 with probability p, each other with q, all independent.

    Two users' vectors differ in two bits, so the ratio of their probabilities for one report is at most
    p(1−q)/((1−p)q), which is E for all of them.
    """

    def __init__(self, epsilon: str | int | Fraction, domain_size: int) -> None:
        super().__init__(epsilon, domain_size)
        self._set_fields()

    def _set_fields(self) -> None:
        """Says what a report is, once d is known."""
        self.fields = {"bits": 256}
        self.length = -(-self.domain_size // 8)

    def perturb_one(self, value: int) -> tuple[int, ...]:
        """The bytes of the bits: see `Oracle.perturb_one`."""
        value = self._checked_value(value)
        own, others = sampling.coin(self.p), sampling.mask(self.q, self.domain_size)
        bits = bytearray(others.to_bytes(-(-self.domain_size // 8), "little"))
        at, bit = divmod(value, 8)  # one byte is changed, wherever it is
        bits[at] = bits[at] & ~(1 << bit) | own << bit
        return tuple(bits)

    def _perturb(
        self, values: npt.NDArray[np.int64], reports: npt.NDArray[np.void], rng: np.random.Generator | None
    ) -> None:
        import numpy as np

        bits = reports["bits"]
        bits[:] = sampling.masks(self.q, self.domain_size, values.size, rng=rng)
        at = np.arange(values.size), values // 8
        bit = np.left_shift(1, values % 8).astype(np.uint8)
        own = sampling.coins(self.p, values.size, rng=rng)
        bits[at] = bits[at] & ~bit | own * bit

    def _accumulate(self, state: npt.NDArray[np.int64], reports: npt.NDArray[np.void]) -> None:
        from ldp import kernels

        kernels.count_bits(state, self.column(reports, "bits"))

    def _well_formed(self, reports: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
        import numpy as np

        if self.domain_size % 8 == 0:
            return np.ones(reports.size, np.bool_)
        good: npt.NDArray[np.bool_] = reports["bits"][:, -1] < 1 << self.domain_size % 8
        return good

    def _allowed(self) -> str:
        return f"the bits from {self.domain_size} on must be 0"

    @cached_property
    def weight_bounds(self) -> tuple[int, int]:
        """The fewest and the most ones of an honest report, except one in 10¹²."""
        return weight_bounds(self.p, self.q, self.domain_size)

    @property
    def most_supported(self) -> int:
        """The most ones of an accepted report; see `Oracle.most_supported`."""
        return self.weight_bounds[1]

    def supported_of(self, subset: npt.NDArray[np.int64]) -> tuple[int, int]:
        """The fewest and the most ones in the set of an accepted report; see `Oracle.supported_of`."""
        low, high = self.weight_bounds
        outside = self.domain_size - subset.size
        return max(0, low - outside), min(subset.size, high)

    def likely(self, reports: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
        """Which reports have a number of ones within `weight_bounds`. O(d) a report."""
        from ldp import kernels

        low, high = self.weight_bounds
        if (low, high) == (0, self.domain_size):
            return super().likely(reports)
        check_reports(reports, self.report_dtype)
        ones = kernels.count_ones(self.column(reports, "bits"))
        return (ones >= low) & (ones <= high)


class OUE(UnaryEncoding):
    """Optimized Unary Encoding: a 1 stays with probability 1/2, a 0 becomes 1 with 1/(E+1).

    The variance for a value that nobody has is that of OLH with the same E, for every d.

    Report: ``bits``, ⌈d/8⌉ bytes; value v is bit v mod 8 of byte v div 8, padding 0. State: d counters. Server: d bits
    added a report.

    `epsilon` and `domain_size` are as for `ldp.oracle`.

    Example:
        >>> oue = OUE("1", domain_size=100)
        >>> oue.p, round(float(oue.q), 4), oue.report_dtype.itemsize
        (Fraction(1, 2), 0.2689, 13)
    """

    name: ClassVar[str] = "oue"

    def __init__(self, epsilon: str | int | Fraction, domain_size: int) -> None:
        super().__init__(epsilon, domain_size)
        self.p = Fraction(1, 2)
        self.q = 1 / (self.E + 1)


class SUE(UnaryEncoding):
    """Symmetric Unary Encoding (basic RAPPOR): every bit flips with probability 1/(H+1).

    H is the rational just below e^(ε/2), ⌊e^(ε/2)·2⁶⁴⌋/2⁶⁴, and E = H² ≤ e^ε. Report, state, server: as `OUE`.

    `epsilon` and `domain_size` are as for `ldp.oracle`.

    Example:
        >>> sue = SUE("1", domain_size=100)
        >>> round(float(sue.p), 4), sue.p + sue.q
        (0.6225, Fraction(1, 1))
    """

    name: ClassVar[str] = "sue"

    def __init__(self, epsilon: str | int | Fraction, domain_size: int) -> None:
        super().__init__(epsilon, domain_size)
        half = sampling.exp_below(sampling.parse_epsilon(epsilon) / 2)
        self.E = half * half
        self.p = half / (half + 1)
        self.q = 1 / (half + 1)


def weight_bounds(p: Fraction, q: Fraction, d: int) -> tuple[int, int]:
    """The fewest and the most ones of an honest report, except with probability 10⁻¹².

    A report has X + Y ones, independent: X the own bit, 1 with probability p, and Y of the other d−1 bits, each 1 with
    probability q. The bounds are the largest ``low`` with P[ones < low] ≤ 5·10⁻¹³ and the smallest ``high`` with
    P[ones > high] ≤ 5·10⁻¹³.

    They decide what counts, so they must be the same integers on every machine: the law is computed in integers, from
    its mode outwards, as multiples of 2⁻²⁵⁶ of the mode's probability. Each step rounds down by at most one unit; a
    tail would have to be within a factor of 1 ± 2⁻¹⁶⁰ of 5·10⁻¹³ for that to matter.

    Returns:
        0 ≤ low ≤ high ≤ d. O(√(d·q)) steps of big integers: at most 0.3 s at d = 2²⁴.

    Example:
        >>> weight_bounds(Fraction(1, 2), Fraction(1, 4), d=100)
        (1, 59)
    """
    others = d - 1
    odds, against = q.numerator, q.denominator - q.numerator
    mode = int(d * q)
    above, below = [_UNIT], [_UNIT]  # P[Y = mode ± i]
    for ones in range(mode, others):
        if not above[-1]:
            break
        above.append(above[-1] * (others - ones) * odds // ((ones + 1) * against))
    for ones in range(mode, 0, -1):
        if not below[-1]:
            break
        below.append(below[-1] * ones * against // ((others - ones + 1) * odds))
    of_others = [*below[:0:-1], *above]
    first = mode - len(below) + 1
    own, none = p.numerator, p.denominator - p.numerator
    law = [none * y + own * x for y, x in zip([*of_others, 0], [0, *of_others], strict=True)]
    most = sum(law) // (2 * UNLIKELY)  # of what a tail may have
    low = first + sum(tail <= most for tail in accumulate(law))
    high = first + len(law) - 1 - sum(tail <= most for tail in accumulate(reversed(law)))
    return low, high
