"""Scripts: events of a directed history at chosen calls."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.simulation.scheduler import Task

if TYPE_CHECKING:
    from tests.simulation.world import World

HELD, LOST_REPLY = "held back", "lost reply"
"""Fates that an act may return: the request arrives when the script delivers it; the reply is lost."""


class Call:
    """A call of a worker, for a script; `partition` is −1 if the call names none."""

    def __init__(self, world: World, worker: Any, partition: int) -> None:
        self.world, self.worker, self.partition = world, worker, partition
        self.deployment: Any = worker.deployment
        self.server, self.group = self.deployment.server, self.deployment.group
        self.heads = self.deployment.truth.heads

    def tag(self, partition: int) -> bytes:
        """Returns the prefix of a partition's keys."""
        return f"{{{self.deployment.stream.name}:{partition}}}".encode()

    def log(self, partition: int) -> Any:
        """Returns a partition's log."""
        return self.deployment.reports.partitions[partition]

    def keys(self, partition: int) -> dict[bytes, Any]:
        """Returns the stored data of a partition."""
        found: dict[bytes, Any] = self.server.of(self.tag(partition))
        return found

    def past(self, partition: int) -> Sequence[dict[bytes, Any]]:
        """Returns the stored data of a partition after each write."""
        past: Sequence[dict[bytes, Any]] = self.server.past.get(self.tag(partition), ())
        return past

    def meta(self, keys: dict[bytes, Any], partition: int) -> Any:
        """Returns the metadata among the keys of a partition, or None."""
        return keys.get(self.tag(partition) + b":meta")

    def published(self, partition: int) -> int:
        """Returns the offset up to which the newest head has counted a partition."""
        return self.deployment.truth.published("offsets", partition) or 0

    def go_back(self, partition: int, keys: dict[bytes, Any]) -> None:
        """Has the store lose what a partition has beyond older keys."""
        self.server.go_back(self.tag(partition), keys)
        self.world.lossy.add("store")

    def damage(self, partition: int, keys: dict[bytes, Any]) -> None:
        """Has the store keep only some keys of a partition, or damaged ones."""
        self.go_back(partition, keys)
        self.server.past.pop(self.tag(partition), None)
        self.world.vanished = True

    def wait(self, seconds: float) -> None:
        """Blocks the task, as a long call does."""
        self.world.sleep(seconds)
        self.worker.excuse(self.world.now)


Fits = Callable[[Call], object]
Act = Callable[[Call], str | None]


@dataclass(frozen=True)
class Step:
    """Event at a call."""

    when: str  # "before" or "after" the call has its effect
    what: str  # a part of the call's text
    fits: Fits  # whether this is the call
    act: Act  # returns the call's fate, if it changes
    by: str = ""  # the task that makes the call; empty for any


class Script:
    """Steps that are taken in order, each at the first call that fits."""

    def __init__(self, world: World, steps: Sequence[Step]) -> None:
        self.world, self.steps = world, list(steps)

    def play(self, task: Task, when: str, what: str) -> str | None:
        """Returns the fate of a call, if its step is the next one."""
        if not self.steps:
            return None
        step = self.steps[0]
        if step.when != when or step.what not in what or step.by not in ("", task.name):
            return None
        named = re.search(r"\{\w+:(\d+)\}", what)
        call = Call(self.world, task.member, int(named[1]) if named else -1)
        if not step.fits(call):
            return None
        del self.steps[0]
        self.world.note("as the script says", what)
        return step.act(call)
