"""The pages in docs: their size, the files and methods that they name, and their links."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
READMES = [
    ROOT / "README.md",
    *(p for f in ("deploy", "ldp", "worker") for p in (ROOT / f).rglob("README.md")),
]
WORDS = {word for path in ROOT.glob("[lw]*/**/*.py") for word in re.findall(r"\w+", path.read_text("utf-8"))}
MOST_BYTES = 12_000


def prose(page: Path) -> str:
    """Returns a page without its code blocks."""
    return re.sub(r"(?ms)^```.*?^```", "", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """Returns the anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"(?m)^#+ (.+)$", prose(page))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_is_short_and_names_files_and_methods_that_exist(page: Path) -> None:
    assert page.stat().st_size <= MOST_BYTES
    files = re.findall(r"`((?:ldp|worker|tests|deploy|docs)/[\w./-]+)", prose(page))
    assert [name for name in files if not (ROOT / name).exists()] == []
    named = re.findall(r"`([A-Z]\w*[a-z]\w*)\.(\w+)`", prose(page)) if page.parent.name == "internals" else []
    assert [pair for pair in named if not WORDS.issuperset(pair)] == []


def test_the_readmes_are_short_and_the_index_has_every_page() -> None:
    assert [path for path in READMES if path.stat().st_size > (10_000 if path.parent == ROOT else 3000)] == []
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    assert [page.name for page in PAGES if f"({page.relative_to(ROOT / 'docs')})" not in index] == [
        "README.md"
    ]


@pytest.mark.parametrize("page", [*PAGES, *READMES], ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_and_anchors_exist(page: Path) -> None:
    for path, anchor in re.findall(r"\]\((?!\w+:)([^()\s#]*)#?([^()\s]*)\)", prose(page)):
        target = page.parent / path if path else page
        assert target.exists(), path
        assert not anchor or anchor in anchors(target), f"{path}#{anchor}"
