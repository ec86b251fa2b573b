"""Applies the rule of `worker.publishing.release` to a stream's segments."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial

import ldp
from ldp.privacy.summary import DELTA, rounded_up, to_readers
from ldp.snapshot import PrivacyLoss
from worker.counting.cells import Cell
from worker.counting.ports import Unavailable
from worker.publishing import release
from worker.publishing.planning import Plan
from worker.publishing.release import Counts, Rest, Shown
from worker.publishing.released_cells import Key

Published = Mapping[Key, Shown]
"""The newest published counts; documents and segments without published reports can be absent."""


def releasing(plan: Plan, published: Published | None, fewest: int) -> Plan:
    """Returns the plan that changes published counts by at least ``fewest``.

    ``published`` is None if only the published numbers of reports by document are known: the messages of a snapshot
    without a limit do not show the counts of each document and segment. The limit then begins with a snapshot of all
    counts. It waits until each document has no new report, or enough that name no segment.

    Raises `Unavailable`: the increment of a document is too small, or reports of it name segments.
    """
    head, lost = plan.head, release.lost_offsets(plan.cut.gaps)
    documents = dict(zip(plan.recorded.fingerprints, plan.recorded.fleet.documents, strict=True))
    cuts, record = _cuts(plan, documents, lost, published or ()), head.released
    before = _all_counts(plan, cuts, documents, fewest) if published is None else {**published}
    if record is None:
        counted = any(own.counts.n for own in before.values())
        record = release.begin(pane for cut in cuts.values() for pane in cut.panes if counted)
        before = {
            key: replace(own, rest=replace(own.rest, closed=record.closed)) for key, own in before.items()
        }
    elif plan.lossy:
        # later windows contain none of the published reports
        record = release.hide(record)
        before = {key: replace(own, late=own.counts) for key, own in before.items()}
    again = head.released is None or plan.lossy
    found, changed = dict[Key, release.Release](), set[Key]()
    for key, cut in cuts.items():
        support = partial(_supports, documents[key[0]])
        nothing = support(cut.total - cut.total)
        own = before.get(key, Shown(nothing, nothing))
        found[key] = release.release(record, own, cut, fewest, support)
        shown = found[key].shown
        # a message of a segment without released reports would show that it has others
        if _facts(shown) != _facts(own) or (again and shown.counts.n):
            changed.add(key)
    released, loss = next(iter(found.values())).head, _loss(documents.values(), fewest)
    recorded = replace(plan.cut, released=released, privacy_loss=loss)
    return replace(plan, cut=recorded, release=found, changed=changed)


def _cuts(
    plan: Plan, documents: Mapping[str, ldp.Stream], lost: int, published: Collection[Key]
) -> dict[Key, release.Cut]:
    """Returns the cut of each counted or published segment; O(cells · state).

    Each document has the cut of the empty segment, too.
    """
    windows, totals, panes = plan.windows, plan.stored.totals(), plan.stored.panes()
    closed, merged = (0, 0) if windows is None else (windows.closed, windows.merged)
    cuts = dict[Key, release.Cut]()
    for name, document in documents.items():
        segments = {"", *totals.get(name, ()), *(segment for other, segment in published if other == name)}
        for segment in sorted(segments):
            total = totals.get(name, {}).get(segment, Cell(0, document.oracle.zeros()))
            own = {
                pane: _counts(cell)
                for pane, cells in panes.items()
                if (cell := cells.get(name, {}).get(segment)) is not None
            }
            cuts[name, segment] = release.Cut(plan.cut.offsets, _counts(total), own, closed, merged, lost)
    return cuts


def _counts(cell: Cell) -> Counts:
    return Counts(cell.reports, cell.state)


def _supports(document: ldp.Stream, states: Counts) -> Counts:
    return Counts(states.n, document.oracle.support(states.vector))


def _facts(shown: Shown) -> tuple[int, int, Rest]:
    """Returns numbers that differ if the counts differ: counts only grow."""
    return shown.counts.n, shown.late.n, shown.rest


def _all_counts(
    plan: Plan, cuts: Mapping[Key, release.Cut], documents: Mapping[str, ldp.Stream], fewest: int
) -> dict[Key, Shown]:
    """Returns all counts of the documents that the head has reports of.

    Raises `Unavailable` for a document with a few new reports, or new reports that name segments.
    """
    head, found = plan.head, dict[Key, Shown]()
    lost = release.lost_offsets(plan.cut.gaps) - release.lost_offsets(head.gaps)
    for name in filter(head.counted.get, documents):
        own = {key: cut for key, cut in cuts.items() if key[0] == name}
        new = sum(cut.total.n for cut in own.values()) - head.counted[name]
        if (new or lost) and (new - lost < fewest or any(segment for _, segment in own)):
            raise Unavailable(
                f"fewest_new is {fewest}, but document {name} has {new} new reports since snapshot {head.sequence}. The"
                " limit begins with a snapshot in which no document has a few new reports, and none new reports that"
                " name a segment",
                "wait for reports, or set fewest_new before the stream has a second document or segments",
            )
        for key, cut in own.items():
            counts = _supports(documents[name], cut.total)
            found[key] = Shown(counts, counts, Rest(0, dict(cut.offsets), cut.lost))
    return found


def _loss(documents: Collection[ldp.Stream], fewest: int) -> PrivacyLoss:
    """Returns the largest privacy loss of a report of any document."""
    readers = [to_readers(document.oracle, document.privacy, fewest) for document in documents]
    operator = max(document.oracle.epsilon for document in documents)
    known = [epsilon for epsilon in readers if epsilon is not None]
    worst = rounded_up(max(known)) if len(known) == len(readers) else None
    return PrivacyLoss(fewest, rounded_up(operator), worst, DELTA)
