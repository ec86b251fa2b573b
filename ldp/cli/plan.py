"""``ldp plan``: compares the protocols."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING

import click

from ldp.cli.command import NAME, cli, domain_options, warn
from ldp.terminal import echo, echo_json

if TYPE_CHECKING:
    from ldp.analysis.protocol_selection import Candidate, Plan
    from ldp.poisoning import PoisoningEffect


@cli.command("plan")
@click.option("--epsilon", required=True, metavar="E", help="Budget of one report, such as 1, 0.5 or 1/3.")
@domain_options
@click.option(
    "--reports", required=True, type=int, metavar="N", help="Number of reports expected in a snapshot."
)
@click.option(
    "--poisoning-effect", is_flag=True, help="Show the largest effect of one poisoning report instead."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def plan(
    epsilon: str,
    labels: list[str] | None,
    domain_size: int,
    reports: int,
    poisoning_effect: bool,
    as_json: bool,
) -> None:
    """Compare the protocols for a stream, the best first.

    \b
    std error    standard error of the estimate of a value with frequency 0
    detectable   smallest frequency detected with probability 95 %, at a 5 %
                 risk of any false detection in the domain
    frame        bytes of a record with one report
    cost         operations of the server per report
    state        bytes of a window's counters in one partition
    decoding     steps of a snapshot's transform: K·log2(K) for K counters

    --poisoning-effect shows the largest effect of one poisoning report, in users. An honest report adds 1 user to its
    user's value on average, and 0 to the others. No LDP protocol prevents poisoning, so clients must be trusted.

    \b
    up           users that the report adds to a value of its choice
    down         users that the report takes from a value of its choice
    values       values raised at once (for olh, after a search of all seeds)
    in all       users that the report adds to these values in total
    1 std error  share of poisoning reports among N that moves the
                 estimate of a value by one standard error

    Large numbers are rounded; --json prints all digits.
    """  # noqa: D301 - click does not rewrap a paragraph after \b
    from ldp.analysis.protocol_selection import plan as planned
    from ldp.oracles import GRR
    from ldp.poisoning import effect
    from ldp.stream import Stream

    try:
        made = planned(epsilon, domain_size, reports)
        warn(Stream(NAME, GRR(epsilon, domain_size), None if labels is None else tuple(labels)))
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    rows = made.rows if poisoning_effect else ()
    effects = [effect(Stream.from_document(NAME, row.document).oracle, reports) for row in rows]
    if as_json:
        document = made.document()
        for row, one in zip(document["protocols"], effects, strict=poisoning_effect):
            row["poisoning_effect"] = dataclasses.asdict(one)
        echo_json(document, indent=2)
    else:
        echo(_effects(made, effects) if poisoning_effect else _table(made))


def _table(made: Plan) -> str:
    head = ("protocol", "std error", "detectable", "frame", "cost", "state", "decoding")
    notes = [f"{made.rows[0].protocol}: {made.reason}"]
    return _joined([head, *(_cells(row) for row in made.rows)], notes, made)


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
    return _joined([head, *cells], [], made)


def _joined(lines: Sequence[tuple[str, ...]], notes: list[str], made: Plan) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
    notes += [f"{row.protocol}, best with {own}" for row in made.rows if (own := _parameters(row))]
    notes += [f"{name} is not applicable: {why}" for name, why in made.not_applicable.items()]
    return "\n".join([*text, "", *(fill(line, 80, subsequent_indent="  ") for line in notes)])


def _cells(row: Candidate) -> tuple[str, ...]:
    from ldp.analysis.protocol_selection import percent

    plural = {"hash": "hashes"}.get(row.unit, row.unit + "s")
    return (
        row.protocol,
        percent(row.standard_error),
        "none" if row.detectable is None else percent(row.detectable),
        f"{_rounded(row.frame_bytes)}B",
        f"{_rounded(row.cost).rstrip()} {row.unit if row.cost == 1 else plural}",
        f"{_rounded(row.state_bytes)}B",
        _rounded(row.decode_steps).rstrip() if row.decode_steps else "none",
    )


def _rounded(number: int) -> str:
    """Formats a number, with a prefix k, M or G if it is 100,000 or more."""
    for prefix, power in (("G", 9), ("M", 6), ("k", 3)):
        if number >= max(10**power, 100_000):
            return f"{number / 10**power:,.1f} {prefix}"
    return f"{number:,} "


def _parameters(row: Candidate) -> str:
    common = ("protocol", "epsilon", "domain_size")
    return ", ".join(f"{key} = {value}" for key, value in row.document.items() if key not in common)
