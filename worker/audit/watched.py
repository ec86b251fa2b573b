"""Intervals that may be watched, and forged reports, read a second time.

Intervals are checked by the formulas of `ldp.intervals.confidence_sequence`, written down again, and
forged reports by forging: so many put an estimate out of its interval, and one fewer does not.
"""

import math
from collections.abc import Callable, Mapping
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from worker.audit.errors import Difference
from worker.audit.sets import Law

Vector = npt.NDArray[np.float64]

_TIMES = tuple(100.0 * 4.0**i for i in range(19))
"""The numbers of reports for which the λ are the best ones."""
_DEVIATIONS = 3.5


def interval(counts: Vector, n: int, p: float, q: float, level: float) -> tuple[Vector, Vector]:
    """Returns the intervals of values that hold at every n with the level, (d,) each.

    Args:
        counts: (d,) how many reports support each value.
        n: of so many.
        p: the chance that a report supports the own value.
        q: that it supports another.
        level: strictly between 0 and 1.

    Example:
        >>> low, high = interval(np.array([6000.0, 4000.0]), 10_000, 0.75, 0.25, 0.95)
        >>> low.round(3), high.round(3)
        (array([0.668, 0.268]), array([0.732, 0.332]))
    """
    deviation = math.sqrt(q * (1 - q)) or math.sqrt(p * (1 - p))
    if not deviation:
        return counts / n, counts / n

    def of_one(chance: float) -> Callable[[float], float]:
        return lambda step: _log_mean(chance, step)

    return _ends(counts, n, of_one(p), of_one(q), deviation, level)


def interval_of_set(total: float, n: int, law: Law, level: float) -> tuple[float, float]:
    """Returns the interval of a set of two values or more.

    Args:
        total: of how many of its values the reports support.
        n: of so many reports.
        law: of how many one report supports.
        level: strictly between 0 and 1.
    """
    own, other = (float(each.max(initial=0.0)) for each in (law.variances, law.others))
    if not (deviation := math.sqrt(max(own, other))):
        share = min(max((total / n - law.outside) / (law.inside - law.outside), 0.0), 1.0)
        return share, share
    most = min(law.most_of_all, law.size)
    bounds = _worst(law.inside, own, most), _worst(law.outside, other, most)
    (low,), (high,) = _ends(np.array([total]), n, *bounds, deviation, level)
    return float(low), float(high)


def interval_of_rates(
    counts: npt.NDArray[np.int64], rates: list[Fraction], level: float
) -> tuple[Vector, Vector]:
    """Returns the intervals of two values, (2,) each, of reports at several rates.

    Args:
        counts: (rates, 2) how many reports are of each value.
        rates: the chance that a report was drawn, and not the user's own value.
        level: strictly between 0 and 1.

    Example:
        >>> low, high = interval_of_rates(np.array([[5000, 3000], [1200, 800]]), [Fraction(1, 2), Fraction(4, 5)], 0.95)
        >>> low.round(3), high.round(3)
        (array([0.751, 0.15 ]), array([0.85 , 0.249]))
    """
    chances = [float(rate / 2) for rate in rates]
    spreads = [math.sqrt(q * (1 - q)) / (1 - 2 * q) for q in chances]
    more = math.ceil(math.log2(max(spreads) / min(spreads)))
    times = [100.0 * 4.0**i for i in range(len(_TIMES) + more)]
    fee, n = math.log(2 * len(times) / (1 - level)), int(counts.sum())
    low = np.zeros(2)
    for time in times:
        slope = _DEVIATIONS / min(spreads) / math.sqrt(time)
        exponent = np.full(2, -fee)
        for pair, q in zip(counts, chances, strict=True):
            # the step with which a report of the value tells as much as the slope, or half of the most it ever can
            own = min(slope, math.log((1 - q) / q) / 2)
            step = math.log1p(math.expm1(own) / (1 - q - q * math.exp(own)))
            exponent += step * pair - pair.sum() * _log_mean(q, step)
        low = np.maximum(low, exponent / (n * slope))
    low = np.minimum(low, 1.0)
    return low, 1.0 - low[::-1]


def _ends(
    counts: Vector,
    n: int,
    own: Callable[[float], float],
    other: Callable[[float], float],
    deviation: float,
    level: float,
) -> tuple[Vector, Vector]:
    """Returns the best of the bounds of all steps.

    Args:
        counts: (k,) what the reports add.
        n: of so many.
        own: step -> log E e^(step·X), or a bound, of what a report of one who has the value adds.
        other: the same of another user's.
        deviation: of what a report adds.
        level: strictly between 0 and 1.
    """
    fee = math.log(2 * len(_TIMES) / (1 - level))
    low, high = np.zeros(len(counts)), np.ones(len(counts))
    for time in _TIMES:
        step = _DEVIATIONS / (deviation * math.sqrt(time))
        for sign in (1.0, -1.0):
            base = other(sign * step)
            if (apart := own(sign * step) - base) * sign <= 0:
                continue  # it tells one from the other no more
            bound = (sign * step * counts - n * base - fee) / (n * apart)
            if sign > 0:
                low = np.maximum(low, bound)
            else:
                high = np.minimum(high, bound)
    return np.minimum(low, 1.0), np.maximum(high, 0.0)


def _log_mean(chance: float, step: float) -> float:
    """Returns log E e^(step·X) of an X that is 1 with this chance, else 0."""
    if abs(step) < 1:
        return math.log1p(chance * math.expm1(step))
    terms = [math.log1p(-chance)] * (chance < 1) + [math.log(chance) + step] * (chance > 0)
    return max(terms) + math.log(math.fsum(math.exp(term - max(terms)) for term in terms))


def _worst(mean: float, variance: float, most: int) -> Callable[[float], float]:
    """Returns what bounds log E e^(step·X) of an X from 0 to most: that of two points, one of them the end."""

    def bound(step: float) -> float:
        if not variance:
            return step * mean
        end = most - mean if step > 0 else -mean
        # with this chance it is at the end, else at −variance/end, both from the mean on
        chance, back = variance / (variance + end * end), -variance / end
        return step * (mean + back) + _log_mean(chance, step * (end - back))

    return bound


def expect_fakes(
    what: str,
    said: Mapping[str, Vector],
    frequencies: Vector,
    n: int,
    steps: tuple[float, float],
    off: Vector,
) -> None:
    """Sees that the forged reports that are published put estimates out of their intervals, and one fewer does not.

    Args:
        what: it is of.
        said: `low`, `high` and `fakes` by their names, (k,) each.
        frequencies: (k,) the estimates.
        n: of so many reports.
        steps: how many users one report less one more adds at most, and takes at most.
        off: (k,) how far off two computations of an estimate, and the ends as published, may be.

    Raises:
        Difference: they do not, or one fewer does.
    """
    low, high, fakes = (said[name] for name in ("low", "high", "fakes"))
    up, down = steps

    def is_out(number: Vector, slack: Vector) -> npt.NDArray[np.bool_]:
        """With so many that all add as much as one can, or that all take as much."""
        most, least = ((n * frequencies + number * step) / (n + number) for step in (up, -down))
        return np.asarray((most > high + slack) | (least < low - slack))

    never = fakes == -1
    some = np.where(never, 0.0, fakes)
    whole = (some == np.rint(some)) & (some >= 0)
    reachable = (high < up - off) | (low > -down + off)
    early = (some >= 1) & is_out(np.maximum(some - 1, 0.0), off)
    wrong = np.flatnonzero(np.where(never, reachable, ~whole | ~is_out(some, -off) | early))
    if len(wrong):
        v = int(wrong[0])
        raise Difference(
            f"{what}: fakes[{v}] is {float(fakes[v])} as published, which is not how few forged reports put"
            f" the value out of its interval; {len(wrong)} differ"
        )
