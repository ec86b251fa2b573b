"""What a dashboard's panels show: each query as Grafana sends it, to a Prometheus, with repeated panels laid out."""

import copy
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tests.dashboards import AT_FIRST, filled, panels
from tests.prometheus import Prometheus

STEP = 2
"""Seconds between the points of a line."""
Json = dict[str, Any]


def asked(dashboard: Mapping[str, Any], scraper: Prometheus, stream: str, begin: float, end: float) -> Json:
    """A dashboard's grid as Grafana shows it: its rows, and each panel with the data of each of its queries.

    Args:
        dashboard: one of `tests.dashboards.DASHBOARDS`.
        scraper: who has the data.
        stream: the chosen one.
        begin: of what is shown, in seconds since 1970.
        end: likewise.
    """
    shown = []
    for panel in _laid_out(dashboard, _values(dashboard, scraper, stream, end)):
        chosen = {"stream": stream, "value": _escaped(panel.get("value", "")) or AT_FIRST["value"]}
        targets = [
            target | {"data": _data(scraper, filled(target["expr"], **chosen), target, begin, end)}
            for target in panel.get("targets", [])
        ]
        title = (
            panel["title"].replace("$method", AT_FIRST["method"]).replace("$value", panel.get("value", ""))
        )
        shown.append(panel | {"targets": targets, "title": title})
    return {
        "title": dashboard["title"],
        "variables": {
            variable["label"]: _chosen(variable["current"]["text"]) or stream
            for variable in dashboard["templating"]["list"]
        },
        "begin": begin,
        "end": end,
        "panels": shown,
    }


def _chosen(text: str | Sequence[str]) -> str:
    """What a variable shows; the stream's nothing, before one is chosen."""
    return text if isinstance(text, str) else ", ".join(text)


def _escaped(value: str) -> str:
    """A value within a pattern within a query's quotes, as Grafana has it."""
    return re.sub(r"[$^*{}\[\]+?.()|]", r"\\\\\g<0>", value.replace("\\", 4 * "\\"))


def _data(scraper: Prometheus, query: str, target: Mapping[str, Any], begin: float, end: float) -> Any:
    if target.get("instant"):
        return scraper.get("query", query=query, time=f"{end:.0f}")["result"]
    return scraper.get("query_range", query=query, start=f"{begin:.0f}", end=f"{end:.0f}", step=str(STEP))[
        "result"
    ]


def _values(dashboard: Mapping[str, Any], scraper: Prometheus, stream: str, end: float) -> list[str]:
    """What the variable value has to choose from, by its query and its pattern."""
    for variable in dashboard["templating"]["list"]:
        if variable["name"] == "value":
            query = re.fullmatch(r"query_result\((.*)\)", filled(variable["query"]["query"], stream=stream))
            assert query is not None
            result = scraper.get("query", query=query[1], time=f"{end:.0f}")["result"]
            # as Grafana writes what it matches the pattern against
            lines = [
                "{"
                + ",".join(f'{k}="{v}"' for k, v in one["metric"].items())
                + f"}} {one['value'][1]} {one['value'][0]}"
                for one in result
            ]
            pattern = variable["regex"].strip("/")
            return [found[1] for line in lines if (found := re.search(pattern, line))]
    return []


def _laid_out(dashboard: Mapping[str, Any], values: Sequence[str]) -> list[Json]:
    """The panels and rows, those that repeat once for each value, side by side, and what is below pushed down."""
    laid: list[Json] = []
    pushed = 0.0
    for panel in sorted(
        dashboard["panels"], key=lambda panel: (panel["gridPos"]["y"], panel["gridPos"]["x"])
    ):
        at = panel["gridPos"] | {"y": panel["gridPos"]["y"] + pushed}
        if "repeat" not in panel:
            laid.append(panel | {"gridPos": at})
            continue
        rows = -(-len(values) // panel["maxPerRow"])
        across = -(-len(values) // rows)
        for number, value in enumerate(values):
            down, right = divmod(number, across)
            cell = {
                "x": right * at["w"] / across,
                "y": at["y"] + down * at["h"],
                "w": at["w"] / across,
                "h": at["h"],
            }
            laid.append(copy.deepcopy(panel) | {"gridPos": cell, "value": value})
        pushed += (rows - 1) * at["h"]
    assert len({panel["id"] for panel in laid}) == len(dashboard["panels"])
    assert panels(dashboard)
    return laid
