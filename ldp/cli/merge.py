"""``ldp merge``: adds states."""

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

    A state has the counts of some of a stream's reports. ldp aggregate --state and jobs on Spark or Beam write states.
    The order of the files does not matter.

    \b
    ldp merge monday.ldp tuesday.ldp -o both.ldp
    ldp estimate both.ldp --top 3

    The command rejects states with different documents. It rejects overlapping ranges of a Kafka log, and different
    windows that overlap, because such states share reports. A state without a Kafka log can be added twice unnoticed,
    so make sure that no two states have the same reports.
    """  # noqa: D301
    from ldp.state import State

    whole: State | None = None
    added: set[Path] = set()
    for path in files:
        if path.resolve() in added:
            raise click.BadParameter(f"{path} is given twice; each state is added once", param_hint="STATE")
        added.add(path.resolve())
        try:
            state = State.read(path)
            try:
                whole = state if whole is None else whole.merge(state)
            except ValueError as error:
                raise ValueError(f"{path} cannot be added to the states before it: {error}") from None
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="STATE") from None
    assert whole is not None
    write_state(whole, output)
