"""``ldp aggregate``: turns reports into a snapshot or a table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ldp.cli.command import INPUT, OUTPUT, cli, document_option, opened, output_path, write_state
from ldp.cli.printing import Printing, printing_options
from ldp.terminal import amount, echo

if TYPE_CHECKING:
    from ldp.files import Aggregator
    from ldp.stream import Stream

_COMPILING_SECONDS = 4  # CPU time of the first run of an installation


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
    aggregator = Aggregator(stream, most_reports)
    if not kernels.is_compiled():
        echo(f"ldp: compiling once, about {_COMPILING_SECONDS} s of a free core", err=True)
    with opened(files, lambda: amount(aggregator.reports, "report")) as sources:
        for source, file in sources:
            aggregator.read(file, source)
    _print_rejected(aggregator)
    if output is not None:
        write_state(State.of(aggregator), output)
        if printing.top is None:
            return
    if not aggregator.reports:
        hint = "; ldp perturb turns values into reports" if aggregator.records else ""
        raise click.ClickException(f"the input has no report to count{hint}")
    printing.show(stream, aggregator.estimate(), {0: aggregator.records})


def _print_rejected(aggregator: Aggregator) -> None:
    from ldp.files import PLACES
    from ldp.frames import REASONS, Reason

    rejected = aggregator.rejected
    if not rejected:
        return
    lines = [f"{rejected.total():,} of {aggregator.records:,} records are malformed and not counted:"]
    for reason, count in rejected.most_common():
        where = "; ".join([*aggregator.places[reason], "..."][: count if count <= PLACES else None])
        lines.append(f"  {reason} {count:,}: {REASONS[reason]} ({where})")
    if Reason.FINGERPRINT in rejected:
        lines.append(f"the fingerprint of --document is {aggregator.stream.fingerprint.hex()}")
    echo("\n".join(f"ldp: {line}" for line in lines), err=True)
