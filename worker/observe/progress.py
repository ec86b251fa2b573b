"""Progress: what a stream's threads say of themselves, and what readiness makes of it.

Ready means that what is due happens. Each step says when it failed and when it was over without a failure; one that has
failed for longer than `READY_TIMEOUT_SECONDS` makes the stream not ready. The message names the step, the cause and the
remedy of that cause: a step needs both Kafka and Redis, so the step alone does not say which of them failed.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum

from worker.counting.ports import Unavailable
from worker.observe.units import said_seconds

READY_TIMEOUT_SECONDS = 20.0
"""How long a step that is due may fail, or the polling thread be silent, before the stream is not ready."""

SERVING = "serving"
"""What a stream says of itself when all is well."""

CHECK = "run ldp-worker check: it names what is wrong with Kafka, Redis and the topics"
"""The remedy where the cause has none of its own."""


class Step(Enum):
    """A step that is due again and again; its value is what people read."""

    REACH = "reaching Redis"
    CONNECT = "reaching the brokers"
    POLL = "reading the topic"
    FETCH = "reading each partition"
    LOOK = "asking the brokers where the log ends"
    CLAIM = "claiming partitions"
    COMMIT = "committing counts"
    COMPARE = "comparing with Redis"
    LETTERS = "sending dead letters"
    PUBLISH = "publishing"
    SERVE = "serving"


@dataclass
class _Failure:
    """A step that fails: since when, why, the remedy, and whether it failed in the turn that is not over yet."""

    since: float
    why: str
    remedy: str
    fresh: bool = True


class Progress:
    """What one stream's threads say of themselves to the other threads.

    Attributes:
        partitions: of the topic; None until they are known.
        state: what the polling thread is at: `SERVING`, or what it waits for.
        error: why the stream stopped for good.
        ended: whether the polling thread is over.

    Args:
        clock: seconds.

    Example:
        >>> now = [0.0]
        >>> progress = Progress(lambda: now[0])
        >>> progress.state = SERVING
        >>> progress.failed(Step.COMPARE, "Redis: ConnectionError", "start Redis")
        >>> progress.says()
        'serving'
        >>> now[0] = 21.0
        >>> progress.beat()
        >>> progress.says()
        'comparing with Redis has failed for 21 s: Redis: ConnectionError. Remedy: start Redis'
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failing: dict[Step, _Failure] = {}
        self.stepped = self.ticked = clock()
        self.partitions: frozenset[int] | None = None
        self.state = "joining"
        self.error: str | None = None
        self.ended = False

    def beat(self) -> None:
        """The polling thread is alive."""
        self.stepped = self._clock()

    def tick(self) -> None:
        """The publishing thread is alive."""
        self.ticked = self._clock()

    def failed(self, step: Step, why: str, remedy: str = "") -> None:
        """Notes that a step failed; the failure counts from the first one since the step last succeeded."""
        before = self._failing.get(step)
        since = self._clock() if before is None else before.since
        self._failing[step] = _Failure(since, why, remedy or CHECK)

    def failing(self, step: Step) -> float:
        """Returns for how many seconds a step has failed without success; safe from any thread."""
        failure = self._failing.get(step)
        return 0.0 if failure is None else self._clock() - failure.since

    def over(self, step: Step) -> None:
        """A turn of a step is over; it went well if no failure was told since the last one."""
        failure = self._failing.get(step)
        if failure is not None and not failure.fresh:
            del self._failing[step]
        elif failure is not None:
            failure.fresh = False

    @contextmanager
    def attempt(self, step: Step) -> Iterator[None]:
        """Runs a turn of a step; `Unavailable` out of it is a failure."""
        try:
            yield
        except Unavailable as error:
            self.failed(step, str(error), error.remedy)
            raise
        finally:
            self.over(step)

    def says(self) -> str:
        """Returns what readiness says: `SERVING`, or the step that fails, since when, the cause and the remedy."""
        if self.error is not None:
            return self.error
        now = self._clock()
        failing = sorted(self._failing.copy().items(), key=lambda item: item[1].since)
        for step, failure in failing:
            if step is Step.SERVE or now - failure.since > READY_TIMEOUT_SECONDS:
                age = said_seconds(now - failure.since)
                return (
                    f"{step.value} has failed for {age}: {failure.why.rstrip('.')}. Remedy: {failure.remedy}"
                )
        if now - self.stepped > READY_TIMEOUT_SECONDS:
            age = said_seconds(now - self.stepped)
            return f"no step has come to its end for {age}: a broker or Redis is slow to answer"
        return self.state
