"""Detects reused coins, in a second run or from one report to the next."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from ldp.conformance.channel import Rate, message_probabilities
from ldp.oracles import OLH, Oracle, SubsetSelection
from ldp.oracles.preferred import PreferredMessages

if TYPE_CHECKING:
    from ldp.conformance.channel import Reports


def collision(oracle: Oracle) -> float:
    """Returns Σ P², the probability that two reports of one value are equal."""
    d = oracle.domain_size
    if isinstance(oracle, OLH):
        return float(_two(oracle.p, (1 - oracle.p) / (oracle.g - 1), oracle.g)) / 2**32
    if isinstance(oracle, PreferredMessages):
        return float(_two(*message_probabilities(oracle), oracle.state_size, oracle.preferred))
    if isinstance(oracle, SubsetSelection):
        # in logarithms, because the number of subsets overflows a float
        k, ratio = oracle.k, math.log(oracle.E)
        own, without = _log_choose(d - 1, k - 1), _log_choose(d - 1, k)
        both = np.logaddexp(own + 2 * ratio, without) - 2 * np.logaddexp(own + ratio, without)
        return float(np.exp(both))
    if "bits" in oracle.fields:
        own, other = (float(a * a + (1 - a) * (1 - a)) for a in (oracle.p, oracle.q))
        return float(own * other ** (d - 1))
    return float(_two(oracle.p, oracle.q, d))


def repeated(oracle: Oracle, value: int, first: Reports, second: Reports) -> Iterator[Rate]:
    """Yields rates of equal reports, between two runs and within each run."""
    chance = collision(oracle)
    rows = [plain(reports) for reports in (first, second)]
    same = int((rows[0] == rows[1]).sum())
    yield Rate(value, "reports repeated in a second run", same, first.size, chance)
    for row in rows:
        # disjoint pairs, because matches of overlapping pairs depend on each other
        pairs = row[: row.size // 2 * 2].reshape(-1, 2)
        again = int((pairs[:, 0] == pairs[:, 1]).sum())
        yield Rate(value, "reports equal to the previous one", again, len(pairs), chance)


def _two(likely: Fraction, unlikely: Fraction, messages: int, preferred: int = 1) -> Fraction:
    """Returns Σ P² if each message has one of two probabilities."""
    return preferred * likely**2 + (messages - preferred) * unlikely**2


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def plain(reports: Reports) -> Reports:
    """Returns reports as bytes, which can be compared."""
    return np.ascontiguousarray(reports).view(f"V{reports.dtype.itemsize}")
