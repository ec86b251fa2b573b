"""Computes and limits the cost of a stream's windows."""

from collections.abc import Mapping
from dataclasses import dataclass

from ldp.consistency import METHODS
from worker.config.faults import ConfigError
from worker.config.redaction import said
from worker.config.schema import StreamTable
from worker.counting.bounds import MOST_BYTES, MOST_PANES
from worker.counting.windows import ALL, UNITS, Windowing, milliseconds, parse_all

MOST_OPEN = 512
"""Maximum number of open windows; a snapshot estimates each changed window."""
MOST_KEPT = 20_000
"""Maximum number of windows on the snapshot topic; the head lists them."""
_OWN_KEYS = ("grace", "max_out_of_orderness", "idle_timeout", "retain", "late_dead_letters")


@dataclass(frozen=True)
class Cost:
    """Maximum cost of a stream's windows.

    Attributes:
        pane_bytes: maximum bytes of a pane's counts; most panes need half or a quarter.
        kept_of: final windows of each name on the snapshot topic; None if they stay forever.

    Example:
        >>> day = Windowing(("all", "24h every 1h"), grace=0, max_out_of_orderness=10_000)
        >>> found = cost(day, pane_bytes=6760, retain=7 * UNITS["d"])
        >>> found.panes, found.partition_bytes, found.open, found.messages, found.kept, found.at_once
        (54, 371800, 25, 286, 168, 77)
    """

    panes: int
    pane_bytes: int
    open_of: Mapping[str, int]
    kept_of: Mapping[str, int] | None
    at_once: int

    @property
    def open(self) -> int:
        """Maximum number of open windows, without the window of all time."""
        return sum(self.open_of.values())

    @property
    def kept(self) -> int | None:
        """Maximum number of final windows on the topic; None if kept forever."""
        return None if self.kept_of is None else sum(self.kept_of.values())

    @property
    def named(self) -> Mapping[str, int]:
        """Maximum number of windows per name in the head; 0 if kept forever."""
        kept = self.kept_of
        return {name: 0 if kept is None else n + kept[name] for name, n in self.open_of.items()}

    @property
    def partition_bytes(self) -> int:
        """Maximum bytes of a partition's counts."""
        return (1 + self.panes) * self.pane_bytes

    @property
    def messages(self) -> int:
        """Maximum number of frequency messages, before large ones are split."""
        return (1 + self.open) * len(METHODS)


def cost(windowing: Windowing | None, pane_bytes: int, retain: int | None) -> Cost:
    """Returns the maximum cost; `retain` is in ms, or None for no limit."""
    if windowing is None:
        return Cost(0, pane_bytes, {}, {}, 0)
    windows = windowing.parsed
    # open windows start at or before the newest timestamp, and end after the window-close watermark
    still_open = {w.name: -(-(w.length + windowing.hold) // w.every) for w in windows}
    kept = None if retain is None else {w.name: -(-retain // w.every) for w in windows}
    held = windowing.most_panes * windowing.pane
    at_once = sum(-(-(held + w.length) // w.every) - 1 for w in windows)
    return Cost(windowing.most_panes, pane_bytes, still_open, kept, at_once)


def windowing_of(table: StreamTable, key: str) -> Windowing | None:
    """Returns the windows sorted by length, or None; raises ConfigError."""
    try:
        windows = parse_all(tuple(table.windows))
    except ValueError as error:
        raise ConfigError(f"{key}.windows: {error}") from None
    if not windows:
        for name in _OWN_KEYS:
            if name in table.model_fields_set:
                where, given = f"{key}.{name}", getattr(table, name)
                raise ConfigError(
                    f"{where}: {said(where, given)} given; it has no effect without windows other than {ALL!r}:"
                    " set streams.windows"
                )
        return None
    names = [window.name for window in sorted(windows, key=lambda window: (window.length, window.every))]
    return Windowing((ALL, *names), milliseconds(table.grace), milliseconds(table.max_out_of_orderness))


def refuse_absurd(windowing: Windowing, found: Cost, key: str) -> None:
    """Raises ConfigError for windows that cost too much."""
    pane = duration(windowing.pane)
    many = f"{found.panes:,} panes of {pane}"
    less = "set longer hops, shorter windows, or a shorter grace"
    if found.panes > MOST_PANES:
        why = f"a partition could have {many}, and at most {MOST_PANES:,} are allowed; {less}"
    elif found.partition_bytes > MOST_BYTES:
        why = (
            f"a partition could have {many}, each of {found.pane_bytes:,} bytes, and at most {MOST_BYTES:,} bytes are"
            f" allowed in total; {less}, or use a smaller domain"
        )
    elif found.open > MOST_OPEN:
        why = (
            f"{found.open:,} windows would be open at once, {found.messages:,} messages per snapshot, and at most"
            f" {MOST_OPEN:,} windows are allowed; set longer hops of long windows"
        )
    elif found.kept is not None and found.kept > MOST_KEPT:
        raise ConfigError(
            f"{key}.retain: {found.kept:,} windows would stay on the snapshot topic, and at most {MOST_KEPT:,} are"
            f" allowed; set a shorter retention, or longer hops of windows"
        )
    else:
        return
    raise ConfigError(f"{key}.windows: {list(windowing.windows)} given; {why}")


def duration(length: int) -> str:
    """Formats a duration as in the configuration.

    Example:
        >>> [duration(length) for length in (0, 90_000, 3_600_000, 172_800_000, 1_500)]
        ['0s', '90s', '1h', '2d', '1.5s']
    """
    for unit, size in reversed(UNITS.items()):
        if length and length % size == 0:
            return f"{length // size}{unit}"
    return f"{length / UNITS['s']:g}s"
