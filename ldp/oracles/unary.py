"""Unary encoding: reports have one independently perturbed bit per value.

`OUE` (paper, Section III-B) and `SUE` (basic RAPPOR) differ only in the probabilities of a 1 bit. The channels of
`ldp.oracles.rappor` have explicit probabilities.
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
"""Inverse of the probability that the Hamming weight check rejects an honest report; each tail has half of it."""

_UNIT = 1 << 256


class UnaryEncoding(Oracle):
    """Unary encoding: independent bits that are 1 with probability p or q.

    The bit of the user's value is 1 with probability p, and any other bit with probability q. The unperturbed bits of
    two values differ in at most two places. The ratio of a report's probabilities under two values is therefore at most
    p(1−q)/((1−p)q) = E. A domain of one value is a yes/no question. The unperturbed bits of the two answers differ in
    one place, so the ratio is below E.
    """

    own_bits: ClassVar[bool] = True

    def __init__(self, epsilon: str | int | Fraction, domain_size: int) -> None:
        super().__init__(epsilon, domain_size)
        self._set_fields()

    def _set_fields(self) -> None:
        self.fields = {"bits": 256}
        self.length = -(-self.domain_size // 8)

    def perturb_one(self, value: int) -> tuple[int, ...]:
        """Returns the bytes of the bits; see `Oracle.perturb_one`."""
        value = self._checked_value(value)
        own, others = sampling.coin(self.p), sampling.mask(self.q, self.domain_size)
        bits = bytearray(others.to_bytes(-(-self.domain_size // 8), "little"))
        at, bit = divmod(value, 8)
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

    def accumulate_runs(
        self, addresses: npt.NDArray[np.int64], runs: npt.NDArray[np.int64], reports: npt.NDArray[np.void]
    ) -> None:
        """Counts as `Oracle.accumulate_runs`."""
        from ldp import kernels
        from ldp.oracles.partitioned import grouped

        reports, ends = grouped(reports, runs, addresses.size)
        kernels.count_bits(addresses, ends, self.column(reports, "bits"), self.domain_size)

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
        """Smallest and largest accepted Hamming weight."""
        return weight_bounds(self.p, self.q, self.domain_size)

    @property
    def most_supported(self) -> int:
        """Largest accepted Hamming weight; see `Oracle.most_supported`."""
        return self.weight_bounds[1]

    def supported_of(self, subset: npt.NDArray[np.int64]) -> tuple[int, int]:
        """Returns the fewest and the most 1 bits of a set in accepted reports."""
        low, high = self.weight_bounds
        outside = self.domain_size - subset.size
        return max(0, low - outside), min(subset.size, high)

    def likely(self, reports: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
        """Returns an (n,) mask of the reports within `weight_bounds`. O(n·d)."""
        from ldp import kernels

        low, high = self.weight_bounds
        if (low, high) == (0, self.domain_size):
            return super().likely(reports)
        check_reports(reports, self.report_dtype)
        ones = kernels.count_ones(self.column(reports, "bits"))
        return (ones >= low) & (ones <= high)


class OUE(UnaryEncoding):
    """Optimized Unary Encoding: p = 1/2 and q = 1/(E+1).

    The standard error at frequency 0 equals that of OLH with g = E + 1, for every d.

    Report: ``bits`` (⌈d/8⌉ bytes). Value v is bit v mod 8 of byte v div 8, and padding is 0. State: d counters. Server:
    d additions per report.

    See `ldp.oracle` for `epsilon` and `domain_size`.

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
    """Symmetric Unary Encoding (basic RAPPOR): p = H/(H+1) and q = 1/(H+1).

    H is the rational ⌊e^(ε/2)·2⁶⁴⌋/2⁶⁴ just below e^(ε/2), and E = H² ≤ e^ε. Report, state and server cost are the same
    as for `OUE`. See `ldp.oracle` for `epsilon` and `domain_size`.

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
    """Returns bounds of an honest report's Hamming weight, at a risk of 10⁻¹².

    The Hamming weight is X + Y with independent X and Y. X is the bit of the user's value, which is 1 with probability
    p. Y is the sum of the other d−1 bits. Each of these is 1 with probability q. The bounds are the largest ``low``
    with P[weight < low] ≤ 5·10⁻¹³ and the smallest ``high`` with P[weight > high] ≤ 5·10⁻¹³.

    The bounds decide which reports count, so they must be the same integers on every machine. The distribution is
    therefore computed in integers, from its mode outwards, as multiples of 2⁻²⁵⁶ of the mode's probability. Each step
    rounds down by at most one unit. Rounding matters only if a tail is within a factor of 1 ± 2⁻¹⁶⁰ of 5·10⁻¹³.

    Returns:
        (low, high) with 0 ≤ low ≤ high ≤ d. O(√(d·q)) steps with big integers, at most 0.3 s at d = 2²⁴.

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
    most = sum(law) // (2 * UNLIKELY)  # largest probability of a tail
    low = first + sum(tail <= most for tail in accumulate(law))
    high = first + len(law) - 1 - sum(tail <= most for tail in accumulate(reversed(law)))
    return low, high
