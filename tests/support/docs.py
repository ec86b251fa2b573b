"""Documentation pages as the tests read them."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def page(name: str) -> str:
    """Returns the text of a page of docs, such as "guides/windows", or of a file such as "README.md"."""
    path = ROOT / name if name.endswith(".md") else ROOT / "docs" / f"{name}.md"
    return path.read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    """Returns the code blocks of a language in a page's text."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
