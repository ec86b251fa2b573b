"""Takes a planned snapshot: the messages and rows of one transaction."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from uuid import uuid4

import numpy as np

import ldp
from ldp import snapshot
from ldp.consistency import METHODS
from ldp.fleet import FleetEstimate
from ldp.snapshot import ALL_TIME, LATE, Cut, Message, Period, Recommended, Row, Snapshot
from worker.counting.head import named
from worker.publishing import released_cells, window_progress
from worker.publishing.planning import Content, Plan
from worker.publishing.recorded import Counted, Part
from worker.publishing.release import Counts, Shown
from worker.publishing.window_progress import Due

Estimated = ldp.Estimate | FleetEstimate


@dataclass(frozen=True)
class Taken:
    """A snapshot to send.

    Attributes:
        snapshot: the snapshot of all time.
        messages: messages for the snapshot topic.
        rows: records for the topic of rows.
        estimate: the estimate of all time; None for a head without a snapshot.
        finals: the complete windows that become final, with their estimates.
        parts: part, and `all` or `late` -> number of reports that its newest messages contain, 0 without messages.
        rest_ratio: share of the reports with a segment that count in a rest; None without such reports.
    """

    snapshot: Snapshot
    messages: Sequence[Message]
    rows: Sequence[Row] = ()
    estimate: Estimated | None = None
    finals: Sequence[tuple[Period, Estimated]] = ()
    parts: Mapping[str, int] = field(default_factory=dict)
    rest_ratio: float | None = None


def announce(plan: Plan, content: Content, lineage: str) -> Taken:
    """Returns a head that admits partitions, without a snapshot."""
    head, fleet = plan.head, plan.recorded.fleet
    rows, methods = content.rows.carried(head), _recorded(head.methods)
    cut = replace(plan.cut, rows=rows, methods=methods)
    if plan.release is None:
        cut = replace(cut, progress=head.progress, reached=head.reached)
    origin = named(fleet, lineage)
    taken = snapshot.announce(fleet, cut, head.sequence + 1, origin, uuid4().hex, published=_now())
    return Taken(taken, snapshot.encode(taken) + _released(plan, taken.identity))


def take(
    plan: Plan,
    due: Sequence[Due],
    content: Content,
    lineage: str,
    recommended: Mapping[str, Recommended],
    parts: Mapping[str, int],
    there: Callable[[], Iterable[bytes]],
    heartbeat: Callable[[], object],
) -> Taken:
    """Takes a snapshot of all time and of windows.

    Args:
        plan: the plan.
        due: windows that become final, and open windows that have changed.
        content: the configured content.
        lineage: the lineage of the counts.
        recommended: the recommendations by query name.
        parts: the newest published number of reports of each part; see `Taken.parts`.
        there: returns the keys of the stream's rows on the topic of rows.
        heartbeat: called between slices of long work.
    """
    head, most, fleet = plan.head, content.rows.most_windows, plan.recorded.fleet
    periods, come = [one.period for one in due], 0 if plan.windows is None else plan.windows.come
    progress = window_progress.without(plan.cut.progress, plan.withdrawn)
    after, gone = window_progress.kept(progress, periods, content.retain, come, most)
    planned = content.rows.plan(fleet.name, head, after, periods, content.retain, come, there)
    counted = plan.counted()
    rest_ratio = counted.rest_ratio(plan.recorded.segments)
    cut = replace(plan.cut, progress=after, rows=planned.rows, methods=_recorded(content.methods))
    cut = replace(cut, **_facts_of_parts(plan, counted, content))
    of = _taker(plan, content)
    whole = partial(
        of, fleet, cut=cut, queries=content.queries, methods=content.methods, lineage=named(fleet, lineage)
    )
    estimate = counted.estimate()
    taken = whole(estimate=estimate, recommended=recommended)
    # the head lists the methods that can have bodies: delete the bodies of former methods, also of open windows
    former = [method for method in head.methods if method not in content.methods]
    messages = snapshot.encode(taken) + snapshot.delete_window(taken, taken.window, former)
    sent, finals = [*planned.of(taken), *planned.stale], list[tuple[Period, Estimated]]()
    published = _Parts(plan, content, _of_part(of, plan, cut), taken, dict(parts), heartbeat)
    messages += published.of_period(counted) + _released(plan, taken.identity)
    for one in (*plan.without_window, *due):
        heartbeat()
        counted, is_complete = plan.counted(one.period), plan.is_complete(one)
        result = counted.estimate()
        of_window = whole(estimate=result, window=one.period, complete=is_complete)
        of_window = replace(of_window, withheld=counted.left_out())
        # tombstones first: a reader that lists windows by their messages drops a window at its tombstone
        messages += snapshot.delete_window(taken, one.period, former)
        messages += snapshot.encode_window(of_window)
        messages += published.of_period(counted, is_complete)
        sent += planned.of(of_window)
        finals += [(one.period, result)] if one.period.final and is_complete else []
    for period in (*plan.withdrawn, *gone):
        messages += snapshot.delete_window(taken, period) + published.deleted(period)
        sent += planned.deleted(period)
    return Taken(taken, messages, sent, estimate, finals, published.reports, rest_ratio)


def _taker(plan: Plan, content: Content) -> partial[Snapshot]:
    """Returns a function that takes a snapshot of the stream or a part."""
    return partial(
        _take_rounded,
        sequence=plan.head.sequence + 1,
        level=content.level,
        identity=uuid4().hex,
        published=_now(),
        fewest=content.parts_fewest,
    )


def _of_part(of: partial[Snapshot], plan: Plan, cut: Cut) -> partial[Snapshot]:
    """Returns a function that takes a snapshot of a part.

    The published rules omit the first document of the stream, which can be another one than that of the part.
    """
    rules = {p: [rule.as_json() for rule in state.rules] for p, state in plan.stored.states.items()}
    return partial(of, cut=replace(cut, rules=rules))


def _facts_of_parts(plan: Plan, counted: Counted, content: Content) -> dict[str, Any]:
    """Returns the head's fields about parts; O(segments · cells)."""
    facts: dict[str, Any] = {"parts_fewest": content.parts_fewest} if plan.recorded.parts else {}
    if not plan.recorded.segments:
        return facts
    reports = {
        part.segment: counted.reports(part) for part in plan.recorded.parts if part.segment is not None
    }
    shown = {segment: n for segment, n in reports.items() if n >= content.parts_fewest}
    # a segment of the first level includes its subsegments
    return facts | {
        "segments": shown,
        "hidden": counted.n - sum(n for name, n in shown.items() if ":" not in name),
    }


@dataclass
class _Parts:
    """Publishes the parts of a snapshot.

    Attributes:
        plan: the plan.
        content: the configured content.
        of: takes a snapshot of a part.
        taken: the snapshot of all time.
        reports: as in `Taken.parts`.
        heartbeat: called after each part.
    """

    plan: Plan
    content: Content
    of: Callable[..., Snapshot]
    taken: Snapshot
    reports: dict[str, int]
    heartbeat: Callable[[], object]

    def of_period(self, counted: Counted, complete: bool | None = None) -> list[Message]:
        """Returns the messages of parts in a period.

        These are all parts with enough reports in a final window. For all time and `late`, they are parts with enough
        new reports. There, a part that this publisher never published loses messages of other methods, and if it has
        too few reports, all.
        """
        window, messages = counted.window, list[Message]()
        untimed = window in (ALL_TIME, LATE)
        for part in self.plan.recorded.parts if window.final or untimed else ():
            name, n = f"{part.name}/{window.place}", counted.reports(part)
            methods = self._methods(part) if n >= self.content.parts_fewest else ()
            if untimed:
                before = self.reports.get(name)
                if methods and before and not self._enough(n - before):
                    continue
                if before is None:
                    messages += self._delete(part, window, [one for one in METHODS if one not in methods])
                    if window == ALL_TIME and not methods:
                        messages += [Message(f"{part.name}/head", snapshot.JSON, b"", self.taken.identity)]
                self.reports[name] = n if methods else 0
            if methods:
                what = {"methods": methods, "part": part.name, "window": window, "complete": complete}
                taken = self.of(part.fleet, estimate=counted.estimate(part), **what)
                taken = replace(taken, withheld=counted.left_out(part))
                messages += (snapshot.encode if window == ALL_TIME else snapshot.encode_window)(taken)
                self.heartbeat()
        return messages

    def _enough(self, new: int) -> bool:
        """Returns whether a published part has enough new reports.

        With a limit of increments, each increment is enough.
        """
        if self.plan.release is not None:
            return new > 0
        return new >= self.content.parts_fewest or self.content.parts_fewest == 1

    def deleted(self, window: Period) -> list[Message]:
        """Returns tombstones of all parts that a window can have."""
        messages = list[Message]()
        for part in self.plan.recorded.parts:
            self.reports.pop(f"{part.name}/{window.place}", None)
            messages += self._delete(part, window, METHODS)
        return messages

    def _methods(self, part: Part) -> Sequence[str]:
        return ("base",) if part.segment is None else self.content.parts_methods

    def _delete(self, part: Part, window: Period, methods: Iterable[str]) -> list[Message]:
        return snapshot.delete_part(self.taken, part.name, window, methods)


def _released(plan: Plan, identity: str) -> list[Message]:
    """Returns the messages with the released counts, for the next publisher."""
    fleet, release = plan.recorded.fleet, plan.release
    changed = {} if release is None else {key: release[key].shown for key in plan.changed}
    if release is None and plan.head.released is not None:  # the limit ended
        totals = plan.stored.totals()
        for document in fleet.documents:
            none = Counts(0, np.zeros(document.oracle.domain_size, np.int64))
            name = document.fingerprint.hex()
            changed |= {(name, segment): Shown(none, none) for segment in ("", *totals.get(name, ()))}
    return [m for key, own in changed.items() for m in released_cells.encode(fleet.name, key, own, identity)]


def _take_rounded(fleet: ldp.Fleet, **given: Any) -> Snapshot:
    return snapshot.rounded(snapshot.take(fleet, **given))


def _now() -> int:
    """Returns the time in ms since the epoch; no decision depends on it."""
    return time.time_ns() // 1_000_000


def _recorded(methods: Sequence[str]) -> tuple[str, ...] | None:
    """Returns the methods that a head records; None for all."""
    return tuple(methods) if len(methods) < len(METHODS) else None
