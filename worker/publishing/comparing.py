"""Comparing: what changed from a final window to the next one of its name, each a full length after the other.

What stands for it is in the publisher's memory alone, one estimate for each name: nothing of it is in Redis, or on the
topic. So a publisher that takes over compares once it has published two; what it missed is on the topic still,
where `ldp.analysis.changes` reads it.
"""

from collections.abc import Callable, Sequence

import ldp
from ldp.analysis import changes
from ldp.query import Query, SetQuery
from ldp.rates import RatedEstimate
from ldp.snapshot import Period


class Comparer:
    """Compares the final windows of a stream.

    Args:
        queries: of its snapshots; the sets among them are compared.
        level: the false discovery rate of each comparison, of the values and of the sets; 0 for no comparison.
        at_least: a difference up to so much is none.
    """

    def __init__(self, queries: Sequence[Query] = (), level: float = 0.0, at_least: float = 0.0) -> None:
        self._sets = [query for query in queries if isinstance(query, SetQuery)]
        self._level, self._at_least = level, at_least
        self._last: dict[str, tuple[int, ldp.Estimate]] = {}

    def compare(
        self,
        finals: Sequence[tuple[Period, ldp.Estimate]],
        tell: Callable[[Period, int, Sequence[str]], object],
    ) -> None:
        """Takes windows that are published, final and complete, each name's in their order, and tells of each pair.

        What is told: which window, of how many values the frequency changed, and the names of the sets of which it did.

        Windows that overlap are compared with the one a whole length before, so that no report is in both; those in
        between are passed over.
        """
        for window, estimate in finals:
            # of reports at several rates the counts do not say of how many of each a window is
            if (
                not self._level
                or window.start is None
                or window.end is None
                or isinstance(estimate, RatedEstimate)
            ):
                continue
            end, before = self._last.get(window.name, (window.start, None))
            if window.start < end:
                continue
            self._last[window.name] = window.end, estimate
            if before is not None and window.start == end:
                tell(window, *self._changes(before, estimate))

    def _changes(self, before: ldp.Estimate, after: ldp.Estimate) -> tuple[int, Sequence[str]]:
        values = changes.between(before, after, self._level, self._at_least).found
        sets = changes.between_sets(before, after, self._sets, self._level, self._at_least).found
        return values.size, [self._sets[index].name for index in sorted(sets.tolist())]
