"""Clients that read a topic and count its bytes. It runs where one of them is installed, not necessarily the other.

The argument is a JSON object: ``reader``, ``address``, ``topic``, ``partitions`` and ``records``, the number to read;
other fields are settings. Writes JSON lines on stdout at the beginning and at the end, the last one with ``bytes``.
"""

import json
import sys
from typing import Any


def say(**facts: object) -> None:
    """Writes a line for the benchmark."""
    print(json.dumps(facts), flush=True)


def kafka_python(address: str, topic: str, partitions: int, records: int) -> int:
    """The client that the worker is built on, as it comes."""
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=address,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        max_poll_records=20_000,
        max_partition_fetch_bytes=8 << 20,
    )
    consumer.assign([TopicPartition(topic, partition) for partition in range(partitions)])
    say(begin=0)
    size = 0
    while records > 0:
        for polled in consumer.poll(1_000).values():
            records -= len(polled)
            size += sum(len(record.value) for record in polled)
    return size


def confluent(address: str, topic: str, partitions: int, records: int, **settings: object) -> int:
    """librdkafka's records in lists, as its Python client gives them; further arguments are settings of it."""
    from confluent_kafka import Consumer, TopicPartition  # type: ignore[import-not-found]

    consumer: Any = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "bench",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
        | settings
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    say(begin=0)
    size = 0
    while records > 0:
        messages = consumer.consume(1_000, 1.0)
        records -= len(messages)
        size += sum(len(message.value()) for message in messages)
    return size


def main() -> None:
    """Reads once, and waits to be killed, so that what it used can be read."""
    task = json.loads(sys.argv[1])
    size = {"kafka-python": kafka_python, "confluent": confluent}[task.pop("reader")](**task)
    say(end=True, bytes=size)
    sys.stdin.read()


if __name__ == "__main__":
    main()
