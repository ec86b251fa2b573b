"""The kinds of panels that the dashboards have, as Grafana's JSON, not yet placed."""

from collections.abc import Mapping, Sequence
from typing import Any

Json = dict[str, Any]

SOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}
"""The data source that is chosen at the top; on import Grafana asks for it."""
TITLES = {
    "bargauge": "Bar gauge",
    "stat": "Stat",
    "table": "Table",
    "timeseries": "Time series",
}
"""Grafana's kinds of panels, as it calls them."""


def panel(
    kind: str,
    title: str,
    text: str,
    size: tuple[int, int],
    queries: Mapping[str, str],
    unit: str,
    **more: Any,
) -> Json:
    """A panel, not yet placed.

    Args:
        kind: one of `TITLES`.
        title: what it shows.
        text: what that means, and what to do about it.
        size: columns and rows of the grid.
        queries: legend -> query.
        unit: Grafana's name for it.
        **more: ``fields``, the defaults of its fields; ``overrides`` of them; ``options``; keys of the panel itself.
    """
    fields = {"unit": unit, "noValue": "none"} | more.pop("fields", {})
    overrides, options = more.pop("overrides", []), more.pop("options", {})
    # a number is that of now, or none: not the last one that there was, which may be old
    instant = kind in ("bargauge", "table") or options.get("graphMode") == "none"
    targets = [
        {
            "refId": chr(ord("A") + at),
            "datasource": SOURCE,
            "expr": query,
            "legendFormat": legend,
            **({"instant": True} if instant else {"range": True}),
            **({"format": "table"} if kind == "table" else {}),
        }
        for at, (legend, query) in enumerate(queries.items())
    ]
    return {
        "type": kind,
        "title": title,
        "description": text,
        "datasource": SOURCE,
        "gridPos": {"w": size[0], "h": size[1]},
        "fieldConfig": {"defaults": fields, "overrides": overrides},
        "options": options,
        "targets": targets,
        **more,
    }


def thresholds(*steps: tuple[float | None, str]) -> Json:
    """From which value on a field has which colour; the first has none."""
    return {"mode": "absolute", "steps": [{"value": value, "color": color} for value, color in steps]}


def stat(
    title: str,
    text: str,
    queries: str | Mapping[str, str],
    unit: str = "short",
    *,
    width: int = 3,
    height: int = 4,
    steps: Sequence[tuple[float | None, str]] = ((None, "blue"),),
    words: Mapping[str, str] | None = None,
    spark: bool = False,
    names: bool = False,
    decimals: int | None = None,
) -> Json:
    """A number, the newest; with words for values, a line behind it, or its name in its place."""
    fields: Json = {"color": {"mode": "thresholds"}, "thresholds": thresholds(*steps)}
    if words:
        mapped = {value: {"text": word, "index": at} for at, (value, word) in enumerate(words.items())}
        fields["mappings"] = [{"type": "value", "options": mapped}]
    if decimals is not None:
        fields["decimals"] = decimals
    options: Json = {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": "value",
        "graphMode": "area" if spark else "none",
        "textMode": "name" if names else "auto",
        "orientation": "auto",
        "justifyMode": "auto",
    }
    queries = {"__auto": queries} if isinstance(queries, str) else queries
    return panel("stat", title, text, (width, height), queries, unit, fields=fields, options=options)


def timeseries(
    title: str,
    text: str,
    queries: Mapping[str, str],
    unit: str = "short",
    *,
    width: int = 8,
    height: int = 8,
    least: float | None = 0,
    most: float | None = None,
    line: float | None = None,
    decimals: int | None = None,
    stacked: bool = False,
    overrides: Sequence[Json] = (),
    **more: Any,
) -> Json:
    """Lines over time; with a dashed one where an alert fires."""
    custom: Json = {
        "drawStyle": "line",
        "lineWidth": 1,
        "fillOpacity": 10 if least == 0 else 0,
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
    }
    fields: Json = {"color": {"mode": "palette-classic"}, "custom": custom}
    limits = {"min": least, "max": most, "decimals": decimals}
    fields |= {name: value for name, value in limits.items() if value is not None}
    if line is not None:
        custom["thresholdsStyle"] = {"mode": "dashed"}
        fields["thresholds"] = thresholds((None, "green"), (line, "red"))
    options = {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    return panel(
        "timeseries",
        title,
        text,
        (width, height),
        queries,
        unit,
        fields=fields,
        overrides=[*overrides],
        options=options,
        **more,
    )


def bars(title: str, text: str, queries: Mapping[str, str], unit: str, *, width: int, height: int) -> Json:
    """A horizontal bar for each series, in the query's order."""
    fields = {"color": {"mode": "continuous-BlPu"}, "decimals": 2, "min": 0}
    options = {
        "orientation": "horizontal",
        "displayMode": "gradient",
        "valueMode": "color",
        "namePlacement": "left",
        "showUnfilled": True,
        "minVizHeight": 16,
        "minVizWidth": 8,
        "maxVizHeight": 300,
        "sizing": "auto",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "legend": {"showLegend": False, "displayMode": "hidden", "placement": "bottom", "calcs": []},
    }
    return panel("bargauge", title, text, (width, height), queries, unit, fields=fields, options=options)


def matrix(
    title: str, text: str, query: str, rows: str, columns: Sequence[str], *, width: int = 24, height: int = 10
) -> Json:
    """A table of one query's frequencies: a row for each value of a label, a column for each of the label method.

    Args:
        title: as of `panel`.
        text: as of `panel`.
        query: has a series for each cell.
        rows: the label that says the row.
        columns: the first ones, in their order; others come after them.
        width: columns of the grid.
        height: its rows.
    """
    corner = f"{rows}\\method"  # as Grafana calls it
    place = {name: at for at, name in enumerate([corner, *columns])}
    cells = {"columnField": "method", "rowField": rows, "valueField": "Value"}
    transformations = [
        {"id": "groupingToMatrix", "options": cells},
        {
            "id": "organize",
            "options": {"indexByName": place, "renameByName": {corner: rows}, "excludeByName": {}},
        },
    ]
    wide = [
        {"matcher": {"id": "byName", "options": rows}, "properties": [{"id": "custom.width", "value": 240}]}
    ]
    order = [{"displayName": "base", "desc": True}]
    return _table(title, text, query, (width, height), transformations, order, wide)


def listed(title: str, text: str, query: str, columns: Sequence[str], *, width: int, height: int) -> Json:
    """A table of one query's labels, without its numbers: a row for each series."""
    order = {name: at for at, name in enumerate(columns)}
    hidden = {"Time": True, "Value": True}
    transformations = [
        {"id": "organize", "options": {"indexByName": order, "renameByName": {}, "excludeByName": hidden}}
    ]
    return _table(title, text, query, (width, height), transformations, [])


def _table(
    title: str,
    text: str,
    query: str,
    size: tuple[int, int],
    transformations: list[Json],
    order: list[Json],
    overrides: Sequence[Json] = (),
) -> Json:
    custom = {"align": "auto", "cellOptions": {"type": "auto"}, "minWidth": 60}
    return panel(
        "table",
        title,
        text,
        size,
        {"": query},
        "percentunit",
        fields={"decimals": 2, "custom": custom},
        overrides=[*overrides],
        options={"showHeader": True, "cellHeight": "sm", "sortBy": order},
        transformations=transformations,
    )
