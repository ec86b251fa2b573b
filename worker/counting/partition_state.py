"""PartitionState: everything kept of one partition, a pure function of its log's prefix [start, offset) and its rules.

No worker's clock, configuration or order across partitions enters it, so whoever loads (state, offset) and reads on
gets the same. Two numbers come from the head, and are kept: where its windows begin (`floor`), and which of its panes
no window needs any more (`dropped`). The counts of all time are the sum of its cells, whatever was dropped.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

import ldp
from ldp import frames
from ldp.oracles.apart import accumulate_apart
from worker.counting import lateness, rejections, rules
from worker.counting.applied import Applied
from worker.counting.columns import Batch
from worker.counting.lateness import Placed
from worker.counting.rules import RecordLimits, RequestedRule, Rule
from worker.counting.windows import ALL, Pane, Windowing, pane_of

MOST_WORK = 1 << 30
"""Steps of counting (see `ldp.Oracle.work`) between two signs of life: a second's on a slow core."""

Counts = npt.NDArray[np.int64]

_ONE_RUN = np.zeros((2, 1), np.int64)
"""What is said of reports that are all in one cell."""


@dataclass
class Cell:
    """The counts of one part of what is counted: how many reports, and the oracle's state vector."""

    reports: int
    state: Counts


@dataclass
class PartitionState:
    """The counts of one partition up to an offset.

    Attributes:
        start: the log offset that counting began at.
        offset: the next offset to count; the consumer's position, so it passes transaction markers.
        rules: what decides whether and where a record counts, in the order of their offsets, which may lie ahead; there
            is one for every offset. A state that is given none has the default one.
        accepted: records counted.
        rejected: malformed records, by reason.
        late: accepted records that were too late for their pane, by age (`lateness.AGES`).
        undated: accepted records without a timestamp, or with one that is no time (`windows.TIME_ENDS`), which are in
            no pane either.
        watermark: the highest accepted timestamp in milliseconds, or None before the first; −1 before one that is one.
        closed: a pane that ends at or before this line takes no more.
        floor: the line at which its windows begin, as the head said when it admitted the partition; None before that.
        dropped: panes that end at or before this line are in the cell of all time.
        readmitted: floors that were given up, because the heads that said them were deleted, each with the offset.
        since: for each window of the rules the first start that may be published.
        gaps: stretches [from, to) that the log had lost before they were counted.
        around: for each gap the closed line before it, and the first timestamp accepted after it that is beyond all
            before, or None: one that is not came late, and says nothing of the time in which others were lost.
        cells: the counts by the name of what they are of (`windows.pane_of`), each report in one of them. That of all
            time has what is in no pane: everything, where there are no windows.
        changed: names of the cells that differ from what is stored.

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

    start: int
    offset: int
    rules: list[Rule] = field(default_factory=list)
    accepted: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    late: dict[str, int] = field(default_factory=dict)
    undated: int = 0
    watermark: int | None = None
    closed: int = 0
    floor: int | None = None
    dropped: int = 0
    readmitted: list[tuple[int, int]] = field(default_factory=list)
    since: dict[str, int] = field(default_factory=dict)
    gaps: list[tuple[int, int]] = field(default_factory=list)
    around: list[tuple[int, int | None]] = field(default_factory=list)
    cells: dict[str, Cell] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.rules = self.rules or [rules.first(RequestedRule(), self.start)]
        self._begun = sum(rule.offset <= self.offset for rule in self.rules)

    @classmethod
    def fresh(
        cls,
        stream: ldp.Stream,
        start: int,
        configured: RequestedRule = RequestedRule(),  # noqa: B008  # frozen
    ) -> "PartitionState":
        """Returns the state of the empty prefix [start, start), to be counted by what the configuration asks for."""
        cell = Cell(0, stream.oracle.zeros())
        fresh = cls(start, start, cells={ALL: cell}, changed={ALL})
        fresh.set_rules([rules.first(configured, start)])
        return fresh

    @property
    def windowing(self) -> Windowing | None:
        """The windows of the newest rule, which may lie ahead."""
        return self.rules[-1].terms.windowing

    @property
    def panes(self) -> list[Pane]:
        """Its panes."""
        return [pane for pane in map(pane_of, self.cells) if pane is not None]

    @property
    def closed_panes(self) -> bool:
        """Whether it has panes that take no more."""
        return any(pane.end <= self.closed for pane in self.panes)

    @property
    def full(self) -> bool:
        """Whether it has as many panes as it may, by the rule for what comes next."""
        windowing = self.rules[self._begun - 1].terms.windowing
        return windowing is not None and self._left(windowing) <= 0

    @property
    def waits_at(self) -> int | None:
        """The offset from which on nothing is counted before a head names the partition; None where that is no matter.

        It may lie ahead: a store that was set back has still to count what was published without windows.
        """
        if self.floor is not None:
            return None
        ends = [rule.offset for rule in self.rules[1:]]
        stretches = zip(self.rules, [*ends, sys.maxsize], strict=True)
        windowed = (
            (max(r.offset, self.offset), end) for r, end in stretches if r.terms.windowing is not None
        )
        return next((begin for begin, end in windowed if begin < end), None)

    @property
    def reports(self) -> int:
        """How many reports it has."""
        return sum(cell.reports for cell in self.cells.values())

    def total(self, start: int | None = None, end: int | None = None) -> Cell:
        """Returns the counts of the panes within a window, or without one those of all time; O(cells · state).

        Args:
            start: the window's first millisecond.
            end: the first one behind it.
        """
        total = Cell(0, np.zeros_like(self.cells[ALL].state))
        for name, cell in self.cells.items():
            pane = pane_of(name)
            if start is None or end is None or (pane is not None and pane.within(start, end)):
                total.reports += cell.reports
                np.add(total.state, cell.state, out=total.state)
        return total

    def set_rules(self, listed: list[Rule]) -> None:
        """Takes rules in the place of those that it has, which they continue."""
        if self.offset == self.start:
            self._begun, self.since = 0, {}  # nothing was judged yet
        self.rules = listed
        self._follow(self.offset)

    def apply(
        self,
        stream: ldp.Stream,
        batch: Batch,
        on_alive: Callable[[], object] = lambda: None,
        *,
        name_late: bool = False,
    ) -> Applied:
        """Counts a batch that continues the prefix.

        Each record is judged by the rule that holds for its offset; a record batch that cannot be read is one rejected
        record. Where a record needs one more pane than there may be, counting ends before it, and the state goes on at
        that record. Cost: the oracle's for the reports, plus O(bytes of the batch).

        Args:
            stream: whose batch.
            batch: what comes next.
            on_alive: called at least once for each `MOST_WORK` steps.
            name_late: whether to say which records are late; O(records) more if there are any.

        Raises:
            ValueError: the batch does not begin at this state's offset.
        """
        if batch.start != self.offset:
            raise ValueError(f"a batch from offset {batch.start} given; the state continues at {self.offset}")
        columns, verdicts = batch.columns, np.zeros(len(batch.columns), np.uint8)
        applied, offset = Applied(verdicts), batch.end
        for begin, end, terms in self._stretches(columns.offsets):
            self._follow(int(columns.offsets[begin]))
            decoded = frames.decode(
                stream,
                columns.data,
                columns.begins[begin:end],
                columns.ends[begin:end],
                most_reports=terms.most_reports,
                judge_ones=terms.ones,
            )
            times = columns.timestamps[begin:end]
            counted = self._count(
                stream, decoded, times, terms.windowing, applied, on_alive, begin if name_late else None
            )
            verdicts[begin : begin + counted] = decoded.verdicts[:counted]
            if begin + counted < end:
                applied.verdicts, offset = verdicts[: begin + counted], int(columns.offsets[begin + counted])
                break
        applied.rejected = rejections.counted(
            applied.verdicts, sum(bad.end <= offset for bad in batch.unreadable)
        )
        self.accepted += applied.accepted
        self.undated += applied.undated
        for sums, more in ((self.rejected, applied.rejected), (self.late, applied.late)):
            for name, n in more.items():
                sums[name] = sums.get(name, 0) + n
        self.offset = offset
        self._follow(offset)
        return applied

    def _count(
        self,
        stream: ldp.Stream,
        decoded: frames.Decoded,
        times: npt.NDArray[np.int64],
        windowing: Windowing | None,
        applied: Applied,
        on_alive: Callable[[], object],
        behind: int | None,
    ) -> int:
        """Counts records that one rule judges; returns how many of them had room.

        Args:
            stream: whose records.
            decoded: the records.
            times: their timestamps.
            windowing: the rule's windows.
            applied: gets the reports, and what was late or undated.
            on_alive: see `apply`.
            behind: how many records of the batch are before them; None if late ones are not to be named.
        """
        index = None if not decoded.verdicts.any() else np.flatnonzero(decoded.verdicts == 0)
        accepted, counts = (times, decoded.counts) if index is None else (times[index], decoded.counts[index])
        reports = decoded.reports
        if not len(accepted):
            return len(times)
        if windowing is None:
            self._add(stream, reports, [ALL], [len(reports)], _ONE_RUN, on_alive)
            newest = int(lateness.dated(accepted).max())
            self._pass(accepted, newest if self.watermark is None else max(self.watermark, newest))
            applied.reports.append(reports)
            return len(times)
        placed = self._placed(accepted, counts, len(reports), windowing)
        if (left := self._room(placed, windowing)) is not None:
            if not left:
                return 0 if index is None else int(index[0])
            times = times[: left if index is None else int(index[left])]
            accepted, counts = accepted[:left], counts[:left]
            reports = reports[: int(counts.sum())]
            placed = self._placed(accepted, counts, len(reports), windowing)
        if behind is not None and placed.late:
            shape = {"hold": windowing.hold, "pane": windowing.pane}
            late = lateness.late_of(lateness.dated(accepted), self.watermark, self.closed, **shape)
            at = late.at if index is None else index[late.at]
            applied.late_records.append(replace(late, at=at + behind))
        names = [f"{start}+{windowing.pane}" if start >= 0 else ALL for start in placed.starts]
        self._add(stream, reports, names, placed.sizes, placed.runs, on_alive)
        self._pass(accepted, placed.watermark)
        self.closed = placed.closed
        applied.reports.append(reports)
        applied.late.update(placed.late)
        applied.undated += placed.undated
        return len(times)

    def _placed(self, times: Counts, counts: Counts, reports: int, windowing: Windowing) -> Placed:
        """Returns where accepted records count, or where those up to one pane too many do."""
        return lateness.place(
            times,
            counts,
            reports,
            self.watermark,
            self.closed,
            hold=windowing.hold,
            pane=windowing.pane,
            most=self._most(windowing),
        )

    def _most(self, windowing: Windowing) -> int:
        """Returns how many panes of a rule's length there may be; a rule of before may have left as many as it had."""
        begun = [rule.terms.windowing for rule in self.rules[: self._begun]]
        return max(w.most_panes for w in begun if w is not None and w.pane == windowing.pane)

    def _left(self, windowing: Windowing) -> int:
        """Returns for how many more panes there is room; those of another length go by themselves."""
        return self._most(windowing) - sum(pane.length == windowing.pane for pane in self.panes)

    def _room(self, placed: Placed, windowing: Windowing) -> int | None:
        """Returns how many records come before one that needs a pane too many; None where all have room."""
        if len(placed.starts) <= self._most(windowing) - (len(self.cells) - 1):
            return None  # most often, and then nothing is looked through
        left = max(0, self._left(windowing))
        new = [
            first
            for start, first in zip(placed.starts, placed.firsts, strict=True)
            if start >= 0 and str(Pane(start, windowing.pane)) not in self.cells
        ]
        return new[left] if len(new) > left else None

    def _add(
        self,
        stream: ldp.Stream,
        reports: npt.NDArray[np.void],
        names: Sequence[str],
        sizes: Sequence[int],
        runs: Counts,
        on_alive: Callable[[], object],
    ) -> None:
        """Adds reports to the cells that are named: so many to each; which ones, their runs say."""
        states = []
        for name, size in zip(names, sizes, strict=True):
            if (cell := self.cells.get(name)) is None:
                cell = self.cells[name] = Cell(0, stream.oracle.zeros())
            cell.reports += size
            states.append(cell.state)
        self.changed.update(names)
        at_once = max(1, MOST_WORK // stream.oracle.work)
        for _ in accumulate_apart(stream.oracle, states, reports, runs, at_once):
            on_alive()

    def _pass(self, accepted: Counts, watermark: int) -> None:
        """Takes up what accepted records say beside their reports and places."""
        if self.around and self.around[-1][1] is None:
            times = lateness.dated(accepted)
            if len(times := times[times > (-1 if self.watermark is None else self.watermark)]):
                self.around = [(line, int(times[0]) if at is None else at) for line, at in self.around]
        self.watermark = watermark

    def _follow(self, offset: int) -> None:
        """Begins with the rules that hold from an offset on: a window of a new one begins beyond all there is."""
        while self._begun < len(self.rules) and self.rules[self._begun].offset <= offset:
            windowing = self.rules[self._begun].terms.windowing
            parsed = () if windowing is None else windowing.parsed
            begin = {w.name: 0 if self.watermark is None else w.next_start(self.watermark) for w in parsed}
            self.since = {name: self.since.get(name, start) for name, start in begin.items()}
            self._begun += 1

    def _stretches(self, offsets: npt.NDArray[np.int64]) -> Iterator[tuple[int, int, RecordLimits]]:
        """Yields the records [begin, end) of a batch that one rule judges, and its terms; most often there is one."""
        ends = [int(np.searchsorted(offsets, rule.offset)) for rule in self.rules[1:]]
        begin = 0
        for rule, end in zip(self.rules, [*ends, len(offsets)], strict=True):
            if begin < end:
                yield begin, end, rule.terms
            begin = end

    def skip(self, to: int) -> None:
        """Records that the log lost [offset, to) before it was counted, and goes on at ``to``."""
        self.gaps.append((self.offset, to))
        self.around.append((self.closed, None))
        self.offset = to
        self._follow(to)

    def admit(self, floor: int) -> None:
        """Takes the partition's floor from the head that names it: windows that end by then are final without it."""
        self.floor = floor
        self.closed = max(self.closed, floor)

    def give_up_floor(self) -> None:
        """Goes back to before its admission, whose head was deleted; the next head admits it again."""
        if self.floor is not None:
            self.readmitted.append((self.offset, self.floor))
            self.floor = None

    def drop(self, line: int) -> None:
        """Lets go of the panes that end at or before a line: their counts go to the cell of all time; O(state) each."""
        rest = self.cells[ALL]
        for name in list(self.cells):
            pane = pane_of(name)
            if pane is not None and pane.end <= line:
                cell = self.cells.pop(name)
                np.add(rest.state, cell.state, out=rest.state)
                rest.reports += cell.reports
                self.changed = {*self.changed, ALL} - {name}
        self.dropped = max(self.dropped, line)
