"""Classifies uploads as accepted, duplicate or rejected.

The result for a record depends only on the log up to that record. It depends neither on a clock, nor on the batches in
which the records arrive, nor on the number of uploads in a batch.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

import ldp
from ldp import frames

ID_BYTES = 16
CLOCK_STEP_MS = 600_000  # Largest backward step of the brokers' clocks
_PERIODS = 4  # Number of periods in the time for which ids are remembered
_NEVER = -(1 << 62)


class Record(Protocol):
    """A record of the intake topic.

    Attributes:
        offset: the record's offset.
        timestamp: the broker's timestamp in ms.
        key: the upload's id.
        value: the upload's frame.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True)
class Upload:
    """An accepted upload, and the records before it that are not accepted.

    Attributes:
        offset: the record's offset.
        timestamp: the broker's timestamp in ms.
        reports: (n,) reports of the oracle's ``report_dtype``, n ≥ 1.
        since: timestamp of the first record after the previous accepted upload.
        duplicates: number of duplicates after the previous accepted upload.
        rejected: number of rejected records after the previous accepted upload.
    """

    offset: int
    timestamp: int
    reports: npt.NDArray[np.void]
    since: int
    duplicates: int = 0
    rejected: int = 0


class RecentIds:
    """Ids of recent records, with their broker timestamps.

    Records are duplicates if they have the same id and timestamps less than `milliseconds` apart. The ids of a period
    are in a dictionary. Ids of earlier periods are in sorted arrays, which take 24 bytes per id, and are dropped later.

    Example:
        >>> ids = RecentIds(milliseconds=3_600_000)
        >>> ids.add([bytes(16)] * 4, [minute * 60_000 for minute in (0, 59, 118, 178)])
        [False, True, True, False]
    """

    def __init__(self, milliseconds: int) -> None:
        self._milliseconds, self._end = milliseconds, 0
        self._newest = dict[bytes, int]()  # id -> newest timestamp
        self._earlier = deque[
            tuple[int, npt.NDArray[np.bytes_], npt.NDArray[np.int64]]
        ]()  # (newest, ids, timestamps)

    def __len__(self) -> int:
        return len(self._newest) + sum(ids.size for _, ids, _ in self._earlier)

    def add(self, ids: Sequence[bytes], timestamps: Sequence[int]) -> list[bool]:
        """Remembers the ids of the next records; returns which are duplicates."""
        if timestamps:
            self._begin_period(timestamps[0])
        duplicate = list[bool]()
        for upload_id, timestamp, known in zip(ids, timestamps, self._known(ids), strict=True):
            newest = self._newest.get(upload_id, _NEVER)
            duplicate.append(timestamp - max(newest, known) < self._milliseconds)
            self._newest[upload_id] = max(timestamp, newest)
        return duplicate

    def _known(self, ids: Sequence[bytes]) -> list[int]:
        """Returns each id's newest timestamp in earlier periods."""
        wanted, found = np.array(ids, f"S{ID_BYTES}"), np.full(len(ids), _NEVER)
        for _, sorted_ids, timestamps in self._earlier:
            at = np.searchsorted(sorted_ids, wanted).clip(max=sorted_ids.size - 1)
            np.maximum(found, timestamps[at], out=found, where=sorted_ids[at] == wanted)
        return found.tolist()

    def _begin_period(self, timestamp: int) -> None:
        if self._newest and timestamp >= self._end:
            ids = np.array([*self._newest], f"S{ID_BYTES}")
            timestamps, order = np.array([*self._newest.values()]), np.argsort(ids)
            self._earlier.append((int(timestamps.max()), ids[order], timestamps[order]))
            self._newest = {}
        while self._earlier and self._earlier[0][0] <= timestamp - self._milliseconds - CLOCK_STEP_MS:
            self._earlier.popleft()
        if not self._newest:
            self._end = timestamp + self._milliseconds // _PERIODS


class Classifier:
    """Classifies an intake partition's records in the order of the log."""

    def __init__(self, stream: ldp.Stream, deduplicate_for: int) -> None:
        self._stream, self.ids = stream, RecentIds(deduplicate_for)
        self.since: int | None = None
        """Timestamp of the first record after the last accepted upload, or None."""
        self._duplicates = self._rejected = 0

    def remember(self, records: Sequence[Record]) -> list[bool]:
        """Remembers the ids of the next records; returns which are duplicates."""
        valid = [i for i, record in enumerate(records) if _has_id(record)]
        found = self.ids.add([records[i].key or b"" for i in valid], [records[i].timestamp for i in valid])
        duplicate = dict(zip(valid, found, strict=True))
        return [duplicate.get(i, False) for i in range(len(records))]

    def classify(self, records: Sequence[Record]) -> list[Upload]:
        """Returns the accepted uploads among the next records."""
        duplicate = self.remember(records)
        values = [
            record.value or b"" if _has_id(record) and not is_duplicate else b""
            for record, is_duplicate in zip(records, duplicate, strict=True)
        ]
        ends = np.cumsum([len(value) for value in values], dtype=np.int64)
        begins = ends - np.array([len(value) for value in values], np.int64)
        decoded = frames.decode(self._stream, b"".join(values), begins, ends)
        uploads, at = list[Upload](), 0
        for record, is_duplicate, reports in zip(records, duplicate, decoded.counts.tolist(), strict=True):
            self.since = record.timestamp if self.since is None else self.since
            if not reports:
                self._duplicates += is_duplicate
                self._rejected += not is_duplicate
                continue
            found = decoded.reports[at : at + reports].copy()  # a view would keep the whole batch
            uploads.append(
                Upload(record.offset, record.timestamp, found, self.since, self._duplicates, self._rejected)
            )
            at += reports
            self.since, self._duplicates, self._rejected = None, 0, 0
        return uploads


def _has_id(record: Record) -> bool:
    return record.key is not None and len(record.key) == ID_BYTES
