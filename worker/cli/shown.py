"""What the commands show of a snapshot: as a table, as JSON, and what is to be said beside it."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from worker.cli.command import amount
from worker.observe.units import said_seconds

if TYPE_CHECKING:
    from rich.console import RenderableType

    import ldp
    from ldp.snapshot import Cut, Line, Period, Snapshot

_EPOCH = datetime.fromtimestamp(0, UTC)


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
    window = {} if of_all_time else {"window": row(snapshot.window, lines)}
    shown = {
        "head": head_document(snapshot) if of_all_time else head,
        **window,
        "labels": snapshot.labels,
        "bodies": {name: body_document(snapshot, name) for name in snapshot.bodies if name in methods},
    }
    return json.dumps(shown, ensure_ascii=False, default=np.ndarray.tolist)


def row(window: "Period", lines: "Mapping[str, Line]") -> dict[str, Any]:
    """Returns what is said of a window in JSON."""
    said = {
        "name": window.name,
        "start": date(window.start),
        "end": date(window.end),
        "final": window.final,
    }
    return said | {"bounded": is_bounded(window, lines)}


def is_bounded(window: "Period", lines: "Mapping[str, Line]") -> bool:
    """Returns whether a window was closed before all partitions had passed it."""
    return window.end is not None and window.name in lines and lines[window.name].is_bounded(window.end)


def date(milliseconds: int | None) -> str:
    """Writes a window's bound, which is there, as a time in UTC."""
    assert milliseconds is not None
    date = (_EPOCH + timedelta(milliseconds=milliseconds)).replace(tzinfo=None)
    return date.isoformat(timespec="seconds" if milliseconds % 1000 == 0 else "milliseconds") + "Z"


def state(window: "Period", lines: "Mapping[str, Line]") -> str:
    """Says whether reports can still come into a window, and whether all did.

    Example:
        >>> from ldp.snapshot import Line, Period
        >>> hour, lines = 3_600_000, {"1h": Line(7_200_000, bounded=((7_200_000, 7_200_001),))}
        >>> [state(Period("1h", start * hour, (start + 1) * hour, start < 2), lines) for start in range(3)]
        ['final', 'final, bounded', 'provisional']
    """
    bounded = ", bounded" if is_bounded(window, lines) else ""
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
    which = f"no window {window!r} of {stream}" + ("" if start is None else f" that starts at {date(start)}")
    names = [
        f"{name}, {len(starts)} from {date(starts[0].start)} to {date(starts[-1].start)}"
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

    window, number, reports = snapshot.window, snapshot.sequence, amount(snapshot.reports, "report")
    title = f"{snapshot.stream}: snapshot {number}, {reports}, {said_seconds(age_seconds)} old, {wholeness(snapshot)}"
    if window.start is not None:
        title = (
            f"{window.name} from {date(window.start)} to {date(window.end)}, {state(window, lines)}\n{title}"
        )
    return Group(Text(title, style="bold"), most_frequent(snapshot, methods, top, width))


def wholeness(snapshot: "Snapshot") -> str:
    """Says whether every report is counted in a snapshot, and which are not."""
    lost = gaps(snapshot.cut)
    return "complete" if snapshot.complete else f"NOT COMPLETE: {lost}" if lost else "NOT COMPLETE"


def foreign(snapshot: "Snapshot", stream: "ldp.Stream") -> str | None:
    """Returns a warning if a snapshot is of another stream under the configured one's name, else None."""
    theirs, ours = snapshot.fingerprint, stream.fingerprint.hex()
    if theirs == ours:
        return None
    return (
        f"NOT THE CONFIGURED STREAM: this snapshot is of fingerprint {theirs}, the configuration's {stream.name} has"
        f" {ours}: another protocol, epsilon, domain or other labels"
    )


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
