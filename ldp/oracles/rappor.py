"""Unary encoding with explicit probabilities, and RAPPOR."""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar

from ldp import sampling
from ldp.arguments import MAX_DOMAIN, as_integer
from ldp.oracles.explicit import ExplicitChannel
from ldp.oracles.unary import UnaryEncoding
from ldp.sampling import epsilon_above, parse_probability


class Unary(ExplicitChannel, UnaryEncoding):
    """Unary encoding with explicit probabilities p and q.

    A 1 stays 1 with probability p, and a 0 becomes 1 with probability q. A report spends ε = ln(p(1−q)/((1−p)q)).
    Firefox's ``unaryEncodeDiffPrivacy`` uses this channel. The privacy levels of Cobalt are (p, q) = (0.99, 0.01),
    (0.9, 0.1) and (0.75, 0.25).

    Report: ``bits`` (⌈d/8⌉ bytes). Value v is bit v mod 8 of byte v div 8, and padding is 0. State: d counters. Server:
    d additions per report.

    Args:
        p: probability that the bit of the user's value is 1, as "3/4", "0.75" or a Fraction; q < p ≤ 1.
        q: probability that another bit is 1; 0 < q < p.
        domain_size: d, 1 ≤ d ≤ 2²⁴.
        epsilon: must be "infinite" if p is 1, because a report then rules out values. Otherwise, omit it.

    Example:
        >>> unary = Unary("0.75", "0.25", domain_size=100)
        >>> unary.E, float(unary.epsilon), unary.parameters()
        (Fraction(9, 1), 2.197225, {'protocol': 'unary', 'p': '3/4', 'q': '1/4', 'domain_size': 100})
    """

    name: ClassVar[str] = "unary"
    exact: ClassVar[tuple[str, ...]] = ("p", "q")

    def __init__(
        self,
        p: str | int | Fraction,
        q: str | int | Fraction,
        domain_size: int,
        *,
        epsilon: str | None = None,
    ) -> None:
        self.domain_size = as_integer("domain_size", domain_size, 1, MAX_DOMAIN)
        self.p, self.q = _ordered(p, q)
        self._set_epsilon((self.p * (1 - self.q), (1 - self.p) * self.q), epsilon)
        self._set_fields()


class RAPPOR(ExplicitChannel, UnaryEncoding):
    """RAPPOR with one bit per value: a permanent and a fresh response.

    Source: Erlingsson, Pihur and Korolova (CCS 2014), which swaps the names p and q. The permanent response sets each
    bit to 1 with probability f/2, to 0 with probability f/2, and otherwise keeps it. The client draws this response
    once and stores it. A bit of a report is 1 with probability p if it is 1 in the permanent response, and with
    probability q otherwise. The attributes `p` and `q` are the probabilities of a 1 for the user's value and for
    another value, p* and q*:

        p* = (1−f/2)·p + (f/2)·q   and   q* = (f/2)·p + (1−f/2)·q.

    One report spends ln(p*(1−q*)/((1−p*)q*)). All reports of one permanent response together spend at most the
    `lifetime`, 2·ln((1−f/2)/(f/2)). `perturb` draws both responses for each report.

    Report, state and server cost are the same as for `Unary`.

    Args:
        f: parameter of the permanent response, 0 < f < 1.
        p: probability of a 1 in a report if the permanent bit is 1; q < p ≤ 1.
        q: probability of a 1 in a report if the permanent bit is 0; 0 ≤ q < p.
        domain_size: d, 1 ≤ d ≤ 2²⁴.
        epsilon: omit it.

    Attributes:
        f: parameter of the permanent response.
        lifetime: ε of all reports of one permanent response, rounded up to six decimal places.

    Example:
        >>> rappor = RAPPOR("1/2", "3/4", "1/2", domain_size=128)
        >>> rappor.p, rappor.q, rappor.promise
        (Fraction(11, 16), Fraction(9, 16), 'ε ≤ 0.537143, and ε ≤ 2.197225 for all of one permanent response')
    """

    name: ClassVar[str] = "unary"
    exact: ClassVar[tuple[str, ...]] = ("f", "p", "q")

    def __init__(
        self,
        f: str | int | Fraction,
        p: str | int | Fraction,
        q: str | int | Fraction,
        domain_size: int,
        *,
        epsilon: str | None = None,
    ) -> None:
        self.domain_size = as_integer("domain_size", domain_size, 1, MAX_DOMAIN)
        self.f = parse_probability("f", f)
        if not 0 < self.f < 1:
            raise ValueError(
                f"f is {f}; it must be above 0 and below 1; omit f if there is no permanent response"
            )
        self._fresh = _ordered(p, q)
        half, (one, zero) = self.f / 2, self._fresh
        self.p = (1 - half) * one + half * zero
        self.q = half * one + (1 - half) * zero
        self.lifetime = epsilon_above(((1 - half) / half) ** 2)
        self._set_epsilon((self.p * (1 - self.q), (1 - self.p) * self.q), epsilon)
        self._set_fields()

    def _given(self) -> dict[str, Fraction]:
        p, q = self._fresh
        return {"f": self.f, "p": p, "q": q}

    def memoise(self, value: int) -> bytes:
        """Draws the permanent response to a value; see `Oracle.memoise`."""
        value = self._checked_value(value)
        flipped = sampling.mask(self.f / 2, self.domain_size)
        return (flipped ^ 1 << value).to_bytes(-(-self.domain_size // 8), "little")

    def recall(self, memoised: bytes) -> bytes:
        """Draws the bits of a report from a permanent response."""
        permanent, (one, zero) = int.from_bytes(memoised, "little"), self._fresh
        cleared, set_ = (sampling.mask(each, self.domain_size) for each in (1 - one, zero))
        return (permanent & ~cleared | ~permanent & set_).to_bytes(len(memoised), "little")

    def repeated_variance(self, variance: float, m: int, k: int) -> float:
        """Returns variance + (k−1)·m·h(1−h)(p−q)² with h = f/2; see `Oracle`.

        Each of the m bits of the permanent response has the variance h(1−h), and reports share it.
        """
        half, (one, zero) = self.f / 2, self._fresh
        return variance + (k - 1) * m * float(half * (1 - half) * (one - zero) ** 2)

    @property
    def memoised_stages(self) -> tuple[tuple[Fraction, Fraction], tuple[Fraction, Fraction]]:
        """The probabilities of the permanent and the fresh response."""
        return (1 - self.f / 2, self.f / 2), self._fresh

    @property
    def promise(self) -> str:
        """The ε of one report and of all reports of a permanent response, as text."""
        return f"{super().promise}, and ε ≤ {float(self.lifetime)} for all of one permanent response"


def _ordered(p: str | int | Fraction, q: str | int | Fraction) -> tuple[Fraction, Fraction]:
    """Parses p and q, the probabilities of a 1 for a set and an unset bit."""
    one, zero = parse_probability("p", p), parse_probability("q", q)
    if one <= zero:
        other = "; the RAPPOR paper swaps their names" if one < zero else ""
        raise ValueError(
            f"p is {one} and q is {zero}; p, the probability of a 1 for a bit that is set, must be above q, that for"
            f" another bit{other}"
        )
    return one, zero
