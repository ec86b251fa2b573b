"""Shows the newest snapshot, of all time or of a window."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click

from worker.cli.command import amount, command, complain, reach, show, stream_option

_EPOCH = datetime.fromtimestamp(0, UTC)

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    import ldp
    from ldp.snapshot import Cut, Line, Period, Snapshot
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
    help="How long --once waits for the first, and --list for all.",
)
@click.option(
    "--window",
    default="all",
    show_default=True,
    metavar="NAME",
    help="Show a window, by the name that it is configured by; the newest of that name.",
)
@click.option("--start", metavar="TIME", help="Show the window that starts then, like 2026-11-22T06:00Z.")
@click.option("--list", "listed", is_flag=True, help="Say which windows there are, and exit.")
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
    window: str,
    start: str | None,
    listed: bool,
    top: int,
    methods: tuple[str, ...],
    every: bool,
    as_json: bool,
) -> int:
    """Show the latest snapshot, refreshed.

    Shows each new complete snapshot until interrupted, as a table in per cent: of all time, or of a window, which is
    provisional as long as reports can still come into it, and then final.
    """
    from ldp import table
    from ldp.consistency import METHODS
    from ldp.snapshot import NewerSchema
    from worker.kafka.snapshots import SnapshotReader
    from worker.observe import logs

    methods = _known(methods)
    begin = _begin(window, start)
    logs.silence()
    served = config.served(stream)
    shown = tuple(m for m in (METHODS if every else methods or table.METHODS) if m != "base")
    try:
        reach(config, config.snapshots.topic)
        with SnapshotReader(config, served.stream.name, window, begin) as reader:
            if listed:
                return _list(reader, timeout, as_json)
            if not once and window != "all" and reader.catch_up(timeout) and not reader.is_there:
                complain(f"{none_there(served.stream.name, window, begin, reader.windows)}; waiting for it")
            chosen = methods or tuple(METHODS)
            if _follow(
                reader, served.stream, chosen if as_json else None, shown, top, timeout if once else None
            ):
                return 0
            missing = none_there(served.stream.name, window, begin, reader.windows)
            known = reader.head is not None and window != "all"
    except NewerSchema as error:
        complain(str(error))
        return 1
    except KeyboardInterrupt:
        return 0
    why = "" if known else f"; {why_none(config, served)}"
    complain(f"{missing} in topic {config.snapshots.topic} after {timeout:g} s{why}")
    return 1


def _known(methods: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the methods that are asked for, each once."""
    from ldp.consistency import METHODS

    for method in methods:
        if method not in METHODS:
            raise click.BadParameter(
                f"{method!r} given; there are {', '.join(METHODS)}", param_hint="--method"
            )
    return tuple(dict.fromkeys(methods))


def _begin(window: str, start: str | None) -> int | None:
    """Returns the start that is asked for, in milliseconds; without a zone it is UTC."""
    if start is None:
        return None
    if window == "all":
        raise click.BadParameter(
            f"{start!r} given; all time has no start, a --window has", param_hint="--start"
        )
    try:
        given = datetime.fromisoformat(start)
    except ValueError:
        raise click.BadParameter(
            f"{start!r} given; a time is like 2026-11-22T06:00Z", param_hint="--start"
        ) from None
    return ((given if given.tzinfo else given.replace(tzinfo=UTC)) - _EPOCH) // timedelta(milliseconds=1)


def _follow(
    reader: "SnapshotReader",
    stream: "ldp.Stream",
    as_json: Sequence[str] | None,
    shown: Sequence[str],
    top: int,
    once: float | None,
) -> bool:
    """Shows each new snapshot, or one of them; returns whether there was one.

    Args:
        reader: what reads them.
        stream: the configured one.
        as_json: the methods that are printed as JSON; None for tables.
        shown: the methods that tables show beside Base.
        top: how many values these show.
        once: for how many seconds to wait for the first, if that is the only one; None to go on until interrupted.
    """
    from rich.console import Console

    console = Console()

    def screen(snapshot: "Snapshot") -> "RenderableType":
        seen = render(snapshot, shown, top, reader.age(), console.width, reader.lines)
        return _warned(seen, foreign(snapshot, stream))

    if console.is_terminal and once is None and as_json is None:
        _live(reader, console, screen)
    say = None if as_json is None else _lines(reader, stream, as_json)
    while (snapshot := reader.latest(math.inf if once is None else once)) is not None:
        if say is not None:
            say(snapshot)
        else:
            console.print(screen(snapshot))
        if once is not None:
            return True
    return False


def _lines(
    reader: "SnapshotReader", stream: "ldp.Stream", methods: Sequence[str]
) -> "Callable[[Snapshot], None]":
    """Returns what prints a snapshot as a line of JSON; of another stream it warns once on stderr."""
    warned = set[str]()

    def say(snapshot: "Snapshot") -> None:
        click.echo(document(snapshot, methods, reader.head, reader.lines))
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


def document(
    snapshot: "Snapshot",
    methods: Sequence[str],
    head: "Mapping[str, Any] | None" = None,
    lines: "Mapping[str, Line]" = MappingProxyType({}),
) -> str:
    """Returns a snapshot as one line of JSON: head, labels, and the bodies of the chosen methods.

    Args:
        snapshot: what to show.
        methods: whose bodies.
        head: the stream's newest, which is said with a window; that window is said, too.
        lines: what the head says of windows.
    """
    import numpy as np

    from ldp.snapshot import body_document, head_document

    of_all_time = snapshot.window.start is None
    window = {} if of_all_time else {"window": _row(snapshot.window, lines)}
    shown = {
        "head": head_document(snapshot) if of_all_time else head,
        **window,
        "labels": snapshot.labels,
        "bodies": {name: body_document(snapshot, name) for name in snapshot.bodies if name in methods},
    }
    return json.dumps(shown, ensure_ascii=False, default=np.ndarray.tolist)


def _row(window: "Period", lines: "Mapping[str, Line]") -> dict[str, Any]:
    """Returns what is said of a window in JSON."""
    said = {
        "name": window.name,
        "start": _date(window.start),
        "end": _date(window.end),
        "final": window.final,
    }
    return said | {"bounded": _is_bounded(window, lines)}


def _is_bounded(window: "Period", lines: "Mapping[str, Line]") -> bool:
    return window.end is not None and window.name in lines and lines[window.name].is_bounded(window.end)


def _date(milliseconds: int | None) -> str:
    assert milliseconds is not None
    date = (_EPOCH + timedelta(milliseconds=milliseconds)).replace(tzinfo=None)
    return date.isoformat(timespec="seconds" if milliseconds % 1000 == 0 else "milliseconds") + "Z"


def _list(reader: "SnapshotReader", timeout: float, as_json: bool) -> int:
    """Shows which windows are on the topic."""
    from rich.table import Table

    if not reader.catch_up(timeout):
        complain(f"the topic was not read to its end in {timeout:g} s; --timeout gives it more")
        return 1
    lines = reader.lines
    if as_json:
        click.echo(json.dumps([_row(window, lines) for window in reader.windows]))
        return 0
    table = Table("window", "start", "end", "", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for window in reader.windows:
        table.add_row(window.name, _date(window.start), _date(window.end), state(window, lines))
    show(table if reader.windows else "no windows but that of all time")
    return 0


def state(window: "Period", lines: "Mapping[str, Line]") -> str:
    """Says whether reports can still come into a window, and whether all did.

    Example:
        >>> from ldp.snapshot import Line, Period
        >>> hour, lines = 3_600_000, {"1h": Line(7_200_000, bounded=((7_200_000, 7_200_001),))}
        >>> [state(Period("1h", start * hour, (start + 1) * hour, start < 2), lines) for start in range(3)]
        ['final', 'final, bounded', 'provisional']
    """
    bounded = ", bounded" if _is_bounded(window, lines) else ""
    return f"final{bounded}" if window.final else "provisional"


def none_there(stream: str, window: str, start: int | None, there: Sequence["Period"]) -> str:
    """Says that a snapshot is not there, and which windows are.

    Example:
        >>> from ldp.snapshot import Period
        >>> there = [Period("1h", start * 3_600_000, (start + 1) * 3_600_000) for start in range(3)]
        >>> none_there("colours", "2h", None, there)
        "no window '2h' of colours (there are: all; 1h, 3 from 1970-01-01T00:00:00Z to 1970-01-01T02:00:00Z)"
    """
    if window == "all":
        return f"no snapshot of {stream}"
    which = f"no window {window!r} of {stream}" + ("" if start is None else f" that starts at {_date(start)}")
    names = [
        f"{name}, {len(starts)} from {_date(starts[0].start)} to {_date(starts[-1].start)}"
        for name, starts in ((name, list(ones)) for name, ones in groupby(there, lambda one: one.name))
    ]
    return f"{which} (there are: {'; '.join(['all', *names])})"


def render(
    snapshot: "Snapshot",
    methods: Sequence[str],
    top: int,
    age_seconds: float,
    width: int,
    lines: "Mapping[str, Line]" = MappingProxyType({}),
) -> "RenderableType":
    """Returns the most frequent values, by Base, as a table; frequencies in per cent of the reports.

    Args:
        snapshot: what to show.
        methods: which methods beside Base.
        top: how many values.
        age_seconds: since the snapshot was published.
        width: of the terminal; where the methods do not fit beside each other, they follow in further tables.
        lines: what the stream's head says of windows.
    """
    from rich.console import Group
    from rich.text import Text

    from ldp.table import most_frequent

    window, lost = snapshot.window, gaps(snapshot.cut)
    whole = "complete" if snapshot.complete else f"NOT COMPLETE: {lost}" if lost else "NOT COMPLETE"
    number, reports = snapshot.sequence, amount(snapshot.reports, "report")
    title = f"{snapshot.stream}: snapshot {number}, {reports}, {age_seconds:.0f} s old, {whole}"
    if window.start is not None:
        title = f"{window.name} from {_date(window.start)} to {_date(window.end)}, {state(window, lines)}\n{title}"
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
