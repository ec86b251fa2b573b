"""Invariants: what holds of every state that counting can reach, and so of whatever is stored.

A checksum shows that stored bytes changed. An invariant shows that they were wrong when they were written, or that they
were written together with a checksum by another program. Only what follows from the rules of counting is demanded,
gaps, imports and changed rules included: a state that breaks one is damaged for certain.
"""

from collections.abc import Iterator
from itertools import pairwise

import ldp
from ldp.counts import checked_state
from worker.counting.lateness import AGES, OLDER
from worker.counting.partition_state import PartitionState
from worker.counting.ports import StateLost
from worker.counting.windows import ALL, TIME_ENDS, pane_of

_MOST = (1 << 63) - 1


def demand_state(stream: ldp.Stream, state: PartitionState) -> None:
    """Demands that counting can reach a state; O(state).

    Raises:
        StateLost: it cannot, and why.
    """
    if (why := next(impossible(stream, state), None)) is not None:
        raise StateLost(f"counting cannot reach what is stored: {why}")


def impossible(stream: ldp.Stream, state: PartitionState) -> Iterator[str]:
    """Yields why counting cannot reach a state; nothing if it can.

    Example:
        >>> stream = ldp.Stream("colours", ldp.GRR("1", 3))
        >>> state = PartitionState.fresh(stream, 5)
        >>> list(impossible(stream, state))
        []
        >>> state.cells["all"].reports = 1
        >>> next(impossible(stream, state))
        "'all': counts sum to 0; each report supports one value, so allowed is n = 1"
    """
    yield from _numbers(state)
    yield from _times(state)
    yield from _cells(stream, state)
    yield from _sums(state)


def _whole(value: object, least: int = 0, most: int = _MOST) -> bool:
    """Returns whether a value is an integer between two others, and no bool."""
    return type(value) is int and least <= value <= most


def _numbers(state: PartitionState) -> Iterator[str]:
    for name in ("start", "offset", "accepted", "undated", "closed", "dropped"):
        if not _whole(value := getattr(state, name)):
            yield f"{name} is {value!r}; allowed is 0 to 2**63 - 1"
    for name in ("rejected", "late", "since"):
        for key, value in getattr(state, name).items():
            if not _whole(value):
                yield f"{name} has {key}: {value!r}; allowed is 0 to 2**63 - 1"
    if unknown := state.late.keys() - {*AGES, OLDER}:
        yield f"late has the ages {sorted(unknown)}"
    for name in ("gaps", "around", "readmitted"):
        for one, other in getattr(state, name):
            if not _whole(one) or not (_whole(other) or (name == "around" and other is None)):
                yield f"{name} has {(one, other)!r}"


def _times(state: PartitionState) -> Iterator[str]:
    """Offsets and times, in their order."""
    edges = [state.start, *(offset for gap in state.gaps for offset in gap), state.offset]
    if any(a > b for a, b in pairwise(edges)) or any(a == b for a, b in state.gaps):
        yield f"gaps {state.gaps} do not ascend within [{state.start}, {state.offset})"
    if len(state.around) != len(state.gaps):
        yield f"there are {len(state.gaps)} gaps, and the times around {len(state.around)}"
    if any(not state.start <= at <= state.offset for at, _ in state.readmitted):
        yield f"readmitted at {state.readmitted}, outside of [{state.start}, {state.offset}]"
    if state.watermark is not None and not _whole(state.watermark, -1, TIME_ENDS - 1):
        yield f"watermark is {state.watermark!r}; allowed is -1 to {TIME_ENDS - 1}"
    if state.floor is not None and not _whole(state.floor, 0, state.closed):
        yield f"floor is {state.floor!r}; allowed is 0 to closed, {state.closed}"
    if state.dropped > state.closed:
        yield f"dropped is {state.dropped}; allowed is 0 to closed, {state.closed}"


def _cells(stream: ldp.Stream, state: PartitionState) -> Iterator[str]:
    windowings = [rule.terms.windowing for rule in state.rules]
    lengths = {windowing.pane for windowing in windowings if windowing is not None}
    for name, cell in state.cells.items():
        try:
            pane = pane_of(name)
            if not _whole(cell.reports):
                yield f"{name!r}: it has {cell.reports} reports"
            checked_state(stream.oracle, cell.reports, cell.state)
        except ValueError as error:
            yield f"{name!r}: {error}"
            continue
        if pane is None:
            continue
        if pane.length not in lengths or pane.start % pane.length:
            yield f"{name!r} is no pane of the windows that there are"
        if pane.end <= state.dropped:
            yield f"{name!r} ends at or before dropped, {state.dropped}"
        if state.watermark is None or pane.start > state.watermark:
            yield f"{name!r} begins beyond the watermark, {state.watermark}"


def _sums(state: PartitionState) -> Iterator[str]:
    """What numbers of records and of reports are to each other: each record has a report or more."""
    if ALL not in state.cells:
        yield f"the counts are {sorted(state.cells)}; {ALL!r} is not among them"
        return
    accepted, outside = state.accepted, sum(state.late.values()) + state.undated
    passed = state.offset - state.start - sum(end - begin for begin, end in state.gaps)
    if (records := accepted + sum(state.rejected.values())) > passed:
        yield f"{records} records were read at {passed} offsets"
    if outside > accepted:
        yield f"{outside} records are late or undated, of {accepted} accepted ones"
    if outside > state.cells[ALL].reports:
        yield f"{outside} records are in no pane, with {state.cells[ALL].reports} reports"
    if (accepted > 0) != (state.watermark is not None):
        yield f"the watermark of {accepted} accepted records is {state.watermark}"
    limits = [rule.terms.most_reports or _MOST for rule in state.rules if rule.offset < state.offset]
    most = min(_MOST, accepted * max(limits, default=0))
    if not accepted <= state.reports <= most:
        yield f"{accepted} accepted records have {state.reports} reports; allowed is {accepted} to {most}"
