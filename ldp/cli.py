"""The command line: ``ldp``. What a command needs is imported inside it, so that help comes at once.

Exit codes: 0 all is well; 2 usage.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ldp.plan import Plan, Row


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="ldp-worker", prog_name="ldp")
def cli() -> None:
    """Frequency estimation under local differential privacy."""


@cli.command("plan")
@click.option("--epsilon", required=True, metavar="E", help='The budget of one report: "1", "0.5", "1/3".')
@click.option("--domain-size", required=True, type=int, metavar="D", help="The number of values.")
@click.option(
    "--reports", required=True, type=int, metavar="N", help="The number of reports expected in a snapshot."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def plan(epsilon: str, domain_size: int, reports: int, as_json: bool) -> None:
    """Compare the protocols for a stream; the recommended one comes first.

    \b
    std error    of a value that nobody has
    detectable   the smallest frequency that is told from 0: missed with probability 5 % at most, while
                 with probability 95 % no value that nobody has passes for it
    frame        bytes of a record with one report
    work         what the server goes through for a report
    state        counters of one window of one partition
    decoding     steps of the transform at each snapshot, K·log2(K) for K counters
    """  # noqa: D301 - click's mark for lines that stay as they are
    from ldp.plan import plan as planned

    try:
        made = planned(epsilon, domain_size, reports)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    click.echo(json.dumps(made.document(), ensure_ascii=False, indent=2) if as_json else _table(made))


def _table(made: Plan) -> str:
    head = ("protocol", "std error", "detectable", "frame", "work", "state", "decoding", "parameters")
    lines = [head, *(_cells(row) for row in made.rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
    text += ["", f"{made.rows[0].protocol}: {made.reason}"]
    text += [f"{name} is not applicable: {why}" for name, why in made.not_applicable.items()]
    return "\n".join(text)


def _cells(row: Row) -> tuple[str, ...]:
    common = ("protocol", "epsilon", "domain_size")
    plural = {"hash": "hashes"}.get(row.unit, row.unit + "s")
    return (
        row.protocol,
        f"{row.standard_error:.3g}",
        "none" if row.detectable is None else f"{row.detectable:.3g}",
        f"{row.frame_bytes:,} B",
        f"{row.work:,} {row.unit if row.work == 1 else plural}",
        f"{row.state_bytes:,} B",
        f"{row.decode_steps:,} steps" if row.decode_steps else "none",
        ", ".join(f"{key}={value}" for key, value in row.document.items() if key not in common),
    )


def main() -> None:
    """The entry point of ``ldp``."""
    cli(prog_name="ldp")


if __name__ == "__main__":
    main()
