"""Unary encoding: the report is a vector of bits, one for each value, each perturbed by itself.

`OUE` (paper, Section III-B) and `SUE`, basic RAPPOR; they differ only in how a bit is perturbed.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

from ldp import sampling
from ldp.oracles.oracle import Oracle

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class _Unary(Oracle):
    """The bit of the own value is 1 with probability p, each other with q, all independent.

    Two users' vectors differ in two bits, so the ratio of their probabilities for one report is at most
    p(1−q)/((1−p)q), which is E for both protocols.
    """

    def __init__(self, epsilon: str | int | Fraction, domain_size: int) -> None:
        super().__init__(epsilon, domain_size)
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

        kernels.count_bits(state, self._column(reports, "bits"))

    def _well_formed(self, reports: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
        import numpy as np

        if self.domain_size % 8 == 0:
            return np.ones(reports.size, np.bool_)
        good: npt.NDArray[np.bool_] = reports["bits"][:, -1] < 1 << self.domain_size % 8
        return good

    def _allowed(self) -> str:
        return f"the bits from {self.domain_size} on must be 0"


class OUE(_Unary):
    """Optimized Unary Encoding: a 1 stays with probability 1/2, a 0 becomes 1 with probability 1/(E+1).

    Its variance is that of OLH with the same E for a value that nobody has, whatever d is; the report is d
    bits instead of a few bytes, and the server's work is to add them.

    Report: ``bits``, ⌈d/8⌉ bytes; value v is bit v mod 8 of byte v div 8, padding 0. State: d counters.
    Server: d bits added a report.

    Args:
        epsilon: ε as "1", "0.5", "1/3", an int or a Fraction; 0 < ε ≤ 64.
        domain_size: d, 1 ≤ d ≤ 2²⁴.

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


class SUE(_Unary):
    """Symmetric Unary Encoding, which is basic RAPPOR: every bit flips with probability 1/(H+1).

    H is the rational just below e^(ε/2), ⌊e^(ε/2)·2⁶⁴⌋/2⁶⁴, and E = H², so E ≤ e^ε as it must be: here E is
    not rounded down by itself.

    Report: ``bits``, ⌈d/8⌉ bytes; value v is bit v mod 8 of byte v div 8, padding 0. State: d counters.
    Server: d bits added a report.

    Args:
        epsilon: ε as "1", "0.5", "1/3", an int or a Fraction; 0 < ε ≤ 64.
        domain_size: d, 1 ≤ d ≤ 2²⁴.

    Example:
        >>> sue = SUE("1", domain_size=100)
        >>> round(float(sue.p), 4), sue.p + sue.q
        (0.6225, Fraction(1, 1))
    """

    name: ClassVar[str] = "sue"

    def __init__(self, epsilon: str | int | Fraction, domain_size: int) -> None:
        super().__init__(epsilon, domain_size)
        half = sampling.exp_below(self.epsilon / 2)
        self.E = half * half
        self.p = half / (half + 1)
        self.q = 1 / (half + 1)
