"""What the newest snapshot answers, as gauges: its ten most frequent values and the configured queries.

A domain may have a million values, and each series costs Prometheus memory: ten values have one for each method and
four for the ends of Base's two intervals, of one look and to be watched, 150 in all at most. A value that is among the
ten no longer has none.
"""

from collections.abc import Iterator, Mapping

from prometheus_client import Gauge

from ldp.snapshot import Snapshot
from worker.observe.metrics import Metrics

MOST_VALUES = 10
"""So many values of a stream are shown."""
LONGEST_LABEL = 64
"""Characters of a value's label that are shown."""

Series = tuple[Gauge, tuple[str, ...]]


class Answers:
    """Shows one stream's newest answers, and takes back what the snapshot before said and this one does not.

    Args:
        stream: its name.
        metrics: the worker's metrics.

    Example:
        >>> import ldp
        >>> stream = ldp.Stream("colours", ldp.GRR("1", 2), labels=["red", "green"])
        >>> estimate = stream.oracle.estimate([30, 10], 40)
        >>> metrics = Metrics()
        >>> cut = ldp.snapshot.Cut({0: 40}, {})
        >>> Answers("colours", metrics).show(ldp.snapshot.take(stream, estimate, cut, sequence=1))
        >>> red = {"stream": "colours", "value": "0", "label": "red"}
        >>> metrics.registry.get_sample_value("ldp_worker_snapshot_value_frequency", red | {"method": "norm-sub"})
        1.0
    """

    def __init__(self, stream: str, metrics: Metrics) -> None:
        self._stream, self._metrics = stream, metrics
        self._shown: set[Series] = set()

    def show(self, snapshot: Snapshot) -> None:
        """Shows a snapshot's answers. O(d + number of methods)."""
        said: Mapping[Series, float] = dict([*self._values(snapshot), *self._queries(snapshot)])
        for gauge, labels in self._shown - said.keys():
            gauge.remove(*labels)
        self._shown = {*said}
        for (gauge, labels), answer in said.items():
            gauge.labels(*labels).set(answer)

    def _values(self, snapshot: Snapshot) -> Iterator[tuple[Series, float]]:
        """The most frequent values: each method's answer, and both intervals around Base's, of each value alone."""
        metrics, base = self._metrics, snapshot.bodies["base"]
        ends = (
            (metrics.value_low, base.low),
            (metrics.value_high, base.high),
            (metrics.value_anytime_low, base.anytime_low),
            (metrics.value_anytime_high, base.anytime_high),
        )
        for value in snapshot.estimate().most_frequent(MOST_VALUES).tolist():
            label = str(value) if snapshot.labels is None else snapshot.labels[value][:LONGEST_LABEL]
            # by the value's number, too: labels that are cut can be the same
            named = self._stream, str(value), label
            for method, body in snapshot.bodies.items():
                yield (metrics.value, (*named, method)), float(body.frequencies[value])
            for gauge, end in ends:
                if end is not None:
                    yield (gauge, named), float(end[value])

    def _queries(self, snapshot: Snapshot) -> Iterator[tuple[Series, float]]:
        """The queries for sets: each method's answer, both intervals around Base's, and which method suits it best."""
        metrics = self._metrics
        for method, body in snapshot.bodies.items():
            for answer in body.sets:
                named = self._stream, answer.query.name
                yield (metrics.query, (*named, method)), answer.frequency
                for gauge, end in (
                    (metrics.query_low, answer.low),
                    (metrics.query_high, answer.high),
                    (metrics.query_anytime_low, answer.anytime_low),
                    (metrics.query_anytime_high, answer.anytime_high),
                ):
                    if end is not None:
                        yield (gauge, named), end
        for query, found in snapshot.recommended.items():
            yield (metrics.recommended, (self._stream, query, found.method)), 1
