"""The release rule: on random cuts, every combination of published vectors covers at least m reports."""

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from ldp.snapshot import Released
from worker.counting.windows import Pane
from worker.publishing import release
from worker.publishing.release import Counts, Cut, Shown

REPORTS, PANE = 240, 10
WINDOWS = ((10, 10), (20, 10), (30, 30))  # lengths and hops
Rule = Callable[..., Any]


class History:
    """A simulated stream in which each report is one coordinate, so that vectors show which reports they cover."""

    def __init__(self, seed: int, rule: Rule = release.release) -> None:
        self.rng, self.rule = random.Random(seed), rule
        partitions = self.rng.choice([1, 2, 3])
        self.fewest = self.rng.choice([2, 3, 5])
        self.least = self.fewest
        self.busy = self.rng.choice([1, 3, 9])
        self.line = [0] * partitions  # window-close watermark of each partition
        self.placed: dict[int, tuple[int | None, int]] = {}  # report -> pane's start, partition
        self.merged = self.evicted = 0  # the end of bounded panes, and of those that partitions have merged
        self.closed = dict.fromkeys(WINDOWS, 0)
        self.offsets = dict.fromkeys(range(partitions), 0)
        self.head = Released(0, ())
        self.published = Shown(self.counts([]), self.counts([]))
        self.vectors: list[Any] = []  # distinct published vectors
        self.shown: dict[tuple[int, int], Any] = {}

    def counts(self, of: Sequence[int]) -> Counts:
        vector = np.zeros(REPORTS, np.int64)
        vector[list(of)] = 1
        return Counts(len(of), vector)

    def report(self) -> None:
        if (new := len(self.placed)) == REPORTS:
            return
        partition = self.rng.randrange(len(self.line))
        start = self.line[partition] // PANE * PANE + self.rng.choice([-20, 0, 0, 0, 10, 20])
        undated = start + PANE <= self.line[partition] or self.rng.random() < 0.1
        self.placed[new] = None if undated else start, partition
        self.offsets[partition] += 1

    def turn(self) -> None:
        for _ in range(self.rng.randint(0, self.busy)):
            self.report()
        for p in range(len(self.line)):
            if self.rng.random() < 0.4:
                self.line[p] += self.rng.choice([3, 10, 25])
        match self.rng.random():
            case chance if chance < 0.05:
                self.fewest = self.rng.choice([2, 3, 5])
                self.least = min(self.least, self.fewest)
            case chance if (
                chance < 0.1
            ):  # closed as bounded: a partition merges panes that another one still fills
                self.merged = max(self.line)
            case chance if chance < 0.13:  # an added partition begins where windows are closed
                self.offsets[len(self.line)] = 0
                self.line.append(max(min(self.line), self.merged))
        if self.rng.random() < 0.3:
            self.evicted = min(self.merged, self.head.closed)  # partitions evict what a published head closed
        if self.rng.random() < 0.7:
            self.publish()

    def cut(self) -> Cut:
        panes = defaultdict[Pane, list[int]](list)
        for report, (start, partition) in self.placed.items():
            if start is not None and not start + PANE <= min(self.evicted, self.line[partition]):
                panes[Pane(start, PANE)].append(report)
        named = {pane: self.counts(of) for pane, of in panes.items()}
        return Cut(dict(self.offsets), self.counts(list(self.placed)), named, min(self.line), self.merged)

    def publish(self) -> None:
        done = self.rule(self.head, self.published, self.cut(), self.fewest, lambda states: states)
        lost = self.rng.random() < 0.1
        if (
            not lost
        ):  # otherwise the transaction was aborted, and the next publisher continues from the former head
            self.head, self.published = done.head, done.shown
            self._show(done)

    def _show(self, done: Any) -> None:
        self.vectors += [done.shown.counts.vector, done.shown.late.vector]
        for (length, hop), closed in self.closed.items():
            for start in range(0, 900, hop):
                if closed < start + length <= min(done.head.closed, *self.line) and start >= self.evicted:
                    counts, withheld = done.window(start, start + length)
                    within = [
                        r
                        for r, (at, _) in self.placed.items()
                        if at is not None and start <= at < start + length
                    ]
                    assert counts.n + withheld == len(within)
                    self.vectors.append(counts.vector)
            self.closed[length, hop] = max(closed, min(done.head.closed, *self.line))

    def in_windows(self) -> Counts:
        """Returns the counts of the released panes, from the head and the reports."""
        panes = defaultdict[int, list[int]](list)
        for report, (start, _) in self.placed.items():
            if start is not None:
                panes[start].append(report)
        given = [self.counts(of).at_least(self.head.fewest_of(start + PANE)) for start, of in panes.items()]
        return sum(given, self.counts([]))


def smallest_class(vectors: Sequence[Any]) -> int:
    """Returns the size of the smallest class of reports that the same vectors contain.

    A combination of vectors is constant on a class, so it is zero or covers the whole class.
    """
    table = np.array(vectors)
    classes = Counter(map(tuple, table.T.tolist()))
    return min((size for of, size in classes.items() if any(of)), default=REPORTS)


def smallest_combination(vectors: Sequence[Any]) -> int:
    """Returns the fewest reports of a non-zero combination with coefficients -1, 0 and 1."""
    table = np.unique(np.array(vectors), axis=0)
    factors = np.array(list(product((-1, 0, 1), repeat=len(table))))
    covered = np.count_nonzero(factors @ table, axis=1)
    return int(min(covered[covered > 0], default=REPORTS))


def history(seed: int, rule: Rule = release.release, turns: int = 30) -> History:
    made = History(seed, rule)
    for _ in range(turns):
        made.turn()
    return made


def test_every_combination_of_published_vectors_covers_m_reports() -> None:
    shown = late = 0
    for seed in range(1000):
        made = history(seed)
        assert smallest_class(made.vectors) >= made.least, seed
        assert (made.published.late.vector == (made.published.counts - made.in_windows()).vector).all(), seed
        late += bool(made.published.late.n)
        shown += len(np.unique(np.array(made.vectors), axis=0))
        # the only waiting reports are open panes and at most m - 1 reports
        done = release.release(made.head, made.published, made.cut(), made.fewest, lambda states: states)
        waiting = [n for pane, n in ((p, c.n) for p, c in done.panes.items()) if pane.end > done.head.closed]
        assert len(made.placed) - done.shown.counts.n - sum(waiting) <= made.fewest - 1, seed
    assert shown > 10_000
    assert late > 500


def test_every_combination_of_few_vectors_covers_m_reports() -> None:
    tried = 0
    for seed in range(1000, 1300):
        made = history(seed, turns=12)
        if not 2 <= len(np.unique(np.array(made.vectors or [[0]]), axis=0)) <= 9:
            continue
        tried += 1
        assert smallest_class(made.vectors) == smallest_class(np.unique(np.array(made.vectors), axis=0))
        assert smallest_combination(made.vectors) >= made.least, seed
    assert tried > 50


def _small_panes(*given: Any) -> Any:
    """Mutant: a pane or a rest of one report is released."""
    before, published, cut, _, support = given
    return release.release(before, published, cut, 1, support)


def _open_panes(before: Released, published: Shown, cut: Cut, *given: Any) -> Any:
    """Mutant: the counts of all time contain open panes."""
    done = release.release(before, published, cut, *given)
    return replace(done, shown=replace(done.shown, counts=cut.total))


def _small_rest(before: Released, published: Shown, cut: Cut, *given: Any) -> Any:
    """Mutant: the rest is released whatever its size."""
    done, counts = release.release(before, published, cut, *given), cut.total
    for pane, own in cut.panes.items():
        counts = counts - own if pane.end > done.head.closed else counts
    return replace(done, shown=replace(done.shown, counts=counts))


def _merged_panes(before: Released, published: Shown, cut: Cut, *given: Any) -> Any:
    """Mutant: a pane closed as bounded is decided although a partition still fills it."""
    return release.release(
        before, published, replace(cut, closed=max(cut.closed, cut.merged), merged=0), *given
    )


def _changed_m(before: Released, published: Shown, cut: Cut, fewest: int, support: Any) -> Any:
    """Mutant: a later m decides panes again."""
    done = release.release(before, published, cut, fewest, support)
    return replace(done, head=replace(done.head, fewest=((0, fewest),)))


def _small_late(*given: Any) -> Any:
    """Mutant: `late` shows a rest of any size."""
    done = release.release(*given)
    return replace(done, shown=replace(done.shown, late=_small_panes(*given).shown.late))


MUTANTS = [_small_panes, _open_panes, _small_rest, _merged_panes, _changed_m, _small_late]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_mutant_of_the_rule_is_caught(mutant: Rule) -> None:
    for seed in range(1000):
        try:
            made = history(seed, mutant)
            if smallest_class(made.vectors) < made.least:
                return
        except AssertionError:
            return
    pytest.fail("no history catches it")


def test_panes_that_a_partition_has_merged_are_not_decided_when_all_close_them() -> None:
    """The counts of the pane that ends at 20 are in the rest, in part or as a whole."""
    one = Counts(3, np.array([3, 0]))
    cut = Cut({0: 9}, one + one, {Pane(20, 10): one}, closed=30, merged=20)
    done = release.release(Released(0, ()), Shown(one - one, one - one), cut, 3, lambda states: states)
    assert (done.head.closed, done.head.fewest, done.shown.counts.n) == (30, ((0, None), (20, 3)), 6)


def test_lost_reports_do_not_count_as_new_ones() -> None:
    """{a, b} and {c, d} are published, and a, b and c lost: {d} is one report, although 3 lost are at least 2."""

    def counts(*of: int) -> Counts:
        return Counts(len(of), np.bincount(of, minlength=8))

    head, published = Released(0, ()), Shown(counts(), counts())
    for of, shown in (([0, 1], 2), ([0, 1, 2, 3], 4), ([3], 4), ([3, 4, 5, 6], 4), ([3, 4, 5, 6, 7, 0], 6)):
        done = release.release(head, published, Cut({}, counts(*of), {}), 2, lambda states: states)
        head, published = done.head, done.shown
        assert published.counts.n == shown
