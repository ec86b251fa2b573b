"""Publishing, wired: here store, snapshot producer, group and publisher of a stream meet, whichever process they are in."""

from collections.abc import Callable, Sequence
from functools import partial

from worker.config import Config, Served
from worker.config.snapshots import snapshot_cost
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
"""Values a second in snapshots, up to which a publisher is a thread of the process that counts.

A snapshot takes half a microsecond a value, and almost all of it holds the lock of the interpreter, so counting waits
meanwhile: for a hundredth of the time, at most. Beyond that another process, which takes memory, is worth it.
"""


def is_large(config: Config, served: Served) -> bool:
    """Returns whether a stream's snapshots are made in a process of their own: whether they have so many values."""
    windows = 1 if served.cost is None else 1 + served.cost.open
    return windows * served.stream.oracle.domain_size > MOST_VALUES * config.snapshots.every_seconds


def group_of(config: Config, served: Served) -> KafkaGroup:
    """Returns what is asked which partitions ought to have counts."""
    connect = partial(topics.connect, config.kafka.client())
    return KafkaGroup(connect, config.consumer_group(served.stream.name), served.topic)


def snapshot_producer_of(
    config: Config, served: Served, on_alive: Callable[[], object], on_passed: OnPassed
) -> KafkaSnapshotProducer:
    """Returns where a stream's snapshots go; reading and sending may take minutes, and say that they are alive."""
    stream, most_bytes = served.stream, snapshot_cost(config.snapshots, served).size
    identity = config.transactional_id(stream.name)
    topic = SnapshotTopic(config.kafka.client(), identity, config.snapshots.topic, most_bytes)
    return KafkaSnapshotProducer(topic, stream, rows=config.rows.topic, on_alive=on_alive, on_passed=on_passed)


def publisher(
    config: Config,
    served: Served,
    cuts: StateReader,
    snapshot_producer: SnapshotProducer,
    group: KafkaGroup,
    partitions: Callable[[], Sequence[int]],
    epoch: Callable[[], int | None],
    events: Events,
) -> Publisher:
    """Returns what publishes a stream while partition 0 is held here; `Publisher` says what is given."""
    stream, queries, snapshots = served.stream, served.queries, config.snapshots
    content = Content(
        queries,
        snapshots.level,
        snapshots.methods,
        snapshots.fewest_new,
        served.idle_after,
        served.retain,
        RowTopic(config.rows.topic, config.slots(served)),
        changed_level=snapshots.changed_level,
        changed_at_least=snapshots.changed_at_least,
    )
    recommender = Recommender(stream, queries, events, methods=snapshots.methods)
    membership = Group(partitions, group.uncounted, epoch)
    return Publisher(stream, content, cuts, snapshot_producer, membership, recommender, events)
