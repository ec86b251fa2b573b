"""The page of the import contracts, from pyproject.toml."""

import tomllib
from pathlib import Path
from typing import Any

from docs.generate.markdown import fill, table

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


def page() -> str:
    """Returns the page of the import contracts."""
    contracts = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    rows = [("contract", "rule", "modules")]
    rows += [(f"`{contract['id']}`", contract["name"], _modules(contract)) for contract in contracts]
    return fill("import-contracts.md", contracts=table(*rows))


def _modules(contract: dict[str, Any]) -> str:
    """Returns the modules that a contract allows or forbids."""
    match contract["type"]:
        case "forbidden":
            return (
                f"{_list(contract['source_modules'])} must not import {_list(contract['forbidden_modules'])}"
            )
        case "protected":
            return f"only {_list(contract['allowed_importers'])} may import {_list(contract['protected_modules'])}"
        case "layers":
            return " → ".join(_list(layer.split(" | ")) for layer in contract["layers"])
        case _:
            return _list(contract["ancestors"])


def _list(modules: list[str]) -> str:
    return ", ".join(f"`{module}`" for module in modules)
