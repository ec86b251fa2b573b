"""A simulated world with windows, and its published windows."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

import ldp
from ldp import frames
from tests.support.memory import Process
from tests.support.memory.topics import milli
from tests.unit.worker.counting.still import STREAM, Still, turn
from worker.counting import layout
from worker.counting.partition_state import PartitionState
from worker.counting.rules import MAX_BATCH_BYTES, RecordLimits, RequestedRule
from worker.counting.windows import Windowing

HOURLY = Windowing(("all", "1s"), grace=500, max_out_of_orderness=500)


def configured(windowing: Windowing | None = HOURLY, revision: int = 1) -> RequestedRule:
    return RequestedRule(revision, RecordLimits(100, True, MAX_BATCH_BYTES, windowing))


class Windowed(Still):
    """A world whose workers count windows of a second."""

    def __init__(self, partitions: int = 1, windowing: Windowing | None = HOURLY) -> None:
        super().__init__(partitions)
        self.configured = configured(windowing)
        self.published: list[dict[str, Any]] = []
        self.messages: list[Any] = []

    def at(self, partition: int, *times: int) -> None:
        """Sends a report of value 1 at each time."""
        value = frames.encode(STREAM, np.array([(1,)], STREAM.oracle.report_dtype))
        for time in times:
            self.produce(partition, value, [1])
            self.logs[partition][-1].timestamp = time

    def state(self, partition: int = 0) -> PartitionState:
        stored = self.stored[partition]
        return layout.load(ldp.Fleet((self.stream,)), stored.metadata, stored.blobs)


def settle(world: Windowed, *processes: Process, turns: int = 12) -> None:
    """Turns and ticks until the world is quiet."""
    for _ in range(turns):
        for process in processes:
            process.ownership.compare()
            turn(process)
            listen(world, process)
            process.publisher.tick()


def listen(world: Windowed, process: Process) -> None:
    """Notes what its publisher sends."""
    snapshot_producer: Any = process.publisher._snapshot_producer
    if not hasattr(snapshot_producer, "heard"):
        publish = snapshot_producer.publish

        def heard(sequence: int, messages: Sequence[Any], rows: Sequence[Any]) -> None:
            publish(sequence, messages, rows)
            world.messages.append(messages)
            world.published += [json.loads(m.body) for m in messages if m.key.endswith("/base") and m.body]

        snapshot_producer.heard, snapshot_producer.publish = True, heard


def windows(world: Windowed, name: str = "1s") -> list[tuple[int, bool, bool, int]]:
    """Published windows of a name: start in seconds, final, complete, reports."""
    return [
        (milli(said["window"]["start"]) // 1000, said["window"]["final"], said["complete"], said["reports"])
        for said in world.published
        if said["window"]["name"] == name
    ]


def finals(world: Windowed, name: str = "1s") -> list[tuple[int, bool, int]]:
    return [(start, whole, n) for start, final, whole, n in windows(world, name) if final]
