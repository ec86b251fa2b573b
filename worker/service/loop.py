"""Polling loop of a stream: polls, counts, claims, commits, compares.

The module depends on neither Kafka nor Redis, so that a simulation can run it.
"""

import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

import ldp
from ldp import wire
from worker.counting.columns import Batch
from worker.counting.ownership import Ownership
from worker.counting.partition_state import MOST_COST
from worker.counting.ports import Log, Unavailable
from worker.observe.events import StreamEvents
from worker.observe.progress import READY_TIMEOUT_SECONDS, SERVING, Progress, Step
from worker.service.commits import Commits

_POLL_MS = 200
_COUNT_SECONDS = 1.0  # Maximum counting time in one turn of the loop
_LOOK_SECONDS = 5.0
_RETRY_SECONDS = 0.5
_FINISH_SECONDS = 0.2
STOP_SECONDS = 4.0  # Maximum duration of `finish`; the next owner recounts uncommitted records


class Polled(Log, Protocol):
    """Log with the methods that the loop calls."""

    def poll(self, timeout_ms: int) -> list[Batch]:
        """Returns the next batch of one started partition, or an empty list."""

    def keep(self) -> None:
        """Stays in the group without further fetches."""

    def take_revoked(self) -> set[int]:
        """Returns the partitions that were revoked since the last call."""

    def partitions(self) -> set[int] | None:
        """Returns the topic's partitions; empty if missing, None if unknown."""

    def ends(self, partitions: Collection[int]) -> Mapping[int, tuple[int, int] | Unavailable]:
        """Returns each log's last stable offset and high watermark."""

    def take_refused(self) -> Mapping[int, tuple[Unavailable, float]]:
        """Returns newly refused partitions -> (error, seconds of refusal)."""

    def reads_all(self) -> bool:
        """Returns whether no partition's last fetch was refused."""


class Stopping(Protocol):
    """Request to stop the worker, with the interface of `threading.Event`."""

    def is_set(self) -> bool:
        """Returns whether a stop was requested."""

    def wait(self, timeout: float) -> bool:
        """Waits for a request; returns whether a stop was requested."""


class Loop:
    """The loop of a stream's polling thread."""

    def __init__(
        self,
        fleet: ldp.Fleet,
        topic: str,
        log: Polled,
        ownership: Ownership,
        commits: Commits,
        progress: Progress,
        events: StreamEvents,
        look_every: float,
        stopping: Stopping,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._fleet, self._topic, self._log = fleet, topic, log
        self._ownership, self._commits = ownership, commits
        self._progress, self._events = progress, events
        self._look_every = min(_LOOK_SECONDS, look_every)
        self._stopping, self._clock, self._sleep = stopping, clock, sleep

    def run(self, errors: Collection[Exception]) -> None:
        """Runs until a stop, or until the publishing thread adds to ``errors``.

        The loop counts a large poll in slices. Between slices, it stays in the group, releases and commits. Raises
        `StateLost`; see `Ownership`.
        """
        log, ownership, commits, progress = self._log, self._ownership, self._commits, self._progress
        began = look_at = self._clock()
        polled: deque[Batch] = deque()
        while not self._stopping.is_set() and not errors:
            try:
                with progress.attempt(Step.POLL):
                    if polled:
                        log.keep()
                    else:
                        polled.extend(log.poll(_POLL_MS))
                self._tell_refused()
                ownership.release(log.take_revoked(), progress.heartbeat)
                commits.counted(self._count(polled))
                ownership.claim(progress.heartbeat)
                if commits.turn():
                    progress.over(Step.COMMIT)
                now = self._clock()
                if now >= look_at or progress.partitions is None:
                    ownership.compare(progress.heartbeat)
                    progress.over(Step.COMPARE)
                    try:
                        with progress.attempt(Step.LOOK):
                            self._look()
                    finally:  # a failed look takes long, so the loop first counts again
                        look_at = self._clock() + self._look_every
                if now - began > READY_TIMEOUT_SECONDS:
                    progress.over(Step.SERVE)
            except Unavailable as error:
                self._events.poll_failed(error)
                polled.clear()
                ownership.rewind()
                self._stopping.wait(_RETRY_SECONDS)
            progress.state = self._state()
            if progress.state == SERVING:
                progress.over(Step.CLAIM)  # `claim` returns without an error if it postpones a partition
            progress.heartbeat()

    def finish(self) -> None:
        """Commits all counts; retries for at most `STOP_SECONDS`."""
        ownership, deadline = self._ownership, self._clock() + STOP_SECONDS
        self._commits.settle()
        ownership.commit(heartbeat=self._progress.heartbeat)
        while ownership.counted() != ownership.stored() and self._clock() < deadline:
            self._sleep(_FINISH_SECONDS)
            self._progress.heartbeat()
            ownership.commit(heartbeat=self._progress.heartbeat)
        self._events.info("stream.finished", committed=ownership.counted() == ownership.stored())

    def _count(self, polled: deque[Batch]) -> float:
        """Counts slices for about `_COUNT_SECONDS`; returns the elapsed seconds."""
        oracle = max(
            (each.oracle for each in self._fleet.documents), key=lambda one: one.cost / one.report_bytes
        )
        size, cost = oracle.report_bytes, oracle.cost
        began = self._clock()
        while polled and not self._stopping.is_set() and self._clock() < began + _COUNT_SECONDS:
            first, *rest = polled.popleft().slices(wire.HEADER_BYTES, size, cost, MOST_COST)
            polled.extendleft(reversed(rest))
            with self._events.counting():
                self._ownership.apply(first, self._progress.heartbeat)
            self._progress.heartbeat()
        # the log returns records of released and waiting partitions again
        reading = self._ownership.reading()
        left = [batch for batch in polled if batch.partition in reading]
        polled.clear()
        polled.extend(left)
        return self._clock() - began

    def _state(self) -> str:
        if self._progress.partitions is None:
            return f"not known yet whether topic {self._topic} exists"
        if not self._progress.partitions:
            return f"topic {self._topic} is missing"
        if self._log.generation() is None:
            return "joining"
        return SERVING if self._log.assigned() <= self._ownership.counted().keys() else "claiming"

    def _tell_refused(self) -> None:
        for partition, (error, seconds) in self._log.take_refused().items():
            self._events.fetch_refused(partition, error, seconds)
        if self._log.reads_all():
            self._progress.over(Step.FETCH)

    def _look(self) -> None:
        partitions = self._log.partitions()
        self._progress.partitions = None if partitions is None else frozenset(partitions)
        if partitions is not None and not partitions:
            self._events.warning("topic.missing", topic=self._topic, remedy="run ldp-worker create-topics")
        stored, states = self._ownership.stored(), self._ownership.states()
        # without stored partitions, the request for any partition shows whether the brokers answer
        ends = self._log.ends(stored.keys() or sorted(partitions or ())[:1])
        for partition, offset in stored.items():
            if isinstance(end := ends[partition], Unavailable):
                self._progress.failed(Step.LOOK, str(end), end.remedy)
            else:
                self._events.looked(partition, offset, *end, states[partition].windows.watermark)
            if states[partition].windowing is not None:
                self._events.panes(partition, states[partition])
