"""A seeded scheduler: threads that hand one baton around, so that one seed is one order of steps."""

import random
import threading
from collections.abc import Callable


class Crash(BaseException):
    """The process dies here."""


class Member:
    """A process that may die."""

    def __init__(self, number: int) -> None:
        self.number, self.dead = number, False


class Task:
    """A thread that runs only while it holds the baton."""

    def __init__(self, scheduler: "Scheduler", member: Member, body: Callable[[], None]) -> None:
        self.scheduler, self.member, self.body = scheduler, member, body
        self.go = threading.Semaphore(0)
        self.done = False
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        self.go.acquire()
        try:
            if not self.member.dead:
                self.body()
        except Crash:
            self.member.dead = True
        except BaseException as error:
            self.member.dead = True
            self.scheduler.errors.append(error)
        finally:
            self.done = True
            self.scheduler.back.release()


class Scheduler:
    """Lets one task run at a time, to its next step, and chooses by its seed which."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.tasks: list[Task] = []
        self.current: Task | None = None
        self.back = threading.Semaphore(0)
        self.errors: list[BaseException] = []
        self.clock = 0.0
        self.happened: dict[str, int] = {}

    def note(self, what: str) -> None:
        self.happened[what] = self.happened.get(what, 0) + 1

    def pause(self) -> None:
        """Called by a worker between two steps: someone else runs."""
        task = self.current
        assert task is not None
        self.back.release()
        task.go.acquire()
        if task.member.dead:
            raise Crash

    def step(self) -> bool:
        """Lets one task run to its next step; returns whether there was one."""
        self.tasks = [task for task in self.tasks if not task.done]
        if not self.tasks:
            return False
        self.clock += 0.02
        self.happen()
        self.current = self.rng.choice(self.tasks)
        self.current.go.release()
        self.back.acquire()
        return True

    def end(self) -> None:
        """Kills what is left."""
        for task in self.tasks:
            task.member.dead = True
        while self.step():
            pass

    def happen(self) -> None:
        """Called between two steps: what comes from outside comes here."""
