"""Comparison of a stored partition with its recount.

If records were deleted, the audit checks bounds instead of equality. Deleted records may have closed a pane earlier
than the remaining records show. A remaining record certainly counts in its pane only if the pane is still open. A
remaining record is certainly late only if other remaining records closed its pane.
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
    """Compares all stored values of a partition, except its gaps.

    Raises the first `Difference` that it finds.
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
        assert own is not None  # the recount keeps the panes that Redis has
        differing = np.flatnonzero(cell.state != own)
        if len(differing):
            v, where = int(differing[0]), "" if name == "all" else f" of pane {name}"
            raise Difference(
                f"state[{v}]{where}: {cell.state[v]} in Redis, {own[v]} recounted; "
                f"{len(differing)} of {len(own)} entries differ"
            )


def by_name(what: str, held: Mapping[str, int], found: Mapping[str, int]) -> Iterator[tuple[str, int, int]]:
    """Yields (description, stored number, recounted number) for each name."""
    for name in sorted({*held, *found}):
        yield f"{what} {name}", held.get(name, 0), found.get(name, 0)


def expect_same(what: str, held: Mapping[str, int], found: Mapping[str, int], names: Sequence[str]) -> None:
    """Raises `Difference` unless `held` and `found` agree on each name."""
    for name in names:
        if held.get(name) != found.get(name):
            both = (each.get(name, "none") for each in (held, found))
            raise Difference("{} {}: {} in Redis, {} recounted".format(what, name, *both))


def expect_gap_bounds(stored: Stored, gap_bounds: Sequence[GapBounds], deleted: int = -1) -> None:
    """Compares the stored bounds of each gap with the recount.

    `deleted` is the end of the deleted offsets, or −1 if none are deleted. With deleted records, the recounted
    window-close watermark before a gap may be too low. The first timestamp after a gap is known only if the gap ends at
    or after `deleted`.
    """
    if len(stored.gap_bounds) != len(stored.gaps):
        raise Difference(f"gap_bounds: {len(stored.gap_bounds)} in Redis, but {len(stored.gaps)} gaps")
    for gap, (line, first), (lines, found) in zip(stored.gaps, stored.gap_bounds, gap_bounds, strict=True):
        if line not in lines if deleted < 0 else not min(lines) <= line <= stored.closed:
            raise Difference(f"closed before the gap {[*gap]}: {line} in Redis, {max(lines)} recounted")
        # a deleted record may have a later timestamp than all recounted records
        later = deleted >= 0 and found is not None and (first is None or first > found)
        if first != found and gap[1] >= deleted and not later:
            raise Difference(f"first after the gap {[*gap]}: {first} in Redis, {found} recounted")


def expect_lines(stored: Stored) -> None:
    """Checks `admitted_from` and `evicted_to`, which cannot be recounted.

    Raises `Difference` if one of the two exceeds the window-close watermark, or if Redis still contains an evicted
    pane.
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
            raise Difference(f"pane {pane}: in Redis, but panes that end by {stored.evicted_to} were evicted")


def compare_partly(
    stored: Stored, counted: Recount, history: History, deleted: Sequence[Range], ones: int | None
) -> None:
    """Compares a partition with the recount of its remaining records.

    `ones` is the amount that each report adds to the sum of the state, or None if the amount varies. Raises
    `Difference` if the recount exceeds the stored counts, or if the deleted records cannot account for the difference.
    """
    for what, held, found in (
        ("accepted", stored.accepted, counted.accepted),
        *by_name("rejected as", stored.rejected, counted.rejected),
        ("reports", stored.reports, counted.reports),
    ):
        if held < found:
            raise Difference(f"{what}: {held} in Redis, {found} recounted from the remaining records")
    accepted = stored.accepted - counted.accepted
    records = accepted + sum(stored.rejected.values()) - counted.rejected.total()
    reports, offsets = stored.reports - counted.reports, sum(end - begin for begin, end in deleted)
    _compare_windows(stored, counted, history, accepted, max(end for _, end in deleted))
    rest = _counts_of_deleted("", stored.state, counted.total())
    if records > offsets:
        raise Difference(f"records: {records} counted at {offsets} deleted offsets")
    if reports < accepted or (reports and not accepted):
        raise Difference(f"reports: {reports} in {accepted} deleted accepted records")
    watermark, least = stored.watermark, counted.watermark
    later = watermark is not None and (least is None or watermark >= least)
    if not (later if accepted else watermark == least):
        raise Difference(f"watermark: {watermark} in Redis, {least} recounted from the remaining records")
    _expect_at_most("", rest, reports)
    if ones is not None and (total := int(rest.sum())) != ones * reports:
        raise Difference(f"state: the sum of {reports} deleted reports is {total}, expected {ones * reports}")
    _compare_panes(stored, counted, reports)


def _counts_of_deleted(where: str, held: State, found: State) -> State:
    if len(fewer := np.flatnonzero(held < found)):
        v = int(fewer[0])
        raise Difference(
            f"state[{v}]{where}: {held[v]} in Redis, {found[v]} recounted from the remaining records; "
            f"{len(fewer)} of {len(held)} entries are too small"
        )
    return held - found


def _expect_at_most(where: str, rest: State, reports: int) -> None:
    if len(more := np.flatnonzero(rest > reports)):
        v = int(more[0])
        raise Difference(
            f"state[{v}]{where}: {rest[v]} counted from {reports} deleted reports;"
            f" {len(more)} of {len(rest)} entries are too large"
        )


def _compare_windows(stored: Stored, counted: Recount, history: History, accepted: int, deleted: int) -> None:
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
            raise Difference(f"{what}: {held} in Redis, {least} to {most} by the remaining records")
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
                "first_start of window {}: {} in Redis, {} recounted from the rest".format(name, *both)
            )


def _compare_panes(stored: Stored, counted: Recount, reports: int) -> None:
    for pane in sorted({*stored.cells, *counted.panes} - {"all"}, key=ends_of):
        where, cell, own = f" of pane {pane}", stored.cells.get(pane), counted.panes.get(pane)
        held, found = 0 if cell is None else cell.reports, 0 if own is None else own.reports
        is_open = ends_of(pane)[1] > stored.closed
        # an open pane contains all its remaining reports
        if (is_open and held < found) or held > found + reports:
            raise Difference(
                f"reports{where}: {held} in Redis, {found} recounted from the remaining records, {reports} deleted"
            )
        if cell is None:
            continue
        state = np.zeros_like(counted.state) if own is None or own.state is None else own.state
        if is_open:
            _counts_of_deleted(where, cell.state, state)
        _expect_at_most(where, cell.state - state, held - found if is_open else reports)
