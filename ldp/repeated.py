"""Several reports of each device, as a stream declares them."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ldp.intervals.binomial_tail import top_bounds
from ldp.intervals.repeats import Repeats

if TYPE_CHECKING:
    from ldp.intervals.score import Of
    from ldp.oracles.oracle import Oracle
    from ldp.privacy.declaration import Declaration

Vector = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]


class Repeated:
    """Errors of an estimate by its stream's declaration.

    The attributes are those of `ldp.Estimate`.
    """

    n: int
    oracle: Oracle
    windows: tuple[tuple[int, int], ...]
    privacy: Declaration | None
    frequencies: Vector
    counts: npt.NDArray[np.int64] | None

    @property
    def per_device(self) -> int:
        """The most reports of a device among the n reports, by the declaration.

        In the windows, a device has r reports in each of the declared periods that they overlap. Without a window, it
        has the reports of a horizon. It is 1 without a declaration.
        """
        if self.privacy is None:
            return 1
        return min(self.privacy.most_reports_in(self.windows), self.n)

    @property
    def memoised(self) -> bool:
        """Whether devices have several reports that share memoised noise."""
        return self.privacy is not None and self.privacy.memoised and self.per_device > 1

    def repeated_variance(self, variance: float, m: int) -> float:
        """Returns the variance of a report's support in m values, with repeats.

        If devices have k reports of memoised noise, Var f̃ = V/(n(p−q)²) with this result as V. See
        `Oracle.repeated_variance`. It is `variance` if reports are independent, as with fresh noise.
        """
        return self.oracle.repeated_variance(variance, m, self.per_device) if self.memoised else variance

    def refuse_memoised(self, what: str) -> None:
        """Raises ValueError if devices have several reports with memoised noise."""
        if self.memoised:
            raise ValueError(
                f"the stream has up to {self.per_device} reports of a device with memoised noise; {what} need"
                " independent reports"
            )

    def top_bounds(self, values: Indices, level: float, of: Of) -> tuple[Vector, Vector]:
        """Returns `ldp.query.top_interval` for the (k,) most frequent values."""
        oracle, counts = self.oracle, self.nearest_counts(values)
        if self.per_device == 1 or not (self.memoised or of == "population"):
            return top_bounds(counts, self.n, oracle.p, oracle.q, oracle.domain_size, level, of)
        fresh = (Fraction(1), Fraction(0)), (oracle.p, oracle.q)
        repeats = Repeats(self.per_device, *(oracle.memoised_stages if self.memoised else fresh))
        return repeats.top_bounds(counts / self.n, self.n, oracle.domain_size, level, of)

    def nearest_counts(self, values: Indices) -> Vector:
        """Returns (k,) support counts, computed from frequencies if unknown."""
        if self.counts is not None:
            return self.counts[values].astype(np.float64)
        p, q = self.oracle.p, self.oracle.q
        nearest: Vector = np.rint(self.n * (float(q) + float(p - q) * self.frequencies[values]))
        return np.clip(nearest, 0.0, self.n)
