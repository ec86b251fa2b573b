"""Documentation pages as the tests read them."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMES = [
    *("README.md", "ldp/clients/javascript/README.md", "ldp/examples/README.md", "tests/vectors/README.md"),
    *sorted(path.relative_to(ROOT / "docs").as_posix()[:-3] for path in (ROOT / "docs").rglob("*.md")),
]
"""The documents with code blocks, as `page` names them."""


def page(name: str) -> str:
    """Returns the text of a page of docs, such as "guides/windows", or of a file such as "README.md"."""
    path = ROOT / name if name.endswith(".md") else ROOT / "docs" / f"{name}.md"
    return path.read_text(encoding="utf-8")


def block(name: str, beginning: str) -> str:
    """Returns the only code block of a page that begins with a text."""
    (found,) = [text for _, text in every_block(name) if text.startswith(beginning)]
    return found


def every_block(name: str) -> list[tuple[str, str]]:
    """Returns the language and text of each code block of a page, also in a list."""
    found = re.findall(r"^( *)```(\w*)\n(.*?)^\1```$", page(name), re.MULTILINE | re.DOTALL)
    return [
        (language, re.sub(f"^{indent}", "", text, flags=re.MULTILINE)) for indent, language, text in found
    ]


def blocks(text: str, language: str) -> list[str]:
    """Returns the code blocks of a language in a page's text."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
