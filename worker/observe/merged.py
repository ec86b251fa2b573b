"""Merges metrics of several processes, with the label ``process``.

The multiprocess mode of prometheus_client is not used, because it cannot remove the samples of a released partition.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

ACCEPTS = "application/openmetrics-text; version=1.0.0"
"""Requested format: OpenMetrics keeps a counter's samples in one family."""


def registry(
    shown: Callable[[], Sequence[str | None]], restarts: Callable[[], Sequence[int]]
) -> CollectorRegistry:
    """Returns a registry of all processes' metrics, states and restarts."""
    registry = CollectorRegistry()
    registry.register(_Merged(shown, restarts))
    return registry


def merge(shown: Iterable[str | None]) -> list[Metric]:
    r"""Merges the OpenMetrics texts of processes; skips missing texts (None).

    Example:
        >>> text = "# TYPE lag gauge\nlag 3.0\n# EOF\n"
        >>> (lag,) = merge([text, None, text])
        >>> [(sample.labels, sample.value) for sample in lag.samples]
        [({'process': '0'}, 3.0), ({'process': '2'}, 3.0)]
    """
    families: dict[str, Metric] = {}
    for process, text in enumerate(shown):
        for family in () if text is None else text_string_to_metric_families(text):  # type: ignore[no-untyped-call]
            merged = families.setdefault(
                family.name, Metric(family.name, family.documentation, family.type, family.unit)
            )
            merged.samples += (
                sample._replace(labels={**sample.labels, "process": str(process)})
                for sample in family.samples
            )
    return list(families.values())


class _Merged(Collector):
    """Collector that queries the processes at each scrape."""

    def __init__(
        self, shown: Callable[[], Sequence[str | None]], restarts: Callable[[], Sequence[int]]
    ) -> None:
        self._shown, self._restarts = shown, restarts

    def collect(self) -> Iterator[Metric]:
        shown = self._shown()
        up = GaugeMetricFamily(
            "ldp_worker_process_up", "1 for a process that answers, else 0.", labels=["process"]
        )
        restarts = CounterMetricFamily(
            "ldp_worker_process_restarts", "Restarts of a process.", labels=["process"]
        )
        for process, (text, times) in enumerate(zip(shown, self._restarts(), strict=True)):
            up.add_metric([str(process)], float(text is not None))
            restarts.add_metric([str(process)], times)
        yield up
        yield restarts
        yield from merge(shown)
