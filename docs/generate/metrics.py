"""Page of the metrics, from the registries."""

from prometheus_client import Counter, Gauge, Histogram, Info

from docs.generate.markdown import fill, table
from worker.observe.metrics import Metrics
from worker.observe.uploads import GatewayMetrics, ShuffleMetrics

_SUFFIXES = {"counter": "_total", "info": "_info"}


def page() -> str:
    """Returns the page of the metrics."""
    rows = [("metric", "type", "labels", "description")]
    registries = Metrics(), GatewayMetrics([], int), ShuffleMetrics([])
    for metric in (each for registry in registries for each in vars(registry).values()):
        if isinstance(metric, Counter | Gauge | Histogram | Info):
            (family,) = metric.describe()
            labels = ", ".join(f"`{name}`" for name in metric._labelnames)  # noqa: SLF001  # has no public name
            name = family.name + _SUFFIXES.get(family.type, "")
            rows.append((f"`{name}`", family.type, labels, family.documentation))
    return fill("metrics.md", metrics=table(*rows))
