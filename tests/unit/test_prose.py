"""The prose linter: it finds each sentence that the style guide replaces, and none of the replacements."""

import re

import pytest

from docs.prose.__main__ import KINDS, ROOT, errors, matches
from docs.prose.texts import Text, texts_of

STYLE = (ROOT / "docs/contributing/style.md").read_text(encoding="utf-8")
TABLE = re.search(r"\| before \| after \|\n\| --- \| --- \|\n((?:\|.*\n)+)", STYLE)[1]
PAIRS = [re.fullmatch(r"\| (.*?) \| (.*) \|", line).groups() for line in TABLE.splitlines()]
BEFORE = (ROOT / "docs/prose/before.txt").read_text(encoding="utf-8").splitlines()
WITHOUT_A_PATTERN = {
    "All values keep their order": "normal words in a normal order",
    "An honest stream is an alarm": "a metaphor",
    "So there is one file": "a wrong conclusion",
    "it is never more than": "normal English, which was only too long for its place",
    "values must have one dimension": "normal English, without the remedy",
}


def rules(text):
    return {found.rule for kind in KINDS for found in matches(Text(kind, "x", 1, text))}


@pytest.mark.parametrize("text", [before for before, _ in PAIRS] + BEFORE)
def test_each_replaced_sentence_breaks_a_rule(text):
    assert bool(rules(text)) != text.startswith(tuple(WITHOUT_A_PATTERN))


@pytest.mark.parametrize("text", [after for _, after in PAIRS])
def test_no_replacement_breaks_a_rule(text):
    assert rules(text) == set()


def found(path, source):
    return [(text.kind, text.line, text.text) for text in texts_of(path, source) if text.text]


def test_texts_are_found_without_their_code():
    page = "# A `b`\n\nSee [c](d.md).\n\n| e | f |\n| --- | --- |\n| g | `h` |\n\n```sh\ni\n```\n"
    assert [text for *_, text in found("a.md", page)] == ["A _x_", "See c.", "e", "f", "g", "_x_"]
    code = '"""A.\n\nArgs:\n  b: c\n    d.\n\n>>> e\n"""\n# f\n# g\nh("i j k l", f"m n {o} p")  # q\n'
    texts = [("code", 1, "A."), ("code", 4, "c d."), ("code", 9, "f g"), ("code", 11, "q")]
    assert sorted(found("tests/a.py", code)) == texts
    assert found("tests/a.py", "def test_b_c(): ...") == [("code", 1, "b c")]
    assert sorted(found("ldp/a.py", code)) == [
        *texts,
        ("message", 11, "i j k l"),
        ("message", 11, "m n _x_ p"),
    ]
    alert = "# a\nb:\n  summary: c d\n  description: >-\n    e\n    f\n"
    assert found("deploy/a.yml", alert) == [("code", 1, "a"), ("message", 3, "c d"), ("message", 4, "e f")]


def test_a_long_sentence_of_a_document_is_an_error():
    assert [found.rule for found in errors(Text("document", "x", 1, "a " * 41))] == ["long-sentence"]
    assert list(errors(Text("document", "x", 1, "a " * 40))) == []


@pytest.mark.parametrize(
    ("path", "length", "wrong"), [("ldp/a.py", 73, True), ("ldp/a.py", 72, False), ("tests/a.py", 73, False)]
)
def test_a_long_first_line_of_a_product_docstring_is_an_error(path, length, wrong):
    assert [found.rule for found in errors(Text("code", path, 1, "a", "a" * length))] == ["headline"] * wrong
