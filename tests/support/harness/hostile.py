"""Hostile records between good ones, and their expected outcome."""

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from tests.support.harness import batches
from tests.support.harness.dead_letters import dead_letters
from tests.support.harness.processes import Worker
from tests.support.harness.waiting import TIMEOUT_SECONDS, until
from tests.support.harness.world import World

CUT = (1 << 20) - (8 << 10)
"""Largest size of a dead letter that is not truncated."""

PATIENT = {"session_timeout_seconds": 60}
"""Settings of a worker that keeps its partitions on a slow machine."""


@dataclass
class Hostile:
    """Records sent to a stream and their expected outcome."""

    world: World
    records: int = 0
    # by partition and offset: value and reason of a malformed record; headers of an unreadable batch's dead letter
    values: dict[tuple[int, int], tuple[bytes, str]] = field(default_factory=dict)
    unreadable: dict[tuple[int, int], dict[str, str]] = field(default_factory=dict)

    def good(self, records: int = 5) -> None:
        """Sends good records to every partition."""
        self.world.send(records * self.world.partitions, reports=2)
        self.world.settle()
        self.records += records * self.world.partitions

    def throw(self, made: bytes, partition: int = 0) -> int:
        """Sends a raw batch; returns its offset."""
        return batches.produce(self.world.kafka, self.world.topic, partition, made)

    def bad(self, made: bytes, why: str, *, partition: int = 0, end: int = 1) -> None:
        """Sends a batch that is rejected as a whole, then good records."""
        offset = self.throw(made, partition)
        self.note(batches.at(offset, made), offset, why, partition=partition, end=end)
        self.good()

    def note(self, stored: bytes, offset: int, why: str, *, partition: int = 0, end: int = 1) -> None:
        """Notes a batch of the log as unreadable."""
        self.unreadable[partition, offset] = {
            "batch.why": why,
            "batch.end": str(offset + end),
            "batch.size": str(len(stored)),
            "batch.sha256": hashlib.sha256(stored).hexdigest(),
        }

    def malformed(self, values: Sequence[tuple[bytes, str]], codec: int = batches.ZSTD) -> None:
        """Sends malformed records in compressed batches between good ones."""
        for value, reason in values:
            offset = self.throw(
                batches.batch(batches.compressed(codec, [batches.record(value)]), codec=codec)
            )
            self.values[0, offset] = value, reason
            self.good()

    def assert_outcome(self, *workers: Worker, once: bool = True) -> None:
        """Asserts counts, rejections, dead letters and healthy workers."""
        self.good()
        self.world.assert_right(self.world.covered())
        totals = self.world.totals()
        reasons = Counter(reason for _, reason in self.values.values())
        reasons["batch"] = len(self.unreadable)
        assert Counter(totals["rejected"]) == reasons
        assert totals["accepted"] == self.records
        for worker in workers:
            assert worker.metric("stream_up") == 1
            assert not worker.events("stream.stopped")
            assert not worker.events("serve.retry")
        self._assert_dead_letters(once)

    def _assert_dead_letters(self, once: bool) -> None:
        found = dead_letters(self.world, len(self.values) + len(self.unreadable), once)
        assert found.keys() == self.values.keys() | self.unreadable.keys()
        for where, (value, headers) in found.items():
            told = {key: text for key, text in headers.items() if key.startswith(("batch.", "truncated."))}
            reason = headers["__connect.errors.exception.class.name"]
            if where in self.unreadable:
                assert (reason, told, value or b"") == ("batch", self.unreadable[where], b"")
                continue
            sent, why = self.values[where]
            assert reason == why
            if len(sent) > CUT:
                digest = hashlib.sha256(sent).hexdigest()
                assert told == {"truncated.size": str(len(sent)), "truncated.sha256": digest}
                assert value == sent[:1024]
            else:
                assert (told, value or b"") == ({}, sent)


class Watched:
    """Asserts that a worker stays ready, except for a rejoin, and keeps its partitions."""

    def __init__(self, worker: Worker) -> None:
        self._worker, self._stop, self._said = worker, threading.Event(), list[str]()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        # a worker without a partition is ready, too
        until(lambda: self._worker.events("partition.claimed"), f"{self._worker.log.name} has a partition")
        until(self._worker.ready, f"{self._worker.log.name} ready")
        self._claims = len(self._worker.events("partition.claimed"))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(TIMEOUT_SECONDS)
        until(self._worker.ready, f"{self._worker.log.name} ready")
        assert not self._said
        assert len(self._worker.events("partition.claimed")) == self._claims

    def _watch(self) -> None:
        while not self._stop.wait(0.05):
            status, _, body = self._worker.get("/readyz")
            if status != 200:
                self._said += [state for state in json.loads(body)["streams"].values() if state != "joining"]
