"""Estimates a lower bound of the ε that a client spends."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scipy import stats

from ldp.conformance.channel import supports

if TYPE_CHECKING:
    from ldp.conformance.channel import Reports
    from ldp.oracles import Oracle


@dataclass(frozen=True)
class Spent:
    """A lower bound of the spent ε, with the event and values that imply it."""

    epsilon: float
    event: str
    value: int
    other: int


def spent(oracle: Oracle, reports: Mapping[int, Reports], alarm: float) -> Spent:
    """Returns a lower bound of the spent ε, wrong with probability ≤ `alarm`.

    If an event has probability a in reports of v and b in reports of w, then ε ≥ log(a/b). The events are: the report
    supports v but not w; the report does not support w; the report equals a given message. Clopper–Pearson
    intervals (1934) bound each probability. `reports` has the reports of two or more values.
    """
    found, asked = Spent(0.0, "", *list(reports)[:2]), list(_events(oracle, reports))
    risk = alarm / (2 * max(len(asked), 1))
    for event, v, w, (x, n), (y, m) in asked:
        low = float(stats.beta.ppf(risk, x, n - x + 1)) if x else 0.0
        high = float(stats.beta.isf(risk, y + 1, m - y)) if y < m else 1.0
        if low > high and (epsilon := math.log(low / high)) > found.epsilon:
            found = Spent(epsilon, event, v, w)
    return found


_MESSAGES = 64
Count = tuple[int, int]


def enough(oracle: Oracle, values: int, epsilon: float, least: float, alarm: float) -> int:
    """Returns the approximate number of reports that show `least`.

    `spent` then returns at least `least` for most conforming clients. Uses normal approximations of its bounds, for the
    event that a report supports v but not w. For w, the event is e^`epsilon` times rarer.
    """
    own = float(oracle.p * (1 - oracle.q))
    deviations = float(stats.norm.isf(alarm / (2 * values**2 * (_MESSAGES + 2))))
    spread = sum(math.sqrt(1 / probability - 1) for probability in (own, own * math.exp(-epsilon)))
    needed = values * (deviations * spread / (epsilon - least)) ** 2
    return math.ceil(needed / 1000) * 1000


def _events(oracle: Oracle, reports: Mapping[int, Reports]) -> Sequence[tuple[str, int, int, Count, Count]]:
    """Returns each event with two values, and a (count, total) for each value."""
    values, found = list(reports), []
    of = {v: {u: supports(oracle, reports[v], u) for u in values} for v in values}
    for v in values:
        for w in values:
            if v == w:
                continue
            sizes = reports[v].size, reports[w].size
            events = {
                f"support of {v} and not {w}": [of[x][v] & ~of[x][w] for x in (v, w)],
                f"no support of {w}": [~of[x][w] for x in (v, w)],
            }
            if "index" in oracle.fields and oracle.fields["index"] <= _MESSAGES:
                events |= {
                    f"message {i}": [reports[x]["index"] == i for x in (v, w)]
                    for i in range(oracle.fields["index"])
                }
            found += [
                (event, v, w, (int(a.sum()), sizes[0]), (int(b.sum()), sizes[1]))
                for event, (a, b) in events.items()
            ]
    return found
