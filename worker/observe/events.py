"""Logs, metrics and readiness from events of counting and publishing.

Normal events are logged at level info, and rare events at level warning.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial

from structlog.typing import FilteringBoundLogger

from ldp.snapshot import Period, Snapshot
from worker.counting.partition_state import PartitionState
from worker.counting.ports import Answer, Unavailable
from worker.kafka.client.reading import Passed
from worker.observe.answers import Answers, Shown
from worker.observe.metrics import Metrics
from worker.observe.progress import Progress, Step

_MOST_PASSED = 1000
"""Maximum number of skipped records that one reader logs."""
_LASTING_SECONDS, _REPEAT_SECONDS = 5.0, 60.0
"""Delay before an unreadable partition is logged, and interval between repetitions."""


class PassedOver:
    """Logs each skipped record or batch once."""

    def __init__(self, logger: FilteringBoundLogger) -> None:
        self._logger, self._known = logger, set[Passed]()

    def __call__(self, passed: Passed) -> bool:
        """Logs a skipped record; returns False if it is known or over the limit."""
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
    """Implements `worker.counting.ports.Events` with logs and metrics.

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
        logger: FilteringBoundLogger,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream, self._metrics, self._progress, self._logger = stream, metrics, progress, logger
        self._answers, self._windows, self._clock = Answers(metrics), set[str](), clock
        self._passed = PassedOver(logger)
        self._covered: float | None = None
        self._refusals_logged: dict[int, float] = {}
        """Partition -> duration of its refusals in seconds at the last log line."""
        self._failure_logged = "", 0.0
        """The error of the last failed publication, and the time of its log line."""
        for step in Step:
            metrics.failing.labels(stream, step.name.lower()).set_function(partial(progress.failing, step))

    def info(self, event: str, **facts: object) -> None:
        """Logs a normal event."""
        self._logger.info(event, **facts)

    def warning(self, event: str, **facts: object) -> None:
        """Logs a rare event."""
        self._logger.warning(event, **facts)

    def fetch_refused(self, partition: int, error: Unavailable, seconds: float) -> None:
        """Counts a refused fetch; logs refusals after 5 s, then every minute."""
        self._failed("fetch", Step.FETCH, error)
        due = self._refusals_logged.get(partition, -_REPEAT_SECONDS) + _REPEAT_SECONDS
        if seconds < _LASTING_SECONDS:
            self._refusals_logged.pop(partition, None)
        elif seconds >= due:
            self._refusals_logged[partition] = seconds
            self._logger.warning(
                "partition.unreadable",
                partition=partition,
                seconds=round(seconds),
                error=str(error),
                remedy=error.remedy,
            )

    def claimed(self, partition: int, start: str, offset: int, epoch: int) -> None:
        """Counts and logs a claim."""
        self._metrics.claims.labels(self._stream, start).inc()
        self._logger.info("partition.claimed", partition=partition, start=start, offset=offset, epoch=epoch)

    def claim_failed(self, partitions: Sequence[int], error: Unavailable) -> None:
        """Counts and logs a failed claim."""
        self._failed("claim", Step.CLAIM, error)
        self._logger.warning("claim.retry", partitions=partitions, error=str(error), remedy=error.remedy)

    def gap_found(self, partition: int, lost_from: int, lost_to: int) -> None:
        """Logs a gap, and ends a turn of sending dead letters."""
        self._logger.warning("partition.gap", partition=partition, lost_from=lost_from, lost_to=lost_to)
        self._progress.over(Step.DEAD_LETTERS)

    def counted(self, accepted: int, rejected: int, reports: Mapping[str, int]) -> None:
        """Counts records, and reports by document."""
        self._metrics.records.labels(self._stream, "rejected").inc(rejected)
        self._metrics.records.labels(self._stream, "accepted").inc(accepted)
        self._metrics.reports.labels(self._stream).inc(sum(reports.values()))
        for document, n in reports.items():
            self._metrics.document_reports.labels(self._stream, document).inc(n)

    def late_or_undated(self, late: Mapping[str, int], undated: int, left_out: int) -> None:
        """Counts late records, undated records, and those without a dead letter."""
        for age, n in late.items():
            self._metrics.late.labels(self._stream, age).inc(n)
        self._metrics.undated.labels(self._stream).inc(undated)
        self._metrics.left_out.labels(self._stream).inc(left_out)

    def poisoned(self, test: str, reports: int, found: str) -> None:
        """Counts and logs an alarm; the message contains no report."""
        self._metrics.alarms.labels(self._stream, test).inc()
        self._logger.warning("reports.poisoned", test=test, reports=reports, found=found)

    def with_key_or_headers(self, records: int) -> None:
        """Counts records with a key or headers."""
        self._metrics.with_key_or_headers.labels(self._stream).inc(records)

    def malformed(self, reasons: Mapping[str, int], left_out: int) -> None:
        """Counts malformed records by reason, and those without a dead letter."""
        for reason, n in reasons.items():
            self._metrics.rejected.labels(self._stream, reason).inc(n)
        self._metrics.left_out.labels(self._stream).inc(left_out)

    def counting(self) -> AbstractContextManager[object]:
        """Returns a context that measures the time to count a slice."""
        return self._metrics.count_seconds.labels(self._stream).time()

    def poll_failed(self, error: Unavailable) -> None:
        """Counts and logs a failed poll."""
        self._metrics.errors.labels(self._stream, "poll").inc()
        self._logger.warning("poll.retry", error=str(error), remedy=error.remedy)

    def looked(self, partition: int, stored: int, end: int, high: int, watermark: int | None) -> None:
        """Exports a partition's stored offset, lag and watermark."""
        metrics, labels = self._metrics, (self._stream, str(partition))
        metrics.owned.labels(*labels).set(1)
        metrics.offset.labels(*labels).set(stored)
        metrics.lag.labels(*labels).set(max(0, end - stored))
        metrics.held_back.labels(*labels).set(high - end)
        if watermark is not None:
            metrics.watermark.labels(*labels).set(watermark / 1000)

    def panes(self, partition: int, state: PartitionState) -> None:
        """Exports a partition's number of panes, and why the partition waits."""
        metrics, labels = self._metrics, (self._stream, str(partition))
        metrics.closed.labels(*labels).set(state.windows.closed / 1000)
        metrics.panes.labels(*labels).set(len(state.panes))
        metrics.waiting.labels(*labels, "admission").set(state.windows.admitted_from is None)
        metrics.waiting.labels(*labels, "room").set(state.full)

    def commit_ended(self, answer: Answer | None, seconds: float) -> None:
        """Records the duration of a commit, and counts the commit by its answer."""
        self._metrics.commit_seconds.labels(self._stream).observe(seconds)
        if answer is not None:
            self._metrics.commits.labels(self._stream, answer.value).inc()

    def commit_failed(self, error: Unavailable) -> None:
        """Counts and logs a failed commit."""
        self._failed("commit", Step.COMMIT, error)
        self._logger.warning("commit.retry", error=str(error), remedy=error.remedy)

    def compare_failed(self, error: Unavailable) -> None:
        """Counts and logs a failed comparison."""
        self._failed("compare", Step.COMPARE, error)
        self._logger.warning("compare.retry", error=str(error), remedy=error.remedy)

    def dropped(self, partition: int) -> None:
        """Removes a partition's metrics."""
        self._metrics.forget_partition(self._stream, partition)

    def released(self, partition: int) -> None:
        """Logs a release, and ends a turn of sending dead letters."""
        self._metrics.forget_partition(self._stream, partition)
        self._logger.info("partition.released", partition=partition)
        self._progress.over(Step.DEAD_LETTERS)

    def passed_over(self, passed: Passed) -> None:
        """Counts and logs a skipped record or batch once."""
        if self._passed(passed):
            self._metrics.passed_over.labels(self._stream).inc()

    def publishing(self, owner: bool) -> None:
        """Exports whether this worker is the publisher; starts the snapshot's age."""
        self._metrics.publisher.labels(self._stream).set(owner)
        if owner and self._covered is None:
            self._cover()

    def documents_unnamed(self, documents: Sequence[str], remedy: str) -> None:
        """Exports and logs recorded documents that are not configured."""
        self._metrics.unnamed.labels(self._stream).set(len(documents))
        if documents:
            self._logger.warning("documents.unnamed", documents=documents, remedy=remedy)

    def published(self, snapshot: Snapshot, sum_deviation: float, rest_ratio: float | None = None) -> None:
        """Exports and logs a published snapshot."""
        self.shown(Shown.of(snapshot, sum_deviation, rest_ratio))

    def shown(self, shown: Shown) -> None:
        """Exports and logs the values of a snapshot."""
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
        if shown.rest_ratio is not None:
            metrics.rest_ratio.labels(name).set(shown.rest_ratio)
        self._answers.show(shown.answers)
        self._logger.info(
            "snapshot.published", sequence=shown.sequence, reports=shown.reports, complete=shown.complete
        )

    def windows_closed(self, closed: Mapping[str, int], watermark: int) -> None:
        """Exports the time up to which windows are final, and its delay."""
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
        """Exports and logs the number of changed values and queries."""
        self._metrics.changed_values.labels(self._stream, window.name).set(values)
        self._metrics.changed_queries.labels(self._stream, window.name).set(len(queries))
        self._logger.info(
            "window.compared", window=window.name, start=window.start, values=values, queries=list(queries)
        )

    def checked(self, seconds: float | None) -> None:
        """Restarts the snapshot's age; records the duration of publishing."""
        self._failure_logged = "", 0.0
        if seconds is not None:
            self._metrics.snapshot_seconds.labels(self._stream).observe(seconds)
        self._cover()

    def _cover(self) -> None:
        """Restarts the age of the newest snapshot."""
        if self._covered is None:
            self._metrics.age.labels(self._stream).set_function(
                lambda: self._clock() - (self._covered or 0.0)
            )
        self._covered = self._clock()

    def publish_failed(self, error: Unavailable) -> None:
        """Counts a failed publication; logs a repeated error every minute."""
        self._failed("publish", Step.PUBLISH, error)
        now, (last, at) = self._clock(), self._failure_logged
        if str(error) != last or now >= at + _REPEAT_SECONDS:
            self._failure_logged = str(error), now
            self._logger.warning("snapshot.retry", error=str(error), remedy=error.remedy)

    def ticked(self) -> None:
        """Ends a turn of publishing."""
        self._progress.over(Step.PUBLISH)

    def recommend_failed(self, sequence: int, error: Exception) -> None:
        """Counts and logs a failed recommendation."""
        self._metrics.errors.labels(self._stream, "recommend").inc()
        self._logger.warning("recommend.failed", sequence=sequence, error=f"{type(error).__name__}: {error}")

    def _failed(self, label: str, step: Step, error: Unavailable) -> None:
        self._metrics.errors.labels(self._stream, label).inc()
        self._progress.failed(step, str(error), error.remedy)
