"""Exact coins: probabilities are rationals, randomness comes from the system, no float decides.

A float threshold breaks the promise of ε: its rounding makes some outputs impossible for some inputs, or more likely
than e^ε allows. Here e^ε enters as a rational E that never exceeds it, every probability is a fraction of E, and a coin
compares uniformly random digits with the digits of that fraction.

A client, in any language, must not: compare floats; draw from a predictable generator; take coins from a seed that it
also reports, such as OLH's; reveal by the order or timing of a report which of its parts is the true one; report the
same value again without adding the ε.

The functions for one value need only the standard library; those for arrays load numpy.
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
_WORDS = 1 << 15  # words tossed together: they stay in the second-level cache
_DIGITS = 64  # of each coin of a mask, besides as many as their number has: a tie is left once in 2⁶⁴

_EXACT = re.compile(r"[0-9]{1,18}(\.[0-9]{1,36})?|[0-9]{1,36}/[0-9]{1,36}", re.ASCII)


def parse_epsilon(epsilon: str | int | Fraction) -> Fraction:
    """Returns ε, "1", "0.5", "1/3", an int or a Fraction, as an exact number.

    Raises TypeError for a float, which is not the number that was written, or any other type; ValueError for another
    notation, or a number outside 0 < ε ≤ 64.

    Example:
        >>> parse_epsilon("0.1")
        Fraction(1, 10)
    """
    number = _parse("epsilon", epsilon, "write it greater than 0, as '1', '0.5' or '1/3'")
    if not 0 < number <= MAX_EPSILON:
        raise ValueError(f"epsilon is {epsilon}; allowed is 0 < epsilon <= {MAX_EPSILON}")
    return number


def parse_probability(name: str, probability: str | int | Fraction) -> Fraction:
    """Returns a probability, "3/4", "0.75", an int or a Fraction, as an exact number; `name` appears in errors.

    Raises TypeError for a float or any other type, ValueError for another notation, or a number outside 0 to 1.

    Example:
        >>> parse_probability("p", "0.4994798")
        Fraction(2497399, 5000000)
    """
    number = _parse(name, probability, "write it as '3/4' or '0.75'")
    if not 0 <= number <= 1:
        raise ValueError(f"{name} is {probability}; a probability is 0 to 1")
    return number


def _parse(name: str, given: str | int | Fraction, allowed: str) -> Fraction:
    """A number of 0 or more, exactly as it is written."""
    if isinstance(given, float):
        raise TypeError(
            f"{name} is the float {given!r}, not exactly the number that was written; "
            f"give {str(given)!r} or a Fraction"
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
    """A number as in documents: '1/1'."""
    return f"{number.numerator}/{number.denominator}"


def epsilon_above(E: Fraction) -> Fraction:
    """The smallest multiple of 10⁻⁶ that is above ln E, for E above 1, so that e^ε > E.

    The logarithm of a rational other than 1 is irrational: with 60 digits more it is never taken for a multiple.
    """
    digits = len(str(E.numerator)) + len(str(E.denominator))
    with decimal.localcontext(prec=60 + digits):
        millionths = (Decimal(E.numerator) / Decimal(E.denominator)).ln().scaleb(6)
        return Fraction(int(millionths.to_integral_value(decimal.ROUND_CEILING)), 10**6)


def exp_below(epsilon: Fraction) -> Fraction:
    """E = ⌊e^ε·2⁶⁴⌋/2⁶⁴, the largest multiple of 2⁻⁶⁴ that is not above e^ε, for 0 < ε ≤ 64.

    Two partial sums of the exponential series, one rounded down and one rounded up with a bound on the rest, bracket
    e^ε; the precision is raised until both ends have the same floor. That terminates because e^ε is irrational.

    Raises:
        ValueError: an ε so small that E would be 1, which leaves nothing to estimate from.
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
    """Integers low ≤ e^ε·2^bits ≤ high."""
    low = high = term_low = term_high = 1 << bits
    k = 0
    # from k ≥ 2ε on, each term is at most half of the one before: all that follow sum to at most the last one
    while k < 2 * epsilon or term_high > 1:
        k += 1
        divisor = epsilon.denominator * k
        term_low = term_low * epsilon.numerator // divisor
        term_high = -(-term_high * epsilon.numerator // divisor)
        low += term_low
        high += term_high
    return low, high + term_high


def coin(p: Fraction) -> bool:
    """True with probability p exactly."""
    return secrets.randbelow(p.denominator) < p.numerator


def integer(bound: int) -> int:
    """A uniform integer in 0..bound−1."""
    return secrets.randbelow(bound)


def respond(symbol: int, m: int, E: Fraction) -> int:
    """Randomized response over m ≥ 1 symbols: the given one with probability E/(E+m−1), any other 1/(E+m−1).

    Drawn as a mixture: keep the symbol with probability (E−1)/(E+m−1), else take a uniform one of all m.
    """
    keep, other = coin(_keep(m, E)), integer(m)  # both always drawn: the work is the same
    return symbol if keep else other


def _keep(m: int, E: Fraction) -> Fraction:
    return (E - 1) / (E + m - 1)


def mask(p: Fraction, n: int) -> int:
    """N ≥ 1 independent coins as the bits of an integer, each 1 with probability p, 0 ≤ p < 1.

    Each bit has a uniform number U in [0, 1). One binary digit at a time, of all U at once, is compared with the digit
    of p, for as many digits as they hardly ever need: the time does not distinguish masks.
    """
    heads, tied, rest = 0, (1 << n) - 1, p.numerator
    digits = _DIGITS + n.bit_length()
    # when p's digits end, U is not below p
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
    """A random subset of k of m symbols: with the given symbol it is E times as likely as without.

    The symbol is in it with probability kE/(kE+m−k), and the rest is a uniform subset of the others, by Floyd's
    algorithm: for each j in turn draw from 0..j, and take j itself if the draw is taken already. The members are
    ascending: another order would reveal which came first.
    """
    own = coin(_member(m, k, E))
    # the own symbol takes the place of the first draw, made all the same: here of m − 1, which none of the others is
    drawn = integer(m - k)
    others = {(drawn, m - 1)[own]}
    for last in range(m - k, m - 1):
        drawn = integer(last + 1)
        others.add((drawn, last)[drawn in others])
    # by the same steps for each symbol, in the subset or not
    ordered = sorted(others)
    at = sum([other < symbol for other in ordered])
    members = [other + (other >= symbol) for other in ordered]
    return (tuple(members), (*members[:at], symbol, *members[at:-1]))[own]


def _member(m: int, k: int, E: Fraction) -> Fraction:
    return k * E / (k * E + m - k)


def coins(p: Fraction, n: int, *, rng: np.random.Generator | None = None) -> npt.NDArray[np.bool_]:
    """N independent coins, each True with probability p, 0 ≤ p ≤ 1: (n,) bool.

    Without ``rng`` they are exact: a uniform number U in [0, 1) is drawn 64 binary digits at a time and compared with
    the digits of p until they differ. With ``rng``, only for simulation, p is rounded to a float.
    """
    import numpy as np

    if rng is not None:
        return rng.random(n) < float(p)
    if p == 1:
        return np.ones(n, np.bool_)
    heads = np.zeros(n, np.bool_)
    tied = np.arange(n)
    rest = p.numerator
    # when p's digits end, U is not below p; a tie comes once in 2⁶⁴ words
    while tied.size and rest:
        digit, rest = divmod(rest << 64, p.denominator)
        words = system_words(tied.size)
        heads[tied] = words < np.uint64(digit)
        tied = tied[words == np.uint64(digit)]
    return heads


def integers(
    bound: int | npt.NDArray[np.int64], n: int, *, rng: np.random.Generator | None = None
) -> npt.NDArray[np.int64]:
    """N independent uniform integers in 0..bound−1, exactly uniform by rejection: (n,) int64.

    `bound` is 1 ≤ bound ≤ 2³², or (n,) such bounds; `rng` is a numpy generator, only for simulation.
    """
    import numpy as np

    if rng is not None:
        return rng.integers(bound, size=n, dtype=np.int64)
    bounds = np.asarray(bound, np.uint64)
    most = np.uint64((1 << 64) - 1)
    # the last word of the last whole round of 0..bound−1
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
    """`respond` for each of (n,) symbols."""
    import numpy as np

    keep, others = coins(_keep(m, E), symbols.size, rng=rng), integers(m, symbols.size, rng=rng)
    return np.where(keep, symbols, others)


def masks(p: Fraction, m: int, n: int, *, rng: np.random.Generator | None = None) -> npt.NDArray[np.uint8]:
    """`mask` n times, m coins each: (n, ⌈m/8⌉) uint8, coin v in bit v mod 8 of byte v div 8, padding 0.

    It costs about one random byte a coin. `rng` is a numpy generator, only for simulation; p is not rounded here.
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
    """Sets each bit of zeros with probability p, as `mask` does; words whose bits are all decided drop out."""
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
    """`subset` for each of (n,) symbols: (n, k) int64, each row ascending."""
    import numpy as np

    from ldp import kernels

    n = symbols.size
    own = coins(_member(m, k, E), n, rng=rng)
    draws = integers(np.tile(np.arange(m - k, m), n), n * k, rng=rng).reshape(n, k)
    kernels.choose_subsets(draws, symbols, own, m)
    draws.sort(axis=1)
    return draws


def system_words(n: int) -> npt.NDArray[np.uint64]:
    """Words of 64 bits from the system's CSPRNG."""
    import numpy as np

    return np.frombuffer(bytearray(os.urandom(8 * n)), np.uint64)
