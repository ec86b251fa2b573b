"""Page of packages and contracts, from docstrings and pyproject.toml."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docs.generate.markdown import fill, table

ROOT = Path(__file__).parents[2]
_SUBPACKAGES = ("worker/kafka",)
"""Packages whose subpackages also have rows."""


def page() -> str:
    """Returns the page of packages and import contracts."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = pyproject["tool"]["importlinter"]["contracts"]
    rows = [("contract", "rule", "modules")]
    rows += [(f"`{contract['id']}`", contract["name"], _modules(contract)) for contract in contracts]
    parts = {name: table(("module", "contents"), *_contents(ROOT / name)) for name in ("ldp", "worker")}
    return fill("packages.md", contracts=table(*rows), **parts)


def _contents(folder: Path) -> Iterator[tuple[str, str]]:
    """Yields each module or package and its docstring's first paragraph."""
    for path in sorted([*folder.glob("*.py"), *folder.glob("*/__init__.py")]):
        if path.name.startswith("__") and path.parent == folder:
            continue
        part = path.parent if path.name == "__init__.py" else path
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        line = re.sub(r"`+", "`", " ".join(text.split("\n\n")[0].split()))
        yield f"`{part.relative_to(ROOT)}`", line
        if str(part.relative_to(ROOT)) in _SUBPACKAGES:
            yield from _contents(part)


def _modules(contract: dict[str, Any]) -> str:
    """Returns the modules that a contract allows or forbids."""
    match contract["type"]:
        case "forbidden":
            sources, forbidden = _list(contract["source_modules"]), _list(contract["forbidden_modules"])
            return f"{sources} must not import {forbidden}"
        case "protected":
            return f"only {_list(contract['allowed_importers'])} may import {_list(contract['protected_modules'])}"
        case "layers":
            return " → ".join(_list(layer.split(" | ")) for layer in contract["layers"])
        case _:
            return _list(contract["ancestors"])


def _list(modules: list[str]) -> str:
    return ", ".join(f"`{module}`" for module in modules)
