"""Each row of the threat model has tests that exist, or is marked as trusted."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/explanation/threat-model.md").read_text(encoding="utf-8")
EVIDENCE = tomllib.loads((ROOT / "tests/unit/threat_model.toml").read_text(encoding="utf-8"))
HEADING = "| no. | asset | access | attack | control and remaining risk |"
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for table in PAGE.split(HEADING)[1:]
    for line in table.split("\n\n")[0].splitlines()[2:]
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_every_line_names_an_existing_test_or_is_trusted(row):
    number, _, _, _, control = row
    named = EVIDENCE.get(number, [])
    assert bool(named) != control.startswith("trusted: ")
    for name in named:
        path, _, test = name.partition("::")
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        tests = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert test in tests, name


def test_every_kind_of_asset_has_its_table():
    assert re.findall(r"^## (.+)", PAGE, re.MULTILINE) == [
        *("Actors", "Topics", "Keys in Redis", "Ports", "Files", "Processes", "Uploads")
    ]
    assert PAGE.count(HEADING) == 6
    assert [int(row[0]) for row in ROWS] == list(range(1, len(ROWS) + 1)) and len(ROWS) == 44
