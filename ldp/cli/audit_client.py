"""``ldp audit-client``: tests the conformance of a client."""

from __future__ import annotations

import math
from dataclasses import asdict, astuple
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ldp.cli.command import cli, document_option
from ldp.terminal import echo, echo_json

if TYPE_CHECKING:
    from ldp.conformance.verdict import Verdict
    from ldp.stream import Stream

_FAILED, _TOO_FEW = 1, 3
_REPORTS, _OF_ROUNDS = 200_000, 2_000
_SHOWN = 8


@cli.command("audit-client", context_settings={"ignore_unknown_options": True})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="COMMAND...")
@document_option(required=False)
@click.option(
    "--vectors",
    type=click.Path(exists=True, path_type=Path),
    metavar="PATH",
    help="Compare frames with these vectors instead. COMMAND derives its coins from the seed before each value.",
)
@click.option(
    "--reports",
    type=click.IntRange(min=2),
    show_default="200000, or 2000 with --rounds",
    help="Number of reports that COMMAND makes.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=2),
    metavar="K",
    help="Test a client with a store in K periods instead. A device and a time precede each value.",
)
@click.option(
    "--value",
    "values",
    multiple=True,
    metavar="NAME",
    help="Value to include in the test. Repeat the option for several.",
)
@click.option(
    "--alarm",
    type=click.FloatRange(0, 0.5, min_open=True),
    default=1e-6,
    show_default=True,
    help="Largest probability that a conforming client fails.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=1),
    default=600,
    show_default=True,
    help="Longest time of a run, in seconds.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of lines.")
def audit_client(
    stream: Stream | None,
    command: tuple[str, ...],
    vectors: Path | None,
    reports: int | None,
    rounds: int | None,
    values: tuple[str, ...],
    alarm: float,
    seconds: float,
    as_json: bool,
) -> None:
    """Test the conformance of a client as a black box.

    COMMAND makes reports. It reads one value per line from stdin: a label if the stream has labels, else an index. For
    each value it writes one line with a frame to stdout: JSON, or a binary frame in hexadecimal. {} stands for the path
    of the document.

    \b
    ldp audit-client --document colours.json -- ldp perturb --document {}
    ldp audit-client --document colours.json -- node client.mjs {}

    The test finds frames that a worker would reject, and coins that repeat in a second run or in the next report. It
    compares the frequencies of reports with the protocol's probabilities, value by value and for all values together,
    by exact tails and by χ². It computes a lower bound of the spent ε. If the client answers line by line, the test
    also compares the times of different values. The tested values are the first, the last, and some in between.

    A pass states the excess of ε that the test would have found. A client has an excess if its reports support their
    value too often, or other values too rarely.

    --vectors takes a file or a folder, such as tests/vectors/wire-1/reports of the source tree, and tests a client with
    scripted coins. A seed in hexadecimal and a space precede each value, and the frames must equal the frames of the
    vectors. A client of some protocols passes the files of these protocols, one by one.

    --rounds tests a client with a store in K runs, each in the next period. A line has a device's number, a time in
    seconds since 1970 and a value. The client answers spent if the device has no report left. It keeps the stores of
    the devices in the folder {store}: ldp audit-client --document daily.json --rounds 5 -- ./client {} {store}

    Exit codes: 0 pass; 1 fail, with the evidence; 3 too few reports.
    """  # noqa: D301
    from ldp.conformance.running import ClientError
    from ldp.conformance.verdict import FAIL, PASS

    if (stream is None) == (vectors is None):
        raise click.UsageError("--document and --vectors exclude each other; one of them is required")
    if vectors is not None and rounds is not None:
        raise click.UsageError("--vectors and --rounds exclude each other")
    if vectors is not None:
        raise SystemExit(_compared(command, vectors, seconds, as_json))
    assert stream is not None
    own = [_index(stream, value) for value in values]
    try:
        found = _assessed(command, stream, seconds, rounds, reports, alarm, own)
    except ClientError as error:
        failure = {"verdict": FAIL, "findings": [str(error)]}
        echo_json(failure) if as_json else echo(f"fail: {error}")
        raise SystemExit(_FAILED) from None
    echo_json(asdict(found)) if as_json else echo(_lines(stream, found, rounds))
    raise SystemExit(0 if found.verdict == PASS else _FAILED if found.verdict == FAIL else _TOO_FEW)


def _assessed(
    command: tuple[str, ...],
    stream: Stream,
    seconds: float,
    rounds: int | None,
    reports: int | None,
    alarm: float,
    own: list[int],
) -> Verdict:
    from ldp.conformance.rounds import assess_rounds
    from ldp.conformance.running import Command
    from ldp.conformance.verdict import assess

    with Command(command, stream, seconds) as client:
        if rounds is not None:
            return assess_rounds(client, rounds, reports or _OF_ROUNDS, alarm, own)
        return assess(client, reports or _REPORTS, alarm, own)


def _compared(command: tuple[str, ...], path: Path, seconds: float, as_json: bool) -> int:
    """Prints the streams that differ from the vectors. Returns the exit code."""
    from ldp.conformance.vectors import differences, read

    try:
        vectors = read(path)
        found = list(differences(command, vectors, seconds))
        streams = len(vectors["streams"])
    except (AttributeError, KeyError, OSError, TypeError, ValueError) as error:
        raise click.BadParameter(f"{path} has no valid vectors: {error!r}", param_hint="--vectors") from None
    verdict = "fail" if found else "pass"
    if as_json:
        echo_json({"verdict": verdict, "streams": streams, "findings": found})
    else:
        echo(
            "\n".join(
                [f"{verdict}: {len(found)} of {streams} streams differ", *(f"  {one}" for one in found)]
            )
        )
    return _FAILED if found else 0


def _index(stream: Stream, value: str) -> int:
    names = stream.labels or [str(i) for i in range(stream.oracle.domain_size)]
    if value not in names:
        raise click.BadParameter(f"{value!r} is not a value of the stream", param_hint="--value")
    return list(names).index(value)


def _lines(stream: Stream, found: Verdict, rounds: int | None) -> str:
    from ldp.conformance.excess import POWER

    lines = [f"{found.verdict}: {found.reports:,} reports, {found.comparisons:,} probabilities compared"]
    if found.spent is not None:
        lines.append(
            f"the client spends ε ≥ {found.spent.epsilon:.3f}; the document has {float(stream.oracle.epsilon):.3f}"
        )
    if rounds is not None:
        lines.append(f"{rounds} periods: the client keeps the budget")
    elif found.times is None:
        lines.append("time: not measured, because the client does not answer line by line")
    else:
        lines.append(f"{found.times.summary}, by the median (p = {found.times.p_value:.1g})")
    if found.verdict == "pass" and found.excess is not None:
        everywhere, once = (math.ceil(1000 * each) / 1000 for each in astuple(found.excess))
        lines.append(
            f"an excess of more than {everywhere:.3f} in all values, or {once:.3f} in one tested value, would have been"
            f" found with probability {POWER:.0%}"
        )
    lines += [f"  {finding}" for finding in found.findings[:_SHOWN]]
    if len(found.findings) > _SHOWN:
        lines.append(f"  and {len(found.findings) - _SHOWN:,} more")
    if found.verdict not in ("pass", "fail"):
        lines.append(f"for a verdict, set --reports to about {found.enough:,}")
    return "\n".join(lines)
