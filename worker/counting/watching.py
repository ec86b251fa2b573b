"""Tests counted reports for poisoning, each report once."""

from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

import ldp
from ldp.alarms import Watch
from worker.counting.columns import Batch
from worker.counting.ports import Events


class Watching:
    """Poisoning tests of one stream; a restart forgets the tested reports.

    Reports that are counted again after a drop are not tested again, because the tests of `ldp.alarms` assume
    independent reports.

    Args:
        fleet: the documents of the reports. Reports with memoised noise are not independent, and not tested.
        clock: returns the time in seconds.
        events: receives alarms.
    """

    def __init__(self, fleet: ldp.Fleet, clock: Callable[[], float], events: Events) -> None:
        (stream,) = fleet.documents
        memoised = stream.privacy is not None and stream.privacy.memoised
        self._watch = None if memoised else Watch(stream.oracle, clock)
        self._events = events
        self._seen = dict[int, int]()

    def look(self, batch: Batch, reports: Iterable[npt.NDArray[np.void]]) -> bool:
        """Tests a batch's reports; returns False if some were tested before."""
        if batch.start < self._seen.get(batch.partition, 0):
            return False
        self._seen[batch.partition] = batch.end
        if self._watch is None:
            return True
        for some in reports:
            for alarm in self._watch.look(some):
                self._events.poisoned(alarm.test, alarm.reports, alarm.found)
        return True
