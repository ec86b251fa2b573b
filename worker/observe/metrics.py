"""Prometheus metrics of a worker, in base units.

No label identifies a user. Only the ten most frequent values have series.
"""

import platform
from collections.abc import Iterable, Mapping
from importlib import metadata
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
)

from ldp.alarms.watch import TESTS
from worker.counting.lateness import AGES, OLDER
from worker.counting.rejections import REASONS

_PARTITION = ("stream", "partition")
_PACKAGES = ("kafka-python", "numba", "numpy", "redis")
ENDS = {
    "low": "Lower end of Base's pointwise interval.",
    "high": "Upper end of Base's pointwise interval.",
    "anytime_low": "Lower end of Base's anytime-valid interval.",
    "anytime_high": "Upper end of Base's anytime-valid interval.",
}
_FAST = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Metrics:
    """All metrics of one worker, in a separate registry.

    Example:
        >>> metrics = Metrics()
        >>> metrics.records.labels("emoji", "accepted").inc(3)
        >>> metrics.registry.get_sample_value("ldp_worker_records_total", {"stream": "emoji", "outcome": "accepted"})
        3.0
    """

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self._define_counting()
        self._define_partitions()
        self._define_publishing()
        self._define_process()

    def _counter(self, name: str, text: str, labels: tuple[str, ...] = ("stream",)) -> Counter:
        return Counter(f"ldp_worker_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, labels: tuple[str, ...] = ("stream",)) -> Gauge:
        return Gauge(f"ldp_worker_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(f"ldp_worker_{name}", text, ("stream",), buckets=_FAST, registry=self.registry)

    def _define_counting(self) -> None:
        """Defines counters of this process, for rates but not stream totals."""
        counter, histogram = self._counter, self._histogram
        self.records = counter(
            "records_total", "Records read, by outcome: accepted or rejected.", ("stream", "outcome")
        )
        self.reports = counter("reports_total", "Reports counted by this process.")
        self.document_reports = counter(
            "document_reports_total",
            "Reports counted by this process, by the fingerprint of their document.",
            ("stream", "document"),
        )
        self.rejected = counter("rejected_total", "Malformed records, by reason.", ("stream", "reason"))
        self.passed_over = counter(
            "passed_over_total",
            "Unreadable records and batches that the worker skipped on the topics of snapshots and rows.",
        )
        self.dead_letters = counter("dead_letters_total", "Records sent to the dead-letter topic.")
        self.left_out = counter(
            "dead_letters_left_out_total",
            "Malformed or late records without a dead letter, because of the limit per second.",
        )
        self.with_key_or_headers = counter(
            "records_with_key_or_headers_total",
            "Records with a key or headers, which can link a report to a device or a session.",
        )
        self.alarms = counter(
            "alarms_total",
            "Alarms about poisoning reports, by test; false alarms come once in 10⁶ hours.",
            ("stream", "test"),
        )
        self.late = counter(
            "late_records_total",
            "Accepted records that were too late for their windows, by upper bound of their delay.",
            ("stream", "age"),
        )
        self.undated = counter(
            "undated_records_total", "Accepted records without a timestamp, which no window counts."
        )
        self.claims = counter(
            "claims_total", "Claims of partitions, by the start of the counts.", ("stream", "start")
        )
        self.commits = counter("commits_total", "Commits to Redis, by verdict.", ("stream", "verdict"))
        self.commit_seconds = histogram("commit_seconds", "Time of one partition's commit to Redis.")
        self.count_seconds = histogram("count_seconds", "Time to count one slice of a polled batch.")
        self.errors = counter(
            "errors_total", "Failed attempts that the worker retries, by step.", ("stream", "step")
        )
        self.failing = self._gauge(
            "step_failing_seconds",
            "Time since the step began to fail, by step; 0 while the step succeeds.",
            ("stream", "step"),
        )

    def _define_partitions(self) -> None:
        gauge = self._gauge
        self.owned = gauge("partition_owned", "1 for a partition that this worker owns.", _PARTITION)
        self.offset = gauge("partition_offset", "Offset of a partition's counts in Redis.", _PARTITION)
        self.lag = gauge(
            "partition_lag", "Offsets between the counted offset and the last stable offset.", _PARTITION
        )
        self.held_back = gauge(
            "partition_offsets_above_last_stable",
            "Offsets above the last stable offset, which an open transaction holds back.",
            _PARTITION,
        )
        self.watermark = gauge(
            "partition_watermark_timestamp_seconds", "Highest timestamp of an accepted record.", _PARTITION
        )
        self.closed = gauge(
            "partition_closed_timestamp_seconds",
            "Window-close watermark: the highest timestamp minus max_out_of_orderness and grace.",
            _PARTITION,
        )
        self.panes = gauge("partition_panes", "Panes of a partition's windows.", _PARTITION)
        self.waiting = gauge(
            "partition_waiting",
            "1 for a partition that is not counted until a head admits it or a pane is free, by reason.",
            (*_PARTITION, "reason"),
        )
        self.up = gauge(
            "stream_up", "1 while the worker serves the stream, 0 after the worker stopped the stream."
        )

    def _define_publishing(self) -> None:
        counter, gauge, histogram = self._counter, self._gauge, self._histogram
        self.snapshots = counter("snapshots_total", "Snapshots published.")
        self.snapshot_seconds = histogram("snapshot_seconds", "Time to estimate and publish one snapshot.")
        self.publisher = gauge("publisher", "1 for the worker that publishes the stream's snapshots.")
        self.sequence = gauge("snapshot_sequence", "Sequence number of the newest snapshot.")
        self.age = gauge(
            "snapshot_age_seconds",
            "Time since a snapshot of this process last covered all counts, by a monotonic clock. With windows and"
            " fewest_new, it need not cover counts that wait for a window or for more reports. Before the first"
            " snapshot, time since this process first became the publisher.",
        )
        self.snapshot_reports = gauge("snapshot_reports", "Reports in the newest snapshot.")
        self.complete = gauge("snapshot_complete", "1 if the newest snapshot has all reports, else 0.")
        self.incomplete = gauge(
            "snapshot_incomplete_partitions",
            "Partitions with reports that the newest snapshot lacks, by cause: gap (the log lost reports that no"
            " worker had counted) or uncounted (this Redis has no counts of the partition).",
            ("stream", "cause"),
        )
        self.unnamed = gauge(
            "documents_unnamed",
            "Recorded documents that the publisher's configuration does not name; the publisher waits.",
        )
        self.rest_ratio = gauge(
            "segment_rest_ratio",
            "Share of the newest snapshot's reports with a segment that count in the rest of undeclared segments.",
        )
        self.std_error = gauge(
            "snapshot_standard_error", "Standard error of Base for a value of frequency 0."
        )
        self.sum = gauge(
            "snapshot_total_frequency", "Sum of Base over the domain, which is 1 except for noise."
        )
        self.sum_deviation = gauge(
            "snapshot_sum_deviation",
            "Distance of Base's sum from 1 in standard errors; 0 for a protocol whose sum is always 1.",
        )
        self.window_closed = gauge(
            "window_closed_timestamp_seconds",
            "Time up to which windows are final in the newest head.",
            ("stream", "window"),
        )
        self.window_delay = gauge(
            "window_delay_seconds",
            "Highest counted timestamp minus the time up to which windows are final.",
            ("stream", "window"),
        )
        self.changed_values = gauge(
            "window_changed_values",
            "Values that changed from the previous final window to the newest.",
            ("stream", "window"),
        )
        self.changed_queries = gauge(
            "window_changed_queries",
            "Sets that changed from the previous final window to the newest.",
            ("stream", "window"),
        )
        self._define_answers()

    def _define_answers(self) -> None:
        """Defines gauges of the newest snapshot; see `worker.observe.answers`."""
        gauge, value, query = self._gauge, ("stream", "value", "label"), ("stream", "query")
        self.value = gauge(
            "snapshot_value_frequency",
            "Frequency of the ten most frequent values, by method; `label` has at most 64 characters.",
            (*value, "method"),
        )
        for name, labels in (("value", value), ("query", query)):
            for end, text in ENDS.items():  # `value_low`, …, `query_anytime_high`
                setattr(self, f"{name}_{end}", gauge(f"snapshot_{name}_{end}", text, labels))
        self.query = gauge(
            "snapshot_query_frequency", "Answer to a configured query, by method.", (*query, "method")
        )
        self.recommended = gauge(
            "snapshot_query_recommended",
            "1 for the method that is clearly best for the query, if any.",
            (*query, "method"),
        )

    def _define_process(self) -> None:
        """Defines metrics of the process, Redis and the topics' offsets."""
        self.build = Info(
            "ldp_worker_build",
            "1; the labels contain the versions of the worker, the interpreter and libraries.",
            registry=self.registry,
        )
        versions = {name.replace("-", "_"): metadata.version(name) for name in _PACKAGES}
        self.build.info(
            {"version": metadata.version("ldp-worker"), "python": platform.python_version()} | versions
        )
        ProcessCollector(registry=self.registry)
        self.redis_used = self._gauge(
            "redis_used_bytes", "Memory that a Redis server uses in total.", ("server",)
        )
        self.redis_limit = self._gauge(
            "redis_limit_bytes", "Memory limit of a Redis server; 0 for no limit.", ("server",)
        )
        self.first_offset = self._gauge(
            "partition_first_offset",
            "First offset that the topic still has. Every worker exports the first, end and group offsets of all"
            " partitions of its topics.",
            _PARTITION,
        )
        self.end_offset = self._gauge(
            "partition_end_offset", "Last stable offset of the partition.", _PARTITION
        )
        self.group_offset = self._gauge(
            "partition_group_offset",
            "Offset of the consumer group in Kafka, or the first offset without a commit.",
            _PARTITION,
        )

    def capacity(
        self,
        memory: Mapping[str, Mapping[str, Any]],
        logs: Mapping[str, Mapping[int, tuple[int, int, int]]],
    ) -> None:
        """Exports Redis memory and offsets; an empty mapping removes them.

        A partition's offsets are the first offset, the last stable offset, and the consumer group's offset.
        """
        for metric in (self.redis_used, self.redis_limit):
            if not memory:
                metric.clear()
        offsets = self.first_offset, self.end_offset, self.group_offset
        if not logs:
            for metric in offsets:
                metric.clear()
        for server, info in memory.items():
            self.redis_used.labels(server).set(info.get("used_memory", 0))
            self.redis_limit.labels(server).set(info.get("maxmemory", 0))
        for stream, partitions in logs.items():
            for partition, found in partitions.items():
                for metric, offset in zip(offsets, found, strict=True):
                    metric.labels(stream, str(partition)).set(offset)

    def begin(self, stream: str, documents: Iterable[str]) -> None:
        """Starts a stream's counters at 0, so that rates include the first event.

        `documents`: the fingerprints of the configured documents.
        """
        self.up.labels(stream).set(1)
        self.publisher.labels(stream).set(0)
        self.unnamed.labels(stream).set(0)
        for metric, values in (
            (self.records, ("accepted", "rejected")),
            (self.rejected, tuple(REASONS)),
            (self.document_reports, documents),
            (self.alarms, TESTS),
            (self.late, (*AGES, OLDER)),
            (self.claims, ("fresh", "resume", "gap", "recount")),
            (self.commits, ("done", "lineage", "fenced", "conflict", "staging_expired")),
            (
                self.errors,
                (
                    *("reach", "connect", "poll", "fetch", "claim", "commit"),
                    *("compare", "publish", "recommend", "serve"),
                ),
            ),
        ):
            for value in values:
                metric.labels(stream, str(value))
        for counted in (
            self.undated,
            self.reports,
            self.passed_over,
            self.dead_letters,
            self.left_out,
            self.with_key_or_headers,
            self.snapshots,
        ):
            counted.labels(stream)

    def forget_partition(self, stream: str, partition: int) -> None:
        """Removes a partition's gauges."""
        held = (self.owned, self.offset, self.lag, self.held_back, self.watermark, self.closed, self.panes)
        for metric in held:
            metric.remove(stream, str(partition))
        for reason in ("admission", "room"):
            self.waiting.remove(stream, str(partition), reason)
