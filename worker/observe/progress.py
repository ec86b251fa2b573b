"""Progress of a stream's threads, and the stream's readiness.

A stream is not ready if a step has failed for longer than `READY_TIMEOUT_SECONDS`. The message has the step, cause and
remedy. Most steps use both Kafka and Redis, so only the cause names the failing service.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum

from worker.counting.ports import Unavailable
from worker.observe.units import age_text

READY_TIMEOUT_SECONDS = 20.0
"""Time for which a step may fail, or the polling thread may be silent, before the stream is no longer ready."""
SERVING = "serving"
CHECK = "run ldp-worker check, which finds faults of Kafka, Redis and the topics"
"""Remedy if a cause has no specific remedy."""


class Step(Enum):
    """A repeated step, with its name in messages."""

    REACH = "reaching Redis"
    CONNECT = "reaching the brokers"
    POLL = "reading the topic"
    FETCH = "reading each partition"
    LOOK = "reading the topic's end offsets"
    CLAIM = "claiming partitions"
    COMMIT = "committing counts"
    COMPARE = "comparing with Redis"
    DEAD_LETTERS = "sending dead letters"
    PUBLISH = "publishing"
    SERVE = "serving"


@dataclass
class _Failure:
    """A failing step; `fresh` if it failed in the current turn."""

    since: float
    why: str
    remedy: str
    fresh: bool = True


class Progress:
    """Progress of one stream, shared by its threads.

    Example:
        >>> now = [0.0]
        >>> progress = Progress(lambda: now[0])
        >>> progress.state = SERVING
        >>> progress.failed(Step.COMPARE, "Redis: ConnectionError", "start Redis")
        >>> now[0] = 21.0
        >>> progress.heartbeat()
        >>> progress.describe()
        'comparing with Redis has failed for 21 s: Redis: ConnectionError. Remedy: start Redis'
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failing: dict[Step, _Failure] = {}
        self.heartbeat_at = self.publisher_heartbeat_at = clock()
        self.partitions: frozenset[int] | None = None
        self.state = "joining"
        self.error: str | None = None
        self.ended = False

    def heartbeat(self) -> None:
        """Records that the polling thread is alive."""
        self.heartbeat_at = self._clock()

    def publisher_heartbeat(self) -> None:
        """Records that the publishing thread is alive."""
        self.publisher_heartbeat_at = self._clock()

    def failed(self, step: Step, why: str, remedy: str = "") -> None:
        """Records a failed step; its age starts at the first failure."""
        before = self._failing.get(step)
        since = self._clock() if before is None else before.since
        self._failing[step] = _Failure(since, why, remedy or CHECK)

    def failing(self, step: Step) -> float:
        """Returns the seconds for which a step has failed, or 0; thread-safe."""
        failure = self._failing.get(step)
        return 0.0 if failure is None else self._clock() - failure.since

    def over(self, step: Step) -> None:
        """Ends a turn of a step; clears the failure if the turn succeeded."""
        failure = self._failing.get(step)
        if failure is not None and not failure.fresh:
            del self._failing[step]
        elif failure is not None:
            failure.fresh = False

    @contextmanager
    def attempt(self, step: Step) -> Iterator[None]:
        """Runs a turn of a step; records `Unavailable` as a failure."""
        try:
            yield
        except Unavailable as error:
            self.failed(step, str(error), error.remedy)
            raise
        finally:
            self.over(step)

    def describe(self) -> str:
        """Returns `SERVING`, or the failing step with its age, cause and remedy."""
        if self.error is not None:
            return self.error
        now = self._clock()
        failing = sorted(self._failing.copy().items(), key=lambda item: item[1].since)
        for step, failure in failing:
            if step is Step.SERVE or now - failure.since > READY_TIMEOUT_SECONDS:
                age = age_text(now - failure.since)
                return (
                    f"{step.value} has failed for {age}: {failure.why.rstrip('.')}. Remedy: {failure.remedy}"
                )
        if now - self.heartbeat_at > READY_TIMEOUT_SECONDS:
            age = age_text(now - self.heartbeat_at)
            return f"no step has finished for {age}: a broker or Redis is slow to answer"
        return self.state
