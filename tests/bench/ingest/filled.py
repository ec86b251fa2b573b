"""A topic that is full from its first moment on: its log is written before it is created."""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import OffsetSpec

from tests.bench.ingest.pool import Pool, lay

SECONDS = 120


@dataclass(frozen=True)
class Topic:
    """A topic that is full."""

    address: str
    name: str
    pool: Pool
    partitions: int
    turns: int  # turns of the pool, in each partition

    @property
    def end(self) -> int:
        """Number per partition."""
        return self.turns * self.pool.records

    @property
    def records(self) -> int:
        """Number in all partitions."""
        return self.end * self.partitions


@contextmanager
def filled(kafka: str, folder: Path, pool: Pool, partitions: int, turns: int) -> Iterator[Topic]:
    """A topic with this many turns of a pool in each partition; deleted at the end."""
    # A broker takes some 5,000 small batches a second: producing them takes longer than counting. So the log is
    # written to the folder where the broker finds it as it creates the partition, checks it and makes the indices.
    topic = Topic(kafka, f"reports-{uuid4().hex[:8]}", pool, partitions, turns)
    for partition in range(partitions):
        lay(pool, folder / f"{topic.name}-{partition}", turns)
    with closing(KafkaAdminClient(bootstrap_servers=kafka)) as admin:
        new = {"num_partitions": partitions, "replication_factor": 1}
        admin.create_topics({topic.name: new}, wait_for_metadata=True)
        try:
            _await(admin, topic)
            yield topic
        finally:
            admin.delete_topics([topic.name])


def _await(admin: KafkaAdminClient, topic: Topic) -> None:
    """Waits until the broker has all of it."""
    wanted = {
        TopicPartition(topic.name, partition): OffsetSpec.LATEST for partition in range(topic.partitions)
    }
    deadline = time.monotonic() + SECONDS
    while True:
        ends = [end.offset for end in admin.list_partition_offsets(wanted).values()]
        if ends == [topic.end] * topic.partitions:
            return
        assert time.monotonic() < deadline, f"{topic.name} ends at {ends}, not at {topic.end}"
        time.sleep(0.1)
