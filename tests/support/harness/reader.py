"""The snapshot topic as a Python consumer reads it."""

from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from ldp.snapshot import Incomplete, Period, Snapshot, assemble, assemble_window, window_of, windows
from tests.support.harness.waiting import until

END_MS = 1000
"""The time-out of a question to the broker."""


class Snapshots:
    """The newest committed message of each key."""

    def __init__(self, kafka: str, topic: str, stream: str) -> None:
        self._stream = stream
        self._received: dict[str, tuple[dict[str, bytes], bytes]] = {}
        self.finals: dict[tuple[str, int], list[str]] = {}
        self.provisional: dict[tuple[str, int], list[str]] = {}
        self.sequences: list[int] = []
        """The numbers of all heads in their order."""
        self._partition = TopicPartition(topic, 0)
        self._consumer = KafkaConsumer(
            bootstrap_servers=kafka, group_id=None, enable_auto_commit=False, isolation_level="read_committed"
        )
        self._consumer.assign([self._partition])
        self._consumer.seek_to_beginning(self._partition)

    def close(self) -> None:
        self._consumer.close(autocommit=False)

    def newest(self) -> Snapshot | None:
        """Returns the newest complete snapshot of all time."""
        self._read()
        if f"{self._stream}/head" not in self._received:
            return None
        try:
            return assemble(self._stream, self._received)
        except Incomplete:
            return None

    def messages(self) -> dict[str, tuple[dict[str, bytes], bytes]]:
        """Returns headers and value of the newest message of each key."""
        self._read()
        return dict(self._received)

    def window(self, name: str, start: int) -> Snapshot | None:
        """Returns the newest complete snapshot of a window."""
        self._read()
        try:
            return assemble_window(self._stream, self._received, name, start)
        except Incomplete:
            return None

    def windows(self) -> list[Period]:
        """Returns the windows on the topic."""
        self._read()
        return windows(self._stream, self._received)

    def sequence(self) -> int:
        """Returns the newest snapshot's number, 0 before the first."""
        newest = self.newest()
        return 0 if newest is None else newest.sequence

    def _read(self) -> None:
        """Reads to the committed end of the topic, if a broker answers."""
        self._take(self._consumer.poll(50))
        try:
            end = self._consumer.end_offsets([self._partition], timeout_ms=END_MS)[self._partition]
        except KafkaError:
            return

        def reached() -> bool:
            position = self._consumer.position(self._partition, timeout_ms=END_MS)
            if position is None or position < end:
                self._take(self._consumer.poll(50))
                return False
            return True

        until(reached, f"the committed records up to {end}")

    def _take(self, records: dict[TopicPartition, list[Any]]) -> None:
        for some in records.values():
            for record in some:
                key, headers = record.key.decode(), dict(record.headers)
                if record.value is None:
                    self._received.pop(key, None)
                    continue
                self._received[key] = headers, record.value
                if key == f"{self._stream}/head":
                    self.sequences.append(int(headers["sequence"]))
                window = window_of(key, headers) if key.startswith(f"{self._stream}/") else None
                if window is not None and window.start is not None:
                    said = self.finals if window.final else self.provisional
                    identities = said.setdefault((window.name, window.start), [])
                    if (identity := headers["snapshot"].decode()) not in identities:
                        identities.append(identity)
