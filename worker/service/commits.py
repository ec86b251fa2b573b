"""Scheduler of a stream's commits, which a thread writes during counting."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future

from worker.counting.owned_partition import PendingCommit
from worker.counting.ownership import Ownership
from worker.counting.ports import Answer

SHARE = 0.1
"""Maximum share of time for writing; if writing takes more, commits are less frequent than configured."""
LONGEST_SECONDS = 10.0  # Maximum delay of a commit because of `SHARE`
REPLAY_SECONDS = 10.0  # Maximum counting time between commits, which a restart repeats after a crash


class Commits:
    """Commits of one stream's counts; called from the polling thread.

    `Ownership.release` may write a commit that the thread of `executor` also writes. A repeated commit changes nothing.
    """

    def __init__(
        self,
        ownership: Ownership,
        every: float,
        executor: Executor,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ownership, self._every, self._clock = ownership, every, clock
        self._executor = executor
        self._writing: Future[list[tuple[PendingCommit, Answer]]] | None = None
        self._due = clock()
        self._took = self._counted = 0.0

    def counted(self, seconds: float) -> None:
        """Adds to the seconds of counting since the last commit."""
        self._counted += seconds

    def turn(self) -> bool:
        """Settles an ended commit, starts the next; returns whether one ended.

        Raises `StateLost` like `Ownership.commit`.
        """
        ended = self._writing is not None and self._writing.done()
        if ended:
            self.settle()
        if self._writing is None and (self._clock() >= self._due or self._counted >= REPLAY_SECONDS):
            began, self._counted = self._clock(), 0.0
            self._due = began + max(self._every, min(self._took / SHARE, LONGEST_SECONDS))
            if commits := self._ownership.prepare():
                self._writing = self._executor.submit(self._write, commits)
            else:
                ended = True
        return ended

    def settle(self) -> None:
        """Settles the running commit; raises `StateLost` like `Ownership.commit`."""
        if self._writing is not None:
            writing, self._writing = self._writing, None
            self._ownership.settle(writing.result())

    def _write(self, commits: Sequence[PendingCommit]) -> list[tuple[PendingCommit, Answer]]:
        began = self._clock()
        written = self._ownership.write(commits)
        if len(written) == len(commits):  # else the store did not answer
            self._took = self._clock() - began
        return written
