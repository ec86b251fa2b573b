"""The pages in docs."""

from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def page(name: str) -> str:
    """Returns the text of a page, such as ``reference/wire-format``."""
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")
