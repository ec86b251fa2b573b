"""The accepted records of a batch under one rule, in log order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ldp import frames
from ldp.segments import Segments
from worker.counting.columns import Columns
from worker.counting.documents import Document
from worker.counting.rules import Names, RecordLimits

Ints = npt.NDArray[np.int64]
Runs = tuple[list[tuple[int, int]], Sequence[int], Ints]
"""The (pane, segment) of each cell as indices, each cell's number of reports, and runs as in `Placed`."""

_ONE_RUN = np.zeros((2, 1), np.int64)  # the run of reports that are all in one cell


@dataclass(frozen=True)
class Accepting:
    """The documents and segments that are in force from a rule on.

    Attributes:
        documents: the live documents; the retired ones if there are no others.
        retired: fingerprints of the documents that are no longer accepted.
        segments: the cells of segments.
    """

    documents: Sequence[Document]
    retired: frozenset[bytes]
    segments: Segments

    @classmethod
    def of(cls, names: Names, documents: Mapping[str, Document]) -> "Accepting":
        """Returns the accepted documents and segments of joined names."""
        gone = {name for name, status in names.documents.items() if status.retired}
        live = [documents[name] for name in names.documents if name not in gone]
        closed = {name for name, status in names.segments.items() if status.retired}
        return cls(
            live or [*documents.values()],
            frozenset(map(bytes.fromhex, gone)),
            Segments(names.segments.keys() - closed, closed),
        )

    @cached_property
    def plain(self) -> bool:
        """Whether all reports have one document, without segments."""
        return len(self.documents) == 1 and self.documents[0].segment is None

    def decode(self, part: Columns, limits: RecordLimits) -> frames.DecodedBatch:
        """Decodes records; see `frames.decode_all`."""
        return frames.decode_all(
            self.documents,
            part.data,
            part.begins,
            part.ends,
            retired=self.retired,
            segments=self.segments,
            most_reports=limits.most_reports,
            check_weight=limits.hamming_weight,
        )


@dataclass(frozen=True)
class Accepted:
    """Accepted records of all documents in log order.

    Attributes:
        accepting: the documents and segments.
        times: (a,) timestamps.
        counts: (a,) numbers of reports.
        document: (a,) indices of the records' documents.
        segment: (a,) indices of cells in `Segments.cells`.
        reports: the reports of each document in log order.
        at: (a,) indices of the records among all decoded ones; None if all are accepted.
    """

    accepting: Accepting
    times: Ints
    counts: Ints
    document: npt.NDArray[np.int16]
    segment: npt.NDArray[np.int32]
    reports: Sequence[npt.NDArray[np.void]]
    at: npt.NDArray[np.intp] | None

    @classmethod
    def of(cls, accepting: Accepting, decoded: frames.DecodedBatch, times: Ints) -> "Accepted":
        """Returns the accepted records of a decoded batch; O(records)."""
        counts, document, segment = decoded.counts, decoded.document, decoded.segment
        if not decoded.verdicts.any():
            return cls(accepting, times, counts, document, segment, decoded.reports, None)
        at = np.flatnonzero(decoded.verdicts == 0)
        return cls(accepting, times[at], counts[at], document[at], segment[at], decoded.reports, at)

    def until(self, n: int) -> "Accepted":
        """Returns the first n records."""
        cut = replace(
            self,
            times=self.times[:n],
            counts=self.counts[:n],
            document=self.document[:n],
            segment=self.segment[:n],
        )
        sizes = [int(cut.counts[cut.document == i].sum()) for i in range(len(self.reports))]
        return replace(cut, reports=[each[:size] for each, size in zip(self.reports, sizes, strict=True)])

    @cached_property
    def total(self) -> int:
        """The number of reports."""
        return sum(map(len, self.reports))

    def runs(self, number: int, placed: tuple[Sequence[int], Ints] | None) -> Runs:
        """Returns the cells of one document's reports; O(records).

        Args:
            number: the document.
            placed: the number of reports in each pane, and runs over the reports of all documents, as in `Placed`; None
                without panes.
        """
        if self.accepting.plain:
            sizes, runs = ([self.total], _ONE_RUN) if placed is None else placed
            return [(pane, 0) for pane in range(len(sizes))], sizes, runs
        mine, width = self.document == number, len(self.accepting.segments.cells)
        counts, cells = self.counts[mine], self.segment[mine].astype(np.int64)
        if placed is not None:
            owners, ends = placed[1]
            cells += width * owners[np.searchsorted(ends, np.cumsum(self.counts)[mine])]
        found, slots = np.unique(cells, return_inverse=True)
        sizes = np.bincount(slots, counts, len(found)).astype(np.int64).tolist()  # exact below 2^53
        last = np.flatnonzero(np.append(slots[1:] != slots[:-1], True))
        runs = np.stack([slots[last], np.cumsum(counts)[last]])
        return [divmod(cell, width) for cell in found.tolist()], sizes, runs
