"""Decides which windows are final at a cut, and updates window progress.

A window is final once every partition has closed it. For each window name, the head records the time up to which
windows are closed. This time never goes back. The clock matters in one case only: a partition has reached its limit of
panes, and all partitions that keep the oldest windows open are idle. These windows are then closed as bounded.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ldp.snapshot import Closed, Period
from worker.counting import windows
from worker.counting.head import Head
from worker.counting.partition_state import PartitionState
from worker.counting.windows import MOST_AT_ONCE, Window


@dataclass(frozen=True)
class Due:
    """A window that a snapshot may publish.

    Attributes:
        period: the window.
        complete: whether every report of the window below the partitions' offsets is counted in the window.
    """

    period: Period
    complete: bool


@dataclass(frozen=True)
class WindowProgress:
    """The window progress of a cut.

    Attributes:
        floors: partition in the next head -> the time at which the partition's windows begin.
        progress: window name -> progress in the next head, with the starts of windows that are already on the topic.
        due: windows that become final, and open windows that may have changed; in order of time for each name.
        reached: the highest time up to which windows were closed.
        come: the current event time, to compute the ages of final windows.
        closed: panes that end at or before this time are closed in every partition, and in those admitted later.
        merged: the highest end of panes that were evicted or closed as bounded, perhaps before they were closed.
    """

    floors: Mapping[int, int]
    progress: Mapping[str, Closed]
    due: Sequence[Due]
    reached: int
    come: int
    closed: int
    merged: int


def decide(
    head: Head,
    states: Mapping[int, PartitionState],
    partitions: Sequence[int],
    still: Callable[[int], bool],
) -> WindowProgress | None:
    """Returns a stream's window progress; O(partitions · panes · windows).

    The windows of a name are published only if every partition counts windows of this name.

    Args:
        head: the newest head.
        states: the partitions that have a state.
        partitions: all partitions of the topic.
        still: returns whether a partition is idle.

    Returns:
        The progress; None if the head admits no partition, and no partition has or will have windows.
    """
    # a state that was rolled back may still reach windows that its newest rule lacks
    if not head.floors and not any(s.windowing or s.waits_at is not None for s in states.values()):
        return None
    progress, due = dict(head.progress), list[Due]()
    # partitions admitted now begin where windows were closed, not where added windows begin
    floor = reached = head.reached or 0
    for name in sorted({name for state in states.values() for name in state.windows.first_start}):
        window = windows.parse(name)
        # added windows begin at the latest start of all partitions, which is a future start if a state lacks them
        since = max(_first_start(window, state) for state in states.values())
        old = head.progress.get(name, Closed(0))
        before = Closed(max(old.closed, since - window.every + window.length), old.bounded, old.starts)
        progress[name] = _next_progress(window, before, head, states, partitions, still)
        if progress[name].closed > before.closed:
            reached = max(reached, progress[name].closed)
        if all(name in state.windows.first_start for state in states.values()):
            first = max(since, *(state.windows.evicted_to for state in states.values()))
            due += _due(window, before, progress[name], first, states)
    floors = {p: head.floors.get(p, floor) for p in {*partitions, *head.floors}}
    come = _event_time(reached, states.values())
    closed = min(
        (states[p].windows.closed if p in states and p in head.floors else 0 for p in floors), default=0
    )
    return WindowProgress(
        floors, progress, due, reached, come, min(closed, reached), _merged(progress, states.values())
    )


def _merged(progress: Mapping[str, Closed], states: Collection[PartitionState]) -> int:
    """Returns the highest end of evicted panes and of bounded windows.

    If no partition counts windows any longer, it covers all panes: no partition closes the open ones.
    """
    bounded = (
        line.bounded[-1][1] - windows.parse(name).every for name, line in progress.items() if line.bounded
    )
    open_panes = (pane.end for state in states for pane in state.panes)
    left = () if any(state.windowing for state in states) else open_panes
    return max((*bounded, *left, *(state.windows.evicted_to for state in states)), default=0)


def _event_time(reached: int, states: Collection[PartitionState]) -> int:
    if any(state.windowing for state in states):
        return reached
    return max(reached, min((state.windows.watermark or 0 for state in states), default=0))


def _first_start(window: Window, state: PartitionState) -> int:
    if window.name in state.windows.first_start:
        return state.windows.first_start[window.name]
    return 0 if state.windows.watermark is None else window.next_start(state.windows.watermark)


def _next_progress(
    window: Window,
    before: Closed,
    head: Head,
    states: Mapping[int, PartitionState],
    partitions: Sequence[int],
    still: Callable[[int], bool],
) -> Closed:
    # a partition without a state or these windows, or without admission, has closed nothing
    having = {p: state for p, state in states.items() if window.name in state.windows.first_start}
    own = {
        p: having[p].windows.closed if p in having and p in head.floors else 0
        for p in {*partitions, *head.floors}
    }
    passed = max(before.closed, window.last_end(min(own.values(), default=0)))
    # close at most `MOST_AT_ONCE` windows with reports; windows without reports do not count
    ends = sorted({start + window.length for start in _starts_with_reports(window, having)})
    ends = [end for end in ends if before.closed < end <= passed]
    if len(ends) > MOST_AT_ONCE:
        return Closed(ends[MOST_AT_ONCE - 1], before.bounded, before.starts)
    oldest = [min(state.panes).end for state in having.values() if state.full]
    if not oldest:
        return Closed(passed, before.bounded, before.starts)
    # the last window that overlaps the oldest pane of a full partition; no window contains a longer pane of former ones
    wanted = window.last_end(min(oldest) - 1 + window.length)
    holding = [p for p, closed in own.items() if closed < wanted]
    if wanted <= passed or not holding or not all(map(still, holding)):
        return Closed(passed, before.bounded, before.starts)
    *others, last = before.bounded or ((0, 0),)
    begin, end = passed + window.every, wanted + window.every
    ranges = (*others, (last[0], end)) if last[1] == begin else (*before.bounded, (begin, end))
    return Closed(wanted, ranges, before.starts)


def _due(
    window: Window, before: Closed, after: Closed, first: int, states: Mapping[int, PartitionState]
) -> Iterator[Due]:
    """Yields the windows of a name that become final or are still open."""
    for start in sorted(_starts_with_reports(window, states)):
        end = start + window.length
        # only windows with reports
        if start >= first and end > before.closed:
            whole = complete(start, end, states) and not after.is_bounded(end)
            yield Due(Period(window.name, start, end, end <= after.closed), whole)


def _starts_with_reports(window: Window, states: Mapping[int, PartitionState]) -> set[int]:
    panes = {pane for state in states.values() for pane in state.panes}
    return {
        start for pane in panes for start in window.starts(pane) if pane.within(start, start + window.length)
    }


def complete(start: int, end: int, states: Mapping[int, PartitionState]) -> bool:
    """Returns whether no gap of a log can contain reports of a window.

    Late reports do not count in a window, so the window must have been open before the gap. A lost report precedes the
    first report after the gap, and its timestamp is higher by at most `max_out_of_orderness` plus `grace`.
    """
    for state in states.values():
        hold = max((rule.limits.windowing.hold for rule in state.rules if rule.limits.windowing), default=0)
        for line, following in state.windows.gap_bounds:
            if end > line and (following is None or start < following + hold):
                return False
    return True


def without(progress: Mapping[str, Closed], withdrawn: Collection[Period]) -> dict[str, Closed]:
    """Returns the progress without the starts of withdrawn windows."""
    gone = {(period.name, period.start) for period in withdrawn}
    return {
        name: Closed(
            line.closed, line.bounded, tuple(start for start in line.starts if (name, start) not in gone)
        )
        for name, line in progress.items()
    }


def kept(
    progress: Mapping[str, Closed],
    published: Sequence[Period],
    retain: int | None,
    come: int,
    most: int | None = None,
) -> tuple[dict[str, Closed], list[Period]]:
    """Returns the progress without expired windows, and the expired windows.

    Args:
        progress: the progress in the next head, with the starts of windows that are already on the topic.
        published: the windows that the snapshot publishes.
        retain: lifetime of a window after its end, in milliseconds. None: forever, and no starts are recorded.
        come: the current event time.
        most: maximum number of windows to delete for each name, the oldest first; None for all.
    """
    if retain is None:
        return {name: Closed(line.closed, line.bounded) for name, line in progress.items()}, []
    after, gone = dict(progress), list[Period]()
    for name, line in progress.items():
        length = windows.parse(name).length
        fresh = {period.start for period in published if period.name == name and period.start is not None}
        # windows published now stay at least until the next snapshot
        over = [start for start in line.starts if start + length + retain <= come and start not in fresh]
        old = sorted(over)[:most]
        gone += [Period(name, start, start + length, final=True) for start in old]
        starts = sorted({*line.starts, *fresh} - {*old})
        after[name] = Closed(line.closed, line.bounded, tuple(starts))
    return after, gone
