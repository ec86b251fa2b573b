"""The snapshot topic as a consumer in Python reads it."""

from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from ldp.snapshot import Incomplete, Period, Snapshot, assemble, assemble_window, window_of, windows
from tests.integration.harness.waiting import until

END_MS = 1000
"""For which a broker is asked where the topic ends."""


class Snapshots:
    """The snapshot topic as a consumer of committed records reads it: the newest message of each key.

    Attributes:
        finals: (name, start) of a window -> the identities of all snapshots that said that they are its final one.
        provisional: the same of those that did not say so, in their order.
    """

    def __init__(self, kafka: str, topic: str, stream: str) -> None:
        self._stream = stream
        self._received: dict[str, tuple[dict[str, bytes], bytes]] = {}
        self.finals: dict[tuple[str, int], list[str]] = {}
        self.provisional: dict[tuple[str, int], list[str]] = {}
        self.sequences: list[int] = []
        """The numbers of all heads so far, as they came."""
        self._partition = TopicPartition(topic, 0)
        self._consumer = KafkaConsumer(
            bootstrap_servers=kafka,
            group_id=None,
            enable_auto_commit=False,
            isolation_level="read_committed",
        )
        self._consumer.assign([self._partition])
        self._consumer.seek_to_beginning(self._partition)

    def close(self) -> None:
        self._consumer.close(autocommit=False)

    def newest(self) -> Snapshot | None:
        """The newest whole snapshot of all time so far."""
        self._read()
        if f"{self._stream}/head" not in self._received:
            return None
        try:
            return assemble(self._stream, self._received)
        except Incomplete:
            return None

    def messages(self) -> dict[str, tuple[dict[str, bytes], bytes]]:
        """The newest message of each key so far: its headers and its value."""
        self._read()
        return dict(self._received)

    def window(self, name: str, start: int) -> Snapshot | None:
        """The newest whole snapshot of a window so far."""
        self._read()
        try:
            return assemble_window(self._stream, self._received, name, start)
        except Incomplete:
            return None

    def windows(self) -> list[Period]:
        """The windows that are on the topic so far, by name and start."""
        self._read()
        return windows(self._stream, self._received)

    def sequence(self) -> int:
        """The newest one's number, 0 before the first."""
        newest = self.newest()
        return 0 if newest is None else newest.sequence

    def _read(self) -> None:
        """Takes what is committed by now: a poll alone may find nothing of it. While no broker answers, what comes."""
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
                if key.startswith(f"{self._stream}/") and (window := window_of(key, headers)) is not None:
                    assert window.start is not None
                    said = self.finals if window.final else self.provisional
                    identities = said.setdefault((window.name, window.start), [])
                    if (identity := headers["snapshot"].decode()) not in identities:
                        identities.append(identity)
