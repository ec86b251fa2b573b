"""The snapshot topic as a consumer in Python reads it."""

from kafka import KafkaConsumer, TopicPartition

from ldp.snapshot import Incomplete, Snapshot, assemble


class Snapshots:
    """The snapshot topic as a consumer of committed records reads it: the newest message of each key."""

    def __init__(self, kafka: str, topic: str, stream: str) -> None:
        self._stream = stream
        self._received: dict[str, tuple[dict[str, bytes], bytes]] = {}
        partition = TopicPartition(topic, 0)
        self._consumer = KafkaConsumer(
            bootstrap_servers=kafka,
            group_id=None,
            enable_auto_commit=False,
            isolation_level="read_committed",
        )
        self._consumer.assign([partition])
        self._consumer.seek_to_beginning(partition)

    def close(self) -> None:
        self._consumer.close(autocommit=False)

    def newest(self) -> Snapshot | None:
        """The newest whole snapshot so far."""
        for records in self._consumer.poll(50).values():
            for record in records:
                self._received[record.key.decode()] = (dict(record.headers), record.value)
        if f"{self._stream}/head" not in self._received:
            return None
        try:
            return assemble(self._stream, self._received)
        except Incomplete:
            return None  # the rest of it is in the next poll

    def sequence(self) -> int:
        """The newest one's number, 0 before the first."""
        newest = self.newest()
        return 0 if newest is None else newest.sequence
