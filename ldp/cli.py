"""The command line: ``ldp``. What a command needs is imported inside it, so that help comes at once.

Exit codes: 0 all is well; 1 a failure; 2 usage.
"""

from __future__ import annotations

import dataclasses
import json
import os
import stat
import sys
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, BinaryIO, TextIO

import click

if TYPE_CHECKING:
    from ldp.fake import Fake
    from ldp.files import Aggregator, Readable, Rejected
    from ldp.plan import Plan, Row
    from ldp.stream import Stream

_NAME = "file"
"""The name of a stream that is given none."""
_STDIN = "-"
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_INPUT = click.Path(exists=True, dir_okay=False, allow_dash=True)
_PLACES = 3
"""How many malformed records of a reason are named."""


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
@click.option("--fake", "fakes", is_flag=True, help="Show what one forged report moves instead.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def plan(epsilon: str, domain_size: int, reports: int, fakes: bool, as_json: bool) -> None:
    """Compare the protocols for a stream, the best first.

    \b
    std error    of a value that nobody has
    detectable   the smallest frequency that is told from 0: missed with probability 5 % at most, while
                 with probability 95 % no value that nobody has passes for it
    frame        bytes of a record with one report
    work         what the server goes through for a report
    state        bytes of the counters of one window of one partition
    decoding     steps of the transform at each snapshot, K·log2(K) for K counters

    With --fake, what one forged report moves at most, in users: an honest report adds 1 to its user's value on average,
    and nothing to others. Clients are trusted: no protocol of LDP protects from this.

    \b
    up           a value of its choice is raised by so many users
    down         or lowered by so many
    values       so many values are raised at once; of olh, by a search through all seeds
    in all       the sum over these is raised by so many users
    1 std error  is what such a share of forged reports among N moves a value

    Large numbers are rounded; --json prints them in full.
    """  # noqa: D301 - click's mark for lines that stay as they are
    from ldp.fake import fake
    from ldp.plan import plan as planned
    from ldp.stream import Stream

    try:
        made = planned(epsilon, domain_size, reports)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    forged = [fake(Stream.from_document(_NAME, row.document).oracle, reports) for row in made.rows if fakes]
    if as_json:
        document = made.document()
        for row, one in zip(document["protocols"], forged, strict=fakes):
            row["fake"] = dataclasses.asdict(one)
        click.echo(json.dumps(document, ensure_ascii=False, indent=2))
    else:
        click.echo(_fakes(made, forged) if fakes else _table(made))


def _table(made: Plan) -> str:
    head = ("protocol", "std error", "detectable", "frame", "work", "state", "decoding")
    said = [f"{made.rows[0].protocol}: {made.reason}"]
    return _said([head, *(_cells(row) for row in made.rows)], said, made)


def _fakes(made: Plan, forged: Sequence[Fake]) -> str:
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
        for row, one in zip(made.rows, forged, strict=True)
    ]
    return _said([head, *cells], [], made)


def _said(lines: Sequence[tuple[str, ...]], said: list[str], made: Plan) -> str:
    """Writes a table, then what is said about it, the chosen parameters and what is not in it."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
    said += [f"{row.protocol}, best with {own}" for row in made.rows if (own := _parameters(row))]
    said += [f"{name} is not applicable: {why}" for name, why in made.not_applicable.items()]
    return "\n".join([*text, "", *(fill(line, 80, subsequent_indent="  ") for line in said)])


def _cells(row: Row) -> tuple[str, ...]:
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


def _parameters(row: Row) -> str:
    """Writes the integers that the plan chose for a protocol."""
    common = ("protocol", "epsilon", "domain_size")
    return ", ".join(f"{key} = {value}" for key, value in row.document.items() if key not in common)


@cli.command("document")
@click.option(
    "--protocol",
    required=True,
    metavar="NAME",
    help="grr, olh, oue, sue, subset, hadamard or pgr; see ldp plan.",
)
@click.option("--epsilon", required=True, metavar="E", help='The budget of one report: "1", "0.5", "1/3".')
@click.option("--labels", metavar="A,B,...", help="The values' names, with commas between them.")
@click.option("--labels-file", type=_FILE, metavar="FILE", help="The values' names, one a line.")
@click.option("--domain-size", type=int, metavar="D", help="The number of values, if they have no names.")
@click.option(
    "--parameter",
    "parameters",
    multiple=True,
    metavar="KEY=VALUE",
    help="A parameter of the protocol's own, such as g=2 for olh; may be repeated.",
)
def document(
    protocol: str,
    epsilon: str,
    labels: str | None,
    labels_file: Path | None,
    domain_size: int | None,
    parameters: tuple[str, ...],
) -> None:
    """Write the public document of a stream, which clients need.

    Both ends work by the same document: ldp perturb and other clients make reports by it, ldp aggregate and the
    workers count them. It holds the protocol, the budget and the values, and nothing that is secret.

    \b
    ldp document --protocol olh --epsilon 1 --labels red,green,blue > colours.json
    """  # noqa: D301
    from ldp import files, oracle
    from ldp.oracles import ORACLES
    from ldp.stream import Stream

    try:
        if protocol not in ORACLES:
            raise ValueError(f"--protocol is {protocol!r}; there are {', '.join(ORACLES)}")
        if [labels, labels_file, domain_size].count(None) != 2:
            raise ValueError("which values? Give one of --labels, --labels-file and --domain-size")
        names = None if labels is None else [label.strip() for label in labels.split(",")]
        if labels_file is not None:
            names = files.labels(labels_file)
        own: dict[str, int | str] = {}
        for parameter in parameters:
            key, equals, value = parameter.partition("=")
            if not equals or key not in ORACLES[protocol].own_parameters:
                allowed = (
                    ", ".join(f"{name}=..." for name in ORACLES[protocol].own_parameters) or "no parameter"
                )
                raise ValueError(f"--parameter is {parameter!r}; {protocol} takes {allowed}")
            own[key] = int(value) if value.isascii() and value.isdigit() else value
        size = domain_size if names is None else len(names)
        stream = Stream(
            _NAME, oracle(protocol, epsilon, size or 0, **own), None if names is None else tuple(names)
        )
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{labels_file} is not UTF-8: {error}") from None
    except (OSError, TypeError, ValueError) as error:
        raise click.UsageError(str(error)) from None
    click.echo(json.dumps(stream.document(), ensure_ascii=False))


def _read_document(_context: click.Context, _option: click.Parameter, path: Path) -> Stream:
    from ldp.stream import Stream

    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise click.BadParameter(f"{path} is not JSON: {error}") from None
    try:
        return Stream.from_document(_NAME, document)
    except (TypeError, ValueError) as error:
        raise click.BadParameter(f"{path}: {error}") from None


_stream = click.option(
    "--document",
    "stream",
    required=True,
    type=_FILE,
    metavar="FILE",
    callback=_read_document,
    help="The stream's public document; ldp document makes one.",
)


@cli.command("perturb")
@click.argument("files", nargs=-1, type=_INPUT, metavar="[FILE]...")
@_stream
@click.option(
    "--format",
    "form",
    type=click.Choice(["json", "binary"]),
    default="json",
    show_default=True,
    help="JSON lines, a frame with one report each; or one binary frame with all reports.",
)
@click.option(
    "--insecure-seed",
    type=click.IntRange(min=0),
    metavar="SEED",
    help="Simulate: coins from a seed, the same each time. Such reports protect nobody.",
)
def perturb(stream: Stream, files: tuple[str, ...], form: str, insecure_seed: int | None) -> None:
    """Turn values into private reports.

    Reads values, one a line, from files or stdin (-). A value is a label, or an index from 0 on if the stream has
    no labels. Writes one report for each to stdout, as frames: what a record of the reports topic holds, and what
    ldp aggregate reads.

    \b
    printf 'red\\ngreen\\nred\\n' | ldp perturb --document colours.json > reports.jsonl

    Coins are secret and drawn anew at each run, so a second run over the same values spends their budget again.
    A line that is not a value ends the command with exit code 1.
    """  # noqa: D301
    from ldp.files import perturbed, values

    if form == "binary" and sys.stdout.isatty():
        raise click.UsageError("a binary frame is nothing for a terminal; send it to a file or a pipe")
    rng = None
    if insecure_seed is not None:
        import numpy as np

        rng = np.random.default_rng(insecure_seed)
        click.echo(f"ldp: SIMULATION: who knows the seed {insecure_seed} can undo these reports", err=True)
    written = 0

    def parts(sources: Iterable[tuple[str, Readable]]) -> Iterator[bytes]:
        nonlocal written
        given = (some for source, file in sources for some in values(stream, file, source))
        for part, reports in perturbed(stream, given, binary=form == "binary", rng=rng):
            yield part
            written += reports

    # at the other end of a pipe a command may show its own progress; a terminal shows the reports
    with _opened(files, lambda: f"{written:,} reports", quiet=_size(sys.stdout.buffer) is None) as sources:
        try:
            _write(parts(sources))
        except ValueError as error:
            raise click.ClickException(f"{error}; reports written before that: {written:,}") from None
    if not written:
        raise click.ClickException("there was no value")


@cli.command("aggregate")
@click.argument("files", nargs=-1, type=_INPUT, metavar="[FILE]...")
@_stream
@click.option("--name", default=_NAME, show_default=True, help="The stream's name in the snapshot.")
@click.option(
    "--top", type=click.IntRange(min=1), metavar="N", help="Print the N most frequent values as a table."
)
@click.option(
    "--method",
    "methods",
    multiple=True,
    metavar="NAME",
    help="A method to print, in a table beside Base; may be repeated. By default all, in a table three.",
)
@click.option(
    "--most-reports",
    type=click.IntRange(min=1),
    metavar="N",
    help="Reject records of more reports, as a service with streams.most_reports does; else any number counts.",
)
@click.option(
    "--rejected",
    type=click.File("w", encoding="ascii", lazy=False),
    metavar="FILE",
    help="Keep malformed lines here: JSON lines with reason, source, line number and base64.",
)
def aggregate(
    stream: Stream,
    files: tuple[str, ...],
    name: str,
    top: int | None,
    methods: tuple[str, ...],
    most_reports: int | None,
    rejected: TextIO | None,
) -> None:
    """Count reports and estimate the values' frequencies.

    Reads frames from files or stdin (-): JSON lines, or one binary frame a file (first byte 0x01). The files' counts
    add up. Prints a snapshot as the snapshot topic has it, in JSON lines: the head, the labels if there are any, then
    a body for each method.

    \b
    ldp aggregate --document colours.json reports.jsonl --top 3
    ldp aggregate --document colours.json a.jsonl b.jsonl > snapshot.jsonl

    A record, that is a line or a binary frame, is counted whole or not at all. What is malformed is left out, and
    stderr says how much, why, and where. Exit code 1 means that nothing could be counted.
    """  # noqa: D301
    from ldp.consistency import METHODS
    from ldp.files import Aggregator
    from ldp.snapshot import Cut, assemble, messages

    for method in methods:
        if method not in METHODS:
            raise click.BadParameter(
                f"{method!r} given; there are {', '.join(METHODS)}", param_hint="--method"
            )
    methods = tuple(dict.fromkeys(methods))
    try:
        stream = dataclasses.replace(stream, name=name)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--name") from None
    places: dict[str, list[str]] = {}

    def reject(record: Rejected) -> None:
        said = places.setdefault(record.reason, [])
        if len(said) < _PLACES:
            line = "one binary frame" if record.line is None else f"line {record.line:,}"
            said.append(f"{record.source}, {line}")
        if rejected is not None:
            content = None if record.record is None else b64encode(record.record).decode()
            letter = {
                "reason": record.reason,
                "source": record.source,
                "line": record.line,
                "base64": content,
            }
            rejected.write(json.dumps(letter) + "\n")

    aggregator = Aggregator(stream, reject, most_reports)
    with _opened(files, lambda: f"{aggregator.reports:,} reports") as sources:
        for source, file in sources:
            aggregator.read(file, source)
    _complain(aggregator, places)
    if not aggregator.reports:
        raise click.ClickException("there was no report to count")
    estimate, cut = aggregator.estimate(), Cut({0: aggregator.records}, {})
    if top is None:
        d = stream.oracle.domain_size
        parts = messages(stream, estimate, cut, 1, methods=methods or tuple(METHODS), inline=d)
        _write(part.body + b"\n" for part in parts)
        return
    from rich.console import Console

    from ldp import table

    shown = [method for method in methods or table.METHODS if method != "base"]
    parts = messages(stream, estimate, cut, 1, methods=("base", *shown))
    snapshot = assemble(name, {part.key: (dict(part.headers(1, len(parts))), part.body) for part in parts})
    console = Console()
    console.print(f"{name}: {aggregator.reports:,} reports", style="bold", highlight=False)
    console.print(table.most_frequent(snapshot, shown, top, console.width))


def _complain(aggregator: Aggregator, places: Mapping[str, Sequence[str]]) -> None:
    """Says on stderr what was malformed, if anything was."""
    from ldp.frames import REASONS, Reason

    rejected = aggregator.rejected
    if not rejected:
        return
    lines = [f"{rejected.total():,} of {aggregator.records:,} records are malformed and not counted:"]
    for reason, count in rejected.most_common():
        where = "; ".join([*places[reason], "..."][: count if count <= _PLACES else None])
        lines.append(f"  {reason} {count:,}: {REASONS[reason]} ({where})")
    if Reason.FINGERPRINT in rejected:
        lines.append(f"the fingerprint of this document is {aggregator.stream.fingerprint.hex()}")
    click.echo("\n".join(f"ldp: {line}" for line in lines), err=True)


def _write(parts: Iterable[bytes]) -> None:
    """Writes to stdout; a full disk is one line and exit code 1."""
    out = sys.stdout.buffer
    try:
        for part in parts:
            out.write(part)
        out.flush()
    except BrokenPipeError:
        raise  # click ends quietly
    except OSError as error:
        raise click.ClickException(f"stdout: {error.strerror}") from None


@contextmanager
def _opened(
    paths: Sequence[str], told: Callable[[], str], *, quiet: bool = False
) -> Iterator[Iterator[tuple[str, Readable]]]:
    """Yields the files, opened one after the other, each with what to call it.

    If stderr is a terminal, and unless quiet, it shows how much of them is read, and what ``told`` tells.
    """
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, ProgressColumn, Task, TimeRemainingColumn
    from rich.text import Text

    class Told(ProgressColumn):
        def render(self, _: Task) -> Text:
            return Text(told())

    paths = paths or [_STDIN]
    stdin = sys.stdin.buffer
    if _STDIN in paths and stdin.isatty():
        click.echo("ldp: reading from the terminal; Ctrl-D on a new line ends it", err=True)
        quiet = True
    sizes = [_size(stdin if path == _STDIN else path) for path in paths]
    known = [size for size in sizes if size is not None]
    console = Console(stderr=True)
    columns = (BarColumn(), DownloadColumn(), TimeRemainingColumn(), Told())
    with Progress(
        *columns, console=console, transient=True, disable=quiet or not console.is_terminal
    ) as progress:
        task = progress.add_task("", total=sum(known) if len(known) == len(sizes) else None)

        def move(size: int) -> None:
            progress.advance(task, size)

        def each() -> Iterator[tuple[str, Readable]]:
            for path in paths:
                if path == _STDIN:
                    yield "stdin", _Watched(stdin, "stdin", move)
                else:
                    with Path(path).open("rb") as file:
                        yield path, _Watched(file, path, move)

        yield each()


class _Watched:
    """A file that tells how much of it is read."""

    def __init__(self, file: BinaryIO, name: str, move: Callable[[int], None]) -> None:
        self._file, self._name, self._move = file, name, move

    def read(self, size: int, /) -> bytes:
        try:
            data = self._file.read(size)
        except OSError as error:
            raise click.ClickException(f"{self._name}: {error.strerror}") from None
        self._move(len(data))
        return data


def _size(file: BinaryIO | str) -> int | None:
    """The size of a regular file; None for what has none, a pipe say."""
    try:
        status = Path(file).stat() if isinstance(file, str) else os.fstat(file.fileno())
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


@cli.command("reproduce")
@click.option(
    "--figure", "figures", multiple=True, metavar="NAME", help="A figure; may be repeated. By default all."
)
@click.option("--quick", is_flag=True, help="Fewer repeats and points: the shapes, in under a minute.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of all coins.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default="reproduction",
    show_default=True,
    metavar="DIR",
    help="The folder to write to.",
)
def reproduce(figures: tuple[str, ...], quick: bool, seed: int, out: Path) -> None:
    """Run the paper's evaluation again, and judge its claims.

    \b
    distribution, bias, variance   mean, bias and variance of the counts, 5,000 runs
    full-domain                    error of single values over epsilon
    users                          how many users post-processing is worth
    set-value, set-value-small     error of random sets
    set-case                       error of the subgroups of emoji
    synthetic                      their error on synthetic data, and what it makes one choose
    top-k                          error of the most frequent values
    choice                         how well a method is chosen; not in the paper
    eleventh                       empirical Bayes against the paper's best; not in the paper

    Figures on one line are one computation and come together. With the same numpy the same seed gives the same
    CSVs, byte for byte, on any number of cores. The report is about the figures of this run alone, and replaces an
    earlier one. Pictures need matplotlib: pip install 'ldp-worker[plots]'.
    """  # noqa: D301
    from ldp.experiments import choice
    from ldp.experiments.figures import FIGURES
    from ldp.experiments.jobs import FULL, QUICK, cores
    from ldp.experiments.report import markdown, sums_table, tally
    from ldp.experiments.reproduce import experiments_of
    from ldp.experiments.reproduce import reproduce as reproduced
    from ldp.experiments.sums import sums

    figures = figures or tuple(FIGURES)
    try:
        experiments_of(figures)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--figure") from None
    with _bars() as begin:
        try:
            made = reproduced(figures, QUICK if quick else FULL, seed, out, cores(), begin)
        except OSError as error:
            raise click.ClickException(f"{error.filename or out}: {error.strerror}") from None
    compared = sums(made.rows)
    if compared:
        click.echo("Figure 2, mean error in counts summed over the domain:\n")
        head, lines = sums_table(compared)
        widths = [max(map(len, column)) for column in zip(head, *lines, strict=True)]
        for line in (head, *lines):
            name, *numbers, verdict = map(str.rjust, line, widths)
            click.echo("  ".join((name.strip().ljust(widths[0]), *numbers, verdict.strip())))
        click.echo()
    if any(row.figure == "choice" for row in made.rows):
        click.echo("Choosing a method, by query, over all data (more in the report):\n")
        click.echo(markdown(*choice.summary(made.rows), numbers=range(1, 7)) + "\n")
    if made.findings:
        click.echo(tally(made.findings))
    n = sum(path.suffix == ".csv" for path in made.written)
    plural = "s" if n > 1 else ""
    drawn = f", {n} picture{plural}" if made.pictures else ""
    click.echo(f"{out}: {n} CSV{plural}{drawn}, and {made.written[-1].name}")
    if not made.pictures:
        click.echo(
            "ldp: no pictures, matplotlib is missing or does not work: pip install 'ldp-worker[plots]'",
            err=True,
        )


@contextmanager
def _bars() -> Iterator[Callable[[str, int], Callable[[], object]]]:
    """Yields what begins a progress bar with a number of steps, on stderr, and gives what moves it.

    Where stderr is not a terminal there is none.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description:12}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:

        def begin(what: str, steps: int) -> Callable[[], object]:
            return partial(progress.advance, progress.add_task(what, total=steps))

        yield begin


def main() -> None:
    """The entry point of ``ldp``."""
    try:
        cli(prog_name="ldp")
    except OSError as error:  # a full disk behind stdout, say
        sys.exit(f"Error: {error}")


if __name__ == "__main__":
    main()
