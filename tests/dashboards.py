"""The shipped dashboards as the tests take them apart: panels, queries as Grafana sends them, what they may ask for."""

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from deploy.local import services
from worker.observe import merged
from worker.observe.metrics import Metrics

FOLDER = Path(services.__file__).parent.parent / "grafana" / "dashboards"
DASHBOARDS: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.iterdir())
}
"""By their names in Grafana's addresses."""
AT_FIRST = {
    "job": ".+",
    "namespace": ".*",
    "method": "norm-sub",
    "band": "_anytime_",
    "value": ".+",
    "__rate_interval": "20s",
    "__range": "300s",
}
"""What variables are where nobody has chosen anything, as patterns that mean the same."""


def exposed() -> set[str]:
    """The names of all series that workers expose, and the parent of several processes."""
    parents = merged.registry(lambda: [None], lambda: [0])
    suffixes = {
        "counter": ["_total"],
        "gauge": [""],
        "info": ["_info"],
        "histogram": ["_bucket", "_sum", "_count"],
    }
    families = [*Metrics().registry.collect(), *parents.collect()]
    return {family.name + suffix for family in families for suffix in suffixes[family.type]}


def choices(dashboard: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """The variables that list what can be chosen: texts and values, read from their queries as Grafana does."""
    return {
        variable["name"]: dict(re.findall(r"(?:^|,)\s*([^,]+?)\s:\s([^,]+)", variable["query"]))
        for variable in dashboard["templating"]["list"]
        if variable["type"] == "custom"
    }


def panels(dashboard: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The panels that show something."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def queries() -> Iterator[tuple[str, str]]:
    """Where each query stands, and the query; once for each choice of what can be chosen from a list."""
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
    """A query as Grafana sends it, its variables filled in; the stream's at least is to be given."""
    for name, value in (AT_FIRST | chosen).items():
        query = query.replace(f"${{{name}}}", value).replace(f"${name}", value)
    assert "$" not in query, query
    return query
