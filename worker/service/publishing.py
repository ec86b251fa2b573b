"""Factories of the publisher and its parts, for use in either process."""

from collections.abc import Callable, Sequence
from functools import partial

from ldp.consistency import applicable
from worker.config import Config, Served
from worker.config.snapshots import most_bytes
from worker.counting.ports import Events, SnapshotProducer, StateReader
from worker.kafka.client import topics
from worker.kafka.client.reading import OnPassed
from worker.kafka.reports.group import KafkaGroup
from worker.kafka.snapshots.producer import KafkaSnapshotProducer
from worker.kafka.snapshots.topic import SnapshotTopic
from worker.publishing.planning import Content
from worker.publishing.publisher import Group, Publisher
from worker.publishing.recommender import Recommender
from worker.publishing.rows import RowTopic

MOST_VALUES = 1 << 14
"""Maximum snapshot values per second of a publisher in the process that counts.

A snapshot holds the interpreter lock for 0.5 µs per value, so counting waits at most 1 % of the time.
"""


def is_large(config: Config, served: Served) -> bool:
    """Returns whether a publisher needs its own process; see `MOST_VALUES`."""
    return (1 + served.cost.open) * served.fleet.size > MOST_VALUES * config.snapshots.every_seconds


def group_of(config: Config, served: Served) -> KafkaGroup:
    """Returns the stream's consumer group, with a separate connection."""
    connect = partial(topics.connect, config.kafka.client())
    return KafkaGroup(connect, config.consumer_group(served.name), served.topic)


def snapshot_producer_of(
    config: Config, served: Served, heartbeat: Callable[[], object], on_passed: OnPassed
) -> KafkaSnapshotProducer:
    """Returns the producer; long reads and sends call ``heartbeat``."""
    identity, table = config.transactional_id(served.name), config.snapshots
    size = most_bytes(table, served)
    topic = SnapshotTopic(config.kafka.client(), identity, table.topic, size, table.compression)
    return KafkaSnapshotProducer(
        topic, served.stream, rows=config.rows.topic, heartbeat=heartbeat, on_passed=on_passed
    )


def publisher(
    config: Config,
    served: Served,
    state_reader: StateReader,
    snapshot_producer: SnapshotProducer,
    group: KafkaGroup,
    partitions: Callable[[], Sequence[int]],
    epoch: Callable[[], int | None],
    events: Events,
) -> Publisher:
    """Returns a stream's publisher; see `Publisher` and `Group`."""
    queries, snapshots = served.queries, config.snapshots
    methods, parts_methods = (
        applicable(served.fleet.size, listed) for listed in (snapshots.methods, snapshots.parts_methods)
    )
    content = Content(
        queries,
        snapshots.level,
        methods,
        served.idle_timeout,
        served.retain,
        RowTopic(config.rows.topic, config.slots(served)),
        changed_level=snapshots.changed_level,
        changed_at_least=snapshots.changed_at_least,
        parts_fewest=snapshots.parts_fewest,
        parts_methods=parts_methods,
    )
    recommender = Recommender(queries, events, methods=methods)
    membership = Group(partitions, group.uncounted, epoch)
    return Publisher(served.fleet, content, state_reader, snapshot_producer, membership, recommender, events)
