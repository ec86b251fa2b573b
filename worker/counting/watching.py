"""Watching reports as they are counted, for forged ones: each is looked at once only, however often it is counted."""

from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

import ldp
from ldp.alarms import Watch
from worker.counting.columns import Batch
from worker.counting.ports import Events


class Watching:
    """A watch over one stream's reports, kept in memory alone: who begins again watches anew.

    What is counted again, because it was let go of before it was stored, is not looked at again: the laws of
    `ldp.alarms` are of reports that are independent.

    Args:
        oracle: whose reports.
        clock: seconds.
        events: told of alarms.

    Example:
        >>> from worker.counting.columns import Columns
        >>> watching = Watching(ldp.GRR("1", domain_size=3), lambda: 0.0, events=None)
        >>> batch = Batch(0, 5, 8, Columns.of([], [], []))
        >>> watching.look(batch, []), watching.look(batch, [])
        (True, False)
    """

    def __init__(self, oracle: ldp.Oracle, clock: Callable[[], float], events: Events) -> None:
        self._watch, self._events = Watch(oracle, clock), events
        self._seen = dict[int, int]()

    def look(self, batch: Batch, reports: Iterable[npt.NDArray[np.void]]) -> bool:
        """Looks at the counted reports of a batch; returns whether it did: not where some were looked at before."""
        if batch.start < self._seen.get(batch.partition, 0):
            return False
        self._seen[batch.partition] = batch.end
        for some in reports:
            for alarm in self._watch.look(some):
                self._events.forged(alarm.test, alarm.reports, alarm.found)
        return True
