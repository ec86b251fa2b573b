"""Check: everything that can be wrong around a worker, said before it hurts, with what to do about it.

The judgements are functions of what was described, so they can be tested without a cluster; only `check` connects.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import kafka.errors
import redis
from kafka.admin import KafkaAdminClient
from rich.table import Table
from rich.text import Text

from ldp import frames
from worker.config import Config, Served
from worker.config.redaction import redacted
from worker.counting import layout, rejections, rules
from worker.counting.head import Head
from worker.counting.ownership import CLAIMED, Unavailable
from worker.counting.rules import Configured, Older
from worker.kafka import brokers, topics
from worker.kafka.newest import newest
from worker.kafka.outbox import KafkaOutbox
from worker.kafka.topics import Topic
from worker.kafka.undecided import LONG_SECONDS, Undecided, undecided
from worker.store import redis as store

DAY_MS = 24 * topics.HOUR_MS
OLDEST_REDIS = (6, 2)
STRING_LIMIT = 512 << 20
"""Redis' own default of proto-max-bulk-len, the longest string that it takes, in bytes."""
_NEARLY = 0.9
"""The share of its memory from which on Redis is said to be nearly full."""
_KEYS = 4096
"""What Redis needs of a partition beside its blobs, in bytes: keys and metadata."""


class Level(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        level: how bad it is.
        subject: what was looked at.
        text: what was found.
        todo: what to do about it; empty where all is well.
    """

    level: Level
    subject: str
    text: str
    todo: str = ""


@dataclass(frozen=True)
class Cluster:
    """What Kafka has of what the configuration names.

    Attributes:
        topics: the topics that exist, by name.
        logs: input topic -> partition -> (first offset, end).
        words: input topic -> partition -> the metadata word of its group's committed offset.
        undecided: input topic -> what transactions hold back.
    """

    topics: Mapping[str, Topic]
    logs: Mapping[str, Mapping[int, tuple[int, int]]]
    words: Mapping[str, Mapping[int, str]]
    undecided: Mapping[str, Sequence[Undecided]] = field(default_factory=dict)


def check(
    config: Config, wait_seconds: float = 0.0, waiting: Callable[[str], object] = lambda _: None
) -> list[Finding]:
    """Looks at the brokers, the topics, Redis and the counts in it; never raises for what it finds there.

    Args:
        config: what to check against; that it could be read is the first finding.
        wait_seconds: how long to keep trying until brokers and Redis answer.
        waiting: told once which brokers do not answer, if none has in a second.
    """
    deadline = time.monotonic() + wait_seconds
    findings = [Finding(Level.OK, "configuration", _summary(config))]
    findings.append(judge_cache(os.environ.get("NUMBA_CACHE_DIR"), _cache_folder()))
    cluster, heads = None, dict[str, Head]()
    try:
        with brokers.connect(config, max(brokers.PATIENCE, wait_seconds), waiting) as admin:
            findings.append(_brokers(admin))
            cluster = _describe(admin, config)
            findings += judge_topics(config, cluster.topics)
            for topic, held in cluster.undecided.items():
                findings += judge_undecided(topic, held)
            if config.snapshots.topic in cluster.topics:
                for served in config.streams:
                    try:
                        head = heads[served.stream.name] = _head(config, served)
                    except (layout.StateLost, Unavailable) as error:
                        level = Level.WARNING if isinstance(error, Unavailable) else Level.ERROR
                        subject = f"snapshots of {served.stream.name}"
                        findings.append(Finding(level, subject, str(error), "run check again"))
                        continue
                    findings.append(judge_head(config, served, cluster.topics.get(served.topic), head))
            findings += [
                _reports(config, served) for served in config.streams if served.topic in cluster.topics
            ]
    except brokers.Unreachable as error:
        findings.append(Finding(Level.ERROR, "brokers", str(error), error.advice))
    except (kafka.errors.KafkaError, OSError) as error:
        findings.append(Finding(Level.ERROR, "brokers", str(error), brokers.advice(error)))
    with closing(store.connect(config.redis)) as client:
        try:
            info = _info(client, deadline)
            findings += judge_redis(info, _setting(client, "appendfsync"))
            findings += judge_used(info)
            findings += judge_blobs(config, int(_setting(client, "proto-max-bulk-len") or STRING_LIMIT))
            if cluster is not None:
                findings += _judge_state(client, config, cluster, heads, info)
        except redis.RedisError as error:
            refused = isinstance(error, redis.AuthenticationError)
            said = "not let in by" if refused else "no answer from"
            text = f"{said} {redacted(config.redis.url)}: {type(error).__name__}: {error}"
            todo = f"{'' if refused else 'start Redis, or '}correct redis.url and redis.password"
            findings.append(Finding(Level.ERROR, "redis", text, todo))
    return findings


def _summary(config: Config) -> str:
    streams = ", ".join(
        f"{s.stream.name} ({s.stream.oracle.name}, ε = {s.stream.oracle.epsilon}, d = {s.stream.oracle.domain_size})"
        for s in config.streams
    )
    return f"read; group {config.group}, serving {streams}"


# --- this machine -------------------------------------------------------------------------------------------


def _cache_folder() -> str | None:
    """Returns the folder that compiled kernels are kept in, or None if there is none."""
    try:
        from ldp import kernels
    except RuntimeError:  # numba's, of the first kernel, where it can write nowhere
        return None
    return str(kernels.count_bits.stats.cache_path)


def judge_cache(asked: str | None, used: str | None) -> Finding:
    """Judges where compiled kernels are kept: without a place for them, no worker starts.

    Args:
        asked: NUMBA_CACHE_DIR, if it is set.
        used: the folder that they are kept in, or None if there is none that can be written to.
    """
    subject, todo = "compiled kernels", "set NUMBA_CACHE_DIR to a folder that can be written to"
    if used is None:
        return Finding(Level.ERROR, subject, "there is no folder to keep them in: workers do not start", todo)
    if asked and not Path(used).is_relative_to(Path(asked).absolute()):
        return Finding(Level.WARNING, subject, f"kept in {used}: {asked} cannot be written to", todo)
    return Finding(Level.OK, subject, f"kept in {used}")


# --- Kafka --------------------------------------------------------------------------------------------------


def _brokers(admin: KafkaAdminClient) -> Finding:
    cluster = admin.describe_cluster()
    brokers = cluster["brokers"]
    version = admin.get_broker_version_data(brokers[0]["broker_id"]).broker_version
    text = f"{len(brokers)} broker(s), Kafka {'.'.join(map(str, version))} or newer, cluster {cluster['cluster_id']}"
    if version < (2, 8):
        return Finding(
            Level.ERROR,
            "brokers",
            f"{text}: topics have no ids there",
            "use Kafka 2.8 or newer; 4.x is tested",
        )
    return Finding(Level.OK, "brokers", text)


def judge_topics(config: Config, there: Mapping[str, Topic]) -> list[Finding]:
    """Judges the topics that the configuration names by how the cluster has them."""
    todo = "ldp-worker create-topics"
    findings = [
        Finding(Level.ERROR, f"topic {wanted.name}", f"missing; needed for {wanted.role}", todo)
        for wanted in topics.wanted(config, 1)
        if wanted.name not in there
    ]
    faults = [(s.topic, _input_faults(s, there[s.topic])) for s in config.streams if s.topic in there]
    if (topic := there.get(config.snapshots.topic)) is not None:
        faults.append((config.snapshots.topic, _snapshot_faults(config, topic, there)))
    if (topic := there.get(config.dead_letters.topic)) is not None:
        faults.append((config.dead_letters.topic, _dead_letter_faults(config, topic, there)))
    for name, found in faults:
        topic = there[name]
        listed = [*found, *_replication_faults(name, topic)]
        summary = f"{topic.partitions} partition(s), {topic.replicas} replica(s), {topic.settings['cleanup.policy']}"
        findings += listed or [Finding(Level.OK, f"topic {name}", summary)]
    return findings


def _input_faults(served: Served, topic: Topic) -> Iterator[Finding]:
    subject = f"topic {served.topic}"
    if "compact" in topic.settings["cleanup.policy"]:
        yield Finding(
            Level.ERROR,
            subject,
            f"cleanup.policy={topic.settings['cleanup.policy']}: compaction removes reports before or after they are"
            " counted, and no recount is possible",
            "set cleanup.policy=delete",
        )
    ahead = topic.number("message.timestamp.after.max.ms")
    if topic.settings.get("message.timestamp.type") != "LogAppendTime" and (
        ahead is None or ahead > topics.HOUR_MS
    ):
        allowed = (
            "any time ahead"
            if ahead is None or ahead > 1000 * DAY_MS
            else f"{ahead / topics.HOUR_MS:g} h ahead"
        )
        yield Finding(
            Level.WARNING,
            subject,
            f"timestamps may lie {allowed} of the broker's clock: one device with a wrong clock moves the watermark",
            f"set message.timestamp.after.max.ms={topics.HOUR_MS}",
        )
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
    binary, as_json = topics.largest_report(served.stream)
    limit = topic.number("max.message.bytes")
    if limit is not None and limit < binary:
        yield Finding(
            Level.ERROR,
            subject,
            f"max.message.bytes={limit}: not even one report fits",
            f"set max.message.bytes to {binary} at least, {as_json} for JSON",
        )
    elif limit is not None and limit < as_json:
        yield Finding(
            Level.WARNING,
            subject,
            f"max.message.bytes={limit}: a report fits as a binary frame, but not as JSON",
            f"set max.message.bytes to {as_json} at least",
        )


def _snapshot_faults(config: Config, topic: Topic, there: Mapping[str, Topic]) -> Iterator[Finding]:
    subject = f"topic {config.snapshots.topic}"
    policy = topic.settings["cleanup.policy"]
    if policy != "compact":
        yield Finding(
            Level.ERROR,
            subject,
            f"cleanup.policy={policy}: the newest snapshot would be deleted with time, and its number forgotten",
            "set cleanup.policy=compact",
        )
    need = max(
        topics.largest_message(served.stream, there[served.topic].partitions if served.topic in there else 1)
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


def _dead_letter_faults(config: Config, topic: Topic, there: Mapping[str, Topic]) -> Iterator[Finding]:
    subject = f"topic {config.dead_letters.topic}"
    policy = topic.settings["cleanup.policy"]
    if policy != "delete":
        yield Finding(
            Level.WARNING,
            subject,
            f"cleanup.policy={policy}: no two dead letters have the same key, so compaction removes none",
            "set cleanup.policy=delete",
        )
    limit = topic.number("max.message.bytes")
    inputs = [
        there[served.topic].number("max.message.bytes") for served in config.streams if served.topic in there
    ]
    largest = max((size for size in inputs if size is not None), default=0)
    if limit is not None and limit < largest:
        yield Finding(
            Level.WARNING,
            subject,
            f"max.message.bytes={limit}, but records of reports may have {largest}: the dead letters of larger records"
            " hold only their hash and beginning",
            f"set max.message.bytes={largest} to keep them whole",
        )


def _replication_faults(name: str, topic: Topic) -> Iterator[Finding]:
    subject = f"topic {name}"
    in_sync = topic.number("min.insync.replicas") or 1
    if in_sync > topic.replicas:
        yield Finding(
            Level.ERROR,
            subject,
            f"min.insync.replicas={in_sync} with {topic.replicas} replica(s): nothing can be written",
            "lower min.insync.replicas or add replicas",
        )
    elif topic.replicas == 1:
        yield Finding(
            Level.WARNING,
            subject,
            "one replica: a lost disk takes what it holds along",
            "beyond a trial: replication factor 3 with min.insync.replicas=2",
        )
    elif in_sync == 1:
        yield Finding(
            Level.WARNING,
            subject,
            f"{topic.replicas} replicas but min.insync.replicas=1: an acknowledged record can be lost with one broker",
            "set min.insync.replicas=2",
        )
    elif in_sync == topic.replicas:
        yield Finding(
            Level.WARNING,
            subject,
            f"min.insync.replicas={in_sync} of {topic.replicas} replicas: writes stop while any one broker is down",
            "one replica more than min.insync.replicas",
        )
    if topic.settings.get("unclean.leader.election.enable") == "true":
        yield Finding(
            Level.WARNING,
            subject,
            "unclean.leader.election.enable=true: the log may lose records that were acknowledged and counted",
            "set unclean.leader.election.enable=false",
        )


def _reports(config: Config, served: Served) -> Finding:
    """Judges the newest records of a stream's topic, if they can be read."""
    try:
        return judge_reports(served, [record.value for record in newest(config, served.topic)])
    except kafka.errors.KafkaError as error:
        text = f"the newest records of topic {served.topic} cannot be read: {error}"
        return Finding(Level.WARNING, f"reports of {served.stream.name}", text, "run check again")


def judge_reports(served: Served, values: Sequence[bytes | None]) -> Finding:
    """Judges whether clients send what the stream counts; all rejected means that nothing is counted.

    Args:
        served: the stream.
        values: the newest records' values.
    """
    name = served.stream.name
    subject, text = f"reports of {name}", f"fingerprint {served.stream.fingerprint.hex()}"
    reasons = rejections.reasons(served.stream, served.configured.terms, values)
    if not reasons:
        none = f"none of the newest {len(values):,} records is rejected" if values else "no record yet"
        return Finding(Level.OK, subject, f"{text}; {none}")
    none_counted = reasons.total() == len(values)
    share = "all" if none_counted else f"{min(99.9, 100 * reasons.total() / len(values)):.3g} %"
    text += f"; {share} of the newest {len(values):,} records are rejected: {rejections.said(reasons)}"
    (most, _), *_ = reasons.most_common(1)
    todo = f"{most}: {frames.REASONS[most]}; ldp-worker dead-letters shows where they came from"
    if frames.Reason.FINGERPRINT in reasons:
        todo += f", ldp-worker document --stream {name} prints what clients need"
    return Finding(Level.ERROR if none_counted else Level.WARNING, subject, text, todo)


def _head(config: Config, served: Served) -> Head:
    """Returns the head of a stream's newest published snapshot."""
    identity = config.transactional_id(served.stream)
    outbox = KafkaOutbox(config.kafka.client(), identity, config.snapshots.topic, served.stream)
    return outbox.head(decided=True, wait_seconds=brokers.PATIENCE)


def judge_head(config: Config, served: Served, topic: Topic | None, head: Head) -> Finding:
    """Judges whether a stream's snapshots can be gone on with, by the head of the newest.

    Args:
        config: whose group counts.
        served: the stream.
        topic: its topic, if there is one.
        head: the newest snapshot's.
    """
    subject = f"snapshots of {served.stream.name}"
    if not head.sequence:
        return Finding(Level.OK, subject, "none yet")
    text = f"the newest is number {head.sequence}"
    topic_id = head.lineage.get("topic_id", "") if topic is None else topic.topic_id
    lineage = layout.lineage(config.consumer_group(served.stream), served.stream, topic_id)
    if differing := head.foreign(lineage):
        text += f", of other counts than this configuration's: {'; '.join(differing)}"
        todo = "undo the change of the configuration, or give this stream another name or another snapshots.topic"
        return Finding(Level.ERROR, subject, text, todo)
    if head.uncounted:
        partitions = ", ".join(map(str, head.uncounted))
        text += f"; it leaves out partition {partitions}, which has records and no counts in Redis"
        todo = "let every worker of the group use the same redis.url; start workers, if too few run"
        return Finding(Level.WARNING, subject, text, todo)
    return Finding(Level.OK, subject, text)


def judge_undecided(topic: str, held: Sequence[Undecided]) -> list[Finding]:
    """Judges what transactions hold back: while they are short it is a producer at work, else it is a hold-up."""
    findings = []
    for one in held:
        by = f" ({', '.join(one.by)})" if one.by else ""
        age = "" if one.seconds is None else f", open for {one.seconds:.0f} s,"
        text = (
            f"partition {one.partition}: a transaction{by}{age} holds back {one.end - one.first} offset(s) from"
            f" {one.first} on, of whichever producer: they are counted once it ends, and are in no lag until then"
        )
        level = Level.ERROR if (one.seconds or 0) > LONG_SECONDS else Level.WARNING
        todo = "if its producer is gone: wait for its transaction.timeout.ms, or kafka-transactions.sh abort"
        findings.append(Finding(level, f"topic {topic}", text, todo))
    return findings


def _describe(admin: KafkaAdminClient, config: Config) -> Cluster:
    """Asks the cluster for all that is judged; a coordinator that only just starts is given time."""
    there = topics.describe(admin, [topic.name for topic in topics.wanted(config, 1)])
    known = [served for served in config.streams if served.topic in there]
    deadline = time.monotonic() + brokers.PATIENCE
    while True:
        try:
            words = {s.topic: topics.words(admin, config.consumer_group(s.stream), s.topic) for s in known}
            break
        except kafka.errors.RetriableError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.2)
    logs = {s.topic: topics.bounds(admin, s.topic, range(there[s.topic].partitions)) for s in known}
    held = {s.topic: undecided(admin, s.topic, range(there[s.topic].partitions)) for s in known}
    return Cluster(there, logs, words, held)


# --- Redis --------------------------------------------------------------------------------------------------


def _info(client: "redis.Redis", deadline: float) -> dict[str, Any]:
    while True:
        try:
            return dict(client.info())
        except (redis.ConnectionError, redis.TimeoutError):  # BusyLoading is a ConnectionError
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.2)


def _setting(client: "redis.Redis", name: str) -> str | None:
    """Returns a setting, or None where CONFIG is not allowed, as in managed services."""
    try:
        reply = client.config_get(name)
    except redis.ResponseError:
        return None
    return str(reply.get(name)) if reply else None


def judge_redis(info: Mapping[str, Any], appendfsync: str | None) -> list[Finding]:
    """Judges a Redis server by its INFO and its appendfsync."""
    findings = []
    version = str(info["redis_version"])
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_REDIS:
        findings.append(Finding(Level.ERROR, "redis", f"version {version}", "use Redis 6.2 or newer"))
    if info.get("role") == "slave":
        findings.append(
            Finding(Level.ERROR, "redis", "a replica: it refuses writes", "let redis.url name the primary")
        )
    if int(info.get("cluster_enabled", 0)):
        findings.append(
            Finding(
                Level.ERROR,
                "redis",
                "a cluster's node: a worker talks to one server",
                "use a single primary, with replicas for safety",
            )
        )
    policy = str(info.get("maxmemory_policy", "noeviction"))
    if policy != "noeviction":
        findings.append(
            Finding(
                Level.ERROR,
                "redis",
                f"maxmemory-policy={policy}: counts are evicted when memory is short",
                "set maxmemory-policy noeviction",
            )
        )
    if not int(info.get("aof_enabled", 0)):
        findings.append(
            Finding(
                Level.WARNING,
                "redis",
                "no append-only file: a restart goes back to the last dump, or to nothing, which stops the stream",
                "set appendonly yes, appendfsync everysec",
            )
        )
    elif appendfsync == "no":
        findings.append(
            Finding(
                Level.WARNING,
                "redis",
                "appendfsync=no: a crash of the machine goes back by as much as its cache held",
                "set appendfsync everysec; what is lost together is counted again from Kafka",
            )
        )
    replicas = int(info.get("connected_slaves", 0))
    fsync = f", appendfsync {appendfsync}" if appendfsync and int(info.get("aof_enabled", 0)) else ""
    behind = (
        "; one that is promoted while behind is counted up again from Kafka, within the topic's retention"
        if replicas
        else ""
    )
    return [Finding(Level.OK, "redis", f"Redis {version}, {replicas} replica(s){fsync}{behind}"), *findings]


def judge_blobs(config: Config, limit: int) -> list[Finding]:
    """Judges whether the counts of a partition fit into one string of Redis; says nothing if they do."""
    findings = []
    for served in config.streams:
        oracle = served.stream.oracle
        size = layout.HEADER_BYTES + 8 * oracle.state_size
        if size > limit:
            text = f"a partition's counts are {size} bytes, proto-max-bulk-len is {limit}: Redis refuses them"
            todo = f"set proto-max-bulk-len {size} or more, or use a smaller domain or another protocol"
            findings.append(Finding(Level.ERROR, f"counts of {served.stream.name}", text, todo))
    return findings


def judge_used(info: Mapping[str, Any]) -> list[Finding]:
    """Judges how much of its memory Redis uses; says nothing if there is no limit, or room enough."""
    limit = int(info.get("maxmemory", 0))
    used = int(info.get("used_memory", 0)) - int(info.get("mem_not_counted_for_evict", 0))
    if not limit or used <= _NEARLY * limit:
        return []
    text, todo = f"{_size(used)} of {_size(limit)} are used", "raise maxmemory, or remove what is not needed"
    if used > limit:
        return [
            Finding(Level.ERROR, "redis memory", f"{text}: Redis refuses writes, nothing is committed", todo)
        ]
    return [Finding(Level.WARNING, "redis memory", f"{text}: soon Redis will refuse writes", todo)]


def judge_memory(config: Config, there: Mapping[str, Topic], info: Mapping[str, Any]) -> Finding:
    """Judges whether the counts fit in Redis, where staged and live blobs stand side by side during a commit."""
    need = 2 * sum(
        (8 * served.stream.oracle.state_size + _KEYS) * there[served.topic].partitions
        for served in config.streams
        if served.topic in there
    )
    limit = int(info.get("maxmemory", 0)) or int(info.get("total_system_memory", 0))
    text = f"all counts need up to {_size(need)}"
    if not limit:
        return Finding(Level.OK, "redis memory", text)
    text += f", Redis may use {_size(limit)}"
    level = Level.ERROR if need > limit else Level.WARNING if 2 * need > limit else Level.OK
    todo = "" if level is Level.OK else f"set maxmemory to {_size(2 * need)} or more"
    return Finding(level, "redis memory", text, todo)


def _size(count: int) -> str:
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if count >= 1 << power:
            return f"{count / (1 << power):.1f} {unit}"
    return f"{count} B"


def _judge_state(
    client: "redis.Redis",
    config: Config,
    cluster: Cluster,
    heads: Mapping[str, Head],
    info: Mapping[str, Any],
) -> Iterator[Finding]:
    """Judges what the counts need and what there is of them."""
    known = [served for served in config.streams if served.topic in cluster.topics]
    if known:
        yield judge_memory(config, cluster.topics, info)
    for served in known:
        fields = _metadata(client, served, cluster.topics[served.topic].partitions)
        yield from judge_counts(config, served, cluster, fields, heads.get(served.stream.name, Head()))


def _metadata(client: "redis.Redis", served: Served, partitions: int) -> dict[int, dict[str, str]]:
    """Returns the fields of those partitions' metadata that Redis has."""
    pipeline = client.pipeline(transaction=False)
    for partition in range(partitions):
        pipeline.hgetall(layout.meta_key(served.stream.name, partition))
    found = enumerate(pipeline.execute())
    return {p: {k.decode(): v.decode() for k, v in fields.items()} for p, fields in found if fields}


def judge_counts(
    config: Config,
    served: Served,
    cluster: Cluster,
    fields: Mapping[int, Mapping[str, str]],
    head: Head,
) -> list[Finding]:
    """Judges whether the counts in Redis, if any, can be gone on with.

    Args:
        config: whose group counts.
        served: the stream.
        cluster: what Kafka has.
        fields: partition -> its metadata in Redis.
        head: the newest snapshot's.
    """
    topic, log, words = cluster.topics[served.topic], cluster.logs[served.topic], cluster.words[served.topic]
    subject = f"counts of {served.stream.name}"
    now = layout.lineage(config.consumer_group(served.stream), served.stream, topic.topic_id)
    found: dict[tuple[Level, str, str], list[str]] = {}
    for partition in range(topic.partitions):
        metadata = fields.get(partition)
        word, published = words.get(partition, CLAIMED), head.offsets.get(partition, 0)
        fault = _fault_of_counts(metadata, word, published, log[partition], now, served.configured)
        if fault is not None:
            found.setdefault(fault, []).append(str(partition))
    if found:
        return [
            Finding(level, subject, f"partition {', '.join(partitions)}: {text}", todo)
            for (level, text, todo), partitions in found.items()
        ]
    text = f"in {len(fields)} of {topic.partitions} partition(s), ready to go on" if fields else "none yet"
    return [Finding(Level.OK, subject, text)]


def _fault_of_counts(
    fields: Mapping[str, str] | None,
    word: str,
    published: int,
    log: tuple[int, int],
    lineage: str,
    configured: Configured,
) -> tuple[Level, str, str] | None:
    """Returns what is wrong with the counts of a partition and what to do about it, or None."""
    anew = "undo the change of the configuration, restore Redis, or begin anew under another stream name"
    if fields is None:
        if word != CLAIMED:
            return Level.ERROR, "none in Redis, but Kafka's group has counted progress: they were lost", anew
        if published:
            text = f"none in Redis, but a snapshot was published with those up to offset {published}: they were lost"
            return Level.ERROR, text, anew
        return None
    try:
        metadata = layout.Metadata.parse(fields)
        differing = _differing(json.loads(metadata.lineage), json.loads(lineage))
        recorded = layout.recorded(metadata)
    except (layout.StateLost, ValueError) as error:
        return Level.ERROR, str(error), anew
    first, end = log
    if differing:
        return Level.ERROR, f"of another history: {'; '.join(differing)}", anew
    if metadata.offset > end:
        text = f"they reach offset {metadata.offset}, the log ends at {end}: it was truncated"
        return Level.ERROR, text, anew
    if metadata.offset < min(first, published):
        text = f"they reach offset {metadata.offset}, a snapshot was published with those up to {published}, and the"
        return (
            Level.ERROR,
            f"{text} log begins at {first}: Redis was set back too far to count them again",
            anew,
        )
    if metadata.offset < first:
        lost = range(metadata.offset, first)
        which = f"offset {lost[0]}" if len(lost) == 1 else f"offsets {lost[0]} to {lost[-1]}"
        text = f"the log lost {which} before counting"
        todo = "none: the gap will be recorded and snapshots say complete: false; lengthen retention.ms"
        return Level.WARNING, text, todo
    match rules.decide(recorded, configured, metadata.offset):
        case Older(why, todo):
            return Level.WARNING, why, todo
    return None


def _differing(stored: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    """Names the fields in which a stored lineage differs from today's."""
    return [
        f"{key} is {stored.get(key)!r} there, {now.get(key)!r} here"
        for key in sorted(stored.keys() | now.keys())
        if stored.get(key) != now.get(key)
    ]


# --- what is shown ------------------------------------------------------------------------------------------

_STYLE = {Level.OK: "green", Level.WARNING: "yellow", Level.ERROR: "bold red"}


def render(findings: Sequence[Finding]) -> Table:
    """Returns the findings as a table: how bad, then what was looked at and found; what to do stands below."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        style = _STYLE[finding.level]
        said = Text.assemble((finding.subject, "bold"), f": {finding.text}")
        if finding.todo:
            said.append(f"\n-> {finding.todo}", style="italic")
        table.add_row(Text(finding.level, style=style), said)
    return table


def as_json(findings: Sequence[Finding]) -> str:
    """Returns the findings as a JSON list."""
    return json.dumps([asdict(finding) for finding in findings], ensure_ascii=False, indent=2)
