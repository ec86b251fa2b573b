"""Says what can be wrong before it hurts."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from ldp.terminal import echo_json, piped, printable, show
from worker.cli.command import command, complain, json_option

if TYPE_CHECKING:
    from rich.table import Table

    from worker.check import Finding
    from worker.config import Config


@command("check")
@click.option(
    "--wait",
    type=click.FloatRange(min=0),
    default=0.0,
    metavar="SECONDS",
    help="Keep trying until brokers and Redis answer.",
)
@json_option
def check(config: "Config", wait: float, as_json: bool) -> int:
    """Say what can be wrong before it hurts.

    Looks at configuration, brokers, topics, Redis and the counts in it. Exits with 1 if anything is an error;
    warnings are for you to judge.
    """
    from worker.check import Level, findings
    from worker.observe import logs

    logs.silence()
    found = findings(config, wait, complain)
    if as_json:
        echo_json(in_json(found))
    else:
        show(render(found, one_line=piped()))
    return int(any(finding.level is Level.ERROR for finding in found))


_STYLES = {"ok": "green", "warning": "yellow", "error": "bold red"}


def render(findings: "Sequence[Finding]", *, one_line: bool = False) -> "Table":
    """Returns the findings as a table: how bad, then what was looked at and found; what to do is below or behind."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    before = " " if one_line else "\n"
    for finding in findings:
        style = _STYLES[finding.level]
        said = Text.assemble((printable(finding.subject), "bold"), f": {printable(finding.text)}")
        if finding.todo:
            said.append(f"{before}-> {printable(finding.todo)}", style="italic")
        table.add_row(Text(finding.level, style=style), said)
    return table


def in_json(findings: "Sequence[Finding]") -> str:
    """Returns the findings as a JSON list."""
    return json.dumps([asdict(finding) for finding in findings], ensure_ascii=False, indent=2)
