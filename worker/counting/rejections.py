"""Counts rejected records by reason, and emits a periodic event."""

from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from ldp import frames
from worker.counting.applied import Applied
from worker.counting.columns import Batch
from worker.counting.ports import Events

EVERY_SECONDS = 60.0
GATHER_SECONDS = 2.0
"""Delay of the event after the first rejection, so that it covers more than one batch."""
UNREADABLE = "batch"
"""The reason of a record batch that cannot be read."""
REASONS: Mapping[str, str] = {
    **frames.REASONS,
    UNREADABLE: "the record batch cannot be read: damaged, too large once decompressed, or of another format",
}
"""The description of each reason."""


def counted(verdicts: npt.NDArray[np.uint8], unreadable: int = 0) -> Counter[str]:
    """Counts rejected records and unreadable record batches by reason.

    Example:
        >>> counted(np.array([0, 2, 2], np.uint8), 1)
        Counter({'version': 2, 'batch': 1})
    """
    found = Counter[str]()
    if unreadable:
        found[UNREADABLE] = unreadable
    if np.count_nonzero(verdicts):  # usually 0; one comparison per reason takes half the time of np.bincount
        for verdict, reason in enumerate(frames.VERDICTS[1:], 1):
            if n := int(np.count_nonzero(verdicts == verdict)):
                found[reason.value] = n
    return found


def formatted(counts: Mapping[str, int]) -> str:
    """Formats reasons with their counts, the most frequent first.

    Example:
        >>> formatted({"json": 2, "fingerprint": 1200})
        'fingerprint 1,200, json 2'
    """
    return ", ".join(f"{reason} {n:,}" for reason, n in Counter(counts).most_common())


class Rejections:
    """Emits an event for rejected records after 2 s, then once a minute.

    Args:
        clock: returns the time in seconds.
        events: receives the event.

    Example:
        >>> from types import SimpleNamespace
        >>> from worker.counting.columns import Columns
        >>> now = [0.0]
        >>> events = SimpleNamespace(warning=lambda _, **facts: print(*facts.values()))
        >>> rejections = Rejections(lambda: now[0], events)
        >>> batch = Batch(3, 5, 8, Columns.of([5, 6, 7], [0, 0, 0], [b"good", b"noise", b"noise"]))
        >>> rejections.add(batch, Applied(np.array([0, 2, 2], np.uint8), Counter(version=2)), left_out=0)
        >>> now[0] = 2.0
        >>> rejections.emit()
        {'version': 2} 0 1 3 6
    """

    def __init__(self, clock: Callable[[], float], events: Events) -> None:
        self._clock, self._events = clock, events
        self._reasons: Counter[str] = Counter()
        self._left_out = self._accepted = 0
        self._first: tuple[int, int] | None = None
        self._due = clock()

    def add(self, batch: Batch, applied: Applied, left_out: int) -> None:
        """Adds a batch; ``left_out`` rejected records have no dead letter."""
        if self._first is None:
            if not applied.rejected:
                return
            offsets = [int(batch.columns.offsets[i]) for i in np.flatnonzero(applied.verdicts)[:1]]
            self._first = batch.partition, min(offsets + [bad.offset for bad in batch.unreadable])
            self._due = max(self._due, self._clock() + GATHER_SECONDS)
        self._left_out += left_out
        self._accepted += applied.accepted
        self._reasons.update(applied.rejected)
        self.emit()

    def emit(self) -> None:
        """Emits the event if the interval is over and records were rejected."""
        if self._first is None or self._clock() < self._due:
            return
        partition, offset = self._first
        self._events.warning(
            "records.rejected",
            reasons=dict(self._reasons),
            dead_letters_left_out=self._left_out,
            accepted=self._accepted,
            partition=partition,
            offset=offset,
        )
        self._reasons, self._left_out, self._accepted, self._first = Counter(), 0, 0, None
        self._due = self._clock() + EVERY_SECONDS
