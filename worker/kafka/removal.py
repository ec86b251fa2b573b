"""What Kafka has of a stream that is to be removed: its messages on the snapshot topic, and its group."""

import time

from kafka import KafkaConsumer, TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import GroupIdNotFoundError, KafkaError, KafkaTimeoutError

from worker.config import Config
from worker.kafka import quirks, topics
from worker.kafka.snapshot_topic import PARTITION, TIMEOUT_SECONDS, SnapshotTopic

_STALL_SECONDS = 2 * TIMEOUT_SECONDS
"""How long the topic's next record may take: as long as another stream's transaction may stay open, and more."""


def keys_of(admin: KafkaAdminClient, config: Config, stream: str) -> list[bytes]:
    """Returns the keys of a stream that have a message on the snapshot topic; O(messages of the topic).

    Raises:
        KafkaError: the brokers do not answer, or a transaction stays open.
    """
    tp = TopicPartition(config.snapshots.topic, PARTITION)
    _, end = topics.bounds(admin, tp.topic, [PARTITION])[PARTITION]
    consumer = KafkaConsumer(
        **config.kafka.client(),
        group_id=None,
        enable_auto_commit=False,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        allow_auto_create_topics=False,
    )
    try:
        consumer.assign([tp])
        consumer.seek_to_beginning(tp)
        there, before, deadline = set[bytes](), -1, 0.0
        while (position := consumer.position(tp)) < end:
            if position > before:
                before, deadline = position, time.monotonic() + _STALL_SECONDS
            elif time.monotonic() > deadline:
                raise KafkaTimeoutError(f"{tp}: records between {position} and {end} do not come")
            for record in consumer.poll(200).get(tp, []):
                if record.key is not None and record.key.startswith(f"{stream}/".encode()):
                    (there.discard if record.value is None else there.add)(record.key)
        return sorted(there)
    finally:
        consumer.close(autocommit=False)


def delete_messages(admin: KafkaAdminClient, config: Config, stream: str) -> int:
    """Deletes a stream's messages of the snapshot topic, all or none; returns how many.

    Whoever publishes the stream is fenced off first, so that none is added meanwhile.

    Raises:
        KafkaError: the brokers did not do it.
    """
    topic = SnapshotTopic(config.kafka.client(), config.transactional_id(stream), config.snapshots.topic)
    producer = topic.producer()
    try:
        producer.init_transactions()
        if keys := keys_of(admin, config, stream):
            producer.begin_transaction()
            sent = [producer.send(topic.name, value=None, key=key, partition=PARTITION) for key in keys]
            quirks.commit_transaction(producer, sent, TIMEOUT_SECONDS)
        return len(keys)
    finally:
        quirks.drop(producer)


def members(admin: KafkaAdminClient, group: str) -> int | None:
    """Returns how many workers count in a group; None where there is no such group.

    Raises:
        KafkaError: the brokers do not say it.
    """
    described = admin.describe_groups([group])[group]
    if described["error"] is not None and GroupIdNotFoundError.__name__ not in described["error"]:
        raise KafkaError(described["error"])
    return None if described["group_state"] == "Dead" else len(described["members"])


def delete_group(admin: KafkaAdminClient, group: str) -> None:
    """Deletes a group without members, with its offsets.

    Raises:
        KafkaError: it has members, or the brokers did not do it.
    """
    said = admin.delete_groups([group])[group]
    if said not in ("OK", GroupIdNotFoundError.__name__):
        raise KafkaError(f"group {group!r} is not deleted: {said}")
