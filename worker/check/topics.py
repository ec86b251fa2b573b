"""Checks of the configured topics in the cluster."""

from collections.abc import Iterable, Iterator, Mapping

from ldp import wire
from worker.check.clocks import assess_clock
from worker.check.finding import Fault, Finding, Level
from worker.config import Config, Served
from worker.config.windows import duration
from worker.counting.windows import milliseconds
from worker.kafka.client import topics
from worker.kafka.client.topics import Topic
from worker.kafka.dead_letters.writer import LEAST_ROOM

DAY_MS = 24 * topics.HOUR_MS
_ANY = 1 << 63
"""Size limit if a broker does not report it."""


def assess_topics(config: Config, there: Mapping[str, Topic]) -> list[Finding]:
    """Returns findings on all configured topics."""
    names = {spec.name: spec.role for spec in topics.specs(config, 1)}
    findings = [
        Finding(Level.ERROR, f"topic {name}", f"missing; needed for {role}", "ldp-worker create-topics")
        for name, role in names.items()
        if name not in there
    ]
    # brokers return no settings, not even defaults, to a user without the permission
    closed = {name for name in names if name in there and not there[name].settings}
    findings += [
        Finding(
            Level.ERROR,
            f"topic {name}",
            "the brokers do not return its settings to this user, so check cannot validate them",
            "allow the user DescribeConfigs on the topic in the brokers' ACLs",
        )
        for name in sorted(closed)
    ]
    there = {name: topic for name, topic in there.items() if name not in closed}
    faults: list[tuple[str, Iterable[Fault]]] = [
        (s.topic, _input_faults(s, there[s.topic])) for s in config.streams if s.topic in there
    ]
    faults += [
        (s.intake, _intake_faults(config, s, there[s.intake])) for s in config.streams if s.intake in there
    ]
    for name, assess in (
        (config.snapshots.topic, _snapshot_faults),
        (config.dead_letters.topic, _dead_letter_faults),
        (config.rows.topic, _row_faults),
    ):
        if name is not None and name in there:
            faults.append((name, assess(config, there[name], there)))
    shared: dict[Fault, list[str]] = {}
    for name, found in faults:
        topic, own = there[name], [Finding(level, f"topic {name}", *rest) for level, *rest in found]
        written = [] if any(name in (s.topic, s.intake) for s in config.streams) else _clock_faults(topic)
        common = [*_replication_faults(topic), *written]
        for fault in common:
            shared.setdefault(fault, []).append(name)
        summary = f"{topic.partitions} partition(s), {topic.replicas} replica(s), {_policy(topic)}"
        findings += own or ([] if common else [Finding(Level.OK, f"topic {name}", summary)])
    for (level, text, hint), listed in shared.items():
        subject = f"topic {listed[0]}" if len(listed) == 1 else f"topics {', '.join(listed)}"
        findings.append(Finding(level, subject, text, hint))
    return findings


def _policy(topic: Topic) -> str:
    return topic.settings.get("cleanup.policy", "unknown")


def _number(topic: Topic, key: str, unknown: int) -> int:
    number = topic.number(key)
    return unknown if number is None else number


def _input_faults(served: Served, topic: Topic) -> Iterator[Fault]:
    policy, size = _policy(topic), _number(topic, "retention.bytes", -1)
    retention = _number(topic, "retention.ms", -1)
    if "compact" in policy:
        text = f"cleanup.policy={policy}: compaction deletes reports, counted or not, and prevents a recount"
        yield Level.ERROR, text, "set cleanup.policy=delete"
    yield from assess_clock(served, topic)
    if 0 <= retention < DAY_MS:
        text = f"retention.ms={retention}: brokers delete reports after {retention / topics.HOUR_MS:g} h"
        yield Level.WARNING, text, "set retention.ms above your longest outage, such as 7 days"
    if size >= 0:
        text = f"retention.bytes={size}: a burst of reports deletes older reports, counted or not"
        yield Level.WARNING, text, "limit by time only: set retention.bytes=-1"
    yield from _batch_faults(served, topic)


def _intake_faults(config: Config, served: Served, topic: Topic) -> Iterator[Fault]:
    policy, size = _policy(topic), _number(topic, "retention.bytes", -1)
    retention, limit = _number(topic, "retention.ms", -1), _number(topic, "max.message.bytes", _ANY)
    remembered = 2 * milliseconds(config.shuffle.deduplicate_for)
    # numbers of few digits are shorter in JSON
    most = wire.frame_bytes(served.stream.oracle.report_bytes, config.gateway.most_reports)
    need = min(2 * config.gateway.max_body_bytes, most) + topics.RECORD
    if policy != "delete":
        text = f"cleanup.policy={policy}: compaction deletes uploads that wait, and keeps shuffled uploads"
        yield Level.ERROR, text, "set cleanup.policy=delete"
    if not topic.append_time:
        text = "message.timestamp.type=CreateTime: duplicates depend on the clocks of the gateways"
        yield Level.ERROR, text, f"set message.timestamp.type={topics.APPEND_TIME}"
    if 0 <= retention < remembered:
        text = f"retention.ms={retention}: brokers delete uploads that wait, and ids that the shuffler needs"
        hint = f"set retention.ms to at least {remembered}, twice shuffle.deduplicate_for; usual are 24 h"
        yield Level.ERROR, text, hint
    if size >= 0:
        text = f"retention.bytes={size}: a burst of uploads deletes older uploads, shuffled or not"
        yield Level.WARNING, text, "limit by time only: set retention.bytes=-1"
    if limit < need:
        text = f"max.message.bytes={limit}: an upload can have {need} bytes"
        yield Level.ERROR, text, f"set max.message.bytes={need}"
    if topic.settings.get("remote.storage.enable") == "true":
        text = "remote.storage.enable=true: tiered storage can keep uploads after the shuffler deletes them"
        yield Level.WARNING, text, "set remote.storage.enable=false"


def _batch_faults(served: Served, topic: Topic) -> Iterator[Fault]:
    binary, as_json = topics.largest_report(served.fleet)
    limit, cap = topic.number("max.message.bytes"), served.configured.limits.max_batch_bytes
    for key, most in (("max.message.bytes", limit), ("kafka.max_batch_bytes", cap)):
        if most is not None and most < binary:
            hint = f"set {key} to at least {binary}, or {as_json} for JSON"
            yield Level.ERROR, f"{key}={most}: no report fits", hint
        elif most is not None and most < as_json:
            text = f"{key}={most}: a report fits as a binary frame, but not as JSON"
            yield Level.WARNING, text, f"set {key} to at least {as_json}"
    if limit is not None and cap is not None and limit > cap:
        yield (
            Level.WARNING,
            f"max.message.bytes={limit}, but workers reject record batches above kafka.max_batch_bytes={cap}, each"
            " as one record",
            f"set max.message.bytes={cap}, or raise kafka.max_batch_bytes and kafka.memory_bytes",
        )


def _snapshot_faults(config: Config, topic: Topic, there: Mapping[str, Topic]) -> Iterator[Fault]:
    why = "brokers eventually delete the newest snapshot and its number"
    need = max(
        topics.largest_of_snapshots(served, there[served.topic].partitions if served.topic in there else 1)
        for served in config.streams
    )
    return _compacted(topic, why, f"a snapshot's largest message can have {need} bytes", need, 2 * need)


def _row_faults(config: Config, topic: Topic, _there: Mapping[str, Topic]) -> Iterator[Fault]:
    why = "brokers eventually delete rows of final windows, which are written once"
    need = max(topics.largest_of_rows(served) for served in config.streams)
    text = f"a row can have {need} bytes, and snapshots are published only with their rows"
    return _compacted(topic, why, text, need, need)


def _compacted(topic: Topic, why: str, text: str, need: int, room: int) -> Iterator[Fault]:
    policy, limit = _policy(topic), _number(topic, "max.message.bytes", _ANY)
    if policy != "compact":
        yield Level.ERROR, f"cleanup.policy={policy}: {why}", "set cleanup.policy=compact"
    if limit < need:
        yield Level.ERROR, f"max.message.bytes={limit}: {text}", f"set max.message.bytes={room}"


def _dead_letter_faults(config: Config, topic: Topic, there: Mapping[str, Topic]) -> Iterator[Fault]:
    policy, limit = _policy(topic), _number(topic, "max.message.bytes", _ANY)
    inputs = [_number(there[s.topic], "max.message.bytes", 0) for s in config.streams if s.topic in there]
    # dead letters never exceed the brokers' default limit
    largest = min(max(inputs, default=0), topics.BROKER_LIMIT)
    if policy != "delete":
        text = f"cleanup.policy={policy}: dead letters have different keys, so compaction deletes none"
        yield Level.WARNING, text, "set cleanup.policy=delete"
    if limit < LEAST_ROOM:
        text = f"max.message.bytes={limit}: no dead letter fits, not even a record's first bytes, which blocks counting"
        yield Level.ERROR, text, f"set max.message.bytes={topics.BROKER_LIMIT}, or at least {LEAST_ROOM}"
    elif limit < largest:
        text = f"max.message.bytes={limit}, but records can have {largest}: dead letters cut them to hash and beginning"
        yield Level.WARNING, text, f"set max.message.bytes={largest} to keep them complete"


def _clock_faults(topic: Topic) -> Iterator[Fault]:
    if topic.ahead:
        yield (
            Level.WARNING,
            f"message.timestamp.type=CreateTime: a worker whose clock is more than {duration(topic.ahead)} ahead of the"
            " brokers' cannot write",
            f"set message.timestamp.type={topics.APPEND_TIME}",
        )


def _replication_faults(topic: Topic) -> Iterator[Fault]:
    in_sync, replicas = topic.number("min.insync.replicas") or 1, topic.replicas
    if in_sync > replicas:
        text = f"min.insync.replicas={in_sync} with {replicas} replica(s): the topic accepts no records"
        yield Level.ERROR, text, "lower min.insync.replicas or add replicas"
    elif replicas == 1:
        hint = "in production use replication factor 3 with min.insync.replicas=2"
        yield Level.WARNING, "one replica: the loss of a disk loses its records", hint
    elif in_sync == 1:
        text = f"{replicas} replicas but min.insync.replicas=1: the loss of one broker can lose acknowledged records"
        yield Level.WARNING, text, "set min.insync.replicas=2"
    elif in_sync == replicas:
        text = f"min.insync.replicas={in_sync} of {replicas} replicas: writes fail while one broker is down"
        yield Level.WARNING, text, "use one more replica than min.insync.replicas"
    if topic.settings.get("unclean.leader.election.enable") == "true":
        text = "unclean.leader.election.enable=true: the log can lose acknowledged and counted records"
        yield Level.WARNING, text, "set unclean.leader.election.enable=false"
