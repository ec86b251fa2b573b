"""PartitionState: everything kept of one partition, a pure function of its log's prefix [start, offset) and its rules.

No worker's clock, configuration or order across partitions enters it, so whoever loads (state, offset) and reads on
gets the same.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

import ldp
from ldp import frames
from worker.counting import rejections, rules
from worker.counting.columns import Batch
from worker.counting.rules import Configured, Rule, Terms

ALL = "all"
"""The name of the one cell there is: of all time."""

MOST_WORK = 1 << 30
"""Steps of counting (see `ldp.Oracle.work`) between two signs of life: a second's on a slow core."""

Counts = npt.NDArray[np.int64]


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
        rules: what decides whether a record counts, in the order of their offsets, which may lie ahead; there is one
            for every offset. A state that is given none has the rule of before there were any.
        accepted: records counted.
        rejected: malformed records, by reason.
        late: records too late for their window (none while the only window is cumulative).
        watermark: the highest accepted timestamp in milliseconds, or None before the first.
        gaps: stretches [from, to) that the log had lost before they were counted.
        cells: the counts by the name of what they are of; together they are all.
        changed: names of the cells that differ from what is stored.

    Example:
        >>> from worker.counting.columns import Batch, Columns
        >>> stream = ldp.Stream("colours", ldp.GRR(epsilon="1", domain_size=3))
        >>> state = PartitionState.fresh(stream, start=5)
        >>> good = frames.encode(stream, np.array([(2,), (0,)], stream.oracle.report_dtype))
        >>> state.apply(stream, Batch(0, 5, 8, Columns.of([5, 6], [1000, 1001], [good, b"noise"])))
        array([0, 2], dtype=uint8)
        >>> state.offset, state.accepted, dict(state.rejected), state.cells["all"].state.tolist()
        (8, 1, {'version': 1}, [1, 0, 1])
    """

    start: int
    offset: int
    rules: list[Rule] = field(default_factory=list)
    accepted: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    late: int = 0
    watermark: int | None = None
    gaps: list[tuple[int, int]] = field(default_factory=list)
    cells: dict[str, Cell] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.rules = self.rules or [rules.before(self.start)]

    @classmethod
    def fresh(
        cls,
        stream: ldp.Stream,
        start: int,
        configured: Configured = Configured(),  # noqa: B008  # frozen
    ) -> "PartitionState":
        """Returns the state of the empty prefix [start, start), to be counted by what the configuration asks for."""
        cell = Cell(0, stream.oracle.zeros())
        return cls(start, start, [rules.first(configured, start)], cells={ALL: cell}, changed={ALL})

    def apply(
        self, stream: ldp.Stream, batch: Batch, on_alive: Callable[[], object] = lambda: None
    ) -> npt.NDArray[np.uint8]:
        """Counts a batch that continues the prefix; returns the verdict on each of its records.

        Each record is judged by the rule that holds for its offset; a record batch that cannot be read is one rejected
        record. Cost: the oracle's for the reports, plus O(bytes of the batch).

        Args:
            stream: whose batch.
            batch: what comes next.
            on_alive: called at least once for each `MOST_WORK` steps.

        Returns:
            (m,) uint8, as `ldp.frames.Decoded` has them.

        Raises:
            ValueError: the batch does not begin at this state's offset.
        """
        if batch.start != self.offset:
            raise ValueError(f"a batch from offset {batch.start} given; the state continues at {self.offset}")
        columns, verdicts = batch.columns, np.zeros(len(batch.columns), np.uint8)
        for begin, end, terms in self._stretches(columns.offsets):
            decoded = frames.decode(
                stream,
                columns.data,
                columns.begins[begin:end],
                columns.ends[begin:end],
                most_reports=terms.most_reports,
                judge_ones=terms.ones,
            )
            accepted = end - begin - int(np.count_nonzero(decoded.verdicts))
            if len(decoded.reports):
                cell = self.cells[ALL]
                at_once = max(1, MOST_WORK // stream.oracle.work)
                for first in range(0, len(decoded.reports), at_once):
                    stream.oracle.accumulate(cell.state, decoded.reports[first : first + at_once])
                    on_alive()
                cell.reports += len(decoded.reports)
                self.changed.add(ALL)
                times = columns.timestamps[begin:end]
                newest = int((times if accepted == len(times) else times[decoded.verdicts == 0]).max())
                self.watermark = newest if self.watermark is None else max(self.watermark, newest)
            self.accepted += accepted
            verdicts[begin:end] = decoded.verdicts
        for reason, n in rejections.counted(verdicts, len(batch.unreadable)).items():
            self.rejected[reason] = self.rejected.get(reason, 0) + n
        self.offset = batch.end
        return verdicts

    def _stretches(self, offsets: npt.NDArray[np.int64]) -> Iterator[tuple[int, int, Terms]]:
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
        self.offset = to
