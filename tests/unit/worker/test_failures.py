"""The pages of failures in docs/reference name what exists, and every symptom of a failure is on one of them."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.long.soak.faults import FAULTS
from worker.config.schema import File, StreamTable, Table
from worker.counting import ports
from worker.counting.ports import Answer
from worker.observe.merged import registry
from worker.observe.metrics import Metrics
from worker.observe.progress import Step

ROOT = Path(__file__).parents[3]
PAGES = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs/reference").glob("failures-*.md"))]
SECTION = "\n".join([(ROOT / "docs/reference/failures.md").read_text(encoding="utf-8"), *PAGES])
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for page in PAGES
    for line in page.splitlines()
    if line.startswith("| ") and not line.startswith(("| failure |", "| ---"))
]
NAMED = re.findall(r"`([^`]+)`", SECTION)
TESTS = [name for name in NAMED if "::" in name]
LEVELS = ("info", "warning", "error", "exception", "critical")


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def product() -> Iterator[Path]:
    return (ROOT / "worker").rglob("*.py")


def logged() -> dict[str, set[str]]:
    """The events that the worker logs, and at which levels."""
    found: dict[str, set[str]] = {}
    for path in product():
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                said = node.args[0]
                if node.func.attr in LEVELS and isinstance(said, ast.Constant) and "." in str(said.value):
                    found.setdefault(said.value, set()).add(node.func.attr)
    return found


def keys(table: type[Table], name: str = "") -> Iterator[str]:
    for key, field in table.model_fields.items():
        yield f"{name}{key}"
        if isinstance(field.default, Table):
            yield from keys(type(field.default), f"{key}.")


def test_each_row_is_whole():
    assert len(ROWS) > 100
    for row in ROWS:
        assert len(row) == 4, row
        assert all(row), row
        assert "::" in row[3] or row[3].startswith("not shown"), row


@pytest.mark.parametrize("named", sorted(set(TESTS)))
def test_a_test_that_is_named_is_there(named):
    file, _, name = named.partition("::")
    defined = [node.name for node in parsed(ROOT / "tests" / file).body if isinstance(node, ast.FunctionDef)]
    assert defined.count(name) == 1
    assert name.startswith("test_") or file in ("long/soak/faults.py", "long/kills/points.py")


def test_what_is_named_of_metrics_is_there():
    metrics = Metrics()
    metrics.begin("s")
    of_all = [*metrics.registry.collect(), *registry(dict, dict).collect()]
    names = {family.name for family in of_all} | {f"{family.name}_total" for family in of_all}
    values = {v for family in of_all for sample in family.samples for v in sample.labels.values()}
    named = re.findall(r"`(ldp_worker_\w+)(?:\{(\w+)=\"(\w+)\"\})?`", SECTION)
    assert len(named) > 20
    for name, label, value in named:
        assert name in names
        if label:
            assert label in getattr(metrics, ATTRIBUTES.get(name, ""), metrics.waiting)._labelnames
            assert value in values | {"admission", "room"}


ATTRIBUTES = {
    "ldp_worker_errors_total": "errors",
    "ldp_worker_claims_total": "claims",
    "ldp_worker_rejected_total": "rejected",
}


def test_alerts_are_all_there_and_all_named():
    rules = (ROOT / "deploy/prometheus/rules.yml").read_text(encoding="utf-8")
    alerts = set(re.findall(r"- alert: (\w+)", rules))
    assert alerts == {name for name in NAMED if re.fullmatch(r"Ldp[A-Z]\w+", name)}


def test_events_are_there_and_those_of_failures_are_all_named():
    events = logged()
    configured = {*keys(File), *(f"streams.{key}" for key in StreamTable.model_fields)}
    dotted = {name for name in NAMED if re.fullmatch(r"[a-z]+\.[a-z_]+", name)}
    assert dotted - events.keys() - configured == set()
    assert {event for event, levels in events.items() if levels != {"info"}} - dotted == set()


def test_what_readiness_says_of_each_step_is_named():
    assert {step.value for step in Step} == set(re.findall(r"\[([^\]]+)\](?!\()", SECTION))


def test_every_way_to_fail_is_named():
    ways = {
        name
        for name, found in vars(ports).items()
        if isinstance(found, type) and issubclass(found, Exception)
    }
    assert ways - set(NAMED) == set()
    assert {answer.value for answer in Answer} - {"done"} <= set(NAMED)
    assert {f"exit code {code}" for code in range(4)} <= set(re.findall(r"exit code \d", SECTION))


def test_what_a_stream_stops_for_is_said_in_its_words():
    texts = " ".join(
        node.value
        for path in product()
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    for row in ROWS:
        for words in re.findall(r"\"([^\"]+)\"", re.sub(r"`[^`]*`", "", row[1])):
            assert words in texts, words


def test_every_fault_of_the_soak_is_named():
    assert {f"long/soak/faults.py::{fault.__name__}" for fault in FAULTS} <= set(TESTS)


CLOCKS = ("now", "utcnow", "today", "time_ns", "gmtime", "localtime")


def test_no_clock_on_the_wall_has_a_part_in_what_is_counted_or_published():
    """So no jump of a worker's clock has any, either: what waits, waits by one that never jumps."""
    rooms = ("counting", "publishing", "service", "store")
    asked = [
        f"{path.name}:{node.lineno}"
        for room in rooms
        for path in (ROOT / "worker" / room).glob("*.py")
        for node in ast.walk(parsed(path))
        if (
            isinstance(node, ast.Attribute)
            and node.attr in ("now", "utcnow", "today", "time_ns", "gmtime", "localtime")
        )
        or (isinstance(node, ast.Attribute) and ast.unparse(node) == "time.time")
        or (isinstance(node, ast.ImportFrom) and node.module in ("time", "datetime"))
    ]
    assert asked == []
