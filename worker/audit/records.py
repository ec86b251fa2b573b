"""What the audit knows of a log: its records, stretches of it, and what of it is gone."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

Record = tuple[int, bytes | None]
"""A record as the audit needs it: its timestamp in milliseconds, and its value."""
Stretch = tuple[int, int]
"""Offsets [from, to) of a log."""
Caps = list[tuple[int, int | None]]
"""How many bytes record batches may have after decompression from an offset on, None for any number; ascending."""

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Records:
    """Records that were read together.

    Attributes:
        offsets: (m,) ascending.
        timestamps: (m,) milliseconds.
        data: (b,) uint8, what the values lie in.
        begins: (m,); the value of record i is ``data[begins[i]:ends[i]]``, an empty one if it has none.
        ends: (m,).
        unreadable: how many record batches among them cannot be read; each is rejected as one record.
        starts: (m,) where in the data each record begins, behind its length; None where it was laid out by hand.
    """

    offsets: Ints
    timestamps: Ints
    data: npt.NDArray[np.uint8]
    begins: Ints
    ends: Ints
    unreadable: int = 0
    starts: Ints | None = None

    @classmethod
    def of(cls, records: Iterable[Record], start: int = 0) -> "Records":
        """Lays records out, which follow each other from an offset on.

        Example:
            >>> Records.of([(1000, b"ab"), (1001, None), (1002, b"c")]).ends.tolist()
            [2, 2, 3]
        """
        listed = list(records)
        values = [value or b"" for _, value in listed]
        ends = np.cumsum([len(value) for value in values], dtype=np.int64)
        begins = ends - np.array([len(value) for value in values], np.int64)
        data = np.frombuffer(b"".join(values), np.uint8)
        timestamps = np.array([timestamp for timestamp, _ in listed], np.int64)
        return cls(start + np.arange(len(listed)), timestamps, data, begins, ends)

    def split(self, offset: int) -> tuple["Records", "Records"]:
        """Returns those before an offset, and those from it on; what is unreadable goes with the first ones."""
        at = int(np.searchsorted(self.offsets, offset))
        first, rest = (
            Records(self.offsets[part], self.timestamps[part], self.data, self.begins[part], self.ends[part])
            for part in (slice(at), slice(at, None))
        )
        return replace(first, unreadable=self.unreadable), rest


@dataclass(frozen=True)
class Deleted:
    """What comes in the place of the records of a stretch that was deleted while it was read."""

    stretch: Stretch
