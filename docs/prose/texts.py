"""Extraction of prose from Markdown, Python and other tracked files."""

import ast
import io
import json
import re
import tokenize
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any, NamedTuple

from markdown_it import MarkdownIt

DOCUMENT, CODE, MESSAGE = "document", "code", "message"
PRODUCT = ("ldp/", "worker/", "deploy/")
FEWEST_WORDS = 4  # of a string literal that counts as a message
PLACEHOLDER = "_x_"  # stands for a code span or an interpolated value
TEXT_KEYS = {"description", "summary", "title", "content", "legendFormat"}
_COMMENTS = {
    "lua": r"--(?!\[)\s?(.*)$",
    "js": r"(?:(?<![:\"'`])//|^\s*/?\*+(?!/))\s?(.*?)(?:\*/)?$",
    "toml": r"(?:^|(?<=\s))#+\s(.*)$",
}
_COMMENTS |= dict.fromkeys(("mjs", "ts"), _COMMENTS["js"]) | dict.fromkeys(("yaml", "yml"), _COMMENTS["toml"])
_PRAGMA = re.compile(r"^(type:|noqa|pragma|fmt:|!|ruff:|mypy:|-\*-)")
_SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Yields|Example|Examples|Note):$")
_ENTRY = re.compile(r"(?:[-*] |\d+\. |\*{0,2}`{0,2}[\w.]+(?: \([^)]*\))?`{0,2}: )")
_CODE_LIKE = re.compile(r"redis\.call|^\s*<|\n.*\n.*[={]")
_LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"|`((?:[^`\\]|\\.)*)`')
_FOLDED = re.compile(r"^(\s*)(?:summary|description|message): *(?:[>|]-? *$)?(.*)$")


class Text(NamedTuple):
    """One paragraph, table cell, comment or literal; `headline` is the first line of a docstring."""

    kind: str
    path: str
    line: int
    text: str
    headline: str = ""


def texts_of(path: str, source: str) -> Iterator[Text]:
    """Yields the texts of a file, without code blocks, code spans and link targets."""
    suffix = path.rpartition(".")[2]
    product = path.startswith(PRODUCT)
    if suffix == "md":
        yield from (Text(DOCUMENT, path, line, text) for line, text in _markdown(source))
    elif suffix == "py":
        yield from (t for t in _python(path, source) if product or t.kind == CODE)
    elif suffix in _COMMENTS:
        lines = list(enumerate(source.splitlines(), 1))
        found = [(n, m[1]) for n, line in lines if (m := re.search(_COMMENTS[suffix], line))]
        yield from (Text(CODE, path, n, text) for n, text in _joined(found))
        if product and suffix in {"js", "mjs"}:
            for n, line in lines:
                if not line.lstrip().startswith(("//", "*", "/*", "import")):
                    yield from (_message(path, n, m[1] or m[2] or "") for m in _LITERAL.finditer(line))
        if product and suffix in {"yaml", "yml"}:
            yield from (_message(path, n, text) for n, text in _annotations(lines))
    elif product and suffix == "html":
        page = _Page()
        page.feed(source)
        yield from (_message(path, n, text) for n, text in page.found)
    elif product and suffix == "json" and source.strip():
        yield from (_message(path, 1, text) for text in _described(json.loads(source)))


def _message(path: str, line: int, text: str) -> Text:
    return Text(MESSAGE, path, line, _plain(re.sub(r"\$?\{[^}]*\}", PLACEHOLDER, text)))


def _plain(text: str) -> str:
    return " ".join(re.sub(r"``[^`]+``|`[^`]+`", PLACEHOLDER, text).split())


def _markdown(source: str) -> Iterator[tuple[int, str]]:
    """Yields the line and text of each heading, paragraph, list item and table cell."""
    line = 0
    for token in MarkdownIt().enable("table").parse(source):
        line = token.map[0] + 1 if token.map else line
        if token.type == "inline":
            parts = []
            for child in token.children or ():
                if child.type == "code_inline":
                    parts.append(PLACEHOLDER)
                elif child.type in {"softbreak", "hardbreak"}:
                    parts.append(" ")
                elif child.type in {"text", "image"}:
                    parts.append(child.content)
            yield line, " ".join("".join(parts).split())


def _joined(comments: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Joins comments of consecutive lines; an empty line or a pragma separates them."""
    at, start, held = 0, 0, ""
    for n, text in [*comments, (1 << 60, "")]:
        if held and n == at + 1 and text.strip():
            held += " " + text.strip()
        else:
            if held:
                yield start, _plain(held)
            start, held = n, text.strip()
        at = n


def _python(path: str, source: str) -> Iterator[Text]:
    comments = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        text = token.string.lstrip("#: ")
        if token.type == tokenize.COMMENT and not _PRAGMA.match(text):
            alone = not token.line[: token.start[1]].strip()
            if alone:
                comments.append((token.start[0], text))
            else:
                yield Text(CODE, path, token.start[0], _plain(text))
    yield from (Text(CODE, path, n, text) for n, text in _joined(comments))
    tree = ast.parse(source)
    inside: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(value := getattr(node.value, "value", None), str):
            inside.add(id(node.value))
            yield from _docstring(path, node.lineno, value)
        elif isinstance(node, ast.JoinedStr):
            inside |= {id(part) for part in ast.walk(node)} - {id(node)}
            parts = [str(p.value) if isinstance(p, ast.Constant) else PLACEHOLDER for p in node.values]
            if id(node) not in inside and len(" ".join(parts).split()) >= FEWEST_WORDS:
                yield Text(MESSAGE, path, node.lineno, _plain("".join(parts)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            value = node.value
            if len(value.split()) >= FEWEST_WORDS and not _CODE_LIKE.search(value):
                yield Text(MESSAGE, path, node.lineno, _plain(value))


def _docstring(path: str, line: int, value: str) -> Iterator[Text]:
    """Yields the paragraphs and entries of a docstring, without doctests and literal tables."""
    headline, held, at, doctest = value.strip().partition("\n")[0], "", line, False
    for n, raw in enumerate([*value.splitlines(), ""], line):
        text = raw.strip()
        doctest = bool(text) and (doctest or text.startswith(">>>"))
        skip = not text or doctest or _SECTION.match(text) is not None or text.startswith("====")
        entry = _ENTRY.match(text) if raw[:1] == " " else None
        if held and (skip or entry):
            yield Text(CODE, path, at, _plain(held), headline)
            headline, held = "", ""
        if not skip:
            body = text[entry.end() :] if entry else text
            held, at = (held + " " + body, at) if held else (body, n)


def _annotations(lines: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Yields the summary, description and message values of YAML, folded ones too."""
    for i, (n, line) in enumerate(lines):
        if match := _FOLDED.match(line):
            text = match[2]
            for _, more in lines[i + 1 :]:
                if (text and match[2]) or not more.startswith(match[1] + " "):
                    break
                text += " " + more.strip()
            yield n, text.strip(" \"'")


def _described(value: Any) -> Iterator[str]:
    """Yields the texts of a JSON document under the keys that hold prose."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key in TEXT_KEYS and isinstance(item, str):
                yield item
            yield from _described(item)
    elif isinstance(value, list):
        for item in value:
            yield from _described(item)


class _Page(HTMLParser):
    """Collects the visible texts and labels of an HTML page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[int, str]] = []
        self.skipped = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Notes scripts and styles, and collects labels."""
        self.skipped = tag in {"script", "style", "code", "pre"}
        line = self.getpos()[0]
        self.found += [(line, v) for k, v in attrs if k in {"title", "aria-label", "content"} and v]

    def handle_endtag(self, _tag: str) -> None:
        """Leaves scripts and styles."""
        self.skipped = False

    def handle_data(self, data: str) -> None:
        """Collects a text."""
        if data.strip() and not self.skipped:
            self.found.append((self.getpos()[0], data))
