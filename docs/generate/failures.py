"""Pages of failures, from `tests/failures.toml`."""

import re
import tomllib
from pathlib import Path
from typing import Any

from docs.generate.markdown import PAGES, fill, table

NAMES = sorted(path.stem for path in PAGES.glob("failures-*.in"))
"""The names of the pages of failures."""
_FAILURES = Path(__file__).parents[2] / "tests" / "failures.toml"


def read() -> dict[str, dict[str, dict[str, Any]]]:
    """Returns the failures: part -> name -> field -> value."""
    return tomllib.loads(_FAILURES.read_text(encoding="utf-8"))


def parts(name: str) -> list[str]:
    """Returns the names of the parts of a page of failures."""
    return re.findall(r"\{\{(\w+)\}\}", (PAGES / f"{name}.in").read_text(encoding="utf-8"))


def page(name: str) -> str:
    """Returns a page of failures."""
    failures = read()
    return fill(name, **{part: _rows(failures[part]) for part in parts(name)})


def _rows(failures: dict[str, dict[str, Any]]) -> str:
    rows = [("failure", "symptoms", "remedy", "tests")]
    for one in failures.values():
        tests = ", ".join(f"`{test}`" for test in one["tests"])
        if note := one.get("note"):
            tests = f"{tests} ({note})" if tests else note
        rows.append((one["title"], one["seen"], one["remedy"], tests))
    return table(*rows)
