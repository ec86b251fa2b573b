"""A binary response whose rate comes with each report: as browsers publish it beside what they report."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

from ldp import arguments, sampling
from ldp.oracles.response import Response, channel

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

    from ldp.estimate import Estimate

MOST_RATES = 16
UNDECLARED = 255
"""What stands in a report for a rate that the document does not declare: it is rejected, and counted as such."""


class RatedResponse(Response):
    """Randomized response of two values at one of several rates; each report carries its rate.

    A client replaces its value with probability r, the rate, by a fair coin: it is reported with probability p = 1 −
    r/2, the other with q = r/2 (``randomizedTriggerRate`` of the W3C's Navigation Timing). The reports of each rate
    are counted separately, and `RatedEstimate` combines them. With two values the variance of a count does not depend
    on the users'.

    Report: ``rate``, its index, and ``value``, a byte each. State: two counters a rate. Server: one increment a report.

    Args:
        rates: 1 to 16, ascending, each above 0 and below 1, as "1/2", "0.4994798" or a Fraction.
        domain_size: 2.
        epsilon: left out.

    Attributes:
        rates: as given, exact.
        epsilon: of the lowest rate: no report spends more.
        p: of the highest rate, which `perturb` uses.
        q: of the highest rate.

    Example:
        >>> rated = RatedResponse(["0.4994798", "3/4"])
        >>> float(rated.epsilon), rated.p, rated.parameters()["rates"]
        (1.1, Fraction(5, 8), ['2497399/5000000', '3/4'])
    """

    exact: ClassVar[tuple[str, ...]] = ("rates",)

    def __init__(
        self, rates: Sequence[str | Fraction], domain_size: int = 2, *, epsilon: str | None = None
    ) -> None:
        if not isinstance(rates, list | tuple):
            raise TypeError(f"rates must be a list of texts, not {type(rates).__name__}")
        if not 1 <= len(rates) <= MOST_RATES:
            raise ValueError(f"there are {len(rates)} rates; allowed are 1 to {MOST_RATES}")
        self.rates = tuple(sampling.parse_probability(f"rates[{i}]", rate) for i, rate in enumerate(rates))
        for i, rate in enumerate(self.rates):
            if not 0 < rate < 1:
                raise ValueError(f"rates[{i}] is {rate}; allowed is above 0 and below 1")
        for i, (one, other) in enumerate(pairwise(self.rates), 1):
            if other <= one:
                raise ValueError(f"rates[{i}] is {other}, after {one}; they must ascend")
        arguments.as_integer("domain_size", domain_size, 2, 2)
        super().__init__(1 - self.rates[-1] / 2, 2)
        self._set_epsilon(channel(self.rates[0]), epsilon)
        self.fields = {"rate": 256, "value": 2}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({[str(rate) for rate in self.rates]!r})"

    def parameters(self) -> dict[str, Any]:
        """The protocol's part of a stream's public document: see `Oracle.parameters`."""
        rates = [sampling.written(rate) for rate in self.rates]
        return {"protocol": self.name, "rates": rates, "domain_size": 2}

    def perturb_one(self, value: int) -> tuple[int, ...]:
        """(rate, value), at the highest rate: see `Oracle.perturb_one`."""
        return (len(self.rates) - 1, *super().perturb_one(value))

    def _perturb(
        self, values: npt.NDArray[np.int64], reports: npt.NDArray[np.void], rng: np.random.Generator | None
    ) -> None:
        reports["rate"] = len(self.rates) - 1
        reports["value"] = self._responses(values, rng)

    @property
    def state_size(self) -> int:
        """Two counters a rate: how many reports of it are of each value."""
        return 2 * len(self.rates)

    def declared(self, reports: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
        """Which reports have a rate of the document; see `Oracle.declared`."""
        arguments.check_reports(reports, self.report_dtype)
        known: npt.NDArray[np.bool_] = reports["rate"] < len(self.rates)
        return known

    def _accumulate(self, state: npt.NDArray[np.int64], reports: npt.NDArray[np.void]) -> None:
        from ldp import kernels

        if not self.declared(reports).all():
            raise ValueError(f"a report's rate is none of the {len(self.rates)} that are declared")
        kernels.count_indices(state, 2 * reports["rate"] + reports["value"])

    def support(self, state: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """For each value the number of reports of it, at whatever rate: see `Oracle.support`."""
        counts: npt.NDArray[np.int64] = super().support(state).reshape(-1, 2).sum(axis=0)
        return counts

    def estimate(self, counts: npt.ArrayLike, n: int) -> Estimate:  # noqa: ARG002  # of the contract
        """Raises ValueError: counts without rates do not determine an estimate; use `estimate_state`."""
        raise ValueError(
            "supports alone do not say at which rates the reports were; give the state's counters, two a rate"
        )

    def estimate_state(self, state: npt.NDArray[np.int64], n: int) -> Estimate:
        """The pooled estimate of all rates: see `ldp.oracles.rated_estimate.pooled`."""
        from ldp.oracles.rated_estimate import pooled

        return pooled(self, state, n)
