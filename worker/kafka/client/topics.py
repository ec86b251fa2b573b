"""Specifies, describes and creates the topics that a configuration needs.

Each stream has a topic of reports and, if configured, an intake topic of uploads. All streams share the topic of dead
letters, the compacted topic of snapshots and, if configured, the compacted topic of rows. Existing topics are never
changed; `worker.check.topics` checks them.
"""

import contextlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import kafka.errors
from kafka import IsolationLevel, OffsetAndMetadata, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, OffsetSpec

import ldp
from ldp import wire
from ldp.snapshot import largest_message
from worker.config import Config, Served
from worker.kafka.client import quirks

HOUR_MS = 3_600_000
APPEND_TIME = "LogAppendTime"  # ``message.timestamp.type`` for the broker's time
_APPENDED = {"message.timestamp.type": APPEND_TIME}
"""Broker time on output topics: with producer time, brokers reject records from a worker whose clock is ahead."""
_INTAKE = {
    "cleanup.policy": "delete",
    **_APPENDED,
    "retention.ms": str(24 * HOUR_MS),
    "segment.ms": str(HOUR_MS // 6),  # only complete segments are deleted from the disk
}
_ANY_MS = 1000 * 24 * HOUR_MS
"""A timestamp bound above this counts as unlimited; Kafka's default is the largest 64-bit number."""
BROKERS_DEFAULT = -1  # Replication factor that means the brokers' default
BROKER_LIMIT = 1_048_588  # Kafka's default of ``max.message.bytes``

RECORD = 512  # Overhead in bytes of a record with one report
_ROW = 2048  # Bytes of a row without its label and its query's name
_SEGMENT = 64 << 20


@dataclass(frozen=True)
class TopicSpec:
    """A topic that the configuration needs, with the settings to create it."""

    name: str
    role: str
    partitions: int
    settings: Mapping[str, str]


@dataclass(frozen=True)
class Topic:
    """A topic of the cluster."""

    topic_id: str  # changes if the topic is created again
    partitions: int
    replicas: int  # number of replicas of the least replicated partition
    settings: Mapping[str, str]  # all settings, with defaults

    def number(self, key: str) -> int | None:
        """Returns a numeric setting; None if the broker lacks it."""
        text = self.settings.get(key)
        return None if text is None else int(text)

    @property
    def append_time(self) -> bool:
        """Whether the broker sets the timestamps of records."""
        return self.settings.get("message.timestamp.type") == APPEND_TIME

    @property
    def ahead(self) -> int | None:
        """Most ms that a timestamp may be ahead of the broker; None if unlimited."""
        if self.append_time:
            return 0
        bound = self.number("message.timestamp.after.max.ms")
        if bound is None:  # before Kafka 3.6 one setting bounds past and future
            bound = self.number("message.timestamp.difference.max.ms")
        return None if bound is None or bound > _ANY_MS else bound


@dataclass(frozen=True)
class Creation:
    """A needed topic, its state, and whether `create` created it."""

    spec: TopicSpec
    created: bool
    topic: Topic


class TopicError(RuntimeError):
    """A topic is missing, or the cluster refused to create one."""


def largest_report(fleet: ldp.Fleet) -> tuple[int, int]:
    """Returns the most bytes of a message with one report: (binary, JSON).

    Example:
        >>> small, large = (ldp.Stream("s", make("1", domain_size=1 << 20)) for make in (ldp.OLH, ldp.OUE))
        >>> largest_report(ldp.Fleet((small,))), largest_report(ldp.Fleet((small, large)))
        ((517, 520), (131584, 175276))
    """
    size = max(each.oracle.report_bytes for each in fleet.documents)
    return size + RECORD, wire.base64_bytes(size) + RECORD


def largest_of_snapshots(served: Served, partitions: int) -> int:
    """Returns the size in bytes of the largest message of any snapshot."""
    windows, segments = served.cost.named, served.configured.segments
    return largest_message(served.fleet, served.queries, partitions, windows, segments)


def largest_of_rows(served: Served) -> int:
    """Returns the size in bytes of a stream's largest row, including the key."""
    names = [query.name for query in served.queries]
    longest = max((len(json.dumps(text, ensure_ascii=False).encode()) for text in names), default=0)
    label = max(
        (len(json.dumps(text, ensure_ascii=False).encode()) for text in served.fleet.labels or ()), default=0
    )
    return _ROW + 2 * longest + label


def clock(served: Served, event_time: bool) -> dict[str, str]:
    """Returns the timestamp settings of a topic of reports.

    Windows use the brokers' time by default. With ``event_time`` they use the producers' time, which may be ahead of
    the brokers' clock by at most `max_out_of_orderness`.
    """
    windowing = served.configured.limits.windowing
    if windowing is not None and not event_time:
        return {"message.timestamp.type": APPEND_TIME}
    ahead = HOUR_MS if windowing is None else windowing.max_out_of_orderness
    return {"message.timestamp.type": "CreateTime", "message.timestamp.after.max.ms": str(ahead)}


def specs(config: Config, partitions: int, event_time: bool = False) -> list[TopicSpec]:
    """Returns the topics that a configuration needs; see `create`."""
    needed = [
        TopicSpec(
            served.topic,
            f"reports of {served.name}",
            partitions,
            {"cleanup.policy": "delete"}
            | clock(served, event_time)
            | _size_limit(max(largest_report(served.fleet))),
        )
        for served in config.streams
    ]
    needed += [
        TopicSpec(served.intake, f"uploads of {served.stream.name}", 1, _INTAKE)
        for served in config.streams
        if served.intake is not None
    ]
    largest = max(largest_of_snapshots(served, partitions) for served in config.streams)
    needed.append(
        TopicSpec(
            config.snapshots.topic,
            "snapshots",
            1,
            {
                "cleanup.policy": "compact",
                **_APPENDED,
                "max.message.bytes": str(max(BROKER_LIMIT, 2 * largest)),
                # only closed segments are compacted, so close them early
                "segment.ms": str(HOUR_MS // 6),
                "segment.bytes": str(max(_SEGMENT, 4 * largest)),
                "min.cleanable.dirty.ratio": "0.1",
            },
        )
    )
    if config.rows.topic is not None:
        needed.append(TopicSpec(config.rows.topic, "rows", 1, _of_rows(config)))
    needed.append(
        TopicSpec(config.dead_letters.topic, "dead letters", 1, {"cleanup.policy": "delete", **_APPENDED})
    )
    return needed


def _of_rows(config: Config) -> dict[str, str]:
    return {
        "cleanup.policy": "compact",
        **_APPENDED,
        # a reader that was offline for a week still sees deletions
        "delete.retention.ms": str(7 * 24 * HOUR_MS),
        "segment.ms": str(HOUR_MS // 6),
        "min.cleanable.dirty.ratio": "0.1",
    } | _size_limit(max(largest_of_rows(served) for served in config.streams))


def _size_limit(largest: int) -> dict[str, str]:
    return {"max.message.bytes": str(largest)} if largest > BROKER_LIMIT else {}


def connect(settings: Mapping[str, Any]) -> KafkaAdminClient:
    """Connects an admin client."""
    quirks.mend_connections()
    return KafkaAdminClient(**settings)


def require(admin: KafkaAdminClient, name: str) -> None:
    """Raises `TopicError` unless a topic exists."""
    if not _describe_existing(admin, [name]):
        raise TopicError(f"topic {name!r} does not exist; ldp-worker create-topics creates missing topics")


def describe(admin: KafkaAdminClient, names: Iterable[str]) -> dict[str, Topic]:
    """Describes the named topics that exist."""
    found = _describe_existing(admin, names)
    if not found:
        return {}
    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in found]
    settings = admin.describe_configs(resources, config_filter="all")["topic"]
    return {name: _topic(topic, settings[name]) for name, topic in found.items()}


def cleanup_policy(settings: Mapping[str, Any], name: str) -> str | None:
    """Returns a topic's ``cleanup.policy``, or None if unknown."""
    try:
        with contextlib.closing(connect(settings)) as admin:
            return describe(admin, [name])[name].settings.get("cleanup.policy")
    except (kafka.errors.KafkaError, OSError, KeyError):
        return None


def _describe_existing(admin: KafkaAdminClient, names: Iterable[str]) -> dict[str, Mapping[str, Any]]:
    found = {}
    for topic in admin.describe_topics(list(names)):
        error = kafka.errors.for_code(topic["error_code"])
        if error is kafka.errors.UnknownTopicOrPartitionError:
            continue
        if error is not kafka.errors.NoError:
            raise error(f"topic {topic['name']!r}")
        found[topic["name"]] = topic
    return found


def _topic(topic: Mapping[str, Any], settings: Mapping[str, Mapping[str, Any]]) -> Topic:
    return Topic(
        topic_id=str(topic["topic_id"]),
        partitions=len(topic["partitions"]),
        replicas=min(len(partition["replica_nodes"]) for partition in topic["partitions"]),
        settings={key: setting["value"] for key, setting in settings.items() if setting["value"] is not None},
    )


def bounds(
    admin: KafkaAdminClient, topic: str, partitions: Iterable[int], *, stable: bool = False
) -> dict[int, tuple[int, int]]:
    """Returns each log's first offset and end.

    The end is the high watermark, or with `stable` the last stable offset.
    """
    both = [TopicPartition(topic, partition) for partition in partitions]
    level = IsolationLevel.READ_COMMITTED if stable else IsolationLevel.READ_UNCOMMITTED
    first = admin.list_partition_offsets(dict.fromkeys(both, OffsetSpec.EARLIEST))
    end = admin.list_partition_offsets(dict.fromkeys(both, OffsetSpec.LATEST), isolation_level=level)
    return {tp.partition: (first[tp].offset, end[tp].offset) for tp in both}


def committed(admin: KafkaAdminClient, group: str, topic: str) -> dict[int, OffsetAndMetadata]:
    """Returns the offsets that a group has committed for a topic."""
    offsets = admin.list_group_offsets({group: None})[group]
    return {tp.partition: one for tp, one in offsets.items() if tp.topic == topic and one.offset >= 0}


def create(
    admin: KafkaAdminClient,
    config: Config,
    partitions: int = 4,
    replication_factor: int = BROKERS_DEFAULT,
    event_time: bool = False,
) -> list[Creation]:
    """Creates the missing topics; does not change existing topics.

    Raises `TopicError`: the cluster refused to create a topic.
    """
    needed = specs(config, partitions, event_time)
    there = describe(admin, [topic.name for topic in needed])
    missing = {
        topic.name: {
            "num_partitions": topic.partitions,
            "replication_factor": replication_factor,
            "configs": dict(topic.settings),
        }
        for topic in needed
        if topic.name not in there
    }
    created = set()
    if missing:
        for reply in admin.create_topics(missing, raise_errors=False)["topics"]:
            error = kafka.errors.for_code(reply["error_code"])
            if error is kafka.errors.NoError:
                created.add(reply["name"])
            elif error is not kafka.errors.TopicAlreadyExistsError:  # another process created it
                why = reply.get("error_message") or error.__name__
                raise TopicError(f"topic {reply['name']!r} could not be created: {why}")
        admin.wait_for_topics(list(missing))
        there = describe(admin, [topic.name for topic in needed])
    return [Creation(topic, topic.name in created, there[topic.name]) for topic in needed]
