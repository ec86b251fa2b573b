"""``ldp estimate``: turns a state or counts into a snapshot or a table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ldp.cli.command import FILE, cli, document_option
from ldp.cli.printing import Printing, printing_options

if TYPE_CHECKING:
    from ldp.estimate import Estimate
    from ldp.stream import Stream

    Found = tuple[Stream, Estimate, dict[int, int]]


@cli.command("estimate")
@click.argument("file", type=FILE, metavar="FILE")
@document_option(required=False)
@printing_options
@click.option(
    "--reports",
    type=int,
    metavar="N",
    help="Number of reports, if the counts do not determine it.",
)
def estimate(stream: Stream | None, file: Path, printing: Printing, reports: int | None) -> None:
    """Estimate the values' frequencies from a state, or from counts.

    ldp aggregate --state and ldp merge write states. A state contains its document.

    \b
    ldp estimate colours.ldp --top 3

    Use counts for reports that were counted elsewhere: in a database, or by an aggregator that sees only their sum.
    Counts are a JSON object. "reports" is the number of reports. "supports" has the number of reports that support
    each value. Instead of "supports", "counters" can have the protocol's state (for hadamard and pgr, how often each
    message was reported). Write all numbers as a list, or the nonzero numbers as an object by label or index.

    \b
    ldp estimate --document colours.json counts.json --top 3
    echo '{"reports": 9, "supports": {"green": 5, "red": 4}}' > counts.json

    Supports may be CSV, with the columns label (or value) and count. Without "reports", give --reports, except for grr
    and subset.

    The output has the format of ldp aggregate. Counts that honest reports cannot have cause a warning.
    """  # noqa: D301
    from ldp.counts import parse_counts
    from ldp.state import MAGIC

    data = file.read_bytes()
    try:
        if data.startswith(MAGIC):
            if reports is not None:
                raise click.UsageError("--reports is for counts; a state contains the number of reports")
            found, base, offsets = _of_state(data, stream)
        elif stream is not None:
            found, base, offsets = stream, parse_counts(stream, data, reports), {}
        else:
            raise click.UsageError(f"{file} is not a state; counts need --document")
    except (TypeError, ValueError) as error:
        raise click.BadParameter(f"{file}: {error}", param_hint="FILE") from None
    printing.show(printing.named(found), base, offsets)


def _of_state(data: bytes, stream: Stream | None) -> Found:
    from ldp.state import State

    state = State.from_bytes(data)
    if stream is not None and stream.document() != state.stream.document():
        ours, theirs = state.stream.fingerprint.hex(), stream.fingerprint.hex()
        raise ValueError(f"the state has the document {ours}, --document has {theirs}; leave --document out")
    return state.stream, state.estimate(), {0: state.records + sum(state.rejected.values())}
