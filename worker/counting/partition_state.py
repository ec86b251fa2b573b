"""The counts of one partition, computed from its log up to an offset.

The state depends only on the log prefix [start, offset), the rules, and two times from heads. These are the start of
the windows and the end of evicted panes. Any worker that continues from a state gets the same result. The cells of a
state add up to the counts of all time.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
import numpy.typing as npt

import ldp
from ldp import frames
from ldp.oracles.partitioned import accumulate_partitioned
from worker.counting import lateness, rejections, rules
from worker.counting.applied import Applied
from worker.counting.columns import Batch
from worker.counting.lateness import Placed
from worker.counting.rules import RecordLimits, RequestedRule, Rule
from worker.counting.window_state import WindowState
from worker.counting.windows import ALL, Pane, Windowing, pane_of

MOST_COST = 1 << 30  # steps (`ldp.Oracle.cost`) between two heartbeats: about a second on a slow core

Counts = npt.NDArray[np.int64]

_ONE_RUN = np.zeros((2, 1), np.int64)  # the run of reports that are all in one cell


@dataclass
class Cell:
    """Counts of a pane or of all time: reports and the oracle's state."""

    reports: int
    state: Counts


@dataclass
class PartitionState:
    """The counts of one partition up to an offset.

    Example:
        >>> from worker.counting.columns import Batch, Columns
        >>> stream = ldp.Stream("colours", ldp.GRR(epsilon="1", domain_size=3))
        >>> state = PartitionState.fresh(stream, start=5)
        >>> good = frames.encode(stream, np.array([(2,), (0,)], stream.oracle.report_dtype))
        >>> batch = Batch(0, 5, 8, Columns.of([5, 6], [1000, 1001], [good, b"noise"]))
        >>> state.apply(stream, batch).verdicts.tolist()
        [0, 2]
        >>> state.offset, state.accepted, state.rejected, state.cells["all"].state.tolist()
        (8, 1, {'version': 1}, [1, 0, 1])
    """

    start: int  # the log offset at which counting began
    offset: int  # the next offset to count; transaction markers advance it too
    rules: list[Rule] = field(default_factory=list)  # by offset; the last may begin later; never empty
    accepted: int = 0
    rejected: dict[str, int] = field(default_factory=dict)  # malformed records by reason
    gaps: list[tuple[int, int]] = field(default_factory=list)  # [from, to) that the log lost before counting
    windows: WindowState = field(default_factory=WindowState)
    cells: dict[str, Cell] = field(default_factory=dict)  # by name (`pane_of`); `ALL`: reports in no pane
    changed: set[str] = field(default_factory=set)  # names of cells that differ from the stored ones

    def __post_init__(self) -> None:
        self.rules = self.rules or [rules.first(RequestedRule(), self.start)]
        self._begun = sum(rule.offset <= self.offset for rule in self.rules)

    @classmethod
    def fresh(cls, stream: ldp.Stream, start: int, configured: RequestedRule = RequestedRule()) -> Self:  # noqa: B008
        """Returns the empty state at an offset, with the configured rule."""
        fresh = cls(start, start, cells={ALL: Cell(0, stream.oracle.zeros())}, changed={ALL})
        fresh.set_rules([rules.first(configured, start)])
        return fresh

    @property
    def windowing(self) -> Windowing | None:
        """The windows of the newest rule, which may begin at a later offset."""
        return self.rules[-1].limits.windowing

    @property
    def fewest_new(self) -> int:
        """The smallest increment of published counts, by the rule at the offset."""
        return self.rules[max(0, self._begun - 1)].limits.fewest_new

    @property
    def panes(self) -> list[Pane]:
        """The panes that have counts."""
        return [pane for pane in map(pane_of, self.cells) if pane is not None]

    @property
    def full(self) -> bool:
        """Whether the limit of panes is reached."""
        windowing = self.rules[self._begun - 1].limits.windowing
        return windowing is not None and self._panes_left(windowing) <= 0

    @property
    def waits_at(self) -> int | None:
        """The offset at which counting waits for admission by a head, or None."""
        if self.windows.admitted_from is not None:
            return None
        ends = [rule.offset for rule in self.rules[1:]]
        for rule, end in zip(self.rules, [*ends, sys.maxsize], strict=True):
            if rule.limits.windowing is not None and max(rule.offset, self.offset) < end:
                return max(rule.offset, self.offset)
        return None

    @property
    def reports(self) -> int:
        """The number of counted reports."""
        return sum(cell.reports for cell in self.cells.values())

    def total(self, start: int | None = None, end: int | None = None) -> Cell:
        """Sums counts of [start, end) in ms, or of all time; O(cells · state)."""
        total = Cell(0, np.zeros_like(self.cells[ALL].state))
        for name, cell in self.cells.items():
            pane = pane_of(name)
            if start is None or end is None or (pane is not None and pane.within(start, end)):
                total.reports += cell.reports
                np.add(total.state, cell.state, out=total.state)
        return total

    def set_rules(self, listed: list[Rule]) -> None:
        """Replaces the rules. The rules of counted records must stay the same."""
        if self.offset == self.start:
            self._begun, self.windows.first_start = 0, {}  # no record was decoded yet
        self.rules = listed
        self._begin_rules(self.offset)

    def apply(
        self,
        stream: ldp.Stream,
        batch: Batch,
        heartbeat: Callable[[], object] = lambda: None,
        *,
        name_late: bool = False,
    ) -> Applied:
        """Counts a batch; raises ValueError unless it begins at `offset`.

        Counting stops before a record that needs a pane above the limit. With ``name_late``, the result lists the late
        records. Calls ``heartbeat`` after each `MOST_COST` steps.
        """
        if batch.start != self.offset:
            raise ValueError(f"a batch from offset {batch.start} given; the state continues at {self.offset}")
        columns, verdicts = batch.columns, np.zeros(len(batch.columns), np.uint8)
        applied, offset = Applied(verdicts), batch.end
        for begin, end, limits in self._by_rule(columns.offsets):
            self._begin_rules(int(columns.offsets[begin]))
            part = columns.between(begin, end)
            records, times = (part.data, part.begins, part.ends), part.timestamps
            decoded = frames.decode(
                stream, *records, most_reports=limits.most_reports, check_weight=limits.hamming_weight
            )
            counted = self._count(
                stream, decoded, times, limits.windowing, applied, heartbeat, begin if name_late else None
            )
            verdicts[begin : begin + counted] = decoded.verdicts[:counted]
            if begin + counted < end:
                applied.verdicts, offset = verdicts[: begin + counted], int(columns.offsets[begin + counted])
                break
        unreadable = sum(bad.end <= offset for bad in batch.unreadable)
        applied.rejected = rejections.counted(applied.verdicts, unreadable)
        self.accepted += applied.accepted
        self.windows.undated += applied.undated
        for sums, more in ((self.rejected, applied.rejected), (self.windows.late, applied.late)):
            for name, n in more.items():
                sums[name] = sums.get(name, 0) + n
        self.offset = offset
        self._begin_rules(offset)
        return applied

    def _count(
        self,
        stream: ldp.Stream,
        decoded: frames.Decoded,
        times: Counts,
        windowing: Windowing | None,
        applied: Applied,
        heartbeat: Callable[[], object],
        first_index: int | None,
    ) -> int:
        """Counts records under one rule; returns how many fit the limit of panes."""
        index = None if not decoded.verdicts.any() else np.flatnonzero(decoded.verdicts == 0)
        accepted, counts = (times, decoded.counts) if index is None else (times[index], decoded.counts[index])
        reports, state = decoded.reports, self.windows
        if not len(accepted):
            return len(times)
        if windowing is None:
            self._add(stream, reports, [ALL], [len(reports)], _ONE_RUN, heartbeat)
            newest = int(lateness.dated(accepted).max())
            newest = newest if state.watermark is None else max(state.watermark, newest)
            state.advance(accepted, newest, state.closed)
            applied.reports.append(reports)
            return len(times)
        most = self._most(windowing)
        placed = state.place(accepted, counts, len(reports), windowing, most)
        if (left := self._before_limit(placed, windowing)) is not None:
            if not left:
                return 0 if index is None else int(index[0])
            times = times[: left if index is None else int(index[left])]
            accepted, counts = accepted[:left], counts[:left]
            reports = reports[: int(counts.sum())]
            placed = state.place(accepted, counts, len(reports), windowing, most)
        if first_index is not None and placed.late:
            late = state.late_of(accepted, windowing)
            at = late.at if index is None else index[late.at]
            applied.late_records.append(replace(late, at=at + first_index))
        names = [f"{start}+{windowing.pane}" if start >= 0 else ALL for start in placed.starts]
        self._add(stream, reports, names, placed.sizes, placed.runs, heartbeat)
        state.advance(accepted, placed.watermark, placed.closed)
        applied.reports.append(reports)
        applied.late.update(placed.late)
        applied.undated += placed.undated
        return len(times)

    def _most(self, windowing: Windowing) -> int:
        """Returns the highest limit of panes of this length under any rule so far."""
        begun = [rule.limits.windowing for rule in self.rules[: self._begun]]
        return max(w.most_panes for w in begun if w is not None and w.pane == windowing.pane)

    def _panes_left(self, windowing: Windowing) -> int:
        return self._most(windowing) - sum(pane.length == windowing.pane for pane in self.panes)

    def _before_limit(self, placed: Placed, windowing: Windowing) -> int | None:
        """Returns how many records fit the limit of panes, or None if all do."""
        if len(placed.starts) <= self._most(windowing) - (len(self.cells) - 1):
            return None  # the common case, without a search
        left = max(0, self._panes_left(windowing))
        firsts = zip(placed.starts, placed.firsts, strict=True)
        new = [n for at, n in firsts if at >= 0 and str(Pane(at, windowing.pane)) not in self.cells]
        return new[left] if len(new) > left else None

    def _add(
        self,
        stream: ldp.Stream,
        reports: npt.NDArray[np.void],
        names: Sequence[str],
        sizes: Sequence[int],
        runs: Counts,
        heartbeat: Callable[[], object],
    ) -> None:
        """Adds `sizes[i]` reports to cell `names[i]`; `runs` as in `Placed`."""
        states = []
        for name, size in zip(names, sizes, strict=True):
            if (cell := self.cells.get(name)) is None:
                cell = self.cells[name] = Cell(0, stream.oracle.zeros())
            cell.reports += size
            states.append(cell.state)
        self.changed.update(names)
        at_once = max(1, MOST_COST // stream.oracle.cost)
        for _ in accumulate_partitioned(stream.oracle, states, reports, runs, at_once):
            heartbeat()

    def _begin_rules(self, offset: int) -> None:
        while self._begun < len(self.rules) and self.rules[self._begun].offset <= offset:
            self.windows.begin(self.rules[self._begun].limits.windowing)
            self._begun += 1

    def _by_rule(self, offsets: Counts) -> Iterator[tuple[int, int, RecordLimits]]:
        """Yields (begin, end, limits) for the records under each rule."""
        ends = [int(np.searchsorted(offsets, rule.offset)) for rule in self.rules[1:]]
        begin = 0
        for rule, end in zip(self.rules, [*ends, len(offsets)], strict=True):
            if begin < end:
                yield begin, end, rule.limits
            begin = end

    def skip(self, to: int) -> None:
        """Records the gap [offset, to) of the log, and continues at ``to``."""
        self.gaps.append((self.offset, to))
        self.windows.skip()
        self.offset = to
        self._begin_rules(to)

    def evict(self, end: int) -> None:
        """Merges panes that end at or before ``end`` into `ALL`; O(panes · state)."""
        rest = self.cells[ALL]
        for name in list(self.cells):
            pane = pane_of(name)
            if pane is not None and pane.end <= end:
                cell = self.cells.pop(name)
                np.add(rest.state, cell.state, out=rest.state)
                rest.reports += cell.reports
                self.changed = {*self.changed, ALL} - {name}
        self.windows.evicted_to = max(self.windows.evicted_to, end)
