"""``ldp merge``: states in, their sum out."""

from __future__ import annotations

from pathlib import Path

import click

from ldp.cli.command import FILE, OUTPUT, cli, output_path, write_state


@cli.command("merge")
@click.argument("files", nargs=-1, required=True, type=FILE, metavar="STATE...")
@click.option(
    "-o",
    "--output",
    required=True,
    type=OUTPUT,
    callback=output_path,
    metavar="FILE",
    help="File for the sum.",
)
def merge(files: tuple[Path, ...], output: Path) -> None:
    """Add states of one stream.

    A state is what ldp aggregate --state writes, or a job on Spark or Beam: the counts of some of a stream's reports.
    The sum is the state of all of them, and the same whatever the order.

    \b
    ldp merge monday.ldp tuesday.ldp -o both.ldp
    ldp estimate both.ldp --top 3

    States of different documents do not add up; nor do those that are known to have the same reports: of the same
    range of a Kafka log, or of windows that overlap. Where a state does not say of which log it is, whether its
    reports are in another one already is yours to know.
    """  # noqa: D301
    from ldp.state import State

    whole: State | None = None
    added: set[Path] = set()
    for path in files:
        if path.resolve() in added:
            raise click.BadParameter(f"{path} is given twice, and would be counted twice", param_hint="STATE")
        added.add(path.resolve())
        try:
            state = State.read(path)
            try:
                whole = state if whole is None else whole.merge(state)
            except ValueError as error:
                raise ValueError(f"{path} does not go with those before it: {error}") from None
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="STATE") from None
    assert whole is not None
    write_state(whole, output)
