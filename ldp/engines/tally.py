"""Counts records in any order, by partition of the log.

Several tasks may count interleaved offsets of one partition. Therefore, the offset range of one tally may have holes.
Only the sum of all tallies covers a complete range.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ldp.files import Aggregator
from ldp.frames import Reason
from ldp.offset_range import TIME_ENDS, OffsetRange, later
from ldp.state import State
from ldp.stream import Stream

PENDING_BYTES = 1 << 20  # Total size in bytes of pending records at which they are counted
PENDING_RECORDS = 1 << 14  # Number of pending records at which they are counted

Ints = npt.NDArray[np.int64]
Partition = tuple[str, int]  # A topic, and the number of one of its partitions


class Place(NamedTuple):
    """A record's position in Kafka's log, and its timestamp in ms or None."""

    partition: Partition
    offset: int
    time: int | None


class Places(NamedTuple):
    """Log positions of m records. `which` has m indices into `partitions`."""

    partitions: Sequence[Partition]
    which: npt.NDArray[np.integer]
    offsets: Ints
    times: Ints | None


@dataclass
class _Part:
    """The counts of one partition, or of records without a known partition."""

    aggregator: Aggregator
    covered: OffsetRange | None = None

    def add(self, state: State) -> None:
        self.aggregator.state += state.counters
        self.aggregator.reports += state.reports
        self.aggregator.records += state.records + sum(state.rejected.values())
        self.aggregator.rejected.update({Reason(reason): n for reason, n in state.rejected.items()})

    def reach(self, covered: OffsetRange) -> None:
        """Extends the offset range to cover another range."""
        last = self.covered or covered
        start, offset = min(last.start, covered.start), max(last.offset, covered.offset)
        newest = later(last.max_timestamp, covered.max_timestamp)
        self.covered = replace(last, start=start, offset=offset, max_timestamp=newest)


@dataclass
class Tally:
    """Counts of records; `most_reports` limits the reports per record.

    Example:
        >>> import ldp
        >>> tally = Tally(ldp.Stream("colours", ldp.GRR("1", domain_size=3)))
        >>> for offset in (7, 5):
        ...     tally.add(bytes.fromhex("018e9f39d00002"), Place(("reports", 0), offset, 1000 + offset))
        >>> for state in tally.states():
        ...     print(state.counters.tolist(), state.rejected, *state.log, state.log[0].max_timestamp)
        [2, 0, 2] {} reports, partition 0, offsets 5 to 7 1007
    """

    stream: Stream
    most_reports: int | None = None
    _parts: dict[Partition | None, _Part] = field(default_factory=dict, repr=False)
    _pending: list[tuple[bytes, Place | None]] = field(default_factory=list, repr=False)
    _pending_bytes: int = 0

    def count(self, buffer: npt.NDArray[np.uint8], begins: Ints, ends: Ints, places: Places | None) -> None:
        """Counts the records in `buffer`, as `Aggregator.count` does. O(bytes)."""
        if places is None:
            self._part(None).aggregator.count(buffer, begins, ends)
            return
        for i, partition in enumerate(places.partitions):
            of = slice(None) if len(places.partitions) == 1 else np.flatnonzero(places.which == i)
            part, offsets = self._part(partition), places.offsets[of]
            accepted = part.aggregator.count(buffer, begins[of], ends[of]).verdicts == 0
            newest = None
            if places.times is not None and accepted.any():
                times = places.times[of][accepted]
                newest = int(times.max(where=(times >= 0) & (times < TIME_ENDS), initial=-1))
            start, offset = int(offsets.min()), int(offsets.max()) + 1
            part.reach(OffsetRange(*partition, start, offset, newest, self.most_reports))

    def add(self, value: bytes | None, place: Place | None) -> None:
        """Buffers a record, and counts buffered records when there are enough."""
        self._pending.append((value or b"", place))
        self._pending_bytes += len(value or b"")
        if self._pending_bytes >= PENDING_BYTES or len(self._pending) >= PENDING_RECORDS:
            self._count_pending()

    def merge(self, states: Iterable[State]) -> None:
        """Adds states. Raises ValueError for another document or several ranges."""
        for state in states:
            if state.stream.document() != self.stream.document() or len(state.log) > 1:
                raise ValueError("the state has another document or several offset ranges; one is allowed")
            (covered,) = state.log or (None,)
            part = self._part(None if covered is None else (covered.topic, covered.partition))
            part.add(state)
            if covered is not None:
                part.reach(covered)

    def states(self) -> list[State]:
        """Returns a state per partition, and one for records without a partition."""
        self._count_pending()
        return [
            State.of(part.aggregator, log=() if part.covered is None else (part.covered,))
            for part in self._parts.values()
        ]

    def _part(self, partition: Partition | None) -> _Part:
        if (part := self._parts.get(partition)) is None:
            aggregator = Aggregator(self.stream, most_reports=self.most_reports)
            part = self._parts[partition] = _Part(aggregator)
        return part

    def _count_pending(self) -> None:
        pending, self._pending, self._pending_bytes = self._pending, [], 0
        by_partition: dict[Partition | None, list[tuple[bytes, Place | None]]] = {}
        for value, place in pending:
            by_partition.setdefault(place and place.partition, []).append((value, place))
        for partition, records in by_partition.items():
            bounds = np.zeros(len(records) + 1, np.int64)
            np.cumsum([len(value) for value, _ in records], out=bounds[1:])
            buffer = np.frombuffer(b"".join(value for value, _ in records), np.uint8)
            places = None
            if partition is not None:
                known = [place for _, place in records if place is not None]
                times = np.array([-1 if place.time is None else place.time for place in known], np.int64)
                offsets = np.array([place.offset for place in known], np.int64)
                timed = any(place.time is not None for place in known)
                places = Places(
                    [partition], np.zeros(len(known), np.int64), offsets, times if timed else None
                )
            self.count(buffer, bounds[:-1], bounds[1:], places)
