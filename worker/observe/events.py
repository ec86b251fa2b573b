"""Events: what the core tells becomes log lines, metrics and readiness. Names, facts and levels stand here, once.

What happens in usual service is logged as info, what should not happen often as a warning.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Protocol

from ldp.snapshot import Period, Snapshot
from worker.counting.partition_state import PartitionState
from worker.counting.ports import Answer, Unavailable
from worker.kafka.client.reading import Passed
from worker.observe.answers import Answers, Shown
from worker.observe.metrics import Metrics
from worker.observe.progress import Progress, Step

_MOST_PASSED = 1000
"""Records that are passed over and named, of one reader."""
_LASTING_SECONDS, _SAID_SECONDS = 5.0, 60.0
"""After how long a partition that cannot be read is logged, and how often again."""


class Logger(Protocol):
    """What is needed of a structlog logger: an event's name and its facts."""

    def info(self, event: str, **facts: object) -> object:
        """Logs what is usual."""

    def warning(self, event: str, **facts: object) -> object:
        """Logs what should not happen often."""


class PassedOver:
    """Logs the records and batches of our own topics that are passed over, each once.

    Args:
        logger: where.
    """

    def __init__(self, logger: Logger) -> None:
        self._logger, self._known = logger, set[Passed]()

    def __call__(self, passed: Passed) -> bool:
        """Logs one; returns whether it was not logged before."""
        if passed in self._known or len(self._known) >= _MOST_PASSED:
            return False
        self._known.add(passed)
        self._logger.warning(
            "record.passed_over",
            topic=passed.topic,
            partition=passed.partition,
            offset=passed.offset,
            why=passed.why,
            remedy="let only the workers write to this topic",
        )
        return True


class StreamEvents:
    """What happens to one stream, as `worker.counting.ports.Events` describes it, and what its loop tells.

    Args:
        stream: its name.
        metrics: the worker's metrics.
        progress: what readiness is told.
        logger: the stream's logger.
        clock: monotonic seconds.

    Example:
        >>> class Printed:
        ...     def info(self, event, **facts): print("info", event, facts)
        ...     warning = info
        >>> metrics = Metrics()
        >>> events = StreamEvents("emoji", metrics, Progress(), Printed())
        >>> events.claimed(3, "resume", offset=7, epoch=2)
        info partition.claimed {'partition': 3, 'start': 'resume', 'offset': 7, 'epoch': 2}
        >>> metrics.registry.get_sample_value("ldp_worker_claims_total", {"stream": "emoji", "start": "resume"})
        1.0
    """

    def __init__(
        self,
        stream: str,
        metrics: Metrics,
        progress: Progress,
        logger: Logger,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream, self._metrics, self._progress, self._logger = stream, metrics, progress, logger
        self._answers, self._windows, self._clock = Answers(metrics), set[str](), clock
        self._passed = PassedOver(logger)
        self._covered: float | None = None
        self._said_refused: dict[int, float] = {}
        """Partition -> after how many seconds of refusals they were last logged."""
        for step in Step:
            metrics.failing.labels(stream, step.name.lower()).set_function(partial(progress.failing, step))

    def info(self, event: str, **facts: object) -> None:
        """Logs a usual event."""
        self._logger.info(event, **facts)

    def warning(self, event: str, **facts: object) -> None:
        """Logs an event that should be rare."""
        self._logger.warning(event, **facts)

    # reading

    def fetch_refused(self, partition: int, error: Unavailable, seconds: float) -> None:
        """Counts it; says it once it lasts, and again every minute. Readiness hears of it, too."""
        self._failed("fetch", Step.FETCH, error)
        due = self._said_refused.get(partition, -_SAID_SECONDS) + _SAID_SECONDS
        if seconds < _LASTING_SECONDS:
            self._said_refused.pop(partition, None)
        elif seconds >= due:
            self._said_refused[partition] = seconds
            self._logger.warning(
                "partition.unreadable",
                partition=partition,
                seconds=round(seconds),
                error=str(error),
                remedy=error.remedy,
            )

    # a claim

    def claimed(self, partition: int, start: str, offset: int, epoch: int) -> None:
        """Counts it, by how it began."""
        self._metrics.claims.labels(self._stream, start).inc()
        self._logger.info("partition.claimed", partition=partition, start=start, offset=offset, epoch=epoch)

    def claim_failed(self, partitions: Sequence[int], error: Unavailable) -> None:
        """Readiness hears of it, too."""
        self._failed("claim", Step.CLAIM, error)
        self._logger.warning("claim.retry", partitions=partitions, error=str(error), remedy=error.remedy)

    def gap_found(self, partition: int, lost_from: int, lost_to: int) -> None:
        """Says what was lost; a dead letter that was due may be of a record that is gone."""
        self._logger.warning("partition.gap", partition=partition, lost_from=lost_from, lost_to=lost_to)
        self._progress.over(Step.LETTERS)

    # counting

    def counted(self, accepted: int, rejected: int, reports: int) -> None:
        """Counts records and reports."""
        self._metrics.records.labels(self._stream, "rejected").inc(rejected)
        self._metrics.records.labels(self._stream, "accepted").inc(accepted)
        self._metrics.reports.labels(self._stream).inc(reports)

    def misplaced(self, late: Mapping[str, int], undated: int, left_out: int) -> None:
        """Counts them, and those without a dead letter that they were to leave."""
        for age, n in late.items():
            self._metrics.late.labels(self._stream, age).inc(n)
        self._metrics.undated.labels(self._stream).inc(undated)
        self._metrics.left_out.labels(self._stream).inc(left_out)

    def forged(self, test: str, reports: int, found: str) -> None:
        """Counts it, and says what was found, which holds nothing of a report."""
        self._metrics.alarms.labels(self._stream, test).inc()
        self._logger.warning("reports.forged", test=test, reports=reports, found=found)

    def keyed(self, records: int) -> None:
        """Counts them."""
        self._metrics.keyed.labels(self._stream).inc(records)

    def malformed(self, reasons: Mapping[str, int], left_out: int) -> None:
        """Counts them, by reason, and those without a dead letter."""
        for reason, n in reasons.items():
            self._metrics.rejected.labels(self._stream, reason).inc(n)
        self._metrics.left_out.labels(self._stream).inc(left_out)

    def counting(self) -> AbstractContextManager[object]:
        """Returns what a slice is counted in, which measures how long that takes."""
        return self._metrics.count_seconds.labels(self._stream).time()

    # polling

    def poll_failed(self, error: Unavailable) -> None:
        """Counts it; the loop goes on with what is stored."""
        self._metrics.errors.labels(self._stream, "poll").inc()
        self._logger.warning("poll.retry", error=str(error), remedy=error.remedy)

    def looked(self, partition: int, stored: int, end: int, high: int, watermark: int | None) -> None:
        """Shows how a partition stands: its stored offset, its last stable one and its high watermark."""
        metrics, labels = self._metrics, (self._stream, str(partition))
        metrics.owned.labels(*labels).set(1)
        metrics.offset.labels(*labels).set(stored)
        metrics.lag.labels(*labels).set(max(0, end - stored))
        metrics.undecided.labels(*labels).set(high - end)
        if watermark is not None:
            metrics.watermark.labels(*labels).set(watermark / 1000)

    def panes(self, partition: int, state: PartitionState) -> None:
        """Shows how a partition of a stream of windows stands, and what it waits for."""
        metrics, labels = self._metrics, (self._stream, str(partition))
        metrics.closed.labels(*labels).set(state.windows.closed / 1000)
        metrics.panes.labels(*labels).set(len(state.panes))
        metrics.waiting.labels(*labels, "admission").set(state.windows.admitted_from is None)
        metrics.waiting.labels(*labels, "room").set(state.full)

    # a commit

    def commit_ended(self, answer: Answer | None, seconds: float) -> None:
        """Counts it, by the answer, and its time, whatever became of it."""
        self._metrics.commit_seconds.labels(self._stream).observe(seconds)
        if answer is not None:
            self._metrics.commits.labels(self._stream, answer.value).inc()

    def commit_failed(self, error: Unavailable) -> None:
        """Readiness hears of it, too."""
        self._failed("commit", Step.COMMIT, error)
        self._logger.warning("commit.retry", error=str(error), remedy=error.remedy)

    def compare_failed(self, error: Unavailable) -> None:
        """Readiness hears of it, too."""
        self._failed("compare", Step.COMPARE, error)
        self._logger.warning("compare.retry", error=str(error), remedy=error.remedy)

    def dropped(self, partition: int) -> None:
        """Shows it no longer."""
        self._metrics.forget_partition(self._stream, partition)

    def released(self, partition: int) -> None:
        """Shows it no longer; a dead letter that was due may be of a record that is another worker's now."""
        self._metrics.forget_partition(self._stream, partition)
        self._logger.info("partition.released", partition=partition)
        self._progress.over(Step.LETTERS)

    # the snapshot topic

    def passed_over(self, passed: Passed) -> None:
        """Counts a record or batch of the snapshot topic or the rows' topic that is passed over, and logs it once."""
        if self._passed(passed):
            self._metrics.passed_over.labels(self._stream).inc()

    # publishing

    def publishing(self, owner: bool) -> None:
        """Exports whether this worker is the publisher; the age of its snapshots counts from the first time."""
        self._metrics.publisher.labels(self._stream).set(owner)
        if owner and self._covered is None:
            self._cover()

    def published(self, snapshot: Snapshot, sum_deviation: float) -> None:
        """Shows what the snapshot says."""
        self.shown(Shown.of(snapshot, sum_deviation))

    def shown(self, shown: Shown) -> None:
        """Shows what a snapshot says, by what is shown of it."""
        metrics, name = self._metrics, self._stream
        metrics.snapshots.labels(name).inc()
        metrics.sequence.labels(name).set(shown.sequence)
        metrics.snapshot_reports.labels(name).set(shown.reports)
        metrics.complete.labels(name).set(shown.complete)
        metrics.incomplete.labels(name, "gap").set(shown.gaps)
        metrics.incomplete.labels(name, "uncounted").set(shown.uncounted)
        metrics.std_error.labels(name).set(shown.std_error)
        metrics.sum.labels(name).set(shown.sum)
        metrics.sum_deviation.labels(name).set(shown.sum_deviation)
        self._answers.show(shown.answers)
        self._logger.info(
            "snapshot.published", sequence=shown.sequence, reports=shown.reports, complete=shown.complete
        )

    def lines(self, closed: Mapping[str, int], watermark: int) -> None:
        """Shows them, and how far they are behind what is counted; those of windows that are no more are not shown."""
        metrics, name = self._metrics, self._stream
        for window in self._windows - closed.keys():
            metrics.window_closed.remove(name, window)
            metrics.window_delay.remove(name, window)
            metrics.changed_values.remove(name, window)
            metrics.changed_queries.remove(name, window)
        self._windows = {*closed}
        for window, line in closed.items():
            metrics.window_closed.labels(name, window).set(line / 1000)
            metrics.window_delay.labels(name, window).set(max(0, watermark - line) / 1000)

    def compared(self, window: Period, values: int, queries: Sequence[str]) -> None:
        """Shows how many values and sets changed, and says which sets."""
        self._metrics.changed_values.labels(self._stream, window.name).set(values)
        self._metrics.changed_queries.labels(self._stream, window.name).set(len(queries))
        self._logger.info(
            "window.compared", window=window.name, start=window.start, values=values, queries=list(queries)
        )

    def checked(self, seconds: float | None) -> None:
        """Restarts the age of the newest snapshot, and exports how long publishing took."""
        if seconds is not None:
            self._metrics.snapshot_seconds.labels(self._stream).observe(seconds)
        self._cover()

    def _cover(self) -> None:
        """Restarts the age of the newest snapshot.

        The age needs no wall clock: a worker whose clock is an hour off exports the same as any other. A process that
        no longer publishes goes on exporting a growing age, so the stream's age is the least of all processes.
        """
        if self._covered is None:
            self._metrics.age.labels(self._stream).set_function(
                lambda: self._clock() - (self._covered or 0.0)
            )
        self._covered = self._clock()

    def publish_failed(self, error: Unavailable) -> None:
        """Readiness hears of it, too."""
        self._failed("publish", Step.PUBLISH, error)
        self._logger.warning("snapshot.retry", error=str(error), remedy=error.remedy)

    def ticked(self) -> None:
        """Readiness hears of it."""
        self._progress.over(Step.PUBLISH)

    def recommend_failed(self, sequence: int, error: Exception) -> None:
        """Counts it; snapshots go on without."""
        self._metrics.errors.labels(self._stream, "recommend").inc()
        self._logger.warning("recommend.failed", sequence=sequence, error=f"{type(error).__name__}: {error}")

    def _failed(self, label: str, step: Step, error: Unavailable) -> None:
        self._metrics.errors.labels(self._stream, label).inc()
        self._progress.failed(step, str(error), error.remedy)
