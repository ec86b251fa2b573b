"""Distribution of how many values of a set one report supports: moments by the user's value, and bounds.

Where a report is one of a few messages, all messages are enumerated. Where values are supported independently,
variances add. Under Subset Selection, pairs of values have covariances.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from worker.audit.decoding import sums_of
from worker.audit.protocols import likely_ones

Vector = npt.NDArray[np.float64]

_SEEDS = 1 << 32  # of OLH, each with g buckets


@dataclass(frozen=True)
class Law:
    """Distribution of how many of m values one report supports."""

    size: int  # m
    inside: float  # mean for a user with a value of the set
    outside: float  # mean for another user
    variances: Vector  # for users with a value of the set: (1,) if equal for all, or (m,)
    others: Vector  # for other users: (1,) or (d − m,); empty where the set is the domain
    least: int  # bounds of a counted report
    most: int
    most_of_all: int  # upper bound over the whole domain


def law_of(document: Mapping[str, Any], p: Fraction, q: Fraction, values: tuple[int, ...]) -> Law | None:
    """Returns the distribution for a set of values; None for a geometry that is too large.

    O(1) to O(d), or that of a transform; cached for the next snapshot.

    Example:
        >>> law = law_of({"protocol": "grr", "domain_size": 4}, Fraction(1, 2), Fraction(1, 6), (0, 3))
        >>> law.variances.round(3), law.others.round(3), law.least, law.most
        (array([0.222]), array([0.222]), 0, 1)
    """
    without = {key: value for key, value in document.items() if key != "labels"}
    return _law(json.dumps(without, sort_keys=True), p, q, values)


@lru_cache(maxsize=64)
def _law(written: str, p: Fraction, q: Fraction, values: tuple[int, ...]) -> Law | None:
    document = json.loads(written)
    d, m = document["domain_size"], len(values)
    inside, outside = p + (m - 1) * q, m * q
    match document:
        case {"protocol": "hadamard" | "pgr"}:
            return _of_messages(document, p, q, values)
        case {"protocol": "olh", "g": g}:
            own, other = p * (1 - p) + (m - 1) * q * (1 - q), m * q * (1 - q)
            ends = [*_bucket(m, g), _bucket(d, g)[1]]
        case {"protocol": "oue" | "sue" | "unary"}:
            fewest, most = likely_ones(p, q, d)
            own, other = p * (1 - p) + (m - 1) * q * (1 - q), m * q * (1 - q)
            ends = [max(0, fewest - (d - m)), min(m, most), most]
        case {"protocol": "subset", "k": k}:
            own, other = _of_members(d, k, m, p)
            ends = [max(0, k - (d - m)), min(m, k), k]
        case _:
            own, other, ends = inside * (1 - inside), outside * (1 - outside), [int(m == d), 1, 1]
    others = [float(other)] if m < d or m == 1 else []  # one value counts as if there were others
    return Law(m, float(inside), float(outside), np.array([float(own)]), np.array(others), *ends)


def _of_members(d: int, k: int, m: int, p: Fraction) -> tuple[Fraction, Fraction]:
    """Returns the variances inside and outside under Subset Selection.

    A report has the own value with probability p, and other values drawn uniformly without it.
    """
    rest, two = d - 1, (d - 1) * (d - 2)
    one = (p * (k - 1) + (1 - p) * k) / rest if rest else Fraction(0)
    with_own = p * Fraction(k - 1, rest) - p * one if rest else Fraction(0)
    both = ((p * (k - 1) * (k - 2) + (1 - p) * k * (k - 1)) / two if two else Fraction(0)) - one * one

    def of_others(many: int) -> Fraction:
        return many * one * (1 - one) + many * (many - 1) * both

    return p * (1 - p) + 2 * (m - 1) * with_own + of_others(m - 1), of_others(m)


@cache
def _bucket(m: int, g: int) -> tuple[int, int]:
    """Returns how many of m values the emptiest and the fullest bucket of all seeds have, of an ideal hash; O(m).

    Each number is binomial: these are the quantiles of one bucket among all.
    """
    steps = np.arange(m)
    logs = np.log(m - steps) - np.log(steps + 1) - np.log(g - 1)
    law = np.exp(np.concatenate([[0.0], np.cumsum(logs)]) + m * np.log1p(-1 / g))
    once = 1 / (g * _SEEDS)
    above = np.append(np.cumsum(law[:0:-1])[::-1], 0.0)  # probability of more
    return int(np.argmax(np.cumsum(law) >= once)), int(np.argmax(above <= once))


def _of_messages(
    document: Mapping[str, Any], p: Fraction, q: Fraction, values: tuple[int, ...]
) -> Law | None:
    """Returns the distribution where a report is one of K messages, some of them likelier for the own value."""
    d, m, chance = document["domain_size"], len(values), float(p)
    first = int(document["protocol"] == "hadamard")  # the first row of Hadamard's matrix is no value's
    size = 1 << d.bit_length() if first else sum(document["prime"] ** i for i in range(document["dimension"]))
    members, one = np.zeros(size, np.int64), np.zeros(size, np.int64)
    members[np.array(values) + first] = one[first] = 1
    if (supported := sums_of(document, members)) is None or (own := sums_of(document, one)) is None:
        return None
    preferred, middle = int(own.sum()), int(np.rint(supported.mean()))
    squares = (supported - middle) ** 2
    among = sums_of(document, squares)
    assert among is not None  # like the two above
    near = among[first : first + d]
    mean = near * (chance / preferred) + (int(squares.sum()) - near) * ((1 - chance) / (size - preferred))
    within = np.zeros(d, np.bool_)
    within[list(values)] = True
    inside, outside = float(p + (m - 1) * q), float(m * q)
    variances = np.maximum(mean - np.where(within, inside - middle, outside - middle) ** 2, 0.0)
    most_of_all = d if first else min(d, preferred)
    ends = int(supported.min()), int(supported.max())
    return Law(m, inside, outside, variances[list(values)], variances[~within], *ends, most_of_all)
