"""Compares accuracy and cost of all protocols.

The results are computed, not measured. Accuracy follows from p and q. Costs are numbers of bytes and steps.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from fractions import Fraction
from statistics import NormalDist
from typing import Any

from ldp import sampling, wire
from ldp.arguments import MAX_DOMAIN, as_integer
from ldp.oracles import ORACLES, Oracle

TOLERANCE = 1.05
"""Largest ratio of standard errors that counts as equal; 10 % more reports compensate for it."""
MISS = 0.05  # Probability of a false positive, and of a miss, in the definition of `Candidate.detectable`

_COUNTER = 8
_COSTS = {
    "cost": "the lowest cost per report",
    "frame_bytes": "the smallest frame",
    "state_bytes": "the smallest state",
    "decode_steps": "the fewest decoding steps",
}
_COST_UNIT = {("index",): "counter", ("indices",): "counter", ("bits",): "bit", ("seed", "bucket"): "hash"}


@dataclass(frozen=True)
class Candidate:
    """One protocol of a plan.

    Attributes:
        document: the protocol's part of a stream's public document, with the best integer parameters for ε and d.
        standard_error: σ of f̃ for an absent value (Equation 5).
        detectable: smallest frequency that is detected with 95 % power at a 5 % false-positive rate over d absent
            values: f = z₁·σ(0) + z₂·σ(f), with the normal quantiles z₁ at 1 − 0.05/d and z₂ at 0.95. The normal
            approximation is rough if n·q is below 10. None if even f = 1 is not detected.
        frame_bytes: size of a binary frame with one report.
        cost: number of units that the server processes per report.
        unit: "counter" (one increment), "bit" (added to its counter), or "hash" (computed and compared).
        state_bytes: size of the counters of one window of one partition.
        decode_steps: K·log₂K if each snapshot decodes K counters with a transform, else 0.
    """

    document: dict[str, Any]
    standard_error: float
    detectable: float | None
    frame_bytes: int
    cost: int
    unit: str
    state_bytes: int
    decode_steps: int

    @property
    def protocol(self) -> str:
        """The protocol's name."""
        name: str = self.document["protocol"]
        return name


@dataclass(frozen=True)
class Plan:
    """Comparison of all protocols for one ε, d and number of reports.

    `rows` lists the recommended protocol, then the other protocols by standard error. `reason` explains the choice.
    `not_applicable` maps a protocol to the reason why it cannot be used.
    """

    epsilon: Fraction
    domain_size: int
    reports: int
    rows: tuple[Candidate, ...]
    reason: str
    not_applicable: dict[str, str]

    def document(self) -> dict[str, Any]:
        """Returns the plan as a JSON object."""
        return {
            "epsilon": f"{self.epsilon.numerator}/{self.epsilon.denominator}",
            "domain_size": self.domain_size,
            "reports": self.reports,
            "recommended": self.rows[0].protocol,
            "reason": self.reason,
            "protocols": [{"protocol": row.protocol} | asdict(row) for row in self.rows],
            "not_applicable": self.not_applicable,
        }


def plan(epsilon: str | int | Fraction, domain_size: int, reports: int) -> Plan:
    """Compares all registered protocols, each with its own best parameters.

    Among the protocols with a standard error within 5 % of the lowest, it recommends the protocol with the lowest cost
    per report. Ties are broken by the smallest frame, then the smallest state, then the fewest decoding steps.
    `epsilon` is as for `ldp.oracle`, and `domain_size` is at least 2. `reports` is the expected number of reports in a
    snapshot.

    Raises:
        TypeError: a float ε; a domain size or number of reports that is not an int.
        ValueError: an ε, domain size or number of reports that is not allowed.

    Example:
        >>> row = plan("1", domain_size=1024, reports=1_000_000).rows[0]
        >>> f"{row.protocol}: {row.standard_error:.5f}, {row.frame_bytes} bytes, {row.cost} {row.unit}"
        'pgr: 0.00194, 7 bytes, 1 counter'
    """
    exact = sampling.parse_epsilon(epsilon)
    sampling.exp_below(exact)  # raises ValueError if ε is too small for every protocol
    d = as_integer("domain_size", domain_size, 2, MAX_DOMAIN)  # one value: the reports contain no information
    n = as_integer("reports", reports, 1, (1 << 63) - 1)
    rows, not_applicable = [], {}
    for name, protocol in ORACLES.items():
        try:
            row = _candidate(protocol(exact, d), n)
        except ValueError as error:
            not_applicable[name] = str(error)
            continue
        if row.frame_bytes > wire.LARGEST_FRAME:
            not_applicable[name] = (
                f"a frame has {row.frame_bytes:,} bytes; allowed are {wire.LARGEST_FRAME:,}, "
                "the limit of a record by Kafka's defaults"
            )
        else:
            rows.append(row)
    rows.sort(key=lambda row: row.standard_error)
    best, reason = _recommended(rows)
    return Plan(exact, d, n, (best, *(row for row in rows if row is not best)), reason, not_applicable)


def _candidate(oracle: Oracle, n: int) -> Candidate:
    p, q = oracle.p, oracle.q
    scale = n * (p - q) ** 2
    absent, present = float(q * (1 - q) / scale), float(p * (1 - p) / scale)
    length = 1 if oracle.length is None else oracle.length
    unit = _COST_UNIT[tuple(oracle.fields)]
    per_value = unit in ("hash", "bit")
    decoded = type(oracle).support is not Oracle.support
    K = oracle.state_size
    return Candidate(
        document=oracle.parameters(),
        standard_error=math.sqrt(absent),
        detectable=_detectable(oracle.domain_size, absent, present),
        frame_bytes=wire.frame_bytes(oracle.report_bytes),
        cost=oracle.domain_size if per_value else length,
        unit=unit,
        state_bytes=_COUNTER * K,
        decode_steps=round(K * math.log2(K)) if decoded else 0,
    )


def _detectable(d: int, absent: float, present: float) -> float | None:
    """Returns `Candidate.detectable` for the variances at f = 0 and f = 1."""
    z = NormalDist().inv_cdf(1 - MISS)
    threshold = -NormalDist().inv_cdf(MISS / d) * math.sqrt(absent)
    if threshold > 1:
        return None
    middle = threshold + z * z * (present - absent) / 2
    found = middle + math.sqrt(middle**2 - threshold**2 + z * z * absent)
    return found if found <= 1 else None


def percent(share: float) -> str:
    """Formats a share in percent with three significant digits.

    Example:
        >>> percent(0.0019234), percent(63.24)
        ('0.192 %', '6,320 %')
    """
    return f"{float(f'{100 * share:.3g}'):,g} %"


def _recommended(rows: list[Candidate]) -> tuple[Candidate, str]:
    """Returns the recommended row and the reason. `rows` are sorted by error."""
    least = rows[0]
    near = [row for row in rows if row.standard_error <= TOLERANCE * least.standard_error]
    best = min(near, key=lambda row: [getattr(row, cost) for cost in _COSTS])
    if best is least:
        error = f"its standard error, {percent(best.standard_error)}, is the lowest"
    else:
        more = 100 * (best.standard_error / least.standard_error - 1)
        error = (
            f"its standard error, {percent(best.standard_error)}, is {more:.1f} % above the lowest, "
            f"{percent(least.standard_error)} ({least.protocol})"
        )
    rivals = [row for row in near if row is not best]
    if not rivals:
        further = rows[1:2]
        return best, error + "".join(
            f"; the next, {percent(row.standard_error)} ({row.protocol}), is not within 5 %"
            for row in further
        )
    costs = []
    equal = rivals
    for cost, name in _COSTS.items():
        costs.append(name)
        equal = [row for row in equal if getattr(row, cost) == getattr(best, cost)]
        if not equal:
            break
    tie = f" (like {_names(equal)})" if equal else ""
    return best, f"{error}; compared with {_names(rivals)}, within 5 %, it has {', then '.join(costs)}{tie}"


def _names(rows: list[Candidate]) -> str:
    return ", ".join(row.protocol for row in rows)
