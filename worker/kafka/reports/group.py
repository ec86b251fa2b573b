"""Finds partitions whose counts are missing from the store."""

from collections.abc import Callable, Mapping
from typing import Any

from kafka import errors as kafka_errors

from worker.counting.ports import CLAIMED
from worker.kafka.client import topics
from worker.kafka.client.errors import unavailable


class KafkaGroup:
    """One stream's topic and consumer group, on one connection and one thread."""

    def __init__(self, connect: Callable[[], Any], group: str, topic: str) -> None:
        self._connect, self._group, self._topic = connect, group, topic
        self._admin: Any = None

    def uncounted(self, without: Mapping[int, bool]) -> list[int]:
        """Returns the partitions in `without` that should have counts, ascending.

        The group counted these partitions in another store, or they are unclaimed and contain records. `without`:
        partition without counts -> whether it is claimed. Raises `Unavailable`: the brokers do not answer.
        """
        try:
            if self._admin is None:
                self._admin = self._connect()
            committed = topics.committed(self._admin, self._group, self._topic)
            unclaimed = [partition for partition, claimed in without.items() if not claimed]
            logs = topics.bounds(self._admin, self._topic, unclaimed) if unclaimed else {}
        except kafka_errors.KafkaError as error:
            self.close()
            raise unavailable(error, "asking for the group's offsets of", self._topic) from error
        recorded = {partition for partition, (first, end) in logs.items() if first < end}
        counted = {partition for partition, one in committed.items() if one.metadata != CLAIMED}
        return sorted(p for p in without if p in recorded or p in counted)

    def close(self) -> None:
        """Closes the connection; the next call of `uncounted` reconnects."""
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()
