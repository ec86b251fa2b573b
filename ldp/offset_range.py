"""Offset ranges: the part of a Kafka partition's log that a state counts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from ldp.arguments import as_integer

TIME_ENDS = 253_370_678_400_000
"""Times are milliseconds from the epoch to before this one, a year before the year 10000. A timestamp that is none, as
Kafka's −1 is, says nothing of time."""
_MOST = (1 << 63) - 1
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)


@dataclass(frozen=True)
class OffsetRange:
    """The records of one partition of a topic in an offset range, from `start` to before `offset`.

    Offsets without a record, such as those of transaction markers, belong to the range. `max_timestamp` is the highest
    timestamp of the accepted records, in milliseconds since the epoch; −1 if none of them has a time (see
    `TIME_ENDS`); None if none was accepted, or if timestamps are unknown. `most_reports` limited the reports a record,
    or None.

    Raises:
        TypeError: a part of the wrong type.
        ValueError: a part that is not allowed.
    """

    topic: str
    partition: int
    start: int
    offset: int
    max_timestamp: int | None = None
    most_reports: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.topic, str) or not _TOPIC.fullmatch(self.topic):
            raise ValueError(f"topic is {self.topic!r}; allowed are 1 to 249 of A-Z a-z 0-9 . _ -")
        start = as_integer("start", self.start, 0, _MOST - 1)
        checked = {
            "partition": as_integer("partition", self.partition, 0, (1 << 31) - 1),
            "start": start,
            "offset": as_integer("offset", self.offset, start + 1, _MOST),
        }
        for name, low, high in (("max_timestamp", -1, TIME_ENDS - 1), ("most_reports", 1, _MOST)):
            if (value := getattr(self, name)) is not None:
                checked[name] = as_integer(name, value, low, high)
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def __str__(self) -> str:
        return f"{self.topic}, partition {self.partition}, offsets {self.start} to {self.offset - 1}"

    def document(self) -> dict[str, Any]:
        """The range in JSON's types, every attribute by its name."""
        return asdict(self)


def joined(ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    """Returns ranges in order, adjacent ones with the same limit of reports joined; O(n log n).

    Raises:
        ValueError: two overlap.

    Example:
        >>> ranges = OffsetRange("r", 0, 5, 9, 70), OffsetRange("r", 1, 0, 5), OffsetRange("r", 0, 2, 5, 90)
        >>> [str(one) for one in joined(ranges)]
        ['r, partition 0, offsets 2 to 8', 'r, partition 1, offsets 0 to 4']
    """
    found: list[OffsetRange] = []
    for covered in sorted(ranges, key=lambda one: (one.topic, one.partition, one.start, one.offset)):
        last = found[-1] if found else None
        if last is None or (last.topic, last.partition) != (covered.topic, covered.partition):
            found.append(covered)
        elif covered.start < last.offset:
            raise ValueError(f"{last} and {covered} overlap: records in both would be counted twice")
        elif covered.start == last.offset and covered.most_reports == last.most_reports:
            newest = later(last.max_timestamp, covered.max_timestamp)
            found[-1] = replace(last, offset=covered.offset, max_timestamp=newest)
        else:
            found.append(covered)
    return tuple(found)


def later(one: int | None, other: int | None) -> int | None:
    """The higher of two timestamps of which each may be None."""
    return max((time for time in (one, other) if time is not None), default=None)
