"""Compares each final window with the previous one.

The publisher keeps the last estimate of each window name only in memory. A new publisher therefore compares nothing
until two consecutive windows are final. `ldp.analysis.changes` can compare any two windows on the topic.
"""

from collections.abc import Callable, Sequence

import ldp
from ldp.analysis import changes
from ldp.query import Query, SetQuery
from ldp.snapshot import Period


class Comparer:
    """Compares the final windows of a stream.

    Args:
        queries: the queries of the stream's snapshots. All values and the set queries are compared.
        level: false discovery rate of each comparison; 0 for no comparison.
        at_least: the largest difference that is not a change.
    """

    def __init__(self, queries: Sequence[Query] = (), level: float = 0.0, at_least: float = 0.0) -> None:
        self._sets = [query for query in queries if isinstance(query, SetQuery)]
        self._level, self._at_least = level, at_least
        self._last: dict[str, tuple[int, ldp.Estimate]] = {}

    def compare(
        self,
        finals: Sequence[tuple[Period, ldp.Estimate]],
        emit: Callable[[Period, int, Sequence[str]], object],
    ) -> None:
        """Compares each final window with the window that ends at its start.

        Two compared windows therefore share no report. ``finals`` must be in order of time for each name. ``emit``
        receives the later window, the number of changed values, and the names of changed sets.
        """
        for window, estimate in finals:
            # windows that share memoised noise are not independent
            if not self._level or window.start is None or window.end is None or estimate.memoised:
                continue
            end, before = self._last.get(window.name, (window.start, None))
            if window.start < end:
                continue
            self._last[window.name] = window.end, estimate
            if before is not None and window.start == end:
                emit(window, *self._changes(before, estimate))

    def _changes(self, before: ldp.Estimate, after: ldp.Estimate) -> tuple[int, Sequence[str]]:
        values = changes.between(before, after, self._level, self._at_least).found
        sets = changes.between_sets(before, after, self._sets, self._level, self._at_least).found
        return values.size, [self._sets[index].name for index in sorted(sets.tolist())]
