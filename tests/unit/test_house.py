"""The measures of the house: a file has at most 450 lines or says why it is longer, a function less than 60."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted(path for room in ("ldp", "worker", "deploy") for path in (ROOT / room).rglob("*.py"))
MOST_LINES = 450
MOST_LINES_OF_A_FUNCTION = 59


def test_the_files_are_found():
    assert {"ldp/__init__.py", "worker/counting/ownership.py", "deploy/demo/demo.py"} <= {
        path.relative_to(ROOT).as_posix() for path in FILES
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_file_is_long_for_a_reason_and_a_function_never(path):
    text = path.read_text(encoding="utf-8")
    module = ast.parse(text)
    said = " ".join((ast.get_docstring(module) or "").split())
    assert said or not text, "no docstring"
    if (lines := len(text.splitlines())) > MOST_LINES:
        assert "that is why it is longer than others" in said, lines
    long = {
        node.name: length
        for node in ast.walk(module)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := node.end_lineno - node.lineno + 1) > MOST_LINES_OF_A_FUNCTION
    }
    assert not long
