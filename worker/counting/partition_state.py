"""The counts of one partition, computed from its log up to an offset.

The state depends only on the log prefix [start, offset), the rules, and two times from heads. These are the start of
the windows and the end of evicted panes. Any worker that continues from a state gets the same result. The cells of a
document add up to its counts of all time.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Self

import numpy as np

import ldp
from ldp.oracles.partitioned import accumulate_partitioned, address_of
from worker.counting import lateness, rejections, rules
from worker.counting.accepted import Accepted, Accepting
from worker.counting.applied import Applied
from worker.counting.cells import Cell, CellKey, Counts, Segment
from worker.counting.columns import Batch
from worker.counting.documents import Document, of_fleet
from worker.counting.lateness import Placed
from worker.counting.rules import Names, RequestedRule, Rule, Status
from worker.counting.window_state import WindowState
from worker.counting.windows import Pane, Windowing

MOST_COST = 1 << 30  # steps (`ldp.Oracle.cost`) between two heartbeats: about a second on a slow core


@dataclass
class PartitionState:
    """The counts of one partition up to an offset.

    Example:
        >>> from ldp import frames
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
    documents: dict[str, Document]  # by fingerprint; each is named by a rule
    rules: list[Rule] = field(default_factory=list)  # by offset; the last may begin later; never empty
    accepted: int = 0
    rejected: dict[str, int] = field(default_factory=dict)  # malformed records by reason
    gaps: list[tuple[int, int]] = field(default_factory=list)  # [from, to) that the log lost before counting
    windows: WindowState = field(default_factory=WindowState)
    cells: dict[CellKey, dict[Segment, Cell]] = field(default_factory=dict)
    changed: set[CellKey] = field(default_factory=set)  # keys of cells that differ from the stored ones

    def __post_init__(self) -> None:
        named = Names(dict.fromkeys(self.documents, Status()))
        self.rules = self.rules or [rules.first(RequestedRule(), self.start, named)]
        self._begun = sum(rule.offset <= self.offset for rule in self.rules)
        self._accepting = dict[int, Accepting]()

    @classmethod
    def fresh(cls, fleet: ldp.Fleet, start: int, configured: RequestedRule = RequestedRule()) -> Self:  # noqa: B008
        """Returns the empty state at an offset, with the configured rule."""
        rule = rules.first(configured, start, configured.names(fleet))
        return cls.ruled(start, [rule], of_fleet(fleet))

    @classmethod
    def ruled(cls, start: int, listed: list[Rule], known: Mapping[str, Document]) -> Self:
        """Returns the empty state at an offset; ``known`` has the documents."""
        fresh = cls(start, start, {name: known[name] for name in rules.joined(listed).documents})
        fresh.set_rules(listed)
        fresh.begin_cells()
        return fresh

    def begin_cells(self) -> None:
        """Begins the cells of a state without counts.

        Only the all-time cell of an only document exists from the start. Other cells begin with a report.
        """
        self.cells, self.changed = {}, set()
        if len(self.documents) == 1 and (document := self.document).segment is None:
            self.cell(CellKey(None, document.fingerprint.hex()))

    def cell(self, key: CellKey, segment: Segment = "") -> Cell:
        """Returns a cell to change; adds an empty one if it is missing."""
        self.changed.add(key)
        if (cell := self.cells.setdefault(key, {}).get(segment)) is None:
            cell = self.cells[key][segment] = Cell(0, self.documents[key.fingerprint].oracle.zeros())
        return cell

    @property
    def document(self) -> Document:
        """The document of all counts, if there is only one."""
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

    def total(
        self,
        fingerprint: str | None = None,
        segment: Segment | None = None,
        start: int | None = None,
        end: int | None = None,
    ) -> Cell:
        """Sums the counts of a document; O(cells · state).

        Args:
            fingerprint: the document; None for the only one.
            segment: the name of a cell; None for all.
            start: start of a time range in ms; None for all time.
            end: end of the time range in ms.
        """
        document = self.document if fingerprint is None else self.documents[fingerprint]
        total, of = Cell(0, document.oracle.zeros()), document.fingerprint.hex()
        for (pane, name), cells in self.cells.items():
            if name == of and (
                start is None or end is None or (pane is not None and pane.within(start, end))
            ):
                for cell in cells.values() if segment is None else filter(None, [cells.get(segment)]):
                    total.add(cell)
        return total

    def set_rules(self, listed: list[Rule], known: Mapping[str, Document] = MappingProxyType({})) -> None:
        """Replaces the rules. The rules of counted records must stay the same.

        ``known`` has the documents that the state does not have yet.
        """
        if self.offset == self.start:
            self._begun, self.windows.first_start = 0, {}  # no record was decoded yet
        names = rules.joined(listed).documents
        self.documents = {name: self.documents.get(name) or known[name] for name in names}
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
        for begin, end, number in self._by_rule(columns.offsets):
            self._begin_rules(int(columns.offsets[begin]))
            part, limits, accepting = columns.between(begin, end), self.rules[number].limits, self._at(number)
            decoded = accepting.decode(part, limits)
            accepted = Accepted.of(accepting, decoded, part.timestamps)
            counted = self._count(
                accepted, len(part), limits.windowing, applied, heartbeat, begin if name_late else None
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
        accepted: Accepted,
        records: int,
        windowing: Windowing | None,
        applied: Applied,
        heartbeat: Callable[[], object],
        first_index: int | None,
    ) -> int:
        """Counts records under one rule; returns how many fit the limit of panes."""
        state = self.windows
        if not len(accepted.times):
            return records
        if windowing is None:
            self._add(accepted, [None], None, applied, heartbeat)
            newest = int(lateness.dated(accepted.times).max())
            newest = newest if state.watermark is None else max(state.watermark, newest)
            state.advance(accepted.times, newest, state.closed)
            return records
        most = self._most(windowing)
        placed = state.place(accepted.times, accepted.counts, accepted.total, windowing, most)
        if (left := self._before_limit(placed, windowing, most)) is not None:
            records = left if accepted.at is None else int(accepted.at[left])
            if not left:
                return records
            accepted = accepted.until(left)
            placed = state.place(accepted.times, accepted.counts, accepted.total, windowing, most)
        if first_index is not None and placed.late:
            late = state.late_of(accepted.times, windowing)
            at = late.at if accepted.at is None else accepted.at[late.at]
            applied.late_records.append(replace(late, at=at + first_index))
        panes = [Pane(start, windowing.pane) if start >= 0 else None for start in placed.starts]
        self._add(accepted, panes, placed, applied, heartbeat)
        state.advance(accepted.times, placed.watermark, placed.closed)
        applied.late.update(placed.late)
        applied.undated += placed.undated
        return records

    def _most(self, windowing: Windowing) -> int:
        """Returns the highest limit of panes of this length under any rule so far."""
        begun = [rule.limits.windowing for rule in self.rules[: self._begun]]
        return max(w.most_panes for w in begun if w is not None and w.pane == windowing.pane)

    def _panes_left(self, windowing: Windowing) -> int:
        return self._most(windowing) - sum(pane.length == windowing.pane for pane in self.panes)

    def _before_limit(self, placed: Placed, windowing: Windowing, most: int) -> int | None:
        """Returns how many records fit the limit of panes, or None if all do."""
        if len(placed.starts) <= most - len(self.cells):
            return None  # the common case, without a search
        left, there = max(0, self._panes_left(windowing)), {*self.panes}
        firsts = zip(placed.starts, placed.firsts, strict=True)
        new = [n for at, n in firsts if at >= 0 and Pane(at, windowing.pane) not in there]
        return new[left] if len(new) > left else None

    def _add(
        self,
        accepted: Accepted,
        panes: Sequence[Pane | None],
        placed: Placed | None,
        applied: Applied,
        heartbeat: Callable[[], object],
    ) -> None:
        """Adds reports to the cells of their documents, panes and segments."""
        documents, names = accepted.accepting.documents, accepted.accepting.segments.cells
        for document, reports, (places, sizes, runs) in zip(
            documents, accepted.reports, accepted.runs(placed), strict=True
        ):
            if not len(reports):
                continue
            fingerprint, addresses = document.fingerprint.hex(), list[int]()
            cells_of = dict[int, dict[Segment, Cell]]()  # keeps the states while their addresses are in use
            for (pane, segment), size in zip(places, sizes, strict=True):
                if (cells := cells_of.get(pane)) is None:
                    self.changed.add(key := CellKey(panes[pane], fingerprint))
                    cells = cells_of[pane] = self.cells.setdefault(key, {})
                if (cell := cells.get(names[segment])) is None:
                    cell = cells[names[segment]] = Cell(0, document.oracle.zeros())
                cell.reports += size
                if (address := cell.address) is None:
                    address = cell.address = address_of(document.oracle, cell.state)
                addresses.append(address)
            at_once = max(1, MOST_COST // document.oracle.cost)
            for _ in accumulate_partitioned(document.oracle, np.array(addresses), reports, runs, at_once):
                heartbeat()
            applied.reports.append((fingerprint, reports))

    def _begin_rules(self, offset: int) -> None:
        while self._begun < len(self.rules) and self.rules[self._begun].offset <= offset:
            self.windows.begin(self.rules[self._begun].limits.windowing)
            self._begun += 1

    def _by_rule(self, offsets: Counts) -> Iterator[tuple[int, int, int]]:
        """Yields (begin, end, index of the rule) for the records under each rule."""
        ends = [int(np.searchsorted(offsets, rule.offset)) for rule in self.rules[1:]]
        begin = 0
        for number, end in enumerate([*ends, len(offsets)]):
            if begin < end:
                yield begin, end, number
            begin = end

    def _at(self, number: int) -> Accepting:
        """Returns the documents and segments that are in force from a rule on."""
        if number not in self._accepting:
            self._accepting[number] = Accepting.of(rules.joined(self.rules[: number + 1]), self.documents)
        return self._accepting[number]

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
