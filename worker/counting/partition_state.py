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
from worker.counting.cells import Cell, CellKey, Counts, Segment
from worker.counting.columns import Batch
from worker.counting.documents import Document
from worker.counting.lateness import Placed
from worker.counting.rules import RecordLimits, RequestedRule, Rule
from worker.counting.window_state import WindowState
from worker.counting.windows import Pane, Windowing

MOST_COST = 1 << 30  # steps (`ldp.Oracle.cost`) between two heartbeats: about a second on a slow core

_ONE_RUN = np.zeros((2, 1), np.int64)  # the run of reports that are all in one cell


@dataclass
class PartitionState:
    """The counts of one partition up to an offset.

    Example:
        >>> from worker.counting.columns import Batch, Columns
        >>> stream = ldp.Stream("colours", ldp.GRR(epsilon="1", domain_size=3))
        >>> state = PartitionState.fresh(ldp.Fleet((stream,)), start=5)
        >>> good = frames.encode(stream, np.array([(2,), (0,)], stream.oracle.report_dtype))
        >>> batch = Batch(0, 5, 8, Columns.of([5, 6], [1000, 1001], [good, b"noise"]))
        >>> state.apply(batch).verdicts.tolist()
        [0, 2]
        >>> state.offset, state.accepted, state.rejected, state.total().state.tolist()
        (8, 1, {'version': 1}, [1, 0, 1])
    """

    start: int  # the log offset at which counting began
    offset: int  # the next offset to count; transaction markers advance it too
    documents: dict[str, Document]  # by fingerprint
    rules: list[Rule] = field(default_factory=list)  # by offset; the last may begin later; never empty
    accepted: int = 0
    rejected: dict[str, int] = field(default_factory=dict)  # malformed records by reason
    gaps: list[tuple[int, int]] = field(default_factory=list)  # [from, to) that the log lost before counting
    windows: WindowState = field(default_factory=WindowState)
    cells: dict[CellKey, dict[Segment, Cell]] = field(default_factory=dict)
    changed: set[CellKey] = field(default_factory=set)  # keys of cells that differ from the stored ones

    def __post_init__(self) -> None:
        self.rules = self.rules or [rules.first(RequestedRule(), self.start, next(iter(self.documents)))]
        self._begun = sum(rule.offset <= self.offset for rule in self.rules)

    @classmethod
    def fresh(cls, fleet: ldp.Fleet, start: int, configured: RequestedRule = RequestedRule()) -> Self:  # noqa: B008
        """Returns the empty state at an offset, with the configured rule."""
        (stream,) = fleet.documents
        fingerprint = stream.fingerprint.hex()
        fresh = cls(start, start, {fingerprint: Document.of(stream)})
        fresh.cell(CellKey(None, fingerprint))
        fresh.set_rules([rules.first(configured, start, fingerprint)])
        return fresh

    def cell(self, key: CellKey, segment: Segment = "") -> Cell:
        """Returns a cell to change; adds an empty one if it is missing."""
        self.changed.add(key)
        if (cell := self.cells.setdefault(key, {}).get(segment)) is None:
            cell = self.cells[key][segment] = Cell(0, self.documents[key.fingerprint].oracle.zeros())
        return cell

    @property
    def document(self) -> Document:
        """The document of all counts; a stream has only one so far."""
        (document,) = self.documents.values()
        return document

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
        return [*dict.fromkeys(key.pane for key in self.cells if key.pane is not None)]

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
        return sum(cell.reports for cells in self.cells.values() for cell in cells.values())

    def total(self, start: int | None = None, end: int | None = None) -> Cell:
        """Sums counts of [start, end) in ms, or of all time; O(cells · state)."""
        total = Cell(0, self.document.oracle.zeros())
        for (pane, _), cells in self.cells.items():
            if start is None or end is None or (pane is not None and pane.within(start, end)):
                for cell in cells.values():
                    total.add(cell)
        return total

    def set_rules(self, listed: list[Rule]) -> None:
        """Replaces the rules. The rules of counted records must stay the same."""
        if self.offset == self.start:
            self._begun, self.windows.first_start = 0, {}  # no record was decoded yet
        self.rules = listed
        self._begin_rules(self.offset)

    def apply(
        self,
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
                self.document,
                *records,
                most_reports=limits.most_reports,
                check_weight=limits.hamming_weight,
            )
            counted = self._count(
                decoded, times, limits.windowing, applied, heartbeat, begin if name_late else None
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
        reports, state, (fingerprint,) = decoded.reports, self.windows, self.documents
        if not len(accepted):
            return len(times)
        if windowing is None:
            self._add(reports, [CellKey(None, fingerprint)], [len(reports)], _ONE_RUN, heartbeat)
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
        panes = [Pane(start, windowing.pane) if start >= 0 else None for start in placed.starts]
        keys = [CellKey(pane, fingerprint) for pane in panes]
        self._add(reports, keys, placed.sizes, placed.runs, heartbeat)
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
        left, there = max(0, self._panes_left(windowing)), {*self.panes}
        firsts = zip(placed.starts, placed.firsts, strict=True)
        new = [n for at, n in firsts if at >= 0 and Pane(at, windowing.pane) not in there]
        return new[left] if len(new) > left else None

    def _add(
        self,
        reports: npt.NDArray[np.void],
        keys: Sequence[CellKey],
        sizes: Sequence[int],
        runs: Counts,
        heartbeat: Callable[[], object],
    ) -> None:
        """Adds `sizes[i]` reports to the cell of `keys[i]`; `runs` as in `Placed`."""
        states, oracle = [], self.document.oracle
        for key, size in zip(keys, sizes, strict=True):
            cell = self.cell(key)
            cell.reports += size
            states.append(cell.state)
        at_once = max(1, MOST_COST // oracle.cost)
        for _ in accumulate_partitioned(oracle, states, reports, runs, at_once):
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
        """Merges panes that end at or before ``end``; O(panes · state)."""
        for key in [key for key in self.cells if key.pane is not None and key.pane.end <= end]:
            for segment, cell in self.cells.pop(key).items():
                self.cell(CellKey(None, key.fingerprint), segment).add(cell)
            self.changed.discard(key)
        self.windows.evicted_to = max(self.windows.evicted_to, end)
