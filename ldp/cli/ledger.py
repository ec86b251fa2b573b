"""``ldp ledger``: privacy losses to the operator and to readers."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import click

from ldp.cli.command import FILE, cli, read_document
from ldp.privacy.summary import DELTA, LINES, READERS, as_text, readers_as_text, rounded_up, summary
from ldp.terminal import echo, echo_json


@cli.command("ledger")
@click.argument("documents", nargs=-1, required=True, type=FILE, metavar="DOCUMENT...")
@click.option(
    "--fewest-new",
    type=click.IntRange(min=1),
    metavar="N",
    help="Fewest new reports that a snapshot releases together (snapshots.fewest_new): show what its readers learn.",
)
@click.option(
    "--shuffle-batch-size",
    type=click.IntRange(min=1),
    metavar="N",
    help="Uploads that the shuffler moves together (streams.shuffle_batch_size): show what readers of reports learn.",
)
@click.option(
    "--delta",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=DELTA,
    show_default=True,
    help="δ of --fewest-new and --shuffle-batch-size.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of lines.")
@click.option("--registry", is_flag=True, help="Print an entry for the DP Deployments Registry, in YAML.")
def ledger(
    documents: tuple[Path, ...],
    fewest_new: int | None,
    shuffle_batch_size: int | None,
    delta: float,
    as_json: bool,
    registry: bool,
) -> None:
    """Show the privacy loss that streams cause.

    The first three lines of a stream hold against the operator, who sees each report. One report spends ε. The other
    lines add up the reports that the document declares (ldp document --privacy) for any horizon: two values that do not
    change, and any two histories of values. Memoised noise does not hide a change. The losses of streams with the same
    unit are added.

    --fewest-new adds the privacy loss to a reader of snapshots if noise is fresh, for one report, and for all reports
    in a horizon if each is in another increment. --shuffle-batch-size adds the same for a reader of the topic of
    reports, if all reports pass the gateway and the shuffler.

    \b
    ldp ledger colours.json --fewest-new 10000

    --registry takes one document. TODO marks what only the owner of the deployment knows.
    """  # noqa: D301
    streams = {str(path): read_document(path) for path in documents}
    found = {
        name: summary(stream.oracle, stream.privacy, fewest_new, delta, shuffle_batch_size)
        for name, stream in streams.items()
    }
    if registry:
        from ldp.privacy.registry import entry

        if len(streams) > 1 or as_json:
            raise click.UsageError("--registry takes one DOCUMENT, without --json")
        ((name, stream),) = streams.items()
        echo(entry(Path(name).stem, stream.document(), found[name]))
    elif as_json:
        echo_json({"streams": found, "units": _units(found)}, indent=2)
    else:
        echo("\n".join(_printed(found)))


def _units(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the sums over the streams of each unit."""
    units = dict.fromkeys(one["privacy"]["unit"] for one in found.values() if one["privacy"])
    sums = []
    for unit in units:
        own = [one for one in found.values() if one["privacy"] and one["privacy"]["unit"] == unit]
        losses = {
            key: rounded_up(sum(_exact(one["operator"][key]) for one in own))
            for key in ("same_value", "any_history")
        }
        sums.append({"unit": unit, "streams": len(own), **losses})
    return sums


def _exact(loss: float | str) -> Fraction | float:
    return math.inf if isinstance(loss, str) else Fraction(str(loss))


def _printed(found: dict[str, Any]) -> list[str]:
    lines = []
    for name, one in found.items():
        if one["privacy"]:
            limit = "at most {reports:,} of a {unit} in any {horizon}, {noise} noise".format(
                **one["privacy"] | {"reports": one["reports"]}
            )
        else:
            limit = "the document declares no limit"
        lines.append(f"{name}: reports: {limit}")
        lines += [f"  {line:<24}{as_text(one['operator'][key])}" for key, line in LINES.items()]
        for key, (reader, together) in READERS.items():
            if (shown := one[key]) is None:
                continue
            text = readers_as_text(shown)
            if key == "batches" and shown["epsilon"] is not None:
                text += f"; {as_text(one['operator']['one_report'])} if the reader sees the intake topic"
            lines.append(f"  {reader:<24}{text}")
            if total := shown.get("all_reports"):
                all_of = f"  all, one {together}"
                lines.append(f"  {all_of:<24}{as_text(total['epsilon'])}, δ = {total['delta']:g}")
    for unit in _units(found):
        if unit["streams"] > 1:
            lines.append(f"{unit['unit']}: sum of {unit['streams']} streams")
            lines += [f"  {LINES[key]:<24}{as_text(unit[key])}" for key in ("same_value", "any_history")]
    for key, (reader, _) in READERS.items():
        shown = [one[key] for one in found.values() if one[key]]
        lines += [f"{reader.capitalize()} {one['adversary']}." for one in shown[:1]]
    return lines
