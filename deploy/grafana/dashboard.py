"""A dashboard as it is imported and as it is provisioned: its panels' places, its variables, and what it requires."""

from collections.abc import Mapping, Sequence
from typing import Any

from deploy.grafana.panels import SOURCE, TITLES, Json
from deploy.grafana.queries import PLACE

WIDTH = 24
"""Columns of Grafana's grid."""
MADE_FOR = "12.0.0"
"""The oldest Grafana that the panels are written for."""


def placed(rows: Sequence[tuple[str, Sequence[Json]]]) -> list[Json]:
    """Panels under the titles of their rows, from left to right and from the top down, each with a number.

    Args:
        rows: title -> panels; the first row, whose title is empty, has none above it.

    Example:
        >>> from deploy.grafana.panels import panel
        >>> wide = panel("stat", "Lag", "Records.", (16, 4), {"": "lag"}, "short")
        >>> [(one["title"], *one["gridPos"].values()) for one in placed([("In", [wide, wide])])]
        [('In', 0, 0, 24, 1), ('Lag', 0, 1, 16, 4), ('Lag', 0, 5, 16, 4)]
    """
    panels: list[Json] = []
    top = 0
    for title, row in rows:
        if title:
            at = {"x": 0, "y": top, "w": WIDTH, "h": 1}
            panels.append({"type": "row", "title": title, "collapsed": False, "gridPos": at, "panels": []})
            top += 1
        left = height = 0
        for one in row:
            size = one["gridPos"]
            if left + size["w"] > WIDTH:
                left, top, height = 0, top + height, 0
            panels.append(one | {"gridPos": {"x": left, "y": top} | size})
            left, height = left + size["w"], max(height, size["h"])
        top += height
    return [{"id": number} | one for number, one in enumerate(panels, 1)]


def chosen(name: str, label: str, query: str, *, several: bool = False, text: str = "", **more: Any) -> Json:
    """A variable at the top whose values a query finds; of several all are chosen at first.

    Args:
        name: the variable's.
        label: what it is called at the top.
        query: as ``label_values(...)``.
        several: whether several can be chosen.
        text: what is chosen at first, where that is known.
        **more: further keys, such as ``allValue``.
    """
    current = {"text": ["All"], "value": ["$__all"]} if several else {"text": text, "value": text}
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "query": {"qryType": 1, "query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": several,
        "includeAll": several,
        "hide": 0,
        "current": current,
        "options": [],
        "regex": "",
        **more,
    }


def choice(name: str, label: str, choices: Mapping[str, str]) -> Json:
    """A variable at the top whose values are these; the first is chosen at first.

    Args:
        name: the variable's.
        label: what it is called at the top.
        choices: what is shown -> the value; neither has a comma or a colon.

    Example:
        >>> choice("unit", "Unit", {"seconds": "s", "minutes": "m"})["query"]
        'seconds : s, minutes : m'
    """
    options = [
        {"text": text, "value": value, "selected": not at} for at, (text, value) in enumerate(choices.items())
    ]
    return {
        "name": name,
        "label": label,
        "type": "custom",
        "query": ", ".join(f"{text} : {value}" for text, value in choices.items()),
        "multi": False,
        "includeAll": False,
        "hide": 0,
        "current": options[0],
        "options": options,
    }


def variables(*more: Json) -> list[Json]:
    """Data source, deployment and stream; and what a dashboard has beside."""
    source = {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
        "refresh": 1,
        "regex": "",
        "hide": 0,
        "multi": False,
        "includeAll": False,
        "options": [],
        # Import puts what it asked for here. Provisioning leaves it: then it is the source of that name, or the first.
        "current": {"text": "Prometheus", "value": "${DS_PROMETHEUS}"},
    }
    streams = f"ldp_worker_stream_up{{{PLACE}}}"
    return [
        source,
        chosen("job", "Job", "label_values(ldp_worker_build_info, job)", several=True),
        chosen(
            "namespace",
            "Namespace",
            'label_values(ldp_worker_build_info{job=~"$job"}, namespace)',
            several=True,
            allValue=".*",
        ),
        chosen("stream", "Stream", f"label_values({streams}, stream)"),
        *more,
    ]


def dashboard(
    uid: str, title: str, text: str, rows: Sequence[tuple[str, Sequence[Json]]], further: Sequence[Json] = ()
) -> Json:
    """A whole dashboard, as it is imported and as it is provisioned.

    Args:
        uid: its address in Grafana.
        title: what it is called.
        text: what it is for.
        rows: see `placed`.
        further: variables beside those that each has.
    """
    panels = placed(rows)
    kinds = sorted({one["type"] for one in panels} - {"row"})
    others = {
        "title": "LDP",
        "type": "dashboards",
        "tags": ["ldp-worker"],
        "asDropdown": False,
        "includeVars": True,
        "keepTime": True,
        "targetBlank": False,
        "icon": "external link",
        "tooltip": "",
        "url": "",
    }
    return {
        "__inputs": [
            {
                "name": "DS_PROMETHEUS",
                "label": "Prometheus",
                "description": "What scrapes the workers.",
                "type": "datasource",
                "pluginId": "prometheus",
                "pluginName": "Prometheus",
            }
        ],
        "__requires": [
            {"type": "grafana", "id": "grafana", "name": "Grafana", "version": MADE_FOR},
            {"type": "datasource", "id": "prometheus", "name": "Prometheus", "version": "1.0.0"},
            *({"type": "panel", "id": kind, "name": TITLES[kind], "version": ""} for kind in kinds),
        ],
        "uid": uid,
        "title": title,
        "description": text,
        "tags": ["ldp-worker"],
        "schemaVersion": 41,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "5s",
        "timezone": "utc",
        "time": {"from": "now-30m", "to": "now"},
        "annotations": {"list": []},
        "links": [others],
        "templating": {"list": variables(*further)},
        "panels": panels,
    }
