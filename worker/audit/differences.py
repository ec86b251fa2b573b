"""What differs: each number that is stored of a partition beside the one that is recounted."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from worker.audit.errors import Difference
from worker.audit.hashes import State
from worker.audit.history import Around, History
from worker.audit.recount import Recount
from worker.audit.stored import Stored
from worker.audit.windows import ends_of


def compare(stored: Stored, counted: Recount, history: History) -> None:
    """Compares everything that is kept of a partition, but for its gaps.

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
    _expect_windows(stored, history.since)
    expect_around(stored, history.around)
    for pane in sorted({*stored.cells, *counted.panes} - {"all"}, key=ends_of):
        held = stored.cells[pane].reports if pane in stored.cells else None
        found = counted.panes[pane].reports if pane in counted.panes else None
        if held != found:
            raise Difference(f"reports of pane {pane}: {or_none(held)} in Redis, {or_none(found)} recounted")
    for name, cell in stored.cells.items():
        own = counted.state if name == "all" else counted.panes[name].state
        assert own is not None  # what is in Redis is wanted
        _compare_states("" if name == "all" else f" of pane {name}", cell.state, own)


def by_name(what: str, held: Mapping[str, int], found: Mapping[str, int]) -> Iterator[tuple[str, int, int]]:
    """Yields what is stored and recounted under each name of either."""
    for name in sorted({*held, *found}):
        yield f"{what} {name}", held.get(name, 0), found.get(name, 0)


def or_none(number: int | None) -> str:
    """Returns a number as it is said, or that there is none."""
    return "none" if number is None else str(number)


def _compare_states(where: str, held: State, found: State) -> None:
    """Compares counts bit for bit.

    Raises:
        Difference: some differ.
    """
    differing = np.flatnonzero(held != found)
    if len(differing):
        v = int(differing[0])
        raise Difference(
            f"state[{v}]{where}: {held[v]} in Redis, {found[v]} recounted; "
            f"{len(differing)} of {len(held)} entries differ"
        )


def expect_around(stored: Stored, around: Sequence[Around], deleted: int = -1) -> None:
    """Sees that what is recorded of either side of each gap is what is recounted.

    Args:
        stored: whose gaps.
        around: what is recounted.
        deleted: the offset before which something was counted that is deleted, if there is any; what remains moves the
            line no further than all did, and what came after a gap is known only behind that offset.

    Raises:
        Difference: it is not.
    """
    if len(stored.around) != len(stored.gaps):
        raise Difference(f"around: {len(stored.around)} in Redis, of {len(stored.gaps)} gaps")
    for gap, (line, first), (lines, found) in zip(stored.gaps, stored.around, around, strict=True):
        if line not in lines if deleted < 0 else not min(lines) <= line <= stored.closed:
            raise Difference(f"closed before the gap {[*gap]}: {line} in Redis, {max(lines)} recounted")
        # what is deleted may have been later than all that is recounted
        later = deleted >= 0 and found is not None and (first is None or first > found)
        if first != found and gap[1] >= deleted and not later:
            raise Difference(f"first after the gap {[*gap]}: {first} in Redis, {found} recounted")


def expect_lines(stored: Stored) -> None:
    """Sees that the lines which came from a head, and cannot be recounted, go with the others.

    Raises:
        Difference: they do not.
    """
    if stored.floor is not None and stored.floor > stored.closed:
        raise Difference(f"floor: {stored.floor} in Redis, beyond the closed line {stored.closed}")
    if stored.dropped > stored.closed:
        raise Difference(f"dropped: {stored.dropped} in Redis, beyond the closed line {stored.closed}")
    for pane in stored.cells.keys() - {"all"}:
        if ends_of(pane)[1] <= stored.dropped:
            raise Difference(f"pane {pane}: in Redis, but those that end by {stored.dropped} were dropped")


def _expect_windows(stored: Stored, since: Mapping[str, int]) -> None:
    """Sees that each window of the rules begins where it is recounted to, and that there are no others.

    Raises:
        Difference: one does not, or there are.
    """
    for name in sorted({*stored.since, *since}):
        if (held := stored.since.get(name)) != (found := since.get(name)):
            raise Difference(f"since of window {name}: {or_none(held)} in Redis, {or_none(found)} recounted")
