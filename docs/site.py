"""Copies the pages and all linked files into build/docs for the site.

Paths stay as in the repository, so each relative link is the same on the site. Run ``python docs/site.py``.
"""

import re
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "docs"
LINK = re.compile(r"\]\((?!\w+:)([^()\s#]+)")


def pages_and_files() -> set[Path]:
    """Returns the pages of docs, README.md and all files that they link to."""
    found, unread = set(), [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    while unread:
        path = unread.pop().resolve()
        if path in found:
            continue
        found.add(path)
        if path.suffix == ".md":
            text = re.sub(r"(?ms)^```.*?^```", "", path.read_text(encoding="utf-8"))
            unread += [path.parent / link for link in LINK.findall(text)]
    return found


def visible(text: str) -> str:
    """Removes the dot in .github, because the site generator skips it."""
    return re.sub(r"(^|[(/])\.github/(?=\w+\.md)", r"\1github/", text)


def navigation() -> str:
    """Returns the configuration's `nav`, in the order of docs/README.md."""
    lines = ["nav:", "  - Overview: README.md", "  - All pages: docs/README.md"]
    for line in (ROOT / "docs" / "README.md").read_text(encoding="utf-8").splitlines():
        if shelf := re.match(r"## (.+?)(:.*)?$", line):
            lines.append(f"  - {shelf[1]}:")
        elif page := re.match(r"- \[(.+?)\]\((.+?)\)", line):
            lines.append(f'      - "{page[1]}": docs/{page[2]}')
    return "\n".join(lines) + "\n"


def main() -> None:
    """Writes build/docs/mkdocs.yml and build/docs/source."""
    shutil.rmtree(BUILD, ignore_errors=True)
    for path in pages_and_files():
        target = BUILD / "source" / visible(path.relative_to(ROOT).as_posix())
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            target.write_text(visible(path.read_text(encoding="utf-8")), encoding="utf-8")
        else:
            shutil.copyfile(path, target)
    configuration = (ROOT / "docs" / "site.yml").read_text(encoding="utf-8")
    (BUILD / "mkdocs.yml").write_text(configuration + navigation(), encoding="utf-8")


if __name__ == "__main__":
    main()
