"""``ldp plan``: the protocols compared."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING

import click

from ldp.cli.command import NAME, cli
from ldp.terminal import echo, echo_json

if TYPE_CHECKING:
    from ldp.analysis.protocol_selection import Candidate, Plan
    from ldp.poisoning import PoisoningEffect


@cli.command("plan")
@click.option("--epsilon", required=True, metavar="E", help='Budget of one report: "1", "0.5", "1/3".')
@click.option("--domain-size", required=True, type=int, metavar="D", help="Number of values.")
@click.option(
    "--reports", required=True, type=int, metavar="N", help="Number of reports expected in a snapshot."
)
@click.option(
    "--poisoning-effect", is_flag=True, help="Show the largest effect of one poisoning report instead."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def plan(epsilon: str, domain_size: int, reports: int, poisoning_effect: bool, as_json: bool) -> None:
    """Compare the protocols for a stream, the best first.

    \b
    std error    of a value that nobody has
    detectable   the smallest frequency that is told from 0: missed with
                 probability 5 % at most, while with probability 95 % no value
                 that nobody has passes for it
    frame        bytes of a record with one report
    work         what the server goes through for a report
    state        bytes of the counters of one window of one partition
    decoding     steps of the transform at each snapshot, K·log2(K) for K
                 counters

    With --poisoning-effect, the largest effect of one poisoning report, in users: an honest report adds 1 to its
    user's value on average, and nothing to others. Clients are trusted: no protocol of LDP prevents poisoning.

    \b
    up           a value of its choice is raised by so many users
    down         or lowered by so many
    values       so many values are raised at once; of olh, by a search through
                 all seeds
    in all       the sum over these is raised by so many users
    1 std error  the share of poisoning reports among N that moves
                 a value by it

    Large numbers are rounded; --json prints them in full.
    """  # noqa: D301 - click's mark for lines that stay as they are
    from ldp.analysis.protocol_selection import plan as planned
    from ldp.poisoning import effect
    from ldp.stream import Stream

    try:
        made = planned(epsilon, domain_size, reports)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    rows = made.rows if poisoning_effect else ()
    effects = [effect(Stream.from_document(NAME, row.document).oracle, reports) for row in rows]
    if as_json:
        document = made.document()
        for row, one in zip(document["protocols"], effects, strict=poisoning_effect):
            row["poisoning_effect"] = dataclasses.asdict(one)
        echo_json(json.dumps(document, ensure_ascii=False, indent=2))
    else:
        echo(_effects(made, effects) if poisoning_effect else _table(made))


def _table(made: Plan) -> str:
    head = ("protocol", "std error", "detectable", "frame", "work", "state", "decoding")
    said = [f"{made.rows[0].protocol}: {made.reason}"]
    return _said([head, *(_cells(row) for row in made.rows)], said, made)


def _effects(made: Plan, effects: Sequence[PoisoningEffect]) -> str:
    head = ("protocol", "up", "down", "values", "in all", "1 std error")
    cells = [
        (
            row.protocol,
            f"{one.up:,.2f}",
            f"{one.down:,.2f}",
            _rounded(one.values).rstrip(),
            f"{one.total:,.1f}" if one.total < 1000 else _rounded(round(one.total)).rstrip(),
            f"{100 * one.share:.2g} %",
        )
        for row, one in zip(made.rows, effects, strict=True)
    ]
    return _said([head, *cells], [], made)


def _said(lines: Sequence[tuple[str, ...]], said: list[str], made: Plan) -> str:
    """Writes a table, then what is said about it, the chosen parameters and what is not in it."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
    said += [f"{row.protocol}, best with {own}" for row in made.rows if (own := _parameters(row))]
    said += [f"{name} is not applicable: {why}" for name, why in made.not_applicable.items()]
    return "\n".join([*text, "", *(fill(line, 80, subsequent_indent="  ") for line in said)])


def _cells(row: Candidate) -> tuple[str, ...]:
    plural = {"hash": "hashes"}.get(row.unit, row.unit + "s")
    return (
        row.protocol,
        f"{row.standard_error:.3g}",
        "none" if row.detectable is None else f"{row.detectable:.3g}",
        f"{_rounded(row.frame_bytes)}B",
        f"{_rounded(row.work).rstrip()} {row.unit if row.work == 1 else plural}",
        f"{_rounded(row.state_bytes)}B",
        _rounded(row.decode_steps).rstrip() if row.decode_steps else "none",
    )


def _rounded(number: int) -> str:
    """Writes a number and a space; from 100,000 on in thousands, millions or milliards."""
    for prefix, power in (("G", 9), ("M", 6), ("k", 3)):
        if number >= max(10**power, 100_000):
            return f"{number / 10**power:,.1f} {prefix}"
    return f"{number:,} "


def _parameters(row: Candidate) -> str:
    """Writes the integers that the plan chose for a protocol."""
    common = ("protocol", "epsilon", "domain_size")
    return ", ".join(f"{key} = {value}" for key, value in row.document.items() if key not in common)
