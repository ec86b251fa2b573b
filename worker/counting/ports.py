"""The ports: what counting and publishing need of the world, what passes through, and how it can fail.

Kafka implements them in `worker.kafka`, Redis in `worker.store.redis`; the tests' world of faults implements all of
them in memory. The algorithms that use them are in `worker.counting.ownership` and `worker.publishing.publisher`.
"""

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from ldp.snapshot import Message, Period, Row, Snapshot
from worker.counting.columns import Batch
from worker.counting.head import Head
from worker.counting.lateness import Late
from worker.counting.rules import Rule

CLAIMED = "claimed"
"""Metadata of an offset in Kafka that was claimed before anything was counted."""
COUNTED = "counted"
"""Metadata of an offset in Kafka below which records have been counted: losing the counts is then noticed."""


class Unavailable(Exception):  # noqa: N818  # a state of the other side, not a fault of ours
    """A step got no answer, or no clear one: it may have happened or not. It is retried.

    Attributes:
        remedy: what an operator can do about the cause, by the side that raised it; empty if unknown.

    Args:
        cause: names the side (Kafka or Redis), the operation, and what happened.
        remedy: see above.
    """

    def __init__(self, cause: str = "", remedy: str = "") -> None:
        super().__init__(cause)
        self.remedy = remedy


class NotOwner(Exception):  # noqa: N818
    """Kafka does not count this worker as the partitions' owner at this moment."""


class Displaced(Exception):  # noqa: N818
    """Another process is in the group under this worker's name: the stream stops here, as it is counted there."""


class StateLost(RuntimeError):  # noqa: N818  # named for what happened, as its message is read
    """Stored counts are missing, damaged or of another lineage: the stream stops, as going on would lose reports.

    Attributes:
        cause: what was found.
        remedy: what an operator can do; empty if the caller adds one.
    """

    def __init__(self, cause: str, remedy: str = "") -> None:
        super().__init__(cause, remedy)
        self.cause, self.remedy = cause, remedy

    def __str__(self) -> str:
        return f"{self.cause} Remedy: {self.remedy}." if self.remedy else self.cause


class NewerState(StateLost):
    """Stored counts that a newer version of the worker wrote: this one cannot go on with them, that one can."""


Failure: TypeAlias = Unavailable | StateLost
"""What a step of many partitions returns for one of them in the place of what came of it."""


class Answer(StrEnum):
    """What the store says to a commit or a compare."""

    DONE = "done"
    LINEAGE = "lineage"
    FENCED = "fenced"
    FORKED = "forked"
    UNSTAGED = "unstaged"


@dataclass(frozen=True)
class Metadata:
    """What the store keeps of a partition beside its blobs; `worker.counting.layout` says how.

    Attributes:
        lineage: what the counts are of, as it is stored; see `worker.counting.lineage`.
        epoch: raised by each claim; a writer of an older one is fenced.
        offset: the counts are those of [start, offset).
        flush: id of the commit that wrote this, 32 hex digits; empty before the first commit.
        blobs: window -> flush id of the commit that wrote its live blob.
        totals: canonical JSON of the rest of the state: start, rules, accepted, rejected, late, watermark, gaps.
    """

    lineage: str
    epoch: int
    offset: int
    flush: str
    blobs: Mapping[str, str]
    totals: str


@dataclass(frozen=True)
class StoredPartition:
    """A partition as it stands in the store, read in one atomic step."""

    metadata: Metadata
    blobs: Mapping[str, bytes]


class Log(Protocol):
    """What a worker needs of one topic's log and of its consumer group; called from one thread.

    What the brokers refuse of one partition is returned in the place of its answer.
    """

    def topic_id(self) -> str:
        """Asks for the id of the topic, another one if it was created again: what was polled before is of this one."""

    def generation(self) -> object | None:
        """Returns what identifies this membership and its rebalance; None while there is none."""

    def assigned(self) -> Set[int]:
        """Returns the partitions that the group assigns to this worker."""

    def committed(self, partitions: Collection[int]) -> Mapping[int, tuple[int, str] | Unavailable | None]:
        """Returns the group's committed (offset, metadata) of each partition, None if there is none."""

    def bounds(self, partitions: Collection[int]) -> Mapping[int, tuple[int, int] | Unavailable]:
        """Returns each log's (first offset, last stable offset)."""

    def firsts(self, offsets: Mapping[int, int]) -> Mapping[int, int]:
        """Returns where each log goes on at an offset or behind it.

        The result is the offset itself if the leader answers a fetch there. It is the log's first offset if two looks,
        with a pause between them, agree: the leader refuses a fetch at the offset and one just before the first offset,
        and answers one at the first offset. A partition is left out while that is not proven: ask again later.
        """

    def confirm(self, offsets: Mapping[int, tuple[int, str]]) -> Mapping[int, Unavailable | None]:
        """Commits offsets as a member of the current generation; raises `NotOwner` if that is over."""

    def mirror(self, offsets: Mapping[int, tuple[int, str]]) -> None:
        """Commits offsets without waiting, for lag tools; what becomes of it does not matter."""

    def start(self, partition: int, offset: int, rules: Sequence[Rule]) -> None:
        """Lets `poll` return the partition's records from an offset on, its batches read as the rules demand."""

    def stop(self, partition: int) -> None:
        """Lets `poll` return no more of the partition's records."""


class NonMemberLog(Protocol):
    """What who is no member of a group needs of its topic and of it."""

    def topic_id(self) -> str:
        """Returns the id of the topic, another one if it was created again."""

    def partitions(self) -> Set[int]:
        """Returns all partitions of the topic."""

    def committed(self, partitions: Collection[int]) -> Mapping[int, tuple[int, str]]:
        """Returns the group's committed (offset, metadata) of the partitions that have one."""

    def bounds(self, partitions: Collection[int]) -> Mapping[int, tuple[int, int]]:
        """Returns each log's (first offset, last stable offset)."""

    def has_records(self, partition: int, begin: int, end: int) -> bool:
        """Returns whether there are committed records in [begin, end) of a partition's log."""

    def mirror(self, offsets: Mapping[int, tuple[int, str]]) -> None:
        """Commits offsets, unless the group has members: they commit what they count themselves."""


class Store(Protocol):
    """What a worker needs of the store of one stream.

    Each step of a partition is atomic there. Steps of many partitions are sent together and fail each for itself; if a
    reply is lost, each of them may have been done or not.
    """

    def peek(self, partition: int) -> Metadata | None:
        """Returns a partition's metadata, or None."""

    def peek_all(self, partitions: Collection[int]) -> Mapping[int, Metadata | Failure | None]:
        """Returns each partition's metadata, or None."""

    def claim_all(
        self, wanted: Mapping[int, tuple[Metadata | None, Metadata]]
    ) -> Mapping[int, StoredPartition | Failure | None]:
        """Raises epochs of which epoch and lineage still are those that were found, then loads.

        Args:
            wanted: partition -> what `peek` returned, and what the partition begins with if nothing was found.

        Returns:
            Each partition, its metadata with the raised epoch; None if another claimed it meanwhile.
        """

    def stage_all(
        self, attempts: Mapping[int, tuple[str, Mapping[str, bytes]]]
    ) -> Mapping[int, Unavailable | None]:
        """Writes blobs under keys of each partition's attempt, which vanish if nothing promotes them."""

    def promote_all(
        self, attempts: Mapping[int, tuple[str, Metadata, Metadata]]
    ) -> Mapping[int, Answer | Unavailable]:
        """Replaces metadata, the second by the third, and puts the attempt's blobs beside them; or changes nothing."""

    def compare_all(self, held: Mapping[int, Metadata]) -> Mapping[int, Answer | Unavailable]:
        """Returns whether the store still holds exactly what this owner last read or wrote of each partition."""

    def stage(self, partition: int, attempt: str, blobs: Mapping[str, bytes]) -> None:
        """Writes blobs as `stage_all` does."""

    def install(self, partition: int, attempt: str, metadata: Metadata) -> Answer:
        """Puts the attempt's blobs and metadata where there are none, and says DONE.

        It says so, too, of just these counts that are there already; UNSTAGED if the blobs are gone, and FORKED if
        anything else is there. Then nothing is changed.
        """


class DeadLetters(Protocol):
    """Where malformed records go, and by choice late ones."""

    def add(self, batch: Batch, verdicts: npt.NDArray[np.uint8]) -> int:
        """Sends what a batch has of rejected records and of unreadable record batches, without waiting.

        Args:
            batch: a counted one.
            verdicts: on its records, as `ldp.frames.Decoded` has them.

        Returns:
            How many of them leave no dead letter, as too many come at once.

        Raises:
            Unavailable: they cannot be sent now; some may have been.
        """

    def add_late(self, batch: Batch, late: Late) -> int:
        """Sends late records of a batch, which are counted all the same; as `add` does."""

    def flush(self) -> None:
        """Waits until every record sent so far is safe; raises `Unavailable` if that is in doubt."""


class HeadReader(Protocol):
    """Where the head of a stream is read."""

    def head(self, *, decided: bool) -> Head:
        """Returns the newest head.

        Args:
            decided: the newest one that is committed, once nothing below the topic's end is open any more; else the
                newest that was sent, whatever became of it. Heads never go back, so counts that are not behind that one
                are behind no committed one either, and need not wait for transactions of others.

        Raises:
            Unavailable: the topic cannot be read; or its end is not decided yet, and it was to be.
        """


class SnapshotProducer(HeadReader, Protocol):
    """Where snapshots go, one whole snapshot or nothing at a time, and where the newest head is read."""

    def open(self) -> Head:
        """Fences every older publisher of the stream off, and returns the head; publishing needs it."""

    def publish(self, sequence: int, messages: Sequence[Message], rows: Sequence[Row] = ()) -> None:
        """Publishes a snapshot as a whole, with its rows; raises `Unavailable` if it may or may not be published."""

    def rows(self) -> Sequence[bytes]:
        """Returns the keys of the stream's rows that there are; only one of rows is asked. It may take minutes."""

    def close(self) -> None:
        """Lets go; an open transaction is aborted."""


class StateReader(Protocol):
    """Where cuts are read."""

    def peek(self, partition: int) -> Metadata | None:
        """Returns a partition's metadata, or None."""

    def cut_all(self, partitions: Collection[int]) -> Mapping[int, StoredPartition | Failure | None]:
        """Returns each partition's metadata and blobs as they stand together, or None."""


class Events(Protocol):
    """What counting and publishing tell of what happens to them, once each; `worker.observe.events` listens.

    Nothing of it holds what a record held. What is called may be called from any thread.
    """

    def info(self, event: str, **facts: object) -> None:
        """Logs a usual event."""

    def warning(self, event: str, **facts: object) -> None:
        """Logs an event that should be rare."""

    # a claim

    def claimed(self, partition: int, start: str, offset: int, epoch: int) -> None:
        """A partition is counted from an offset on, ``start`` being fresh, resume, gap or recount."""

    def claim_failed(self, partitions: Sequence[int], error: Unavailable) -> None:
        """A claim is tried again later."""

    def gap_found(self, partition: int, lost_from: int, lost_to: int) -> None:
        """The log lost [lost_from, lost_to) before it was counted."""

    # counting

    def counted(self, accepted: int, rejected: int, reports: int) -> None:
        """A batch is counted: so many records, and so many reports in them."""

    def misplaced(self, late: Mapping[str, int], undated: int, left_out: int) -> None:
        """So many accepted records were too late for their pane, by age, and so many have no timestamp.

        Of the late ones so many leave no dead letter, though they were to.
        """

    def forged(self, test: str, reports: int, found: str) -> None:
        """Among so many reports that were looked at are some that no honest client sends; see `ldp.alarms`."""

    def keyed(self, records: int) -> None:
        """So many records came with a key or headers, which nobody has looked at."""

    def malformed(self, reasons: Mapping[str, int], left_out: int) -> None:
        """So many records are malformed, by reason, and but for those left out they were sent to the dead letters."""

    # a commit

    def commit_ended(self, answer: Answer | None, seconds: float) -> None:
        """An attempt of one partition's commit is over; no answer if its outcome is unknown."""

    def commit_failed(self, error: Unavailable) -> None:
        """A commit is tried again later."""

    def compare_failed(self, error: Unavailable) -> None:
        """A comparison with the store is tried again later."""

    def dropped(self, partition: int) -> None:
        """A partition is held no longer; it is claimed again, here or elsewhere."""

    def released(self, partition: int) -> None:
        """A partition is let go of, as Kafka takes it away."""

    # publishing

    def publishing(self, owner: bool) -> None:
        """Whether this worker publishes the stream's snapshots."""

    def published(self, snapshot: Snapshot, sum_deviation: float) -> None:
        """A snapshot is published; the deviation is that of Base's sum, see `ldp.query.sum_deviation`."""

    def lines(self, closed: Mapping[str, int], watermark: int) -> None:
        """How far the windows of each name are closed in the newest head; and the highest timestamp that is counted."""

    def compared(self, window: Period, values: int, queries: Sequence[str]) -> None:
        """In a final window so many values' frequencies changed since the one before, and those of these sets."""

    def checked(self, seconds: float | None) -> None:
        """The newest snapshot covers all that is counted; publishing took so long, where there was something new."""

    def publish_failed(self, error: Unavailable) -> None:
        """Publishing is tried again later."""

    def ticked(self) -> None:
        """A publisher's tick is over, whatever came of it."""

    def recommend_failed(self, sequence: int, error: Exception) -> None:
        """No recommendation could be made from a snapshot's estimate."""
