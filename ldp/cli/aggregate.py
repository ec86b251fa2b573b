"""``ldp aggregate``: reports in, a snapshot or a table out."""

from __future__ import annotations

import dataclasses
import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TextIO

import click

from ldp.cli.command import INPUT, NAME, amount, cli, document_option, opened, write

if TYPE_CHECKING:
    from ldp.files import Aggregator, Rejected
    from ldp.stream import Stream

_PLACES = 3
"""How many malformed records of a reason are named."""


@cli.command("aggregate")
@click.argument("files", nargs=-1, type=INPUT, metavar="[FILE]...")
@document_option
@click.option("--name", default=NAME, show_default=True, help="The stream's name in the snapshot.")
@click.option(
    "--top", type=click.IntRange(min=1), metavar="N", help="Print the N most frequent values as a table."
)
@click.option(
    "--method",
    "methods",
    multiple=True,
    metavar="NAME",
    help="A method to print, in a table beside Base; may be repeated. By default all, in a table three.",
)
@click.option(
    "--most-reports",
    type=click.IntRange(min=1),
    metavar="N",
    help="Reject records of more reports, as a service with streams.most_reports does; else any number counts.",
)
@click.option(
    "--rejected",
    type=click.File("w", encoding="ascii", lazy=False),
    metavar="FILE",
    help="Keep malformed lines here: JSON lines with reason, source, line number and base64.",
)
def aggregate(
    stream: Stream,
    files: tuple[str, ...],
    name: str,
    top: int | None,
    methods: tuple[str, ...],
    most_reports: int | None,
    rejected: TextIO | None,
) -> None:
    """Count reports and estimate the values' frequencies.

    Reads frames from files or stdin (-): JSON lines, or one binary frame a file (first byte 0x01). The files' counts
    add up. Prints a snapshot as the snapshot topic has it, in JSON lines: the head, the labels if there are any, then
    a body for each method.

    \b
    ldp aggregate --document colours.json reports.jsonl --top 3
    ldp aggregate --document colours.json a.jsonl b.jsonl > snapshot.jsonl

    A record, that is a line or a binary frame, is counted whole or not at all. What is malformed is left out, and
    stderr says how much, why, and where. Exit code 1 means that nothing could be counted.
    """  # noqa: D301
    from ldp.files import Aggregator

    methods = _known(methods)
    stream = _named(stream, name)
    kept = _Rejections(rejected)
    aggregator = Aggregator(stream, kept.add, most_reports)
    with opened(files, lambda: amount(aggregator.reports, "report")) as sources:
        for source, file in sources:
            aggregator.read(file, source)
    _complain(aggregator, kept.places)
    if not aggregator.reports:
        raise click.ClickException("there was no report to count")
    if top is None:
        _print_snapshot(aggregator, methods)
    else:
        _print_table(aggregator, methods, top)


def _named(stream: Stream, name: str) -> Stream:
    try:
        return dataclasses.replace(stream, name=name)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--name") from None


def _known(methods: Sequence[str]) -> tuple[str, ...]:
    """Methods as given, each once."""
    from ldp.consistency import METHODS

    for method in methods:
        if method not in METHODS:
            raise click.BadParameter(
                f"{method!r} given; there are {', '.join(METHODS)}", param_hint="--method"
            )
    return tuple(dict.fromkeys(methods))


class _Rejections:
    """Records that are not counted: where the first of each reason stood, and all of them in a file if there is one."""

    def __init__(self, file: TextIO | None) -> None:
        self.places: dict[str, list[str]] = {}
        self._file = file

    def add(self, record: Rejected) -> None:
        said = self.places.setdefault(record.reason, [])
        if len(said) < _PLACES:
            line = "one binary frame" if record.line is None else f"line {record.line:,}"
            said.append(f"{record.source}, {line}")
        if self._file is not None:
            content = None if record.record is None else b64encode(record.record).decode()
            letter = {
                "reason": record.reason,
                "source": record.source,
                "line": record.line,
                "base64": content,
            }
            self._file.write(json.dumps(letter) + "\n")


def _print_snapshot(aggregator: Aggregator, methods: tuple[str, ...]) -> None:
    from ldp.consistency import METHODS
    from ldp.snapshot import Cut, encode, take

    stream, cut = aggregator.stream, Cut({0: aggregator.records}, {})
    snapshot = take(stream, aggregator.estimate(), cut, 1, methods=methods or tuple(METHODS))
    write(part.body + b"\n" for part in encode(snapshot, inline=stream.oracle.domain_size))


def _print_table(aggregator: Aggregator, methods: tuple[str, ...], top: int) -> None:
    from rich.console import Console

    from ldp import table
    from ldp.snapshot import Cut, take

    stream, cut = aggregator.stream, Cut({0: aggregator.records}, {})
    shown = [method for method in methods or table.METHODS if method != "base"]
    snapshot = take(stream, aggregator.estimate(), cut, 1, methods=("base", *shown))
    console = Console()
    console.print(f"{stream.name}: {amount(aggregator.reports, 'report')}", style="bold", highlight=False)
    console.print(table.most_frequent(snapshot, shown, top, console.width))


def _complain(aggregator: Aggregator, places: Mapping[str, Sequence[str]]) -> None:
    """Says on stderr what was malformed, if anything was."""
    from ldp.frames import REASONS, Reason

    rejected = aggregator.rejected
    if not rejected:
        return
    lines = [f"{rejected.total():,} of {aggregator.records:,} records are malformed and not counted:"]
    for reason, count in rejected.most_common():
        where = "; ".join([*places[reason], "..."][: count if count <= _PLACES else None])
        lines.append(f"  {reason} {count:,}: {REASONS[reason]} ({where})")
    if Reason.FINGERPRINT in rejected:
        lines.append(f"the fingerprint of this document is {aggregator.stream.fingerprint.hex()}")
    click.echo("\n".join(f"ldp: {line}" for line in lines), err=True)
