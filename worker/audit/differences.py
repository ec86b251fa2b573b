"""Comparison of a stored partition with its recount."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from worker.audit.errors import Difference
from worker.audit.history import Around, History
from worker.audit.recount import Recount
from worker.audit.stored import Stored
from worker.audit.windows import ends_of


def compare(stored: Stored, counted: Recount, history: History) -> None:
    """Compares everything that is kept of a partition, except its gaps.

    Raises:
        Difference: the first one.
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
    expect_same("since of window", stored.since, history.since, sorted({*stored.since, *history.since}))
    expect_around(stored, history.around)
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


def expect_around(stored: Stored, around: Sequence[Around], deleted: int = -1) -> None:
    """Compares what is recorded on either side of each gap with the recount; raises `Difference`.

    `deleted` is the offset before which counted records are deleted, −1 if there is none. The remaining records close
    windows no further than all did, and the first time after a gap is certain only behind this offset.
    """
    if len(stored.around) != len(stored.gaps):
        raise Difference(f"around: {len(stored.around)} in Redis, of {len(stored.gaps)} gaps")
    for gap, (line, first), (lines, found) in zip(stored.gaps, stored.around, around, strict=True):
        if line not in lines if deleted < 0 else not min(lines) <= line <= stored.closed:
            raise Difference(f"closed before the gap {[*gap]}: {line} in Redis, {max(lines)} recounted")
        # deleted records may have been later than all that is recounted
        later = deleted >= 0 and found is not None and (first is None or first > found)
        if first != found and gap[1] >= deleted and not later:
            raise Difference(f"first after the gap {[*gap]}: {first} in Redis, {found} recounted")


def expect_lines(stored: Stored) -> None:
    """Raises `Difference` if `floor` or `dropped`, which cannot be recounted, contradict the closed line."""
    if stored.floor is not None and stored.floor > stored.closed:
        raise Difference(f"floor: {stored.floor} in Redis, beyond the closed line {stored.closed}")
    if stored.dropped > stored.closed:
        raise Difference(f"dropped: {stored.dropped} in Redis, beyond the closed line {stored.closed}")
    for pane in stored.cells.keys() - {"all"}:
        if ends_of(pane)[1] <= stored.dropped:
            raise Difference(f"pane {pane}: in Redis, but those that end by {stored.dropped} were dropped")
