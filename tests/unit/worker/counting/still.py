"""A simulated world with only the events of the test: each step of a worker is a call."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ldp
from ldp import frames
from tests.support.memory import Process, World
from worker.counting.ports import Events, Unavailable

STREAM = ldp.Stream("guards", ldp.GRR(epsilon="1", domain_size=3))


class Still(World):
    """A world in which the test chooses the events between two steps."""

    def __init__(self, partitions: int = 1) -> None:
        super().__init__(STREAM, partitions)

    def member(self, number: int, events: Events | None = None) -> Process:
        """A worker that joins with its first poll."""
        return Process(self, number, events)

    def send(self, count: int = 5) -> None:
        rng = random.Random(len(self.logs[0]))
        for _ in range(count):
            for partition in range(len(self.logs)):
                index = rng.randrange(3)
                reports = np.array([(index,)], STREAM.oracle.report_dtype)
                self.produce(partition, frames.encode(STREAM, reports), [index])

    def deliver(self) -> None:
        """Lets every commit that is on its way to Kafka arrive."""
        while self.late:
            self.late.pop(0)()


def turn(process: Process, *, commit: bool = True) -> None:
    """One round of the service loop."""
    ownership = process.ownership
    try:
        batches = process.log.poll()
        ownership.release(process.log.take_revoked())
        for batch in batches:
            ownership.apply(batch)
        process.world.clock += 10
        ownership.claim()
        if commit:
            ownership.commit()
    except Unavailable:
        ownership.rewind()


def look_twice(process: Process, *, commit: bool = True) -> None:
    """Turns until a claim has found twice that counts are lost: it stops the stream at the second look only."""
    for _ in range(3):
        turn(process, commit=commit)


def count_all(world: Still, process: Process) -> None:
    """Takes turns until everything is counted and committed."""
    ends = {partition: len(log) for partition, log in enumerate(world.logs)}
    for _ in range(500):
        turn(process)
        if process.ownership.stored() == ends:
            return
    pytest.fail(f"{process.ownership.stored()} of {ends} is counted")


def alone(world: Still, number: int, events: Events | None = None) -> Process:
    """Starts a worker that gets every partition, as no other one is left."""
    world.members.clear()
    return world.member(number, events)


def during(side: Any, name: str, happen: Callable[[], object]) -> None:
    """Lets something happen right after one call of a worker's log or store."""
    step = getattr(side, name)

    def stepped(*args: Any) -> Any:
        delattr(side, name)
        result = step(*args)
        happen()
        return result

    setattr(side, name, stepped)


def lie_once(side: Any, name: str, lie: Callable[[Any], Any]) -> None:
    """Lets one answer be what ``lie`` makes of the true one."""
    ask = getattr(side, name)

    def asked(*args: Any, **more: Any) -> Any:
        delattr(side, name)
        return lie(ask(*args, **more))

    setattr(side, name, asked)


def shifted(first: int, end: int) -> Callable[[Any], Any]:
    return lambda bounds: {p: (max(0, a + first), max(0, b + end)) for p, (a, b) in bounds.items()}
