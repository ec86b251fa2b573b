"""Samples dead letters by reason.

Sending a dead letter costs 1000 times as much as counting a record. Each reason therefore has a token bucket. The
choice of a record depends on its position, its reason and the sizes of records sent before, not on its contents.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ldp import frames
from worker.counting.columns import Columns

DEAD_LETTERS_A_SECOND = 100
"""Most dead letters of one reason per second, and at once: less than 1 % of a core."""
BYTES_A_SECOND = 1 << 20  # Bytes of records of one reason per second. A larger record is charged this amount
BYTES_AT_ONCE = 4 << 20  # Largest burst in bytes of one reason


@dataclass
class _Bucket:
    at: float
    dead_letters: float = DEAD_LETTERS_A_SECOND
    room: float = BYTES_AT_ONCE

    def most(self, now: float) -> int:
        """Refills the bucket, and returns how many dead letters it allows."""
        passed, self.at = now - self.at, now
        self.dead_letters = min(DEAD_LETTERS_A_SECOND, self.dead_letters + passed * DEAD_LETTERS_A_SECOND)
        self.room = min(BYTES_AT_ONCE, self.room + passed * BYTES_A_SECOND)
        return math.floor(self.dead_letters) if self.room > 0 else 0


class Sample:
    """Chooses the records of one stream that become dead letters.

    Example:
        >>> now = [0.0]
        >>> sample = Sample(lambda: now[0])
        >>> columns = Columns.of(range(1000), [0] * 1000, [b"noise"] * 1000)
        >>> verdicts = np.zeros(1000, np.uint8)
        >>> verdicts[5:] = 2
        >>> verdicts[900] = 3
        >>> chosen = sample.choose(columns, verdicts)
        >>> chosen[:3].tolist(), chosen[-2:].tolist(), len(chosen)
        ([5, 6, 7], [104, 900], 101)
        >>> for i in chosen.tolist():
        ...     sample.sent(frames.VERDICTS[verdicts[i]], 5)
        >>> now[0] = 0.02
        >>> sample.choose(columns, verdicts).tolist()
        [5, 6, 900]
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._buckets: dict[str, _Bucket] = {}

    def choose(self, columns: Columns, verdicts: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
        """Returns the ascending indices of rejected records to send; O(records).

        `verdicts` is an (m,) uint8 array; see `ldp.frames.Decoded`.
        """
        chosen = []
        for verdict, reason in enumerate(frames.VERDICTS[1:], 1):
            if most := self.most(reason):  # mostly 0 in a flood
                these = np.flatnonzero(verdicts == verdict)[:most]
                if len(these):
                    chosen.append(these[: self._room(reason, columns, these)])
        return np.sort(np.concatenate(chosen)) if chosen else np.empty(0, np.int64)

    def first(self, reason: str, columns: Columns, these: npt.NDArray[np.int64]) -> int:
        """Returns how many of the given records, in order, may be sent."""
        return self._room(reason, columns, these[: self.most(reason)])

    def _room(self, reason: str, columns: Columns, these: npt.NDArray[np.int64]) -> int:
        costs = np.minimum(columns.ends[these] - columns.begins[these], BYTES_A_SECOND)
        # any positive balance admits one record of any size
        return int(np.count_nonzero(np.cumsum(costs) - costs < self._bucket(reason).room))

    def most(self, reason: str) -> int:
        """Returns how many dead letters may be sent now if the records are small."""
        return self._bucket(reason).most(self._clock())

    def sent(self, reason: str, size: int) -> None:
        """Charges a sent dead letter to the bucket of its reason."""
        bucket = self._bucket(reason)
        bucket.dead_letters -= 1
        bucket.room -= min(size, BYTES_A_SECOND)

    def _bucket(self, reason: str) -> _Bucket:
        return self._buckets.setdefault(reason, _Bucket(self._clock()))
