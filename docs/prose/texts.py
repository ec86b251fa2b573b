"""Extraction of prose from Markdown, Python and other tracked files."""

import ast
import io
import re
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from markdown_it import MarkdownIt

DATA: dict[str, Any] = tomllib.loads((Path(__file__).parent / "rules.toml").read_text(encoding="utf-8"))
DOCUMENT, CODE, MESSAGE = "document", "code", "message"
PRODUCT = ("ldp/", "worker/", "deploy/")
FEWEST_WORDS = 4  # minimum for a message, and for a sentence in the mean
PLACEHOLDER = "_x_"  # stands for a code span or an interpolated value
_INLINE = {"code_inline": PLACEHOLDER, "softbreak": " ", "hardbreak": " ", "html_inline": ""}
_PRAGMA = re.compile(r"^(type:|noqa|pragma|fmt:|!|ruff:|mypy:|-\*-)")
_SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Yields|Example|Examples|Note):$")
_ENTRY = re.compile(r"(?:[-*] |\d+\. |\*{0,2}`{0,2}[\w.]+(?: \([^)]*\))?`{0,2}: )")
_CODE_LIKE = re.compile(r"redis\.call|^\s*<|\n.*\n.*[={]")


class Text(NamedTuple):
    """A paragraph, table cell, comment, literal or part of a docstring."""

    kind: str
    path: str
    line: int
    text: str
    headline: str = ""


def texts_of(path: str, source: str) -> Iterator[Text]:
    """Yields a file's texts without code blocks, code spans and link targets.

    The name of a test, with spaces, is also a text.
    """
    suffix = path.rpartition(".")[2]
    product = path.startswith(PRODUCT)
    if suffix == "md":
        yield from (Text(DOCUMENT, path, line, text) for line, text in _markdown(source))
    elif suffix == "py":
        yield from (t for t in _python(path, source) if product or t.kind == CODE)
    elif suffix in DATA["comments"]:
        lines = enumerate(source.splitlines(), 1)
        found = [(n, m[1]) for n, line in lines if (m := re.search(DATA["comments"][suffix], line))]
        yield from (Text(CODE, path, n, text) for n, text in _joined(found))
    if product and suffix in DATA["messages"]:
        patterns = DATA["messages"][suffix]
        source = re.sub(patterns["omitted"], lambda m: PLACEHOLDER + "\n" * m[0].count("\n"), source)
        for m in re.finditer(patterns["found"], source):
            text = _plain(re.sub(r"\$?\{+[^}]*\}+", PLACEHOLDER, m[m.lastindex or 0])).strip(" '\"")
            yield Text(MESSAGE, path, source.count("\n", 0, m.start()) + 1, text)


def _plain(text: str) -> str:
    return " ".join(re.sub(r"``[^`]+``|`[^`]+`", PLACEHOLDER, text).split())


def _markdown(source: str) -> Iterator[tuple[int, str]]:
    """Yields line and text of headings, paragraphs, list items and cells."""
    line = 0
    for token in MarkdownIt().enable("table").parse(source):
        line = token.map[0] + 1 if token.map else line
        if token.type == "inline":
            parts = [_INLINE.get(child.type, child.content) for child in token.children or ()]
            yield line, " ".join("".join(parts).split())


def _joined(comments: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Joins comments on consecutive lines."""
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
            if not token.line[: token.start[1]].strip():
                comments.append((token.start[0], text))
            else:
                yield Text(CODE, path, token.start[0], _plain(text))
    yield from (Text(CODE, path, n, text) for n, text in _joined(comments))
    tree = ast.parse(source)
    inside: set[int] = set()
    heads: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and node.body:
            heads.add(id(node.body[0]))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield Text(CODE, path, node.lineno, node.name[5:].replace("_", " "))
        if isinstance(node, ast.Expr) and isinstance(value := getattr(node.value, "value", None), str):
            inside.add(id(node.value))
            yield from _docstring(path, node.lineno, value, id(node) in heads)
        elif isinstance(node, ast.JoinedStr):
            inside |= {id(part) for part in ast.walk(node)} - {id(node)}
            parts = [str(p.value) if isinstance(p, ast.Constant) else PLACEHOLDER for p in node.values]
            if id(node) not in inside and len(" ".join(parts).split()) >= FEWEST_WORDS:
                yield Text(MESSAGE, path, node.lineno, _plain("".join(parts)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            value = node.value
            if len(value.split()) >= FEWEST_WORDS and not _CODE_LIKE.search(value):
                yield Text(MESSAGE, path, node.lineno, _plain(value))


def _docstring(path: str, line: int, value: str, headed: bool) -> Iterator[Text]:
    """Yields a docstring's paragraphs and entries, except doctests and tables."""
    headline = value.strip().partition("\n")[0] if headed else ""
    held, at, doctest = "", line, False
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
