"""Decodes fetches on a thread ahead of counting, within a memory budget.

Decoding and counting run in parallel, because both release the interpreter lock. Two arenas alternate, so a chunk stays
valid until the next call of `Prefetch.next`.
"""

from collections import deque
from collections.abc import Collection
from concurrent.futures import Executor, Future
from dataclasses import dataclass

from worker.kafka.decoding.records import Arena, Chunk, Reader


@dataclass(eq=False)
class _Pending:
    partition: int
    reader: Reader
    size: int


class Prefetch:
    """One stream's queue of fetches that wait for counting."""

    def __init__(self, budget: int, executor: Executor) -> None:
        self._budget, self._size = budget, 0
        self._pending: deque[_Pending] = deque()
        self._arenas = [Arena(), Arena()]
        self._ahead: tuple[_Pending, Future[Chunk | None]] | None = None
        self._executor = executor

    @property
    def full(self) -> bool:
        """Whether the waiting fetches reach the budget."""
        return self._size >= self._budget

    @property
    def empty(self) -> bool:
        """Whether no fetch waits."""
        return not self._pending

    def holds(self, partition: int) -> bool:
        """Returns whether a fetch of a partition waits."""
        return any(pending.partition == partition for pending in self._pending)

    def add(self, partition: int, reader: Reader, size: int) -> None:
        """Adds a fetch, and charges `size` bytes to the budget."""
        self._pending.append(_Pending(partition, reader, size))
        self._size += size
        self._start_decoding()

    def next(self) -> tuple[int, Chunk] | None:
        """Returns the next (partition, chunk) or None; valid until the next call.

        Raises `Exception`: decoding failed, for example for lack of memory. Invalid batches do not raise.
        """
        while self._ahead is not None:
            (pending, future), self._ahead = self._ahead, None
            chunk = future.result()
            if chunk is None or pending not in self._pending:
                self._remove(pending)
                self._start_decoding()
                continue
            self._arenas.reverse()
            self._start_decoding()
            return pending.partition, chunk
        return None

    def forget(self, partitions: Collection[int] | None = None) -> None:
        """Drops the fetches of some partitions; None drops all."""
        for pending in list(self._pending):
            if partitions is None or pending.partition in partitions:
                self._remove(pending)

    def close(self) -> None:
        """Shuts down the decoding thread."""
        self._executor.shutdown(cancel_futures=True)

    def _start_decoding(self) -> None:
        if self._ahead is None and self._pending:
            pending = self._pending[0]
            self._ahead = pending, self._executor.submit(pending.reader.read, self._arenas[0])

    def _remove(self, pending: _Pending) -> None:
        if pending in self._pending:
            self._pending.remove(pending)
            self._size -= pending.size
