"""Output options, and functions that print a snapshot or table."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from ldp.cli.command import NAME, write
from ldp.terminal import amount, echo, printable_json, screen

if TYPE_CHECKING:
    from ldp.estimate import Estimate
    from ldp.intervals.score import Of
    from ldp.snapshot import Cut
    from ldp.stream import Stream


@dataclasses.dataclass(frozen=True)
class Printing:
    """Output options. Without `top`, the output is a snapshot, not a table."""

    name: str
    top: int | None
    methods: tuple[str, ...]
    of: Of

    def named(self, stream: Stream) -> Stream:
        """Returns the stream, renamed to the value of --name.

        Raises BadParameter for an invalid name, or for a method that does not apply to the stream.
        """
        from ldp.consistency import chosen

        try:
            chosen(self.methods or None, stream.oracle.domain_size)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--method") from None
        try:
            return dataclasses.replace(stream, name=self.name)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--name") from None

    def show(self, stream: Stream, estimate: Estimate, offsets: Mapping[int, int]) -> None:
        """Prints a snapshot or table. For external counts, `offsets` is empty."""
        from ldp.snapshot import Cut

        if self.top is None:
            self._snapshot(stream, estimate, Cut(offsets, {}))
        else:
            self._table(stream, estimate, Cut(offsets, {}), self.top)
        if warning := estimate.labelled(stream.labels).warning:
            echo(f"Warning: {warning}", err=True)

    def _snapshot(self, stream: Stream, estimate: Estimate, cut: Cut) -> None:
        from ldp.snapshot import encode, take

        snapshot = take(stream, estimate, cut, 1, methods=self.methods or None)
        parts = encode(snapshot, inline=stream.oracle.domain_size)
        write(printable_json(part.body.decode()).encode() + b"\n" for part in parts)

    def _table(self, stream: Stream, estimate: Estimate, cut: Cut, top: int) -> None:
        from ldp import table
        from ldp.consistency import applicable
        from ldp.snapshot import take

        of = self.methods or applicable(stream.oracle.domain_size, table.METHODS)
        shown = [method for method in of if method != "base"]
        snapshot = take(stream, estimate, cut, 1, methods=("base", *shown))
        console = screen()
        console.print(f"{stream.name}: {amount(estimate.n, 'report')}", style="bold", highlight=False)
        console.print(table.most_frequent(snapshot, shown, top, console.width, self.of))


_OPTIONS = (
    click.option("--name", default=NAME, show_default=True, help="The stream's name in the snapshot."),
    click.option(
        "--top", type=click.IntRange(min=1), metavar="N", help="Print the N most frequent values as a table."
    ),
    click.option(
        "--method",
        "methods",
        multiple=True,
        metavar="NAME",
        help="Method to print, repeatable. A table always has Base. Default: all methods, or three in a table.",
    ),
    click.option(
        "--of",
        type=click.Choice(["reports", "population"]),
        default="reports",
        show_default=True,
        help="Share that the table's intervals cover: among the reports, or in the population that the users sample.",
    ),
)


def printing_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the output options, which the command receives as ``printing``."""

    @functools.wraps(command)
    def printed(
        *args: Any, name: str, top: int | None, methods: tuple[str, ...], of: Of, **kwargs: Any
    ) -> None:
        if of != "reports" and top is None:
            raise click.UsageError("--of population needs --top: snapshots have intervals of the reports")
        command(*args, printing=Printing(name, top, tuple(dict.fromkeys(methods)), of), **kwargs)

    for option in reversed(_OPTIONS):
        printed = option(printed)
    return printed
