"""``ldp aggregate``: turns reports into a snapshot or a table."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from ldp.cli.command import INPUT, OUTPUT, amount, cli, document_option, opened, output_path, write_state
from ldp.cli.printing import Printing, printing_options
from ldp.terminal import echo

if TYPE_CHECKING:
    from ldp.files import Aggregator, Rejected
    from ldp.stream import Stream

_COMPILING_SECONDS = 4  # CPU time of the first run of an installation
_PLACES = 3  # Malformed records that are listed per reason


@cli.command("aggregate")
@click.argument("files", nargs=-1, type=INPUT, metavar="[FILE]...")
@document_option()
@printing_options
@click.option(
    "--most-reports",
    type=click.IntRange(min=1),
    metavar="N",
    help="Reject records with more than N reports, like streams.most_reports. Default: no limit.",
)
@click.option(
    "--rejected",
    type=click.File("w", encoding="ascii", lazy=False),
    metavar="FILE",
    help="File for malformed lines: JSON lines with reason, source, line number and base64.",
)
@click.option(
    "--state",
    "output",
    type=OUTPUT,
    callback=output_path,
    metavar="FILE",
    help="File for the counts, as a state. The command then prints only the table of --top.",
)
def aggregate(
    stream: Stream,
    files: tuple[str, ...],
    printing: Printing,
    most_reports: int | None,
    rejected: TextIO | None,
    output: Path | None,
) -> None:
    """Count reports and estimate the values' frequencies.

    Reads frames from files or stdin (-). A file has JSON lines, or one binary frame (first byte 0x01 or 0x02). The
    counts of all files and segments are added. Prints a snapshot in the format of the snapshot topic, as JSON lines:
    the head, the labels if the stream has labels, and a body for each method.

    \b
    ldp aggregate --document colours.json reports.jsonl --top 3
    ldp aggregate --document colours.json a.jsonl b.jsonl > snapshot.jsonl
    ldp aggregate --document colours.json a.jsonl --state a.ldp

    A record is a line or a binary frame. Malformed records are skipped as a whole, and stderr lists their number,
    reasons and places. Exit code 1 means that no report was counted.

    ldp merge adds state files, and ldp estimate reads them. --state writes the file even if no report is counted.
    """  # noqa: D301
    from ldp import kernels
    from ldp.files import Aggregator
    from ldp.state import State

    stream = printing.named(stream)
    kept = _Rejections(rejected)
    aggregator = Aggregator(stream, kept.add, most_reports)
    if not kernels.is_compiled():
        echo(f"ldp: compiling once, about {_COMPILING_SECONDS} s of a free core", err=True)
    with opened(files, lambda: amount(aggregator.reports, "report")) as sources:
        for source, file in sources:
            aggregator.read(file, source)
    _print_rejected(aggregator, kept.places)
    if output is not None:
        write_state(State.of(aggregator), output)
        if printing.top is None:
            return
    if not aggregator.reports:
        hint = "; ldp perturb turns values into reports" if aggregator.records else ""
        raise click.ClickException(f"the input has no report to count{hint}")
    printing.show(stream, aggregator.estimate(), {0: aggregator.records})


class _Rejections:
    """Lists where records were rejected, and writes the records to a file."""

    def __init__(self, file: TextIO | None) -> None:
        self.places: dict[str, list[str]] = {}
        self._file = file

    def add(self, record: Rejected) -> None:
        places = self.places.setdefault(record.reason, [])
        if len(places) < _PLACES:
            line = "one binary frame" if record.line is None else f"line {record.line:,}"
            places.append(f"{record.source}, {line}")
        if self._file is not None:
            content = None if record.record is None else b64encode(record.record).decode()
            dead_letter = {
                "reason": record.reason,
                "source": record.source,
                "line": record.line,
                "base64": content,
            }
            self._file.write(json.dumps(dead_letter) + "\n")


def _print_rejected(aggregator: Aggregator, places: Mapping[str, Sequence[str]]) -> None:
    from ldp.frames import REASONS, Reason

    rejected = aggregator.rejected
    if not rejected:
        return
    lines = [f"{rejected.total():,} of {aggregator.records:,} records are malformed and not counted:"]
    for reason, count in rejected.most_common():
        where = "; ".join([*places[reason], "..."][: count if count <= _PLACES else None])
        lines.append(f"  {reason} {count:,}: {REASONS[reason]} ({where})")
    if Reason.FINGERPRINT in rejected:
        lines.append(f"the fingerprint of --document is {aggregator.stream.fingerprint.hex()}")
    echo("\n".join(f"ldp: {line}" for line in lines), err=True)
