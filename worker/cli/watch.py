"""Shows the newest snapshot."""

import json
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from worker.cli.command import amount, command, complain, reach, stream_option

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    import ldp
    from ldp.snapshot import Cut, Snapshot
    from worker.config import Config, Served
    from worker.kafka.snapshots import SnapshotReader


@command("watch")
@stream_option
@click.option("--once", is_flag=True, help="Show one snapshot and exit; exit with 1 if none comes in time.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="How long --once waits for the first.",
)
@click.option("--top", type=click.IntRange(min=1), default=10, show_default=True, help="How many values.")
@click.option(
    "--method",
    "methods",
    multiple=True,
    metavar="NAME",
    help="A method to show beside Base; may be repeated.",
)
@click.option("--all", "every", is_flag=True, help="Show all ten methods.")
@click.option("--json", "as_json", is_flag=True, help="Print each snapshot as one line of JSON.")
def watch(
    config: "Config",
    stream: str | None,
    once: bool,
    timeout: float,
    top: int,
    methods: tuple[str, ...],
    every: bool,
    as_json: bool,
) -> int:
    """Show the latest snapshot, refreshed.

    Shows each new complete snapshot until interrupted, as a table in per cent.
    """
    from rich.console import Console

    from ldp import table
    from ldp.consistency import METHODS
    from ldp.snapshot import NewerSchema
    from worker.kafka.snapshots import SnapshotReader
    from worker.observe import logs

    methods = tuple(dict.fromkeys(methods))
    for method in methods:
        if method not in METHODS:
            raise click.BadParameter(
                f"{method!r} given; there are {', '.join(METHODS)}", param_hint="--method"
            )
    logs.silence()
    served = config.served(stream)
    shown = tuple(m for m in (METHODS if every else methods or table.METHODS) if m != "base")
    console = Console()
    try:
        reach(config, config.snapshots.topic)
        with SnapshotReader(config, served.stream.name) as reader:

            def screen(snapshot: "Snapshot") -> "RenderableType":
                seen = render(snapshot, shown, top, reader.age(), console.width)
                return _warned(seen, foreign(snapshot, served.stream))

            if console.is_terminal and not once and not as_json:
                _live(reader, console, screen)
            say = _lines(served.stream, methods or tuple(METHODS)) if as_json else None
            while (snapshot := reader.latest(timeout if once else math.inf)) is not None:
                if say is not None:
                    say(snapshot)
                else:
                    console.print(screen(snapshot))
                if once:
                    return 0
    except NewerSchema as error:
        complain(str(error))
        return 1
    except KeyboardInterrupt:
        return 0
    said = f"no snapshot of {served.stream.name} in topic {config.snapshots.topic} after {timeout:g} s"
    complain(f"{said}; {why_none(config, served)}")
    return 1


def _lines(stream: "ldp.Stream", methods: Sequence[str]) -> "Callable[[Snapshot], None]":
    """Returns what prints a snapshot as a line of JSON; of another stream it warns once on stderr."""
    warned = set[str]()

    def say(snapshot: "Snapshot") -> None:
        click.echo(document(snapshot, methods))
        warning = foreign(snapshot, stream)
        if warning is not None and warning not in warned:
            warned.add(warning)
            complain(warning)

    return say


def _live(
    reader: "SnapshotReader", console: "Console", screen: "Callable[[Snapshot], RenderableType]"
) -> None:
    """Keeps the latest snapshot on the terminal, until interrupted."""
    from rich.live import Live
    from rich.text import Text

    snapshot = None
    with Live(Text("waiting for the first snapshot ..."), console=console, auto_refresh=False) as live:
        while True:
            snapshot = reader.latest(1.0) or snapshot
            if snapshot is not None:
                live.update(screen(snapshot), refresh=True)


def _warned(screen: "RenderableType", warning: str | None) -> "RenderableType":
    """Returns a screen below its warning, if there is one."""
    from rich.console import Group
    from rich.text import Text

    return screen if warning is None else Group(Text(warning, style="bold red"), screen)


def document(snapshot: "Snapshot", methods: Sequence[str]) -> str:
    """Returns a snapshot as one line of JSON: head, labels, and the bodies of the chosen methods."""
    import numpy as np

    from ldp.snapshot import body_document, head_document

    shown = {
        "head": head_document(snapshot),
        "labels": snapshot.labels,
        "bodies": {name: body_document(snapshot, name) for name in snapshot.bodies if name in methods},
    }
    return json.dumps(shown, ensure_ascii=False, default=np.ndarray.tolist)


def render(
    snapshot: "Snapshot", methods: Sequence[str], top: int, age_seconds: float, width: int
) -> "RenderableType":
    """Returns the most frequent values, by Base, as a table; frequencies in per cent of the reports.

    Args:
        snapshot: what to show.
        methods: which methods beside Base.
        top: how many values.
        age_seconds: since the snapshot was published.
        width: of the terminal; where the methods do not fit beside each other, they follow in further tables.
    """
    from rich.console import Group
    from rich.text import Text

    from ldp.table import most_frequent

    whole = "complete" if snapshot.complete else f"NOT COMPLETE: {gaps(snapshot.cut)}"
    number, reports = snapshot.sequence, amount(snapshot.reports, "report")
    title = f"{snapshot.stream}: snapshot {number}, {reports}, {age_seconds:.0f} s old, {whole}"
    return Group(Text(title, style="bold"), most_frequent(snapshot, methods, top, width))


def foreign(snapshot: "Snapshot", stream: "ldp.Stream") -> str | None:
    """Returns a warning if a snapshot is of another stream under the configured one's name, else None."""
    theirs, ours = snapshot.fingerprint, stream.fingerprint.hex()
    if theirs == ours:
        return None
    return (
        f"NOT THE CONFIGURED STREAM: this snapshot is of fingerprint {theirs}, the configuration's {stream.name} has"
        f" {ours}: another protocol, epsilon, domain or other labels"
    )


def why_none(config: "Config", served: "Served") -> str:
    """Says why there may be no snapshot of a stream, by the newest records of its topic.

    Raises:
        KafkaError: the brokers do not answer.
    """
    from worker.counting import rejections
    from worker.kafka import brokers, topics
    from worker.kafka.reports import newest_reports

    with brokers.connect(config) as admin:
        try:
            topics.require(admin, served.topic)
        except topics.TopicError as error:
            return str(error)
    counted = "ldp-worker run publishes one once it has counted a report"
    judged = newest_reports(config, served)
    if not judged.records:
        return f"topic {served.topic} has no record yet; {counted}"
    reasons = judged.reasons
    if not reasons:
        return f"topic {served.topic} has reports; {counted}"
    which = "all" if reasons.total() == judged.records else f"{reasons.total():,}"
    rejected = f"{which} of the newest {judged.records:,} records of topic {served.topic} are rejected"
    said = "\n".join(f"{reason} {n:,}: {rejections.REASONS[reason]}" for reason, n in reasons.most_common())
    return f"{rejected}; {counted}\n{said}\nldp-worker dead-letters shows where they came from"


def gaps(cut: "Cut") -> str:
    """Says which stretches of the log are lost, and which partitions are left out.

    Example:
        >>> from ldp.snapshot import Cut
        >>> gaps(Cut({}, {0: [(5, 9)], 2: [(1, 2), (7, 10)]}, [3]))
        'partition 0 lost offsets 5–8, partition 2 lost offsets 1, 7–9, partition 3 is not counted'
    """

    def offsets(first: int, end: int) -> str:
        return str(first) if end == first + 1 else f"{first}–{end - 1}"

    lost = [
        f"partition {partition} lost offsets {', '.join(offsets(*stretch) for stretch in stretches)}"
        for partition, stretches in cut.gaps.items()
    ]
    left_out = [f"partition {partition} is not counted" for partition in cut.uncounted]
    return ", ".join(lost + left_out)
