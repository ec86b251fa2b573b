"""Progress: what a stream's threads say of themselves, and what readiness makes of it.

Ready means that what is due happens. Each step says when it failed and when it was over without a failure; one that has
failed for longer than `READY_TIMEOUT_SECONDS` makes the stream not ready, with why and what to do.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum

from worker.counting.ports import Unavailable
from worker.kafka import brokers
from worker.observe.units import said_seconds
from worker.redis import advice as redis

READY_TIMEOUT_SECONDS = 20.0
"""How long a step that is due may fail, or the polling thread be silent, before the stream is not ready."""

SERVING = "serving"
"""What a stream says of itself when all is well."""

_RIGHTS = {"AuthorizationFailed": brokers.advice("AuthorizationFailed"), "NoPermissionError": redis.RIGHTS}
"""What to do where a right is missing, whatever the step, by a sign in why it failed."""
_REDIS = "see that Redis answers, has room and takes writes"


class Step(Enum):
    """What is due again and again: what it is to people, and what they can do where it fails."""

    REACH = "reaching Redis", redis.ADVICE
    CONNECT = "reaching the brokers", brokers.ADVICE
    POLL = "reading the topic", brokers.ADVICE
    LOOK = "asking the brokers where the log ends", brokers.ADVICE
    CLAIM = "claiming partitions", f"{_REDIS}, and that the brokers answer"
    COMMIT = "committing counts", f"{_REDIS}, and that the dead-letter topic exists"
    COMPARE = "comparing with Redis", _REDIS
    LETTERS = "sending dead letters", "ldp-worker create-topics makes the topic, if it is missing"
    PUBLISH = "publishing", "ldp-worker create-topics makes the snapshot topic, if it is missing"
    SERVE = "serving", "it begins again by itself from what is stored; the log has the whole error"

    def __init__(self, what: str, todo: str) -> None:
        self.what, self.todo = what, todo


@dataclass
class _Failure:
    """A step that fails: since when, why, and whether it did so in the turn that is not over yet."""

    since: float
    why: str
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
        >>> progress.failed(Step.COMPARE, "Redis: ConnectionError")
        >>> progress.says()
        'serving'
        >>> now[0] = 21.0
        >>> progress.beat()
        >>> progress.says()  # doctest: +ELLIPSIS
        'comparing with Redis has failed for 21 s (Redis: ConnectionError): see that Redis answers, ...'
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

    def failed(self, step: Step, why: str) -> None:
        """A step failed; it counts from its first failure since it last went well."""
        before = self._failing.get(step)
        self._failing[step] = _Failure(self._clock() if before is None else before.since, why)

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
            self.failed(step, str(error))
            raise
        finally:
            self.over(step)

    def says(self) -> str:
        """Returns what readiness says: `SERVING`, or what does not happen, since when, why, and what to do."""
        if self.error is not None:
            return self.error
        now = self._clock()
        failing = sorted(self._failing.copy().items(), key=lambda item: item[1].since)
        for step, failure in failing:
            if step is Step.SERVE or now - failure.since > READY_TIMEOUT_SECONDS:
                todo = next((todo for sign, todo in _RIGHTS.items() if sign in failure.why), step.todo)
                return (
                    f"{step.what} has failed for {said_seconds(now - failure.since)} ({failure.why}): {todo}"
                )
        if now - self.stepped > READY_TIMEOUT_SECONDS:
            age = said_seconds(now - self.stepped)
            return f"no step has come to its end for {age}: a broker or Redis is slow to answer"
        return self.state
