"""Describes brokers, topics, logs and groups for ``ldp-worker check``."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import kafka.errors
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient
from kafka.protocol.producer import AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest

from worker.config import Config, Served
from worker.counting.head import Head
from worker.counting.ports import COUNTED
from worker.kafka.admin.open_transactions import OpenTransactions, find_open_transactions
from worker.kafka.client import brokers, topics
from worker.kafka.client.reading import OnPassed
from worker.kafka.client.topics import Topic
from worker.kafka.snapshots.producer import KafkaSnapshotProducer
from worker.kafka.snapshots.topic import SnapshotTopic

_TRANSACTION_APIS = {api.API_KEY for api in (InitProducerIdRequest, AddPartitionsToTxnRequest, EndTxnRequest)}


@dataclass(frozen=True)
class Brokers:
    """Broker properties that ``ldp-worker check`` examines."""

    count: int
    version: tuple[int, ...]  # the oldest Kafka release with the first broker's API versions
    cluster_id: str
    # shortest and longest session time-out of the first broker, in ms; None if this user may not read them
    sessions: tuple[int, int] | None = None
    transactions: bool = True  # whether the first broker supports transactions
    compacts: bool = True  # whether the first broker compacts topics


@dataclass(frozen=True)
class Cluster:
    """State of a configuration's topics and groups, by topic and partition."""

    topics: Mapping[str, Topic]
    logs: Mapping[str, Mapping[int, tuple[int, int]]]  # (first offset, end)
    offset_metadata: Mapping[str, Mapping[int, str]]  # metadata of the group's committed offset
    open_transactions: Mapping[str, Sequence[OpenTransactions]] = field(default_factory=dict)
    counted: Mapping[str, Mapping[int, int]] = field(
        default_factory=dict
    )  # committed offset if marked `COUNTED`


def describe_brokers(admin: KafkaAdminClient) -> Brokers:
    """Describes the brokers: version, session time-outs and features."""
    cluster = admin.describe_cluster()
    there = cluster["brokers"]
    first = there[0]["broker_id"]
    data = admin.get_broker_version_data(first)
    resource = ConfigResource(ConfigResourceType.BROKER, str(first))
    settings = admin.describe_configs([resource], config_filter="all")["broker"][str(first)]
    return Brokers(
        len(there),
        tuple(data.broker_version),
        cluster["cluster_id"],
        _sessions(settings),
        data.api_versions.keys() >= _TRANSACTION_APIS,
        settings.get("log.cleaner.enable", {}).get("value") != "false",
    )


def _sessions(settings: Mapping[str, Mapping[str, Any]]) -> tuple[int, int] | None:
    """Returns a broker's session time-out limits in ms; None if unreadable."""
    keys = [f"group.{bound}.session.timeout.ms" for bound in ("min", "max")]
    if not all(key in settings for key in keys):
        return None
    shortest, longest = (int(settings[key]["value"]) for key in keys)
    return shortest, longest


def describe(admin: KafkaAdminClient, config: Config) -> Cluster:
    """Describes the topics and groups; retries while the coordinator starts."""
    there = topics.describe(admin, [spec.name for spec in topics.specs(config, 1)])
    known = [served for served in config.streams if served.topic in there]
    deadline = time.monotonic() + brokers.TIMEOUT_SECONDS
    while True:
        try:
            committed = {
                s.topic: topics.committed(admin, config.consumer_group(s.name), s.topic) for s in known
            }
            break
        except kafka.errors.RetriableError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.2)
    logs = {s.topic: topics.bounds(admin, s.topic, range(there[s.topic].partitions)) for s in known}
    held = {s.topic: find_open_transactions(admin, s.topic, range(there[s.topic].partitions)) for s in known}
    metadata = {topic: {p: one.metadata for p, one in found.items()} for topic, found in committed.items()}
    counted = {
        topic: {p: one.offset for p, one in found.items() if one.metadata == COUNTED}
        for topic, found in committed.items()
    }
    return Cluster(there, logs, metadata, held, counted)


def head(config: Config, served: Served, on_passed: OnPassed) -> Head:
    """Returns a stream's newest head; see `KafkaSnapshotProducer.head`.

    Raises `StateLost`: the head is invalid, or a newer version wrote it. Raises `Unavailable`: the brokers do not
    answer, or a transaction stays open.
    """
    identity = config.transactional_id(served.name)
    topic = SnapshotTopic(config.kafka.client(), identity, config.snapshots.topic)
    snapshot_producer = KafkaSnapshotProducer(topic, served.stream, on_passed=on_passed)
    return snapshot_producer.head(decided=True, wait_seconds=brokers.TIMEOUT_SECONDS)
