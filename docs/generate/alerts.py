"""The page of the alerts, from the rules of Prometheus."""

import re
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from docs.generate.markdown import fill, table

RULES = Path(__file__).parents[2] / "deploy/prometheus/rules.yml"


def page() -> str:
    """Returns the page of the alerts."""
    rules = [rule for group in YAML(typ="safe").load(RULES)["groups"] for rule in group["rules"]]
    alerts = [_row(rule) for rule in rules if "alert" in rule]
    series = [(f"`{rule['record']}`", _code(rule["expr"])) for rule in rules if "record" in rule]
    return fill(
        "alerts.md",
        alerts=table(("alert", "severity", "for", "summary", "expression"), *alerts),
        series=table(("series", "expression"), *series),
    )


def _row(rule: dict[str, Any]) -> tuple[str, ...]:
    notes = rule["annotations"]
    runbook = notes["runbook_url"].replace("docs/", "../")
    summary = re.sub(r"\{\{ if .*?\{\{ else \}\}(.*?)\{\{ end \}\}", r"\1", notes["summary"])
    summary = re.sub(r"\{\{ *\$(?:labels\.)?(\w+).*?\}\}", r"*\1*", summary)
    alert = f"[`{rule['alert']}`]({runbook})"
    return alert, rule["labels"]["severity"], rule.get("for", ""), summary, _code(rule["expr"])


def _code(expression: str) -> str:
    return f"`{' '.join(expression.split())}`"
