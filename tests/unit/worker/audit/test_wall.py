"""The audit's isolation, beyond its import contract."""

import ast
from pathlib import Path

import pytest

from worker import audit

FILES = sorted(Path(audit.__file__).parent.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_audit_shares_no_code_with_the_worker(path):
    """Neither by dynamic imports nor by the oracle of a served stream; only `reading` connects."""
    nodes = [*ast.walk(ast.parse(path.read_text()))]
    names = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    names |= {node.id for node in nodes if isinstance(node, ast.Name)}
    assert not names & {"oracle", "import_module", "__import__"}
    modules = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    modules |= {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    clients = ("kafka", "redis", "worker.redis", "worker.login")
    assert path.name == "reading.py" or not [name for name in modules if name.startswith(clients)]
