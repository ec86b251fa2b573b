"""Scripts: what a directed history has happen at which of its calls."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.simulation.scheduler import Task

if TYPE_CHECKING:
    from tests.simulation.world import World

Fits = Callable[["World", Any, int], bool]
Act = Callable[["World", Any, int], str | None]

HELD, LOST_REPLY = "held back", "lost reply"
"""What an act may have become of a call: before it, it comes when the script says so; after it, nobody hears of it."""


@dataclass(frozen=True)
class Step:
    """What happens at a call.

    Attributes:
        when: "before" or "after" the call has its effect.
        what: a part of what the call says.
        fits: given the world, the worker and the partition that is named, or −1: whether this is the call.
        act: given the same, does it; returns the call's fate, if that is another one.
        by: the task whose call it is, if that matters.
    """

    when: str
    what: str
    fits: Fits
    act: Act
    by: str = ""


class Script:
    """Steps that are taken one after the other, each at the first call that fits."""

    def __init__(self, world: World, steps: Sequence[Step]) -> None:
        self.world, self.steps = world, list(steps)

    def play(self, task: Task, when: str, what: str) -> str | None:
        """Returns the fate of a call, if its step is the next one."""
        if not self.steps:
            return None
        step = self.steps[0]
        named = re.search(r"\{\w+:(\d+)\}", what)
        partition = int(named[1]) if named else -1
        if step.when != when or step.what not in what or step.by not in ("", task.name):
            return None
        if not step.fits(self.world, task.member, partition):
            return None
        del self.steps[0]
        self.world.note("as the script says", what)
        return step.act(self.world, task.member, partition)


def tag_of(worker: Any, partition: int) -> bytes:
    """Returns what all keys of a partition begin with."""
    return f"{{{worker.deployment.stream.name}:{partition}}}".encode()


def set_back(world: World, worker: Any, partition: int) -> None:
    """The store loses the last write of a partition that it had acknowledged."""
    server, tag = worker.deployment.server, tag_of(worker, partition)
    server.go_back(tag, server.past[tag][-2])
    world.lossy.add("store")


def wait(world: World, worker: Any, seconds: float) -> None:
    """Has a worker's task stand still, as where a call takes long."""
    world.sleep(seconds)
    worker.hangs_until = max(worker.hangs_until, world.now)  # nobody may blame it for the time
