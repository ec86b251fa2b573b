"""Follows snapshots, and shows an overview with one line per stream."""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ldp.terminal import amount, echo, echo_json, printable, screen
from worker.cli.command import complain, reach, read_all
from worker.cli.shown import age, document, foreign, table_of, wholeness

if TYPE_CHECKING:
    from rich.console import RenderableType

    import ldp
    from ldp.snapshot import Snapshot
    from worker.config import Config
    from worker.kafka.snapshots.reader import SnapshotReader

    Draw = Callable[[Mapping[str, Snapshot]], RenderableType]
    Emit = Callable[[SnapshotReader, Snapshot], None]


def follow_all(config: "Config", once: float | None, as_json: Sequence[str] | None) -> int:
    """Shows the newest snapshot of each stream until interrupted.

    With `once`, waits `once` seconds for one snapshot of each stream. With `as_json`, prints the methods in `as_json`
    as JSON. Returns 1 if a stream has no snapshot in time. Raises `NewerSchema` if a newer version wrote a snapshot.
    """
    from worker.kafka.snapshots.reader import SnapshotReader

    streams = {served.name: served.fleet for served in config.streams}
    reach(config, config.snapshots.topic)
    with contextlib.ExitStack() as stack:
        readers = [stack.enter_context(SnapshotReader(config, name, on_passed=complain)) for name in streams]
        if once is not None and not read_all(readers, once):
            return 1
        if once is not None and not all(reader.is_there for reader in readers):
            complain("no snapshot of some streams; waiting for them")

        drawn = as_json is None and (once is not None or screen().is_terminal)
        emit = _print_line if as_json is None else json_printer(streams, as_json)
        newest = follow(readers, once, emit, partial(render, [*streams.values()]) if drawn else None)
    if missing := [name for name in streams if name not in newest]:
        complain(f"no snapshot of {', '.join(missing)} after {once:g} s; watch --stream prints the reason")
    return 1 if missing else 0


def follow(
    readers: "Sequence[SnapshotReader]", once: float | None, emit: "Emit", draw: "Draw | None"
) -> "Mapping[str, Snapshot]":
    """Shows new snapshots until interrupted.

    With `once`, waits `once` seconds for one snapshot of each reader, and returns them by stream. `draw` renders the
    newest snapshots, again and again without `once`. If it is None, `emit` prints each snapshot.
    """
    from rich.live import Live

    began, newest, console = time.monotonic(), dict[str, "Snapshot"](), screen()
    live = None if draw is None or once is not None else Live(console=console, auto_refresh=False)
    with live or contextlib.nullcontext():
        while True:
            waiting = [reader for reader in readers if once is None or reader.stream not in newest]
            for reader in waiting:
                if (snapshot := reader.latest(1.0 / len(waiting))) is not None:
                    newest[reader.stream] = snapshot
                    if draw is None:
                        emit(reader, snapshot)
            if live is not None and draw is not None:
                live.update(draw(newest), refresh=True)
            if once is not None and (len(newest) == len(readers) or time.monotonic() - began >= once):
                break
    if draw is not None:
        console.print(draw(newest))
    return newest


def json_printer(streams: "Mapping[str, ldp.Fleet]", methods: Sequence[str]) -> "Emit":
    """Returns a function that prints a snapshot as a line of JSON.

    It warns once of each foreign snapshot; see `foreign`. `streams`: documents by the name of the stream or part.
    """
    warned = set[str]()

    def emit(reader: "SnapshotReader", snapshot: "Snapshot") -> None:
        echo_json(document(snapshot, methods, reader.head, reader.progress))
        warning = foreign(snapshot, streams[reader.stream])
        if warning is not None and warning not in warned:
            warned.add(warning)
            complain(warning)

    return emit


def _print_line(_: "SnapshotReader", snapshot: "Snapshot") -> None:
    number, reports = snapshot.sequence, amount(snapshot.reports, "report")
    echo(f"{snapshot.stream}: snapshot {number}, {reports}, {wholeness(snapshot)}")


def render(streams: Sequence["ldp.Fleet"], newest: Mapping[str, "Snapshot"]) -> "RenderableType":
    """Returns a table of streams: newest snapshot, age and top value."""
    from rich.text import Text

    numbers = ("snapshot", "reports", "age")
    table = table_of("stream", *numbers, "most frequent, by Base", "", right=numbers)
    for stream in streams:
        if (snapshot := newest.get(stream.name)) is None:
            table.add_row(stream.name, "", "", "", "", Text("no snapshot yet", style="yellow"))
            continue
        warning = foreign(snapshot, stream)
        whole = Text(wholeness(snapshot), style="" if snapshot.complete else "bold red")
        table.add_row(
            stream.name,
            f"{snapshot.sequence:,}",
            f"{snapshot.reports:,}",
            age(snapshot),
            Text(printable(_commonest(snapshot)), no_wrap=True, overflow="ellipsis"),
            whole if warning is None else Text(warning, style="bold red"),
        )
    return table


def _commonest(snapshot: "Snapshot") -> str:
    import numpy as np

    from ldp.table import percent

    frequencies = snapshot.bodies["base"].frequencies
    value = int(np.nanargmax(frequencies))
    label = str(value) if snapshot.labels is None else snapshot.labels[value]
    return f"{label}, {percent(frequencies[value])} %"
