"""Command `check`: validates configuration, Kafka and Redis."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ldp.terminal import echo_json, piped, printable, show
from worker.cli.command import command, complain, json_option, stream_option

if TYPE_CHECKING:
    from rich.table import Table

    from worker.check import Finding
    from worker.config import Config


@command("check")
@json_option
@click.option(
    "--document",
    "path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A document for clients. It is an error unless all partitions accept its reports.",
)
@stream_option
def check(config: "Config", as_json: bool, path: Path | None, stream: str | None) -> int:
    """Validate the configuration, Kafka and Redis.

    Checks configuration, brokers, topics, Redis and stored counts. Shows the privacy loss of each stream.
    The exit code is 1 if there is an error. With --document, the exit code is 0 if clients can use the document, 1 if
    a partition does not accept it yet, and 2 if another error prevents a verdict. --stream names its stream.
    """
    from worker.check import Level, findings
    from worker.config.documents import read_document

    ship = None
    if path is not None:
        name = config.served(stream).name
        ship = name, read_document(name, path, "--document")
    found = findings(config, complain, ship)
    if as_json:
        echo_json([asdict(finding) for finding in found], indent=2)
    else:
        show(render(found, one_line=piped()))
    errors = {finding.subject for finding in found if finding.level is Level.ERROR}
    if ship is None:
        return int(bool(errors))
    own = f"document {ship[1].fingerprint.hex()} of {ship[0]}"
    if own in errors:
        return 1
    return 0 if not errors and any(finding.subject == own for finding in found) else 2


_STYLES = {"ok": "green", "warning": "yellow", "error": "bold red"}


def render(findings: "Sequence[Finding]", *, one_line: bool = False) -> "Table":
    """Returns the findings as a table with level, subject, text and hint."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    before = " " if one_line else "\n"
    for finding in findings:
        style = _STYLES[finding.level]
        line = Text.assemble((printable(finding.subject), "bold"), f": {printable(finding.text)}")
        if finding.hint:
            line.append(f"{before}-> {printable(finding.hint)}", style="italic")
        table.add_row(Text(finding.level, style=style), line)
    return table
