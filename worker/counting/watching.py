"""Watching reports as they are counted, for forged ones: each is looked at once only, however often it is counted."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

import ldp
from ldp.alarms import Watch
from worker.counting.columns import Batch
from worker.counting.ports import Events

Look = Callable[[npt.NDArray[np.void]], None]


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
        >>> watching.of(batch) is None, watching.of(batch) is None
        (False, True)
    """

    def __init__(self, oracle: ldp.Oracle, clock: Callable[[], float], events: Events) -> None:
        self._watch, self._events = Watch(oracle, clock), events
        self._seen = dict[int, int]()

    def of(self, batch: Batch) -> Look | None:
        """Returns what is to look at the reports of a batch; None where some of them were looked at before."""
        if batch.start < self._seen.get(batch.partition, 0):
            return None
        self._seen[batch.partition] = batch.end
        return self._look

    def _look(self, reports: npt.NDArray[np.void]) -> None:
        for alarm in self._watch.look(reports):
            self._events.forged(alarm.test, alarm.reports, alarm.found)
