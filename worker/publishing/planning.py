"""Plans the next snapshot from a cut of the store and the newest head."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import ldp
from ldp.consistency import METHODS
from ldp.privacy.summary import DELTA, rounded_up, to_readers
from ldp.query import Query
from ldp.snapshot import LATE, Closed, Cut, Period, PrivacyLoss
from worker.counting import rules
from worker.counting.cells import Cell
from worker.counting.changed import NEW_NAME
from worker.counting.head import Head
from worker.counting.ports import StateLost
from worker.publishing import release, window_progress
from worker.publishing.release import Counts, Release
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
    """

    queries: Sequence[Query] = ()
    level: float = 0.95
    methods: Sequence[str] = tuple(METHODS)
    idle_timeout: float = 300.0
    retain: int | None = None
    rows: RowTopic = RowTopic()  # noqa: RUF009  # frozen
    changed_level: float = 0.0
    changed_at_least: float = 0.0


@dataclass(frozen=True)
class Plan:
    """A cut of the store, compared with the newest head.

    Attributes:
        head: the newest head.
        stored: the cut as it was read from the store.
        windows: the window progress of the cut; None without windows.
        cut: the cut as the next head records it.
        reports: the number of reports in the cut.
        release: the counts to publish; None for all.
        late: the part of them that is in no window.
    """

    head: Head
    stored: StoredCut
    windows: WindowProgress | None
    cut: Cut
    reports: int
    release: Release | None = None
    late: Counts | None = None

    @classmethod
    def of(
        cls,
        fleet: ldp.Fleet,
        head: Head,
        stored: StoredCut,
        partitions: Sequence[int],
        still: Callable[[int], bool],
    ) -> "Plan":
        """Plans the snapshot of a cut; ``still`` tests if a partition is idle."""
        windows, states = window_progress.decide(head, stored.states, partitions, still), stored.states
        fingerprint = next(iter(head.documents), fleet.documents[0].fingerprint.hex())
        cut = Cut(
            {partition: state.offset for partition, state in states.items()},
            {partition: state.gaps for partition, state in states.items()},
            stored.uncounted,
            {partition: rules.published(state.rules, fingerprint) for partition, state in states.items()},
            {} if windows is None else windows.floors,
            {} if windows is None else windows.progress,
            reached=None if windows is None else windows.reached,
        )
        return cls(head, stored, windows, cut, sum(state.reports for state in states.values()))

    def releasing(self, stream: ldp.Stream, published: Counts, late: Counts, fewest: int) -> "Plan":
        """Returns the plan that changes published counts by at least ``fewest``.

        ``published`` and ``late`` are the newest published counts of all time and of no window, as supports.
        """
        oracle, rates = stream.oracle, len(published.reports) if "rates" in stream.document() else 0
        panes = self.stored.panes(stream)
        head, lost = self.head, release.lost_offsets
        before = head.released or release.begin(published, head.offsets, lost(head.gaps), panes)
        if lossy := self._lost():
            before = release.hide(before)
        if lossy or head.released is None:
            late = published  # later windows contain none of these reports
        windows = self.windows
        cut = release.Cut(
            self.cut.offsets,
            _counts(self.stored.total(stream), rates),
            {pane: _counts(cell, rates) for pane, cell in panes.items()},
            0 if windows is None else windows.closed,
            0 if windows is None else windows.merged,
            lost(self.cut.gaps),
        )
        found = release.release(
            before,
            published,
            cut,
            fewest,
            lambda states: Counts.of(states.n, oracle.support(states.vector.ravel()), rates),
        )
        epsilon = to_readers(oracle, stream.privacy, fewest)
        readers = None if epsilon is None else rounded_up(epsilon)
        loss = PrivacyLoss(fewest, rounded_up(oracle.epsilon), readers, DELTA)
        recorded = replace(self.cut, released=found.head, privacy_loss=loss)
        return replace(self, cut=recorded, release=found, late=late + found.rest)

    def _lost(self) -> bool:
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
        if self.release is not None and self.release.changed:
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
        return not (self.reports if self.release is None else self.release.counts.n)

    def due(self, written: Mapping[Period, Written]) -> list[Due]:
        """Returns windows that become final, and open windows that changed.

        If the size of increments is limited, only final windows with released reports.
        """
        windows = [] if self.windows is None else self.windows.due
        if self.release is not None:
            return [due for due in windows if due.period.final and self.counts(due.period)[0].n]
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
        if self.late is None or not self.late.n or not self.cut.progress:
            return []
        return [Due(LATE, complete=not self.cut.gaps)]

    def counts(self, window: Period) -> tuple[Counts, int]:
        """Returns the released states of a window, and its other reports."""
        assert self.release is not None
        assert window.start is not None
        assert window.end is not None
        return self.release.window(window.start, window.end)

    def written(self, due: Due) -> Written:
        """Returns the version of a window's contents."""
        start, end = due.period.start, due.period.end
        assert start is not None
        assert end is not None
        return self.stored.written(start, end), self.is_complete(due)

    def is_complete(self, due: Due) -> bool:
        """Returns whether the counts of a window contain all its reports."""
        return due.complete and not self.cut.uncounted


def _counts(cell: Cell, rates: int) -> Counts:
    return Counts.of(cell.reports, cell.state, rates)


def closed(listed: Mapping[str, Closed]) -> dict[str, int]:
    """Returns the time up to which the windows of each name are closed."""
    return {name: line.closed for name, line in listed.items()}
