"""Ports: the interfaces of counting and publishing to Kafka and Redis, with their values and errors.

`worker.kafka` and `worker.store.redis` implement them, and so do the tests in memory.
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
    """A step had no clear answer: it may have happened or not. It is retried.

    Attributes:
        remedy: what an operator can do, if known.
    """

    def __init__(self, cause: str = "", remedy: str = "") -> None:
        super().__init__(cause)
        self.remedy = remedy


class NotOwner(Exception):  # noqa: N818
    """Kafka does not accept this worker as the owner of the partitions now."""


class Displaced(Exception):  # noqa: N818
    """Another process joined the group under this worker's name: the stream stops here."""


class StateLost(RuntimeError):  # noqa: N818  # named for what happened, as its message is read
    """Stored counts are missing, damaged or of another lineage: the stream stops.

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
    """A newer version of the worker wrote the stored counts, and can go on with them."""


Failure: TypeAlias = Unavailable | StateLost
"""What a step of many partitions returns for one of them in the place of what came of it."""


class Answer(StrEnum):
    """The answer of the store to a commit or a compare."""

    DONE = "done"
    LINEAGE = "lineage"
    FENCED = "fenced"
    CONFLICT = "conflict"
    STAGING_EXPIRED = "staging_expired"


@dataclass(frozen=True)
class Metadata:
    """What the store keeps of a partition in addition to its blobs; see `worker.counting.layout`.

    Attributes:
        lineage: the identity of the counts, as stored; see `worker.counting.lineage`.
        epoch: raised by each claim; a writer with an older one is fenced.
        offset: the counts are those of [start, offset).
        commit_id: the id of the commit that wrote this, 32 hex digits; empty before the first commit.
        blobs: cell -> id of the commit that wrote its live blob.
        totals: the rest of the state as canonical JSON.
    """

    lineage: str
    epoch: int
    offset: int
    commit_id: str
    blobs: Mapping[str, str]
    totals: str


@dataclass(frozen=True)
class StoredPartition:
    """A partition as it stands in the store, read in one atomic step."""

    metadata: Metadata
    blobs: Mapping[str, bytes]


class Log(Protocol):
    """One topic's log and its consumer group; called from one thread.

    If the brokers refuse one partition, the error takes the place of its answer.
    """

    def topic_id(self) -> str:
        """Asks for the id of the topic, which differs if the topic was created again."""

    def generation(self) -> object | None:
        """Returns the identity of this membership and its rebalance; None without one."""

    def assigned(self) -> Set[int]:
        """Returns the partitions that the group assigns to this worker."""

    def committed(self, partitions: Collection[int]) -> Mapping[int, tuple[int, str] | Unavailable | None]:
        """Returns the group's committed (offset, metadata) of each partition, None if there is none."""

    def bounds(self, partitions: Collection[int]) -> Mapping[int, tuple[int, int] | Unavailable]:
        """Returns each log's (first offset, last stable offset)."""

    def firsts(self, offsets: Mapping[int, int]) -> Mapping[int, int]:
        """Returns the proven offset at which each log goes on, at or behind a given one.

        That is the given offset if the leader answers a fetch there. It is the log's first offset if two looks, with
        a pause between them, agree: the leader refuses a fetch at the offset and one just before the first offset,
        and answers one at the first offset. A partition without a proof is left out: ask again later.
        """

    def confirm(self, offsets: Mapping[int, tuple[int, str]]) -> Mapping[int, Unavailable | None]:
        """Commits offsets as a member of the current generation; raises `NotOwner` if that is over."""

    def mirror(self, offsets: Mapping[int, tuple[int, str]]) -> None:
        """Commits offsets without waiting, for lag tools; the outcome does not matter."""

    def start(self, partition: int, offset: int, rules: Sequence[Rule]) -> None:
        """Makes `poll` return the partition's records from an offset on, read by its rules."""

    def stop(self, partition: int) -> None:
        """Makes `poll` return no more of the partition's records."""


class NonMemberLog(Protocol):
    """One topic and a consumer group, for a process that does not join the group."""

    def topic_id(self) -> str:
        """Returns the id of the topic, which differs if the topic was created again."""

    def partitions(self) -> Set[int]:
        """Returns all partitions of the topic."""

    def committed(self, partitions: Collection[int]) -> Mapping[int, tuple[int, str]]:
        """Returns the group's committed (offset, metadata) of the partitions that have one."""

    def bounds(self, partitions: Collection[int]) -> Mapping[int, tuple[int, int]]:
        """Returns each log's (first offset, last stable offset)."""

    def has_records(self, partition: int, begin: int, end: int) -> bool:
        """Returns whether there are committed records in [begin, end) of a partition's log."""

    def mirror(self, offsets: Mapping[int, tuple[int, str]]) -> None:
        """Commits offsets, unless the group has members: they commit what they count."""


class Store(Protocol):
    """The store of one stream.

    Each step of a partition is atomic. Steps of many partitions are sent together and fail one by one; after a lost
    reply each of them may have happened or not.
    """

    def peek(self, partition: int) -> Metadata | None:
        """Returns a partition's metadata, or None."""

    def peek_all(self, partitions: Collection[int]) -> Mapping[int, Metadata | Failure | None]:
        """Returns each partition's metadata, or None."""

    def claim_all(
        self, wanted: Mapping[int, tuple[Metadata | None, Metadata]]
    ) -> Mapping[int, StoredPartition | Failure | None]:
        """Raises each epoch if epoch and lineage are still those that were found, then loads.

        Args:
            wanted: partition -> what `peek` returned, and the metadata to begin with if nothing was found.

        Returns:
            Each partition with the raised epoch; None if another worker claimed it meanwhile.
        """

    def stage_all(
        self, attempts: Mapping[int, tuple[str, Mapping[str, bytes]]]
    ) -> Mapping[int, Unavailable | None]:
        """Writes blobs under keys of each partition's attempt, which expire unless promoted."""

    def promote_all(
        self, attempts: Mapping[int, tuple[str, Metadata, Metadata]]
    ) -> Mapping[int, Answer | Unavailable]:
        """Replaces the first metadata by the second with the attempt's blobs, or changes nothing."""

    def compare_all(self, held: Mapping[int, Metadata]) -> Mapping[int, Answer | Unavailable]:
        """Returns whether the store still holds what this owner last read or wrote of each partition."""

    def stage(self, partition: int, attempt: str, blobs: Mapping[str, bytes]) -> None:
        """Writes blobs as `stage_all` does."""

    def install(self, partition: int, attempt: str, metadata: Metadata) -> Answer:
        """Writes the attempt's blobs and metadata where there are none, and returns DONE.

        Also returns DONE if just these counts are there already. Returns STAGING_EXPIRED if the blobs expired, and
        CONFLICT if anything else is there. Then nothing is changed.
        """


class DeadLetters(Protocol):
    """Where malformed records go, and by choice late ones."""

    def add(self, batch: Batch, verdicts: npt.NDArray[np.uint8]) -> int:
        """Sends the rejected records and unreadable record batches of a batch, without waiting.

        Args:
            batch: a counted batch.
            verdicts: of its records, as `ldp.frames.Decoded` has them.

        Returns:
            How many of them leave no dead letter because of the rate limit.

        Raises:
            Unavailable: they cannot be sent now; some may have been.
        """

    def add_late(self, batch: Batch, late: Late) -> int:
        """Sends late records of a batch, which are counted anyway; as `add` does."""

    def flush(self) -> None:
        """Waits until every record sent so far is safe; raises `Unavailable` if that is in doubt."""


class HeadReader(Protocol):
    """Where the head of a stream is read."""

    def head(self, *, decided: bool) -> Head:
        """Returns the newest head.

        Args:
            decided: wait until nothing below the topic's end is open, and return the newest committed head. Otherwise
                return the newest that was sent: heads never go back, so counts that are not behind it are behind no
                committed one.

        Raises:
            Unavailable: the topic cannot be read, or its end is not decided yet.
        """


class SnapshotProducer(HeadReader, Protocol):
    """Where snapshots go, one whole snapshot or nothing at a time, and where the newest head is read."""

    def open(self) -> Head:
        """Fences every older publisher of the stream off, and returns the head; publishing needs it."""

    def publish(self, sequence: int, messages: Sequence[Message], rows: Sequence[Row] = ()) -> None:
        """Publishes a snapshot as a whole, with its rows; raises `Unavailable` if it may or may not be published."""

    def rows(self) -> Sequence[bytes]:
        """Returns the keys of the stream's rows on the topic of rows. It may take minutes."""

    def close(self) -> None:
        """Closes the producer; an open transaction is aborted."""


class StateReader(Protocol):
    """The reader of the stored partitions."""

    def peek(self, partition: int) -> Metadata | None:
        """Returns a partition's metadata, or None."""

    def cut_all(self, partitions: Collection[int]) -> Mapping[int, StoredPartition | Failure | None]:
        """Returns each partition's metadata and blobs, read in one step, or None."""


class Events(Protocol):
    """The observer of counting and publishing, called once for each event, from any thread.

    No argument holds a record's content. `worker.observe.events` implements it.
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

    def late_or_undated(self, late: Mapping[str, int], undated: int, left_out: int) -> None:
        """Accepted records were late, by age, or undated; `left_out` late ones leave no dead letter."""

    def poisoned(self, test: str, reports: int, found: str) -> None:
        """A test found reports that no honest client sends; see `ldp.alarms`."""

    def with_key_or_headers(self, records: int) -> None:
        """Records came with a key or headers, which are ignored."""

    def malformed(self, reasons: Mapping[str, int], left_out: int) -> None:
        """Records are malformed, by reason; `left_out` of them leave no dead letter."""

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
        """Kafka took a partition away."""

    # publishing

    def publishing(self, owner: bool) -> None:
        """Whether this worker publishes the stream's snapshots."""

    def published(self, snapshot: Snapshot, sum_deviation: float) -> None:
        """A snapshot is published; the deviation of Base's sum is that of `ldp.query.sum_deviation`."""

    def windows_closed(self, closed: Mapping[str, int], watermark: int) -> None:
        """How far the windows of each name are closed in the head, and the highest timestamp."""

    def compared(self, window: Period, values: int, queries: Sequence[str]) -> None:
        """How many values, and which sets, changed from the final window before."""

    def checked(self, seconds: float | None) -> None:
        """The newest snapshot covers all counts; publishing took `seconds`, None if nothing was new."""

    def publish_failed(self, error: Unavailable) -> None:
        """Publishing is tried again later."""

    def ticked(self) -> None:
        """A publisher's tick is over."""

    def recommend_failed(self, sequence: int, error: Exception) -> None:
        """No recommendation could be made from a snapshot's estimate."""
