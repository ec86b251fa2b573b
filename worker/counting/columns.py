"""Batches of records from one partition, with one array per field."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Columns:
    """Records of one partition in log order, with one array per field.

    Example:
        >>> columns = Columns.of([7, 9], [1000, 1001], [b"ab", None])
        >>> columns.value(0), columns.value(1), len(columns)
        (b'ab', b'', 2)
    """

    offsets: npt.NDArray[np.int64]  # strictly ascending, without markers, aborted and compacted records
    timestamps: npt.NDArray[np.int64]  # milliseconds since the epoch
    data: npt.NDArray[np.uint8]  # the values in order; bytes between them are ignored
    begins: npt.NDArray[np.int64]  # value i is data[begins[i]:ends[i]], empty if the record has none
    ends: npt.NDArray[np.int64]

    @classmethod
    def of(cls, offsets: Sequence[int], timestamps: Sequence[int], values: Sequence[bytes | None]) -> Self:
        """Builds columns from lists; O(bytes)."""
        filled = [value or b"" for value in values]
        bounds = np.zeros(len(filled) + 1, np.int64)
        np.cumsum([len(value) for value in filled], out=bounds[1:])
        data = np.frombuffer(b"".join(filled), np.uint8)
        return cls(np.array(offsets, np.int64), np.array(timestamps, np.int64), data, bounds[:-1], bounds[1:])

    def __len__(self) -> int:
        return len(self.offsets)

    def value(self, i: int) -> bytes:
        """Returns the value of record i."""
        return self.data[self.begins[i] : self.ends[i]].tobytes()

    def between(self, first: int, last: int) -> "Columns":
        """Returns the records [first, last) without copying values."""
        s = slice(first, last)
        return Columns(self.offsets[s], self.timestamps[s], self.data, self.begins[s], self.ends[s])


@dataclass(frozen=True)
class Unreadable:
    """An unreadable record batch at [offset, end), rejected as one record."""

    offset: int
    end: int
    size: int  # bytes in the log
    sha256: str  # SHA-256 of those bytes, in hexadecimal
    why: str  # reason: checksum, codec, size, length or magic; see worker.kafka.decoding.records


@dataclass(frozen=True)
class Batch:
    """Records of one partition from one poll, at offsets [start, end)."""

    partition: int
    start: int
    end: int
    columns: Columns
    unreadable: tuple[Unreadable, ...] = ()
    with_key_or_headers: int = 0  # number of records with a key or headers; both are ignored

    def until(self, offset: int) -> "Batch":
        """Returns the part of the batch below an offset without copying values."""
        if offset >= self.end:
            return self
        columns = self.columns.between(0, int(np.searchsorted(self.columns.offsets, offset)))
        unreadable = tuple(bad for bad in self.unreadable if bad.end <= offset)
        return Batch(self.partition, self.start, offset, columns, unreadable, self.with_key_or_headers)

    def slices(self, header: int, size: int, cost: int, most: int) -> list["Batch"]:
        """Splits the batch into slices that take at most ``most`` steps.

        A record has ``header`` bytes, then reports of ``size`` bytes and ``cost`` steps each. A slice that has only one
        record may take more.

        Example:
            >>> batch = Batch(0, 5, 20, Columns.of([7, 9, 12], [0, 0, 0], [b"ab", b"cdef", b"gh"]))
            >>> slices = batch.slices(header=1, size=1, cost=10, most=40)
            >>> [(one.start, one.end, len(one.columns)) for one in slices]
            [(5, 12, 2), (12, 20, 1)]
        """
        columns = self.columns
        if not len(columns) or int(columns.ends[-1] - columns.begins[0]) // size * cost <= most:
            return [self]
        total = np.cumsum(np.maximum(columns.ends - columns.begins - header, 0) // size * cost)
        cuts = [0]
        while cuts[-1] < len(columns):
            spent = total[cuts[-1] - 1] if cuts[-1] else 0
            cuts.append(max(cuts[-1] + 1, int(np.searchsorted(total, spent + most, side="right"))))
        edges = [self.start, *columns.offsets[cuts[1:-1]].tolist(), self.end]
        slices = []
        for start, end, first, last in zip(edges, edges[1:], cuts, cuts[1:], strict=False):
            unreadable = tuple(bad for bad in self.unreadable if start < bad.end <= end)
            keys = self.with_key_or_headers if start == self.start else 0
            slices.append(Batch(self.partition, start, end, columns.between(first, last), unreadable, keys))
        return slices
