"""The dashboards are valid and of one stream; Grafana finds them, import asks for the source."""

import copy
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML

from tests.long.alerts.rules import alerts
from tests.support.dashboards import DASHBOARDS, exposed, panels, queries

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
COMPOSE = DEPLOY / "compose" / "compose.yaml"
GRAFANA: dict[str, Any] = YAML(typ="safe").load(COMPOSE)["services"]["grafana"]
SCHEMA = json.loads((ROOT / "tests/vectors/grafana-dashboard.schema.json").read_text(encoding="utf-8"))
OPEN = json.loads((ROOT / "tests/vectors/grafana-panels.schema.json").read_text(encoding="utf-8"))
IMPORTED = {"__inputs", "__requires"}
"""Fields that import reads, which a dashboard itself lacks."""
EVERY = pytest.mark.parametrize("dashboard", DASHBOARDS.values(), ids=DASHBOARDS)


@EVERY
def test_every_dashboard_matches_the_schema(dashboard: dict[str, Any]) -> None:
    kept = {key: value for key, value in dashboard.items() if key not in IMPORTED}
    jsonschema.Draft7Validator(SCHEMA).validate(kept)


def left_open(panel: dict[str, Any]) -> dict[str, Any]:
    """Fields of a panel that the dashboard type leaves open, from the panels' schema; overrides as fields."""
    fields = panel["fieldConfig"]
    custom = fields["defaults"].get("custom", {}) | {
        named["id"].removeprefix("custom."): named["value"]
        for override in fields["overrides"]
        for named in override["properties"]
        if named["id"].startswith("custom.")
    }
    return {panel["type"]: {"options": panel["options"]} | ({"custom": custom} if custom else {})}


def validate(said: dict[str, Any]) -> None:
    """Raises where a kind of panel has no such option, or a query no such key."""
    own = OPEN["definitions"]["Panels"]
    jsonschema.Draft7Validator({**own, "required": []}).validate(said)


@EVERY
def test_every_option_exists_for_its_panel_type(dashboard: dict[str, Any]) -> None:
    for panel in panels(dashboard):
        validate(left_open(panel))
        for target in panel["targets"]:
            validate({"target": target})


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("bargauge", "options.valuemode", "color"),
        ("stat", "custom", {"lineWidth": 1}),
        ("table", "custom.minWidth", "60"),
        ("timeseries", "custom.thresholdsStyle.mode", "dotted"),
    ],
)
def test_an_option_of_another_panel_type_is_detected(kind: str, path: str, value: object) -> None:
    found = (panel for name in DASHBOARDS for panel in panels(DASHBOARDS[name]) if panel["type"] == kind)
    said = copy.deepcopy(left_open(next(found)))
    *parents, last = path.split(".")
    node = said[kind]
    for step in parents:
        node = node.setdefault(step, {})
    node[last] = value
    with pytest.raises(jsonschema.ValidationError):
        validate(said)


@EVERY
def test_every_panel_has_a_description_and_the_chosen_data_source(dashboard: dict[str, Any]) -> None:
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    for panel in panels(dashboard):
        assert len(panel["description"]) > 20, panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["datasource"] == chosen
        assert [target["datasource"] for target in panel["targets"]] == [chosen] * len(panel["targets"])
    source, *variables = dashboard["templating"]["list"]
    assert (source["name"], source["type"], source["query"]) == ("datasource", "datasource", "prometheus")
    asking = [variable for variable in variables if variable["type"] == "query"]
    assert [variable["datasource"] for variable in asking] == [chosen] * len(asking)
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)


@EVERY
def test_imports_and_provisioning_use_the_same_data_source(dashboard: dict[str, Any]) -> None:
    """Import replaces the placeholders; otherwise the name decides, or the first source."""
    (asked,) = dashboard["__inputs"]
    assert (asked["type"], asked["pluginId"]) == ("datasource", "prometheus")
    text = json.dumps(dashboard)
    assert text.count(f"${{{asked['name']}}}") == 1
    source = dashboard["templating"]["list"][0]
    assert source["current"]["value"] == f"${{{asked['name']}}}"
    file = DEPLOY / "grafana/provisioning/datasources/prometheus.yaml"
    (provisioned,) = YAML(typ="safe").load(file)["datasources"]
    assert (provisioned["name"], provisioned["type"]) == (source["current"]["text"], source["query"])
    assert provisioned["url"] == "http://prometheus:9090"
    required = {one["id"] for one in dashboard["__requires"] if one["type"] == "panel"}
    assert required == {panel["type"] for panel in panels(dashboard)}


@EVERY
def test_panels_do_not_overlap(dashboard: dict[str, Any]) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert max(x for x, _ in cells) < 24, panel["title"]
        assert not cells & taken, panel["title"]
        taken |= cells


@EVERY
def test_variables_are_declared(dashboard: dict[str, Any]) -> None:
    declared = {variable["name"] for variable in dashboard["templating"]["list"]}
    for panel in panels(dashboard):
        for target in panel["targets"]:
            used = set(re.findall(r"\$\{?(\w+)", target["expr"])) - {"__rate_interval", "__range"}
            assert used <= declared, panel["title"]
        assert set(re.findall(r"\$(\w+)", panel["title"])) <= declared


def test_every_query_selects_one_deployment_and_one_stream() -> None:
    for _, query in queries():
        for metric, selected in re.findall(r"((?:ldp_worker|process)_\w+|\bup)\{([^}]*)\}", query):
            assert selected.startswith('job=~"$job",namespace=~"$namespace"'), query
            shared = (
                metric.startswith(("process_", "ldp_worker_redis_", "ldp_worker_process_")) or metric == "up"
            )
            assert shared or 'stream="$stream"' in selected, query
        assert not re.search(r"\bldp_worker_\w+(?![\w{])", query), query


def test_queries_use_existing_metrics_only() -> None:
    asked = {
        name
        for _, query in queries()
        for name in re.findall(r"(?:ldp_(?:worker|gateway|shuffle)|process)_\w+", query)
    }
    assert asked <= exposed() | {"process_cpu_seconds_total", "process_resident_memory_bytes"}
    # and panels show every metric of the publisher
    answers = {name for name in exposed() if re.match("ldp_worker_(snapshot|window)_", name)}
    assert {name for name in answers if not name.endswith(("_sum", "_count"))} - asked <= set()


def test_every_named_alert_exists() -> None:
    named = {
        name
        for dashboard in DASHBOARDS.values()
        for panel in panels(dashboard)
        for name in re.findall(r"\bLdp[A-Z]\w+", panel["description"])
    }
    assert named <= alerts().keys()


def test_compose_mounts_the_dashboards_for_grafana() -> None:
    file = DEPLOY / "grafana/provisioning/dashboards/ldp-worker.yaml"
    (provider,) = YAML(typ="safe").load(file)["providers"]
    mounted = {volume.split(":")[1]: volume.split(":")[0] for volume in GRAFANA["volumes"]}
    folder = COMPOSE.parent / mounted[provider["options"]["path"]]
    assert (
        sorted(file.stem for file in folder.iterdir())
        == ["ldp-frequencies", "ldp-operations"]
        == [*DASHBOARDS]
    )
    assert [dashboard["uid"] for dashboard in DASHBOARDS.values()] == [*DASHBOARDS]
    home = GRAFANA["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home == f"{provider['options']['path']}/ldp-frequencies.json"
    assert (COMPOSE.parent / mounted["/etc/grafana/provisioning"] / "datasources/prometheus.yaml").is_file()


def test_the_job_of_the_workers_is_selectable() -> None:
    for dashboard in DASHBOARDS.values():
        job = dashboard["templating"]["list"][1]
        assert job["query"]["query"] == "label_values(ldp_worker_build_info, job)"
