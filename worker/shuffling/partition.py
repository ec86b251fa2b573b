"""Claims an intake partition, and shuffles its uploads.

A batch has exactly B accepted uploads, the first after the committed offset, so a repeated batch has the same
members. The offset's metadata records B, and a claim records another B before the first batch that uses it.
"""

import json
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

import numpy as np

import ldp
from worker.counting.ports import Unavailable
from worker.shuffling.permuting import permute, split
from worker.shuffling.uploads import CLOCK_STEP_MS, Classifier, Record, Upload

_MINUTE_MS = 60_000


@dataclass(frozen=True)
class Batch:
    """One transaction: frames for the topic of reports, and the next offset.

    Attributes:
        offset: the committed offset after this batch.
        next_size: number B of uploads in the next batch.
        frames: (partition, frame) pairs.
        timestamp: timestamp of all frames in ms.
        uploads, reports, duplicates, rejected: numbers of shuffled and skipped records, and of reports.
    """

    offset: int
    next_size: int
    frames: Sequence[tuple[int, bytes]] = field(default=(), repr=False)
    timestamp: int = 0
    uploads: int = 0
    reports: int = 0
    duplicates: int = 0
    rejected: int = 0

    @property
    def metadata(self) -> str:
        """Metadata of the committed offset."""
        return json.dumps({"size": self.next_size})


class _Intake(Protocol):
    """An intake partition, and the topic of reports; see `KafkaIntake`.

    Each method raises `Unavailable` if it fails. The outcome of a failed `commit` is unknown.
    """

    @property
    def position(self) -> int: ...
    def fence(self) -> None: ...
    def committed(self) -> tuple[int, str] | None: ...
    def bounds(self) -> tuple[int, int]: ...
    def first_timestamp(self, offset: int, end: int) -> int | None: ...
    def offset_since(self, timestamp: int) -> int | None: ...
    def seek(self, offset: int) -> None: ...
    def poll(self) -> Sequence[Record]: ...
    def partitions(self) -> int: ...
    def commit(self, batch: Batch) -> None: ...
    def delete(self, offset: int) -> None: ...


class OwnedIntake:
    """An intake partition that this process owns.

    After an exception or a revocation, drop the object and make a new one.

    `size`: configured number B of uploads in a batch. `deduplicate_for`: see `RecentIds`, in ms. `most_reports`:
    largest number of reports in a frame. `clock`: time in ms since the epoch. It decides only when shuffled records are
    deleted.
    """

    def __init__(
        self,
        stream: ldp.Stream,
        intake: _Intake,
        size: int,
        deduplicate_for: int,
        most_reports: int,
        clock: Callable[[], float] = lambda: 1000 * time.time(),
    ) -> None:
        self._stream, self._intake, self._configured = stream, intake, size
        self._most_reports, self._clock = most_reports, clock
        self._kept_for = deduplicate_for + CLOCK_STEP_MS
        self._classifier, self._uploads = Classifier(stream, deduplicate_for), deque[Upload]()
        self._offset = self._end = 0
        self._size: int | None = None
        self._tidy_at = 0.0
        self.expired = 0

    @property
    def held(self) -> int:
        """Number of accepted uploads that wait for a batch."""
        return len(self._uploads)

    @property
    def oldest(self) -> int:
        """Timestamp in ms of the first upload that waits for a batch, or 0."""
        return self._uploads[0].timestamp if self._uploads else 0

    @property
    def claimed(self) -> bool:
        """Whether the claim is complete."""
        return self._size is not None

    def claim(self) -> None:
        """Claims the partition, and starts reading.

        1. The caller notes the generation and member id of the group.
        2. Fence the previous owner, and abort its open transaction.
        3. Read the committed offset and its metadata.
        4. Read the log's bounds. If retention deleted uploads, continue at the log's start.
        5. Read from the first record that can be the original of an unshuffled duplicate. Records below the committed
           offset contribute only their ids. Then decide B, and record it if it differs from the metadata.
        """
        intake = self._intake
        # Step 2.
        intake.fence()
        # Step 3.
        self._committed = intake.committed()
        # Step 4.
        begin, self._end = intake.bounds()
        committed = begin if self._committed is None else self._committed[0]
        if committed > self._end:
            raise Unavailable(
                f"the group's offset {committed} is above the end {self._end} of the intake: the topic was truncated or"
                " created again",
                "delete the group's offsets of the topic; uploads that a truncated topic still has are then shuffled"
                " again",
            )
        self._offset = max(begin, committed)
        self.expired = self._offset - committed
        # Step 5.
        found = intake.first_timestamp(self._offset, self._end)
        first = self._clock() if found is None else found
        since = intake.offset_since(int(first) - self._kept_for)
        intake.seek(self._offset if since is None else min(since, self._offset))

    def step(self) -> Batch | None:
        """Reads records, and shuffles B uploads if there are as many.

        1. Read records in order, up to the B-th accepted upload.
        2. Permute the reports.
        3. Split them into frames.
        4. Begin a transaction.
        5. Send the frames.
        6. Check every acknowledgement.
        7. Send the offset after the B-th upload and the next B to the transaction, as a group member.
        8. Commit.
        9. Later, `tidy` deletes shuffled records that no duplicate needs.
        """
        if self._size is None:
            self._finish_claim()
        elif self.held < self._size:
            self._read()
        if self._size is None or self.held < self._size:
            return None
        batch = self._next()
        self._commit(batch)
        for _ in range(batch.uploads):
            self._uploads.popleft()
        return batch

    def tidy(self) -> None:
        """Once a minute, deletes old shuffled records.

        Raises `Unavailable`: retention deleted uploads that wait.
        """
        # Step 9.
        now = self._clock()
        if now < self._tidy_at or self._size is None:
            return
        self._tidy_at = now + _MINUTE_MS
        begin, end = self._intake.bounds()
        if begin > self._offset:
            raise Unavailable(f"retention deleted the uploads at offsets {self._offset} to {begin - 1}")
        first = self._uploads[0].since if self._uploads else self._classifier.since
        if first is None:
            if self._intake.position < end:
                return  # the first unshuffled record is not read yet
            first = int(now)  # records that arrive after `bounds` are not older
        since = self._intake.offset_since(first - self._kept_for)
        if (below := self._offset if since is None else min(since, self._offset)) > begin:
            self._intake.delete(below)

    def _read(self) -> None:
        records = self._intake.poll()
        shuffled = [record for record in records if record.offset < self._offset]
        self._classifier.remember(shuffled)
        if fresh := records[len(shuffled) :]:
            self._uploads.extend(self._classifier.classify(fresh))

    def _finish_claim(self) -> None:
        """Continues step 5; then decides and records B."""
        recorded = _size_of(self._committed)
        wanted = recorded or self._configured
        if self._intake.position < self._end and self.held < wanted:
            self._read()
            return
        # without `wanted` uploads, no owner has tried a batch, and another B exposes nothing
        size = wanted if self.held >= wanted else self._configured
        if self._committed is None or (self._offset, size) != (self._committed[0], recorded):
            self._commit(Batch(self._offset, size))
        self._size = size

    def _next(self) -> Batch:
        # Step 1.
        assert self._size is not None
        taken = list(islice(self._uploads, self._size))
        # Step 2.
        reports = permute(np.concatenate([upload.reports for upload in taken]))
        # Step 3.
        frames = split(self._stream, reports, self._most_reports, self._intake.partitions())
        newest = max(upload.timestamp for upload in taken)
        return Batch(
            offset=taken[-1].offset + 1,
            next_size=self._configured,
            frames=frames,
            timestamp=newest - newest % _MINUTE_MS,
            uploads=len(taken),
            reports=reports.size,
            duplicates=sum(upload.duplicates for upload in taken),
            rejected=sum(upload.rejected for upload in taken),
        )

    def _commit(self, batch: Batch) -> None:
        # the port has steps 4 to 8
        self._intake.commit(batch)
        self._offset, self._size = batch.offset, batch.next_size


def _size_of(committed: tuple[int, str] | None) -> int | None:
    """Returns B from an offset's metadata; None without valid metadata."""
    try:
        found = json.loads(committed[1])["size"] if committed else None
    except (ValueError, LookupError, TypeError):  # a tool reset the group's offset
        return None
    return found if isinstance(found, int) and found > 0 else None
