"""Windows in event time, and the panes that they are made of.

A window is named as it is configured: ``1h`` follow each other, ``24h every 1h`` overlap. Starts are multiples of the
hop since the epoch, ends are exclusive, times are milliseconds. Reports are counted in panes, as long as the greatest
common divisor of the hops, so that each window is a sum of panes. ``all`` is the window of all time.
"""

import functools
import math
import re
from dataclasses import dataclass

ALL = "all"
"""The name of the window of all time."""
UNITS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
"""Milliseconds of the units that a length is said in."""
LONGEST = 366 * UNITS["d"]
"""No length that is configured is longer."""
TIME_ENDS = 253_402_300_800_000 - LONGEST
"""Times are from the epoch to before this one, so that each window that has one ends before the year 10000: dates are
written with four digits of a year. A timestamp that is none, as −1 is, says nothing of time (2⁶³ − 1 can be sent)."""
MOST_AT_ONCE = 32
"""How many windows of a name become final in one snapshot, which is one transaction; the others follow in the next."""
_LENGTH = re.compile(r"(0|[1-9][0-9]{0,8})([smhd])", re.ASCII)


@dataclass(frozen=True)
class Window:
    """Windows of one length.

    Attributes:
        name: the configured name.
        length: in milliseconds.
        every: from one start to the next, in milliseconds; the length is a multiple of it.

    Example:
        >>> day = parse("24h every 1h")
        >>> day.length // day.every, day.next_start(7_200_000) // UNITS["h"], day.last_end(90_000_000) // UNITS["h"]
        (24, 3, 25)
    """

    name: str
    length: int
    every: int

    def next_start(self, time: int) -> int:
        """Returns the first start beyond a time."""
        return (time // self.every + 1) * self.every

    def last_end(self, line: int) -> int:
        """Returns the last end at or before a time."""
        return (line - self.length) // self.every * self.every + self.length

    def first_open(self, line: int) -> int:
        """Returns the start of the first window that ends beyond a time; it may lie before the epoch."""
        return self.last_end(line) + self.every - self.length

    def starts(self, pane: "Pane") -> range:
        """Returns the starts of the windows that a pane is in, from the epoch on."""
        first = -(-(pane.end - self.length) // self.every) * self.every
        return range(max(0, first), pane.start + 1, self.every)


@dataclass(frozen=True, order=True)
class Pane:
    """A period whose reports are counted together.

    Attributes:
        start: its first millisecond.
        length: in milliseconds; panes from before a change of windows have another one.
    """

    start: int
    length: int

    @property
    def end(self) -> int:
        """The first millisecond behind it."""
        return self.start + self.length

    def __str__(self) -> str:
        """Returns the name that `pane_of` reads."""
        return f"{self.start}+{self.length}"

    def within(self, start: int, end: int) -> bool:
        """Returns whether a window from start to end contains it."""
        return start <= self.start and self.end <= end


@functools.lru_cache(1 << 12)  # each commit and each cut reads the names of all panes
def pane_of(cell: str) -> Pane | None:
    """Reads the name of a cell; None for that of all time. Raises ValueError for anything else."""
    if cell == ALL:
        return None
    if not re.fullmatch(r"(0|[1-9][0-9]*)\+[1-9][0-9]*", cell, re.ASCII):
        raise ValueError(
            f"{cell!r} given; a cell is {ALL!r} or a pane's start and length, like '7200000+3600000'"
        )
    start, length = cell.split("+")
    return Pane(int(start), int(length))


def milliseconds(text: str) -> int:
    """Reads a length of time; raises ValueError if it is none, or over `LONGEST`.

    Example:
        >>> milliseconds("90s"), milliseconds("1d"), milliseconds("0s")
        (90000, 86400000, 0)
    """
    found = _LENGTH.fullmatch(text)
    if found is None or (length := int(found[1]) * UNITS[found[2]]) > LONGEST:
        raise ValueError(
            f"{text!r} given; a length is a whole number with s, m, h or d, like '90s' or '1h', up to 366d"
        )
    return length


def parse(text: str) -> Window:
    """Reads a configured window; raises ValueError if it is none.

    Example:
        >>> parse("1h")
        Window(name='1h', length=3600000, every=3600000)
    """
    length, *every = text.split(" every ")
    if len(every) > 1:
        raise ValueError(f"{text!r} given; a window is like '1h' or '24h every 1h'")
    window = Window(text, milliseconds(length), milliseconds(every[0] if every else length))
    if not window.every or not window.length or window.length % window.every:
        raise ValueError(
            f"{text!r} given; a window's length is a multiple of its hop, so that it is whole panes"
        )
    return window


@functools.lru_cache
def parse_all(names: tuple[str, ...]) -> tuple[Window, ...]:
    """Reads the windows of a stream, without that of all time.

    Raises:
        ValueError: there are none, one is no window, or two are the same.
    """
    if not names:
        raise ValueError("no windows given; there is at least one, like 'all' or '1h'")
    windows = tuple(parse(name) for name in names if name != ALL)
    shapes = [(window.length, window.every) for window in windows]
    if len({*shapes}) < len(shapes) or list(names).count(ALL) > 1:
        raise ValueError(f"{list(names)} given; two of them are the same window")
    return windows


@dataclass(frozen=True)
class Windowing:
    """The windows of a stream, and how long they stay open.

    Attributes:
        windows: their names; `ALL` may be one of them.
        grace: how long a window waits for delayed reports, in milliseconds.
        max_out_of_orderness: the disorder of the log's timestamps, in milliseconds.

    Example:
        >>> hourly = Windowing(("all", "1h", "90m every 30m"), grace=600_000, max_out_of_orderness=60_000)
        >>> hourly.pane // UNITS["m"], hourly.hold // UNITS["m"], hourly.most_panes, str(hourly)
        (30, 11, 12, 'windows all, 1h, 90m every 30m, grace 600000 ms, out of order 60000 ms')
    """

    windows: tuple[str, ...]
    grace: int = 0
    max_out_of_orderness: int = 0

    def __post_init__(self) -> None:
        """Raises ValueError if there is no window other than that of all time."""
        if not self.parsed:
            raise ValueError(
                f"{list(self.windows)} given; without other windows than {ALL!r} there are no panes"
            )

    def __str__(self) -> str:
        """Returns a description for people."""
        names = ", ".join(self.windows)
        return f"windows {names}, grace {self.grace} ms, out of order {self.max_out_of_orderness} ms"

    @functools.cached_property
    def parsed(self) -> tuple[Window, ...]:
        """The windows without that of all time."""
        return parse_all(self.windows)

    @functools.cached_property
    def pane(self) -> int:
        """The length of a pane, in milliseconds."""
        return math.gcd(*(window.every for window in self.parsed))

    @functools.cached_property
    def hold(self) -> int:
        """How far the window-close watermark is behind the watermark, in milliseconds."""
        return self.grace + self.max_out_of_orderness

    @functools.cached_property
    def most_panes(self) -> int:
        """The most panes of a partition, before it waits until older windows are final.

        Twice what its own reports keep open: the longest window, both ways out of order, the grace, one at each end.
        """
        reach = max(window.length for window in self.parsed) + 2 * self.max_out_of_orderness + self.grace
        return 2 * (-(-reach // self.pane) + 2)
