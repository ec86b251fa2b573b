"""What Base says beside its score intervals, read a second time: intervals that may be watched, and forged reports.

Both are held to what they promise, by the formula of `ldp.confidence_sequence`, written down anew, and by forging: so
many reports put the estimate out of its interval, and one fewer does not. Of reports at several rates, and of sets,
they are not looked at.
"""

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from worker.audit.errors import Difference

Vector = npt.NDArray[np.float64]

_TIMES = tuple(100.0 * 4.0**i for i in range(19))
"""The numbers of reports for which the λ are the best ones."""


def interval(counts: Vector, n: int, p: float, q: float, level: float) -> tuple[Vector, Vector]:
    """Returns the intervals that hold at every n with the level, (d,) each.

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
    fee = math.log(2 * len(_TIMES) / (1 - level))
    low, high = np.zeros(len(counts)), np.ones(len(counts))
    for time in _TIMES:
        step = 3.5 / (deviation * math.sqrt(time))
        for sign in (1.0, -1.0):
            own, other = _log_mean(p, sign * step), _log_mean(q, sign * step)
            bound = (sign * step * counts - n * other - fee) / (n * (own - other))
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


def expect_fakes(
    vectors: Mapping[str, Vector], counts: Vector, n: int, p: float, q: float, off: Vector
) -> None:
    """Sees that the forged reports that are published put estimates out of their intervals, and one fewer does not.

    Args:
        vectors: `low`, `high` and `fakes` by their names, (d,) each.
        counts: (d,) how many reports support each value.
        n: of so many.
        p: the chance that a report supports the own value.
        q: that it supports another.
        off: (d,) how far off two computations of an estimate, and the ends as published, may be.

    Raises:
        Difference: they do not, or one fewer does.
    """
    low, high, fakes = (vectors[name] for name in ("low", "high", "fakes"))

    def is_out(number: Vector, slack: Vector) -> npt.NDArray[np.bool_]:
        """With so many that all support a value, or none of which does."""
        most = ((counts + number) / (n + number) - q) / (p - q)
        least = (counts / (n + number) - q) / (p - q)
        return np.asarray((most > high + slack) | (least < low - slack))

    never = fakes == -1
    some = np.where(never, 0.0, fakes)
    whole = (some == np.rint(some)) & (some >= 0)
    reachable = (high < (1 - q) / (p - q) - off) | (low > -q / (p - q) + off)
    early = (some >= 1) & is_out(np.maximum(some - 1, 0.0), off)
    wrong = np.flatnonzero(np.where(never, reachable, ~whole | ~is_out(some, -off) | early))
    if len(wrong):
        v = int(wrong[0])
        raise Difference(
            f"base: fakes[{v}] is {float(fakes[v])} as published, which is not how few forged reports put"
            f" the value out of its interval; {len(wrong)} differ"
        )
