"""Comparison of a stored partition with its recount, or with the recount of its remaining records.

Deleted records may have closed panes further than the remaining ones show. A remaining record certainly counts in its
pane only if the pane is still open, and is certainly late only if the remaining records alone make it late. All else
is bounds.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from worker.audit.errors import Difference
from worker.audit.hashes import State
from worker.audit.history import GapBounds, History
from worker.audit.records import Range
from worker.audit.recount import Recount
from worker.audit.stored import Stored
from worker.audit.windows import ends_of


def compare(stored: Stored, counted: Recount, history: History) -> None:
    """Compares everything that is kept of a partition, except its gaps.

    Raises `Difference`: the first one.
    """
    for what, held, found in (
        ("accepted", stored.accepted, counted.accepted),
        *by_name("rejected as", stored.rejected, counted.rejected),
        *by_name("late by", stored.late, counted.late),
        ("undated", stored.undated, counted.undated),
        ("watermark", stored.watermark, counted.watermark),
        ("closed", stored.closed, counted.closed),
        ("reports", stored.reports, counted.reports),
    ):
        if held != found:
            raise Difference(f"{what}: {held} in Redis, {found} recounted")
    expect_lines(stored)
    first = {*stored.first_start, *history.first_start}
    expect_same("first_start of window", stored.first_start, history.first_start, sorted(first))
    expect_gap_bounds(stored, history.gap_bounds)
    held_reports, found_reports = (
        {name: cell.reports for name, cell in cells.items()} for cells in (stored.cells, counted.panes)
    )
    panes = sorted({*stored.cells, *counted.panes} - {"all"}, key=ends_of)
    expect_same("reports of pane", held_reports, found_reports, panes)
    for name, cell in stored.cells.items():
        own = counted.state if name == "all" else counted.panes[name].state
        assert own is not None  # panes in Redis are wanted
        differing = np.flatnonzero(cell.state != own)
        if len(differing):
            v, where = int(differing[0]), "" if name == "all" else f" of pane {name}"
            raise Difference(
                f"state[{v}]{where}: {cell.state[v]} in Redis, {own[v]} recounted; "
                f"{len(differing)} of {len(own)} entries differ"
            )


def by_name(what: str, held: Mapping[str, int], found: Mapping[str, int]) -> Iterator[tuple[str, int, int]]:
    """Yields the stored and the recounted number of each name."""
    for name in sorted({*held, *found}):
        yield f"{what} {name}", held.get(name, 0), found.get(name, 0)


def expect_same(what: str, held: Mapping[str, int], found: Mapping[str, int], names: Sequence[str]) -> None:
    """Raises `Difference` unless both have the same number, or none, for each name."""
    for name in names:
        if held.get(name) != found.get(name):
            both = (each.get(name, "none") for each in (held, found))
            raise Difference("{} {}: {} in Redis, {} recounted".format(what, name, *both))


def expect_gap_bounds(stored: Stored, gap_bounds: Sequence[GapBounds], deleted: int = -1) -> None:
    """Compares what is recorded on either side of each gap with the recount; raises `Difference`.

    `deleted` is the offset before which counted records are deleted, −1 if there is none. The remaining records close
    windows no further than all did, and the first time after a gap is certain only behind this offset.
    """
    if len(stored.gap_bounds) != len(stored.gaps):
        raise Difference(f"gap_bounds: {len(stored.gap_bounds)} in Redis, of {len(stored.gaps)} gaps")
    for gap, (line, first), (lines, found) in zip(stored.gaps, stored.gap_bounds, gap_bounds, strict=True):
        if line not in lines if deleted < 0 else not min(lines) <= line <= stored.closed:
            raise Difference(f"closed before the gap {[*gap]}: {line} in Redis, {max(lines)} recounted")
        # deleted records may have been later than all that is recounted
        later = deleted >= 0 and found is not None and (first is None or first > found)
        if first != found and gap[1] >= deleted and not later:
            raise Difference(f"first after the gap {[*gap]}: {first} in Redis, {found} recounted")


def expect_lines(stored: Stored) -> None:
    """Raises `Difference` if `admitted_from` or `evicted_to` contradict the window-close watermark.

    Neither can be recounted.
    """
    if stored.admitted_from is not None and stored.admitted_from > stored.closed:
        raise Difference(
            f"admitted_from: {stored.admitted_from} in Redis, beyond the window-close watermark {stored.closed}"
        )
    if stored.evicted_to > stored.closed:
        raise Difference(
            f"evicted_to: {stored.evicted_to} in Redis, beyond the window-close watermark {stored.closed}"
        )
    for pane in stored.cells.keys() - {"all"}:
        if ends_of(pane)[1] <= stored.evicted_to:
            raise Difference(f"pane {pane}: in Redis, but those that end by {stored.evicted_to} were evicted")


def compare_partly(
    stored: Stored, counted: Recount, history: History, deleted: Sequence[Range], ones: int | None
) -> None:
    """Compares a partition with the recount of the records that remain beside the deleted ranges.

    `ones` is what each report adds to the sum of the state, if that is the same for all. Raises `Difference`:
    more remains than is stored, or no deleted records can make up the rest.
    """
    for what, held, found in (
        ("accepted", stored.accepted, counted.accepted),
        *by_name("rejected as", stored.rejected, counted.rejected),
        ("reports", stored.reports, counted.reports),
    ):
        if held < found:
            raise Difference(f"{what}: {held} in Redis, {found} recounted of what remains")
    accepted = stored.accepted - counted.accepted
    records = accepted + sum(stored.rejected.values()) - counted.rejected.total()
    reports, offsets = stored.reports - counted.reports, sum(end - begin for begin, end in deleted)
    _compare_windows(stored, counted, history, accepted, max(end for _, end in deleted))
    rest = _rest("", stored.state, counted.total())
    if records > offsets:
        raise Difference(f"records: {offsets} offsets were deleted, {records} records were counted there")
    if reports < accepted or (reports and not accepted):
        raise Difference(f"reports: {reports} of {accepted} accepted records that were deleted")
    watermark, least = stored.watermark, counted.watermark
    later = watermark is not None and (least is None or watermark >= least)
    if not (later if accepted else watermark == least):
        raise Difference(f"watermark: {watermark} in Redis, {least} recounted of what remains")
    _expect_at_most("", rest, reports)
    if ones is not None and (total := int(rest.sum())) != ones * reports:
        raise Difference(f"state: the sum of {reports} deleted reports is {total}, {ones * reports} is due")
    _compare_panes(stored, counted, reports)


def _rest(where: str, held: State, found: State) -> State:
    """Returns what deleted records must have added to counts."""
    if len(fewer := np.flatnonzero(held < found)):
        v = int(fewer[0])
        raise Difference(
            f"state[{v}]{where}: {held[v]} in Redis, {found[v]} recounted of what remains; "
            f"{len(fewer)} of {len(held)} entries are too small"
        )
    return held - found


def _expect_at_most(where: str, rest: State, reports: int) -> None:
    if len(more := np.flatnonzero(rest > reports)):
        v = int(more[0])
        raise Difference(
            f"state[{v}]{where}: {rest[v]} of {reports} deleted reports;"
            f" {len(more)} of {len(rest)} entries are too large"
        )


def _compare_windows(stored: Stored, counted: Recount, history: History, accepted: int, deleted: int) -> None:
    """Compares late and undated records, window-close watermarks and first starts with the bounds that remain."""
    late, held_late = counted.late.total(), sum(stored.late.values())
    holds = [limits.windows.hold for _, limits in stored.rules if limits.windows is not None]
    newest = counted.closed
    if accepted and holds and stored.watermark is not None:
        newest = max(newest, stored.watermark - min(holds))
    for what, held, least, most in (
        ("late", held_late, late, counted.in_windows - counted.undated + accepted),
        ("undated", stored.undated, counted.undated, counted.undated + accepted),
        ("closed", stored.closed, counted.closed, newest),
    ):
        if not holds and held != least:
            raise Difference(f"{what}: {held} in Redis, {least} recounted")
        if not least <= held <= most:
            raise Difference(
                f"{what}: {held} in Redis, {least} recounted of what remains, and at most {most} with the rest"
            )
    expect_lines(stored)
    expect_gap_bounds(stored, history.gap_bounds, deleted)
    latest = next((rule for offset, rule in reversed(stored.rules) if offset <= stored.offset), None)
    windows = None if latest is None else latest.windows
    beyond = {} if windows is None else windows.begin_beyond(stored.watermark)
    for name in sorted({*stored.first_start, *history.first_start}):
        mine, lowest = stored.first_start.get(name), history.first_start.get(name)
        if mine is None or lowest is None or not lowest <= mine <= beyond[name]:
            both = ("none" if each is None else each for each in (mine, lowest))
            raise Difference(
                "first_start of window {}: {} in Redis, {} recounted of what remains".format(name, *both)
            )


def _compare_panes(stored: Stored, counted: Recount, reports: int) -> None:
    """Compares panes: an open one has what remains, and none has more than that and the deleted reports."""
    for pane in sorted({*stored.cells, *counted.panes} - {"all"}, key=ends_of):
        where, cell, own = f" of pane {pane}", stored.cells.get(pane), counted.panes.get(pane)
        held, found = 0 if cell is None else cell.reports, 0 if own is None else own.reports
        is_open = ends_of(pane)[1] > stored.closed
        if (is_open and held < found) or held > found + reports:
            raise Difference(
                f"reports{where}: {held} in Redis, {found} recounted of what remains, {reports} deleted"
            )
        if cell is None:
            continue
        state = np.zeros_like(counted.state) if own is None or own.state is None else own.state
        if is_open:
            _rest(where, cell.state, state)
        _expect_at_most(where, cell.state - state, held - found if is_open else reports)
