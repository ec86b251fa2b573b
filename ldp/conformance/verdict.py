"""The verdict on a client: pass, fail, or too few reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ldp.conformance import channel, repeating
from ldp.conformance.spending import Spent, spent
from ldp.conformance.timing import APART, times
from ldp.oracles import RatedResponse, Response

if TYPE_CHECKING:
    from ldp.conformance.running import Command
    from ldp.conformance.timing import Times
    from ldp.oracles import Oracle

PASS, FAIL, TOO_FEW = "pass", "fail", "too few reports"
MOST_VALUES = 8  # So many values have reports of their own
OTHERS = 16  # further values whose support is tested
SHOWN = 0.75
"""The share of ε that the reports have to show, or they would not show a client that spends much more either."""
LARGE = 3.0  # Of a larger ε as much as of this: nobody sees an event of e⁻⁸ often
_TIMED = 200  # Reports of each value that are timed
_SEED = 1


@dataclass(frozen=True)
class Verdict:
    """The result of a conformance test; `findings` are what no honest client does, the clearest first.

    `spent` is None for a single value, `times` if the client does not answer line by line.
    """

    verdict: str
    reports: int
    comparisons: int
    findings: Sequence[str]
    spent: Spent | None
    times: Times | None = field(default=None)


def chosen(d: int, own: Sequence[int] = ()) -> tuple[list[int], list[int]]:
    """The values to report, and others to test: the first, the last, those asked for, some at random."""
    rng = np.random.default_rng(_SEED)
    drawn = (
        rng.permutation(d)[: MOST_VALUES + OTHERS].tolist()
        if d <= 1 << 20
        else rng.integers(d, size=MOST_VALUES + OTHERS).tolist()
    )
    order = list(dict.fromkeys([*own, 0, d - 1, *drawn]))
    return sorted(order[: max(MOST_VALUES, len(own))]), sorted(order[max(MOST_VALUES, len(own)) :][:OTHERS])


def assess(command: Command, reports: int, alarm: float, own: Sequence[int] = ()) -> Verdict:
    """Has a client make reports, in two runs of the same values, and compares them with the law.

    `alarm` is the probability that an honest client fails; `own` are values to test in addition. Raises ClientError if
    it makes no reports, or none that a worker would accept.
    """
    oracle = command.stream.oracle
    values, others = chosen(oracle.domain_size, own)
    each = max(reports // (2 * len(values)), 1)
    rng = np.random.default_rng(_SEED)
    order = rng.permutation(np.repeat(np.array(values), each))
    runs = [command.report(order) for _ in range(2)]
    made = {v: np.concatenate([run[order == v] for run in runs]) for v in values}
    compared: list[channel.Rate | channel.Cells] = []
    for v in values:
        compared += channel.evidence(oracle, v, made[v], [*values, *others])
        compared += repeating.repeated(oracle, v, *(run[order == v] for run in runs))
    risk = alarm / 2 / len(compared)
    unlikely = sorted((one.p_value, one.said) for one in compared)
    findings = [f"{said} (p = {p:.1g})" for p, said in unlikely if p < risk]
    least = spent(oracle, made, alarm / 4) if len(values) > 1 else None
    if least is not None and least.epsilon > float(oracle.epsilon):
        findings.insert(0, _leak(oracle, least))
    took = times(command, rng.permutation(np.repeat(np.array(values), _TIMED)))
    if took is not None and took.p_value < alarm / 4 and took.ratio > APART:
        findings.append(f"{took.said} (p = {took.p_value:.1g})")
    few = least is not None and least.epsilon < SHOWN * min(_least_promised(oracle), LARGE)
    verdict = FAIL if findings else TOO_FEW if few else PASS
    return Verdict(verdict, 2 * order.size, len(compared), findings, least, took)


def _least_promised(oracle: Oracle) -> float:
    """The ε that an honest client spends at least; with several rates that of the highest."""
    return float(Response(oracle.p, 2).epsilon if isinstance(oracle, RatedResponse) else oracle.epsilon)


def _leak(oracle: Oracle, least: Spent) -> str:
    return (
        f"it spends ε ≥ {least.epsilon:.3f}, {float(oracle.epsilon):.3f} is promised: that {least.event} is so much"
        f" more frequent of value {least.value} than of {least.other}"
    )
