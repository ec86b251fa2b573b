"""``ldp perturb``: values in, reports out."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from ldp.cli.command import INPUT, amount, cli, document_option, file_size, opened, write
from ldp.terminal import echo

if TYPE_CHECKING:
    from ldp.files import Readable
    from ldp.stream import Stream


@cli.command("perturb")
@click.argument("files", nargs=-1, type=INPUT, metavar="[FILE]...")
@document_option()
@click.option(
    "--format",
    "form",
    type=click.Choice(["json", "binary"]),
    default="json",
    show_default=True,
    help="JSON lines with one report each, or one binary frame with all reports.",
)
@click.option(
    "--insecure-seed",
    type=click.IntRange(min=0),
    metavar="SEED",
    help="Draw the coins from a seed, for simulations. Such reports are not private.",
)
def perturb(stream: Stream, files: tuple[str, ...], form: str, insecure_seed: int | None) -> None:
    """Turn values into private reports.

    Reads values, one a line, from files or stdin (-). A value is a label, or an index from 0 on if the stream has
    no labels. Writes one report for each to stdout, as frames: what a record of the reports topic holds, and what
    ldp aggregate reads.

    \b
    printf 'red\\ngreen\\n' | ldp perturb --document colours.json > reports.jsonl

    Coins are secret and drawn anew at each run, so a second run over the same values spends their budget again.
    A line that is not a value ends the command with exit code 1.
    """  # noqa: D301
    from ldp.files import perturbed, values

    if form == "binary" and sys.stdout.isatty():
        raise click.UsageError("a binary frame is nothing for a terminal; send it to a file or a pipe")
    rng = None
    if insecure_seed is not None:
        import numpy as np

        rng = np.random.default_rng(insecure_seed)
        echo(f"ldp: SIMULATION: who knows the seed {insecure_seed} can undo these reports", err=True)
    written = 0

    def parts(sources: Iterable[tuple[str, Readable]]) -> Iterator[bytes]:
        nonlocal written
        given = (some for source, file in sources for some in values(stream, file, source))
        for part, reports in perturbed(stream, given, binary=form == "binary", rng=rng):
            yield part
            written += reports

    # at the other end of a pipe a command may show its own progress; a terminal shows the reports
    with opened(
        files, lambda: amount(written, "report"), quiet=file_size(sys.stdout.buffer) is None
    ) as sources:
        try:
            write(parts(sources))
        except ValueError as error:
            raise click.ClickException(f"{error}; reports written before that: {written:,}") from None
    if not written:
        raise click.ClickException("there was no value")
