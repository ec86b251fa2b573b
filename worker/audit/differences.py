"""Comparison of a stored partition with its recount.

If records were deleted, the audit checks bounds instead of equality. Deleted records may have closed a pane earlier
than the remaining records show. A remaining record certainly counts in its pane only if the pane is still open. A
remaining record is certainly late only if other remaining records closed its pane.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from worker.audit.errors import Difference
from worker.audit.hashes import State
from worker.audit.history import GapBounds, History
from worker.audit.parsing import Key
from worker.audit.protocols import protocol_of
from worker.audit.records import Range
from worker.audit.recount import Cell, Recount
from worker.audit.stored import Stored, StoredCell
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
    _compare_cells(stored, counted)


def _compare_cells(stored: Stored, counted: Recount) -> None:
    held, found = _flat(stored.cells), _flat(counted.panes | {"all": counted.all})
    cells = _sorted({*held, *found})
    names = {at: stored.where(*at)[1:] for at in cells}
    theirs, ours = (
        # a document's cell in no pane may be empty
        {names[at]: reports for at, reports in each if reports or at[0] != "all"}
        for each in (_reports(held), _reports(found))
    )
    expect_same("reports", theirs, ours, [*names.values()])
    for at in held:
        there, own = held[at].state, found[at].state if at in found else None
        _expect_equal(stored.where(*at), there, np.zeros_like(there) if own is None else own)


def _expect_good(where: str, good: npt.NDArray[np.bool_], held: State, what: str, wrong: str) -> None:
    """Raises `Difference` for the first entry that is not good."""
    if len(bad := np.flatnonzero(~good)):
        v = int(bad[0])
        raise Difference(f"state[{v}]{where}: {held[v]} {what}; {len(bad)} of {len(held)} entries {wrong}")


def _expect_equal(where: str, held: State, found: State) -> None:
    first = found[np.argmax(held != found)]
    _expect_good(where, held == found, held, f"in Redis, {first} recounted", "differ")


_At = tuple[str, Key]  # pane or `all`, and the key
_Cell = TypeVar("_Cell", StoredCell, Cell)


def _flat(panes: Mapping[str, Mapping[Key, _Cell]]) -> dict[_At, _Cell]:
    return {(pane, key): cell for pane, cells in panes.items() for key, cell in cells.items()}


def _reports(cells: Mapping[_At, StoredCell | Cell]) -> Iterator[tuple[_At, int]]:
    return ((at, cell.reports) for at, cell in cells.items())


def _sorted(cells: Collection[_At]) -> list[_At]:
    """Sorts cells by their panes, `all` last."""
    return sorted(cells, key=lambda at: (at[0] == "all", at[0] != "all" and ends_of(at[0]), at[1]))


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
    for name, time in (("admitted_from", stored.admitted_from), ("evicted_to", stored.evicted_to)):
        if time is not None and time > stored.closed:
            raise Difference(f"{name}: {time} in Redis, beyond the window-close watermark {stored.closed}")
    for pane in stored.cells.keys() - {"all"}:
        if ends_of(pane)[1] <= stored.evicted_to:
            raise Difference(f"pane {pane}: in Redis, but panes that end by {stored.evicted_to} were evicted")


def compare_partly(stored: Stored, counted: Recount, history: History, deleted: Sequence[Range]) -> None:
    """Compares a partition with the recount of its remaining records.

    Raises `Difference` if the recount exceeds the stored counts, or if the deleted records cannot account for the
    difference.
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
    rest = _deleted_of(stored, counted)
    if records > offsets:
        raise Difference(f"records: {records} counted at {offsets} deleted offsets")
    if reports < accepted or (reports and not accepted):
        raise Difference(f"reports: {reports} in {accepted} deleted accepted records")
    watermark, least = stored.watermark, counted.watermark
    later = watermark is not None and (least is None or watermark >= least)
    if not (later if accepted else watermark == least):
        raise Difference(f"watermark: {watermark} in Redis, {least} recounted from the remaining records")
    for key, cell in rest.items():
        where, ones = stored.where("all", key), protocol_of(stored.documents[key[0]]).ones
        _expect_at_most(where, cell.state, cell.reports)
        if ones is not None and (total := int(cell.state.sum())) != ones * cell.reports:
            due = f"the sum of {cell.reports} deleted reports is {total}, expected {ones * cell.reports}"
            raise Difference(f"state{where}: {due}")
    _compare_panes(stored, counted, rest)


def _deleted_of(stored: Stored, counted: Recount) -> dict[Key, StoredCell]:
    """Returns the counts of the deleted reports by key."""
    held, found = stored.total(), counted.total()
    for key in sorted({*held, *found}):
        there, own = held.get(key), found.get(key, Cell(0, None))
        where, size = stored.where("all", key), protocol_of(stored.documents[key[0]]).entries
        there = StoredCell(0, np.zeros(size, np.uint8)) if there is None else there
        if there.reports < own.reports:
            both = f"{there.reports} in Redis, {own.reports} recounted from the remaining records"
            raise Difference(f"reports{where}: {both}")
        state = there.state if own.state is None else _counts_of_deleted(where, there.state, own.state)
        held[key] = StoredCell(there.reports - own.reports, state)
    return held


def _counts_of_deleted(where: str, held: State, found: State) -> State:
    first = found[np.argmax(held < found)]
    what = f"in Redis, {first} recounted from the remaining records"
    _expect_good(where, held >= found, held, what, "are too small")
    return held - found


def _expect_at_most(where: str, rest: State, reports: int) -> None:
    what = f"counted from {reports} deleted reports"
    _expect_good(where, rest <= reports, rest, what, "are too large")


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


def _compare_panes(stored: Stored, counted: Recount, deleted: Mapping[Key, StoredCell]) -> None:
    held, found = _flat(stored.cells), _flat(counted.panes)
    for at in _sorted({*held, *found}):
        pane, key = at
        if pane == "all":
            continue
        where, cell, own = stored.where(*at), held.get(at), found.get(at)
        there, remaining, gone = (
            0 if each is None else each.reports for each in (cell, own, deleted.get(key))
        )
        is_open = ends_of(pane)[1] > stored.closed
        # an open pane contains all its remaining reports
        if (is_open and there < remaining) or there > remaining + gone:
            raise Difference(
                f"reports{where}: {there} in Redis, {remaining} recounted from the remaining records, {gone} deleted"
            )
        if cell is None:
            continue
        state = np.zeros_like(cell.state) if own is None or own.state is None else own.state
        if is_open:
            _counts_of_deleted(where, cell.state, state)
        _expect_at_most(where, cell.state - state, there - remaining if is_open else gone)
