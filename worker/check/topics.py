"""Topics: those that the configuration names, by how the cluster has them."""

from collections.abc import Iterator, Mapping

from worker.check.clocks import judge_clock
from worker.check.finding import Finding, Level
from worker.config import Config, Served
from worker.config.windows import duration
from worker.kafka.client import topics
from worker.kafka.client.topics import Topic
from worker.kafka.dead_letters.writer import LEAST_ROOM

DAY_MS = 24 * topics.HOUR_MS
Fault = tuple[Level, str, str]
"""What can be the same of many topics: level, text and remedy."""


def judge_topics(config: Config, there: Mapping[str, Topic]) -> list[Finding]:
    """Judges the topics that the configuration names by how the cluster has them."""
    todo = "ldp-worker create-topics"
    findings = [
        Finding(Level.ERROR, f"topic {spec.name}", f"missing; needed for {spec.role}", todo)
        for spec in topics.specs(config, 1)
        if spec.name not in there
    ]
    # a user who may not see them is told of no setting, not even a default
    closed = {
        spec.name for spec in topics.specs(config, 1) if spec.name in there and not there[spec.name].settings
    }
    findings += [_closed(name) for name in sorted(closed)]
    there = {name: topic for name, topic in there.items() if name not in closed}
    faults = [(s.topic, _input_faults(s, there[s.topic])) for s in config.streams if s.topic in there]
    if (topic := there.get(config.snapshots.topic)) is not None:
        faults.append((config.snapshots.topic, _snapshot_faults(config, topic, there)))
    if (topic := there.get(config.dead_letters.topic)) is not None:
        faults.append((config.dead_letters.topic, _dead_letter_faults(config, topic, there)))
    if config.rows.topic is not None and (topic := there.get(config.rows.topic)) is not None:
        faults.append((config.rows.topic, _row_faults(config, topic)))
    shared: dict[Fault, list[str]] = {}
    for name, found in faults:
        topic, own = there[name], list(found)
        written = [] if any(name == served.topic for served in config.streams) else _clock_faults(topic)
        common = [*_replication_faults(topic), *written]
        for fault in common:
            shared.setdefault(fault, []).append(name)
        policy = topic.settings.get("cleanup.policy", "unknown")
        summary = f"{topic.partitions} partition(s), {topic.replicas} replica(s), {policy}"
        findings += own or ([] if common else [Finding(Level.OK, f"topic {name}", summary)])
    for (level, text, todo), names in shared.items():
        subject = f"topic {names[0]}" if len(names) == 1 else f"topics {', '.join(names)}"
        findings.append(Finding(level, subject, text, todo))
    return findings


def _closed(name: str) -> Finding:
    """Says that a topic's settings are not known."""
    return Finding(
        Level.ERROR,
        f"topic {name}",
        "the brokers do not tell this user its settings, so nothing is known of what they do to it",
        "allow it DescribeConfigs on the topic, by the brokers' ACLs",
    )


def _input_faults(served: Served, topic: Topic) -> Iterator[Finding]:
    subject = f"topic {served.topic}"
    if "compact" in (policy := topic.settings.get("cleanup.policy", "unknown")):
        yield Finding(
            Level.ERROR,
            subject,
            f"cleanup.policy={policy}: compaction removes reports before or after they are counted, and no recount is"
            " possible",
            "set cleanup.policy=delete",
        )
    yield from judge_clock(served, topic)
    retention = topic.number("retention.ms")
    if retention is not None and 0 <= retention < DAY_MS:
        yield Finding(
            Level.WARNING,
            subject,
            f"retention.ms={retention}: after {retention / topics.HOUR_MS:g} h reports vanish, counted or not",
            "set retention.ms to more than the longest outage you want to survive, such as 7 days",
        )
    size = topic.number("retention.bytes")
    if size is not None and size >= 0:
        yield Finding(
            Level.WARNING,
            subject,
            f"retention.bytes={size}: a burst of reports pushes out others that may not be counted yet",
            "limit by time only: set retention.bytes=-1",
        )
    yield from _batch_faults(served, topic)


def _batch_faults(served: Served, topic: Topic) -> Iterator[Finding]:
    """Yields what of the stream the topic or the worker does not take, by the size of record batches."""
    subject = f"topic {served.topic}"
    binary, as_json = topics.largest_report(served.stream)
    limit, cap = topic.number("max.message.bytes"), served.configured.terms.max_batch_bytes
    for key, most in (("max.message.bytes", limit), ("kafka.max_batch_bytes", cap)):
        if most is not None and most < binary:
            yield Finding(
                Level.ERROR,
                subject,
                f"{key}={most}: not even one report fits",
                f"set {key} to {binary} at least, {as_json} for JSON",
            )
        elif most is not None and most < as_json:
            yield Finding(
                Level.WARNING,
                subject,
                f"{key}={most}: a report fits as a binary frame, but not as JSON",
                f"set {key} to {as_json} at least",
            )
    if limit is not None and cap is not None and limit > cap:
        yield Finding(
            Level.WARNING,
            subject,
            f"max.message.bytes={limit}, but record batches with more than kafka.max_batch_bytes={cap} are rejected,"
            " each as one record",
            f"set max.message.bytes={cap}, or raise kafka.max_batch_bytes, and kafka.memory_bytes with it",
        )


def _snapshot_faults(config: Config, topic: Topic, there: Mapping[str, Topic]) -> Iterator[Finding]:
    subject = f"topic {config.snapshots.topic}"
    policy = topic.settings.get("cleanup.policy", "unknown")
    if policy != "compact":
        yield Finding(
            Level.ERROR,
            subject,
            f"cleanup.policy={policy}: the newest snapshot would be deleted with time, and its number forgotten",
            "set cleanup.policy=compact, on brokers that support it",
        )
    need = max(
        topics.largest_of_snapshots(served, there[served.topic].partitions if served.topic in there else 1)
        for served in config.streams
    )
    limit = topic.number("max.message.bytes")
    if limit is not None and limit < need:
        yield Finding(
            Level.ERROR,
            subject,
            f"max.message.bytes={limit}: a snapshot's largest message can have {need} bytes",
            f"set max.message.bytes={2 * need}",
        )


def _row_faults(config: Config, topic: Topic) -> Iterator[Finding]:
    subject = f"topic {config.rows.topic}"
    policy = topic.settings.get("cleanup.policy", "unknown")
    if policy != "compact":
        yield Finding(
            Level.ERROR,
            subject,
            f"cleanup.policy={policy}: rows of windows that are final would be deleted with time, and never come again",
            "set cleanup.policy=compact",
        )
    need = max(topics.largest_of_rows(served) for served in config.streams)
    limit = topic.number("max.message.bytes")
    if limit is not None and limit < need:
        yield Finding(
            Level.ERROR,
            subject,
            f"max.message.bytes={limit}: a row can have {need} bytes, and no snapshot goes out without its rows",
            f"set max.message.bytes={need}",
        )


def _dead_letter_faults(config: Config, topic: Topic, there: Mapping[str, Topic]) -> Iterator[Finding]:
    subject = f"topic {config.dead_letters.topic}"
    policy = topic.settings.get("cleanup.policy", "unknown")
    if policy != "delete":
        yield Finding(
            Level.WARNING,
            subject,
            f"cleanup.policy={policy}: no two dead letters have the same key, so compaction removes none",
            "set cleanup.policy=delete",
        )
    limit = topic.number("max.message.bytes")
    if limit is not None and limit < LEAST_ROOM:
        yield Finding(
            Level.ERROR,
            subject,
            f"max.message.bytes={limit}: not even the dead letter of a record's first bytes fits, and counting waits"
            " for it",
            f"set max.message.bytes={topics.BROKER_LIMIT}, or {LEAST_ROOM} at least",
        )
        return
    inputs = [
        there[served.topic].number("max.message.bytes") for served in config.streams if served.topic in there
    ]
    # whatever a record has, no letter is larger than what brokers allow by themselves
    largest = min(max((size for size in inputs if size is not None), default=0), topics.BROKER_LIMIT)
    if limit is not None and limit < largest:
        yield Finding(
            Level.WARNING,
            subject,
            f"max.message.bytes={limit}, but records of reports may have {largest}: the dead letters of larger records"
            " hold only their hash and beginning",
            f"set max.message.bytes={largest} to keep them whole",
        )


def _clock_faults(topic: Topic) -> Iterator[Fault]:
    """Yields what can go wrong by the clocks of the workers that write to a topic."""
    if topic.ahead:
        yield (
            Level.WARNING,
            f"message.timestamp.type=CreateTime: a worker whose clock is more than {duration(topic.ahead)} ahead of the"
            " brokers' cannot write",
            f"set message.timestamp.type={topics.APPEND_TIME}",
        )


def _replication_faults(topic: Topic) -> Iterator[Fault]:
    in_sync = topic.number("min.insync.replicas") or 1
    if in_sync > topic.replicas:
        yield (
            Level.ERROR,
            f"min.insync.replicas={in_sync} with {topic.replicas} replica(s): nothing can be written",
            "lower min.insync.replicas or add replicas",
        )
    elif topic.replicas == 1:
        yield (
            Level.WARNING,
            "one replica: a lost disk takes what it holds along",
            "beyond a trial: replication factor 3 with min.insync.replicas=2",
        )
    elif in_sync == 1:
        yield (
            Level.WARNING,
            f"{topic.replicas} replicas but min.insync.replicas=1: an acknowledged record can be lost with one broker",
            "set min.insync.replicas=2",
        )
    elif in_sync == topic.replicas:
        yield (
            Level.WARNING,
            f"min.insync.replicas={in_sync} of {topic.replicas} replicas: writes stop while any one broker is down",
            "one replica more than min.insync.replicas",
        )
    if topic.settings.get("unclean.leader.election.enable") == "true":
        yield (
            Level.WARNING,
            "unclean.leader.election.enable=true: the log may lose records that were acknowledged and counted",
            "set unclean.leader.election.enable=false",
        )
