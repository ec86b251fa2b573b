"""The dead letters of a stream."""

from collections.abc import Mapping

from kafka import KafkaConsumer, TopicPartition

from tests.support.harness.waiting import until
from tests.support.harness.world import World

DeadLetters = Mapping[tuple[int, int], tuple[bytes | None, Mapping[str, str]]]
"""Value and headers by the record's partition and offset."""


def dead_letters(world: World, count: int, once: bool = True) -> DeadLetters:
    """Waits for exactly this many dead letters and asserts their headers."""
    at = TopicPartition(world.config.dead_letters.topic, 0)
    dead_letters = []
    consumer = KafkaConsumer(
        bootstrap_servers=world.kafka, group_id=None, isolation_level="read_committed", fetch_max_wait_ms=50
    )
    try:
        consumer.assign([at])
        consumer.seek_to_beginning(at)

        def read() -> bool:
            dead_letters.extend(consumer.poll(100).get(at, ()))
            many = len({dead_letter.key for dead_letter in dead_letters}) >= count
            return many and consumer.position(at) == consumer.end_offsets([at])[at]

        until(read, f"{count} dead letters")
    finally:
        consumer.close(autocommit=False)
    assert len(dead_letters) == count or not once
    found = {}
    for dead_letter in dead_letters:
        topic, partition, offset = dead_letter.key.decode().rsplit("/", 2)
        headers = {key: value.decode() for key, value in dead_letter.headers}
        assert topic == headers["__connect.errors.topic"] == world.topic
        assert partition == headers["__connect.errors.partition"]
        assert offset == headers["__connect.errors.offset"]
        assert headers["__connect.errors.exception.message"]
        assert headers["stream"] == world.name
        found[int(partition), int(offset)] = (dead_letter.value, headers)
    assert len(found) == count
    return found
