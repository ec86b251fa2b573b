"""Gauges of the newest snapshot: most frequent values and queries."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from ldp.snapshot import Snapshot
from ldp.terminal import printable
from worker.observe.metrics import ENDS, Metrics

MOST_VALUES = 10
"""Maximum number of exported values of a stream."""
LONGEST_LABEL = 64
"""Maximum number of exported characters of a label."""

Series = tuple[str, tuple[str, ...]]
"""Attribute name of a gauge of `Metrics`, and the values of its labels."""


@dataclass(frozen=True)
class Shown:
    """Exported values of a snapshot, with the sum and standard error of Base.

    `rest_ratio` is None for a snapshot without reports of segments.
    """

    sequence: int
    reports: int
    complete: bool
    gaps: int
    uncounted: int
    std_error: float
    sum: float
    sum_deviation: float
    rest_ratio: float | None
    answers: Mapping[Series, float]

    @classmethod
    def of(cls, snapshot: Snapshot, sum_deviation: float, rest_ratio: float | None = None) -> Self:
        """Returns the exported values of a snapshot; O(d + methods)."""
        return cls(
            snapshot.sequence,
            snapshot.reports,
            snapshot.complete,
            len(snapshot.cut.gaps),
            len(snapshot.cut.uncounted),
            snapshot.std_error,
            float(np.nansum(snapshot.bodies["base"].frequencies)),
            sum_deviation,
            rest_ratio,
            dict([*_values(snapshot), *_queries(snapshot)]),
        )


class Answers:
    """Exports one stream's newest answers; removes series of earlier answers.

    Example:
        >>> import ldp
        >>> stream = ldp.Stream("colours", ldp.GRR("1", 2), labels=["red", "green"])
        >>> estimate = stream.oracle.estimate([30, 10], 40)
        >>> metrics = Metrics()
        >>> taken = ldp.snapshot.take(stream, estimate, ldp.snapshot.Cut({0: 40}, {}), sequence=1)
        >>> Answers(metrics).show(Shown.of(taken, 0.1).answers)
        >>> red = {"stream": "colours", "value": "0", "label": "red"}
        >>> metrics.registry.get_sample_value("ldp_worker_snapshot_value_frequency", red | {"method": "norm-sub"})
        1.0
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._shown: set[Series] = set()

    def show(self, answers: Mapping[Series, float]) -> None:
        """Exports a snapshot's answers."""
        for gauge, labels in self._shown - answers.keys():
            getattr(self._metrics, gauge).remove(*labels)
        self._shown = {*answers}
        for (gauge, labels), answer in answers.items():
            getattr(self._metrics, gauge).labels(*labels).set(answer)


def _values(snapshot: Snapshot) -> Iterator[tuple[Series, float]]:
    base = snapshot.bodies["base"]
    ends = {end: vector for end in ENDS if (vector := getattr(base, end)) is not None}
    for value in _most_frequent(base.frequencies).tolist():
        label = str(value) if snapshot.labels is None else printable(snapshot.labels[value])[:LONGEST_LABEL]
        # the value's number keeps series apart if shortened labels are equal
        named = snapshot.stream, str(value), label
        for method, body in snapshot.bodies.items():
            yield ("value", (*named, method)), float(body.frequencies[value])
        for end, vector in ends.items():
            yield (f"value_{end}", named), float(vector[value])


def _most_frequent(frequencies: npt.NDArray[np.float64]) -> npt.NDArray[np.intp]:
    """Returns the most frequent values with a known frequency; O(d)."""
    known = np.flatnonzero(~np.isnan(frequencies))
    shares, k = frequencies[known], min(MOST_VALUES, known.size)
    found = np.flatnonzero(shares >= np.partition(shares, -k)[-k])
    return known[found[np.argsort(-shares[found], kind="stable")[:k]]]


def _queries(snapshot: Snapshot) -> Iterator[tuple[Series, float]]:
    for method, body in snapshot.bodies.items():
        for answer in body.sets:
            named = snapshot.stream, printable(answer.query.name)
            yield ("query", (*named, method)), answer.frequency
            for end in ENDS:
                if (found := getattr(answer, end)) is not None:
                    yield (f"query_{end}", named), found
    for query, best in snapshot.recommended.items():
        yield ("recommended", (snapshot.stream, printable(query), best.method)), 1
