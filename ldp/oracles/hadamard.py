"""Hadamard Response (paper, Section III-B)."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

from ldp import sampling
from ldp.oracles.preferred import PreferredMessages

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class HadamardResponse(PreferredMessages):
    """Hadamard Response: the report is a column index of a Hadamard matrix.

    K is the smallest power of two above d. The K×K Hadamard matrix has the entry (−1)^popcount(r AND j) in row r and
    column j. Row v+1 belongs to value v and is +1 in half of the columns. The report is one of these columns with
    probability p = E/(E+1), and otherwise a column of the other half. The ratio of a report's probabilities under two
    values is therefore at most E ≤ e^ε. A report supports each value whose row is +1 in the reported column. It
    supports its user's value with probability p, and any other value with q = 1/2. The variance equals that of OLH with
    two buckets.

    Report: ``index`` (1, 2 or 4 bytes). State: K counters. Server: one increment per report. Decoding is one fast
    Walsh–Hadamard transform, O(K·log K).

    See `ldp.oracle` for `epsilon` and `domain_size`.

    Example:
        >>> hadamard = HadamardResponse("1", domain_size=845)
        >>> hadamard.state_size, round(float(hadamard.p), 4), hadamard.q
        (1024, 0.7311, Fraction(1, 2))
    """

    name: ClassVar[str] = "hadamard"
    prime = 2

    def __init__(self, epsilon: str | int | Fraction, domain_size: int) -> None:
        super().__init__(epsilon, domain_size)
        self.p = self.E / (self.E + 1)
        self.q = Fraction(1, 2)
        self.preferred = self.state_size // 2
        self._near = self.p - (1 - self.p)
        self.fields = {"index": self.state_size}

    @property
    def state_size(self) -> int:
        """K, the smallest power of two above d."""
        return 1 << self.domain_size.bit_length()

    def perturb_one(self, value: int) -> tuple[int, ...]:
        """Returns a report (index,); see `Oracle.perturb_one`."""
        row = self._checked_value(value) + 1
        column, own = sampling.integer(self.state_size), sampling.coin(self.p)
        odd = (column & row).bit_count() % 2
        # flipping the row's lowest set bit in a column index changes the sign, so it maps one half to the other
        return (column ^ (row & -row) * (odd == own),)

    def _perturb(
        self, values: npt.NDArray[np.int64], reports: npt.NDArray[np.void], rng: np.random.Generator | None
    ) -> None:
        import numpy as np

        rows = values + 1
        columns = sampling.integers(self.state_size, values.size, rng=rng)
        own = sampling.coins(self.p, values.size, rng=rng)
        odd = np.bitwise_count(columns & rows) % 2 == 1
        reports["index"] = np.where(odd == own, columns ^ (rows & -rows), columns)

    def support(self, state: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Returns the number of reports that support each value, as (d,) int64."""
        from ldp import kernels

        rows = super().support(state)
        kernels.walsh_hadamard(rows)
        counts: npt.NDArray[np.int64] = (rows[0] + rows[1 : self.domain_size + 1]) // 2  # rows[0] is n
        return counts

    def _messages(
        self, values: npt.NDArray[np.int64], places: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        import numpy as np

        rows = values + 1
        bit = rows & -rows
        columns: npt.NDArray[np.int64] = places + (places & -bit)  # inserts a 0 at the row's lowest set bit
        columns |= bit * (np.bitwise_count(columns & rows) & 1)  # sets this bit if the sign would be −1
        return columns

    def _supported(self, subset: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        from ldp import kernels

        columns = self.zeros()
        columns[subset + 1] = 1
        kernels.walsh_hadamard(columns)
        columns += subset.size  # half of this sum is the support, because the matrix is symmetric
        columns //= 2
        return columns
