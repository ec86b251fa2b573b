"""The pages of log events and errors are complete, by enumerations that do not parse the code."""

import re
from http import HTTPStatus
from pathlib import Path

from ldp.frames import Reason

ROOT = Path(__file__).parents[2]


def text(pattern: str) -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(ROOT.glob(pattern)))


def first_cells(page: str, section: str) -> list[str]:
    body = text(f"docs/reference/{page}").partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return re.findall(r"(?m)^\| `?(.+?)`? \|", body)[2:]


def test_every_event_that_the_worker_logs_is_on_the_page():
    logged = r"\.(?:info|warning|error|exception|critical)\(\s*\"([a-z]+\.[a-z_]+)\""
    events = set(re.findall(logged, text("worker/**/*.py")))
    assert len(events) > 35
    assert sorted(events) == first_cells("log-events.md", "Events")


def test_the_fields_that_the_page_of_events_names_are_in_the_code():
    section, code = text("docs/reference/log-events.md").partition("## Events")[2], text("worker/**/*.py")
    for name, fields, meaning in re.findall(r"(?m)^\| `(.+)` \| \w+ \| (.*) \| (.+) \|$", section):
        named = re.findall(r"\w+", fields) + re.findall(r"`(\w+_\w+)`", meaning)
        assert [key for key in named if f'"{key}"' not in code and f"{key}=" not in code] == [], name


def test_every_exit_code_is_on_the_page():
    page = text("docs/reference/errors.md")
    for command, package in (("ldp", "ldp/cli"), ("ldp-worker", "worker/cli")):
        named = r'(?:exit\(|return |_FAILED, _TOO_FEW = \d, |"not recountable": )(\d)[),\n]'
        codes = {"0", "1", "2", *re.findall(named, text(f"{package}/*.py"))}  # the first three: click
        assert sorted(codes) == re.findall(rf"\| `{command}` \| (\d) \|", page)


def test_every_reason_of_rejection_is_on_the_page():
    assert first_cells("errors.md", "Reasons of rejection") == [*Reason, "batch", "late"]


def test_every_http_error_is_on_the_page():
    code = text("worker/http/*.py")
    statuses = {HTTPStatus[name] for name in re.findall(r"HTTPStatus\.([A-Z_]+)", code)}
    statuses |= {HTTPStatus(int(status)) for status in re.findall(r"status_code=(\d+)", code)}
    due = [f"{status} {status.phrase}" for status in sorted(statuses) if status >= HTTPStatus.BAD_REQUEST]
    assert first_cells("errors.md", "HTTP errors") == due
