"""Limits of size: a file has at most 450 lines or states why it is longer, a function at most 59."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
MODULES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for package in ("ldp", "worker", "deploy", "tests/paper")
    for path in sorted((ROOT / package).rglob("*.py"))
}
MOST_LINES = 450
MOST_LINES_OF_A_FUNCTION = 59


def said(text):
    return " ".join((ast.get_docstring(ast.parse(text)) or "").split())


def test_every_module_has_a_docstring():
    assert {"ldp/__init__.py", "worker/counting/ownership.py", "deploy/demo/demo.py"} <= MODULES.keys()
    assert [name for name, text in MODULES.items() if text and not said(text)] == []


def test_every_long_file_has_a_reason():
    long = {name: lines for name, text in MODULES.items() if (lines := len(text.splitlines())) > MOST_LINES}
    reason = "that is why it is longer than others"
    assert {name: lines for name, lines in long.items() if reason not in said(MODULES[name])} == {}


def test_no_function_is_long():
    long = {
        f"{name}:{node.lineno} {node.name}": lines
        for name, text in MODULES.items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := node.end_lineno - node.lineno + 1) > MOST_LINES_OF_A_FUNCTION
    }
    assert long == {}
