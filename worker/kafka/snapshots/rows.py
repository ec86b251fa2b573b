"""Reads the topic of rows in complete snapshots, as a database would."""

from collections import Counter
from typing import Self

from kafka import TopicPartition

from ldp.snapshot import RowKey, RowValue
from worker.config import Config, ConfigError
from worker.kafka.client import reading
from worker.kafka.client.topics import TopicError, bounds, connect, require
from worker.kafka.snapshots.topic import PARTITION, SnapshotTopic

_MOST_BYTES = 64 << 10  # Largest value of a row in bytes
_MOST_REASONS = 20
_OTHERS = "other reasons"


class RowReader:
    """The rows of all streams of a configuration; a context manager.

    The newest valid row of each key counts. Invalid records are skipped. A tombstone from any program deletes the
    row of its key until the next snapshot.

    `offset`: start offset; None for the topic's beginning. Raises `ConfigError`: the configuration has no topic
    of rows. Raises `TopicError`: the topic is missing.

    Attributes:
        offset: the offset after the last read record.
        skipped: reason -> number of invalid records in the last `read`.
    """

    def __init__(
        self, config: Config, offset: int | None = None, on_passed: reading.OnPassed = reading.ignore
    ) -> None:
        if config.rows.topic is None:
            raise ConfigError('rows.topic: not set; a topic is required, such as "ldp-rows"')
        self._topic, self._on_passed, self.skipped = config.rows.topic, on_passed, Counter[str]()
        self._admin = connect(config.kafka.client())
        try:
            require(self._admin, self._topic)
            first = bounds(self._admin, self._topic, [PARTITION])[PARTITION][0]
            self.offset = first if offset is None else max(first, offset)
            self._consumer = SnapshotTopic(config.kafka.client(), "", self._topic).consumer(
                "read_committed", b"", on_passed
            )
        except BaseException:
            self._admin.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close(autocommit=False)
        self._admin.close()

    def read(self) -> dict[RowKey, RowValue | None]:
        """Returns the new rows: key -> newest value, or None for a deleted row.

        It ends at the last stable offset, so it returns complete snapshots. Raises `KafkaError`: the brokers
        do not answer. Raises `TopicError`: the topic ends before `offset`.
        """
        tp = TopicPartition(self._topic, PARTITION)
        _, end = bounds(self._admin, self._topic, [PARTITION], stable=True)[PARTITION]
        if end < self.offset:
            raise TopicError(
                f"topic {self._topic!r} ends at offset {end}, but was read up to {self.offset} before: it was"
                " truncated or created again. Rebuild everything that was built from its rows"
            )
        newest = dict[RowKey, RowValue | None]()
        self.skipped.clear()
        for record in reading.records(self._consumer, tp, self.offset, end):
            if len(record.value or b"") > _MOST_BYTES:
                why = f"not a row: more than {_MOST_BYTES} bytes"
                self._on_passed(reading.Passed(self._topic, PARTITION, record.offset, why))
                continue
            try:
                key = RowKey.parse(record.key or b"")
                newest[key] = None if record.value is None else RowValue.parse(record.value, key)
            except ValueError as error:
                is_known = str(error) in self.skipped or len(self.skipped) < _MOST_REASONS
                self.skipped[str(error) if is_known else _OTHERS] += 1
        self.offset = max(self.offset, end)
        return newest
