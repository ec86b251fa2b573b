"""A stretch of one partition's log as columns: the shape in which records travel from Kafka to the counts."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Columns:
    """Records of one partition, in the log's order, one array a field.

    Attributes:
        offsets: (m,) int64, strictly ascending; gaps are markers, aborted or compacted records.
        timestamps: (m,) int64, milliseconds since the epoch.
        values: all values joined, uint8; a record without a value is an empty one.
        bounds: (m + 1,) int64; the value of record i is ``values[bounds[i]:bounds[i + 1]]``.

    Example:
        >>> columns = Columns.of([7, 9], [1000, 1001], [b"ab", None])
        >>> columns.value(0), columns.value(1), len(columns)
        (b'ab', b'', 2)
    """

    offsets: npt.NDArray[np.int64]
    timestamps: npt.NDArray[np.int64]
    values: npt.NDArray[np.uint8]
    bounds: npt.NDArray[np.int64]

    @classmethod
    def of(
        cls, offsets: Sequence[int], timestamps: Sequence[int], values: Sequence[bytes | None]
    ) -> "Columns":
        """Lays records out as columns; O(bytes)."""
        filled = [value or b"" for value in values]
        bounds = np.zeros(len(filled) + 1, np.int64)
        np.cumsum([len(value) for value in filled], out=bounds[1:])
        return cls(
            np.array(offsets, np.int64),
            np.array(timestamps, np.int64),
            np.frombuffer(b"".join(filled), np.uint8),
            bounds,
        )

    def __len__(self) -> int:
        return len(self.offsets)

    def value(self, i: int) -> bytes:
        """Returns the value of record i."""
        return self.values[self.bounds[i] : self.bounds[i + 1]].tobytes()


@dataclass(frozen=True)
class Batch:
    """What one poll brought of one partition: the log's stretch [start, end), of which ``columns`` are the records."""

    partition: int
    start: int
    end: int
    columns: Columns
