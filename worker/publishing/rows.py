"""Plans the records that a snapshot writes to the topic of rows.

The head lists the rows that a window can have, so that the next publisher can delete them with the window. The
publisher reads the topic of rows only if the head does not contain this list.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ldp.snapshot import (
    ALL_TIME,
    LATE,
    MOST_RANK,
    Closed,
    Period,
    Row,
    RowKey,
    Rows,
    Slots,
    Snapshot,
    delete_rows,
    encode_rows,
)
from worker.counting import windows
from worker.counting.head import Head

MOST_DELETED = 50_000
"""Maximum number of rows that one snapshot deletes; the next snapshot deletes more."""


@dataclass(frozen=True)
class Plan:
    """The rows of the next snapshot.

    Attributes:
        stream: the stream's name.
        slots: the rows of each window; None if no rows are written.
        rows: the rows that the next head records; None if it records none.
        leaving: former rows of all time and of `late`.
        older: former rows of each window that ends at or before `until`.
        until: the latest window end that `older` covers, in milliseconds.
        stale: tombstones for rows of deleted windows.
    """

    stream: str
    slots: Slots | None = None
    rows: Rows | None = None
    leaving: Slots | None = None
    older: Slots | None = None
    until: int = 0
    stale: Sequence[Row] = ()

    def of(self, snapshot: Snapshot) -> list[Row]:
        """Returns the rows of a snapshot, and tombstones for its former rows."""
        if self.slots is None:
            return []
        gone = self._former(snapshot.window)
        rows = encode_rows(snapshot, self.slots)
        return (
            rows if gone is None else rows + delete_rows(self.stream, snapshot.window, gone, but=self.slots)
        )

    def deleted(self, window: Period) -> list[Row]:
        """Returns tombstones for all rows that a window can have."""
        if self.slots is None:
            return []
        former = self._former(window)
        return delete_rows(self.stream, window, self.slots if former is None else self.slots | former)

    def _former(self, window: Period) -> Slots | None:
        if window.end is None:
            return self.leaving
        return self.older if window.end <= self.until else None


@dataclass(frozen=True)
class RowTopic:
    """The topic of rows of one stream.

    Attributes:
        topic: the topic's name; None if no rows are written.
        slots: the rows of each window.
    """

    topic: str | None = None
    slots: Slots | None = None

    def is_recorded(self, head: Head) -> bool:
        """Returns whether a head was published with the configured rows."""
        recorded = None if head.rows is None else (head.rows.topic, head.rows.slots)
        return recorded == (None if self.topic is None else (self.topic, self.slots))

    def carried(self, head: Head) -> Rows | None:
        """Returns the rows that a head without a snapshot records."""
        return None if self.topic is None else head.rows

    @property
    def most_windows(self) -> int | None:
        """Maximum number of windows that a snapshot deletes per name, or None."""
        if self.slots is None:
            return None
        return max(1, MOST_DELETED // (len(self.slots.methods) * sum(self.slots.ranks.values())))

    def plan(
        self,
        stream: str,
        head: Head,
        progress: Mapping[str, Closed],
        due: Iterable[Period],
        retain: int | None,
        come: int,
        there: Callable[[], Iterable[bytes]],
    ) -> Plan:
        """Plans the rows; reads the topic if needed. O(windows in `progress`).

        Args:
            stream: the stream's name.
            head: the newest head.
            progress: the progress in the next head, with the starts on the snapshot topic.
            due: the windows that the snapshot publishes.
            retain: lifetime of a window after its end, in milliseconds; None: forever.
            come: the current event time, to compute the ages of windows.
            there: returns the keys of the stream's rows on the topic.
        """
        if self.topic is None or self.slots is None:
            return Plan(stream)
        listed = [
            Period(name, start, start + windows.parse(name).length)
            for name, line in progress.items()
            for start in line.starts
        ]
        ends = max((period.end or 0 for period in (*listed, *due)), default=0)
        plan, recorded = Plan(stream, self.slots), head.rows
        if recorded is None or recorded.topic != self.topic:
            plan = self._found(stream, there(), {*listed}, -1 if retain is None else come - retain, ends)
        elif recorded.slots != self.slots:
            older = recorded.slots if recorded.older is None else recorded.slots | recorded.older
            plan = replace(plan, leaving=recorded.slots, older=older, until=ends)
        else:
            plan = replace(plan, older=recorded.older, until=recorded.until)
        # drop the older rows once none of their windows is listed or open
        needed = any((period.end or 0) <= plan.until for period in listed) or any(
            line.closed < plan.until for line in progress.values()
        )
        kept = (plan.older, plan.until) if plan.older is not None and needed else (None, 0)
        more = len(plan.stale) > MOST_DELETED  # then the next snapshot reads the topic again
        rows = None if more else Rows(self.topic, self.slots, *kept)
        return replace(plan, rows=rows, stale=plan.stale[:MOST_DELETED])

    def _found(
        self, stream: str, there: Iterable[bytes], listed: Collection[Period], gone: int, ends: int
    ) -> Plan:
        """Plans from the topic; deletes unlisted windows that end by ``gone``."""
        leaving, older, stale = None, None, list[Row]()
        for encoded in there:
            try:
                key = RowKey.parse(encoded)
                untimed = key.window_name in (ALL_TIME.name, LATE.name)
                length = 0 if untimed else windows.parse(key.window_name).length
            except ValueError:
                continue  # a record of another program: keep it
            end = key.window_start + length
            if not length:
                leaving = _with(leaving, key)
            elif end <= gone and Period(key.window_name, key.window_start, end) not in listed:
                stale.append(Row(encoded, b""))
            else:
                older = _with(older, key)
        return Plan(stream, self.slots, None, leaving, older, ends, stale)


def _with(places: Slots | None, key: RowKey) -> Slots | None:
    """Returns ``places`` with a row added, up to `MOST_RANK` rows."""
    row = Slots((key.method,), {key.query: key.rank})
    more = row if places is None else places | row
    return more if len(more.methods) * sum(more.ranks.values()) <= MOST_RANK else places
