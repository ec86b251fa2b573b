"""Computes the excess of ε that an audit would have found."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.special import betaincinv, logit
from scipy.stats import binom

from ldp.conformance.channel import OTHER_BITS, OWN, Cells, Rate

POWER = 0.99  # Probability of finding the excess


@dataclass(frozen=True)
class Excess:
    """The least excess of ε that fails with probability `POWER`.

    `all_values` applies to an excess that is alike for all values, `one_value` to one in reports of one tested value.
    """

    all_values: float
    one_value: float


def found(compared: Sequence[Rate | Cells], risk: float) -> Excess | None:
    """Returns the excess that comparisons at a risk of `risk` each find.

    A client spends more than ε if its reports support their value too often (all protocols), or other values too rarely
    (unary encoding, where the two are independent). Either way ε grows by the change of the log-odds. If the sum of
    both changes exceeds the result, at least one of them is large enough to be found. None if even the largest change
    of a probability could be missed.
    """
    own, bits = defaultdict[int | None, float](float), defaultdict[int | None, float](float)
    for one in compared:
        if isinstance(one, Rate) and one.event == OWN:
            own[one.value] = _above(one, risk)
        elif isinstance(one, Rate) and one.event == OTHER_BITS:
            bits[one.value] = _below(one, risk)
    sums = {value: own[value] + bits[value] for value in own.keys() | bits.keys()}
    if None not in sums or math.inf in sums.values():
        return None
    return Excess(sums.pop(None), max(sums.values()))


def _above(rate: Rate, risk: float) -> float:
    """Returns the least increase of the log-odds that is found with `POWER`."""
    if rate.probability == 1.0:
        return 0.0
    fails = int(binom.isf(risk / 2, rate.n, rate.probability)) + 1
    if fails > rate.n:
        return math.inf
    return float(logit(betaincinv(fails, rate.n - fails + 1, POWER)) - logit(rate.probability))


def _below(rate: Rate, risk: float) -> float:
    """Returns the least decrease of the log-odds that is found with `POWER`."""
    return _above(Rate(rate.value, rate.event, rate.n - rate.count, rate.n, 1.0 - rate.probability), risk)
