"""ε of a channel that is given by its probabilities: the least multiple of 10^-6 with e^ε above the largest ratio."""

import decimal
import math
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

from worker.audit.decoding import chances_of
from worker.audit.errors import Difference

_PARTS = 10**6


def spent(document: Mapping[str, Any]) -> str | None:
    """Returns ε of one report of a public document without `epsilon`; None for one with it.

    Example:
        >>> spent({"protocol": "response", "p": "3/4", "domain_size": 2})
        '1098613/1000000'
    """
    match document:
        case {"protocol": "response", "rates": rates}:
            rate = min(map(Fraction, rates))
            more, less = 1 - rate / 2, rate / 2
        case {"protocol": "response"}:
            more, less = chances_of(document)
        case {"protocol": "unary"}:
            own, other = chances_of(document)  # two values differ in two bits
            more, less = own * (1 - other), (1 - own) * other
        case _:
            return None
    if not less:
        return "infinite"
    with decimal.localcontext(prec=60 + len(str(more)) + len(str(less))):
        ratio = Decimal((more / less).numerator) / (more / less).denominator
        parts = max(1, math.floor(math.log(more) * _PARTS - math.log(less) * _PARTS) - 1)
        while (Decimal(parts) / _PARTS).exp() <= ratio:
            parts += 1
    least = Fraction(parts, _PARTS)
    return f"{least.numerator}/{least.denominator}"


def expect_spent(body: Mapping[str, Any], document: Mapping[str, Any]) -> None:
    """Raises `Difference` unless a head or a body has the ε that the stream's document lacks."""
    if body.get("epsilon") != (due := spent(document)):
        raise Difference(f"epsilon is {body.get('epsilon')!r} as published, {due!r} by the channel")
