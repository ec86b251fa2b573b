"""Page of the alerts, from the Prometheus rules."""

import re
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from docs.generate.markdown import fill, table

RULES = Path(__file__).parents[2] / "deploy/prometheus/rules.yml"


def rules() -> list[dict[str, Any]]:
    """Returns the alerts and recorded series in their order."""
    return [rule for group in YAML(typ="safe").load(RULES)["groups"] for rule in group["rules"]]


def page() -> str:
    """Returns the page of the alerts."""
    alerts = [_row(rule) for rule in rules() if "alert" in rule]
    series = [(f"`{rule['record']}`", _code(rule["expr"])) for rule in rules() if "record" in rule]
    return fill(
        "alerts.md",
        alerts=table(("alert", "severity", "for", "summary", "expression"), *alerts),
        series=table(("series", "expression"), *series),
    )


def summary(notes: dict[str, str]) -> str:
    """Returns an alert's summary, with label names in place of values."""
    text = re.sub(r"\{\{ if .*?\{\{ else \}\}(.*?)\{\{ end \}\}", r"\1", notes["summary"])
    return re.sub(r"\{\{ *\$(?:labels\.)?(\w+).*?\}\}", r"*\1*", text)


def _row(rule: dict[str, Any]) -> tuple[str, ...]:
    notes = rule["annotations"]
    runbook = notes["runbook_url"].replace("docs/", "../")
    alert = f"[`{rule['alert']}`]({runbook})"
    return alert, rule["labels"]["severity"], rule.get("for", ""), summary(notes), _code(rule["expr"])


def _code(expression: str) -> str:
    return f"`{' '.join(expression.split())}`"
