"""The contract of windows and heads on the snapshot topic."""

import json
from typing import Any

from kafka import KafkaConsumer, TopicPartition

from tests.support.harness.truth import METHODS
from tests.support.harness.waiting import until

Window = tuple[str, int]


class Published:
    """Reads messages of windows and heads and asserts their contract.

    A window is provisional any number of times, then final once in all methods, then deleted or left alone. It is final
    if the closed time of its snapshot's head has passed it. Heads are numbered without a gap; closed times and floors
    never fall.
    """

    def __init__(self, kafka: str, topic: str, stream: str) -> None:
        self._stream = stream
        self._partition = TopicPartition(topic, 0)
        self._consumer = KafkaConsumer(
            bootstrap_servers=kafka, group_id=None, isolation_level="read_committed", enable_auto_commit=False
        )
        self._consumer.assign([self._partition])
        self._consumer.seek_to_beginning(self._partition)
        self.sequence = self.alone = self.provisional = 0
        self.finals: dict[Window, int] = {}
        self.deleted: set[Window] = set()
        self._keys: dict[str, str] = {}
        self._closed: dict[str, int] = {}
        self._before: dict[str, int] = {}
        self.floors: dict[int, int] = {}
        self._at_once: dict[Window, list[str]] = {}

    def close(self) -> None:
        """Closes the consumer."""
        self._consumer.close(autocommit=False)

    def read(self, sequence: int) -> None:
        """Reads until a head and asserts each message."""

        def reached() -> bool:
            for records in self._consumer.poll(50).values():
                for record in records:
                    key = record.key.decode()
                    if key.startswith(f"{self._stream}/"):
                        self._take(key.split("/")[1:], dict(record.headers), record.value)
            return self.sequence >= sequence

        until(reached, f"the head of snapshot {sequence}")

    def _take(self, parts: list[str], headers: dict[str, bytes], value: bytes | None) -> None:
        number = int(headers["sequence"])
        if parts == ["head"]:
            assert number == self.sequence + 1, f"snapshot {number} follows {self.sequence}"
            assert value is not None
            self._head(json.loads(value), number)
        assert number == self.sequence, (
            f"{parts} of snapshot {number} lies behind the head of {self.sequence}"
        )
        if parts[0] in ("head", "domain", "all", "late"):
            return
        name, start, method = parts
        window, key = (name, int(start)), "/".join(parts)
        was = self._keys.get(key, "provisional")
        if value is None:
            assert was == "final", f"{key} is deleted in snapshot {number}, and was {was}"
            self._keys[key] = "deleted"
            self.deleted.add(window)
            return
        assert was == "provisional", f"{key} was {was}, and is published again in snapshot {number}"
        final = headers["final"] == b"true"
        end = int(headers["end"])
        assert (end <= self._closed[name]) == final, (
            f"{key}, final: {final}, by a line at {self._closed[name]}"
        )
        assert end > self._before.get(name, 0), f"{key} was passed before snapshot {number}"
        if method == "base":
            self.provisional += not final
            if final:
                self.finals[window] = json.loads(value)["reports"]
        if final:
            self._keys[key] = "final"
            self._at_once.setdefault(window, []).append(method)

    def _head(self, head: dict[str, Any], number: int) -> None:
        for window, methods in self._at_once.items():
            assert methods == METHODS, f"final in snapshot {self.sequence}: {window} by {methods}"
        self._at_once.clear()
        self.alone += not head["reports"]
        self._before, self._closed = (
            self._closed,
            {name: line["closed"] for name, line in head.get("windows", {}).items()},
        )
        for name, closed in self._before.items():
            assert self._closed.get(name, -1) >= closed, f"the line of {name} falls in snapshot {number}"
        floors = {int(partition): floor for partition, floor in head.get("floors", {}).items()}
        assert floors.items() >= self.floors.items(), f"{self.floors}, and in snapshot {number} {floors}"
        self.floors, self.sequence = floors, number
