"""Seeded scheduler of tasks, which run one at a time on a simulated clock.

A task is a greenlet. Only the seed decides the order of steps. Time passes with each step, and jumps to the
next waking if all tasks wait.
"""

import random
from collections import deque
from collections.abc import Callable
from typing import Any

from greenlet import getcurrent, greenlet

STEP_SECONDS = 0.01
"""Simulated duration of a step."""
TRACED = 400
"""Steps that are remembered for a failing seed."""


class Crash(BaseException):
    """The process dies here."""


class Member:
    """A process: it may die, or hang for a while."""

    def __init__(self, name: str) -> None:
        self.name, self.dead, self.died = name, False, 0.0
        self.hangs_until = 0.0

    def excuse(self, now: float) -> None:
        """Notes that the task was blocked until now."""
        self.hangs_until = max(self.hangs_until, now)


class Task:
    """One thread of a process."""

    def __init__(self, scheduler: "Scheduler", member: Member, name: str, body: Callable[[], object]) -> None:
        self.scheduler, self.member, self.name, self.body = scheduler, member, name, body
        self.wakes, self.done, self.error = 0.0, False, None
        self.result: Any = None
        self.greenlet = greenlet(self._run, scheduler.main)

    def _run(self) -> None:
        try:
            self.result = self.body()
        except Crash:
            self.scheduler.kill(self.member)
        except BaseException as error:
            self.scheduler.failed(self, error)
        finally:
            self.done = True


class Scheduler:
    """Lets one task run at a time, and chooses by its seed which."""

    def __init__(self, seed: str) -> None:
        self.rng = random.Random(seed)
        self.now, self.steps = 1_000.0, 0
        self.tasks: list[Task] = []
        self.current: Task | None = None
        self.main = getcurrent()
        self.errors: list[tuple[Task, BaseException]] = []
        self.trace: deque[tuple[int, float, Task | None, str, tuple[object, ...]]] = deque(maxlen=TRACED)
        self.happened: dict[str, int] = {}

    def note(self, what: str, *more: object) -> None:
        """Remembers what happened: how often, and for the trace when and to whom."""
        self.happened[what] = self.happened.get(what, 0) + 1
        self.say(what, *more)

    def say(self, what: str, *more: object) -> None:
        """Remembers a step for the trace."""
        self.trace.append((self.steps, self.now, self.current, what, more))

    def told(self, last: int) -> str:
        """Returns the last steps for people."""
        lines = []
        for step, now, task, what, more in list(self.trace)[-last:]:
            who = "" if task is None else f"{task.member.name}/{task.name}"
            lines.append(f"{step:6} {now:9.2f}  {who:12} {what} {' '.join(map(str, more))}".rstrip())
        return "\n".join(lines)

    def start(self, member: Member, name: str, body: Callable[[], object]) -> Task:
        """Starts a task."""
        task = Task(self, member, name, body)
        self.tasks.append(task)
        return task

    def sleep(self, seconds: float = 0.0) -> None:
        """Lets other tasks run for at least a number of seconds."""
        task = self.current
        if task is None:  # the history itself asks
            return
        if task.member.dead:
            raise Crash
        task.wakes = self.now + seconds
        self.main.switch()
        if task.member.dead:
            raise Crash

    def clock(self) -> float:
        """Returns the seconds."""
        return self.now

    def step(self) -> bool:
        """Lets one task run to its next step; returns whether there was one."""
        self.steps += 1
        self.now += STEP_SECONDS
        self.happen()
        ready = [t for t in self.tasks if t.wakes <= self.now and t.member.hangs_until <= self.now]
        if not ready:
            if not self.tasks:
                return False
            self.now = min(max(t.wakes, t.member.hangs_until) for t in self.tasks)
            return True
        self._run(ready[int(self.rng.random() * len(ready))])
        return True

    def _run(self, task: Task) -> None:
        self.current = task
        try:
            task.greenlet.switch()
        finally:
            self.current = None
        if task.done and task in self.tasks:
            self.tasks.remove(task)

    def kill(self, member: Member) -> None:
        """A process dies, with all its threads, wherever they are."""
        if member.dead:
            return
        member.dead, member.died = True, self.now
        mine = [task for task in self.tasks if task.member is member and task is not self.current]
        self.tasks = [task for task in self.tasks if task not in mine]
        for task in mine:
            if task.greenlet:  # it has begun
                task.greenlet.throw(Crash)

    def failed(self, task: Task, error: BaseException) -> None:
        """A task ended with an error."""
        self.errors.append((task, error))

    def end(self) -> None:
        """Kills the remaining tasks."""
        for task in list(self.tasks):
            self.kill(task.member)

    def happen(self) -> None:
        """Runs external events between two steps."""
