"""Decoding of a state into support counts and Base's frequencies.

A report supports its user's value with probability p, and another value with probability q. p and q are exact functions
of e^ε, which is rounded down to a multiple of 2^-64. A frequency is (count / reports − q) / (p − q). q and p − q are
rounded to floats first, so that the result equals the worker's bit for bit.
"""

import decimal
import math
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from worker.audit.errors import Difference
from worker.audit.hashes import State

_LARGEST = 1 << 25  # Maximum number of vectors in a transform


def power_of(epsilon: str, halves: int = 1) -> Fraction:
    """Returns e^(ε / halves), rounded down to a multiple of 2^-64.

    Example:
        >>> float(power_of("1/1"))
        2.718281828459045
    """
    with decimal.localcontext(prec=80, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX):
        numerator, denominator = map(Decimal, epsilon.split("/"))
        power = (numerator / denominator / halves).exp() * 2**64
        return Fraction(int(power.to_integral_value(decimal.ROUND_FLOOR)), 2**64)


def chances_of(document: Mapping[str, Any]) -> tuple[Fraction, Fraction]:
    """Returns the probabilities p and q.

    Example:
        >>> p, q = chances_of({"protocol": "grr", "epsilon": "1/1", "domain_size": 3})
        >>> p + 2 * q
        Fraction(1, 1)
    """
    d: int = document["domain_size"]
    match document:
        case {"protocol": "response", "p": own}:
            return Fraction(own), (1 - Fraction(own)) / (d - 1)
        case {"protocol": "unary", "p": one, "q": zero}:
            # RAPPOR's permanent response flips a bit with probability f/2
            turned = Fraction(document.get("f", 0)) / 2
            own, other = (of * Fraction(one) + (1 - of) * Fraction(zero) for of in (1 - turned, turned))
            return own, other
    e = power_of(document["epsilon"])
    match document:
        case {"protocol": "olh", "g": g}:
            return e / (e + g - 1), Fraction(1, g)
        case {"protocol": "oue"}:
            return Fraction(1, 2), 1 / (e + 1)
        case {"protocol": "sue"}:
            root = power_of(document["epsilon"], 2)
            return root / (root + 1), 1 / (root + 1)
        case {"protocol": "subset", "k": k}:
            p = k * e / (k * e + d - k)
            return p, (p * (k - 1) + (1 - p) * k) / (d - 1)
        case {"protocol": "hadamard"}:
            return e / (e + 1), Fraction(1, 2)
        case {"protocol": "pgr", "prime": prime, "dimension": t}:
            # number of points in the geometry, in a hyperplane, and in two hyperplanes at once
            of_all, of_one, of_two = ((prime ** (t - i) - 1) // (prime - 1) for i in range(3))
            weight = (e - 1) * of_one + of_all
            return e * of_one / weight, ((e - 1) * of_two + of_one) / weight
    return e / (e + d - 1), 1 / (e + d - 1)


def frequencies(document: Mapping[str, Any], counts: State, reports: int) -> npt.NDArray[np.float64]:
    """Returns Base's d frequencies; `counts` is the result of `support`."""
    p, q = chances_of(document)
    return (counts / reports - float(q)) / float(p - q)


def support(document: Mapping[str, Any], state: State) -> State | None:
    """Returns the number of reports that support each of the d values.

    Returns None if a geometry is too large. O(K) for K entries, or O(K log K) if a transform is needed.
    """
    d: int = document["domain_size"]
    match document:
        case {"protocol": "hadamard"}:
            return _walsh_hadamard(state)[1 : d + 1]
        case {"protocol": "pgr", "prime": prime, "dimension": 2}:
            return _on_a_line(state, prime)[:d]
        case {"protocol": "pgr", "prime": prime, "dimension": t}:
            return _orthogonal(state, prime, t)[:d] if prime**t <= _LARGEST else None
    return state


def _walsh_hadamard(state: State) -> State:
    sums: State = state.copy()
    half = 1
    while half < len(sums):
        pairs = sums.reshape(-1, 2, half)
        sums = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1).reshape(-1)
        half *= 2
    both: State = sums + state.sum()
    return both // 2


def _on_a_line(state: State, prime: int) -> State:
    # the points are (0, 1), (1, 0), (1, 1), ...; (1, a) and (1, b) are orthogonal if a·b is −1
    others = [1, 0, *(1 + -pow(a, -1, prime) % prime for a in range(1, prime))]
    return state[others]


def _orthogonal(state: State, prime: int, t: int) -> State:
    """Counts the reports orthogonal to each point, by a Fourier transform."""
    words = np.concatenate([np.arange(prime**m, 2 * prime**m) for m in range(t)])
    everything = np.zeros(prime**t, np.float64)
    everything[words] = state
    waves = np.fft.fftn(everything.reshape((prime,) * t)).real.reshape(-1)
    digits = [words // prime**m % prime for m in range(t)]
    sums = np.zeros(len(state))
    for factor in range(prime):
        sums += waves[sum(factor * digit % prime * prime**m for m, digit in enumerate(digits))]
    return np.rint(sums / prime).astype(np.int64)


_PARTS = 10**6  # ε is a multiple of 10^-6


def spent(document: Mapping[str, Any]) -> str | None:
    """Returns the ε of an explicit channel, or None for other documents.

    Example:
        >>> spent({"protocol": "response", "p": "3/4", "domain_size": 2})
        '1098613/1000000'
    """
    match document:
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
    """Raises `Difference` unless `body` contains the explicit channel's ε."""
    if body.get("epsilon") != (due := spent(document)):
        raise Difference(f"epsilon is {body.get('epsilon')!r} as published, {due!r} by the explicit channel")
