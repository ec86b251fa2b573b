"""The shipped dashboards: panels, queries as Grafana sends them, and the exposed metrics."""

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from deploy.local import services
from worker.observe import merged
from worker.observe.metrics import Metrics
from worker.observe.uploads import GatewayMetrics, ShuffleMetrics

FOLDER = Path(services.__file__).parent.parent / "grafana" / "dashboards"
DASHBOARDS: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.iterdir())
}
"""Dashboards by their names in Grafana's URLs."""
AT_FIRST = {
    "job": ".+",
    "namespace": ".*",
    "method": "norm-sub",
    "band": "_anytime_",
    "value": ".+",
    "__rate_interval": "20s",
    "__range": "300s",
}
"""Initial values of the variables, as equivalent patterns."""


def exposed() -> set[str]:
    """Returns the names of all series of workers, gateways, shufflers and of the parent of several processes."""
    parents = merged.registry(lambda: [None], lambda: [0])
    suffixes = {
        "counter": ["_total"],
        "gauge": [""],
        "info": ["_info"],
        "histogram": ["_bucket", "_sum", "_count"],
    }
    registries = [Metrics().registry, parents, GatewayMetrics([], int).registry, ShuffleMetrics([]).registry]
    families = [family for registry in registries for family in registry.collect()]
    return {family.name + suffix for family in families for suffix in suffixes[family.type]}


def choices(dashboard: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Returns the custom variables with their texts and values."""
    return {
        variable["name"]: dict(re.findall(r"(?:^|,)\s*([^,]+?)\s:\s([^,]+)", variable["query"]))
        for variable in dashboard["templating"]["list"]
        if variable["type"] == "custom"
    }


def panels(dashboard: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the panels except rows."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def queries() -> Iterator[tuple[str, str]]:
    """Yields the place and text of each query, for each choice of custom variables."""
    for name, dashboard in DASHBOARDS.items():
        for panel in panels(dashboard):
            for target in panel["targets"]:
                used = {
                    key: few for key, few in choices(dashboard).items() if f"${{{key}}}" in target["expr"]
                }
                for texts in itertools.product(*used.values()):
                    query = target["expr"]
                    for (key, few), text in zip(used.items(), texts, strict=True):
                        query = query.replace(f"${{{key}}}", few[text])
                    yield ", ".join([name, panel["title"], target["refId"], *texts]), query


def filled(query: str, **chosen: str) -> str:
    """Returns a query with its variables filled in."""
    for name, value in (AT_FIRST | chosen).items():
        query = query.replace(f"${{{name}}}", value).replace(f"${name}", value)
    assert "$" not in query, query
    return query
