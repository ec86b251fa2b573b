"""Schedules a stream's commits, and writes them on a thread of its own while counting goes on."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future

from worker.counting.owned_partition import PendingCommit
from worker.counting.ownership import Ownership
from worker.counting.ports import Answer

SHARE = 0.1
"""Largest share of the time that writing may take: beyond it, commits are less frequent than configured."""
LONGEST_SECONDS = 10.0  # Longest delay of a commit by `SHARE`
REPLAY_SECONDS = 10.0  # Seconds of counting after which a commit is due at once: what a crash may lose


class Commits:
    """The commits of one stream's counts; called from the polling thread.

    `Ownership.release` commits a partition even if its commit is under way: the same commit written twice changes
    nothing.
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
        """Adds seconds of counting that are not committed yet."""
        self._counted += seconds

    def turn(self) -> bool:
        """Settles a written commit, and starts one that is due; returns whether one ended.

        Raises `StateLost`; as `Ownership.commit` does.
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
        """Waits for the commit under way, and settles it. Raises `StateLost`; as `Ownership.commit` does."""
        if self._writing is not None:
            writing, self._writing = self._writing, None
            self._ownership.settle(writing.result())

    def close(self) -> None:
        """Ends the thread after its commit."""
        self._executor.shutdown()

    def _write(self, commits: Sequence[PendingCommit]) -> list[tuple[PendingCommit, Answer]]:
        began = self._clock()
        written = self._ownership.write(commits)
        if len(written) == len(commits):  # else the store did not answer
            self._took = self._clock() - began
        return written
