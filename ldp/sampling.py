"""Exact coins: probabilities are rationals, randomness comes from the system, and no float decides anything.

A float threshold breaks the promise of ε: its rounding makes some outputs impossible for some inputs, or
more likely than e^ε allows. Here e^ε enters as a rational E that never exceeds it, every probability is a
fraction of E, and a coin compares uniformly random digits with the digits of that fraction.

The functions for one value need only the standard library; those for arrays load numpy.
"""

from __future__ import annotations

import os
import re
import secrets
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MAX_EPSILON = 64
E_BITS = 64  # E is a multiple of 2^−E_BITS

_EPSILON = re.compile(r"[0-9]{1,18}(\.[0-9]{1,36})?|[0-9]{1,36}/[0-9]{1,36}", re.ASCII)


def parse_epsilon(epsilon: str | int | Fraction) -> Fraction:
    """ε as an exact number.

    Args:
        epsilon: "1", "0.5", "1/3", an int or a Fraction; 0 < ε ≤ 64.

    Raises:
        TypeError: a float, because it is not the number that was written, or any other type.
        ValueError: another notation, or a number outside 0 < ε ≤ 64.

    Example:
        >>> parse_epsilon("0.1")
        Fraction(1, 10)
        >>> parse_epsilon(0.1)
        Traceback (most recent call last):
        TypeError: epsilon is the float 0.1, not exactly the number that was written; give '0.1' or a Fraction
    """
    if isinstance(epsilon, float):
        raise TypeError(
            f"epsilon is the float {epsilon!r}, not exactly the number that was written; "
            f"give {str(epsilon)!r} or a Fraction"
        )
    if isinstance(epsilon, bool) or not isinstance(epsilon, str | int | Fraction):
        raise TypeError(f"epsilon must be a str, an int or a Fraction, not {type(epsilon).__name__}")
    if isinstance(epsilon, str) and not _EPSILON.fullmatch(epsilon):
        raise ValueError(f"epsilon is {epsilon[:80]!r}; write it as '1', '0.5' or '1/3'")
    try:
        number = Fraction(epsilon)
    except ZeroDivisionError:
        raise ValueError(f"epsilon is {epsilon!r}, which divides by zero") from None
    if not 0 < number <= MAX_EPSILON:
        raise ValueError(f"epsilon is {epsilon}; allowed is 0 < epsilon <= {MAX_EPSILON}")
    return number


def exp_below(epsilon: Fraction) -> Fraction:
    """E = ⌊e^ε·2⁶⁴⌋/2⁶⁴, the largest multiple of 2⁻⁶⁴ that is not above e^ε.

    Two partial sums of the exponential series, one rounded down and one rounded up with a bound on the
    rest, bracket e^ε; the precision is raised until both ends have the same floor, which proves it. That
    comes to an end because e^ε is irrational for a rational ε ≠ 0.

    Args:
        epsilon: 0 < ε ≤ 64.

    Raises:
        ValueError: an ε so small that E would be 1, which leaves nothing to estimate from.

    Example:
        >>> float(exp_below(Fraction(1)))
        2.718281828459045
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
    """Randomized response over m symbols: the given one with probability E/(E+m−1), any other 1/(E+m−1).

    Drawn as a mixture: keep the symbol with probability (E−1)/(E+m−1), else take a uniform one of all m.

    Args:
        symbol: 0 ≤ symbol < m.
        m: the number of symbols, m ≥ 1.
        E: the largest ratio of two probabilities, E > 1.
    """
    keep, other = coin(_keep(m, E)), integer(m)  # both always drawn: the work is the same
    return symbol if keep else other


def _keep(m: int, E: Fraction) -> Fraction:
    return (E - 1) / (E + m - 1)


def coins(p: Fraction, n: int, rng: np.random.Generator | None = None) -> npt.NDArray[np.bool_]:
    """Independent coins, each True with probability p.

    Without ``rng`` they are exact: a uniform number U in [0, 1) is drawn 64 binary digits at a time and
    compared with the digits of p until they differ, and U < p with probability p. With ``rng`` p is rounded
    to a float.

    Args:
        p: 0 ≤ p ≤ 1.
        n: how many.
        rng: a numpy generator, only for simulation.

    Returns:
        (n,) bool.
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


def integers(bound: int, n: int, rng: np.random.Generator | None = None) -> npt.NDArray[np.int64]:
    """Independent uniform integers in 0..bound−1, exactly uniform by rejection.

    Args:
        bound: 1 ≤ bound ≤ 2³².
        n: how many.
        rng: a numpy generator, only for simulation.

    Returns:
        (n,) int64.
    """
    import numpy as np

    if rng is not None:
        return rng.integers(bound, size=n, dtype=np.int64)
    last = np.uint64((1 << 64) // bound * bound - 1)  # the last word of the last whole round of 0..bound−1
    words = system_words(n)
    over = np.flatnonzero(words > last)
    while over.size:
        words[over] = system_words(over.size)
        over = over[words[over] > last]
    return (words % np.uint64(bound)).astype(np.int64)


def responses(
    symbols: npt.NDArray[np.integer], m: int, E: Fraction, rng: np.random.Generator | None = None
) -> npt.NDArray[np.int64]:
    """`respond` for each of (n,) symbols."""
    import numpy as np

    keep, others = coins(_keep(m, E), symbols.size, rng), integers(m, symbols.size, rng)
    return np.where(keep, symbols, others)


def system_words(n: int) -> npt.NDArray[np.uint64]:
    """Words of 64 bits from the system's CSPRNG."""
    import numpy as np

    return np.frombuffer(bytearray(os.urandom(8 * n)), np.uint64)
