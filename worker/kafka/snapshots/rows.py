"""Reads the topic of rows in complete snapshots, as a database would."""

from collections import Counter
from typing import Self

from kafka import TopicPartition

from ldp.snapshot import RowKey, RowValue
from worker.config import Config, ConfigError
from worker.kafka.client import quirks, reading
from worker.kafka.client.topics import TopicError
from worker.kafka.snapshots.topic import PARTITION, SnapshotTopic

_MOST_BYTES = 64 << 10  # Largest value of a row in bytes
_MOST_REASONS = 20
_OTHERS = "other reasons"
_TIMEOUT_MS = 10_000


class RowReader:
    """The rows of all streams of a configuration; a context manager.

    The newest valid row of each key counts. Invalid records are skipped. A tombstone from any program deletes the
    row of its key until the next snapshot.

    Raises `ConfigError`: the configuration has no topic of rows.

    Attributes:
        offset: the offset after the last read record.
        skipped: reason -> number of invalid records in the last `read`.
    """

    def __init__(self, config: Config, on_passed: reading.OnPassed) -> None:
        if config.rows.topic is None:
            raise ConfigError('rows.topic: not set; a topic is required, such as "ldp-rows"')
        self._topic, self._on_passed, self.skipped = config.rows.topic, on_passed, Counter[str]()
        topic = SnapshotTopic(config.kafka.client(), "", self._topic)
        self._consumer, self.offset = topic.consumer("read_committed", b"", on_passed), 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close(autocommit=False)

    def read(self) -> dict[RowKey, RowValue | None]:
        """Returns the new rows: key -> newest value, or None for a deleted row.

        It ends at the last stable offset, so it returns complete snapshots. Raises `KafkaError`: the brokers
        do not answer, or the topic is missing. Raises `TopicError`: the topic ends before `offset`.
        """
        tp = TopicPartition(self._topic, PARTITION)
        self._consumer.assign([tp])  # so that the client requests the topic's metadata
        first, end = quirks.whole_bounds(self._consumer, [tp], _TIMEOUT_MS)[tp]
        if end < self.offset:
            raise TopicError(
                f"topic {self._topic!r} ends at offset {end}, but was read up to {self.offset} before: it was"
                " truncated or created again. Rebuild everything that was built from its rows"
            )
        newest = dict[RowKey, RowValue | None]()
        self.skipped.clear()
        for record in reading.records(self._consumer, tp, max(first, self.offset), end):
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
