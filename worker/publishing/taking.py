"""Takes a planned snapshot: the messages and rows of one transaction."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import uuid4

import ldp
from ldp import snapshot
from ldp.consistency import METHODS
from ldp.snapshot import LATE, Message, Period, Recommended, Row, Snapshot
from worker.counting.cells import Cell
from worker.counting.head import named
from worker.publishing import window_progress
from worker.publishing.planning import Content, Plan
from worker.publishing.release import Counts
from worker.publishing.window_progress import Due


@dataclass(frozen=True)
class Taken:
    """A snapshot to send.

    Attributes:
        snapshot: the snapshot of all time.
        messages: messages for the snapshot topic.
        rows: records for the topic of rows.
        estimate: the estimate of all time; None for a head without a snapshot.
        finals: the complete windows that become final, with their estimates.
    """

    snapshot: Snapshot
    messages: Sequence[Message]
    rows: Sequence[Row] = ()
    estimate: ldp.Estimate | None = None
    finals: Sequence[tuple[Period, ldp.Estimate]] = ()


def announce(fleet: ldp.Fleet, plan: Plan, content: Content, lineage: str) -> Taken:
    """Returns a head that admits partitions, without a snapshot."""
    head = plan.head
    rows, methods = content.rows.carried(head), _recorded(head.methods)
    cut = replace(plan.cut, rows=rows, methods=methods)
    if plan.release is None:
        cut = replace(cut, progress=head.progress, reached=head.reached)
    origin = named(fleet, lineage)
    taken = snapshot.announce(
        fleet.documents[0], cut, head.sequence + 1, origin, uuid4().hex, published=_now()
    )
    return Taken(taken, snapshot.encode(taken))


def take(
    fleet: ldp.Fleet,
    plan: Plan,
    due: Sequence[Due],
    content: Content,
    lineage: str,
    recommended: Mapping[str, Recommended],
    there: Callable[[], Iterable[bytes]],
    heartbeat: Callable[[], object],
) -> Taken:
    """Takes snapshots of all time and windows; O(windows · methods · values).

    Args:
        fleet: the configured documents.
        plan: the planned cut.
        due: the windows to write.
        content: the configured content.
        lineage: the lineage of the counts.
        recommended: the recommendations by query name.
        there: returns the keys of the stream's rows on the topic of rows.
        heartbeat: called between slices of long work.
    """
    head, most, (stream,) = plan.head, content.rows.most_windows, fleet.documents
    periods, come = [one.period for one in due], 0 if plan.windows is None else plan.windows.come
    progress = window_progress.without(plan.cut.progress, plan.withdrawn)
    after, gone = window_progress.kept(progress, periods, content.retain, come, most)
    planned = content.rows.plan(fleet.name, head, after, periods, content.retain, come, there)
    of = partial(
        _take_rounded,
        stream,
        cut=replace(plan.cut, progress=after, rows=planned.rows, methods=_recorded(content.methods)),
        sequence=head.sequence + 1,
        queries=content.queries,
        level=content.level,
        methods=content.methods,
        lineage=named(fleet, lineage),
        identity=uuid4().hex,
        published=_now(),
    )
    estimate = _all_time(stream, plan)
    taken = of(estimate=estimate, recommended=recommended)
    # the head lists the methods that can have bodies: delete the bodies of former methods, also of open windows
    former = [method for method in head.methods if method not in content.methods]
    messages = snapshot.encode(taken) + snapshot.delete_window(taken, taken.window, former)
    sent, finals = [*planned.of(taken), *planned.stale], list[tuple[Period, ldp.Estimate]]()
    for one in (*plan.without_window, *due):
        heartbeat()
        part, withheld = _window(stream, plan, one.period)
        whole = plan.is_complete(one)
        of_window = replace(of(estimate=part, window=one.period, complete=whole), withheld=withheld)
        # tombstones first: a reader that lists windows by their messages drops a window at its tombstone
        messages += snapshot.delete_window(taken, one.period, former)
        messages += snapshot.encode_window(of_window)
        sent += planned.of(of_window)
        finals += [(one.period, part)] if one.period.final and whole else []
    for period in (*plan.withdrawn, *gone):
        messages += snapshot.delete_window(taken, period)
        sent += planned.deleted(period)
    return Taken(taken, messages, sent, estimate, finals)


def _all_time(stream: ldp.Stream, plan: Plan) -> ldp.Estimate:
    if plan.release is None:
        return _estimate(stream, plan.stored.total(stream), Period())
    return _of_supports(stream, plan.release.counts)


def _of_supports(stream: ldp.Stream, counts: Counts) -> ldp.Estimate:
    return stream.oracle.estimate(counts.vector.ravel(), counts.n).declared(stream.privacy)


def _window(stream: ldp.Stream, plan: Plan, window: Period) -> tuple[ldp.Estimate, int | None]:
    """Returns a window's estimate, and the number of reports withheld from it."""
    if plan.release is None:
        return _estimate(stream, plan.stored.total(stream, window.start, window.end), window), None
    if window == LATE:
        assert plan.late is not None
        return _of_supports(stream, plan.late), None
    counts, withheld = plan.counts(window)
    return _estimate(stream, Cell(counts.n, counts.vector.ravel()), window), withheld


def _take_rounded(stream: ldp.Stream, **given: Any) -> Snapshot:
    return snapshot.rounded(snapshot.take(stream, **given))


def _estimate(stream: ldp.Stream, counts: Cell, window: Period) -> ldp.Estimate:
    estimate = stream.oracle.estimate(stream.oracle.support(counts.state), counts.reports)
    if window.start is not None and window.end is not None:
        estimate = estimate.within(window.start, window.end)
    return estimate.declared(stream.privacy)


def _now() -> int:
    """Returns the time in ms since the epoch; no decision depends on it."""
    return time.time_ns() // 1_000_000


def _recorded(methods: Sequence[str]) -> tuple[str, ...] | None:
    """Returns the methods that a head records; None for all."""
    return tuple(methods) if len(methods) < len(METHODS) else None
