"""Plans the next snapshot from a cut of the store and the newest head."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import ldp
from ldp.consistency import METHODS
from ldp.query import Query
from ldp.snapshot import ALL_TIME, LATE, Closed, Cut, Period
from worker.counting import rules
from worker.counting.cells import Cell
from worker.counting.changed import NEW_NAME
from worker.counting.head import Head
from worker.counting.ports import StateLost
from worker.publishing import window_progress
from worker.publishing.recorded import Counted, Recorded
from worker.publishing.release import Counts, Release
from worker.publishing.released_cells import Key
from worker.publishing.rows import RowTopic
from worker.publishing.stored_cut import StoredCut
from worker.publishing.window_progress import Due, WindowProgress

Written = tuple[frozenset[tuple[int, str, str]], bool]
"""Version of a window's contents: the commits of its panes, and whether it is complete."""


@dataclass(frozen=True)
class Content:
    """The configured content of a stream's snapshots.

    Attributes:
        queries: the queries that snapshots answer.
        level: confidence level of Base's intervals.
        methods: the published methods, including Base.
        idle_timeout: a partition is idle if its watermark has not advanced for this many seconds.
        retain: lifetime of a window's messages after the window's end, in milliseconds; None: forever.
        rows: the topic of rows.
        changed_level: false discovery rate of changes between windows; 0 for no comparison.
        changed_at_least: the largest difference that is not a change.
        parts_fewest: a document or segment is published from this number of reports on, and after as many more.
        parts_methods: the published methods of segments, including Base.
    """

    queries: Sequence[Query] = ()
    level: float = 0.95
    methods: Sequence[str] = tuple(METHODS)
    idle_timeout: float = 300.0
    retain: int | None = None
    rows: RowTopic = RowTopic()  # noqa: RUF009  # frozen
    changed_level: float = 0.0
    changed_at_least: float = 0.0
    parts_fewest: int = 1000
    parts_methods: Sequence[str] = ("base", "norm-sub")


@dataclass(frozen=True)
class Plan:
    """A cut of the store, compared with the newest head.

    Attributes:
        head: the newest head.
        stored: the cut as it was read from the store.
        recorded: the documents and segments of both.
        windows: the window progress of the cut; None without windows.
        cut: the cut as the next head records it.
        reports: the number of reports in the cut.
        release: document and segment -> the counts to publish; None for all.
        changed: documents and segments whose released counts are not on the topic.
    """

    head: Head
    stored: StoredCut
    recorded: Recorded
    windows: WindowProgress | None
    cut: Cut
    reports: int
    release: Mapping[Key, Release] | None = None
    changed: Collection[Key] = ()

    @classmethod
    def of(
        cls,
        recorded: Recorded,
        head: Head,
        stored: StoredCut,
        partitions: Sequence[int],
        still: Callable[[int], bool],
    ) -> "Plan":
        """Plans the snapshot of a cut; ``still`` tests if a partition is idle."""
        windows, states = window_progress.decide(head, stored.states, partitions, still), stored.states
        first = recorded.fingerprints[0]
        cut = Cut(
            {partition: state.offset for partition, state in states.items()},
            {partition: state.gaps for partition, state in states.items()},
            stored.uncounted,
            {partition: rules.published(state.rules, first) for partition, state in states.items()},
            {} if windows is None else windows.floors,
            {} if windows is None else windows.progress,
            reached=None if windows is None else windows.reached,
        )
        return cls(head, stored, recorded, windows, cut, sum(state.reports for state in states.values()))

    @property
    def lossy(self) -> bool:
        """Returns whether counted records of the head are in a new gap."""
        head = self.head
        return any(
            begin < head.offsets.get(partition, 0) and (begin, end) not in head.gaps.get(partition, [])
            for partition, gaps in self.cut.gaps.items()
            for begin, end in gaps
        )

    @property
    def admits(self) -> bool:
        """Whether the next head names a partition for the first time."""
        return self.cut.floors.keys() > self.head.floors.keys()

    def demand_consistent(self, fleet: ldp.Fleet) -> None:
        """Checks a cut that is not behind the head for contradictions.

        Raises:
            StateLost: the rules of the cut contradict the head, or the cut has fewer reports and no new gap. Released
                reports may be more than counted ones after a loss that the operator accepted.
        """
        head = self.head
        if differing := head.contradicts(self.cut):
            raise StateLost(
                f"stream {fleet.name!r}: partition {', '.join(map(str, differing))} is counted in Redis by other"
                f" rules than in snapshot {head.sequence}.",
                f"restore Redis, or {NEW_NAME}",
            )
        if head.released is None and self.reports < head.reports and self.cut.gaps == head.gaps:
            raise StateLost(
                f"stream {fleet.name!r}: Redis has {self.reports} reports, but snapshot {head.sequence} has"
                f" {head.reports}, and there is no new gap.",
                f"restore Redis, or {NEW_NAME}",
            )

    def is_new(self, content: Content, *, otherwise: bool) -> bool:
        """Returns whether there is new content to publish.

        ``otherwise`` is True if something other than the cut or the methods has changed.
        """
        head, cut = self.head, self.cut
        if self.announces:
            return self.admits or (self.release is not None and closed(cut.progress) != closed(head.progress))
        if self.release is not None and self.released != self.head.reports:
            return True
        if otherwise or {*head.methods} != {*content.methods}:
            return True
        last = head.gaps, head.uncounted, head.rules, head.floors, closed(head.progress)
        if (cut.gaps, cut.uncounted, cut.rules, cut.floors, closed(cut.progress)) != last:
            return True
        return self.release is None and cut.offsets != head.offsets

    @property
    def is_held_back(self) -> bool:
        """Whether new counts exist, but too few.

        With windows, new counts wait for the window in any case.
        """
        return self.release is not None and self.windows is None and self.cut.offsets != self.head.offsets

    @property
    def announces(self) -> bool:
        """Whether to publish a head without a snapshot."""
        return not self.released

    @property
    def released(self) -> int:
        """The number of reports to publish."""
        release = self.release
        return self.reports if release is None else sum(each.shown.counts.n for each in release.values())

    def due(self, written: Mapping[Period, Written]) -> list[Due]:
        """Returns windows that become final, and open windows that changed.

        If the size of increments is limited, only final windows with released reports.
        """
        windows = [] if self.windows is None else self.windows.due
        if self.release is not None:
            return [due for due in windows if due.period.final and self.counted(due.period).n]
        return [due for due in windows if written.get(due.period) != self.written(due)]

    @property
    def withdrawn(self) -> list[Period]:
        """Windows to delete when a limit of increments begins or ends.

        Earlier snapshots may have shown the open windows in part, so no counted pane of them is ever released. Without
        a limit, there is no `late`.
        """
        if self.release is None:
            return [LATE] if self.head.released is not None and self.head.progress else []
        if self.windows is None or self.head.released is not None:
            return []
        return [due.period for due in self.windows.due] if self.head.reports else []

    @property
    def without_window(self) -> list[Due]:
        """The window `late`, if it has reports and the stream has windows."""
        late = any(own.shown.late.n for own in (self.release or {}).values())
        return [Due(LATE, complete=not self.cut.gaps)] if late and self.cut.progress else []

    def counted(self, window: Period = ALL_TIME) -> Counted:
        """Returns the counts of a period to publish."""
        fleet, start, end = self.recorded.fleet, window.start, window.end
        if self.release is None:
            return Counted(fleet, self.stored.totals(start, end), window)
        if start is None or end is None:
            shown = {key: own.shown for key, own in self.release.items()}
            counts = {key: own.late if window == LATE else own.counts for key, own in shown.items()}
            return Counted(fleet, _cells(counts), window, supports=True)
        found = {key: own.window(start, end) for key, own in self.release.items()}
        left = _cells({key: replace(counts, n=n) for key, (counts, n) in found.items()})
        cells = _cells({key: counts for key, (counts, _) in found.items()})
        return Counted(fleet, cells, window, withheld=Counted(fleet, left))

    def written(self, due: Due) -> Written:
        """Returns the version of a window's contents."""
        start, end = due.period.start, due.period.end
        assert start is not None
        assert end is not None
        return self.stored.written(start, end), self.is_complete(due)

    def is_complete(self, due: Due) -> bool:
        """Returns whether the counts of a window contain all its reports."""
        return due.complete and not self.cut.uncounted


def _cells(counts: Mapping[Key, Counts]) -> dict[str, dict[str, Cell]]:
    found = dict[str, dict[str, Cell]]()
    for (name, segment), own in counts.items():
        if own.n:
            found.setdefault(name, {})[segment] = Cell(own.n, own.vector)
    return found


def closed(listed: Mapping[str, Closed]) -> dict[str, int]:
    """Returns the time up to which the windows of each name are closed."""
    return {name: line.closed for name, line in listed.items()}
