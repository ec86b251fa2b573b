"""Applies the rule of `worker.publishing.release` to several documents."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial

import ldp
from ldp.privacy.summary import DELTA, rounded_up, to_readers
from ldp.snapshot import PrivacyLoss, Rest
from worker.counting.cells import Cell, Segment
from worker.counting.ports import Unavailable
from worker.publishing import release
from worker.publishing.planning import Plan
from worker.publishing.release import Counts


@dataclass(frozen=True)
class Published:
    """The newest published counts by fingerprint, as supports.

    Attributes:
        total: the counts of all time; documents without published reports can be absent.
        late: the part of them that is in no window.
    """

    total: Mapping[str, Counts]
    late: Mapping[str, Counts]


def releasing(plan: Plan, published: Published | None, fewest: int) -> Plan:
    """Returns the plan that changes published counts by at least ``fewest``.

    ``published`` is None if only the published numbers of reports are known: with several documents, the messages of a
    snapshot without a limit do not show the counts of each. The limit then begins with a snapshot of all counts. It
    waits until each document has no new report, or enough.

    Raises `Unavailable`: the increment of a document is too small, or reports name segments.
    """
    head, lost = plan.head, release.lost_offsets
    documents = dict(zip(plan.recorded.fingerprints, plan.recorded.fleet.documents, strict=True))
    cuts = _cuts(plan, documents)
    last = head.offsets, lost(head.gaps)
    if published is None:
        total = {name: _supports(documents[name], cut.total) for name, cut in cuts.items()}
        _demand_increments(plan, total, fewest)
        published, last = Published(total, total), (plan.cut.offsets, lost(plan.cut.gaps))
    before = _of_all(published.total, documents)
    panes = {pane for cut in cuts.values() for pane in cut.panes}
    record = head.released or release.begin([*before.values()], *last, panes)
    # after a loss, and if the limit begins, later windows contain none of the published reports
    none_later = plan.lossy or head.released is None
    late = before if none_later else _of_all(published.late, documents)
    record = release.hide(record) if plan.lossy else record
    marks, found = iter(record.rest), {}
    for name, cut in cuts.items():
        own = replace(record, rest=(next(marks, Rest(0, {})),))  # the mark of a new document is at the start
        found[name] = release.release(own, before[name], cut, fewest, partial(_supports, documents[name]))
    rest = tuple(mark for each in found.values() for mark in each.head.rest)
    released = replace(next(iter(found.values())).head, rest=rest)
    recorded = replace(plan.cut, released=released, privacy_loss=_loss(documents.values(), fewest))
    total = {name: late[name] + each.rest for name, each in found.items()}
    return replace(plan, cut=recorded, release=found, late=total)


def _of_all(published: Mapping[str, Counts], documents: Mapping[str, ldp.Stream]) -> dict[str, Counts]:
    """Returns the published counts of all documents."""
    return {
        name: published[name]
        if name in published
        else Counts(0, document.oracle.support(document.oracle.zeros()))
        for name, document in documents.items()
    }


def _cuts(plan: Plan, documents: Mapping[str, ldp.Stream]) -> dict[str, release.Cut]:
    """Returns the cut of each document; O(cells · state)."""
    windows, totals, panes = plan.windows, plan.stored.totals(), plan.stored.panes()
    closed, merged = (0, 0) if windows is None else (windows.closed, windows.merged)
    cuts = {}
    for name, document in documents.items():
        own = {pane: _counts(document, cells[name]) for pane, cells in panes.items() if name in cells}
        total, lost = _counts(document, totals.get(name, {})), release.lost_offsets(plan.cut.gaps)
        cuts[name] = release.Cut(plan.cut.offsets, total, own, closed, merged, lost)
    return cuts


def _counts(document: ldp.Stream, cells: Mapping[Segment, Cell]) -> Counts:
    if named := next(filter(None, cells), None):
        raise Unavailable(
            f"fewest_new cannot limit the published counts of segments, but {named} is counted",
            "remove fewest_new, or the key segment of the documents",
        )
    cell = cells.get("", Cell(0, document.oracle.zeros()))
    return Counts(cell.reports, cell.state)


def _supports(document: ldp.Stream, states: Counts) -> Counts:
    return Counts(states.n, document.oracle.support(states.vector))


def _demand_increments(plan: Plan, total: Mapping[str, Counts], fewest: int) -> None:
    """Raises `Unavailable` for a document with a few new reports."""
    lost = release.lost_offsets(plan.cut.gaps) - release.lost_offsets(plan.head.gaps)
    for name, counts in total.items():
        new = counts.n - plan.head.counted.get(name, 0)
        if (new or lost) and new - lost < fewest:
            raise Unavailable(
                f"fewest_new is {fewest}, but document {name} has {new} new reports since snapshot"
                f" {plan.head.sequence}. The limit begins with a snapshot in which no document has a few new reports",
                "wait for reports, or set fewest_new before the stream has a second document",
            )


def _loss(documents: Collection[ldp.Stream], fewest: int) -> PrivacyLoss:
    """Returns the largest privacy loss of a report of any document."""
    readers = [to_readers(document.oracle, document.privacy, fewest) for document in documents]
    operator = max(document.oracle.epsilon for document in documents)
    known = [epsilon for epsilon in readers if epsilon is not None]
    worst = rounded_up(max(known)) if len(known) == len(readers) else None
    return PrivacyLoss(fewest, rounded_up(operator), worst, DELTA)
