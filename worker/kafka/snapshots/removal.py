"""Removes a stream from Kafka: messages, rows and consumer group."""

from collections.abc import Collection, Mapping

from kafka.admin import KafkaAdminClient
from kafka.errors import GroupIdNotFoundError, KafkaError

from worker.config import Config
from worker.kafka.client import quirks, topics
from worker.kafka.client.reading import OnPassed, ignore
from worker.kafka.client.transactions import TIMEOUT_SECONDS
from worker.kafka.snapshots import compacted
from worker.kafka.snapshots.topic import PARTITION, SnapshotTopic


def keys_of(
    admin: KafkaAdminClient, config: Config, stream: str, on_passed: OnPassed = ignore
) -> dict[str, list[bytes]]:
    """Returns a stream's keys by output topic, with its parts; O(records).

    Raises `KafkaError`: the brokers do not answer, or a transaction stays open.
    """
    topic = SnapshotTopic(config.kafka.client(), config.transactional_id(stream), config.snapshots.topic)
    parts = tuple(f"{stream}{mark}".encode() for mark in "/@:")
    begins = {config.snapshots.topic: (stream.encode(), parts)}
    if config.rows.topic is not None:
        rows = compacted.of_rows(stream)
        begins[config.rows.topic] = rows, (rows,)
    return {
        name: compacted.keys(
            topic.consumer("read_committed", common, on_passed),
            name,
            own,
            *topics.bounds(admin, name, [PARTITION])[PARTITION],
        )
        for name, (common, own) in begins.items()
    }


def delete_messages(
    admin: KafkaAdminClient, config: Config, stream: str, known: Mapping[str, Collection[bytes]]
) -> dict[str, int]:
    """Deletes a stream's messages and rows; returns their number by topic.

    It first fences off the stream's publisher. `known`: keys from an earlier listing, which are deleted even if a new
    listing lacks them. Raises `KafkaError`: the brokers did not confirm the deletion.
    """
    identity, table = config.transactional_id(stream), config.snapshots
    topic = SnapshotTopic(config.kafka.client(), identity, table.topic, compression=table.compression)
    producer = topic.producer()
    try:
        producer.init_transactions()
        now = keys_of(admin, config, stream)
        found = {name: {*there, *known.get(name, ())} for name, there in now.items()}
        if any(found.values()):
            producer.begin_transaction()
            sent = [
                producer.send(name, value=None, key=key, partition=PARTITION)
                for name, there in found.items()
                for key in there
            ]
            quirks.commit_transaction(producer, sent, TIMEOUT_SECONDS)
        return {name: len(there) for name, there in found.items()}
    finally:
        quirks.drop(producer)


def members(admin: KafkaAdminClient, group: str) -> int | None:
    """Returns a group's number of members; None if there is no group.

    Raises `KafkaError`: the brokers do not answer.
    """
    described = admin.describe_groups([group])[group]
    if described["error"] is not None and GroupIdNotFoundError.__name__ not in described["error"]:
        raise KafkaError(described["error"])
    return None if described["group_state"] == "Dead" else len(described["members"])


def delete_group(admin: KafkaAdminClient, group: str) -> None:
    """Deletes a group that has no members, and its offsets.

    Raises `KafkaError`: the group has members, or the brokers did not confirm the deletion.
    """
    outcome = admin.delete_groups([group])[group]
    if outcome not in ("OK", GroupIdNotFoundError.__name__):
        raise KafkaError(f"group {group!r} was not deleted: {outcome}")
