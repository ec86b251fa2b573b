"""Overview of the newest snapshots, one line per stream."""

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ldp.terminal import echo, echo_json, printable, screen
from worker.cli.command import amount, complain, complain_of, reach, read_all
from worker.cli.shown import document, foreign, table_of, wholeness
from worker.observe.units import age_text

if TYPE_CHECKING:
    from rich.console import RenderableType

    import ldp
    from ldp.snapshot import Snapshot
    from worker.config import Config
    from worker.kafka.snapshots.reader import SnapshotReader


def follow(config: "Config", once: float | None, as_json: Sequence[str] | None) -> int:
    """Shows the newest snapshot of each stream until interrupted.

    With `once`, waits `once` seconds for one snapshot of each stream. With `as_json`, prints the methods in `as_json`
    as JSON. Returns 1 if a stream has no snapshot in time. Raises `NewerSchema` if a newer version wrote a snapshot.
    """
    from worker.kafka.snapshots.reader import SnapshotReader

    streams = [served.fleet for served in config.streams]
    reach(config, config.snapshots.topic)
    with contextlib.ExitStack() as stack:
        readers = [
            stack.enter_context(SnapshotReader(config, stream.name, on_passed=complain_of))
            for stream in streams
        ]
        if once is not None:
            return _once(streams, readers, once, as_json)
        if as_json is None and screen().is_terminal:
            _live(streams, readers)
        while True:
            for reader, snapshot in _read(readers, 1.0):
                _show(reader, snapshot, as_json)


def _read(
    readers: Sequence["SnapshotReader"], wait_seconds: float
) -> Iterator[tuple["SnapshotReader", "Snapshot"]]:
    for reader in readers:
        if (snapshot := reader.latest(wait_seconds / len(readers))) is not None:
            yield reader, snapshot


def _once(
    streams: Sequence["ldp.Fleet"],
    readers: Sequence["SnapshotReader"],
    seconds: float,
    as_json: Sequence[str] | None,
) -> int:
    deadline, newest = time.monotonic() + seconds, dict[str, "Snapshot"]()
    if not read_all(readers, seconds):
        return 1
    if not all(reader.is_there for reader in readers):
        complain("no snapshot of some streams; waiting for them")
    while waiting := [reader for reader in readers if reader.stream not in newest]:
        for reader, snapshot in _read(waiting, 1.0):
            newest[reader.stream] = snapshot
            if as_json is not None:
                _show(reader, snapshot, as_json)
        if time.monotonic() >= deadline:
            break
    if as_json is None:
        screen().print(render(streams, newest, [reader.age() for reader in readers]))
    if missing := [reader.stream for reader in waiting if reader.stream not in newest]:
        complain(f"no snapshot of {', '.join(missing)} after {seconds:g} s; watch --stream prints the reason")
    return 1 if missing else 0


def _live(streams: Sequence["ldp.Fleet"], readers: Sequence["SnapshotReader"]) -> None:
    from rich.live import Live

    newest = dict[str, "Snapshot"]()
    with Live(console=screen(), auto_refresh=False) as live:
        while True:
            live.update(render(streams, newest, [reader.age() for reader in readers]), refresh=True)
            newest |= {reader.stream: snapshot for reader, snapshot in _read(readers, 1.0)}


def _show(reader: "SnapshotReader", snapshot: "Snapshot", as_json: Sequence[str] | None) -> None:
    if as_json is not None:
        echo_json(document(snapshot, as_json, reader.head, reader.progress))
        return
    number, reports = snapshot.sequence, amount(snapshot.reports, "report")
    echo(f"{snapshot.stream}: snapshot {number}, {reports}, {wholeness(snapshot)}")


def render(
    streams: Sequence["ldp.Fleet"], newest: Mapping[str, "Snapshot"], ages: Sequence[float]
) -> "RenderableType":
    """Returns a table of streams: newest snapshot, age (s) and top value."""
    from rich.text import Text

    numbers = ("snapshot", "reports", "age")
    table = table_of("stream", *numbers, "most frequent, by Base", "", right=numbers)
    for stream, age in zip(streams, ages, strict=True):
        if (snapshot := newest.get(stream.name)) is None:
            table.add_row(stream.name, "", "", "", "", Text("no snapshot yet", style="yellow"))
            continue
        warning = foreign(snapshot, stream)
        whole = Text(wholeness(snapshot), style="" if snapshot.complete else "bold red")
        table.add_row(
            stream.name,
            f"{snapshot.sequence:,}",
            f"{snapshot.reports:,}",
            age_text(age),
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
