"""What one forged report moves: clients are trusted, and this says how much.

LDP protects users from the operator, not the estimate from users. A report counts (1 − q)/(p − q) users for each value
that it supports and −q/(p − q) for each other; an honest one, whose coins decide, counts 1 for its user's value on
average and 0 for any other. Whoever makes reports up need not toss coins.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ldp.arguments import as_integer
from ldp.oracles.oracle import Oracle


@dataclass(frozen=True)
class Fake:
    """What one forged report moves at most, in users: what that many more who have a value would, on average.

    Attributes:
        up: it raises the estimate of a value of its choice by so many users, (1 − q)/(p − q).
        down: it lowers one by so many, q/(p − q).
        values: so many values it raises at once (`Oracle.most_supported`).
        total: it raises the sum over these values by so many users; no set's sum falls by more.
        share: this part of all reports, forged, moves a value by one standard error: √(q/(n(1 − q))). More is a larger
            error than the coins make.
    """

    up: float
    down: float
    values: int
    total: float
    share: float


def fake(oracle: Oracle, reports: int) -> Fake:
    """What one forged report moves at most.

    Args:
        oracle: the protocol.
        reports: n, the number of reports in a snapshot, n ≥ 1.

    Raises:
        TypeError: a number of reports that is not an int.
        ValueError: a number of reports below 1.

    Example:
        >>> import ldp
        >>> one = fake(ldp.OUE("1", domain_size=1024), 1_000_000)
        >>> round(one.up, 2), round(one.down, 2), one.values, round(one.total), f"{one.share:.2%}"
        (3.16, 1.16, 380, 1202, '0.06%')
    """
    n = as_integer("reports", reports, 1, (1 << 63) - 1)
    p, q = oracle.p, oracle.q
    up = float((1 - q) / (p - q))
    values = oracle.most_supported
    return Fake(up, float(q / (p - q)), values, values * up, math.sqrt(q / (n * (1 - q))))
