"""Privacy loss of a unit against the operator.

Each loss is an upper bound on ln(P[transcript | one history] / P[transcript | another]). A history is the sequence of
values that a unit reports.
"""

from __future__ import annotations

import decimal
import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

from ldp.oracles import RAPPOR
from ldp.privacy.declaration import FRESH

if TYPE_CHECKING:
    from ldp.oracles import Oracle
    from ldp.privacy.declaration import Declaration

_PRECISION = (
    100  # digits; the logarithm of a rational other than 1 is irrational, so they suffice for rounding up
)


@dataclass(frozen=True)
class Ledger:
    """Privacy loss of a unit in one stream.

    Attributes:
        one_report: ε of one report.
        same_value: ε of all reports in a horizon, for two values that do not change; None without a declaration.
        any_history: ε of all reports in a horizon, for two histories of values; None without a declaration. The bound
            is loose for memoised noise, because it ignores which values return.
    """

    one_report: Fraction | float
    same_value: Fraction | float | None = None
    any_history: Fraction | float | None = None


def ledger(oracle: Oracle, declared: Declaration | None) -> Ledger:
    """Returns the privacy loss of a unit in a stream.

    The loss is exact in ε, or rounded up to six decimal places; infinity if a transcript can rule out a history.

    Example:
        >>> import ldp
        >>> from ldp.privacy.declaration import Declaration
        >>> found = ledger(ldp.RAPPOR("1/2", "3/4", "1/2", 128), Declaration("device", 1, "24h", "memoised", "29d"))
        >>> [float(loss) for loss in (found.one_report, found.same_value, found.any_history)]
        [0.537143, 2.197211, 32.958369]
    """
    one = oracle.epsilon
    if declared is None:
        return Ledger(one)
    k = declared.most_reports()
    if k == 1 or one == math.inf:
        return Ledger(one, one, one)
    if declared.noise == FRESH:
        total = _rounded_up(k * _log(oracle.E)) if oracle.exact != ("epsilon",) else k * one
        return Ledger(one, total, total)
    if isinstance(oracle, RAPPOR):
        return Ledger(one, *_of_permanent_bits(oracle, k))
    return Ledger(one, one, math.inf)  # a repeated report adds nothing; a changed report shows a change


def _of_permanent_bits(oracle: RAPPOR, k: int) -> tuple[Fraction, Fraction | float]:
    """Returns the loss of two values that do not change, and of any history.

    A permanent bit equals the true bit with probability 1 − f/2. The k reports of a permanent bit have a
    likelihood ratio of at most u = (p/q)^k for a 1, and u′ = ((1 − q)/(1 − p))^k for a 0.
    """
    (kept, changed), (p, q) = oracle.memoised_stages
    ratios = (p, q), (1 - q, 1 - p)
    odds = [None if less == 0 else k * _log(more / less) for more, less in ratios]
    one, other = odds
    same = mixture(kept, changed, one) + mixture(kept, changed, other)
    return _rounded_up(same), math.inf if one is None or other is None else _rounded_up(one + other)


def mixture(p: Fraction, q: Fraction, odds: Decimal | None) -> Decimal:
    """Returns the loss ln((p·u + 1 − p)/(q·u + 1 − q)) of a memoised answer.

    Args:
        p: probability of the answer under the reported value.
        q: probability of the answer under another value.
        odds: ln u, the largest log-likelihood ratio of the answer against another one in all reports; None for
            infinity.

    Example:
        >>> float(round(mixture(Fraction(3, 4), Fraction(1, 4), _log(Fraction(9))), 6))
        0.847298
    """
    with decimal.localcontext(prec=_PRECISION, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN):
        if odds is None:
            return _log(p / q)
        inverse = (-odds).exp()
        more, less = (_decimal(each) + _decimal(1 - each) * inverse for each in (p, q))
        return (more / less).ln()


def _decimal(number: Fraction) -> Decimal:
    return Decimal(number.numerator) / Decimal(number.denominator)


def _log(number: Fraction) -> Decimal:
    with decimal.localcontext(prec=_PRECISION):
        return _decimal(number).ln()


def _rounded_up(loss: Decimal) -> Fraction:
    """Rounds a loss up to six decimal places."""
    with decimal.localcontext(prec=_PRECISION):
        return Fraction(int(loss.scaleb(6).to_integral_value(decimal.ROUND_CEILING)), 10**6)
