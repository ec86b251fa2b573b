"""``ldp estimate``: counts in, a snapshot or a table out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ldp.cli.command import FILE, cli, document_option
from ldp.cli.printing import Printing, printing_options

if TYPE_CHECKING:
    from ldp.stream import Stream


@cli.command("estimate")
@click.argument("file", type=FILE, metavar="COUNTS")
@document_option()
@printing_options
def estimate(stream: Stream, file: Path, printing: Printing) -> None:
    """Estimate the values' frequencies from counts.

    For reports that were counted elsewhere: in a database, or by an aggregator that sees their sum alone. COUNTS is
    JSON: reports, how many there were; and either supports, how many of them support each value, or counters, the
    protocol's state (of hadamard and pgr how often each message was reported). Both are a list of all numbers, or an
    object of those that are not 0, by label or index. Prints what ldp aggregate prints.

    \b
    ldp estimate --document colours.json counts.json --top 3
    echo '{"reports": 9, "supports": {"green": 5, "red": 4}}' > counts.json
    """  # noqa: D301
    from ldp.counts import read_counts

    stream = printing.named(stream)
    try:
        found = read_counts(stream, json.loads(file.read_bytes()))
    except (TypeError, ValueError) as error:
        raise click.BadParameter(f"{file}: {error}", param_hint="COUNTS") from None
    printing.show(stream, found, {})
