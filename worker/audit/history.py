"""First starts of windows, and bounds of gaps, in the course of a recount."""

from collections.abc import Sequence

from worker.audit.parsing import Limits
from worker.audit.recount import Recount
from worker.audit.stored import Stored

GapBounds = tuple[set[int], int | None]
"""(possible window-close watermarks before a gap, first new highest timestamp after the gap or None)"""


class History:
    """First starts and gap bounds at the current offset of a recount.

    If a rule adds a window, the window's first start is the next one after the highest timestamp so far. If a rule
    removes a window, its first start is dropped.
    """

    def __init__(self, stored: Stored) -> None:
        self.first_start: dict[str, int] = {}  # the first start of each window of the rules so far
        self.gap_bounds: list[GapBounds] = []
        self._rules, self._gaps = [*stored.rules], [*stored.gaps]
        self._all = [*stored.gaps]

    def reach(self, offset: int, counted: Recount) -> None:
        """Applies the rules and gaps that begin at or before `offset`."""
        while self._rules and self._rules[0][0] <= offset:
            self.first_start = _begun(self._rules.pop(0)[1], self.first_start, counted)
        self.gap_bounds = _filled(self.gap_bounds, counted)
        while self._gaps and self._gaps[0][0] <= offset:
            self._gaps.pop(0)
            # before the first record in a window, the watermark may be 0 or the start of the windows
            self.gap_bounds.append(({counted.closed} | (set() if counted.in_windows else {0}), None))
            counted.first = None

    def at(self, offset: int, counted: Recount) -> tuple[dict[str, int], list[GapBounds]]:
        """Returns `first_start` and `gap_bounds` as of `offset`."""
        first_start = self.first_start
        for _, limits in (rule for rule in self._rules if rule[0] <= offset):
            first_start = _begun(limits, first_start, counted)
        return first_start, _filled(self.gap_bounds[: sum(begin < offset for begin, _ in self._all)], counted)


def _filled(gap_bounds: Sequence[GapBounds], counted: Recount) -> list[GapBounds]:
    return [(lines, counted.first if first is None else first) for lines, first in gap_bounds]


def _begun(limits: Limits, first_start: dict[str, int], counted: Recount) -> dict[str, int]:
    begin = {} if limits.windows is None else limits.windows.begin_beyond(counted.watermark)
    return {name: first_start.get(name, start) for name, start in begin.items()}
