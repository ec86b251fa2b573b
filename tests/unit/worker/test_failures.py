"""The failures of `tests/failures.toml` name what exists, and every symptom of a failure is on one of their pages."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from docs.generate import failures, log_events
from tests.long.soak.faults import FAULTS
from worker.config.schema import File, StreamTable, Table
from worker.counting import ports
from worker.counting.ports import Answer
from worker.observe.merged import registry
from worker.observe.metrics import Metrics
from worker.observe.progress import Step

ROOT = Path(__file__).parents[3]
PAGES = ["failures.md", *failures.NAMES]
SECTION = "\n".join((ROOT / "docs/reference" / name).read_text(encoding="utf-8") for name in PAGES)
ROWS = [row for part in failures.read().values() for row in part.values()]
NAMED = re.findall(r"`([^`]+)`", SECTION)
TESTS = [test for row in ROWS for test in row["tests"]]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def product() -> Iterator[Path]:
    return (ROOT / "worker").rglob("*.py")


def keys(table: type[Table], name: str = "") -> Iterator[str]:
    for key, field in table.model_fields.items():
        yield f"{name}{key}"
        if isinstance(field.default, Table):
            yield from keys(type(field.default), f"{key}.")


def test_each_failure_is_complete_and_on_one_page():
    assert sorted(part for name in failures.NAMES for part in failures.parts(name)) == sorted(failures.read())
    assert len({row["title"] for row in ROWS}) == len(ROWS) > 100
    for row in ROWS:
        assert row.keys() - {"note"} == {"title", "seen", "remedy", "tests"}, row
        assert all(row[key] for key in ("title", "seen", "remedy")), row
        assert row["tests"] or row["note"], row


@pytest.mark.parametrize("named", sorted(set(TESTS)))
def test_every_named_test_exists(named):
    file, _, name = named.partition("::")
    defined = [node.name for node in parsed(ROOT / "tests" / file).body if isinstance(node, ast.FunctionDef)]
    assert defined.count(name) == 1
    assert name.startswith("test_") or file in (
        "long/soak/faults.py",
        "long/kills/points.py",
        "long/kills/runs.py",
    )


def test_every_named_metric_exists():
    metrics = Metrics()
    metrics.begin("s", ["9f86d081"])
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


def test_named_alerts_exist_and_every_alert_is_named():
    rules = (ROOT / "deploy/prometheus/rules.yml").read_text(encoding="utf-8")
    alerts = set(re.findall(r"- alert: (\w+)", rules))
    assert alerts == {name for name in NAMED if re.fullmatch(r"Ldp[A-Z]\w+", name)}


def test_named_events_exist_and_every_failure_event_is_named():
    events = log_events.emitted()
    configured = {*keys(File), *(f"streams.{key}" for key in StreamTable.model_fields)}
    dotted = {name for name in NAMED if re.fullmatch(r"[a-z]+\.[a-z_]+", name)}
    assert dotted - events.keys() - configured == set()
    assert {name for name, event in events.items() if event.levels != {"info"}} - dotted == set()


def test_every_readiness_step_is_named():
    assert {step.value for step in Step} == set(re.findall(r"\[([^\]]+)\](?!\()", SECTION))


def test_every_kind_of_failure_is_named():
    ways = {
        name
        for name, found in vars(ports).items()
        if isinstance(found, type) and issubclass(found, Exception)
    }
    assert ways - set(NAMED) == set()
    assert {answer.value for answer in Answer} - {"done"} <= set(NAMED)
    assert {f"exit code {code}" for code in range(4)} <= set(re.findall(r"exit code \d", SECTION))


def test_reasons_that_stop_a_stream_are_quoted_exactly():
    texts = " ".join(
        node.value
        for path in product()
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    for row in ROWS:
        for words in re.findall(r"\"([^\"]+)\"", re.sub(r"`[^`]*`", "", row["seen"])):
            assert words in texts, words


def test_every_fault_of_the_soak_is_named():
    assert {f"long/soak/faults.py::{fault.__name__}" for fault in FAULTS} <= set(TESTS)


CLOCKS = ("now", "utcnow", "today", "time_ns", "gmtime", "localtime")


def test_counting_and_publishing_never_use_the_wall_clock():
    """A jump of a worker's clock changes only `published`, which no decision reads: waits use a monotonic clock."""
    rooms = ("counting", "publishing", "service", "store")
    asked = [
        f"{path.name}:{node.lineno}"
        for room in rooms
        for path in (ROOT / "worker" / room).glob("*.py")
        for function in ast.iter_child_nodes(parsed(path))
        if (path.name, getattr(function, "name", "")) != ("taking.py", "_now")
        for node in ast.walk(function)
        if (isinstance(node, ast.Attribute) and node.attr in CLOCKS)
        or (isinstance(node, ast.Attribute) and ast.unparse(node) == "time.time")
        or (isinstance(node, ast.ImportFrom) and node.module in ("time", "datetime"))
    ]
    assert asked == []
