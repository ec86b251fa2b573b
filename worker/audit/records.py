"""Records of a log, and offset ranges."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

Range = tuple[int, int]  # Offsets [from, to) of a log
Caps = list[tuple[int, int | None]]
"""Size limits of decompressed batches as (first offset, maximum bytes or None), in ascending order."""

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Records:
    """Chunk of records; the value of record i is ``data[begins[i]:ends[i]]``."""

    offsets: Ints  # (m,) ascending
    timestamps: Ints  # (m,) milliseconds
    data: npt.NDArray[np.uint8]
    begins: Ints
    ends: Ints
    unreadable: int = 0  # unreadable record batches; each counts as one rejected record
    starts: Ints | None = None  # start of each record after its length

    @classmethod
    def of(cls, records: Iterable[tuple[int, bytes | None]], start: int = 0) -> "Records":
        """Converts (timestamp, value) pairs into records at consecutive offsets.

        Example:
            >>> Records.of([(1000, b"ab"), (1001, None), (1002, b"c")]).ends.tolist()
            [2, 2, 3]
        """
        listed = list(records)
        values = [value or b"" for _, value in listed]
        sizes = np.array([len(value) for value in values], np.int64)
        ends = np.cumsum(sizes, dtype=np.int64)
        timestamps = np.array([timestamp for timestamp, _ in listed], np.int64)
        data = np.frombuffer(b"".join(values), np.uint8)
        return cls(start + np.arange(len(listed)), timestamps, data, ends - sizes, ends)

    def split(self, offset: int) -> tuple["Records", "Records"]:
        """Splits at an offset; the first part keeps the unreadable batches."""
        at = int(np.searchsorted(self.offsets, offset))
        first, rest = (
            Records(self.offsets[part], self.timestamps[part], self.data, self.begins[part], self.ends[part])
            for part in (slice(at), slice(at, None))
        )
        return replace(first, unreadable=self.unreadable), rest


@dataclass(frozen=True)
class Deleted:
    """A range of offsets that was deleted during the audit."""

    span: Range
