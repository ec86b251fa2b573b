"""``ldp perturb``: turns values into reports."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from ldp.cli.command import INPUT, cli, document_option, file_size, opened, write
from ldp.terminal import amount, echo

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
    help="json: one report per line. binary: one frame with all reports.",
)
@click.option(
    "--segment", metavar="TEXT", help="Segment of the reports, if the document has the key segment."
)
@click.option(
    "--insecure-seed",
    type=click.IntRange(min=0),
    metavar="SEED",
    help="Draw the coins from a seed, for simulations only. Reports with a known seed are not private.",
)
def perturb(
    stream: Stream, files: tuple[str, ...], form: str, segment: str | None, insecure_seed: int | None
) -> None:
    """Turn values into private reports.

    Reads one value per line from files or stdin (-). A value is a label, or an index that starts at 0 if the stream
    has no labels. Writes one report per value to stdout, in frames. Records on the reports topic and the input of
    ldp aggregate have the same format.

    \b
    printf 'red\\ngreen\\n' | ldp perturb --document colours.json > reports.jsonl

    Each run draws new secret coins, so a second run over the same values spends the budget again. A line that is
    not a value ends the command with exit code 1.
    """  # noqa: D301
    from ldp.files import perturbed, values

    if form == "binary" and sys.stdout.isatty():
        raise click.UsageError("--format binary does not write to a terminal; redirect stdout to a file")
    rng = None
    if insecure_seed is not None:
        import numpy as np

        rng = np.random.default_rng(insecure_seed)
        echo(f"ldp: SIMULATION: anyone with the seed {insecure_seed} can recover the values", err=True)
    written = 0

    def parts(sources: Iterable[tuple[str, Readable]]) -> Iterator[bytes]:
        nonlocal written
        given = (some for source, file in sources for some in values(stream, file, source))
        for part, reports in perturbed(stream, given, binary=form == "binary", segment=segment, rng=rng):
            yield part
            written += reports

    # no progress bar for a pipe, whose reader may show its own, or for a terminal, which shows the reports
    with opened(
        files, lambda: amount(written, "report"), quiet=file_size(sys.stdout.buffer) is None
    ) as sources:
        try:
            write(parts(sources))
        except ValueError as error:
            raise click.ClickException(f"{error}; {amount(written, 'report')} written before it") from None
    if not written:
        raise click.ClickException("the input has no values")
