"""Generalized Randomized Response with an explicit probability."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

from ldp import sampling
from ldp.arguments import MAX_DOMAIN, as_integer
from ldp.oracles.explicit import ExplicitChannel
from ldp.oracles.grr import GRR

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class Response(ExplicitChannel, GRR):
    """Generalized Randomized Response with explicit p: the channel of `GRR`.

    The device reports its user's value with probability p and each other value with q = (1−p)/(d−1). A report spends
    ε = ln(p/q). If a client replaces its value by a uniform random value with probability r, then p = 1 − r + r/d.

    Report: ``index`` (1, 2 or 4 bytes). State: d counters. Server: one increment per report.

    Args:
        p: probability of the user's value, as "3/4", "0.75" or a Fraction; 1/d < p < 1.
        domain_size: d, 2 ≤ d ≤ 2²⁴.
        epsilon: omit it.

    Example:
        >>> response = Response("3/4", domain_size=4)
        >>> response.q, response.E, float(response.epsilon)
        (Fraction(1, 12), Fraction(9, 1), 2.197225)
    """

    name: ClassVar[str] = "response"
    exact: ClassVar[tuple[str, ...]] = ("p",)

    def __init__(self, p: str | int | Fraction, domain_size: int, *, epsilon: str | None = None) -> None:
        self.domain_size = as_integer("domain_size", domain_size, 2, MAX_DOMAIN)
        self.p = sampling.parse_probability("p", p)
        self.q = (1 - self.p) / (self.domain_size - 1)
        if self.p <= self.q:
            turned = (
                "; with p below 1/2 swap the two values" if self.p < self.q and self.domain_size == 2 else ""
            )
            raise ValueError(
                f"p is {self.p}; it must be above 1/{self.domain_size}, so that reports carry information{turned}"
            )
        self._set_epsilon((self.p, self.q), epsilon)
        self.fields = {"index": self.domain_size}

    def perturb_one(self, value: int) -> tuple[int, ...]:
        """Returns a report (index,); see `Oracle.perturb_one`."""
        value = self._checked_value(value)
        # the mixture that p and q imply: the value with probability p − q, else a uniform value
        keep, other = sampling.coin(self.p - self.q), sampling.integer(self.domain_size)
        return (value if keep else other,)

    def _perturb(
        self, values: npt.NDArray[np.int64], reports: npt.NDArray[np.void], rng: np.random.Generator | None
    ) -> None:
        import numpy as np

        keep = sampling.coins(self.p - self.q, values.size, rng=rng)
        reports["index"] = np.where(keep, values, sampling.integers(self.domain_size, values.size, rng=rng))
