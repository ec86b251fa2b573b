"""Prefetch: what was fetched and is not counted yet, decoded ahead on a thread of its own, within a budget of bytes.

While one chunk of records is counted the next one is decoded: both release the interpreter's lock for nearly all
of their time. Two arenas take turns, so that what was handed out stays until the next one is asked for.
"""

from collections import deque
from collections.abc import Collection
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Protocol

from worker.kafka.decoding.records import Arena, Chunk


class Source(Protocol):
    """What chunks are read from, one after the other."""

    def read(self, arena: Arena) -> Chunk | None:
        """Returns the next chunk, which lies in the arena; None at the end."""


@dataclass(eq=False)
class _Pending:
    """A fetch of a partition that is being read."""

    partition: int
    source: Source
    size: int


class Prefetch:
    """The fetches of one stream between the poll and the counts, in their order.

    Args:
        budget: bytes of fetches that may wait; one fetch may always.
        executor: the thread that decodes.
    """

    def __init__(self, budget: int, executor: Executor) -> None:
        self._budget, self._size = budget, 0
        self._pending: deque[_Pending] = deque()
        self._arenas = [Arena(), Arena()]
        self._ahead: tuple[_Pending, Future[Chunk | None]] | None = None
        self._executor = executor

    @property
    def full(self) -> bool:
        """Whether so much waits that nothing more should be fetched."""
        return self._size >= self._budget

    @property
    def empty(self) -> bool:
        """Whether nothing waits."""
        return not self._pending

    def holds(self, partition: int) -> bool:
        """Whether something waits of a partition."""
        return any(pending.partition == partition for pending in self._pending)

    def add(self, partition: int, source: Source, size: int) -> None:
        """Takes in a fetch of so many bytes."""
        self._pending.append(_Pending(partition, source, size))
        self._size += size
        self._decode()

    def next(self) -> tuple[int, Chunk] | None:
        """Returns the next chunk and its partition, which hold until the call after this one; None if none waits.

        Raises:
            Exception: what decoding raised: no memory, no library; nothing that a batch holds does.
        """
        while self._ahead is not None:
            (pending, future), self._ahead = self._ahead, None
            chunk = future.result()
            if chunk is None or pending not in self._pending:
                self._remove(pending)
                self._decode()
                continue
            self._arenas.reverse()
            self._decode()
            return pending.partition, chunk
        return None

    def forget(self, partitions: Collection[int] | None = None) -> None:
        """Drops what waits of some partitions, or of all: what follows it will be fetched again."""
        for pending in list(self._pending):
            if partitions is None or pending.partition in partitions:
                self._remove(pending)

    def close(self) -> None:
        """Ends the thread."""
        self._executor.shutdown(cancel_futures=True)

    def _decode(self) -> None:
        """Begins with the next chunk, if none is on its way."""
        if self._ahead is None and self._pending:
            pending = self._pending[0]
            self._ahead = pending, self._executor.submit(pending.source.read, self._arenas[0])

    def _remove(self, pending: _Pending) -> None:
        if pending in self._pending:
            self._pending.remove(pending)
            self._size -= pending.size
