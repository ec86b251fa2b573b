"""Offset ranges of Kafka partitions, which prevent double counting."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from ldp.arguments import as_integer

TIME_ENDS = 253_370_678_400_000
"""Exclusive upper bound of timestamps in milliseconds since the epoch, one year before the year 10000. Other
timestamps, such as Kafka's −1, are invalid."""
_MOST = (1 << 63) - 1
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)


@dataclass(frozen=True)
class OffsetRange:
    """The offsets [start, offset) of one partition.

    Offsets without a record, such as transaction markers, belong to the range. `max_timestamp` is the highest timestamp
    of the accepted records in milliseconds since the epoch. It is −1 if no accepted record has a valid timestamp (see
    `TIME_ENDS`), and None if no record was accepted or timestamps are unknown. `most_reports` is the limit of reports
    per record when the range was counted, or None.

    Raises:
        TypeError: an attribute of the wrong type.
        ValueError: an attribute that is not allowed.
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
        """Returns the attributes as a JSON object."""
        return asdict(self)


def joined(ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    """Sorts ranges, and joins adjacent ranges of equal `most_reports`.

    Raises:
        ValueError: two ranges that overlap.

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
    """Returns the higher of two optional timestamps."""
    return max((time for time in (one, other) if time is not None), default=None)
