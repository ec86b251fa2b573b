"""Tests counted reports for poisoning, each report once."""

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import numpy.typing as npt

from ldp.alarms import Watch
from worker.counting.columns import Batch
from worker.counting.documents import Document
from worker.counting.ports import Events


class Watching:
    """Poisoning tests of one stream; a restart forgets the tested reports.

    Reports that are counted again after a drop are not tested again, because the tests of `ldp.alarms` assume
    independent reports.

    Each document has its own tests. Reports with memoised noise are not independent, and not tested.

    Args:
        clock: returns the time in seconds.
        events: receives alarms.
    """

    def __init__(self, clock: Callable[[], float], events: Events) -> None:
        self._watches = dict[str, Watch]()
        self._clock, self._events = clock, events
        self._seen = dict[int, int]()

    def look(
        self,
        batch: Batch,
        documents: Mapping[str, Document],
        reports: Iterable[tuple[str, npt.NDArray[np.void]]],
    ) -> bool:
        """Tests a batch's reports; returns False if some were tested before."""
        if batch.start < self._seen.get(batch.partition, 0):
            return False
        self._seen[batch.partition] = batch.end
        for fingerprint, some in reports:
            document = documents[fingerprint]
            if document.memoised:
                continue
            if fingerprint not in self._watches:
                self._watches[fingerprint] = Watch(document.oracle, self._clock)
            for alarm in self._watches[fingerprint].look(some):
                self._events.poisoned(alarm.test, alarm.reports, alarm.found)
        return True
