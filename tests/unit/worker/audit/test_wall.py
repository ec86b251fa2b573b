"""The audit's wall: nothing of what it audits is behind it."""

import ast
from pathlib import Path

import pytest

from worker import audit

FILES = sorted(Path(audit.__file__).parent.rglob("*.py"))
OF_CONFIGURATION = {"worker.config.Config", "worker.config.Served"}
WAYS_IN = {
    "worker.login.Tokens",
    "worker.redis.connecting.Client",
    "worker.redis.connecting.connect",
    "worker.redis.script.Script",
}
"""How to get to the servers is said once; none of it looks at what they answer."""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_audit_shares_nothing_with_what_it_audits(path):
    tree = ast.parse(path.read_text())
    imported = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            imported += [f"{'.' * node.level}{node.module or ''}.{alias.name}" for alias in node.names]
    ours = {name for name in imported if name.split(".")[0] in ("", "ldp", "worker", "tests")}
    assert {name for name in ours if not name.startswith("worker.audit.")} <= OF_CONFIGURATION | WAYS_IN
    # nor by the names of modules in strings, nor by the oracle that a served stream carries
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not attributes & {"oracle", "import_module", "__import__"}
    assert not {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} & {
        "import_module",
        "__import__",
    }


def test_only_the_reading_knows_kafka_and_redis():
    clients = {}
    for path in FILES:
        roots = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                roots |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                roots.add((node.module or "").split(".")[0])
        if found := roots & {"kafka", "redis", "rich", "click"}:
            clients[path.stem] = found
    assert clients == {"reading": {"kafka", "redis"}}
    ways = [path.stem for path in FILES if any(way.rpartition(".")[0] in path.read_text() for way in WAYS_IN)]
    assert ways == ["reading"]
