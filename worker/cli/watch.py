"""Command `watch`: shows the newest snapshot, all-time or of a window."""

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from ldp.terminal import echo_json, screen, show
from worker.cli import overview
from worker.cli.command import command, complain, reach, read_all
from worker.cli.shown import date, foreign, none_there, render, row, state, table_of

_EPOCH = datetime.fromtimestamp(0, UTC)

if TYPE_CHECKING:
    from rich.console import RenderableType

    import ldp
    from ldp.snapshot import Snapshot
    from worker.config import Config, Served
    from worker.kafka.snapshots.reader import SnapshotReader


@command("watch")
@click.option(
    "--stream",
    metavar="NAME",
    help="Show only this stream, document (colours@9f86d081) or segment (colours:DE), in full. Without the option,"
    " show a line for each stream.",
)
@click.option("--once", is_flag=True, help="Show one snapshot and exit; exit with 1 if none comes in time.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="Maximum time to read the topic (--once, --list) and to wait for a first snapshot (--once).",
)
@click.option(
    "--window",
    default="all",
    show_default=True,
    metavar="NAME",
    help="Show the newest window of this name: a configured one, or late.",
)
@click.option("--start", metavar="TIME", help="Show the window with this start, such as 2026-11-22T06:00Z.")
@click.option("--list", "listed", is_flag=True, help="List the windows on the topic and exit.")
@click.option("--top", type=click.IntRange(min=1), default=10, show_default=True, help="Number of values.")
@click.option(
    "--method",
    "methods",
    multiple=True,
    metavar="NAME",
    help="Method to show in addition to Base. Repeat the option for several.",
)
@click.option("--all", "every", is_flag=True, help="Show all ten methods.")
@click.option("--json", "as_json", is_flag=True, help="Print each snapshot as one line of JSON.")
def watch(
    config: "Config",
    stream: str | None,
    once: bool,
    timeout: float,
    window: str,
    start: str | None,
    listed: bool,
    top: int,
    methods: tuple[str, ...],
    every: bool,
    as_json: bool,
) -> int:
    """Show the latest snapshot, and refresh it.

    Shows each new complete snapshot as a table in percent, until interrupted. The table covers all time or a window,
    which is provisional or final. With several streams, shows one line per stream.
    """
    from ldp import table
    from ldp.consistency import METHODS, applicable
    from ldp.snapshot import NewerSchema, whole_of
    from worker.kafka.snapshots.reader import SnapshotReader

    methods = _checked_methods(methods, config.snapshots.methods)
    begin, wait = _start_ms(window, start), timeout if once else None
    printed = (methods or tuple(METHODS)) if as_json else None
    try:
        if stream is None and len(config.streams) > 1 and window == "all" and not listed:
            return overview.follow_all(config, wait, printed)
        name = stream or config.served(None).name
        served = config.served(whole_of(name))
        _checked_methods(methods, applicable(served.fleet.size, config.snapshots.methods))
        shown = tuple(m for m in (METHODS if every else methods or table.METHODS) if m != "base")
        reach(config, config.snapshots.topic)
        with SnapshotReader(config, name, window, begin, complain) as reader:
            if listed:
                return _list(reader, timeout, as_json)
            began = time.monotonic()
            if not read_all([reader], timeout) and once:
                return 1
            missing = none_there(name, window, begin, limited="released" in (reader.head or {}))
            if not reader.is_there:
                complain(f"{missing}; waiting for it")
            wait = max(0.0, timeout + began - time.monotonic()) if once else None
            if _follow(reader, served.fleet, printed, shown, top, wait):
                return 0
            known = reader.head is not None and (name, window) != (served.name, "all")
            is_there = reader.is_there or (window == "all" and (reader.head or {}).get("reports"))
            broken = reader.why_not if is_there else None
    except NewerSchema as error:
        complain(str(error))
        return 1
    except KeyboardInterrupt:
        return 0
    why = f"; {broken}" if broken else "" if known else f"; {why_none(config, served)}"
    complain(f"{missing} in topic {config.snapshots.topic} after {timeout:g} s{why}")
    return 1


def _checked_methods(methods: tuple[str, ...], published: Sequence[str]) -> tuple[str, ...]:
    from ldp.consistency import METHODS

    for method in methods:
        if method not in METHODS:
            raise click.BadParameter(
                f"{method!r} given; allowed are {', '.join(METHODS)}", param_hint="--method"
            )
        if method not in published:
            raise click.BadParameter(
                f"{method!r} given; published are {', '.join(published)} (snapshots.methods)",
                param_hint="--method",
            )
    return tuple(dict.fromkeys(methods))


def _start_ms(window: str, start: str | None) -> int | None:
    if start is None:
        return None
    if window == "all":
        raise click.BadParameter(f"{start!r} given; allowed only with --window", param_hint="--start")
    try:
        given = datetime.fromisoformat(start)
    except ValueError:
        raise click.BadParameter(
            f"{start!r} given; allowed is a time such as 2026-11-22T06:00Z", param_hint="--start"
        ) from None
    return ((given if given.tzinfo else given.replace(tzinfo=UTC)) - _EPOCH) // timedelta(milliseconds=1)


def _follow(
    reader: "SnapshotReader",
    fleet: "ldp.Fleet",
    as_json: Sequence[str] | None,
    shown: Sequence[str],
    top: int,
    once: float | None,
) -> bool:
    """Shows each snapshot, or only the first; returns whether one appeared."""
    from rich.console import Group
    from rich.text import Text

    console = screen()

    def draw(newest: "Mapping[str, Snapshot]") -> "RenderableType":
        tables = [render(s, shown, top, console.width, reader.progress) for s in newest.values()]
        warnings = filter(None, (foreign(snapshot, fleet) for snapshot in newest.values()))
        return Group(*(Text(warning, style="bold red") for warning in warnings), *tables)

    def show_table(_: "SnapshotReader", snapshot: "Snapshot") -> None:
        console.print(draw({reader.stream: snapshot}))

    emit = show_table if as_json is None else overview.json_printer({reader.stream: fleet}, as_json)
    live = console.is_terminal and once is None and as_json is None
    return bool(overview.follow([reader], once, emit, draw if live else None))


def _list(reader: "SnapshotReader", timeout: float, as_json: bool) -> int:
    if not read_all([reader], timeout):
        return 1
    progress = reader.progress
    if as_json:
        echo_json([row(window, progress) for window in reader.windows])
        return 0
    table = table_of("window", "start", "end", "")
    for window in reader.windows:
        table.add_row(window.name, date(window.start), date(window.end), state(window, progress))
    show(table if reader.windows else "no windows on the topic")
    return 0


def why_none(config: "Config", served: "Served") -> str:
    """Explains, from the topic's newest records, why no snapshot exists."""
    from worker.check.kafka import assess_reports
    from worker.kafka.client import brokers, topics
    from worker.kafka.reports.reader import newest_reports

    with brokers.connect(config) as admin:
        try:
            topics.require(admin, served.topic)
        except topics.TopicError as error:
            return str(error)
    counted = "ldp-worker run publishes after its first report; its first start compiles for some seconds"
    found = assess_reports(served, newest_reports(config, served))
    return f"topic {served.topic}: {found.text}; {counted}\n{found.hint}"
