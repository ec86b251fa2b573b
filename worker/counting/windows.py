"""Windows in event time, and their panes.

The configured text is the name of the windows: ``1h`` means tumbling windows, ``24h every 1h`` hopping windows. Starts
are multiples of the hop since the Unix epoch, ends are exclusive, and times are in milliseconds. Reports are counted in
panes. The length of a pane is the greatest common divisor of all hops, so each window is a sum of panes.
"""

import functools
import math
import re
from dataclasses import dataclass

ALL = "all"
"""The name of the window of all time."""
UNITS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
"""Milliseconds per unit of a configured length."""
LONGEST = 366 * UNITS["d"]
"""The maximum length that can be configured, in milliseconds."""
TIME_ENDS = 253_402_300_800_000 - LONGEST
"""Exclusive limit of timestamps, so that all windows end before the year 10000 and years have four digits. Records with
timestamps below 0, or at or above this limit, are undated. Producers can send any timestamp from −1 to 2⁶³ − 1."""
MOST_AT_ONCE = 32
"""Maximum number of windows per name that become final in one snapshot. More follow in later snapshots."""
_LENGTH = re.compile(r"(0|[1-9][0-9]{0,8})([smhd])", re.ASCII)


@dataclass(frozen=True)
class Window:
    """A series of windows of one length.

    Attributes:
        name: the configured name.
        length: the length of a window, in milliseconds.
        every: the hop from one start to the next, in milliseconds; it divides the length.

    Example:
        >>> day = parse("24h every 1h")
        >>> day.length // day.every, day.next_start(7_200_000) // UNITS["h"], day.last_end(90_000_000) // UNITS["h"]
        (24, 3, 25)
    """

    name: str
    length: int
    every: int

    def next_start(self, time: int) -> int:
        """Returns the first start after a time."""
        return (time // self.every + 1) * self.every

    def last_end(self, time: int) -> int:
        """Returns the last end at or before a time."""
        return (time - self.length) // self.every * self.every + self.length

    def first_open(self, time: int) -> int:
        """Returns the start of the first window that ends after a time."""
        return self.last_end(time) + self.every - self.length

    def starts(self, pane: "Pane") -> range:
        """Returns the starts, from 0 on, of the windows that contain a pane."""
        first = -(-(pane.end - self.length) // self.every) * self.every
        return range(max(0, first), pane.start + 1, self.every)


@dataclass(frozen=True, order=True)
class Pane:
    """A period whose reports are counted together.

    Attributes:
        start: the first millisecond.
        length: the number of milliseconds; panes of an earlier rule can have another length.
    """

    start: int
    length: int

    @property
    def end(self) -> int:
        """The first millisecond after the pane."""
        return self.start + self.length

    def __str__(self) -> str:
        """Returns the pane's part of a cell's name."""
        return f"{self.start}+{self.length}"

    def within(self, start: int, end: int) -> bool:
        """Returns whether a window from start to end contains the pane."""
        return start <= self.start and self.end <= end


def milliseconds(text: str) -> int:
    """Parses a length of time; raises ValueError if invalid or over `LONGEST`.

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
    """Parses a configured window; raises ValueError if invalid.

    Example:
        >>> parse("1h")
        Window(name='1h', length=3600000, every=3600000)
    """
    length, *every = text.split(" every ")
    if len(every) > 1:
        raise ValueError(f"{text!r} given; a window is like '1h' or '24h every 1h'")
    window = Window(text, milliseconds(length), milliseconds(every[0] if every else length))
    if not window.every or not window.length or window.length % window.every:
        raise ValueError(f"{text!r} given; a window's length must be a positive multiple of its hop")
    return window


@functools.lru_cache
def parse_all(names: tuple[str, ...]) -> tuple[Window, ...]:
    """Parses the windows of a stream, except `ALL`.

    Raises:
        ValueError: no windows, an invalid one, or two equal ones.
    """
    if not names:
        raise ValueError("no windows given; at least one is required, like 'all' or '1h'")
    windows = tuple(parse(name) for name in names if name != ALL)
    shapes = [(window.length, window.every) for window in windows]
    if len({*shapes}) < len(shapes) or list(names).count(ALL) > 1:
        raise ValueError(f"{list(names)} given; two of them are the same window")
    return windows


@dataclass(frozen=True)
class Windowing:
    """The windows of a stream, and the time that they stay open.

    Attributes:
        windows: names; `ALL` may be one of them.
        grace: time that a window waits for delayed reports, in milliseconds.
        max_out_of_orderness: largest expected disorder of timestamps in the log, in milliseconds.

    Example:
        >>> hourly = Windowing(("all", "1h", "90m every 30m"), grace=600_000, max_out_of_orderness=60_000)
        >>> hourly.pane // UNITS["m"], hourly.hold // UNITS["m"], hourly.most_panes, str(hourly)
        (30, 11, 12, 'windows all, 1h, 90m every 30m, grace 600000 ms, out of order 60000 ms')
    """

    windows: tuple[str, ...]
    grace: int = 0
    max_out_of_orderness: int = 0

    def __post_init__(self) -> None:
        """Raises ValueError if `ALL` is the only window."""
        if not self.parsed:
            raise ValueError(
                f"{list(self.windows)} given; at least one window other than {ALL!r} is required"
            )

    def __str__(self) -> str:
        names = ", ".join(self.windows)
        return f"windows {names}, grace {self.grace} ms, out of order {self.max_out_of_orderness} ms"

    @functools.cached_property
    def parsed(self) -> tuple[Window, ...]:
        """The windows except `ALL`."""
        return parse_all(self.windows)

    @functools.cached_property
    def pane(self) -> int:
        """The length of a pane, in milliseconds."""
        return math.gcd(*(window.every for window in self.parsed))

    @functools.cached_property
    def hold(self) -> int:
        """The watermark minus the window-close watermark, in milliseconds."""
        return self.grace + self.max_out_of_orderness

    @functools.cached_property
    def most_panes(self) -> int:
        """The limit of panes; at the limit, counting waits for final windows.

        It is 2 · (⌈t / pane⌉ + 2), where t is the longest window plus `grace` plus 2 · `max_out_of_orderness`.
        """
        reach = max(window.length for window in self.parsed) + 2 * self.max_out_of_orderness + self.grace
        return 2 * (-(-reach // self.pane) + 2)
