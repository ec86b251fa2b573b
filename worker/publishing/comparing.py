"""Comparison of each final window with the one before it.

The estimates to compare with are in the publisher's memory only, one a name: a publisher that takes over compares once
it has published two. `ldp.analysis.changes` compares any windows on the topic.
"""

from collections.abc import Callable, Sequence

import ldp
from ldp.analysis import changes
from ldp.oracles.rated_estimate import RatedEstimate
from ldp.query import Query, SetQuery
from ldp.snapshot import Period


class Comparer:
    """Compares the final windows of a stream.

    Args:
        queries: of its snapshots; the sets among them are compared.
        level: the false discovery rate of each comparison; 0 for no comparison.
        at_least: the largest difference that counts as none.
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
        """Compares complete final windows, each name's in order, and emits the changes of each pair.

        ``tell`` gets the window, the number of values whose frequency changed, and the names of the sets whose did.
        Overlapping windows are compared with the one a whole length before, so that no report is in both.
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
