"""The dashboard *LDP Operations*: an operator's questions, from the top down. Is it up? Does it keep up? Why not?"""

from deploy.grafana.dashboard import dashboard
from deploy.grafana.newest import newest
from deploy.grafana.panels import Json, stat, timeseries
from deploy.grafana.queries import PLACE, of, otherwise, quantile, rate, said

WORKER = "{{instance}} {{process}}"
UNREADABLE = 'reason="batch"'
PARTITION = "partition {{partition}}"
PANES = "ldp_worker_partition_panes"
NO_WINDOWS = {"partition": "no windows"}


def operations() -> Json:
    """The dashboard."""
    return dashboard(
        "ldp-operations",
        "LDP Operations",
        "How the workers of one stream do: whether they are up, keep up, reject, store and publish.",
        [
            ("", [*_is_it_up(), *_is_it_right(), _alerts()]),
            ("Does it keep up?", _keeps_up()),
            ("What is rejected, and why?", _rejected()),
            ("Are counts stored?", _stored()),
            ("Are snapshots published?", _published()),
            ("Do windows close?", _windows()),
            ("What do processes take?", _processes()),
        ],
    )


def _is_it_up() -> list[Json]:
    return [
        stat(
            "Workers",
            "Workers that answer Prometheus, of all streams. LdpWorkerDown, LdpNoWorkers.",
            {"answer": f"sum(up{{{PLACE}}})", "do not": f"count(up{{{PLACE}}}) - sum(up{{{PLACE}}})"},
            steps=((None, "blue"),),
        ),
        stat(
            "Serve the stream",
            "Workers that do; with --processes each process is one. One that stopped says why in its log: "
            "LdpStreamStopped.",
            {
                "serve": f"sum by (stream) ({of('ldp_worker_stream_up')})",
                "stopped": f"sum by (stream) (1 - {of('ldp_worker_stream_up')})",
            },
        ),
        stat(
            "Publish",
            "Workers that publish the stream's snapshots: one, the owner of partition 0. LdpNoPublisher.",
            f"sum by (stream) ({of('ldp_worker_publisher')})",
            steps=((None, "red"), (1, "green"), (2, "orange")),
        ),
        *newest("LdpSnapshotOld", "LdpSnapshotIncomplete"),
        stat(
            "Lag",
            "Records between the last stable offset and what is counted in Redis, all partitions together."
            " LdpLagging.",
            f"sum by (stream) ({_lag()})",
            spark=True,
        ),
    ]


def _is_it_right() -> list[Json]:
    read = f"sum by (stream) (rate({of('ldp_worker_records_total')}[5m]))"
    rejected = 'outcome="rejected"'
    return [
        stat(
            "Rejected",
            "Share of the records of five minutes that are malformed. LdpRejecting.",
            f"sum by (stream) (rate({of('ldp_worker_records_total', rejected)}[5m])) / {read}",
            "percentunit",
            steps=((None, "green"), (0.01, "red")),
            decimals=2,
        ),
        stat(
            "Unreadable batches",
            "Record batches of the last hour that cannot be read: none of their records is counted. ldp-"
            "worker dead-letters says why. LdpUnreadable.",
            f"sum by (stream) (increase({of('ldp_worker_rejected_total', UNREADABLE)}[1h]))",
            steps=((None, "green"), (0.5, "orange")),
            decimals=0,
        ),
    ]


def _alerts() -> Json:
    firing = 'ALERTS{alertname=~"Ldp.+",alertstate="firing",stream=~"$stream|"}'
    return timeseries(
        "Alerts",
        "Alerts that fire, of the stream and of no one, where Prometheus evaluates deploy/prometheus/rules.yml. The "
        "paragraph for each is in deploy/README.md.",
        {"{{alertname}}": otherwise(f"sum by (alertname) ({firing})", {"alertname": "none fires"})},
        width=24,
        height=5,
        decimals=0,
    )


def _lag() -> str:
    """The lag of each partition: its owner's, or by the group's offset in Kafka if no worker owns it."""
    own, end, group = (of(f"ldp_worker_partition_{name}") for name in ("lag", "end_offset", "group_offset"))
    by = "max by (stream, partition)"
    return f"{by} ({own}) or clamp_min({by} ({end}) - {by} ({group}), 0)"


def _keeps_up() -> list[Json]:
    first, end = of("ldp_worker_partition_first_offset"), of("ldp_worker_partition_end_offset")
    kept = f"clamp_min(max by (partition) ({end}) - max by (partition) ({first}), 1)"
    watermark = of("ldp_worker_partition_watermark_timestamp_seconds")
    return [
        timeseries(
            "Records",
            "Records read from Kafka per second. These are the processes', counted again after a crash: "
            "rates, not totals of the stream.",
            {
                "{{outcome}}": rate("ldp_worker_records_total", "outcome"),
                "reports in them": rate("ldp_worker_reports_total", "stream"),
                "with a key or headers": rate("ldp_worker_keyed_records_total", "stream"),
            },
            "cps",
            width=12,
        ),
        timeseries(
            "Lag, by partition",
            "Records between the last stable offset and what is counted in Redis. LdpPartitionStuck,"
            " LdpPartitionsUnowned.",
            {PARTITION: f"max by (partition) ({_lag()})"},
            width=12,
        ),
        timeseries(
            "Event time behind",
            "How long ago the newest accepted record of a partition was made, by its timestamp. Grows "
            "where a partition is idle, too.",
            {PARTITION: f"time() - max by (partition) ({watermark})"},
            "s",
        ),
        timeseries(
            "Not counted of what is kept, by partition",
            "Share of the offsets that the topic still has which are not counted. Where retention takes "
            "records away at the other end, reports are lost when it comes to 1. LdpRetention.",
            {PARTITION: f"clamp_max(max by (partition) ({_lag()}) / {kept}, 1)"},
            "percentunit",
            most=1,
        ),
        timeseries(
            "Held back by open transactions",
            "Offsets between the last stable one and the high watermark. They end with the producer's "
            "transaction; ldp-worker check names it. LdpUndecided.",
            {PARTITION: f"max by (partition) ({of('ldp_worker_partition_undecided')})"},
        ),
    ]


def _rejected() -> list[Json]:
    return [
        timeseries(
            "Rejected, by reason",
            "Malformed records per second. Mostly fingerprint: clients with an old document of the stream.",
            {"{{reason}}": rate("ldp_worker_rejected_total", "reason")},
            "cps",
            width=6,
        ),
        timeseries(
            "Dead letters",
            "Malformed records, reason and all, and where streams.late_letters is set late ones. Of more "
            "than 100 a second of one reason a sample is, the rest is left out: LdpLettersSampled.",
            {
                "sent": rate("ldp_worker_dead_letters_total", "stream"),
                "left out": rate("ldp_worker_dead_letters_left_out_total", "stream"),
            },
            "cps",
            width=6,
        ),
        timeseries(
            "Late, by age",
            "Accepted records per second that were too late for their windows, by how long before their "
            "pane was closed at most; and those without a timestamp. They count in all and in no window. "
            "LdpLate.",
            {
                "{{age}}": rate("ldp_worker_late_records_total", "age"),
                "undated": rate("ldp_worker_undated_records_total", "stream"),
            },
            "cps",
            width=6,
        ),
        timeseries(
            "Alarms of forged reports, by test",
            "In the last hour. No honest client sends such reports, whatever its users' values are; they are "
            "counted. The event reports.forged has what was found. LdpForgedReports.",
            {"{{test}}": f"sum by (test) (increase({of('ldp_worker_alarms_total')}[1h]))"},
            width=6,
            decimals=0,
        ),
    ]


def _stored() -> list[Json]:
    used, limit = (f"ldp_worker_redis_{name}_bytes{{{PLACE}}}" for name in ("used", "limit"))
    share = f"max by (server) ({used} * ({limit} > bool 0) / clamp_min({limit}, 1))"
    return [
        timeseries(
            "Commit time",
            "Time of one partition's commit to Redis: its changed counts staged, compared and made live. "
            "LdpCommitSlow.",
            {
                "median": quantile(0.5, "ldp_worker_commit_seconds"),
                "99 %": quantile(0.99, "ldp_worker_commit_seconds"),
            },
            "s",
        ),
        timeseries(
            "Commits, by verdict",
            "Redis' answers per second. done: the counts stand. fenced, forked: another worker has the "
            "partition, or the store went back; the partition is claimed again and nothing is lost. "
            "lineage: the stored counts are not this stream's; it stops.",
            {"{{verdict}}": rate("ldp_worker_commits_total", "verdict")},
            "cps",
        ),
        timeseries(
            "Tried again, by step",
            "Attempts per second that failed, because Kafka or Redis did not answer as it should, and were"
            " made again. LdpRetrying, LdpStartingAgain.",
            {"{{step}}": rate("ldp_worker_errors_total", "step")},
            "cps",
            line=0.05,
        ),
        timeseries(
            "Partitions, by worker",
            "How many partitions each worker counts. LdpOwnedTwice.",
            {WORKER: f"sum by (instance, process) ({of('ldp_worker_partition_owned')})"},
            decimals=0,
            stacked=True,
        ),
        timeseries(
            "Claims, by start",
            "Partitions claimed in five minutes. fresh: from the topic's beginning. resume: from what is "
            "stored. gap: the log had dropped records that were not counted yet.",
            {"{{start}}": f"sum by (start) (increase({of('ldp_worker_claims_total')}[5m]))"},
            decimals=0,
        ),
        timeseries(
            "Memory of Redis",
            "Share of the memory that a server may use which it uses, for whatever; 0 where it has no "
            "limit. LdpRedisFull.",
            {"{{server}}": share},
            "percentunit",
            most=1,
            line=0.9,
        ),
    ]


def _published() -> list[Json]:
    return [
        timeseries(
            "Time to publish",
            "Time to read the counts, estimate by all methods, and publish a snapshot in one transaction.",
            {
                "median": quantile(0.5, "ldp_worker_snapshot_seconds"),
                "99 %": quantile(0.99, "ldp_worker_snapshot_seconds"),
            },
            "s",
            width=6,
        ),
        timeseries(
            "Snapshots",
            "Sequence number of the newest snapshot, and which worker publishes.",
            {WORKER: f"max by (instance, process) ({said('ldp_worker_snapshot_sequence')})"},
            width=6,
            decimals=0,
        ),
        timeseries(
            "Partitions that lack reports",
            "Partitions with reports that the newest snapshot lacks. Gap: the log lost reports before they were"
            " counted. Uncounted: this Redis has no counts of the partition. LdpSnapshotIncomplete.",
            {"{{cause}}": f"max by (cause) ({said('ldp_worker_snapshot_incomplete_partitions')})"},
            width=6,
            decimals=0,
        ),
        timeseries(
            "Sum is off by",
            "Distance of Base's sum from 1 in standard errors. Beyond 6 reports do not come from clients "
            "that follow the protocol. LdpSumOff.",
            {"standard errors": f"max by (stream) (abs({said('ldp_worker_snapshot_sum_deviation')}))"},
            width=6,
            line=6,
        ),
    ]


def _windows() -> list[Json]:
    closed = of("ldp_worker_partition_closed_timestamp_seconds")
    waiting = of("ldp_worker_partition_waiting")
    return [
        timeseries(
            "Closed line behind, by partition",
            "How long ago the time was up to which a partition's panes are closed. The highest line is the"
            " one that windows wait for. LdpWindowsHeldBack.",
            {
                "{{partition}}": otherwise(
                    f"time() - max by (partition) ({closed} > 0)", NO_WINDOWS, of(PANES)
                )
            },
            "s",
        ),
        timeseries(
            "Panes, by partition",
            "Panes that a partition keeps. It waits where there is no room for another, until windows of "
            "before are final.",
            {"{{partition}}": otherwise(f"max by (partition) ({of(PANES)})", NO_WINDOWS, of(PANES))},
            decimals=0,
        ),
        timeseries(
            "Partitions that wait",
            "Partitions that are not counted meanwhile: until a snapshot's head admits them, or until "
            "there is room for another pane. LdpPartitionWaiting.",
            {
                "{{reason}}": otherwise(
                    f"sum by (reason) (max by (partition, reason) ({waiting}))",
                    {"reason": "no windows"},
                    of(PANES),
                )
            },
            decimals=0,
        ),
    ]


def _processes() -> list[Json]:
    cpu, restarts = (
        f"process_cpu_seconds_total{{{PLACE}}}",
        f"ldp_worker_process_restarts_total{{{PLACE}}}",
    )
    return [
        timeseries(
            "Memory",
            "Resident memory of each worker, whatever streams it serves.",
            {WORKER: f"max by (instance, process) (process_resident_memory_bytes{{{PLACE}}})"},
            "bytes",
            width=6,
        ),
        timeseries(
            "Processors",
            "Cores that each worker keeps busy. It counts on one: at 1 it needs another process, or "
            "partitions elsewhere.",
            {WORKER: f"sum by (instance, process) (rate({cpu}[$__rate_interval]))"},
            width=6,
        ),
        timeseries(
            "Counting time",
            "Time to count one slice of a polled batch.",
            {
                "median": quantile(0.5, "ldp_worker_count_seconds"),
                "99 %": quantile(0.99, "ldp_worker_count_seconds"),
            },
            "s",
            width=6,
        ),
        timeseries(
            "Started again",
            "Processes of --processes that ended and were started again in ten minutes, by instance. "
            "LdpProcessStartingAgain.",
            {
                "{{instance}}": otherwise(
                    f"sum by (instance) (increase({restarts}[10m]))",
                    {"instance": "one process each"},
                    restarts,
                )
            },
            width=6,
            line=2,
            decimals=0,
        ),
    ]
