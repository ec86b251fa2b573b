"""What is meant to hurt a stream, between good records; and that it did not."""

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from tests.integration.harness import batches
from tests.integration.harness.letters import dead_letters
from tests.integration.harness.processes import Worker
from tests.integration.harness.waiting import TIMEOUT_SECONDS, until
from tests.integration.harness.world import World

CUT = (1 << 20) - (8 << 10)
"""A larger record's letter has its first bytes, its size and its hash."""

PATIENT = {"session_timeout_seconds": 60}
"""Of a worker that is to keep its partitions, on a machine that may stall."""


@dataclass
class Hostile:
    """What was thrown at a stream, and what has to become of it.

    Attributes:
        world: whose stream.
        records: how many good ones were sent between.
        values: what each malformed record held, with the reason, by partition and offset.
        unreadable: what the letter of each unreadable batch has to say, likewise.
    """

    world: World
    records: int = 0
    values: dict[tuple[int, int], tuple[bytes, str]] = field(default_factory=dict)
    unreadable: dict[tuple[int, int], dict[str, str]] = field(default_factory=dict)

    def good(self, records: int = 5) -> None:
        """Sends records that are to be counted, to every partition."""
        self.world.send(records * self.world.partitions, reports=2)
        self.world.settle()
        self.records += records * self.world.partitions

    def throw(self, made: bytes, partition: int = 0) -> int:
        """Sends a batch as it is; returns its offset."""
        return batches.produce(self.world.kafka, self.world.topic, partition, made)

    def bad(self, made: bytes, why: str, *, partition: int = 0, end: int = 1) -> None:
        """Sends a batch that is to be rejected as one, and good records behind it."""
        offset = self.throw(made, partition)
        self.note(batches.at(offset, made), offset, why, partition=partition, end=end)
        self.good()

    def note(self, stored: bytes, offset: int, why: str, *, partition: int = 0, end: int = 1) -> None:
        """Notes a batch that the log has at an offset as one that is to be rejected."""
        self.unreadable[partition, offset] = {
            "batch.why": why,
            "batch.end": str(offset + end),
            "batch.size": str(len(stored)),
            "batch.sha256": hashlib.sha256(stored).hexdigest(),
        }

    def malformed(self, values: Sequence[tuple[bytes, str]], codec: int = batches.ZSTD) -> None:
        """Sends records that are to be rejected for a reason, packed, each in a batch of its own, and good ones."""
        for value, reason in values:
            offset = self.throw(
                batches.batch(batches.compressed(codec, [batches.record(value)]), codec=codec)
            )
            self.values[0, offset] = value, reason
            self.good()

    def assert_outcome(self, *workers: Worker, once: bool = True) -> None:
        """Asserts that the good is counted, the bad is rejected and has its letters, and that the stream is well.

        Args:
            workers: who count it.
            once: whether each letter was sent only once, as without a crash.
        """
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
        self._assert_letters(once)

    def _assert_letters(self, once: bool) -> None:
        letters = dead_letters(self.world, len(self.values) + len(self.unreadable), once)
        assert letters.keys() == self.values.keys() | self.unreadable.keys()
        for where, (value, headers) in letters.items():
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
    """Sees that a worker that is ready stays it, and keeps its partitions, while the body of a ``with`` runs.

    A broker that is slow for so long that its group has to join again is no fault of the worker's.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker, self._stop, self._said = worker, threading.Event(), list[str]()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        # who has no partition yet is ready, too
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
