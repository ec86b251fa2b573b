"""Reads a cut: all partitions of a stream, each in one atomic step."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import ldp
from worker.counting import layout
from worker.counting.cells import Cell, Segment
from worker.counting.changed import NEW_NAME
from worker.counting.claim import peek, unreadable
from worker.counting.lineage import differing, identity
from worker.counting.partition_state import PartitionState
from worker.counting.ports import StateLost, StateReader, StoredPartition, Unavailable
from worker.counting.windows import Pane

_MOST, _MOST_BYTES = 10, 32 << 20
"""Limits of one read: the number of partitions, and the bytes of their all-time counts."""


@dataclass(frozen=True)
class StoredCut:
    """The stored state of a stream.

    Attributes:
        states: claimed partition -> its state.
        commits: partition -> cell -> id of the commit that wrote the cell.
        uncounted: partitions that should have counts, but have none.
    """

    states: Mapping[int, PartitionState]
    commits: Mapping[int, Mapping[str, str]]
    uncounted: Sequence[int]

    def totals(self, start: int | None = None, end: int | None = None) -> dict[str, dict[Segment, Cell]]:
        """Sums the counts of a window, or of all time, by document and segment.

        O(cells · state).
        """
        totals = dict[str, dict[Segment, Cell]]()
        for state in self.states.values():
            for (pane, fingerprint), cells in state.cells.items():
                if start is None or end is None or (pane is not None and pane.within(start, end)):
                    _add(totals.setdefault(fingerprint, {}), cells)
        return totals

    @property
    def fewest_new(self) -> int:
        """The smallest increment of published counts, by the strictest rule."""
        return max((state.fewest_new for state in self.states.values()), default=0)

    def panes(self) -> dict[Pane, dict[str, dict[Segment, Cell]]]:
        """Sums the counts of each pane by document and segment."""
        totals = dict[Pane, dict[str, dict[Segment, Cell]]]()
        for state in self.states.values():
            for (pane, fingerprint), cells in state.cells.items():
                if pane is not None:
                    _add(totals.setdefault(pane, {}).setdefault(fingerprint, {}), cells)
        return totals

    def written(self, start: int, end: int) -> frozenset[tuple[int, str, str]]:
        """Returns the commits that wrote a window's panes, to detect changes."""
        keys = {key for state in self.states.values() for key in state.cells}
        within = {str(key) for key in keys if key.pane is not None and key.pane.within(start, end)}
        return frozenset(
            (p, cell, commit_id)
            for p, cells in self.commits.items()
            for cell, commit_id in cells.items()
            if cell in within
        )


def _add(totals: dict[Segment, Cell], cells: Mapping[Segment, Cell]) -> None:
    """Adds cells to the totals by segment."""
    for segment, cell in cells.items():
        if segment in totals:
            totals[segment].add(cell)
        else:
            totals[segment] = Cell(cell.reports, cell.state.copy())


def read(
    fleet: ldp.Fleet,
    state_reader: StateReader,
    partitions: Sequence[int],
    uncounted: Callable[[Mapping[int, bool]], Sequence[int]],
    heartbeat: Callable[[], object],
) -> StoredCut:
    """Reads all partitions in groups; O(state) per partition.

    Args:
        fleet: the configured documents.
        state_reader: the reader of the store.
        partitions: the partitions of the topic.
        uncounted: returns the partitions that should have counts, but have none. Its argument maps each partition
            without counts to whether it was claimed. See `worker.kafka.reports.group`.
        heartbeat: called between slices of long work.

    Raises:
        StateLost: a partition cannot be read, or partitions have counts of different lineages.
        Unavailable: the store does not answer.
    """
    states, commits, without = {}, {}, dict[int, bool]()
    lineages = list[str]()
    for partition, stored in _stored(fleet, state_reader, sorted(partitions), heartbeat):
        if stored is None or not stored.metadata.commit_id:
            without[partition] = stored is not None
        if stored is None:
            continue
        lineages.append(stored.metadata.lineage)
        if identity(lineages[-1]) != identity(lineages[0]):
            what = "; ".join(differing(lineages[0], lineages[-1]))
            raise StateLost(
                f"stream {fleet.name!r}: partitions have counts of two histories: {what}.",
                f"restore Redis, or {NEW_NAME}",
            )
        try:
            states[partition] = layout.load(fleet, stored.metadata, stored.blobs)
        except StateLost as error:
            raise unreadable(fleet, partition, error) from None
        commits[partition] = stored.metadata.blobs
    asked = uncounted(without) if without else []
    # a partition may have been committed since the read
    missing = [p for p in asked if (found := peek(fleet, state_reader, p)) is None or not found.commit_id]
    return StoredCut(states, commits, missing)


def _stored(
    fleet: ldp.Fleet, state_reader: StateReader, partitions: Sequence[int], heartbeat: Callable[[], object]
) -> Iterator[tuple[int, StoredPartition | None]]:
    """Yields stored partitions, read in groups to bound memory."""
    most = max(1, min(_MOST, _MOST_BYTES // max(each.oracle.zeros().nbytes for each in fleet.documents)))
    for first in range(0, len(partitions), most):
        heartbeat()
        for partition, stored in state_reader.cut_all(partitions[first : first + most]).items():
            if isinstance(stored, StateLost):
                raise unreadable(fleet, partition, stored)
            if isinstance(stored, Unavailable):
                raise stored
            yield partition, stored
