"""Interfaces of counting and publishing to Kafka and Redis.

`worker.kafka` and `worker.store.redis` implement them. The tests have implementations in memory.
"""

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from ldp.snapshot import Message, Period, Received, Row, Snapshot
from worker.counting.columns import Batch
from worker.counting.head import Head
from worker.counting.lateness import Late
from worker.counting.rules import Rule

Read = TypeVar("Read")
CLAIMED = "claimed"
"""Metadata of a Kafka offset that a claim committed before counting began."""
COUNTED = "counted"
"""Metadata of a Kafka offset after counting began, so that a claim notices lost counts."""


class Unavailable(Exception):  # noqa: N818  # a state of Kafka or Redis, not an error of this worker
    """A step failed or has an unknown outcome; the worker retries it.

    Attributes:
        remedy: the operator's remedy, if known.
    """

    def __init__(self, cause: str = "", remedy: str = "") -> None:
        super().__init__(cause)
        self.remedy = remedy


class NotOwner(Exception):  # noqa: N818
    """Kafka does not accept this worker as the owner of the partitions."""


class Displaced(Exception):  # noqa: N818
    """Another process joined the group with this worker's name."""


class StateLost(RuntimeError):  # noqa: N818  # named after the event that it reports
    """Stored counts are lost, damaged or of another lineage: stop the stream.

    Attributes:
        cause: a sentence that names the problem.
        remedy: the operator's remedy; empty if the caller adds one.
    """

    def __init__(self, cause: str, remedy: str = "") -> None:
        super().__init__(cause, remedy)
        self.cause, self.remedy = cause, remedy

    def __str__(self) -> str:
        return f"{self.cause} Remedy: {self.remedy}." if self.remedy else self.cause


class NewerState(StateLost):
    """A newer version of the worker wrote the stored counts."""


Failure: TypeAlias = Unavailable | StateLost
"""The result for each partition that fails in a step of many partitions."""


class Answer(StrEnum):
    """The store's answer to a commit or a comparison."""

    DONE = "done"
    LINEAGE = "lineage"
    FENCED = "fenced"
    CONFLICT = "conflict"
    STAGING_EXPIRED = "staging_expired"


@dataclass(frozen=True)
class Metadata:
    """The metadata of a stored partition; see `worker.counting.layout`.

    Attributes:
        lineage: the stored identity of the counts; see `worker.counting.lineage`.
        epoch: a number that each claim raises. The store refuses commits with an older epoch.
        offset: the counts cover [start, offset).
        commit_id: the id of the newest commit, 32 hex digits; empty before the first one.
        blobs: cell -> id of the commit that wrote its live blob.
        totals: the state without offset and cells, as canonical JSON.
    """

    lineage: str
    epoch: int
    offset: int
    commit_id: str
    blobs: Mapping[str, str]
    totals: str


@dataclass(frozen=True)
class StoredPartition:
    """A stored partition, read in one atomic step."""

    metadata: Metadata
    blobs: Mapping[str, bytes]


class Log(Protocol):
    """The log and the consumer group of one topic; used by one thread.

    If the brokers refuse a request for one partition, the result for this partition is the error.
    """

    def topic_id(self) -> str:
        """Asks the brokers for the topic's id; a recreated topic has a new one."""

    def generation(self) -> object | None:
        """Returns the generation and member id, or None while rebalancing."""

    def assigned(self) -> Set[int]:
        """Returns the partitions that the group assigns to this worker."""

    def committed(self, partitions: Collection[int]) -> Mapping[int, tuple[int, str] | Unavailable | None]:
        """Returns the group's (offset, metadata) for each partition, or None."""

    def bounds(self, partitions: Collection[int]) -> Mapping[int, tuple[int, int] | Unavailable]:
        """Returns each log's (first offset, last stable offset)."""

    def firsts(self, offsets: Mapping[int, int]) -> Mapping[int, int]:
        """Returns each log's proven first offset at or after a given offset.

        If the leader answers a fetch at the given offset, the result is that offset. Otherwise it is the log's first
        offset, which needs two proofs with a pause in between. In each proof, the leader answers a fetch at the first
        offset, and refuses one just before and one at the given offset. The result omits partitions without proof.
        """

    def confirm(self, offsets: Mapping[int, tuple[int, str]]) -> Mapping[int, Unavailable | None]:
        """Commits offsets as a current group member, or raises `NotOwner`."""

    def mirror(self, offsets: Mapping[int, tuple[int, str]]) -> None:
        """Commits offsets without waiting for the outcome, for lag monitoring."""

    def start(self, partition: int, offset: int, rules: Sequence[Rule]) -> None:
        """Starts reading a partition at an offset; the rules limit its batches."""

    def stop(self, partition: int) -> None:
        """Stops reading a partition, and discards its fetched records."""


class NonMemberLog(Protocol):
    """A topic and a consumer group, for a process outside the group."""

    def topic_id(self) -> str:
        """Returns the topic's id; a topic that was created again has a new one."""

    def partitions(self) -> Set[int]:
        """Returns all partitions of the topic."""

    def committed(self, partitions: Collection[int]) -> Mapping[int, tuple[int, str]]:
        """Returns the group's committed (offset, metadata) for each partition."""

    def bounds(self, partitions: Collection[int]) -> Mapping[int, tuple[int, int]]:
        """Returns each log's (first offset, last stable offset)."""

    def has_records(self, partition: int, begin: int, end: int) -> bool:
        """Returns whether a log has committed records in [begin, end)."""

    def mirror(self, offsets: Mapping[int, tuple[int, str]]) -> None:
        """Commits offsets, unless the group has members, which commit their own."""


class Store(Protocol):
    """The stored counts of one stream.

    Each step on a partition is atomic. Steps on many partitions are sent together, and each can fail independently.
    After a lost reply, each step may have taken effect.
    """

    def peek(self, partition: int) -> Metadata | None:
        """Returns a partition's metadata, or None if nothing is stored."""

    def peek_all(self, partitions: Collection[int]) -> Mapping[int, Metadata | Failure | None]:
        """Returns each partition's metadata, or None if nothing is stored."""

    def claim_all(
        self, wanted: Mapping[int, tuple[Metadata | None, Metadata]]
    ) -> Mapping[int, StoredPartition | Failure | None]:
        """Raises each epoch if epoch and lineage are unchanged; loads the state.

        Args:
            wanted: partition -> the metadata from `peek`, and the metadata to store if `peek` returned None.

        Returns:
            Each partition with the raised epoch; None if another worker claimed it since.
        """

    def stage_all(
        self, attempts: Mapping[int, tuple[str, Mapping[str, bytes]]]
    ) -> Mapping[int, Unavailable | None]:
        """Writes each attempt's blobs, which expire unless they are promoted."""

    def promote_all(
        self, attempts: Mapping[int, tuple[str, Metadata, Metadata]]
    ) -> Mapping[int, Answer | Unavailable]:
        """Commits each (attempt id, old metadata, new metadata) with its blobs."""

    def compare_all(self, held: Mapping[int, Metadata]) -> Mapping[int, Answer | Unavailable]:
        """Compares the store with the metadata that this owner last read or wrote."""

    def stage(self, partition: int, attempt: str, blobs: Mapping[str, bytes]) -> None:
        """Stages the blobs of one partition; see `stage_all`."""

    def install(self, partition: int, attempt: str, metadata: Metadata) -> Answer:
        """Stores the staged blobs and the metadata of a partition without counts.

        Returns DONE, also if the store already has these counts. If the blobs expired, changes nothing and returns
        STAGING_EXPIRED. If the store has other counts, changes nothing and returns CONFLICT.
        """


class DeadLetters(Protocol):
    """The destination of malformed records and, if configured, of late ones."""

    def add(self, batch: Batch, verdicts: npt.NDArray[np.uint8]) -> int:
        """Sends rejected records and unreadable batches without waiting.

        Args:
            batch: a counted batch.
            verdicts: one per record, as in `ldp.frames.Decoded`.

        Returns:
            The number of records and batches that have no dead letter because of the rate limit.

        Raises:
            Unavailable: sending failed; some dead letters may have been sent.
        """

    def add_late(self, batch: Batch, late: Late) -> int:
        """Sends a batch's late records, which are also counted; see `add`."""

    def flush(self) -> None:
        """Waits until all dead letters are acknowledged; raises `Unavailable`."""


class HeadReader(Protocol):
    """Reads a stream's head from the snapshot topic."""

    def head(self, *, decided: bool) -> Head:
        """Returns the newest head.

        Args:
            decided: wait until no transaction below the topic's end is open, and return the newest committed head.
                Otherwise return the newest head that was sent, which may be uncommitted. Heads never go back, so
                counts that have reached that head have also reached every committed one.

        Raises:
            Unavailable: the topic cannot be read, or a transaction is still open.
        """


class SnapshotProducer(HeadReader, Protocol):
    """Publishes a stream's snapshots, each in one transaction."""

    def open(self) -> Head:
        """Fences older publishers and returns the head; call before `publish`."""

    def publish(self, sequence: int, messages: Sequence[Message], rows: Sequence[Row] = ()) -> None:
        """Publishes a snapshot in one transaction, or raises `Unavailable`."""

    def newest(self, begin: str, read: Callable[[Received], Read]) -> Read | None:
        """Reads the newest messages whose keys begin so; None if some are missing.

        ``read`` raises `Incomplete` while messages are missing.
        """

    def rows(self) -> Sequence[bytes]:
        """Returns the keys of the stream's rows on the topic; can take minutes."""

    def close(self) -> None:
        """Closes the producer and aborts an open transaction."""


class StateReader(Protocol):
    """Reads stored partitions; makes no claims or commits."""

    def peek(self, partition: int) -> Metadata | None:
        """Returns a partition's metadata, or None if nothing is stored."""

    def cut_all(self, partitions: Collection[int]) -> Mapping[int, StoredPartition | Failure | None]:
        """Reads each partition in one step; None if nothing is stored."""


class Events(Protocol):
    """The observer of counting and publishing; called from any thread.

    No argument contains a record's value. `worker.observe.events` implements this interface.
    """

    def info(self, event: str, **facts: object) -> None:
        """Logs a routine event."""

    def warning(self, event: str, **facts: object) -> None:
        """Logs an event that should be rare."""

    # a claim

    def claimed(self, partition: int, start: str, offset: int, epoch: int) -> None:
        """Reports a claim; ``start`` is fresh, resume, gap or recount."""

    def claim_failed(self, partitions: Sequence[int], error: Unavailable) -> None:
        """Reports a failed claim, which is retried."""

    def gap_found(self, partition: int, lost_from: int, lost_to: int) -> None:
        """Reports that the log lost [lost_from, lost_to) before it was counted."""

    # counting

    def counted(self, accepted: int, rejected: int, reports: Mapping[str, int]) -> None:
        """Reports a batch's records, and its counted reports by document."""

    def late_or_undated(self, late: Mapping[str, int], undated: int, left_out: int) -> None:
        """Reports late records by age, undated records, and missing dead letters."""

    def poisoned(self, test: str, reports: int, found: str) -> None:
        """Reports an alarm of a poisoning test; see `ldp.alarms`."""

    def with_key_or_headers(self, records: int) -> None:
        """Reports the number of records whose key or headers were ignored."""

    def malformed(self, reasons: Mapping[str, int], left_out: int) -> None:
        """Reports malformed records, and how many of them have no dead letter."""

    # a commit

    def commit_ended(self, answer: Answer | None, seconds: float) -> None:
        """Reports a commit attempt; the answer is None if the outcome is unknown."""

    def commit_failed(self, error: Unavailable) -> None:
        """Reports a failed commit, which is retried."""

    def compare_failed(self, error: Unavailable) -> None:
        """Reports a failed comparison with the store or head, which is retried."""

    def dropped(self, partition: int) -> None:
        """Reports a dropped partition, which this or another worker claims again."""

    def released(self, partition: int) -> None:
        """Reports that the group no longer assigns `partition` to this worker."""

    # publishing

    def publishing(self, owner: bool) -> None:
        """Reports whether this worker publishes the stream's snapshots."""

    def documents_unnamed(self, documents: Sequence[str], remedy: str) -> None:
        """Reports the recorded documents that are not configured; () for none."""

    def published(self, snapshot: Snapshot, sum_deviation: float, rest_ratio: float | None = None) -> None:
        """Reports a published snapshot.

        `sum_deviation`: see `Estimate.sum_deviation`. `rest_ratio`: share of the reports with a segment that count in a
        rest; None without such reports.
        """

    def windows_closed(self, closed: Mapping[str, int], watermark: int) -> None:
        """Reports the end of the last closed window per name, and the watermark."""

    def compared(self, window: Period, values: int, queries: Sequence[str]) -> None:
        """Reports the values and queries that changed since the previous window."""

    def checked(self, seconds: float | None) -> None:
        """Reports an up-to-date snapshot; ``seconds`` is None unless it is new."""

    def publish_failed(self, error: Unavailable) -> None:
        """Reports a failed attempt to publish, which is retried."""

    def ticked(self) -> None:
        """Reports that one round of the publisher has ended."""

    def recommend_failed(self, sequence: int, error: Exception) -> None:
        """Reports a failed recommendation from a snapshot's estimate."""
