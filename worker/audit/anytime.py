"""Anytime-valid intervals and poisoning tolerances.

Intervals are computed by the formulas of `ldp.intervals.confidence_sequence`. A tolerance of m is correct if m
additional reports move the estimate out of its interval, and m − 1 do not.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial

import numpy as np
import numpy.typing as npt

from worker.audit.errors import Difference

Vector = npt.NDArray[np.float64]

_TIMES = tuple(100.0 * 4.0**i for i in range(19))  # Numbers of reports at which a step is optimal
_DEVIATIONS = 3.5


def interval(counts: Vector, n: int, p: float, q: float, level: float) -> tuple[Vector, Vector]:
    """Returns the lower and upper anytime-valid bounds of all frequencies.

    `counts` and each bound have the shape (d,).

    Example:
        >>> low, high = interval(np.array([6000.0, 4000.0]), 10_000, 0.75, 0.25, 0.95)
        >>> low.round(3), high.round(3)
        (array([0.668, 0.268]), array([0.732, 0.332]))
    """
    deviations = [math.sqrt(chance * (1 - chance)) for chance in (p, q) if 0 < chance < 1]
    if not deviations:
        return counts / n, counts / n
    return _ends(counts, n, partial(_log_mean, p), partial(_log_mean, q), _steps(deviations), level)


def interval_of_documents(
    counts: Vector, reports: Vector, channels: Sequence[tuple[Fraction, Fraction]], level: float
) -> tuple[Vector, Vector]:
    """Returns the lower and upper bounds for reports of several documents.

    `counts` and `reports` have the shape (documents, d), and each bound has the shape (d,).

    Example:
        >>> counts, reports = np.array([[700.0], [200.0]]), np.array([[1000.0], [500.0]])
        >>> channels = [(Fraction(3, 4), Fraction(1, 4)), (Fraction(1, 2), Fraction(1, 10))]
        >>> low, high = interval_of_documents(counts, reports, channels, 0.95)
        >>> low.round(3), high.round(3)
        (array([0.76]), array([0.947]))
    """
    spreads = [math.sqrt(x * (1 - x)) / float(p - q) for p, q in channels for x in (p, q) if 0 < x < 1]
    if not spreads:
        raise Difference("anytime-valid intervals of reports that are not random")
    more = math.ceil(math.log2(max(spreads) / min(spreads)) - 1e-9)
    slopes = [_DEVIATIONS / min(spreads) / math.sqrt(100.0 * 4.0**i) for i in range(len(_TIMES) + more)]
    fee = math.log(2 * len(slopes) / (1 - level))
    low = _lowest(counts, reports, channels, slopes, fee)
    mirrored = [(1 - q, 1 - p) for p, q in channels]
    return low, 1.0 - _lowest(reports - counts, reports, mirrored, slopes, fee)


def _lowest(
    counts: Vector,
    reports: Vector,
    channels: Sequence[tuple[Fraction, Fraction]],
    slopes: Sequence[float],
    fee: float,
) -> Vector:
    low, n = np.zeros(counts.shape[1]), np.maximum(reports.sum(axis=0), 1)
    for slope in slopes:
        exponent = np.full(len(low), -fee)
        for (p, q), own, total in zip(channels, counts, reports, strict=True):
            # the step whose weight per report is the slope, or half of the largest possible weight
            steep = min(slope, math.log(p / q) / 2 if q else math.inf, 300.0)
            step = math.log1p(math.expm1(steep) / (float(p) - float(q) * math.exp(steep)))
            exponent += step * own - total * _log_mean(float(q), step)
        low = np.maximum(low, exponent / (n * slope))
    return np.minimum(low, 1.0)


def _steps(deviations: list[float]) -> list[float]:
    """Returns the useful steps, each half of the one before."""
    least, most = min(deviations), max(deviations)
    step = min(_DEVIATIONS / (least * math.sqrt(_TIMES[0])), 2 * math.log1p(1 / least))
    steps = [step]
    while steps[-1] > math.sqrt(2) * _DEVIATIONS / (most * math.sqrt(_TIMES[-1])):
        steps.append(steps[-1] / 2)
    return steps


def _ends(
    counts: Vector,
    n: int,
    own: Callable[[float], float],
    other: Callable[[float], float],
    steps: list[float],
    level: float,
) -> tuple[Vector, Vector]:
    """Returns the tightest lower and upper bounds over all steps."""
    # log E e^(step·X) of a report X: `own` is for users with the value, `other` for users without it
    fee = math.log(2 * len(steps) / (1 - level))
    low, high = np.zeros(len(counts)), np.ones(len(counts))
    for step in steps:
        for sign in (1.0, -1.0):
            base = other(sign * step)
            if (apart := own(sign * step) - base) * sign <= 0:
                continue  # the step does not separate the two
            bound = (sign * step * counts - n * base - fee) / (n * apart)
            if sign > 0:
                low = np.maximum(low, bound)
            else:
                high = np.minimum(high, bound)
    return np.minimum(low, 1.0), np.maximum(high, 0.0)


def _log_mean(chance: float, step: float) -> float:
    """Returns log E e^(step·X) for a Bernoulli variable X with mean `chance`."""
    if abs(step) < 1:
        return math.log1p(chance * math.expm1(step))
    terms = [math.log1p(-chance)] * (chance < 1) + [math.log(chance) + step] * (chance > 0)
    return max(terms) + math.log(math.fsum(math.exp(term - max(terms)) for term in terms))


def expect_tolerance(
    what: str,
    published: Mapping[str, Vector],
    frequencies: Vector,
    n: int | npt.NDArray[np.int64],
    steps: tuple[float, float] | tuple[Vector, Vector],
    off: Vector,
    exact: bool = True,
) -> None:
    """Raises `Difference` unless each poisoning tolerance is correct.

    `published` contains the vectors `low`, `high` and `poisoning_tolerance`, in which −1 is infinity. One report adds
    at most `steps[0]` users to an estimate, or removes at most `steps[1]`. `off` is the rounding of the published
    numbers. If `exact` is false, the reports may have been weaker, so tolerances may be larger.
    """
    low, high, fewest = (published[name] for name in ("low", "high", "poisoning_tolerance"))
    up, down = steps

    def is_out(number: Vector, slack: Vector) -> npt.NDArray[np.bool_]:
        most, least = ((n * frequencies + number * step) / (n + number) for step in (up, -down))
        return np.asarray((most > high + slack) | (least < low - slack))

    never = fewest == -1
    some = np.where(never, 0.0, fewest)
    whole = (some == np.rint(some)) & (some >= 0)
    reachable = (high < up - off) | (low > -down + off)
    early = (some >= 1) & is_out(np.maximum(some - 1, 0.0), off)
    wrong = np.flatnonzero(np.where(never, reachable & exact, ~whole | ~is_out(some, -off) | (early & exact)))
    if len(wrong):
        v = int(wrong[0])
        raise Difference(
            f"{what}: poisoning_tolerance[{v}] is {float(fewest[v])} as published, which is not the smallest number of"
            f" poisoning reports that moves the value out of its interval; {len(wrong)} differ"
        )
