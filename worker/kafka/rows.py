"""The topic of rows, read as a database would: whole snapshots at a time."""

from typing import Self

from kafka import TopicPartition
from kafka.admin import OffsetSpec
from kafka.protocol.consumer.offsets import IsolationLevel

from worker.config import Config, ConfigError
from worker.kafka import reading
from worker.kafka.snapshot_topic import PARTITION, SnapshotTopic
from worker.kafka.topics import TopicError, bounds, require

_MOST_BYTES = 64 << 10
"""Bytes of the largest value of a row; most of them are its label's."""


class RowReader:
    """The rows of all streams of a configuration's topic; a context manager.

    Args:
        config: where they are.
        offset: from where on to read; None for all that there is.
        on_passed: receives each record batch that cannot be read, and each record that is larger than a row.

    Attributes:
        offset: up to where they were read.

    Raises:
        ConfigError: the configuration names no topic of rows.
        TopicError: it is missing.
    """

    def __init__(
        self, config: Config, offset: int | None = None, on_passed: reading.OnPassed = reading.ignore
    ) -> None:
        if config.rows.topic is None:
            raise ConfigError('rows.topic: nothing given; a topic is needed, such as "ldp-rows"')
        self._topic, self._on_passed = config.rows.topic, on_passed
        clients = SnapshotTopic(config.kafka.client(), "", self._topic)
        self._admin = clients.admin()
        try:
            require(self._admin, self._topic)
            first = bounds(self._admin, self._topic, [PARTITION])[PARTITION][0]
            self.offset = first if offset is None else max(first, offset)
            self._consumer = clients.consumer("read_committed", b"", on_passed)
        except BaseException:
            self._admin.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close(autocommit=False)
        self._admin.close()

    def read(self) -> dict[bytes, bytes | None]:
        """Returns what has come since: key -> the newest value, or None where it is deleted.

        It ends where every transaction before is decided, so it has all of a snapshot or nothing of it.

        Raises:
            KafkaError: the brokers do not answer.
            TopicError: the topic ends before what was read.
        """
        tp = TopicPartition(self._topic, PARTITION)
        asked = self._admin.list_partition_offsets(
            {tp: OffsetSpec.LATEST}, isolation_level=IsolationLevel.READ_COMMITTED
        )
        end = int(asked[tp].offset)
        if end < self.offset:
            raise TopicError(
                f"topic {self._topic!r} ends at offset {end}, and was read up to {self.offset} before: it was made"
                " anew, so what was made of it has to be made anew, too"
            )
        newest: dict[bytes, bytes | None] = {}
        for record in reading.records(self._consumer, tp, self.offset, end):
            if len(record.value or b"") > _MOST_BYTES:
                why = f"no row: more than {_MOST_BYTES} bytes"
                self._on_passed(reading.Passed(self._topic, PARTITION, record.offset, why))
            elif record.key is not None:
                newest[record.key] = record.value
        self.offset = max(self.offset, end)
        return newest
