"""The generated pages in docs/reference are up to date and complete."""

import ast
import re
from importlib.resources import files

import click
import pytest
from click.testing import CliRunner
from prometheus_client import generate_latest

import ldp.cli
import worker.cli
from docs.generate.__main__ import PAGES, REFERENCE
from tests.support.docs import page
from tests.unit.worker.test_init import WHOLE
from worker.observe.metrics import Metrics
from worker.observe.uploads import GatewayMetrics, ShuffleMetrics


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_up_to_date(name):
    assert (REFERENCE / name).read_text(encoding="utf-8") == PAGES[name](), "run make reference"


def rows(name):
    """Returns the first cells of the tables of a page."""
    return set(re.findall(r"(?m)^\| `([^`]+)` \|", page(f"reference/{name}")))


@pytest.mark.parametrize("package", [ldp, worker])
def test_no_help_or_message_points_at_a_file_that_is_not_installed(package):
    cli = package.cli.cli
    texts = [CliRunner().invoke(cli, [name, "--help"]).output for name in cli.commands]
    for path in files(package.__name__).rglob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        texts += [n.value for n in nodes if isinstance(n, ast.Constant) and id(n) not in docstrings]
    found = [text for text in texts if re.search(r"\b(docs|deploy|tests)/", str(text))]
    assert [text for text in found if "source tree" not in " ".join(text.split())] == []


def keys(table, prefix=""):
    """Returns the keys of a parsed TOML table; for a list of tables, the keys of the first."""
    for name, value in table.items():
        inner = value[0] if isinstance(value, list) and value and isinstance(value[0], dict) else value
        if isinstance(inner, dict):
            yield from keys(inner, f"{prefix}{name}.")
        else:
            yield prefix + name


def test_every_key_of_the_template_has_a_row():
    explained = rows("configuration") | rows("configuration-streams")
    assert set(keys(WHOLE)) - explained == set()


def test_every_exported_metric_has_a_row():
    registries = Metrics().registry, GatewayMetrics([], int).registry, ShuffleMetrics([]).registry
    exported = [
        name
        for each in registries
        for name in re.findall(r"# HELP (ldp_\S+)", generate_latest(each).decode())
    ]
    assert {*exported} == rows("metrics")
    assert not [name for name in exported if name.endswith(("_sum", "_count", "_bucket", "_created"))]


@pytest.mark.parametrize(
    ("cli", "program", "names"),
    [
        (ldp.cli.cli, "ldp", ("reference/cli-ldp", "reference/cli-ldp-analysis")),
        (worker.cli.cli, "ldp-worker", ("reference/cli-ldp-worker",)),
    ],
)
def test_every_command_has_a_heading_and_every_option_of_its_help_a_row(cli, program, names):
    text = "\n".join(map(page, names))
    sections = re.findall(rf"(?m)^## {program} ([\w-]+)$", text)
    assert len(sections) == len({*sections})
    for command in cli.list_commands(click.Context(cli)):
        section = text.partition(f"## {program} {command}\n")[2].partition("\n## ")[0]
        assert section, command
        options = re.findall(
            r"(?m)^  (?:-\w, )?(--[\w-]+)", CliRunner().invoke(cli, [command, "--help"]).output
        )
        described = section + text.partition("\n## ")[0]
        assert [option for option in options if f"{option} " not in described.replace("`", " ")] == []


def test_every_alert_has_a_row():
    rules = (REFERENCE.parents[1] / "deploy/prometheus/rules.yml").read_text(encoding="utf-8")
    named = set(re.findall(r"- alert: (\w+)", rules))
    assert named - set(re.findall(r"(?m)^\| \[`(\w+)`\]", page("reference/alerts"))) == set()
