"""Exact random sampling with rational probabilities and system randomness.

A float threshold breaks the guarantee of ε: its rounding makes some outputs impossible for some inputs, or more likely
than e^ε allows. Here a rational E ≤ e^ε replaces e^ε, so every probability is rational. A coin compares uniformly
random digits with the digits of its probability.

docs/reference/wire-format.md lists rules for clients. The functions for one value need only the standard library. The
functions for arrays import numpy.
"""

from __future__ import annotations

import decimal
import os
import re
import secrets
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MAX_EPSILON = 64
E_BITS = 64  # E is a multiple of 2^−E_BITS
_WORDS = 1 << 15  # words drawn together, which fit the second-level cache
_DIGITS = 64  # binary digits per coin of a mask, plus the bit length of n: a tie remains once in 2⁶⁴

_EXACT = re.compile(r"[0-9]{1,18}(\.[0-9]{1,36})?|[0-9]{1,36}/[0-9]{1,36}", re.ASCII)


def parse_epsilon(epsilon: str | int | Fraction) -> Fraction:
    """Parses ε as an exact number: "1", "0.5", "1/3", an int or a Fraction.

    Raises TypeError for another type, such as a float, because a float can differ from the written number.
    Raises ValueError for another notation, or a number outside 0 < ε ≤ 64.

    Example:
        >>> parse_epsilon("0.1")
        Fraction(1, 10)
    """
    number = _parse("epsilon", epsilon, "write it greater than 0, as '1', '0.5' or '1/3'")
    if not 0 < number <= MAX_EPSILON:
        raise ValueError(f"epsilon is {epsilon}; allowed is 0 < epsilon <= {MAX_EPSILON}")
    return number


def parse_probability(name: str, probability: str | int | Fraction) -> Fraction:
    """Parses an exact probability: "3/4", "0.75", an int or a Fraction.

    `name` appears in errors. Raises TypeError for another type, such as a float. Raises ValueError for another
    notation, or a number outside 0 to 1.

    Example:
        >>> parse_probability("p", "0.4994798")
        Fraction(2497399, 5000000)
    """
    number = _parse(name, probability, "write it as '3/4' or '0.75'")
    if not 0 <= number <= 1:
        raise ValueError(f"{name} is {probability}; allowed is 0 to 1")
    return number


def _parse(name: str, given: str | int | Fraction, allowed: str) -> Fraction:
    if isinstance(given, float):
        raise TypeError(
            f"{name} is the float {given!r}, which is not exactly the number that was written; "
            f"pass {str(given)!r} or a Fraction"
        )
    if isinstance(given, bool) or not isinstance(given, str | int | Fraction):
        raise TypeError(f"{name} must be a str, an int or a Fraction, not {type(given).__name__}")
    if isinstance(given, str) and not _EXACT.fullmatch(given):
        raise ValueError(f"{name} is {given[:80]!r}; {allowed}")
    try:
        return Fraction(given)
    except ZeroDivisionError:
        raise ValueError(f"{name} is {given!r}, which divides by zero") from None


def written(number: Fraction) -> str:
    """Formats a rational as in public documents, for example '1/1'."""
    return f"{number.numerator}/{number.denominator}"


def epsilon_above(E: Fraction) -> Fraction:
    """Returns the smallest multiple ε of 10⁻⁶ with e^ε > E, for E above 1.

    The logarithm of a rational other than 1 is irrational. 60 additional digits distinguish it from a multiple.
    """
    digits = len(str(E.numerator)) + len(str(E.denominator))
    with decimal.localcontext(prec=60 + digits):
        millionths = (Decimal(E.numerator) / Decimal(E.denominator)).ln().scaleb(6)
        return Fraction(int(millionths.to_integral_value(decimal.ROUND_CEILING)), 10**6)


def exp_below(epsilon: Fraction) -> Fraction:
    """Returns E = ⌊e^ε·2⁶⁴⌋/2⁶⁴, the 64-bit fraction just below e^ε.

    Two partial sums of the exponential series bracket e^ε. One is rounded down. The other is rounded up, and
    includes a bound on the remaining terms. The precision is raised until the two sums have the same floor. The loop
    ends, because e^ε is irrational.

    Raises:
        ValueError: an ε so small that E would be 1, and reports would carry no information.
    """
    bits = 2 * E_BITS
    while True:
        low, high = _exp_bracket(epsilon, bits)
        if low >> (bits - E_BITS) == high >> (bits - E_BITS):
            break
        bits *= 2
    E = Fraction(low >> (bits - E_BITS), 1 << E_BITS)
    if E <= 1:
        raise ValueError(f"epsilon is {epsilon}, too small: e^epsilon rounds down to 1 at {E_BITS} bits")
    return E


def _exp_bracket(epsilon: Fraction, bits: int) -> tuple[int, int]:
    """Returns integers low ≤ e^ε·2^bits ≤ high."""
    low = high = term_low = term_high = 1 << bits
    k = 0
    # from k ≥ 2ε on, each term is at most half of its predecessor, so the rest sums to at most the last term
    while k < 2 * epsilon or term_high > 1:
        k += 1
        divisor = epsilon.denominator * k
        term_low = term_low * epsilon.numerator // divisor
        term_high = -(-term_high * epsilon.numerator // divisor)
        low += term_low
        high += term_high
    return low, high + term_high


def coin(p: Fraction) -> bool:
    """Returns True with probability exactly p."""
    return secrets.randbelow(p.denominator) < p.numerator


def integer(bound: int) -> int:
    """Returns a uniform integer in 0..bound−1."""
    return secrets.randbelow(bound)


def respond(symbol: int, m: int, E: Fraction) -> int:
    """Randomized response over m ≥ 1 symbols.

    Returns the given symbol with probability E/(E+m−1), and each other symbol with probability 1/(E+m−1). The draw is a
    mixture: the given symbol with probability (E−1)/(E+m−1), else a uniform symbol.
    """
    keep, other = coin(_keep(m, E)), integer(m)  # both are always drawn, so that the time is constant
    return symbol if keep else other


def _keep(m: int, E: Fraction) -> Fraction:
    return (E - 1) / (E + m - 1)


def mask(p: Fraction, n: int) -> int:
    """Draws n ≥ 1 coins as bits of an integer, each 1 with probability p < 1.

    Each bit is 1 if a uniform number U in [0, 1) is below p. Each step compares one binary digit of every U with the
    same digit of p. The number of steps is fixed and almost always suffices, so the time does not reveal the mask.
    """
    heads, tied, rest = 0, (1 << n) - 1, p.numerator
    digits = _DIGITS + n.bit_length()
    # after the last non-zero digit of p, a tied U is not below p
    while (digits > 0 or tied) and rest:
        digits -= 1
        digit, rest = divmod(rest << 1, p.denominator)
        word = secrets.randbits(n)
        if digit:
            heads |= tied & ~word
            tied &= word
        else:
            tied &= ~word
    return heads


def subset(symbol: int, m: int, k: int, E: Fraction) -> tuple[int, ...]:
    """Draws k of m symbols; subsets with the symbol are E times as likely.

    The symbol is a member with probability kE/(kE+m−k). The other members are a uniform subset of the other
    symbols, drawn by Floyd's algorithm: for each j, draw from 0..j, and use j itself if the drawn number is already a
    member. The result is in ascending order, because the order of the draws could reveal the given symbol.
    """
    own = coin(_member(m, k, E))
    # if the given symbol is a member, m − 1 replaces the first draw: it sorts last, and the result omits it
    drawn = integer(m - k)
    others = {(drawn, m - 1)[own]}
    for last in range(m - k, m - 1):
        drawn = integer(last + 1)
        others.add((drawn, last)[drawn in others])
    # the steps do not depend on the symbol or on its membership
    ordered = sorted(others)
    at = sum([other < symbol for other in ordered])
    members = [other + (other >= symbol) for other in ordered]
    return (tuple(members), (*members[:at], symbol, *members[at:-1]))[own]


def _member(m: int, k: int, E: Fraction) -> Fraction:
    return k * E / (k * E + m - k)


def coins(p: Fraction, n: int, *, rng: np.random.Generator | None = None) -> npt.NDArray[np.bool_]:
    """Draws n independent coins as (n,) bool, each True with probability p.

    Without ``rng``, coins are exact: a uniform number U in [0, 1) is drawn 64 binary digits at a time and compared with
    the digits of p until they differ. ``rng`` is only for simulation, and p is then rounded to a float.
    """
    import numpy as np

    if rng is not None:
        return rng.random(n) < float(p)
    if p == 1:
        return np.ones(n, np.bool_)
    heads = np.zeros(n, np.bool_)
    tied = np.arange(n)
    rest = p.numerator
    # after the last non-zero digit of p, a tied U is not below p; a word ties once in 2⁶⁴
    while tied.size and rest:
        digit, rest = divmod(rest << 64, p.denominator)
        words = system_words(tied.size)
        heads[tied] = words < np.uint64(digit)
        tied = tied[words == np.uint64(digit)]
    return heads


def integers(
    bound: int | npt.NDArray[np.int64], n: int, *, rng: np.random.Generator | None = None
) -> npt.NDArray[np.int64]:
    """Draws n independent, exactly uniform integers in 0..bound−1, as int64.

    `bound` is one integer from 1 to 2³², or an (n,) array. `rng` is a numpy generator, only for simulation.
    """
    import numpy as np

    if rng is not None:
        return rng.integers(bound, size=n, dtype=np.int64)
    bounds = np.asarray(bound, np.uint64)
    most = np.uint64((1 << 64) - 1)
    # words above the last complete round of 0..bound−1 are rejected
    last = np.broadcast_to(most - (most % bounds + np.uint64(1)) % bounds, n)
    words = system_words(n)
    over = np.flatnonzero(words > last)
    while over.size:
        words[over] = system_words(over.size)
        over = over[words[over] > last[over]]
    return (words % bounds).astype(np.int64)


def responses(
    symbols: npt.NDArray[np.integer], m: int, E: Fraction, *, rng: np.random.Generator | None = None
) -> npt.NDArray[np.int64]:
    """Applies `respond` to each symbol."""
    import numpy as np

    keep, others = coins(_keep(m, E), symbols.size, rng=rng), integers(m, symbols.size, rng=rng)
    return np.where(keep, symbols, others)


def masks(p: Fraction, m: int, n: int, *, rng: np.random.Generator | None = None) -> npt.NDArray[np.uint8]:
    """Draws n masks of m coins as an (n, ⌈m/8⌉) uint8 array; see `mask`.

    Coin v is bit v mod 8 of byte v div 8. Padding bits are 0. A coin costs about one random byte. `rng` is a numpy
    generator, only for simulation; p is exact even with `rng`.
    """
    import numpy as np

    size = -(-m // 8)
    heads = np.zeros(-(-n * size // 8), np.uint64)
    for start in range(0, heads.size, _WORDS):
        _toss(heads[start : start + _WORDS], p, rng)
    bits = heads.view(np.uint8)[: n * size].reshape(n, size)
    if m % 8:
        bits[:, -1] &= (1 << m % 8) - 1
    return bits


def _toss(heads: npt.NDArray[np.uint64], p: Fraction, rng: np.random.Generator | None) -> None:
    """Sets each bit of zeroed words with probability p."""
    import numpy as np

    at, tied, rest = np.arange(heads.size), ~heads, p.numerator
    while at.size and rest:
        digit, rest = divmod(rest << 1, p.denominator)
        words = system_words(at.size) if rng is None else rng.integers(1 << 64, size=at.size, dtype=np.uint64)
        if digit:
            heads[at] |= tied & ~words
            tied &= words
        else:
            tied &= ~words
        left = tied != 0
        at, tied = at[left], tied[left]


def subsets(
    symbols: npt.NDArray[np.int64], m: int, k: int, E: Fraction, *, rng: np.random.Generator | None = None
) -> npt.NDArray[np.int64]:
    """Draws a `subset` for each of n symbols, as an (n, k) array."""
    import numpy as np

    from ldp import kernels

    n = symbols.size
    own = coins(_member(m, k, E), n, rng=rng)
    draws = integers(np.tile(np.arange(m - k, m), n), n * k, rng=rng).reshape(n, k)
    kernels.choose_subsets(draws, symbols, own, m)
    draws.sort(axis=1)
    return draws


def system_words(n: int) -> npt.NDArray[np.uint64]:
    """Returns n 64-bit words from the system's CSPRNG."""
    import numpy as np

    return np.frombuffer(bytearray(os.urandom(8 * n)), np.uint64)
