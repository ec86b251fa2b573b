"""Formats of output: tables, and snapshots as JSON and as warnings."""

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ldp.terminal import amount
from worker.observe.units import age_text

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    import ldp
    from ldp.snapshot import Closed, Cut, Period, Snapshot

_EPOCH = datetime.fromtimestamp(0, UTC)


def table_of(*headings: str, right: Sequence[str] = ()) -> "Table":
    """Returns an empty table without borders; aligns columns in `right` right."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in headings:
        table.add_column(heading, justify="right" if heading in right else "left", overflow="fold")
    return table


def document(
    snapshot: "Snapshot",
    methods: Sequence[str],
    head: "Mapping[str, Any] | None" = None,
    progress: "Mapping[str, Closed]" = MappingProxyType({}),
) -> dict[str, Any]:
    """Returns a snapshot's head, window, labels and bodies for JSON."""
    from ldp.snapshot import ALL_TIME, body_document, head_document

    of_all_time = snapshot.window == ALL_TIME
    window = {} if of_all_time else {"window": row(snapshot.window, progress)}
    return {
        "head": head_document(snapshot) if of_all_time else head,
        **window,
        "labels": snapshot.labels,
        "bodies": {name: body_document(snapshot, name) for name in snapshot.bodies if name in methods},
    }


def row(window: "Period", progress: "Mapping[str, Closed]") -> dict[str, Any]:
    """Returns a window as a dict for JSON."""
    shown = {"name": window.name, "start": date(window.start), "end": date(window.end), "final": window.final}
    return shown | {"bounded": is_bounded(window, progress)}


def is_bounded(window: "Period", progress: "Mapping[str, Closed]") -> bool:
    """Returns whether a window closed before all partitions reached its end."""
    return window.end is not None and window.name in progress and progress[window.name].is_bounded(window.end)


def date(milliseconds: int | None) -> str | None:
    """Returns a window's start or end in UTC; None for `late`."""
    if milliseconds is None:
        return None
    date = (_EPOCH + timedelta(milliseconds=milliseconds)).replace(tzinfo=None)
    return date.isoformat(timespec="seconds" if milliseconds % 1000 == 0 else "milliseconds") + "Z"


def state(window: "Period", progress: "Mapping[str, Closed]") -> str:
    """Returns `final`, `final, bounded`, `provisional`, or what `late` is.

    Example:
        >>> from ldp.snapshot import Closed, Period
        >>> hour, progress = 3_600_000, {"1h": Closed(7_200_000, bounded=((7_200_000, 7_200_001),))}
        >>> [state(Period("1h", start * hour, (start + 1) * hour, start < 2), progress) for start in range(3)]
        ['final', 'final, bounded', 'provisional']
    """
    if window.start is None:
        return "released reports in no window"
    bounded = ", bounded" if is_bounded(window, progress) else ""
    return f"final{bounded}" if window.final else "provisional"


def none_there(stream: str, window: str, start: int | None, *, limited: bool) -> str:
    """Returns an error for a missing snapshot; `limited`: by `fewest_new`."""
    from ldp.snapshot import whole_of

    if window == "all":
        needed = (
            ""
            if stream == whole_of(stream)
            else " (a document or a declared segment needs snapshots.parts_fewest reports)"
        )
        return f"no snapshot of {stream}{needed}"
    at = "" if start is None else f" that starts at {date(start)}"
    few = ", and a window whose panes all have too few reports is missing" if limited else ""
    return f"no window {window!r} of {stream}{at} (watch --list prints the windows{few})"


def render(
    snapshot: "Snapshot",
    methods: Sequence[str],
    top: int,
    width: int,
    progress: "Mapping[str, Closed]" = MappingProxyType({}),
) -> "RenderableType":
    """Returns a table of the most frequent values in percent of the reports.

    Methods that do not fit into the width follow in further tables. `progress` is the window progress in the head.
    """
    from rich.console import Group
    from rich.text import Text

    from ldp.snapshot import ALL_TIME
    from ldp.table import most_frequent

    window, number, reports = snapshot.window, snapshot.sequence, amount(snapshot.reports, "report")
    title = f"{snapshot.stream}: snapshot {number}, {reports}, {age(snapshot)} old, {wholeness(snapshot)}"
    if window != ALL_TIME:
        times = "" if window.start is None else f" from {date(window.start)} to {date(window.end)}"
        withheld = f", {amount(snapshot.withheld, 'report')} withheld" if snapshot.withheld else ""
        title = f"{window.name}{times}, {state(window, progress)}{withheld}\n{title}"
    return Group(Text(title, style="bold"), most_frequent(snapshot, methods, top, width))


def age(snapshot: "Snapshot") -> str:
    """Returns the time since a snapshot was published."""
    return age_text(max(0.0, time.time() - (snapshot.published or 0) / 1000))


def wholeness(snapshot: "Snapshot") -> str:
    """Describes whether a snapshot is complete, and which offsets it lacks."""
    lost = gaps(snapshot.cut)
    return "complete" if snapshot.complete else f"NOT COMPLETE: {lost}" if lost else "NOT COMPLETE"


def foreign(snapshot: "Snapshot", fleet: "ldp.Fleet") -> str | None:
    """Returns a warning if another stream of this name wrote the snapshot."""
    theirs = {one["fingerprint"] for one in snapshot.documents} | {snapshot.fingerprint}
    ours = [document.fingerprint.hex() for document in fleet.documents]
    if not theirs.isdisjoint(ours):
        return None
    return (
        f"NOT THE CONFIGURED STREAM: this snapshot has fingerprint {snapshot.fingerprint}, but {fleet.name} has"
        f" {', '.join(ours)} in the configuration: another protocol, epsilon, domain or other labels"
    )


def gaps(cut: "Cut") -> str:
    """Describes the lost offsets and the uncounted partitions.

    Example:
        >>> from ldp.snapshot import Cut
        >>> gaps(Cut({}, {0: [(5, 9)], 2: [(1, 2), (7, 10)]}, [3]))
        'partition 0 lost offsets 5–8, partition 2 lost offsets 1, 7–9, partition 3 is not counted'
    """

    def offsets(first: int, end: int) -> str:
        return str(first) if end == first + 1 else f"{first}–{end - 1}"

    lost = [
        f"partition {partition} lost offsets {', '.join(offsets(*span) for span in ranges)}"
        for partition, ranges in cut.gaps.items()
    ]
    left_out = [f"partition {partition} is not counted" for partition in cut.uncounted]
    return ", ".join(lost + left_out)
