"""Commits: when a stream's counts are written, on a thread of its own, so that counting goes on meanwhile."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future

from worker.counting.owned_partition import PendingCommit
from worker.counting.ownership import Ownership
from worker.counting.ports import Answer

SHARE = 0.1
"""What part of the time writing may take: large states, or many, are committed less often than is configured."""
LONGEST_SECONDS = 10.0
"""How far that puts a commit off at most: writing also takes long where the store, or this process, stood still."""
REPLAY_SECONDS = 10.0
"""How much counting may be lost to a crash: a commit is due after it, however long ago the last one was."""


class Commits:
    """The commits of what one worker counts of a stream.

    Called from the polling thread. What is written meanwhile is what was counted when it began; a partition that is let
    go of is committed by `Ownership.release`, whatever is on its way: the same flush written twice changes nothing.

    Args:
        ownership: what commits.
        every: seconds between two beginnings, where writing does not take long.
        executor: the thread that writes; closed with the commits.
        clock: seconds.
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
        """Counting took so long, and is lost by a crash before the next commit."""
        self._counted += seconds

    def turn(self) -> bool:
        """Takes up a commit that is written, and begins one that is due; returns whether one came to its end.

        Raises:
            StateLost: as `Ownership.commit` does.
        """
        ended = self._writing is not None and self._writing.done()
        if ended:
            self.settle()
        if self._writing is None and (self._clock() >= self._due or self._counted >= REPLAY_SECONDS):
            began, self._counted = self._clock(), 0.0
            self._due = began + max(self._every, min(self._took / SHARE, LONGEST_SECONDS))
            if flushes := self._ownership.prepare():
                self._writing = self._executor.submit(self._write, flushes)
            else:
                ended = True
        return ended

    def settle(self) -> None:
        """Waits for a commit that is being written, and takes it up.

        Raises:
            StateLost: as `Ownership.commit` does.
        """
        if self._writing is not None:
            writing, self._writing = self._writing, None
            self._ownership.settle(writing.result())

    def close(self) -> None:
        """Ends the thread, once what it writes is written or given up."""
        self._executor.shutdown()

    def _write(self, flushes: Sequence[PendingCommit]) -> list[tuple[PendingCommit, Answer]]:
        began = self._clock()
        written = self._ownership.write(flushes)
        # a store that does not answer says nothing of how long writing takes
        if len(written) == len(flushes):
            self._took = self._clock() - began
        return written
