"""The shipped dashboards as the tests take them apart: their panels, and each query as Grafana sends it."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from deploy.local import services

FOLDER = Path(services.__file__).parent.parent / "grafana" / "dashboards"
DASHBOARDS: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.iterdir())
}
"""By their names in Grafana's addresses."""
AT_FIRST = {
    "job": ".+",
    "namespace": ".*",
    "method": "norm-sub",
    "value": ".+",
    "__rate_interval": "20s",
    "__range": "300s",
}
"""What variables are where nobody has chosen anything, as patterns that mean the same."""


def panels(dashboard: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The panels that show something."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def queries() -> Iterator[tuple[str, str]]:
    """Where each query stands, and the query."""
    for name, dashboard in DASHBOARDS.items():
        for panel in panels(dashboard):
            for target in panel["targets"]:
                yield f"{name}, {panel['title']}, {target['refId']}", target["expr"]


def filled(query: str, **chosen: str) -> str:
    """A query as Grafana sends it, its variables filled in; the stream's at least is to be given."""
    for name, value in (AT_FIRST | chosen).items():
        query = query.replace(f"${name}", value)
    assert "$" not in query, query
    return query
