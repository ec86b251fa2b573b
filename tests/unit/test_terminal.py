"""Foreign text on a terminal: no command, log line or metric passes on what a terminal would obey."""

import ast
import io
import json
import os
import pty
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import prometheus_client
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

import ldp
from ldp import snapshot, terminal
from ldp.cli import cli as ldp_cli
from ldp.consistency import METHODS
from ldp.terminal import printable, printable_json
from worker.audit import PartitionVerdict, StreamVerdict
from worker.check import Finding, Level
from worker.cli import audit, check, dead_letters, overview, shown
from worker.kafka.dead_letters.reader import DeadLetter
from worker.observe.answers import Answers, Shown
from worker.observe.metrics import Metrics

ROOT = Path(__file__).parents[2]
HOSTILE = "a\x1b]0;title\x07\x1b[2J\r\x9b2J\x7f\u202eevil\u2066\u2028z"
OBEYED = [
    *map(chr, {*range(32), *range(0x7F, 0xA0)} - {10}),
    "\u202e",
    "\u2066",
    "\u200e",
    "\u2028",
    "\u2029",
]


def assert_harmless(text):
    assert not [character for character in OBEYED if character in text], repr(text)


# The function


@pytest.mark.parametrize(
    ("text", "due"),
    [
        ("grün 🟣 👩\u200d🚀 a\u00a0b می\u200cخواهم", "grün 🟣 👩\u200d🚀 a\u00a0b می\u200cخواهم"),
        ("\x1b[2J", r"\x1b[2J"),
        ("\x9b2J\x7f\x00", r"\x9b2J\x7f\x00"),
        ("a\r\nb\tc", r"a\r\nb\tc"),
        ("\u202e\u2066\u200f\u061c\ufeff", r"\u202e\u2066\u200f\u061c\ufeff"),
        ("\u2028\u2029\U000e0041\ud800", r"\u2028\u2029\U000e0041\ud800"),
        (b"\\x1b \x1b \xff", r"\\x1b \x1b \xff"),
    ],
)
def test_control_and_invisible_characters_are_escaped(text, due):
    assert printable(text) == due


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_json_keeps_its_value_without_control_characters(text):
    written = printable_json(json.dumps([text], ensure_ascii=False))
    assert json.loads(written) == [text]
    assert_harmless(written)
    assert_harmless(printable(text))


def on_screen(renderable, width=200):
    console = terminal.screen(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    console.print(renderable)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [10, 40, 200])
def test_a_screen_escapes_before_the_layout(width):
    table = Table("a", "b", box=None)
    table.add_row(Text(HOSTILE), "[red]no markup[/] :smile:")
    seen = on_screen(table, width)
    assert_harmless(seen)
    assert max(map(len, seen.split("\n"))) <= width
    assert width < 200 or (r"\x1b" in seen and "[red]no markup[/] :smile:" in seen)


# The places

ELSEWHERE = {
    "ldp/__main__.py": "names a missing package, before click is there",
    "worker/__main__.py": "names a missing package, before click is there",
    "ldp/terminal.py": "the functions themselves",
    "ldp/cli/perturb.py": "asks what stdout is",
    "ldp/cli/command.py": "writes bytes: frames, and JSON through printable_json",
    "worker/observe/logs.py": "its processors escape",
    "deploy/rows/postgres.py": "prints through printable",
    "deploy/image/sbom.py": "reads a lock, writes ASCII",
    "deploy/local/services.py": "prints addresses of its own services",
    "deploy/sizing/__main__.py": "prints numbers",
}
"""Files that print by other means than `ldp.terminal`, and why they may."""


def prints(tree):
    """Whether a file calls what writes to a terminal, or names a standard stream."""
    for node in ast.walk(tree):
        name = (
            ast.unparse(node.func if isinstance(node, ast.Call) else node)
            if isinstance(node, ast.Call | ast.Attribute)
            else ""
        )
        called = isinstance(node, ast.Call) and name in {
            "print",
            "click.echo",
            "click.secho",
            "Console",
            "rich.print",
        }
        if called or name in {"sys.stdout", "sys.stderr", "sys.__stderr__"}:
            return True
    return False


def test_all_output_uses_the_terminal_module():
    """A new place fails here: print through `ldp.terminal`, or explain above why the printed text is trusted."""
    found = set()
    for folder in ("ldp", "worker", "deploy", "tests/paper"):
        for path in (ROOT / folder).rglob("*.py"):
            name = path.relative_to(ROOT).as_posix()
            apart = name.startswith(("ldp/clients/", "ldp/examples/"))  # separate programs
            if not apart and prints(ast.parse(path.read_text(encoding="utf-8"))):
                found.add(name)
    assert found == {*ELSEWHERE}


STREAM = ldp.Stream("s", ldp.GRR("1", 3), labels=["a\u202eb", "two", "three"])


def taken(labels=(HOSTILE, "two", "three")):
    """A snapshot as read from the topic, with any text as a label."""
    made = snapshot.take(STREAM, STREAM.oracle.estimate([60, 30, 10], 100), snapshot.Cut({0: 9}, {}), 1)
    return replace(made, labels=labels)


def places():
    yield "watch", shown.render(taken(), ["norm-sub"], 3, 200)
    many = taken(("an exceptionally long label", "two", "three"))
    yield "watch, all methods", shown.render(many, [*METHODS][1:], 3, 80)
    yield "watch, all streams", overview.render([ldp.Fleet((STREAM,))], {"s": taken()})
    yield "check", check.render([Finding(Level.WARNING, HOSTILE, f"transactional id {HOSTILE}", HOSTILE)])
    partition = PartitionVerdict(0, 0, 9, 2, 9, 18, {HOSTILE: 2}, difference=HOSTILE)
    yield "audit", audit.render(StreamVerdict("s", (partition,), published=HOSTILE, unknown=HOSTILE))
    dead_letter = DeadLetter(HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE, 0, 0, 2, 0, HOSTILE.encode())
    yield "dead-letters", dead_letters.render([dead_letter], 1, value=True)


def tables(shown):
    if isinstance(shown, Table):
        yield shown
    for part in getattr(shown, "renderables", ()):
        yield from tables(part)


@pytest.mark.parametrize("place", [pytest.param(shown, id=name) for name, shown in places()])
def test_headings_of_a_screen_break_only_between_words(place):
    seen = on_screen(place, 80)
    assert max(map(cell_len, seen.splitlines())) <= 80
    wanted = {
        word for table in tables(place) for column in table.columns for word in column.header.split(" ")
    }
    assert wanted - {""} <= {*seen.split()}


PLACES = [pytest.param(shown, id=name) for name, shown in places() if "all methods" not in name]


@pytest.mark.parametrize("place", PLACES)
def test_a_screen_of_a_command_is_harmless(place, capsys):
    seen = on_screen(place)
    assert_harmless(seen)
    assert r"\x1b" in seen
    terminal.show(place)
    assert_harmless(capsys.readouterr().out)


@pytest.mark.parametrize(
    "words",
    [
        ["aggregate", "--document", "{document}", "{reports}", "--top", "3"],
        ["aggregate", "--document", "{document}", "{reports}"],
        ["aggregate", "--document", "{document}", "{reports}", "--state", "{state}", "--top", "3"],
        ["estimate", "--document", "{document}", "{counts}", "--top", "3"],
        ["estimate", "--document", "{document}", "{foreign}"],
        ["merge", "{foreign}", "{state}"],
        ["aggregate", "--document", "{foreign}", "{reports}"],
        ["aggregate", "--document", "{hostile}", "{reports}"],
        ["perturb", "--document", "{document}", "{values}"],
    ],
)
def test_output_of_ldp_contains_no_control_characters(words, tmp_path):
    files = {
        "document": json.dumps(STREAM.document()).encode(),
        "reports": ldp.frames.encode(STREAM, STREAM.oracle.perturb([0, 1, 2])),
        "counts": json.dumps({"reports": 9, "supports": {"two": 9}}).encode(),
        "foreign": json.dumps({"reports": 9, "supports": {HOSTILE: 9}, HOSTILE: HOSTILE}).encode(),
        "hostile": json.dumps(STREAM.document() | {"protocol": HOSTILE}).encode(),
        "values": HOSTILE.encode(),
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    given = [word.format(**{name: tmp_path / name for name in [*files, "state"]}) for word in words]
    result = CliRunner().invoke(ldp_cli, given)
    assert result.exit_code in (0, 1, 2)
    assert not result.exception or isinstance(result.exception, SystemExit)
    assert_harmless(result.output)


LOGGED = f"""
import logging, structlog
from worker.observe import logs
logs.configure("info")
hostile = {HOSTILE!r}
structlog.get_logger("worker.service").warning("a.thing", client=hostile, several=[hostile])
logging.getLogger("kafka.x").error("broker said %s", hostile)
try:
    raise ValueError(hostile)
except ValueError:
    structlog.get_logger("worker.service").exception("a.failure")
"""


def test_log_lines_are_harmless_on_a_terminal_and_in_json():
    piped = subprocess.run([sys.executable, "-c", LOGGED], capture_output=True, check=True).stderr.decode()
    assert_harmless(piped)
    first, second, third = map(json.loads, piped.splitlines())
    assert (first["client"], HOSTILE in second["event"], HOSTILE in third["exception"]) == (
        HOSTILE,
        True,
        True,
    )
    ours, theirs = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", LOGGED], stderr=theirs):
        os.close(theirs)
        said = b""
        with suppress(OSError):  # which is how a terminal ends
            while True:
                said += os.read(ours, 1 << 16)
    os.close(ours)
    seen = said.decode().replace("\r\n", "\n").replace("\x1b[0m", "")
    assert seen.count("a.thing") == 1
    assert not [
        each for each in ("\x1b]0", "\x1b[2J", "\x07", "\x9b", "\u202e", "\u2066", "\r") if each in seen
    ], seen
    assert seen.count(r"\x1b[2J") == 4


def test_labels_of_metrics_are_harmless():
    metrics = Metrics()
    Answers(metrics).show(Shown.of(taken(), 0.1).answers)
    text = prometheus_client.generate_latest(metrics.registry).decode()
    assert_harmless(text)
    assert r"\\x1b[2J" in text
    assert np.isfinite(metrics.registry.get_sample_value("python_info", {}) or 0)
