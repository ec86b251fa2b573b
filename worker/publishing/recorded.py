"""The recorded documents and segments of a stream, and its counts by them.

The head lists the documents in the order in which they were recorded. A publisher appends documents that the head does
not list yet, the oldest first. The labels are joined in this order, so an index keeps its label.
"""

import functools
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import ldp
from ldp.fleet import FleetEstimate
from ldp.query import Query, SetQuery
from ldp.segments import REST, prefixes
from ldp.snapshot import Period, part_of
from worker.counting import rules
from worker.counting.cells import Cell, Segment
from worker.counting.head import Head
from worker.counting.partition_state import PartitionState

Cells = Mapping[str, Mapping[Segment, Cell]]
"""Counts by fingerprint and segment."""


@dataclass(frozen=True)
class Part:
    """A document or a segment, which is published in addition to the stream.

    Attributes:
        name: the name in place of the stream's name.
        fleet: the document, or all documents for a segment.
        segment: the segment, which includes its subsegments; None for a document.
    """

    name: str
    fleet: ldp.Fleet
    segment: Segment | None = None


@dataclass(frozen=True)
class Recorded:
    """The documents and segments that the head or the counts record.

    Attributes:
        fleet: the documents in the order of the head.
        segments: segments that were ever declared, and their prefixes, in order.
        unnamed: fingerprints that the configuration does not name; `fleet` lacks these documents.
    """

    fleet: ldp.Fleet
    segments: Sequence[str] = ()
    unnamed: Sequence[str] = ()

    @classmethod
    def of(cls, head: Head, states: Iterable[PartitionState], configured: ldp.Fleet) -> Self:
        """Returns the documents and segments of a head and of all partitions."""
        oldest_first = {document.fingerprint.hex(): document for document in reversed(configured.documents)}
        joined = [rules.joined(state.rules) for state in states]
        documents = {name for own, _ in joined for name in own}
        order = dict.fromkeys(
            [*head.documents, *(name for name in oldest_first if name in documents), *sorted(documents)]
        )
        named = [oldest_first[name] for name in order if name in oldest_first]
        status = {name: max(own[name] for own, _ in joined if name in own) for name in documents}
        retired = frozenset(bytes.fromhex(name) for name, of_all in status.items() if of_all.retired)
        return cls(
            ldp.Fleet(tuple(named or configured.documents[-1:]), retired),
            sorted({prefix for _, own in joined for name in own for prefix in prefixes(name)}),
            [name for name in order if name not in oldest_first],
        )

    @functools.cached_property
    def parts(self) -> list[Part]:
        """The documents, if there are several, and the segments."""
        fleet, name = self.fleet, self.fleet.documents[0].name
        documents = fleet.documents if len(fleet.documents) > 1 else ()
        return [
            Part(part_of(name, document=each.fingerprint.hex()), ldp.Fleet((each,), fleet.retired))
            for each in documents
        ] + [Part(part_of(name, segment=each), fleet, each) for each in self.segments]

    @property
    def fingerprints(self) -> list[str]:
        """The fingerprints of the documents, in order."""
        return [document.fingerprint.hex() for document in self.fleet.documents]


@dataclass(frozen=True)
class Counted:
    """The counts of a period to publish, by document and segment.

    Attributes:
        fleet: the documents.
        cells: the counts; documents without counts can be absent.
        window: the period.
        supports: whether the counts are supports of values instead of states of the oracle.
        withheld: the numbers of reports of the period that are not released; None without a limit.
    """

    fleet: ldp.Fleet
    cells: Cells
    window: Period = Period()  # noqa: RUF009  # frozen
    supports: bool = False
    withheld: Self | None = None

    @property
    def n(self) -> int:
        """The number of reports."""
        return self.reports()

    def reports(self, part: Part | None = None) -> int:
        """Returns the number of reports, also of a part."""
        documents = self.fleet.documents if part is None else part.fleet.documents
        return sum(cell.reports for document in documents for cell in self._of(document, part))

    def rest_ratio(self, segments: Collection[str]) -> float | None:
        """Returns the share of the reports with a segment that are in a rest.

        A declared segment without declared subsegments has no rest. None without reports that have a segment.
        """
        whole = {f"{each}:{REST}" for each in segments} - {
            f"{prefix}:{REST}" for each in segments for prefix in prefixes(each) if prefix != each
        }
        reports = Counter[bool]()
        for cells in self.cells.values():
            for name, cell in cells.items():
                if name:
                    reports[name.endswith(REST) and name not in whole] += cell.reports
        return reports[True] / reports.total() if reports.total() else None

    def left_out(self, part: Part | None = None) -> int | None:
        """Returns the number of reports that are not released, also of a part."""
        return None if self.withheld is None else self.withheld.reports(part)

    def estimate(self, part: Part | None = None) -> ldp.Estimate | FleetEstimate:
        """Returns the estimate for the stream or a part, which must have reports.

        It is that of the only document, or of the fleet.
        """
        documents = self.fleet.documents if part is None else part.fleet.documents
        estimates = [self._estimate(document, part) for document in documents]
        if len(documents) > 1:
            return self.fleet.estimate(estimates)
        assert estimates[0] is not None
        return estimates[0]

    def _estimate(self, document: ldp.Stream, part: Part | None) -> ldp.Estimate | None:
        oracle, total = document.oracle, _sum(self._of(document, part))
        if total is None or not total.reports:
            return None
        supports = total.state if self.supports else oracle.support(total.state)
        estimate = oracle.estimate(supports, total.reports)
        if self.window.start is not None and self.window.end is not None:
            estimate = estimate.within(self.window.start, self.window.end)
        return estimate.declared(document.privacy)

    def _of(self, document: ldp.Stream, part: Part | None) -> Sequence[Cell]:
        if part is None:
            return [*self.cells.get(document.fingerprint.hex(), {}).values()]
        return self._by_part.get((document.fingerprint.hex(), part.segment), ())

    @functools.cached_property
    def _by_part(self) -> dict[tuple[str, Segment | None], list[Cell]]:
        """The cells of each document, and of each segment in it."""
        found = dict[tuple[str, Segment | None], list[Cell]]()
        for name, cells in self.cells.items():
            for segment, cell in cells.items():
                for part in (None, *prefixes(segment)):
                    found.setdefault((name, part), []).append(cell)
        return found


def _sum(cells: Sequence[Cell]) -> Cell | None:
    if len(cells) < 2:
        return cells[0] if cells else None
    total = Cell(cells[0].reports, cells[0].state.copy())
    for cell in cells[1:]:
        total.add(cell)
    return total


@functools.lru_cache(64)  # queries keep the variances of their sets
def queries_of(queries: tuple[Query, ...], configured: ldp.Fleet, fleet: ldp.Fleet) -> tuple[Query, ...]:
    """Returns queries of the configured documents for the recorded ones.

    Labels keep their meaning, but can have other indices. A query is left out until all its labels are recorded.
    """
    if configured.documents == fleet.documents:
        return queries
    size, labels = configured.size, configured.labels
    there = {name: index for index, name in enumerate(fleet.labels or range(fleet.size))}
    index = {i: there[name] for i, name in enumerate(labels or range(size)) if name in there}
    found = list[Query]()
    for query in queries:
        if not isinstance(query, SetQuery):
            found += [query] if query.k <= fleet.size else []
        elif index.keys() >= {*query.values}:
            found.append(SetQuery(query.name, tuple(index[value] for value in query.values)))
    return tuple(found)
