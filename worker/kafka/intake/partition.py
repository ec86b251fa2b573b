"""Reads an intake partition, and writes batches."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from kafka import OffsetAndMetadata, TopicPartition
from kafka.errors import KafkaError

from worker.kafka.client import quirks, reading, topics, transactions
from worker.kafka.client.transactions import TIMEOUT_SECONDS
from worker.kafka.intake.group import IntakeGroup
from worker.kafka.reports.offsets import ask
from worker.shuffling.partition import Batch
from worker.shuffling.uploads import Record

_TIMEOUT_MS = 10_000
_POLL_MS = 50
_T = TypeVar("_T")


class KafkaIntake:
    """One intake partition, with its own consumer and producer.

    Each method raises `Unavailable` or `NotOwner` if it fails; then call `close` and make a new one.

    `membership`: the membership of the group when the claim began. `reports`: topic of reports. `most_bytes`:
    largest batch. `on_undeleted`: called with the error if Kafka refuses to delete records.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        group: IntakeGroup,
        membership: Any,
        partition: int,
        reports: str,
        transactional_id: str,
        most_bytes: int,
        on_passed: reading.OnPassed,
        on_undeleted: Callable[[KafkaError], object],
    ) -> None:
        self._settings, self._group, self._membership, self._reports = settings, group, membership, reports
        self._tp, self._on_undeleted = TopicPartition(group.topic, partition), on_undeleted
        self._id, self._most_bytes = transactional_id, most_bytes
        self._producer: Any = None
        self._consumer = self._ask("connecting to", partial(reading.connect, settings, on_passed=on_passed))
        self._consumer.assign([self._tp])

    def _ask(self, operation: str, step: Callable[[], _T]) -> _T:
        return ask(operation, step, self._tp.topic)

    @property
    def position(self) -> int:
        """Offset of the next record to poll."""
        return int(self._consumer.position(self._tp))

    def fence(self) -> None:
        """Starts the producer, which fences the previous owner."""
        name = f"ldp-worker-{self._id}"
        connect = partial(
            transactions.connect, self._settings, self._id, name, self._most_bytes, compression="none"
        )
        self._producer = self._ask("connecting to", connect)
        self._ask("starting to write", self._producer.init_transactions)

    def committed(self) -> tuple[int, str] | None:
        """Returns the group's offset and its metadata."""
        return self._ask("asking for the group's offset of", partial(self._group.committed, self._tp))

    def bounds(self) -> tuple[int, int]:
        """Returns the log's first offset and its end."""
        step = partial(quirks.whole_bounds, self._consumer, [self._tp], _TIMEOUT_MS)
        return self._ask("asking for the beginning and end of", step)[self._tp]

    def first_timestamp(self, offset: int, end: int) -> int | None:
        """Returns the timestamp of the first record in [offset, end), or None."""
        found = reading.records(self._consumer, self._tp, offset, end)
        record = self._ask("reading", lambda: next(found, None))
        return None if record is None else record.timestamp

    def offset_since(self, timestamp: int) -> int | None:
        """Returns the offset of the first record that is at least as new, or None."""
        step = partial(self._consumer.offsets_for_times, {self._tp: max(0, timestamp)}, _TIMEOUT_MS)
        found = self._ask("asking for an offset of", step)[self._tp]
        return None if found is None else int(found.offset)

    def seek(self, offset: int) -> None:
        """Sets the position."""
        self._consumer.seek(self._tp, offset)

    def poll(self) -> Sequence[Record]:
        """Returns the next records, or none if there are none yet."""
        polled: Mapping[TopicPartition, Sequence[Record]]
        polled = self._ask("reading", partial(self._consumer.poll, _POLL_MS))
        return polled.get(self._tp, ())

    def partitions(self) -> int:
        """Returns the number of partitions of the topic of reports."""
        return len(self._ask("writing to", partial(self._producer.partitions_for, self._reports)))

    def commit(self, batch: Batch) -> None:
        """Sends the frames and the offset in one transaction."""
        ask("writing to", partial(self._commit, batch), self._reports)

    def _commit(self, batch: Batch) -> None:
        producer, stamp = self._producer, {"topic": self._reports, "timestamp_ms": batch.timestamp}
        # Step 4.
        producer.begin_transaction()
        # Step 5.
        frames = ({"value": frame, "partition": partition} | stamp for partition, frame in batch.frames)
        sent = transactions.send(producer, frames)
        # Step 6.
        quirks.await_acknowledgements(producer, sent, TIMEOUT_SECONDS)
        # Step 7.
        offset = OffsetAndMetadata(batch.offset, batch.metadata, -1)
        quirks.send_offsets(producer, {self._tp: offset}, self._membership, TIMEOUT_SECONDS)
        # Step 8.
        producer.commit_transaction()

    def delete(self, offset: int) -> None:
        """Deletes the records below an offset; a failure is reported only."""
        try:
            with contextlib.closing(topics.connect(self._settings)) as admin:
                admin.delete_records({self._tp: offset}, _TIMEOUT_MS)
        except KafkaError as error:
            self._on_undeleted(error)

    def close(self) -> None:
        """Drops the producer, so that its open transaction is aborted later."""
        producer, self._producer = self._producer, None
        if producer is not None:
            quirks.drop(producer)
        self._consumer.close(autocommit=False, timeout_ms=_TIMEOUT_MS)
