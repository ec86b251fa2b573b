"""Parses the shipped rules: an alert, its comparison, and its series."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from deploy.local import services

RULES = Path(services.__file__).parent.parent / "prometheus" / "rules.yml"
_SERIES = re.compile(r"\b(?:ldp_(?:worker|gateway|shuffle)_\w+|up|[a-z_]+:\w+:\w+)\b(?:\{[^}]*\})?")


@dataclass(frozen=True)
class Alert:
    """One alert."""

    name: str
    expression: str
    left: str
    operator: str
    threshold: float

    @classmethod
    def of(cls, name: str, expression: str) -> "Alert":
        """Takes an expression apart, which has to end with its threshold."""
        found = re.fullmatch(r"(.+) (>|<|==) ([\d.]+)", expression, re.DOTALL)
        assert found is not None, f"{name} is to end with its threshold: {expression}"
        return cls(name, expression, found[1], found[2], float(found[3]))

    def series(self) -> list[str]:
        """Returns the selectors of an expression."""
        return sorted(set(_SERIES.findall(self.expression)))

    def nearest(self, values: list[float]) -> float:
        """Returns, of some values of the left side, the one that is nearest to firing."""
        return max(values) if self.operator == ">" else min(values)


def groups(file: Path = RULES) -> list[dict[str, Any]]:
    """Returns the groups of a file of rules."""
    found: list[dict[str, Any]] = YAML(typ="safe").load(file)["groups"]
    return found


def rules(file: Path = RULES) -> Iterator[dict[str, Any]]:
    """Returns all rules of a file, recorded series and alerts."""
    return (rule for group in groups(file) for rule in group["rules"])


def alerts(file: Path = RULES) -> dict[str, Alert]:
    """Returns the alerts of a file by their names."""
    return {rule["alert"]: Alert.of(rule["alert"], rule["expr"]) for rule in rules(file) if "alert" in rule}
