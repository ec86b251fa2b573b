"""The accepted records of a batch under one rule, in log order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ldp import frames
from ldp.segments import Segments
from worker.counting.columns import Columns
from worker.counting.documents import Document
from worker.counting.lateness import Placed, spread
from worker.counting.rules import Names, RecordLimits

Ints = npt.NDArray[np.int64]
Runs = tuple[Sequence[tuple[int, int]], Sequence[int], Ints]
"""The (pane, segment) of each cell as indices, each cell's number of reports, and runs as in `Placed`."""


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
            live or [documents[name] for name in names.documents],
            frozenset(map(bytes.fromhex, gone)),
            Segments(names.segments.keys() - closed, closed),
        )

    @cached_property
    def segmented(self) -> bool:
        """Whether a document has segments."""
        return any(document.segment is not None for document in self.documents)

    @cached_property
    def plain(self) -> bool:
        """Whether all reports have one document, without segments."""
        return len(self.documents) == 1 and not self.segmented

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


class Accepted(NamedTuple):
    """Accepted records of all documents in log order.

    Attributes:
        accepting: the documents and segments.
        times: (a,) timestamps.
        counts: (a,) numbers of reports.
        reports: the reports of each document in log order.
        found: (a,) each, indices of the records' documents, and of cells in `Segments.cells`; None if
            `Accepting.plain`.
        at: (a,) indices of the records among all decoded ones; None if all are accepted.
    """

    accepting: Accepting
    times: Ints
    counts: Ints
    reports: Sequence[npt.NDArray[np.void]]
    found: tuple[npt.NDArray[np.int16], npt.NDArray[np.int32]] | None
    at: npt.NDArray[np.intp] | None

    @classmethod
    def of(cls, accepting: Accepting, decoded: frames.DecodedBatch, times: Ints) -> "Accepted":
        """Returns the accepted records of a decoded batch; O(records)."""
        counts, found = decoded.counts, None if accepting.plain else (decoded.document, decoded.segment)
        if not np.count_nonzero(decoded.verdicts):
            return cls(accepting, times, counts, decoded.reports, found, None)
        at = np.flatnonzero(decoded.verdicts == 0)
        found = found and (found[0][at], found[1][at])
        return cls(accepting, times[at], counts[at], decoded.reports, found, at)

    def until(self, n: int) -> "Accepted":
        """Returns the first n records."""
        counts, found = self.counts[:n], self.found and (self.found[0][:n], self.found[1][:n])
        document = np.zeros(n, np.int16) if found is None else found[0]
        sizes = [int(counts[document == i].sum()) for i in range(len(self.reports))]
        reports = [each[:size] for each, size in zip(self.reports, sizes, strict=True)]
        return self._replace(times=self.times[:n], counts=counts, reports=reports, found=found)

    @property
    def total(self) -> int:
        """The number of reports."""
        return sum(map(len, self.reports))

    def runs(self, placed: Placed | None) -> Sequence[Runs]:
        """Returns the cells of each document's reports; O(records).

        ``placed`` has the panes of the reports of all documents; None without panes.
        """
        if placed is None and not self.accepting.segmented:
            return [([(0, 0)], [len(each)], np.array([[0], [len(each)]])) for each in self.reports]
        whole = np.array([[0], [self.total]])
        sizes, runs = ([self.total], whole) if placed is None else (placed.sizes, placed.runs)
        if self.found is None:
            return [([(pane, 0) for pane in range(len(sizes))], sizes, runs)]
        shape = len(self.reports), len(sizes), len(self.accepting.segments.cells)
        return spread(*self.found, self.counts, runs, shape)
