"""Checks that stored states satisfy the invariants of counting.

A checksum detects bytes that changed after they were written. An invariant detects a state that was wrong when written.
All invariants follow from the rules of counting, so a state that violates one is certainly wrong.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from ldp.counts import checked_state
from ldp.segments import Segments
from worker.counting import rules
from worker.counting.lateness import AGES, OLDER
from worker.counting.partition_state import PartitionState
from worker.counting.ports import StateLost
from worker.counting.windows import TIME_ENDS

_MOST = (1 << 63) - 1


def demand_state(state: PartitionState) -> None:
    """Raises StateLost if a state violates an invariant; O(state)."""
    if (why := next(impossible(state), None)) is not None:
        raise StateLost(f"counting cannot reach the stored state: {why}")


def impossible(state: PartitionState) -> Iterator[str]:
    """Yields a description of each invariant that a state violates.

    Example:
        >>> import ldp
        >>> state = PartitionState.fresh(ldp.Fleet((ldp.Stream("colours", ldp.GRR("1", 3)),)), 5)
        >>> next(iter(state.cells.values()))[""].reports = 1
        >>> next(impossible(state))
        "'all@8e9f39d0': counts sum to 0; each report supports one value: the sum must be n = 1"
    """
    yield from _numbers(state)
    yield from _times(state)
    yield from _names(state)
    yield from _cells(state)
    yield from _sums(state)


def _whole(value: object, least: int = 0, most: int = _MOST) -> bool:
    return type(value) is int and least <= value <= most


def _numbers(state: PartitionState) -> Iterator[str]:
    stored: dict[str, Any] = {"start": state.start, "offset": state.offset, "accepted": state.accepted}
    stored |= {"rejected": state.rejected, "gaps": state.gaps, "readmitted": []} | state.windows.stored()
    for name in ("start", "offset", "accepted", "undated", "closed", "evicted_to"):
        if not _whole(stored[name]):
            yield f"{name} is {stored[name]!r}; allowed is 0 to 2**63 - 1"
    for name in ("rejected", "late", "first_start"):
        for key, value in stored[name].items():
            if not _whole(value):
                yield f"{name} has {key}: {value!r}; allowed is 0 to 2**63 - 1"
    if unknown := state.windows.late.keys() - {*AGES, OLDER}:
        yield f"late has the ages {sorted(unknown)}; allowed are {[*AGES, OLDER]}"
    for name in ("gaps", "gap_bounds", "readmitted"):
        for one, other in stored[name]:
            if not _whole(one) or not (_whole(other) or (name == "gap_bounds" and other is None)):
                yield f"{name} has {(one, other)!r}; allowed is 0 to 2**63 - 1"


def _times(state: PartitionState) -> Iterator[str]:
    edges, windows = (
        [state.start, *(offset for gap in state.gaps for offset in gap), state.offset],
        state.windows,
    )
    if any(a > b for a, b in pairwise(edges)) or any(a == b for a, b in state.gaps):
        yield f"gaps {state.gaps} do not ascend within [{state.start}, {state.offset})"
    if len(windows.gap_bounds) != len(state.gaps):
        yield f"there are {len(state.gaps)} gaps, but gap_bounds has {len(windows.gap_bounds)}"
    if any(not state.start <= at <= state.offset for at, _ in windows.readmitted):
        yield f"readmitted at {windows.readmitted}, outside of [{state.start}, {state.offset}]"
    if windows.watermark is not None and not _whole(windows.watermark, -1, TIME_ENDS - 1):
        yield f"watermark is {windows.watermark!r}; allowed is -1 to {TIME_ENDS - 1}"
    if windows.admitted_from is not None and not _whole(windows.admitted_from, 0, windows.closed):
        yield f"admitted_from is {windows.admitted_from!r}; allowed is 0 to closed, {windows.closed}"
    if windows.evicted_to > windows.closed:
        yield f"evicted_to is {windows.evicted_to}; allowed is 0 to closed, {windows.closed}"


def _names(state: PartitionState) -> Iterator[str]:
    documents, segments = rules.joined(state.rules)
    if documents.keys() != state.documents.keys():
        yield f"rules name the documents {sorted(documents)}; recorded are {sorted(state.documents)}"
    # a cell's name was declared, or is a rest, when the cell began
    known = {*Segments(segments).cells} - {""}
    for key, cells in state.cells.items():
        if (document := state.documents.get(key.fingerprint)) is None:
            yield f"'{key}' belongs to no recorded document"
        elif document.segment is None and cells.keys() != {""}:
            yield f"'{key}' has the segments {sorted(cells)}; its document has none"
        elif document.segment is not None and (not cells or cells.keys() - known):
            yield f"'{key}' has the segments {sorted(cells)}; rules declare {sorted(segments)}"


def _cells(state: PartitionState) -> Iterator[str]:
    windowings = [rule.limits.windowing for rule in state.rules]
    lengths = {windowing.pane for windowing in windowings if windowing is not None}
    for key, cells in state.cells.items():
        for cell in cells.values():
            if not _whole(cell.reports):
                yield f"'{key}': it has {cell.reports} reports"
            try:
                checked_state(state.documents[key.fingerprint].oracle, cell.reports, cell.state)
            except ValueError as error:
                yield f"'{key}': {error}"
        if (pane := key.pane) is None:
            continue
        if pane.length not in lengths or pane.start % pane.length:
            yield f"'{key}' is not a pane of any rule's windows"
        if pane.end <= state.windows.evicted_to:
            yield f"'{key}' ends at or before evicted_to, {state.windows.evicted_to}"
        if state.windows.watermark is None or pane.start > state.windows.watermark:
            yield f"'{key}' begins after the watermark, {state.windows.watermark}"


def _sums(state: PartitionState) -> Iterator[str]:
    rest = [cell.reports for key, cells in state.cells.items() if key.pane is None for cell in cells.values()]
    if not rest and len(state.documents) == 1 and state.document.segment is None:
        yield f"the cells are {sorted(map(str, state.cells))}; one of all time is required"
    accepted, outside = state.accepted, sum(state.windows.late.values()) + state.windows.undated
    passed = state.offset - state.start - sum(end - begin for begin, end in state.gaps)
    if (records := accepted + sum(state.rejected.values())) > passed:
        yield f"{records} records were read at only {passed} offsets"
    if outside > accepted:
        yield f"{outside} records are late or undated, but only {accepted} were accepted"
    if outside > sum(rest):
        yield f"{outside} records are in no pane, but all time has only {sum(rest)} reports"
    if (accepted > 0) != (state.windows.watermark is not None):
        yield f"the watermark of {accepted} accepted records is {state.windows.watermark}"
    limits = [rule.limits.most_reports or _MOST for rule in state.rules if rule.offset < state.offset]
    most = min(_MOST, accepted * max(limits, default=0))
    if not accepted <= state.reports <= most:
        yield f"{accepted} accepted records have {state.reports} reports; allowed is {accepted} to {most}"
