"""Release rule: published counts change by at least m reports at once.

Atoms are the finest cells that published vectors are sums of. Each segment of each document has two kinds of atoms, the
panes and the rest. The rest contains late and undated reports, and panes with fewer than m reports. Each atom has one
released version, which all vectors of a snapshot use. It changes only by an increment of at least m new reports.

Therefore every published vector is a sum of increments, and each report is in one increment. Every integer combination
of published vectors, of any snapshots, is zero or covers at least m reports.

- A pane is decided once, when every partition has closed it. With at least m reports it is released, otherwise it joins
  the rest. Open panes are not released.
- A pane that a partition merged, or that was closed as bounded, before every partition closed it joins the rest.
- The rest is released when it has at least m new reports more than lost reports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from ldp.snapshot import Released
from worker.counting.windows import Pane

Vector = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Counts:
    """Counts of a cell.

    Attributes:
        n: the number of reports.
        vector: (k,) the oracle's state, or the support of each value.
    """

    n: int
    vector: Vector

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.n + other.n, self.vector + other.vector)

    def __sub__(self, other: Counts) -> Counts:
        return Counts(self.n - other.n, self.vector - other.vector)

    def at_least(self, fewest: int | None) -> Counts:
        """Returns the counts if they have enough reports, else zeros; None: zeros."""
        enough = fewest is not None and self.n >= fewest
        return self if enough else Counts(0, np.zeros_like(self.vector))


@dataclass(frozen=True)
class Rest:
    """The newest cut at which the rest of a document's segment was released.

    Attributes:
        closed: panes that ended at or before this time in ms were decided.
        offsets: partition -> offset up to which records were counted.
        lost: the number of offsets in gaps of the log. More gaps in the same offsets show that counted records were
            lost later.
    """

    closed: int = 0
    offsets: Mapping[int, int] = field(default_factory=dict)
    lost: int = 0


@dataclass(frozen=True)
class Shown:
    """The released counts of a document's segment, as supports.

    Attributes:
        counts: the counts of all time.
        late: the part of them that is in no window.
        rest: the newest release of the rest.
    """

    counts: Counts
    late: Counts
    rest: Rest = Rest()  # frozen


@dataclass(frozen=True)
class Cut:
    """The counted reports of a document's segment up to some offsets.

    Attributes:
        offsets: partition -> offset up to which records are counted.
        total: all counts.
        panes: the counts of each pane; `total` includes them.
        closed: panes that end at or before this time are closed in every partition, and in those added later.
        merged: a pane that ends at or before this time joins the rest, unless it was decided before.
        lost: the number of offsets in gaps of the log.
    """

    offsets: Mapping[int, int]
    total: Counts
    panes: Mapping[Pane, Counts]
    closed: int = 0
    merged: int = 0
    lost: int = 0


@dataclass(frozen=True)
class Release:
    """The released counts of a document's segment in a snapshot.

    Attributes:
        head: the part that the head records.
        shown: the released counts of all time, and of `late`.
        panes: the counted panes.
    """

    head: Released
    shown: Shown
    panes: Mapping[Pane, Counts]

    def window(self, start: int, end: int) -> tuple[Counts, int]:
        """Returns the released counts of a final window, and its other reports."""
        within = {pane: counts for pane, counts in self.panes.items() if pane.within(start, end)}
        like = next(iter(within.values()), self.shown.counts)
        shown = _sum((_decided(self.head, pane, own) for pane, own in within.items()), like)
        return shown, sum(counts.n for counts in within.values()) - shown.n


def release(
    before: Released, published: Shown, cut: Cut, fewest: int, support: Callable[[Counts], Counts]
) -> Release:
    """Returns the counts to release at a cut; O(panes · k).

    Args:
        before: the newest head's record.
        published: the newest published counts.
        cut: the counts.
        fewest: m, the smallest increment, at least 2.
        support: returns the supports of counts that are states; linear.

    Example:
        >>> counts = lambda *of: Counts(sum(of), np.array(of))
        >>> begin, nothing = Released(0, ()), Shown(counts(0, 0), counts(0, 0))
        >>> cut = Cut({0: 9}, counts(4, 3), {Pane(0, 10): counts(2, 1), Pane(10, 10): counts(0, 1)}, closed=20)
        >>> first = release(begin, nothing, cut, 3, lambda states: states)
        >>> first.shown.counts.n, first.window(0, 10)[0].n, first.window(10, 20)
        (7, 3, (Counts(n=0, vector=array([0, 0])), 1))
    """
    closed = max(before.closed, cut.closed)
    merged = max(before.closed, cut.merged)  # a partition may have merged panes that are decided now
    end = max(closed, merged)
    steps = _step(_step(before.fewest, before.closed, merged, None), merged, closed, fewest)
    head = Released(end, steps)
    newly = (_decided(head, pane, own) for pane, own in cut.panes.items() if before.closed < pane.end <= end)
    grown = published.counts + support(_sum(newly, cut.total))
    settled = cut.total - _sum((own for pane, own in cut.panes.items() if pane.end > end), cut.total)
    new = support(settled) - grown
    rest = new.at_least(fewest)
    left, counts = new - rest, grown + rest
    waits = left.n or left.vector.any()  # a report can support no value
    changed = (counts.n, cut.lost) != (published.counts.n, published.rest.lost)
    mark = Rest(end, dict(cut.offsets), cut.lost) if counts.n and changed and not waits else published.rest
    return Release(head, Shown(counts, published.late + rest, mark), cut.panes)


def begin(panes: Iterable[Pane]) -> Released:
    """Returns the record before the first release, for counted panes.

    Earlier snapshots may have shown a part of each pane, so all these panes join the rest.
    """
    shown = max((pane.end for pane in panes), default=0)
    return Released(shown, ((0, None),) if shown else ())


def lost_offsets(gaps: Mapping[int, Iterable[tuple[int, int]]]) -> int:
    """Returns the number of offsets in gaps of the log."""
    return sum(end - begin for own in gaps.values() for begin, end in own)


def hide(before: Released) -> Released:
    """Returns the record after a loss of counted reports.

    Decided panes can have fewer reports than published windows show, so later windows show none of them.
    """
    return replace(before, fewest=((0, None),) if before.closed else ())


def _step(
    steps: tuple[tuple[int, int | None], ...], begin: int, end: int, fewest: int | None
) -> tuple[tuple[int, int | None], ...]:
    """Adds the m of panes that end in (begin, end]."""
    same = bool(steps) and steps[-1][1] == fewest
    return steps if same or begin >= end else (*steps, (begin, fewest))


def _decided(head: Released, pane: Pane, counts: Counts) -> Counts:
    return counts.at_least(head.fewest_of(pane.end))


def _sum(parts: Iterable[Counts], like: Counts) -> Counts:
    return sum(parts, Counts(0, np.zeros_like(like.vector)))
