"""Combines all tests into a verdict: pass, fail, or too few reports."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ldp.conformance import channel, excess, repeating
from ldp.conformance.spending import Spent, enough, spent
from ldp.conformance.timing import APART, times

if TYPE_CHECKING:
    from ldp.conformance.excess import Excess
    from ldp.conformance.running import Command
    from ldp.conformance.timing import Times
    from ldp.oracles import Oracle

PASS, FAIL, TOO_FEW = "pass", "fail", "too few reports"
MOST_VALUES = 8  # Values that the client reports
OTHERS = 16  # Further values whose support is tested
SHOWN = 0.75
"""Smallest ratio of the lower bound to the document's ε for a pass. Below it, the test could miss a large excess."""
LARGE = 3.0  # Cap on ε in this ratio: for a larger ε the events are too rare to count
_TIMED = 200  # Timed reports per value
_SEED = 1


@dataclass(frozen=True)
class Verdict:
    """The result of a conformance test, with the strongest findings first.

    `spent` is None if only one value is tested. `times` is None if the client does not answer line by line. `excess` is
    None if only one value is tested, if ε is infinite, or if there are too few reports. `enough` is about the number of
    reports that suffice; None if there are not too few.
    """

    verdict: str
    reports: int
    comparisons: int
    findings: Sequence[str]
    spent: Spent | None
    times: Times | None
    excess: Excess | None
    enough: int | None


def chosen(d: int, own: Sequence[int] = ()) -> tuple[list[int], list[int]]:
    """Returns the values to report, including `own`, and other values to test."""
    rng = np.random.default_rng(_SEED)
    drawn = (
        rng.permutation(d)[: MOST_VALUES + OTHERS].tolist()
        if d <= 1 << 20
        else rng.integers(d, size=MOST_VALUES + OTHERS).tolist()
    )
    order = list(dict.fromkeys([*own, 0, d - 1, *drawn]))
    return sorted(order[: max(MOST_VALUES, len(own))]), sorted(order[max(MOST_VALUES, len(own)) :][:OTHERS])


def assess(command: Command, reports: int, alarm: float, own: Sequence[int] = ()) -> Verdict:
    """Runs a client twice on the same values, and returns the verdict.

    A conforming client fails with a probability of at most `alarm`. `own` are additional values to test. Raises
    ClientError if the client fails or makes a report that a worker would reject.
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
    compared += channel.pooled(compared)
    risk = alarm / 2 / len(compared)
    unlikely = sorted((one.p_value, one.summary) for one in compared)
    findings = [f"{summary} (p = {p:.1g})" for p, summary in unlikely if p < risk]
    least = spent(oracle, made, alarm / 4) if len(values) > 1 else None
    if least is not None and least.epsilon > float(oracle.epsilon):
        findings.insert(0, _leak(oracle, least))
    took = times(command, rng.permutation(np.repeat(np.array(values), _TIMED)))
    if took is not None and took.p_value < alarm / 4 and took.ratio > APART:
        findings.append(f"{took.summary} (p = {took.p_value:.1g})")
    epsilon = min(float(oracle.epsilon), LARGE)
    few = least is not None and least.epsilon < SHOWN * epsilon
    verdict = FAIL if findings else TOO_FEW if few else PASS
    needed = enough(oracle, len(values), epsilon, SHOWN * epsilon, alarm / 4) if verdict == TOO_FEW else None
    missed = excess.found(compared, risk) if math.isfinite(oracle.epsilon) else None
    return Verdict(verdict, 2 * order.size, len(compared), findings, least, took, missed, needed)


def _leak(oracle: Oracle, least: Spent) -> str:
    return (
        f"the client spends ε ≥ {least.epsilon:.3f}; the document has {float(oracle.epsilon):.3f}. Evidence:"
        f" {least.event} is too frequent in reports of value {least.value} compared with value {least.other}"
    )
