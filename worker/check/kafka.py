"""Checks of Kafka: brokers, transactions, newest snapshots and reports."""

import time
from collections.abc import Callable, Iterator, Sequence

from ldp import frames
from worker.check import machine, topics
from worker.check.clocks import assess_age
from worker.check.finding import Finding, Level
from worker.check.windows import assess_windows
from worker.config import Config, Served
from worker.counting import rejections
from worker.counting.head import Head, others_of
from worker.counting.lineage import lineage_of
from worker.counting.ports import StateLost, Unavailable
from worker.kafka.admin import cluster
from worker.kafka.admin.cluster import Brokers, Cluster
from worker.kafka.admin.open_transactions import LONG_SECONDS, OpenTransactions
from worker.kafka.client import brokers
from worker.kafka.client.errors import BrokerError, remedy
from worker.kafka.client.reading import Passed
from worker.kafka.client.topics import Topic, describe
from worker.kafka.reports.reader import NewestReports, newest_reports
from worker.observe.units import age_text


def look(
    config: Config, on_waiting: Callable[[str], object]
) -> tuple[list[Finding], Cluster | None, dict[str, Head], dict[str, NewestReports]]:
    """Returns findings, cluster, heads and newest reports by stream.

    The cluster is None if no broker answers.
    """
    findings = list[Finding]()
    there, heads, newest = None, dict[str, Head](), dict[str, NewestReports]()
    try:
        with brokers.connect(config, on_waiting) as admin:
            found = cluster.describe_brokers(admin)
            findings.append(assess_brokers(found))
            findings += assess_abilities(found)
            findings += assess_session(config.kafka.session_timeout_seconds, found.sessions)
            there = cluster.describe(admin, config)
            findings += topics.assess_topics(config, there.topics)
            findings += assess_windows(config, there.topics, machine.memory_bytes())
            for topic, held in there.open_transactions.items():
                findings += assess_open_transactions(topic, held)
            if config.snapshots.topic in there.topics:
                passed = dict[Passed, None]()  # a set in order of insertion
                for served in config.streams:
                    try:
                        head = cluster.head(config, served, lambda one: passed.update({one: None}))
                        heads[served.name] = head
                    except (StateLost, Unavailable) as error:
                        findings.append(_unread(served, error))
                    else:
                        findings.append(assess_head(config, served, there.topics.get(served.topic), head))
                findings += assess_passed(config.snapshots.topic, [*passed])
            for served in config.streams:
                if served.topic in there.topics:
                    head = heads.get(served.name, Head())
                    findings += _reports(config, served, there.topics[served.topic], head, newest)
    except brokers.Unreachable as error:
        findings.append(Finding(Level.ERROR, "brokers", str(error), error.advice))
    except (BrokerError, OSError) as error:
        findings.append(Finding(Level.ERROR, "brokers", str(error), remedy(error)))
    return findings, there, heads, newest


def recorded(config: Config, served: Served, on_waiting: Callable[[str], object]) -> tuple[Head, int]:
    """Returns a stream's newest head, and the number of its partitions."""
    with brokers.connect(config, on_waiting) as admin:
        there = describe(admin, [served.topic, config.snapshots.topic])
    head = cluster.head(config, served, lambda _: None) if config.snapshots.topic in there else Head()
    return head, there[served.topic].partitions if served.topic in there else 0


def assess_brokers(brokers: Brokers) -> Finding:
    """Assesses the brokers' version."""
    version = ".".join(map(str, brokers.version))
    text = f"{brokers.count} broker(s), Kafka {version} or newer, cluster {brokers.cluster_id}"
    if brokers.version < (2, 8):
        text += ": it has no topic ids"
        return Finding(Level.ERROR, "brokers", text, "use Kafka 2.8 or newer; 4.x is tested")
    return Finding(Level.OK, "brokers", text)


def assess_abilities(brokers: Brokers) -> Iterator[Finding]:
    """Assesses whether the brokers support transactions and compaction."""
    if not brokers.transactions:
        text = (
            "no transactions (ApiVersions lacks InitProducerId, AddPartitionsToTxn or EndTxn): no snapshots"
        )
        yield Finding(Level.ERROR, "brokers", text, "use brokers with transactions")
    if not brokers.compacts:
        text = "no compaction (log.cleaner.enable=false): the snapshot topic grows without bound"
        yield Finding(Level.ERROR, "brokers", text, "set log.cleaner.enable=true")


def assess_session(seconds: float, allowed: tuple[int, int] | None) -> list[Finding]:
    """Compares the session time-out (s) with the brokers' bounds (ms)."""
    if allowed is None or allowed[0] <= 1000 * seconds <= allowed[1]:
        return []
    text = f"kafka.session_timeout_seconds={seconds:g}: the brokers allow {allowed[0] / 1000:g} to"
    text += f" {allowed[1] / 1000:g}, so no worker can join its group"
    hint = "set an allowed value, or change group.min.session.timeout.ms or group.max.session.timeout.ms"
    return [Finding(Level.ERROR, "brokers", text, hint)]


def assess_open_transactions(topic: str, held: Sequence[OpenTransactions]) -> Iterator[Finding]:
    """Assesses open transactions that block counting; a long one is an error."""
    for one in held:
        by = f" ({', '.join(one.by)})" if one.by else ""
        age = "" if one.seconds is None else f", open for {age_text(one.seconds)},"
        text = (
            f"partition {one.partition}: a transaction{by}{age} blocks {one.end - one.first} offset(s) of all"
            f" producers from {one.first} on: they are counted after its end, and no lag includes them until then"
        )
        level = Level.ERROR if (one.seconds or 0) > LONG_SECONDS else Level.WARNING
        hint = (
            "if its producer exited: wait for its transaction.timeout.ms, or kafka-transactions.sh --bootstrap-server"
            f" ... abort --topic {topic} --partition {one.partition} --start-offset {one.first}"
        )
        yield Finding(level, f"topic {topic}", text, hint)


def assess_passed(topic: str, passed: Sequence[Passed]) -> list[Finding]:
    """Assesses invalid records and batches that the search for heads skipped."""
    if not passed:
        return []
    first = passed[0]
    found = f"skipped {len(passed)} invalid records or record batches near its end"
    text = f"{found}, for example at offset {first.offset} ({first.why})"
    hint = "another program wrote them: let the brokers' ACLs allow only the workers to WRITE to this topic"
    return [Finding(Level.WARNING, f"topic {topic}", text, hint)]


def _unread(served: Served, error: StateLost | Unavailable) -> Finding:
    closed = "AuthorizationFailed" in str(error)
    level = Level.WARNING if isinstance(error, Unavailable) and not closed else Level.ERROR
    hint = error.remedy if isinstance(error, Unavailable) and closed else "run check again"
    return Finding(level, f"snapshots of {served.name}", str(error), hint)


def assess_head(config: Config, served: Served, topic: Topic | None, head: Head) -> Finding:
    """Assesses whether workers can continue a stream from its newest head."""
    subject = f"snapshots of {served.name}"
    if not head.sequence:
        return Finding(Level.OK, subject, "none yet")
    text = f"the newest is number {head.sequence}"
    topic_id = head.lineage.get("topic_id", "") if topic is None else topic.topic_id
    lineage = lineage_of(config.consumer_group(served.name), topic_id)
    if differing := head.foreign(served.fleet, lineage):
        what, hint = others_of(served.fleet, head, differing)
        text += f", which has other counts than this configuration: {what}"
        return Finding(Level.ERROR, subject, text, hint)
    if head.uncounted:
        partitions = ", ".join(map(str, head.uncounted))
        text += f"; it lacks partition {partitions}, which has records but no counts in Redis"
        hint = "let every worker of the group use the same redis.url; start workers if too few run"
        return Finding(Level.WARNING, subject, text, hint)
    return Finding(Level.OK, subject, text)


def _reports(
    config: Config, served: Served, topic: Topic, head: Head, found_by: dict[str, NewestReports]
) -> list[Finding]:
    try:
        found_by[served.name] = newest = newest_reports(config, served, head)
    except BrokerError as error:
        text = f"the newest records of topic {served.topic} cannot be read: {error}"
        return [Finding(Level.WARNING, f"reports of {served.name}", text, "run check again")]
    found = [assess_reports(served, newest)]
    if newest.with_key_or_headers:
        found.append(assess_with_key_or_headers(served, newest.with_key_or_headers, newest.records))
    return found + assess_age(f"topic {served.topic}", topic, newest.oldest, round(1000 * time.time()))


def assess_with_key_or_headers(served: Served, records: int, looked_at: int) -> Finding:
    """Assesses records with a key or headers, which may identify users."""
    return Finding(
        Level.WARNING,
        f"keys of {served.name}",
        f"{records:,} of the newest {looked_at:,} records have a key or headers, which every reader of the topic sees:"
        " they can link a report to a device or a session",
        "let producers send neither, and look for instrumentation that adds a traceparent header; random keys are"
        " harmless",
    )


def assess_reports(served: Served, newest: NewestReports) -> Finding:
    """Assesses whether clients send valid reports of the stream."""
    name = served.name
    live = ", ".join(served.fleet.documents[i].fingerprint.hex() for i in served.fleet.live)
    subject, text = f"reports of {name}", f"fingerprint {live}"
    reasons, records = newest.reasons, newest.records
    if not reasons:
        none = f"0 of the newest {records:,} records are rejected" if records else "no record yet"
        return Finding(Level.OK, subject, f"{text}; {none}")
    none_counted = reasons.total() == records
    share = "all" if none_counted else f"{min(99.9, 100 * reasons.total() / records):.3g} %"
    text += f"; {share} of the newest {records:,} records are rejected: {rejections.formatted(reasons)}"
    (most, _), *_ = reasons.most_common(1)
    hint = f"{most}: {rejections.REASONS[most]}; ldp-worker dead-letters prints their origin"
    if frames.Reason.FINGERPRINT in reasons:
        hint += f", ldp-worker document --stream {name} prints the document for clients"
        if len(served.fleet.documents) > 1:
            hint += "; reports that came before their document was in force stay rejected"
    return Finding(Level.ERROR if none_counted else Level.WARNING, subject, text, hint)
