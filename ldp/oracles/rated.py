"""Binary randomized response with a rate in each report."""

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
"""Rate index of a report whose rate is not in the document; workers reject it with the reason ``rate``."""


class RatedResponse(Response):
    """Randomized response of two values; each report carries its rate.

    The rate r is the probability that a client replaces its value by a fair coin toss. A report therefore has the
    user's value with probability p = 1 − r/2 and the other value with q = r/2. The W3C's Navigation Timing calls the
    rate ``randomizedTriggerRate``. The reports of each rate are counted separately, and `RatedEstimate` combines them.
    The variance of a count does not depend on the users' values, because the domain has only two values.

    Report: ``rate`` (an index) and ``value``, one byte each. State: two counters per rate. Server: one increment per
    report.

    Args:
        rates: 1 to 16 ascending rates, each above 0 and below 1, as "1/2", "0.4994798" or a Fraction.
        domain_size: always 2.
        epsilon: omit it.

    Attributes:
        rates: the exact rates.
        epsilon: ε at the lowest rate, the largest ε of a report.
        p: probability of the user's value at the highest rate, which `perturb` uses.
        q: probability of the other value at the highest rate.

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
            raise TypeError(f"rates must be a list of strings, not {type(rates).__name__}")
        if not 1 <= len(rates) <= MOST_RATES:
            raise ValueError(f"there are {len(rates)} rates; allowed are 1 to {MOST_RATES}")
        self.rates = tuple(sampling.parse_probability(f"rates[{i}]", rate) for i, rate in enumerate(rates))
        for i, rate in enumerate(self.rates):
            if not 0 < rate < 1:
                raise ValueError(f"rates[{i}] is {rate}; it must be above 0 and below 1")
        for i, (one, other) in enumerate(pairwise(self.rates), 1):
            if other <= one:
                raise ValueError(f"rates[{i}] is {other}, after {one}; they must ascend")
        if (d := arguments.as_integer("domain_size", domain_size, 2, arguments.MAX_DOMAIN)) > 2:
            equal = ", ".join(f"p = {1 - rate + rate / d} for the rate {rate}" for rate in self.rates)
            raise ValueError(
                f"domain_size is {d}; with rates it must be 2. For {d} values, give p = 1 − rate + rate/{d} instead of"
                f" one rate: {equal}"
            )
        super().__init__(1 - self.rates[-1] / 2, 2)
        self._set_epsilon(channel(self.rates[0]), epsilon)
        self.fields = {"rate": 256, "value": 2}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({[str(rate) for rate in self.rates]!r})"

    def parameters(self) -> dict[str, Any]:
        """Returns the protocol's part of the document; see `Oracle.parameters`."""
        rates = [sampling.written(rate) for rate in self.rates]
        return {"protocol": self.name, "rates": rates, "domain_size": 2}

    def perturb_one(self, value: int) -> tuple[int, ...]:
        """Returns a report (rate, value) at the highest rate."""
        return (len(self.rates) - 1, *super().perturb_one(value))

    def _perturb(
        self, values: npt.NDArray[np.int64], reports: npt.NDArray[np.void], rng: np.random.Generator | None
    ) -> None:
        reports["rate"] = len(self.rates) - 1
        reports["value"] = self._responses(values, rng)

    @property
    def state_size(self) -> int:
        """Length of the state: one counter per value and rate."""
        return 2 * len(self.rates)

    def declared(self, reports: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
        """Returns an (n,) mask of the reports whose rate is in `rates`."""
        arguments.check_reports(reports, self.report_dtype)
        known: npt.NDArray[np.bool_] = reports["rate"] < len(self.rates)
        return known

    def _accumulate(self, state: npt.NDArray[np.int64], reports: npt.NDArray[np.void]) -> None:
        from ldp import kernels

        if not self.declared(reports).all():
            raise ValueError(f"a report has a rate that is not one of the {len(self.rates)} declared rates")
        kernels.count_indices(state, 2 * reports["rate"] + reports["value"])

    def estimate(self, counts: npt.ArrayLike, n: int) -> Estimate:
        """Returns the pooled estimate; see `ldp.oracles.rated_estimate.pooled`.

        `counts` is (2·rates,): for each rate, the number of reports of each value.
        """
        from ldp.oracles.rated_estimate import pooled

        return pooled(self, counts, n)
