"""One worker process: the worker's own code on the log, the store and the topics in memory."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import ldp
from tests.support.memory.log import MemoryLog
from tests.support.memory.store import MemoryStore
from tests.support.memory.topics import MemoryDeadLetters, MemorySnapshotProducer
from tests.support.memory.world import World
from worker.counting.ownership import Ownership
from worker.counting.ports import Events
from worker.publishing.planning import Content
from worker.publishing.publisher import Group, Publisher
from worker.publishing.recommender import Recommender


class Silence:
    """No receiver: each verb of `Events` does nothing."""

    def __getattr__(self, verb: str) -> Callable[..., None]:
        if not hasattr(Events, verb):
            raise AttributeError(verb)
        return lambda *_, **__: None


class Process:
    """One worker process: the calls of its polling, writing and publishing threads."""

    def __init__(self, world: World, number: int, events: Events | None = None) -> None:
        self.world = world
        events = events or cast(Events, Silence())
        configured = world.configured
        world.used.add(configured)
        fleet = world.fleet or ldp.Fleet((world.stream,))
        self.log = MemoryLog(world, number)
        store = MemoryStore(world)
        snapshot_producer = MemorySnapshotProducer(world)
        self.ownership = Ownership(
            "group",
            fleet,
            configured,
            self.log,
            store,
            MemoryDeadLetters(world),
            snapshot_producer,
            world.recount_after,
            lambda: world.clock,
            events,
            late_dead_letters=world.late_dead_letters,
        )
        self.publisher = Publisher(
            fleet,
            Content(idle_timeout=2.0, retain=8000, changed_level=0.01),
            store,
            snapshot_producer,
            Group(lambda: range(world.told), world.uncounted, lambda: self.ownership.epoch(0)),
            Recommender((), events),
            events,
            clock=lambda: world.clock,
        )
        world.members.add(number)

    def choose(self, **content: Any) -> None:
        """Sets another configuration of the published content."""
        self.publisher._content = replace(self.publisher._content, **content)
