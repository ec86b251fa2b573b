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

    def between(self, first: int, last: int) -> "Columns":
        """Returns records first to last − 1; no value is copied."""
        bounds = self.bounds[first : last + 1]
        return Columns(
            self.offsets[first:last],
            self.timestamps[first:last],
            self.values[bounds[0] : bounds[-1]],
            bounds - bounds[0],
        )


@dataclass(frozen=True)
class Batch:
    """What one poll brought of one partition: the log's stretch [start, end), of which ``columns`` are the records."""

    partition: int
    start: int
    end: int
    columns: Columns

    def slices(self, header: int, size: int, work: int, most: int) -> list["Batch"]:
        """Cuts the batch between records into stretches that cost at most so much to count, or are one record.

        Together they are the batch: what it holds, in its order, each beginning where the one before it ends. How many
        reports a record holds is not known before it is decoded, so the most that its bytes have room for are assumed.

        Args:
            header: bytes of a record before its reports.
            size: bytes of a report on the wire.
            work: steps that counting a report takes.
            most: steps of a slice.

        Example:
            >>> batch = Batch(0, 5, 20, Columns.of([7, 9, 12], [0, 0, 0], [b"ab", b"cdef", b"gh"]))
            >>> slices = batch.slices(header=1, size=1, work=10, most=40)
            >>> [(one.start, one.end, one.columns.values.tobytes()) for one in slices]
            [(5, 12, b'abcdef'), (12, 20, b'gh')]
        """
        columns = self.columns
        if len(columns.values) // size * work <= most:
            return [self]
        total = np.cumsum(np.maximum(np.diff(columns.bounds) - header, 0) // size * work)
        cuts = [0]
        while cuts[-1] < len(columns):
            spent = total[cuts[-1] - 1] if cuts[-1] else 0
            cuts.append(max(cuts[-1] + 1, int(np.searchsorted(total, spent + most, side="right"))))
        edges = [self.start, *columns.offsets[cuts[1:-1]].tolist(), self.end]
        return [
            Batch(self.partition, start, end, columns.between(first, last))
            for start, end, first, last in zip(edges, edges[1:], cuts, cuts[1:], strict=False)
        ]
