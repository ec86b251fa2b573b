"""Generalized Randomized Response (paper, Section III-A, Equation 1)."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

from ldp import sampling
from ldp.arguments import exact_total
from ldp.oracles.oracle import Oracle

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class GRR(Oracle):
    """Generalized Randomized Response, also called direct encoding or k-RR.

    The device reports its user's value with probability p = E/(E+d−1) and each other value with q = 1/(E+d−1). The
    ratio of a report's probabilities under two values is therefore at most p/q = E ≤ e^ε. The variance grows with d. It
    is lower than that of OLH if d is less than about 3E + 2.

    Report: ``index`` (1, 2 or 4 bytes). State: d counters. Server: one increment per report.

    See `ldp.oracle` for `epsilon` and `domain_size`.

    Example:
        >>> grr = GRR("1", domain_size=4)
        >>> state = grr.zeros()
        >>> grr.accumulate(state, grr.perturb([0, 1, 1, 3, 3]))
        >>> int(grr.support(state).sum())
        5
    """

    name: ClassVar[str] = "grr"

    def __init__(self, epsilon: str | int | Fraction, domain_size: int) -> None:
        super().__init__(epsilon, domain_size)
        self.p = self.E / (self.E + self.domain_size - 1)
        self.q = 1 / (self.E + self.domain_size - 1)
        self.fields = {"index": self.domain_size}

    def perturb_one(self, value: int) -> tuple[int, ...]:
        """Returns a report (index,); see `Oracle.perturb_one`."""
        return (sampling.respond(self._checked_value(value), self.domain_size, self.E),)

    def _perturb(
        self, values: npt.NDArray[np.int64], reports: npt.NDArray[np.void], rng: np.random.Generator | None
    ) -> None:
        reports["index"] = sampling.responses(values, self.domain_size, self.E, rng=rng)

    def accumulate_runs(
        self, addresses: npt.NDArray[np.int64], runs: npt.NDArray[np.int64], reports: npt.NDArray[np.void]
    ) -> None:
        """Counts as `Oracle.accumulate_runs`."""
        from ldp import kernels

        kernels.count_indices(addresses, runs[0], runs[1], self.column(reports, "index"))

    def _simulate(self, histogram: npt.NDArray[np.int64], rng: np.random.Generator) -> npt.NDArray[np.int64]:
        import numpy as np

        kept = rng.binomial(histogram, float(self.p - self.q))  # the other users draw a uniform value
        others = int(histogram.sum() - kept.sum())
        counts: npt.NDArray[np.int64] = kept + rng.multinomial(
            others, np.full(self.domain_size, 1 / self.domain_size)
        )
        return counts

    def _check_sums(self, counts: npt.NDArray[np.int64], n: int) -> None:
        if (total := exact_total(counts)) != n:
            raise ValueError(
                f"counts sum to {total}; each report supports one value: the sum must be n = {n}"
            )

    @property
    def most_supported(self) -> int:
        """1, because a report supports exactly one value."""
        return 1

    def supported_of(self, subset: npt.NDArray[np.int64]) -> tuple[int, int]:
        """Returns (1, 1) for the whole domain, and (0, 1) for any other set."""
        return int(subset.size == self.domain_size), 1

    def _two_variances(self, m: int) -> tuple[Fraction, Fraction]:
        present, absent = self.p + (m - 1) * self.q, m * self.q
        return present * (1 - present), absent * (1 - absent)
