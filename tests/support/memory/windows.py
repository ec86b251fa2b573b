"""Recount of windows: the test's own definition of panes, closing and content."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

SECOND = 1000
NO_DATE = 253_370_678_400_000
"""The end of 9998-12-30, from which on a window of 366 days would end in a year of five digits."""


def shape(name: str) -> tuple[int, int]:
    """A window's length and hop in milliseconds; the tests say all of them in seconds."""
    length, _, every = name.partition(" every ")
    return int(length[:-1]) * SECOND, int((every or length)[:-1]) * SECOND


@dataclass
class Panes:
    """Records of each pane, record by record, by the recorded rules."""

    closed: int  # a pane that ends here or earlier is closed
    domain: int
    counts: dict[tuple[int, int], list[int]] = field(default_factory=dict)  # by start and end
    first_start: dict[str, int] = field(default_factory=dict)  # first publishable start of a window
    late: dict[int, tuple[int, int, int, int]] = field(default_factory=dict)  # offset -> time, pane, line met
    undated: int = 0
    newest: int | None = None
    begun: int = 0

    def begin(self, ruled: Sequence[Mapping[str, Any]], offset: int) -> None:
        """Begins with the rules up to an offset: new windows begin beyond all that was accepted."""
        for rule in ruled[self.begun :]:
            if rule["offset"] > offset:
                break
            self.begun += 1
            before, self.first_start = self.first_start, {}
            for name in rule.get("windows", []):
                if name != "all":
                    every = shape(name)[1]
                    first = 0 if self.newest is None else (self.newest // every + 1) * every
                    self.first_start[name] = before.get(name, first)

    def add(self, offset: int, timestamp: int, indices: Sequence[int], rule: Mapping[str, Any]) -> None:
        """Counts an accepted record at an offset."""
        timestamp = timestamp if 0 <= timestamp < NO_DATE else -1
        if names := [name for name in rule.get("windows", []) if name != "all"]:
            length = math.gcd(*(shape(name)[1] for name in names))
            start = timestamp // length * length
            if timestamp < 0:
                self.undated += 1
            elif start + length <= self.closed:
                self.late[offset] = (timestamp, start, start + length, self.closed)
            else:
                pane = self.counts.setdefault((start, start + length), [0] * self.domain)
                for index in indices:
                    pane[index] += 1
        self.newest = timestamp if self.newest is None else max(self.newest, timestamp)
        if names:
            self.closed = max(self.closed, self.newest - rule["grace"] - rule["max_out_of_orderness"])

    def window(self, start: int, end: int) -> list[int]:
        """Content of a window."""
        within = [counts for (a, b), counts in self.counts.items() if start <= a and b <= end]
        return [sum(column) for column in zip(*within, strict=True)] or [0] * self.domain
