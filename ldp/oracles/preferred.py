"""Base class of Hadamard Response and PGR."""

from __future__ import annotations

from abc import abstractmethod
from fractions import Fraction
from typing import TYPE_CHECKING

from ldp.arguments import exact_total
from ldp.oracles.oracle import Oracle

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_TOGETHER = 1 << 15  # messages drawn together, which fit the second-level cache


class PreferredMessages(Oracle):
    """A protocol in which each value prefers c of K messages.

    A report is one of the K messages (`state_size`) and supports the values that prefer it. Let π = 1/((E−1)c + K). A
    device reports each preferred message with probability E·π, and each other message with probability π. To do so, it
    reports a uniform preferred message with probability (E−1)cπ, and otherwise a uniform message of all K.

    For each m, the first P = 1 + q̄ + … + q̄^(m−1) values form a subspace (q̄ is 2 for Hadamard). Every message supports
    either (P − 1)/q̄ or all P of these values. `estimate` rejects counts with impossible sums over these first values.

    Attributes:
        preferred: c.
        prime: q̄.
    """

    preferred: int
    prime: int
    _near: Fraction  # (E−1)cπ

    @abstractmethod
    def _messages(
        self, values: npt.NDArray[np.int64], places: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """Returns for each value the preferred message at a place in 0..c−1."""

    @abstractmethod
    def _supported(self, subset: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Returns the number of a set's values that each message supports."""

    def accumulate_runs(
        self, addresses: npt.NDArray[np.int64], runs: npt.NDArray[np.int64], reports: npt.NDArray[np.void]
    ) -> None:
        """Counts as `Oracle.accumulate_runs`."""
        from ldp import kernels

        kernels.count_indices(addresses, runs[0], runs[1], self.column(reports, "index"))

    def _simulate(self, histogram: npt.NDArray[np.int64], rng: np.random.Generator) -> npt.NDArray[np.int64]:
        import numpy as np

        near = rng.binomial(histogram, float(self._near))
        anywhere = int(histogram.sum() - near.sum())
        state: npt.NDArray[np.int64] = rng.multinomial(
            anywhere, np.full(self.state_size, 1 / self.state_size)
        )
        many = np.flatnonzero(near > self.preferred)  # draws the number of reports of each message
        rows = max(1, _TOGETHER // self.preferred)
        for start in range(0, many.size, rows):
            values = many[start : start + rows]
            spread = rng.multinomial(near[values], np.full(self.preferred, 1 / self.preferred)).ravel()
            for first in range(0, spread.size, _TOGETHER):
                users = spread[first : first + _TOGETHER]
                row, places = np.divmod(np.arange(first, first + users.size), self.preferred)
                np.add.at(state, self._messages(values[row], places), users)
        few = np.flatnonzero((near > 0) & (near <= self.preferred))  # draws the message of each user
        ends = np.cumsum(near[few])
        for start in range(0, near[few].sum(), _TOGETHER):
            first, last = np.searchsorted(ends, [start, start + _TOGETHER - 1], side="right")
            here = np.minimum(ends[first : last + 1], start + _TOGETHER)
            values = np.repeat(few[first : last + 1], np.diff(here, prepend=start))
            np.add.at(state, self._messages(values, rng.integers(self.preferred, size=values.size)), 1)
        return self.support(state)

    def sum_law(self) -> tuple[float, float]:
        """Returns the largest variance and the step; see `Oracle.sum_law`."""
        import numpy as np

        everything = np.arange(self.domain_size)
        supported = self._supported(everything)
        if supported.min() == supported.max():
            return 0.0, 0.0
        mean = float(self.p + (self.domain_size - 1) * self.q)
        return float(self._set_variances(everything).max()), float(np.abs(supported - mean).max())

    def _check_sums(self, counts: npt.NDArray[np.int64], n: int) -> None:
        some, block, more = 0, 1, 1  # sizes of the previous subspace and of this one, and their difference
        most = n
        while block <= self.domain_size:
            if block == self.state_size:  # no message supports all values
                most = 0
            total = exact_total(counts[:block])
            messages, rest = divmod(total - some * n, more)
            if rest or not 0 <= messages <= most:
                raise ValueError(
                    f"counts of the first {block} values sum to {total}; each report supports {some} or all of them, "
                    f"all in at most {most} reports, so allowed is {some * n} + j·{more} for j = 0 to {most}"
                )
            some, most, more = block, messages, more * self.prime
            block += more

    def supported_of(self, subset: npt.NDArray[np.int64]) -> tuple[int, int]:
        """Returns the extremes over all messages; see `Oracle.supported_of`."""
        supported = self._supported(subset)
        return int(supported.min()), int(supported.max())

    def _set_variances(self, subset: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Returns V_u from E[X²|u] = π·ΣX² + (E−1)π·Σ_u X². O(K log K).

        X is the number of the set's values that a message supports, minus the integer nearest to the mean m·c/K. This
        keeps X² small. Σ_u sums over the messages that u prefers, so Σ_u X² is the support of u in a state with the
        counters X².
        """
        import numpy as np

        m, K, c = subset.size, self.state_size, self.preferred
        middle = (2 * m * c + K) // (2 * K)
        squares = (self._supported(subset) - middle) ** 2
        pi = 1 / ((self.E - 1) * c + K)
        outside = m * self.q - middle
        inside = outside + self.p - self.q
        everywhere = pi * int(squares.sum())
        variances = np.full(self.domain_size, float(everywhere - outside**2))
        variances[subset] = float(everywhere - inside**2)
        variances += float((self.E - 1) * pi) * self.support(squares)
        return variances.clip(min=0.0)  # rounding can make a variance negative if X is constant
